"""From a task and a budget to a plan, and from a wanted accuracy to a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from numbers import Real

from shoal.core.errors import InputError, Refused
from shoal.core.numbers import Number, positive
from shoal.core.plan import CONFIDENCE, Plan
from shoal.core.task import Model, Query, Secrets, Task
from shoal.mechanisms import choose
from shoal.models.family import family as as_family

LARGEST = Fraction(999_000)


def calibrate(
    query: Query,
    secrets: Secrets,
    family: Model | Sequence[Model],
    *,
    epsilon: Number,
    mechanism: str = "best",
) -> Plan:
    """The plan with the least noise that is provably enough for `epsilon`."""
    task = _task(query, secrets, family)
    return choose(task, positive(epsilon, "epsilon"), mechanism, every=False).plan


def epsilon_for(
    query: Query,
    secrets: Secrets,
    family: Model | Sequence[Model],
    *,
    error: Number,
    confidence: float = CONFIDENCE,
    mechanism: str = "best",
) -> Fraction:
    """The least budget at which each value is within `error` with probability `confidence`.

    Rounded up to three significant digits; `calibrate` with it meets the wanted error.
    """
    wanted = float(positive(error, "error"))
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        raise InputError(f"confidence is {confidence}; it must be between 0 and 1")
    task = _task(query, secrets, family)

    def enough(epsilon: Fraction) -> bool:
        reached = choose(task, epsilon, mechanism, every=False).plan.error(confidence)
        if reached is None:
            raise Refused("this plan cannot state its error, so no budget can be derived from it")
        return reached.bound <= wanted

    if not enough(LARGEST):
        raise Refused(
            f"error {wanted:g} {query.unit} is out of reach even at epsilon = {float(LARGEST):g}; "
            "allow a larger error"
        )
    return _least(enough)


def _task(query: Query, secrets: Secrets, family: Model | Sequence[Model]) -> Task:
    """The task of three arguments; told in a sentence when they are in another order."""
    wrong = [
        f"{name} is of type {type(value).__name__}"
        for name, value, fits in (
            ("query", query, hasattr(query, "evaluate")),
            ("secrets", secrets, hasattr(secrets, "notion")),
            ("family", family, not hasattr(family, "evaluate") and not hasattr(family, "notion")),
        )
        if not fits
    ]
    if wrong:
        raise InputError(
            f"{' and '.join(wrong)}; give a query such as shoal.count(...), secrets such as "
            "shoal.EachEntry(), and one model or several, in this order"
        )
    return Task(query=query, secrets=secrets, family=as_family(family))


def _least(enough: Callable[[Fraction], bool]) -> Fraction:
    """The least budget of three significant digits at which `enough` holds; it is monotone."""
    grid = [
        Fraction(digits) * Fraction(10) ** power
        for power in range(-8, 4)
        for digits in range(100, 1000)
    ]
    low, high = 0, len(grid) - 1
    while low < high:
        middle = (low + high) // 2
        if enough(grid[middle]):
            high = middle
        else:
            low = middle + 1
    return grid[low]
