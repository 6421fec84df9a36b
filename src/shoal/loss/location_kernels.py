"""Compiled parts of one step of a location stream, around its geometry; imports numba."""

from __future__ import annotations

from typing import Any

from numba import njit

from shoal.geometry.planar_kernels import inside

CLOSE = 1e-12  # sums closer to the wanted share than this, and rounding, are decided elsewhere


@njit(cache=True)
def threshold(prior: Any, share: float) -> tuple[float, bool]:
    """(τ, clear): the largest τ for which states of prior >= τ hold `share` of all mass.

    By partition, without sorting. Not clear when a sum comes within CLOSE of the share: rounding
    might decide, and the caller must add up exactly.
    """
    left = prior[prior > 0.0]
    whole = left.sum()
    target = share * whole
    above = 0.0  # the mass of states known to be taken before the ones left
    clear = True
    close = whole * (CLOSE + len(left) * 2.0**-52)
    while len(left) > 1:
        pivot = _middle(left)
        higher = 0.0
        equal = 0.0
        for value in left:
            if value > pivot:
                higher += value
            elif value == pivot:
                equal += value
        for sum_so_far in (above + higher, above + higher + equal):
            if abs(sum_so_far - target) <= close:
                clear = False
        if above + higher >= target:
            left = left[left > pivot]
        elif above + higher + equal >= target:
            return pivot, clear
        else:
            above += higher + equal
            rest = left[left < pivot]
            if len(rest) == 0:
                return pivot, clear
            left = rest
    return left[0] if len(left) else 0.0, clear


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
