"""The posterior of every variable of a network, or person of a crowd, given what was released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from shoal.attacks.beliefs import Beliefs
from shoal.attacks.seen import EntriesSeen, Seen, SumSeen
from shoal.core.errors import InputError, Refused
from shoal.core.value import Floats, Ints
from shoal.loss.network_sums import NetworkComponent
from shoal.models.bayesnet import BayesNet
from shoal.models.contagion import Contagion


def network_beliefs(net: BayesNet, seen: Sequence[Seen]) -> Beliefs:
    """What somebody who holds a Bayesian network believes about every variable.

    Exact, by elimination: P(X_v = x, sums) with one more axis for all released sums together, and
    what was seen of single variables as factors of its own.
    """
    if net.states is None:
        raise Refused("the network's variables take different values; attack one that shares them")
    tilts, shift = _tilts(seen, len(net.variables))
    weights = _weights(seen, len(net.states))
    whole = NetworkComponent(net, range(len(net.variables)), [weights] * len(net.variables))
    likelihood = _likelihood(seen, whole.values)
    evidence = dict(enumerate(tilts)) if tilts is not None else {}
    rows = []
    for v in range(len(net.variables)):
        with np.errstate(divide="ignore"):
            joint = np.log(whole.with_variable(v, evidence)) + likelihood
        rows.append(np.logaddexp.reduce(joint, axis=1))
    before = np.array([net.law(name) for name in net.variables])
    return _beliefs(net.states, before, np.array(rows), shift)


def crowd_beliefs(model: Contagion, seen: Sequence[Seen]) -> Beliefs:
    """What somebody who holds a contagion model believes about every person.

    Within a group by the polynomial Π (l(well) + l(ill)·z) of what was seen of each person, whose
    coefficients are spread over the number of people ill; over groups by convolution.
    """
    tilts, shift = _tilts(seen, len(model.variables))
    weights = _weights(seen, 2)
    count = np.arange(len(model.variables) + 1)[:, None]
    answers = (len(model.variables) - count) * weights[0] + count * weights[1]
    likelihood = _likelihood(seen, answers)
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


def _tilts(seen: Sequence[Seen], entries: int) -> tuple[Floats | None, float]:
    """The likelihood of what was seen of each entry, at most 1, and the logs taken out."""
    logs = [one.log_likelihood for one in seen if isinstance(one, EntriesSeen)]
    if not logs:
        return None, 0.0
    if any(len(rows) != entries for rows in logs):
        raise InputError(f"something was seen of a number of entries other than {entries}")
    total = np.sum(logs, axis=0)
    top = total.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        raise InputError("what was seen is impossible under the model")
    return np.exp(total - top), float(top.sum())


def _weights(seen: Sequence[Seen], values: int) -> Ints:
    """All released sums side by side, (values, numbers); one number that is always 0 if none."""
    found = [one.weights for one in seen if isinstance(one, SumSeen)]
    return np.hstack(found) if found else np.zeros((values, 1), dtype=np.int64)


def _likelihood(seen: Sequence[Seen], answers: Ints) -> Floats:
    out = np.zeros(len(answers))
    place = 0
    for one in seen:
        if isinstance(one, SumSeen):
            count = one.weights.shape[1]
            out += one.log_likelihood(answers[:, place : place + count])
            place += count
    return out


def _beliefs(states: tuple[str, ...], before: Floats, joint: Floats, shift: float) -> Beliefs:
    evidence = float(np.logaddexp.reduce(joint[0]))
    if evidence == -math.inf:
        raise InputError("what was seen is impossible under the model")
    after = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    return Beliefs(states, before, after, evidence + shift)
