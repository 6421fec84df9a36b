"""The posterior of every variable of a network, or person of a crowd, given what was released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from shoal.attacks.beliefs import Beliefs
from shoal.attacks.seen import Seen, SumSeen
from shoal.attacks.variables import (
    Columns,
    added_by,
    columns_of,
    entries_seen,
    log_likelihood,
    refuse_variables,
)
from shoal.core.errors import InputError
from shoal.core.value import Floats, Ints
from shoal.loss.network_sums import NetworkComponent
from shoal.models.bayesnet import BayesNet
from shoal.models.contagion import Contagion


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


def crowd_beliefs(model: Contagion, seen: Sequence[Seen]) -> Beliefs:
    """What somebody who holds a contagion model believes about every person.

    Within a group by the polynomial Π (l(well) + l(ill)·z) of what was seen of each person, whose
    coefficients are spread over the number of people ill; over groups by convolution.
    """
    refuse_variables(seen, model.describe())
    columns = Columns(model.states, (np.arange(2),) * len(model.variables))
    tilts, shift = _tilts(seen, columns)
    weights = _weights(seen, 2)
    count = np.arange(len(model.variables) + 1)[:, None]
    answers = (len(model.variables) - count) * weights[0] + count * weights[1]
    likelihood = log_likelihood(seen, answers)
    likely = np.ones((len(model.variables), 2)) if tilts is None else tilts
    groups = [_group(model, g, likely) for g in range(len(model.groups))]
    nothing = np.ones_like(likely)
    priors = [_group(model, g, nothing) for g in range(len(model.groups))]
    rest = _all_but_one([table[0].sum(axis=0) for table in groups])
    joint = np.zeros((len(model.variables), 2))
    before = np.zeros((len(model.variables), 2))
    for g, people in enumerate(model.groups):
        for place, person in enumerate(people):
            before[person] = priors[g][place].sum(axis=1)
            joint[person] = [_total(row, rest[g], likelihood) for row in groups[g][place]]
    return _beliefs(model.states, before, joint, shift)


def _group(model: Contagion, group: int, likely: Floats) -> list[Floats]:
    """For every person of a group: P(state, number ill, seen), (2, size + 1)."""
    people, law = model.groups[group], model.law_of(group)
    size = len(people)
    if not model.exchangeable(group):
        return _listed(law, likely[list(people)])
    share = np.array([law[n] / math.comb(size, n) for n in range(size + 1)])
    found = []
    for person in people:
        others = reduce(np.convolve, (likely[p] for p in people if p != person), np.ones(1))
        well, ill = np.zeros(size + 1), np.zeros(size + 1)
        well[:-1], ill[1:] = others * likely[person, 0], others * likely[person, 1]
        found.append(np.stack([well * share, ill * share]))
    return found


def _listed(law: Floats, likely: Floats) -> list[Floats]:
    """The same for a joint law that is written out."""
    outcomes = np.indices(law.shape).reshape(law.ndim, -1)
    weight = law.ravel() * np.prod(
        [likely[place][outcomes[place]] for place in range(law.ndim)], axis=0
    )
    ill = outcomes.sum(axis=0)
    return [
        np.stack(
            [
                np.bincount(ill, np.where(outcomes[place] == state, weight, 0.0), law.ndim + 1)
                for state in (0, 1)
            ]
        )
        for place in range(law.ndim)
    ]


def _all_but_one(laws: list[Floats]) -> list[Floats]:
    """For every law the convolution of all others, from both ends."""
    before = [np.ones(1)]
    for law in laws[:-1]:
        before.append(np.convolve(before[-1], law))
    after = [np.ones(1)]
    for law in reversed(laws[1:]):
        after.append(np.convolve(after[-1], law))
    return [np.convolve(one, two) for one, two in zip(before, reversed(after), strict=True)]


def _total(own: Floats, rest: Floats, likelihood: Floats) -> float:
    """log Σ over the number ill of P(own, rest)·likelihood."""
    with np.errstate(divide="ignore"):
        return float(np.logaddexp.reduce(np.log(np.convolve(own, rest)) + likelihood))


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


def _weights(seen: Sequence[Seen], values: int) -> Ints:
    """All released sums side by side, (values, numbers); one number that is always 0 if none."""
    found = [one.weights for one in seen if isinstance(one, SumSeen)]
    return np.hstack(found) if found else np.zeros((values, 1), dtype=np.int64)


def _beliefs(states: tuple[str, ...], before: Floats, joint: Floats, shift: float) -> Beliefs:
    evidence = float(np.logaddexp.reduce(joint[0]))
    if evidence == -math.inf:
        raise InputError("what was seen is impossible under the model")
    after = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    return Beliefs(states, before, after, evidence + shift)
