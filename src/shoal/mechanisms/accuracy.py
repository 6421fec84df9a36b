"""How likely a released value is close: (α, β)-accuracy, read off a plan."""

from __future__ import annotations

import math

from shoal.core.errors import InputError, Refused
from shoal.core.numbers import Number, positive
from shoal.core.plan import Plan

STEPS = 60


def accuracy(plan: Plan, within: Number) -> float:
    """The probability 1 - β that one released value is off by at most α = `within`, rounded down.

    In the query's unit, over the randomness of the noise, for every data set: what
    `plan.error(confidence)` says, turned round. For Laplace noise of scale σ it is
    1 - exp(-α/σ), a little more on a lattice. Liu, Chakraborty & Mittal 2016, Definition 5 and
    Theorem 10, which writes DS/ε for σ.
    """
    wanted = positive(within, "within")
    if plan.error() is None:
        raise Refused(f"a {plan.mechanism} plan cannot state its error, so it has no accuracy")
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _reached(plan, middle) <= wanted else (low, middle)
    return low


def accuracy_of_laplace(scale: float, within: float) -> float:
    """1 - exp(-within/scale): the same for Laplace noise on the real line, before any plan."""
    if not (scale > 0 and within > 0):
        raise InputError(f"scale is {scale} and within {within}; both must be greater than 0")
    return -math.expm1(-within / scale)


def _reached(plan: Plan, confidence: float) -> float:
    error = plan.error(confidence)
    assert error is not None  # asked for once already
    return error.bound
