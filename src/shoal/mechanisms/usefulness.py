"""Whether a release is worth making: its noise beside the range of the answer and the models.

Beside a public model: a normal law with the answer's mean and variance is taken. A guide, not a
promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import ShoalError
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.core.registry import load
from shoal.core.task import Query
from shoal.mechanisms import exact
from shoal.noise.primitives import SeededRng

USUAL = 1e-3, 20  # budgets beyond which something is said
SAMPLES, MOST_VARIABLES = 200, 2000  # outcomes of a network, and the largest that is drawn from
FAR_ABOVE_LEAST = 0.995  # above the least error, relatively: then the least itself is said
NORMAL = math.sqrt(2 / math.pi)  # mean distance from the mean, in standard deviations


@dataclass(frozen=True, slots=True)
class Usefulness:
    """What a plan's noise means for its answer, per value, in the query's unit.

    `error` is the mean error of a value, `spread` how far apart two answers can be at most (None:
    no limit is known), `prior_error` the mean error of somebody who guesses from the public model
    alone, for the value where that is largest and if the model is right (None: not known): on data
    of another law the guess is worse, and the release no worse. `warnings` are sentences.
    """

    error: float | None
    spread: float | None
    prior_error: float | None
    unit: str
    warnings: tuple[str, ...]

    @property
    def tells(self) -> bool:
        """Whether the release says more than the range and, if it is right, the model do."""
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
            parts.append(f"if the model is right, a guess from it alone is off by {guess}")
        if self.spread is not None:
            parts.append(f"answers can be {significant(self.spread, 3)} apart")
        return "; ".join(parts) + "."


@lru_cache(maxsize=256)
def usefulness(plan: Plan) -> Usefulness:
    """The noise of `plan` beside the range of its answer and its models' own guesses."""
    error = plan.error()
    expected = None if error is None else error.expected
    if hasattr(plan.body, "mean_error"):  # noise errs alike at every answer, a table does not
        expected = plan.body.mean_error(plan.task)
    spread = prior = None
    if error is not None:
        spread, guesses = _answer_range(plan), [_guess(plan, model) for model in plan.task.family]
        prior = max((guess for guess in guesses if guess is not None), default=None)
    unit = plan.task.query.unit
    words = _budget_words(plan), _noise_words(expected, spread, prior, unit)
    return Usefulness(expected, spread, prior, unit, tuple(filter(None, words)))


def cautions(plan: Plan) -> tuple[str, ...]:
    """The sentences of warning alone."""
    return usefulness(plan).warnings


def in_words(plan: Plan) -> tuple[str, str]:
    """How useful the plan is and what to be careful about, for `plan.explain()`."""
    found = usefulness(plan)
    parts = filter(None, (found.describe(), _beside_the_best(plan)))
    return " ".join(parts), " ".join(found.warnings)


def _beside_the_best(plan: Plan) -> str:
    """How far the error is from the least that any release of a small answer could have."""
    error, least = plan.error(), least_error(plan)
    if least is None or error is None:
        return ""
    worst = f"At the worst answer it is off by {significant(error.expected, 3)} {error.unit}"
    above = error.expected / least - 1 if least > 0 else math.inf
    if above < FAR_ABOVE_LEAST:
        above = max(math.ceil(100 * above), 1)
        return f"{worst}, within {above} % of the least any release of this answer could be."
    hint = exact.nearer_for_one_series(plan)
    return (
        f"{worst}; the least any release of this answer could be is {significant(least, 3)}.{hint}"
    )


@lru_cache(maxsize=256)
def least_error(plan: Plan) -> float | None:
    """A worst-case error that no release of this answer with this promise is below, proved.

    In the query's unit, beside `plan.error().expected`. None where it is not found at once.
    """
    if plan.error() is None or exact.refuse_table(plan.task) is not None:
        return None
    return load("shoal.mechanisms.optimal_table:least_known")(plan)  # type: ignore[no-any-return]


def _budget_words(plan: Plan) -> str | None:
    """Return the warning about an unusual epsilon (below 0.1 or above 10), None for a usual one."""
    amount = float(plan.guarantee.amount)
    if plan.guarantee.notion == "delta-privacy" or USUAL[0] <= amount <= USUAL[1]:
        return None
    if amount < USUAL[0]:
        return (
            f"epsilon = {significant(amount)} is so small that hardly any answer survives its "
            "noise; 0.1 to 10 is usual."
        )
    odds = significant(math.exp(min(amount, 700.0)), 2)
    return (
        f"epsilon = {significant(amount)} lets the odds between two secrets change by a factor "
        f"of {odds}: next to nothing is protected; 0.1 to 10 is usual."
    )


