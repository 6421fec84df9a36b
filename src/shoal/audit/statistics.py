"""Confidence limits for probabilities that were counted."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats
from shoal.core.numbers import significant


def at_least(hits: int, trials: int, error: float) -> float:
    """The Clopper–Pearson lower limit: below it with probability at most `error`.

    The probability p at which P(Binomial(trials, p) ≥ hits) = error; 0 when nothing was hit.
    """
    from scipy.special import betaincinv

    return 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, error))


def at_most(hits: int, trials: int, error: float) -> float:
    """The Clopper–Pearson upper limit: above it with probability at most `error`."""
    return 1.0 - at_least(trials - hits, trials, error)


def log_ratio_at_least(top: tuple[int, int], bottom: tuple[int, int], error: float) -> float:
    """A lower limit for log p/p' from (hits, trials) of both; wrong with probability ≤ error.

    Each side gets half of the error, so no independence is needed. -inf when `top` has no hits.
    """
    low, high = at_least(*top, error / 2), at_most(*bottom, error / 2)
    return math.log(low / high) if low > 0 else -math.inf


# What is computed of an output before it is looked at: one number, in several ways.


MOST_COORDINATES = 8  # numbers of an output that are also looked at by themselves
FEW_VALUES = 40  # different values up to which each is told apart anyway
PERIOD = 2.0  # remainders by 2 show parities and what stands after the point
STEPS = 25  # of Newton's method
LARGEST = float(np.finfo(np.float64).max)


class Score(NamedTuple):
    """direction·z of an output z, or its remainder by `period`.

    nan where that is no number; infinities, and sums too large for a float, are the largest float.
    """

    direction: Floats
    period: float | None = None

    def of(self, outputs: Floats) -> Floats:
        """The score of each row, added up column by column, so that equal rows score alike."""
        total = np.zeros(len(outputs))
        with np.errstate(over="ignore", invalid="ignore"):
            for weight, column in zip(self.direction.tolist(), outputs.T, strict=True):
                if weight != 0:
                    total = total + weight * column
        bounded = np.clip(total, -LARGEST, LARGEST)
        return bounded if self.period is None else np.asarray(np.mod(bounded, self.period))

    def describe(self, labels: tuple[str, ...]) -> str:
        """The score in words; numbers without a label are counted."""
        names = labels if len(labels) == len(self.direction) else _counted(len(self.direction))
        if len(self.direction) == 1 and self.direction[0] == 1:
            what = "the output"
        else:
            what = " + ".join(
                name if coefficient == 1 else f"{significant(coefficient)}·{name}"
                for coefficient, name in zip(self.direction.tolist(), names, strict=True)
                if coefficient != 0
            )
        if self.period is None:
            return what
        return f"the remainder of {what} divided by {significant(self.period)}"


def scores(first: Floats, second: Floats) -> list[Score]:
    """What may tell the outputs of two facts apart: the best weighted sum of their numbers, the
    numbers one by one (those that differ most, when there are many), and their remainders."""
    count = first.shape[1]
    tame = [_tame(column) for column in np.vstack([first, second]).T]
    columns = [(column[: len(first)], column[len(first) :]) for column in tame]
    chosen = sorted(range(count), key=lambda i: -_apart(*columns[i]))[:MOST_COORDINATES]
    alone = [Score(row) for row in np.eye(count)[chosen]]
    found = [*alone] if count == 1 else [Score(_direction(columns)), *alone]
    for place, score in zip(chosen, alone, strict=True):
        if len(np.unique(tame[place])) > FEW_VALUES:
            found.append(score._replace(period=PERIOD))
    return found


def _tame(column: Floats) -> Floats:
    """The numbers of a column within its usual range; what is no number counts as the median."""
    numbers = column[np.isfinite(column)]
    if not numbers.size:
        return np.zeros(len(column))
    low, middle, high = np.quantile(numbers, [0.005, 0.5, 0.995], method="nearest")
    return np.clip(np.where(np.isnan(column), middle, column), low, high)


def _apart(first: Floats, second: Floats) -> float:
    """How far two columns lie apart, in units of their common spread."""
    largest = float(max(np.abs(first).max(), np.abs(second).max())) or 1.0
    first, second = first / largest, second / largest
    spread = float(np.sqrt(first.var() + second.var()))
    gap = abs(float(first.mean() - second.mean()))
    return gap / spread if spread > 0 else 0.0


def _direction(columns: list[tuple[Floats, Floats]]) -> Floats:
    """The score that separates two clouds best: logistic regression on standardised outputs."""
    first, second = (np.stack([pair[i] for pair in columns], axis=1) for i in (0, 1))
    largest = np.maximum(np.abs(np.vstack([first, second])).max(axis=0), 1e-300)
    outputs = np.vstack([first, second]) / largest  # squares of huge numbers are none
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
    direction = weights[:-1] / width / largest
    steepest = np.abs(direction).max()
    return np.asarray(direction / steepest) if steepest > 0 else np.ones(len(columns))


def _counted(count: int) -> tuple[str, ...]:
    return tuple(f"output {i + 1}" for i in range(count))
