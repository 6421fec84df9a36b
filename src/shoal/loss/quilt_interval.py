"""Markov quilts for a whole rectangle of two-state chains: a proved supremum, not a grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.core.errors import InputError
from shoal.core.value import Floats
from shoal.loss.quilt import QuiltResult
from shoal.loss.quilt_any_initial import any_initial_loss, any_initial_scale

Pair = tuple[float, float]


class IntervalResult(NamedTuple):
    """The quilt result at the worst chain of the family, and that chain's (p0, p1)."""

    result: QuiltResult
    corner: Pair


def interval_scale(
    low: Pair, high: Pair, length: int | None, epsilon: float, reach: int | None = None
) -> IntervalResult:
    """The least quilt scale for all chains with stay probabilities in a rectangle, any initial law.

    p0 = P(0→0) in [low[0], high[0]], p1 = P(1→1) in [low[1], high[1]]. Where p0 + p1 >= 1 every
    influence of every quilt of every node grows with p0 and with p1; where p0 + p1 <= 1 it falls
    with both. So the supremum is attained at a corner, and the answer is exact: rounding up only.
    Proof: mechanisms/markov_quilt.md, "Rectangles of two-state chains".
    """
    found = [
        IntervalResult(any_initial_scale(two_state(*corner), length, epsilon, reach), corner)
        for corner in worst_corners(low, high)
    ]
    return max(found, key=lambda item: item.result.sigma)


def interval_loss(
    low: Pair, high: Pair, length: int | None, eta: float, reach: int | None = None
) -> float:
    """The loss of eta-private noise over the same family: the larger of the two corners."""
    return max(
        any_initial_loss(two_state(*corner), length, eta, reach)
        for corner in worst_corners(low, high)
    )


def worst_corners(low: Pair, high: Pair) -> tuple[Pair, ...]:
    """The chains that between them attain every supremum: (high, high) and (low, low).

    The first only when some chain of the rectangle has p0 + p1 >= 1, the second only when some has
    p0 + p1 <= 1.
    """
    if not all(0.0 <= a <= b <= 1.0 for a, b in zip(low, high, strict=True)):
        raise InputError(
            f"low is {low} and high is {high}; stay probabilities need 0 <= low <= high <= 1"
        )
    corners = []
    if sum(high) >= 1.0:
        corners.append(high)
    if sum(low) <= 1.0:
        corners.append(low)
    return tuple(dict.fromkeys(corners))


def two_state(stay_0: float, stay_1: float) -> Floats:
    """The transition matrix with these probabilities of staying in state 0 and in state 1."""
    return np.array([[stay_0, 1.0 - stay_0], [1.0 - stay_1, stay_1]])
