"""Is a release worth making: its noise beside the range of the answer and beside the public model.

A guide, not a promise: what the model says alone is taken as a normal law with the answer's mean
and variance, and nothing here is looked at when noise is calibrated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from shoal.core.codec import Floats
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.core.task import Query

MOST, LEAST = 20, 1e-3  # budgets beyond which something is said
NORMAL = math.sqrt(2 / math.pi)  # mean distance from the mean, in standard deviations


@dataclass(frozen=True, slots=True)
class Usefulness:
    """What a plan's noise means for its answer, per value, in the query's unit.

    `error` is the mean error of a value, `spread` how far apart two answers can be at most (None:
    no limit is known), `prior_error` the mean error of somebody who guesses from the public model
    alone, for the value where that is largest (None: not known). `warnings` are sentences.
    """

    error: float | None
    spread: float | None
    prior_error: float | None
    unit: str
    warnings: tuple[str, ...]

    @property
    def tells(self) -> bool:
        """Whether the release says more than the range and the public model do."""
        if self.error is None:
            return True
        limits = [limit for limit in (self.spread, self.prior_error) if limit is not None]
        return all(self.error < limit for limit in limits)

    def describe(self) -> str:
        """How good it is, in a sentence; empty when nothing can be compared."""
        if self.error is None or (self.spread is None and self.prior_error is None):
            return ""
        parts = [f"a value is off by {significant(self.error, 3)} {self.unit} on average"]
        if self.prior_error is not None:
            guess = significant(self.prior_error, 3)
            parts.append(f"who guesses from the public model alone is off by {guess}")
        if self.spread is not None:
            parts.append(f"answers can be {significant(self.spread, 3)} apart")
        return "; ".join(parts) + "."


@lru_cache(maxsize=256)
def usefulness(plan: Plan) -> Usefulness:
    """The noise of `plan` beside the range of its answer and its models' own guesses."""
    error = plan.error()
    expected = None if error is None else error.expected
    spread = _spread(plan) if error is not None else None
    prior = _prior_error(plan) if error is not None else None
    words = [*_budget_words(plan), *_noise_words(expected, spread, prior, plan.task.query.unit)]
    return Usefulness(expected, spread, prior, plan.task.query.unit, tuple(words))


def cautions(plan: Plan) -> tuple[str, ...]:
    """The sentences of warning alone."""
    return usefulness(plan).warnings


def in_words(plan: Plan) -> tuple[str, str]:
    """How useful the plan is and what to be careful about, for `plan.explain()`."""
    found = usefulness(plan)
    return found.describe(), " ".join(found.warnings)


def _budget_words(plan: Plan) -> list[str]:
    amount = float(plan.guarantee.amount)
    if plan.guarantee.notion == "delta-privacy":
        return []
    if amount > MOST:
        odds = significant(math.exp(min(amount, 700.0)), 2)
        return [
            f"epsilon = {significant(amount)} lets the odds between two secrets change by a factor "
            f"of {odds}: next to nothing is protected; 0.1 to 10 is usual."
        ]
    if amount < LEAST:
        return [
            f"epsilon = {significant(amount)} is so small that hardly any answer survives its "
            "noise; 0.1 to 10 is usual."
        ]
    return []


def _noise_words(
    error: float | None, spread: float | None, prior: float | None, unit: str
) -> list[str]:
    if error is None:
        return []
    off = f"{significant(error, 3)} {unit}"
    if spread is not None and error >= spread / 2:
        return [
            f"The noise is as wide as the answer: a value is off by {off} on average, and no two "
            f"answers are more than {significant(spread, 3)} apart; ask for less, of more entries, "
            "or allow a larger epsilon."
        ]
    if prior is not None and error >= prior:
        return [
            f"This release says less than the public model does: it is off by {off} on average, "
            f"and who guesses from the model alone by {significant(prior, 3)}; release of more "
            "entries at once, or allow a larger epsilon."
        ]
    return []


def _spread(plan: Plan) -> float | None:
    """How far apart two answers can be, for the value where it is most; None without a limit."""
    query: Any = plan.task.query
    low, high = getattr(query, "low", None), getattr(query, "high", None)
    if low is not None and high is not None and not isinstance(low, tuple):
        return float(high - low)
    entries = _entries(plan)
    weights = _weights(query)
    if entries is None or weights is None:
        return None
    return float(entries * (weights.max(axis=0) - weights.min(axis=0)).max())


def _prior_error(plan: Plan) -> float | None:
    """The mean error of a guess from the model, for the value and the member where it is most."""
    entries, weights = _entries(plan), _weights(plan.task.query)
    if entries is None or weights is None:
        return None
    found = []
    for model in plan.task.family:
        variance = getattr(model, "sum_variance", None)
        if variance is not None:
            found.append(NORMAL * math.sqrt(float(variance(weights, entries).max())))
    return max(found, default=None)


def _weights(query: Query) -> Floats | None:
    rows = getattr(query, "weights", None)
    states = getattr(query, "states", ())
    if not isinstance(rows, tuple) or not states or len(rows) != len(states):
        return None
    return np.array([[float(weight) for weight in row] for row in rows])


def _entries(plan: Plan) -> int | None:
    """The public number of entries: what a mean divides by, or the most a model covers."""
    length = getattr(plan.task.query, "length", None)
    if length is not None:
        return int(length)
    lengths = [getattr(model, "length", None) for model in plan.task.family]
    known = [one for one in lengths if isinstance(one, int)]
    return max(known) if known and len(known) == len(lengths) else None
