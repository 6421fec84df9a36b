"""Compiled parts of one step of a location stream, around its geometry; imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.planar_kernels import inside

CLOSE = 1e-12  # sums closer to the wanted share than this, and rounding, are decided elsewhere


@njit(cache=True)
def threshold(prior: Any, share: float) -> tuple[float, bool]:
    """(τ, clear): the largest τ for which states of prior >= τ hold `share` of all mass.

    By partition, without sorting. Not clear when a sum comes within CLOSE of the share: rounding
    might decide, and the caller must add up exactly.
    """
    left, size, whole = np.empty(len(prior)), 0, 0.0
    for value in prior:
        left[size] = value  # kept only if it counts: nothing the processor has to guess
        size += value > 0.0
        whole += value
    target = share * whole
    above = 0.0  # the mass of states known to be taken before the ones left
    clear = True
    close = whole * (CLOSE + size * 2.0**-52)
    while size > 1:
        pivot = _middle(left[:size])
        higher, equal = 0.0, 0.0
        for place in range(size):
            higher += left[place] if left[place] > pivot else 0.0
            equal += left[place] if left[place] == pivot else 0.0
        for sum_so_far in (above + higher, above + higher + equal):
            if abs(sum_so_far - target) <= close:
                clear = False
        if above + higher >= target:
            size = _keep(left, size, pivot, np.inf)
        elif above + higher + equal >= target:
            return pivot, clear
        else:
            above += higher + equal
            size = _keep(left, size, 0.0, pivot)
            if size == 0:
                return pivot, clear
    return left[0] if size else 0.0, clear


@njit(cache=True)
def _keep(values: Any, size: int, low: float, high: float) -> int:
    """Moves those of the first `size` values between low and high to the front; how many."""
    kept = 0
    for place in range(size):
        value = values[place]
        values[kept] = value
        kept += (value > low) & (value < high)
    return kept


@njit(cache=True)
def likely(prior: Any, possible: Any, share: float) -> tuple[bool, Any]:
    """(clear, members): the possible states above the threshold; all when the prior is 0.

    Not clear: the caller must add up exactly, and the members mean nothing.
    """
    least, clear = threshold(prior, share)
    members = possible.copy()
    if least > 0.0:
        for state in range(len(prior)):
            members[state] = members[state] and prior[state] >= least
    return clear, members


@njit(cache=True)
def _middle(values: Any) -> float:
    """The median of three medians of three values each: a pivot."""
    size = len(values)
    eighth = size // 8
    first = _median(values[0], values[eighth], values[2 * eighth])
    second = _median(values[3 * eighth], values[size // 2], values[5 * eighth])
    third = _median(values[6 * eighth], values[7 * eighth], values[size - 1])
    return _median(first, second, third)


@njit(cache=True)
def _median(a: float, b: float, c: float) -> float:
    return float(max(min(a, b), min(max(a, b), c)))


@njit(cache=True)
def count_inside(vertices: Any, points: Any, members: Any, state: int) -> int:
    """DoP: members within points[state] + K, a planar body, boundary included; on integers."""
    count = 0
    for other in range(len(points)):
        if members[other]:
            x = points[other, 0] - points[state, 0]
            y = points[other, 1] - points[state, 1]
            count += inside(vertices, x, y)
    return count
