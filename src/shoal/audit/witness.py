"""From an output to what an adversary believes: the checkable half of every audit."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.audit.case import AuditCase
from shoal.audit.result import Witness
from shoal.core.codec import Floats, Ints
from shoal.core.walk import Coded, by_value, joint_evidence

WIDEST_ODDS = 60.0  # log-odds between two first states beyond which a start is as good as certain


class Sighting(NamedTuple):
    """An output of a walk of `nodes` nodes, and what it says about one entry.

    `likelihood` is its log-likelihood by code; `output` in lattice steps above the least answer.
    `pair` are the two values, the one it speaks for first (None: find them).
    """

    coded: Coded
    nodes: int
    entry: int
    likelihood: Floats
    output: Floats
    pair: tuple[int, int] | None = None


class Belief(NamedTuple):
    """What was learned about a pair of values, and under which initial law.

    The true log-ratio is at least log_ratio - rounding.
    """

    log_ratio: float
    pair: tuple[int, int]
    before: tuple[float, float]
    after: tuple[float, float]
    initial: Floats
    rounding: float = 0.0

    @property
    def certain(self) -> float:
        """What was learned at least: rounding never counts as something learned."""
        return max(self.log_ratio - self.rounding, 0.0)


def beliefs(seen: Sighting) -> Belief:
    """The change of the odds that `seen` makes, evaluated from scratch at its one output."""
    coded, walk = seen.coded, seen.coded.walk
    node, shown = walk.place(seen.entry)
    count = len(walk.values)
    joint = by_value(joint_evidence(coded, seen.nodes, node, seen.likelihood), shown, count)
    plain = Coded(walk, np.zeros(count, np.int64))
    prior = by_value(joint_evidence(plain, node + 1, node, np.zeros(1)), shown, count)
    if walk.initial is None:
        found = _worst_start(joint, prior, seen.pair)
    else:
        with np.errstate(invalid="ignore"):
            pair = seen.pair or _widest(joint[0] - prior[0])
        found = _told(joint[0], prior[0], pair, walk.initial)
    return found._replace(rounding=_rounding(seen, joint, prior))


def witness(setting: AuditCase, seen: Sighting, belief: Belief) -> Witness:
    """The belief in words and numbers, for the report."""
    walk = seen.coded.walk
    entries = seen.nodes + walk.order - 1
    start = ""
    if walk.initial is None:
        start = " that starts in " + _start_words(belief.initial, walk.values)
    return Witness(
        model=setting.index,
        law=f"{setting.model.describe()}{start}, with data of {entries} entries",
        subject=f"entry {seen.entry + 1}",
        facts=tuple(repr(walk.values[v]) for v in belief.pair),  # type: ignore[arg-type]
        labels=setting.query.labels,
        output=setting.output(seen.output, entries),
        unit=setting.query.unit,
        before=belief.before,
        after=belief.after,
        log_ratio=belief.log_ratio,
    )


def laplace_likelihood(width: int, output: int, decay: float) -> Floats:
    """-decay·|output - c| for the codes c = 0 … width-1, the log-density up to a constant."""
    return -decay * np.abs(np.arange(width) - output)


def _rounding(seen: Sighting, joint: Floats, prior: Floats) -> float:
    """What rounding may have added: half a unit in the last place of each sum of logarithms.

    A node takes one sum per state and three more; none of the logarithms that matter is larger
    than those of the result.
    """
    sums = (seen.nodes + 4) * (seen.coded.walk.size + 3)
    deepest = sum(float(np.abs(t[np.isfinite(t)]).max(initial=0.0)) for t in (joint, prior))
    return 2.0**-53 * sums * (1.0 + deepest)


def _told(joint: Floats, prior: Floats, pair: tuple[int, int], initial: Floats) -> Belief:
    top, bottom = pair
    with np.errstate(invalid="ignore"):
        ratio = _gap(joint[top] - prior[top], joint[bottom] - prior[bottom])
    after = np.exp(joint - np.logaddexp.reduce(joint))
    before = np.exp(prior - np.logaddexp.reduce(prior))
    return Belief(
        ratio,
        pair,
        (float(before[top]), float(before[bottom])),
        (float(after[top]), float(after[bottom])),
        initial,
    )


def _widest(likelihood: Floats) -> tuple[int, int]:
    """The values the output speaks most for and most against; nan marks impossible values."""
    possible = np.where(np.isnan(likelihood), -math.inf, likelihood)
    against = np.where(np.isnan(likelihood), math.inf, likelihood)
    return int(np.argmax(possible)), int(np.argmin(against))


def _gap(top: float, bottom: float) -> float:
    """top - bottom, with impossible values (nan) as nothing learned."""
    gap = float(top - bottom)
    return -math.inf if math.isnan(gap) else gap


def _worst_start(joint: Floats, prior: Floats, pair: tuple[int, int] | None) -> Belief:
    """The initial law under which the output tells most: it needs one or two first states.

    Rows are first states. Mixtures of two are searched on a fine grid of log-odds, refined.
    """
    size, values = joint.shape
    pairs = [pair] if pair else [(a, b) for a in range(values) for b in range(values) if a != b]
    best: tuple[float, tuple[int, int], Floats] = (-math.inf, pairs[0], np.eye(size)[0])
    for one, two in [*((y, y) for y in range(size)), *combinations(range(size), 2)]:
        for chosen in pairs:
            value, odds = _best_odds(joint[[one, two]], prior[[one, two]], chosen)
            if value > best[0]:
                initial = np.zeros(size)
                initial[one] += 1 / (1 + math.exp(odds))
                initial[two] += 1 / (1 + math.exp(-odds))
                best = (value, chosen, initial)
    _, chosen, initial = best
    with np.errstate(divide="ignore"):
        weight = np.log(initial)[:, None]
    mixed = [np.logaddexp.reduce(weight + table, axis=0) for table in (joint, prior)]
    return _told(mixed[0], mixed[1], chosen, initial)


def _best_odds(joint: Floats, prior: Floats, pair: tuple[int, int]) -> tuple[float, float]:
    """The largest log-ratio over mixtures of two first states, and the log-odds reaching it."""
    low, high = -WIDEST_ODDS, WIDEST_ODDS
    value, best = -math.inf, 0.0
    for _ in range(6):
        odds = np.linspace(low, high, 241)
        weights = np.stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)])[:, :, None]
        mixed = [
            np.logaddexp(weights[0] + table[0], weights[1] + table[1]) for table in (joint, prior)
        ]
        with np.errstate(invalid="ignore"):
            given = mixed[0] - mixed[1]
            ratios = given[:, pair[0]] - given[:, pair[1]]
        ratios = np.where(np.isnan(ratios), -math.inf, ratios)
        place = int(np.argmax(ratios))
        if ratios[place] > value:
            value, best = float(ratios[place]), float(odds[place])
        reach = (high - low) / 100
        low, high = best - reach, best + reach
    return value, best


def _start_words(initial: Floats, values: tuple[str, ...]) -> str:
    parts = [
        f"{values[state]!r} with probability {initial[state]:.3g}"
        for state in np.flatnonzero(initial > 0)
    ]
    certain: Ints = np.flatnonzero(initial == 1)
    return repr(values[int(certain[0])]) if certain.size else " or ".join(parts)
