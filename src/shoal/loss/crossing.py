"""Where a loss that falls with the scale comes down to a budget: by bisection, or by secants.

Secants take a fifth of the evaluations where the loss is smooth. Every scale that is returned was
itself evaluated, so that no promise rests on the loss between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.core.errors import InputError


def smallest_scale(
    loss_of_scale: Callable[[float], float], epsilon: float, lower: float, upper: float
) -> float:
    """The smallest scale from lower to upper with loss at most epsilon, within 1e-13, rounded up.

    `loss_of_scale` must not increase (a wider Laplace is a narrower one plus independent noise).
    The scale returned was itself evaluated and met epsilon. `lower` is returned when it is
    enough, as when no noise is needed at all or `upper` is below it; inf when even `upper` is not.
    """
    if not lower > 0:
        raise InputError(f"the least scale is {lower}; it must be positive")
    if loss_of_scale(lower) <= epsilon:
        return lower
    if not (lower < upper and loss_of_scale(upper) <= epsilon):
        return math.inf
    while upper > lower * (1 + 1e-13):
        middle = math.sqrt(lower) * math.sqrt(upper)
        if not lower < middle < upper:
            break
        if loss_of_scale(middle) <= epsilon:
            upper = middle
        else:
            lower = middle
    return upper


def crossing(
    falling: Callable[[float], float], level: float, guess: float, accuracy: float
) -> tuple[float, float]:
    """Where a function that falls crosses `level`: a place above it and one at or below it.

    They differ by at most `accuracy`, relatively, and the function was evaluated at both. The
    first is 0 when no place above the level was found, the second inf when none below was.
    """
    low = high = guess
    above = below = falling(guess)
    while below > level:
        low, above, high = high, below, high * 4
        if high > guess * 2.0**60:
            return low, math.inf
        below = falling(high)
    while above <= level:
        high, below, low = low, above, low / 4
        if low < guess * 2.0**-60:
            return 0.0, high
        above = falling(low)
    return narrowed(falling, level, (low, above), (high, below), accuracy)


def narrowed(
    falling: Callable[[float], float],
    level: float,
    left: tuple[float, float],
    right: tuple[float, float],
    accuracy: float,
) -> tuple[float, float]:
    """The ends of a bracket that differ by at most `accuracy`, relatively; both were evaluated.

    `left` and `right` are a place above `level` and one at or below it, each with its value. By
    secant steps between logarithms, just beyond the root on either side in turn; every third step
    halves the bracket, so that it shrinks whatever the function.
    """
    (low, above), (high, below) = left, right
    turn = 0
    while high > low * (1 + accuracy):
        middle = math.sqrt(low) * math.sqrt(high)
        if turn % 3 < 2 and 0 < below < above < math.inf:
            share = math.log(above / level) / math.log(above / below)
            beyond = accuracy * (0.4 if turn % 3 == 0 else -0.4)
            middle = low * (high / low) ** share * (1 + beyond)
        if not low < middle < high:
            middle = math.sqrt(low) * math.sqrt(high)
        found = falling(middle)
        if found > level:
            low, above = middle, found
        else:
            high, below = middle, found
        turn += 1
    return low, high
