"""Telling events: sets of outputs that one fact makes much likelier than another.

Chosen on data of their own, so that what is counted afterwards proves what it seems to prove.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.core.numbers import significant
from shoal.core.value import Floats, Ints

QUANTILES = np.concatenate([[0.002, 0.005], np.arange(0.01, 0.995, 0.02)])
CAUTION = 2.0  # standard deviations an event loses because it was chosen for looking good
MOST_BINS = 40
STEPS = 25  # of Newton's method


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """{z : direction·z is in one of the half-open intervals}, a score and where it may lie.

    `swapped` says that the event speaks for the second fact.
    """

    direction: Floats
    intervals: tuple[tuple[float, float], ...]
    swapped: bool

    def hits(self, outputs: Floats) -> int:
        """How many outputs are in it."""
        score = outputs @ self.direction
        inside = np.zeros(len(score), dtype=bool)
        for low, high in self.intervals:
            inside |= (score >= low) & (score < high)
        return int(inside.sum())

    def describe(self, labels: tuple[str, ...], unit: str) -> str:
        """The event in words."""
        if len(self.direction) == 1 and self.direction[0] == 1:
            what = "the output"
        else:
            what = " + ".join(
                f"{significant(float(c))}·{name}"
                for c, name in zip(self.direction, labels, strict=True)
            )
        return f"{what} is {' or '.join(_words(*ends, unit) for ends in self.intervals)}"


class Promise(NamedTuple):
    """An event and the lower limit it can be expected to give when tested."""

    expected: float
    event: Event


def best_event(first: Floats, second: Floats, tests: int, *, spread: float = 2.6) -> Promise:
    """The event that should give the largest lower limit on `tests` new outputs of each fact.

    Half-lines are scored on all outputs; unions of bins are put together on one half and scored on
    the other.
    """
    direction = _direction(first[::2], second[::2])
    scores = (first @ direction, second @ direction)
    found = []
    for swapped in (False, True):
        top, bottom = scores[::-1] if swapped else scores
        found.append(_best_threshold(top, bottom, direction, swapped, tests, spread))
        found.append(_best_bins(top, bottom, direction, swapped, tests, spread))
    return max(found, key=lambda promise: promise.expected)


def _best_threshold(
    top: Floats, bottom: Floats, direction: Floats, swapped: bool, tests: int, spread: float
) -> Promise:
    """The best of the half-lines."""
    cuts = np.unique(np.quantile(np.concatenate([top, bottom]), QUANTILES))
    over, under = np.sort(top), np.sort(bottom)
    best = Promise(-math.inf, Event(direction, ((-math.inf, math.inf),), swapped))
    for above in (True, False):
        hits = [_beyond(scores, cuts, above) for scores in (over, under)]
        value = _expected(hits[0], len(over), hits[1], len(under), tests, spread)
        place = int(np.argmax(value))
        ends = (float(cuts[place]), math.inf) if above else (-math.inf, float(cuts[place]))
        if value[place] > best.expected:
            best = Promise(float(value[place]), Event(direction, (ends,), swapped))
    return best


def _best_bins(
    top: Floats, bottom: Floats, direction: Floats, swapped: bool, tests: int, spread: float
) -> Promise:
    """The best union of bins, taken in the order of their likelihood ratio."""
    over, under, top, bottom = top[1::2], bottom[1::2], top[::2], bottom[::2]
    edges = _edges(np.concatenate([top, bottom]))
    counts = [np.histogram(scores, edges)[0] for scores in (top, bottom)]
    ratio = np.log((counts[0] + 0.5) / (counts[1] + 0.5))
    order = np.argsort(-ratio, kind="stable")
    hits = [np.cumsum(np.histogram(scores, edges)[0][order]) for scores in (over, under)]
    value = _expected(hits[0], len(over), hits[1], len(under), tests, spread)
    place = int(np.argmax(value))
    chosen = np.sort(order[: place + 1])
    return Promise(float(value[place]), Event(direction, _joined(edges, chosen), swapped))


def _expected(over: Ints, above: int, under: Ints, below: int, tests: int, spread: float) -> Floats:
    """The lower limit of log p/p' a test can be expected to give, with caution for the choice.

    p̂ less and p̂' plus `spread` standard deviations of the test and CAUTION of the choice; where
    nothing was hit, what may have been missed counts: about (deviations)²/2 hits.
    """
    p, q = over / above, under / below
    low = p - spread * np.sqrt(p * (1 - p) / tests) - CAUTION * np.sqrt(p * (1 - p) / above)
    missed = spread**2 / (2 * tests) + CAUTION**2 / (2 * below)
    high = q + spread * np.sqrt(q * (1 - q) / tests) + CAUTION * np.sqrt(q * (1 - q) / below)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(low > 0, np.log(low / np.minimum(high + missed, 1.0)), -math.inf)


def _direction(first: Floats, second: Floats) -> Floats:
    """The score that separates two clouds best: logistic regression on standardised outputs."""
    if first.shape[1] == 1:
        return np.ones(1)
    outputs = np.vstack([first, second])
    centre, width = outputs.mean(axis=0), outputs.std(axis=0)
    width = np.where(width > 0, width, 1.0)
    features = np.hstack([(outputs - centre) / width, np.ones((len(outputs), 1))])
    target = np.concatenate([np.ones(len(first)), np.zeros(len(second))])
    weights = np.zeros(features.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        slope = features.T @ (target - chance) - 1e-3 * weights
        curve = (features * (chance * (1 - chance))[:, None]).T @ features
        weights = weights + np.linalg.solve(curve + 1e-3 * np.eye(len(weights)), slope)
    direction = weights[:-1] / width
    largest = np.abs(direction).max()
    return np.asarray(direction / largest) if largest > 0 else np.ones(first.shape[1])


def _edges(scores: Floats) -> Floats:
    """Bins: one per value when there are few, else equally many outputs in each."""
    values = np.unique(scores)
    if len(values) > MOST_BINS:
        values = np.unique(np.quantile(scores, np.linspace(0, 1, MOST_BINS + 1)))[1:-1]
        return np.concatenate([[-math.inf], values, [math.inf]])
    middles = (values[1:] + values[:-1]) / 2
    return np.concatenate([[-math.inf], middles, [math.inf]])


def _joined(edges: Floats, chosen: Ints) -> tuple[tuple[float, float], ...]:
    """Neighbouring bins as one interval."""
    intervals: list[tuple[float, float]] = []
    for place in chosen.tolist():
        low, high = float(edges[place]), float(edges[place + 1])
        if intervals and intervals[-1][1] == low:
            low = intervals.pop()[0]
        intervals.append((low, high))
    return tuple(intervals)


def _beyond(scores: Floats, cuts: Floats, above: bool) -> Ints:
    below = np.searchsorted(scores, cuts, side="left")
    return np.asarray(len(scores) - below if above else below)


def _words(low: float, high: float, unit: str) -> str:
    if math.isinf(high):
        return "anything" if math.isinf(low) else f"at least {significant(low)} {unit}"
    if math.isinf(low):
        return f"below {significant(high)} {unit}"
    return f"from {significant(low)} to below {significant(high)} {unit}"
