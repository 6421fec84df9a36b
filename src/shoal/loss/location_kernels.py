"""Compiled parts of one step of a location stream: pure arrays in, arrays out; imports numba.

Beliefs are floats that steer utility only. Supports, sets and norms are decided on booleans and
integers. Points and bodies keep to the limits of `geometry.integers`, for which int64 is proved
to suffice in `geometry.planar_kernels`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.planar_kernels import cone_of, cross
from shoal.noise.knorm_kernels import norm_of

CLOSE = 1e-12  # running sums closer to the wanted share than this are decided exactly elsewhere


@njit(cache=True)
def predict(pointers: Any, sources: Any, weights: Any, belief: Any, support: Any) -> Any:
    """(prior, possible): p⁻ = p⁺ M and the states reachable from `support`.

    The transposed matrix in sparse rows: row j lists the states that lead to j.
    """
    size = len(pointers) - 1
    prior = np.empty(size)
    possible = np.empty(size, dtype=np.bool_)
    for j in range(size):
        total, reached = 0.0, False
        for k in range(pointers[j], pointers[j + 1]):
            source = sources[k]
            total += weights[k] * belief[source]
            reached = reached or support[source]
        prior[j], possible[j] = total, reached
    return prior, possible


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
            if abs(sum_so_far - target) <= CLOSE * whole:
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
def _middle(values: Any) -> float:
    """The median of the first, the middle and the last value: a pivot."""
    a, b, c = values[0], values[len(values) // 2], values[-1]
    return float(max(min(a, b), min(max(a, b), c)))


@njit(cache=True)
def norms(vertices: Any, points: Any, x: int, y: int) -> Any:
    """|(x, y) - p|_K of every point p under a planar body, within a relative 2^-51."""
    result = np.empty(len(points))
    for state in range(len(points)):
        result[state] = norm_of(vertices, x - points[state, 0], y - points[state, 1])
    return result


@njit(cache=True)
def update(
    prior: Any, points: Any, answering: Any, vertices: Any, epsilon: float, x: int, y: int
) -> tuple[Any, float, float]:
    """(posterior, mean of x, mean of y) after output (x, y) of planar K-norm noise.

    State s answers with points[answering[s]]. The smallest norm is taken out first, so that the
    largest weight is 1; all zeros when everything of positive prior underflows.
    """
    size = len(prior)
    far = np.empty(size)
    nearest = np.inf
    for state in range(size):
        if answering[state] == state:
            px, py = points[state, 0], points[state, 1]
            far[state] = norm_of(vertices, x - px, y - py)
            if prior[state] > 0.0:
                nearest = min(nearest, far[state])
    posterior = np.empty(size)
    total, mean_x, mean_y = 0.0, 0.0, 0.0
    for state in range(size):
        weight = 0.0
        if prior[state] > 0.0:
            weight = prior[state] * math.exp(epsilon * min(0.0, nearest - far[answering[state]]))
        posterior[state] = weight
        total += weight
        mean_x += weight * points[state, 0]
        mean_y += weight * points[state, 1]
    if total > 0.0:
        posterior /= total
        return posterior, mean_x / total, mean_y / total
    return posterior, 0.0, 0.0


@njit(cache=True)
def count_inside(vertices: Any, points: Any, members: Any, state: int) -> int:
    """DoP: members within points[state] + K, boundary included, decided on integers."""
    count = 0
    for other in range(len(points)):
        if members[other]:
            x = points[other, 0] - points[state, 0]
            y = points[other, 1] - points[state, 1]
            count += inside(vertices, x, y)
    return count


@njit(cache=True)
def inside(vertices: Any, x: int, y: int) -> bool:
    """Whether (x, y) lies in a planar body, its boundary included."""
    if x == 0 and y == 0:
        return True
    i = cone_of(vertices, x, y)
    j = i + 1 if i + 1 < len(vertices) else 0
    ax, ay = vertices[i, 0], vertices[i, 1]
    bx, by = vertices[j, 0], vertices[j, 1]
    return cross(x, y, bx - ax, by - ay) <= cross(ax, ay, bx, by)