def _noise_words(
    error: float | None, spread: float | None, prior: float | None, unit: str
) -> str | None:
    """Return the warning about noise that leaves little information, None when there is none.

    `error`, `spread` and `prior` are in `unit`: the mean error of a release, the largest distance
    between two answers, and the mean error of a guess from the model. None leaves a check out.
    """
    off = "" if error is None else f"{significant(error, 3)} {unit}"
    if error is not None and spread is not None and error >= spread / 2:
        return (
            f"The noise is as wide as the answer: a value is off by {off} on average, and no two "
            f"answers are more than {significant(spread, 3)} apart; ask for less, of more entries, "
            "or allow a larger epsilon."
        )
    if error is not None and prior is not None and error >= prior:
        return (
            f"If the model is right, this release says less than the model alone: it is off by "
            f"{off} on average, and a guess from the model by {significant(prior, 3)} where the "
            "data is as the model expects; release of more entries at once, or allow a larger "
            "epsilon."
        )
    return None


def _answer_range(plan: Plan) -> float | None:
    """How far apart two answers can be, for the value where it is most; None without a limit."""
    query: Any = plan.task.query
    low, high = getattr(query, "low", None), getattr(query, "high", None)
    if low is not None and high is not None:  # of a box its longest side
        ends = zip(low, high, strict=True) if isinstance(low, tuple) else [(low, high)]
        return max(float(b - a) for a, b in ends)
    if getattr(query, "variables", ()):  # a sum with weights of each variable
        return float(sum(max(row) - min(row) for row in query.weights))
    entries = _entry_count(plan)
    if entries is not None and hasattr(query, "edges"):  # bins of numbers: all in one, or none
        return float(entries)
    weights = _weight_matrix(query)
    if entries is None or weights is None:
        return None
    return float(entries * (weights.max(axis=0) - weights.min(axis=0)).max())


def _guess(plan: Plan, model: Any) -> float | None:
    """The mean error of a guess from one model; None where it gives no law of the answer."""
    entries, weights = _entry_count(plan), _weight_matrix(plan.task.query)
    of_sum, of_answer = (getattr(model, f"{name}_variance", None) for name in ("sum", "answer"))
    if of_sum is not None and entries is not None and weights is not None:
        return NORMAL * math.sqrt(float(of_sum(weights, entries).max()))
    if of_answer is not None:
        variance = of_answer(plan.task.query)
        return None if variance is None else NORMAL * math.sqrt(float(variance.max()))
    return _sampled_error(plan, model)


def _sampled_error(plan: Plan, model: Any) -> float | None:
    """The same from outcomes of a law of named variables, drawn with a fixed seed."""
    names = getattr(model, "variables", ())
    if not 0 < len(names) <= MOST_VARIABLES or not hasattr(model, "sample"):
        return None
    query, rng = plan.task.query, SeededRng(1)
    try:
        drawn = [query.evaluate(plan.task.read(list(model.sample(rng)))) for _ in range(SAMPLES)]
    except ShoalError:  # the query is not about one value of each variable
        return None
    answers = np.array(drawn, dtype=np.float64) * float(query.lattice)
    return float(np.abs(answers - np.median(answers, axis=0)).mean(axis=0).max())


def _weight_matrix(query: Query) -> Floats | None:
    rows, states = getattr(query, "weights", None), getattr(query, "states", ())
    states = () if getattr(query, "variables", ()) else states  # then rows are variables
    if not isinstance(rows, tuple) or not states or len(rows) != len(states):
        return None
    return np.array([[float(weight) for weight in row] for row in rows])


def _entry_count(plan: Plan) -> int | None:
    """The public number of entries: what a mean divides by, or the most a model covers."""
    length = getattr(plan.task.query, "length", None)
    if length is not None:
        return int(length)
    known = [size for model in plan.task.family if (size := _size(model)) is not None]
    return max(known) if len(known) == len(plan.task.family) else None


def _size(model: Any) -> int | None:
    """Entries of a series, records, or variables, where the model says how many there are."""
    known = (getattr(model, name, None) for name in ("length", "records"))
    variables = len(getattr(model, "variables", ())) or None
    return next((size for size in known if isinstance(size, int)), variables)
