"""The posterior of every variable of a network given what was released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

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
from shoal.core.errors import InputError, Refused
from shoal.core.value import Floats
from shoal.loss.mixture import DEEPEST_LINEAR
from shoal.loss.network_sums import NetworkComponent
from shoal.models.bayesnet import BayesNet

SMALLEST = -700.0  # log of a product that may have been rounded to 0, and of what is left of it
NEGLIGIBLE = -30.0  # log of the part of the evidence that may be missing


def network_beliefs(net: BayesNet, seen: Sequence[Seen]) -> Beliefs:
    """What somebody who holds a Bayesian network believes about every variable.

    Exact, by elimination: P(X_v = x, sums) with one more axis for all released sums together, and
    what was seen of single variables as factors of its own. Variables may differ in their values:
    beliefs have a column for each value of any of them, 0 where a variable does not take it, and
    what is seen of entries has the same columns. Where doubles cannot hold every outcome
    (`too_deep`) a belief below about 1e-13 may come out as 0; more than that is refused.
    """
    columns = columns_of(net)
    tilts, shift, depth = _tilts(seen, columns)
    whole = NetworkComponent(net, range(len(net.variables)), added_by(net, seen))
    likelihood = log_likelihood(seen, whole.values)
    evidence = {} if tilts is None else {v: tilts[v, p] for v, p in enumerate(columns.places)}
    rows = []
    for v in range(len(net.variables)):
        with np.errstate(divide="ignore"):
            joint = np.log(whole.with_variable(v, evidence)) + likelihood
        rows.append(np.logaddexp.reduce(joint, axis=1))
    _refuse_lost(net, depth, float(likelihood.max()), rows)
    before = [net.weight((v,), {}).log() for v in range(len(net.variables))]
    found = Beliefs.from_joint(
        columns.values, columns.spread(before, -math.inf), columns.spread(rows, -math.inf)
    )
    return replace(found, log_evidence=found.log_evidence + shift)


def too_deep(net: BayesNet, seen: Sequence[Seen]) -> bool:
    """Whether products of probabilities and likelihoods may be too small for a double."""
    return net.depth + _tilts(seen, columns_of(net))[2] > DEEPEST_LINEAR


def _refuse_lost(net: BayesNet, depth: float, likeliest: float, rows: Sequence[Floats]) -> None:
    """Refuse when products of probabilities too small for a double may decide a belief.

    Every outcome that was lost is less likely than SMALLEST, and no output is likelier given one
    than `likeliest`; where what was kept outweighs all of them together nothing is missing.
    """
    if net.depth + depth <= DEEPEST_LINEAR:
        return
    lost = likeliest + SMALLEST + sum(math.log(size) for size in net.sizes)
    kept = min(float(np.logaddexp.reduce(row)) for row in rows)
    if lost > kept + NEGLIGIBLE:
        raise Refused(
            "what was seen is so unlikely under the network that doubles cannot follow it; use "
            "more noise, or a network without values that are next to impossible"
        )


def _tilts(seen: Sequence[Seen], columns: Columns) -> tuple[Floats | None, float, float]:
    """The likelihood of what was seen of each entry, at most 1, and the logs taken out.

    Last the depth: -log of the least product of these likelihoods that is not 0.
    """
    logs = entries_seen(seen, columns)
    if logs is None:
        return None, 0.0, 0.0
    own = [logs[v, places] for v, places in enumerate(columns.places)]
    top = np.array([row.max() for row in own])
    if not np.isfinite(top).all():
        raise InputError("what was seen is impossible under the model")
    depth = sum(float(row.max() - row[row > -math.inf].min()) for row in own)
    # a value that is not the variable's own may look likelier, and is not read
    with np.errstate(over="ignore"):
        return np.exp(logs - top[:, None]), float(top.sum()), depth
