"""The least budget that meets a wanted accuracy."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from numbers import Real

from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.numbers import Number, positive
from shoal.core.plan import CONFIDENCE, Additive, Noise, Plan
from shoal.core.task import Model, Query, Secrets
from shoal.mechanisms.choice import as_task, choose
from shoal.mechanisms.table import row_named

# budgets of three significant digits, from 1e-6 to 999,000
BUDGETS = [
    Fraction(digits) * Fraction(10) ** power
    for power in range(-8, 4)
    for digits in range(100, 1000)
]
LARGEST, MIDDLE = BUDGETS[-1], BUDGETS.index(Fraction(1))


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
    task = as_task(query, secrets, family)

    @cache
    def plan_at(place: int) -> Plan:
        return choose(task, BUDGETS[place], mechanism, prune=True).plan

    def enough(place: int) -> bool:
        found = plan_at(place).error(confidence)
        if found is None:
            raise Refused("this plan cannot state its error, so no budget can be derived from it")
        return found.bound <= wanted

    likely = MIDDLE
    for _ in range(2):  # the second guess is by the mechanism that is best near the answer
        likely = _likely_budget(plan_at(likely), BUDGETS[likely], confidence, wanted)
    found = _least_budget(enough, likely)
    if found is None:
        raise Refused(
            f"error {wanted:g} {query.unit} is out of reach even at epsilon = {float(LARGEST):g}; "
            "allow a larger error"
        )
    return found


def _least_budget(enough: Callable[[int], bool], likely: int) -> Fraction | None:
    """The least of BUDGETS that is `enough`, which is monotone; None when none is.

    Looked for from `likely` on, in steps that double, then half way between what is too little and
    what is enough: where the guess is right, two budgets are tried.
    """
    low, high, step, place = -1, len(BUDGETS), 1, likely
    while high - low > 1:
        if enough(place):
            high, place = place, place - step
        else:
            low, place = place, place + step
        step *= 2
        if low >= 0 and high < len(BUDGETS):
            place = (low + high) // 2
        place = min(max(place, low + 1), high - 1)
    return BUDGETS[high] if high < len(BUDGETS) else None


def _likely_budget(plan: Plan, budget: Fraction, confidence: float, wanted: float) -> int:
    """The place in BUDGETS of the loss that the plan's noise has at the scale that is wanted.

    The scale follows from the error alone, and the loss at a scale is measured once, where finding
    the scale of a budget takes many such measurements. Without such a loss: the error goes as the
    inverse of the budget.
    """
    error = plan.error(confidence)
    loss = math.inf
    if plan.additive is not None and error is not None:
        scale = _largest_scale_within(plan.additive.noise, confidence, wanted)
        noise = replace(plan.additive.noise, scale=scale)  # type: ignore[type-var]
        wider = replace(plan, body=Additive(plan.task.query, noise))
        with suppress(Refused, InputError, PromiseBroken):
            loss = row_named(plan.mechanism).loss(wider)
    if not 0 < loss < math.inf:
        off = 0.0 if error is None else error.bound
        loss = float(budget) * (off / wanted if 0 < off < math.inf else 1.0)
    return min(bisect_left(BUDGETS, loss), len(BUDGETS) - 1)


def _largest_scale_within(noise: Noise, confidence: float, wanted: float) -> Fraction:
    """About the largest scale of such noise that stays within `wanted` with this confidence."""
    low, high = noise.scale / 10**9, noise.scale * 10**9
    for _ in range(40):
        middle = Fraction(math.sqrt(float(low) * float(high)))
        wider = replace(noise, scale=middle)  # type: ignore[type-var]
        low, high = (middle, high) if wider.quantile(confidence) <= wanted else (low, middle)
    return low
