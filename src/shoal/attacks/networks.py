"""The posterior of every variable of a network given what was released."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shoal.attacks.beliefs import Beliefs
from shoal.attacks.seen import Seen
from shoal.attacks.variables import (
    Columns,
    added_by,
    columns_of,
    entries_seen,
    log_likelihood,
)
from shoal.core.errors import InputError
from shoal.core.value import Floats
from shoal.loss.network_sums import NetworkComponent
from shoal.models.bayesnet import BayesNet


def network_beliefs(net: BayesNet, seen: Sequence[Seen]) -> Beliefs:
    """What somebody who holds a Bayesian network believes about every variable.

    Exact, by elimination: P(X_v = x, sums) with one more axis for all released sums together, and
    what was seen of single variables as factors of its own. Variables may differ in their values:
    beliefs have a column for each value of any of them, 0 where a variable does not take it, and
    what is seen of entries has the same columns.
    """
    columns = columns_of(net)
    tilts, shift = _tilts(seen, columns)
    whole = NetworkComponent(net, range(len(net.variables)), added_by(net, seen))
    likelihood = log_likelihood(seen, whole.values)
    evidence = {} if tilts is None else {v: tilts[v, p] for v, p in enumerate(columns.places)}
    rows = []
    for v in range(len(net.variables)):
        with np.errstate(divide="ignore"):
            joint = np.log(whole.with_variable(v, evidence)) + likelihood
        rows.append(np.logaddexp.reduce(joint, axis=1))
    before = columns.spread([net.law(name) for name in net.variables], 0.0)
    return _beliefs(columns.values, before, columns.spread(rows, -math.inf), shift)


def _tilts(seen: Sequence[Seen], columns: Columns) -> tuple[Floats | None, float]:
    """The likelihood of what was seen of each entry, at most 1, and the logs taken out."""
    logs = entries_seen(seen, columns)
    if logs is None:
        return None, 0.0
    top = np.array([logs[v, own].max() for v, own in enumerate(columns.places)])
    if not np.isfinite(top).all():
        raise InputError("what was seen is impossible under the model")
    # a value that is not the variable's own may look likelier, and is not read
    with np.errstate(over="ignore"):
        return np.exp(logs - top[:, None]), float(top.sum())


def _beliefs(states: tuple[str, ...], before: Floats, joint: Floats, shift: float) -> Beliefs:
    evidence = float(np.logaddexp.reduce(joint[0]))
    if evidence == -math.inf:
        raise InputError("what was seen is impossible under the model")
    after = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    return Beliefs(states, before, after, evidence + shift)
