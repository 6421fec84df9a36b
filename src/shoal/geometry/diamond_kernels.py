"""Compiled search for a small diamond around a planar body; importing this imports numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.planar_kernels import cross

MOST_ROUNDS = 100  # of reduction; stopping early costs acceptance, never exactness
LARGEST_ENTRY = 2.0**30  # of T: products with coordinates up to 2^29 stay below 2^61
TILTS = np.exp2(np.linspace(-2.0, 2.0, 33))  # the shapes of diamond tried
MARGIN = 1 - 2.0**-20  # covers the rounding of the sums below, which is under 2^-50


@njit(cache=True)
def inertia(vertices: Any) -> tuple[float, float, float]:
    """E[x²], E[xy], E[y²] over the body, up to a common factor; floats that only steer a search."""
    xx, xy, yy = 0.0, 0.0, 0.0
    size = len(vertices) // 2  # the other half of a symmetric body adds the same again
    for k in range(size):
        ax, ay = float(vertices[k, 0]), float(vertices[k, 1])
        bx, by = float(vertices[k + 1, 0]), float(vertices[k + 1, 1])
        weight = ax * by - ay * bx
        xx += weight * (ax * ax + ax * bx + bx * bx)
        xy += weight * (ax * ay + bx * by + 0.5 * (ax * by + ay * bx))
        yy += weight * (ay * ay + ay * by + by * by)
    return xx, xy, yy


@njit(cache=True)
def reduced_rows(xx: float, xy: float, yy: float) -> Any:
    """Rows of a unimodular T, short and nearly orthogonal under the form (Lagrange, Gauss)."""
    rows = np.eye(2, dtype=np.int64)
    for _ in range(MOST_ROUNDS):
        changed = False
        for j in range(2):
            i = 1 - j
            ax, ay = float(rows[i, 0]), float(rows[i, 1])
            bx, by = float(rows[j, 0]), float(rows[j, 1])
            own = ax * ax * xx + 2 * ax * ay * xy + ay * ay * yy
            mixed = ax * bx * xx + (ax * by + ay * bx) * xy + ay * by * yy
            times = math.floor(mixed / own + 0.5) if own > 0 else 0.0
            cx, cy = bx - times * ax, by - times * ay
            if times == 0 or max(abs(cx), abs(cy)) > LARGEST_ENTRY:
                continue
            before = bx * bx * xx + 2 * bx * by * xy + by * by * yy
            after = cx * cx * xx + 2 * cx * cy * xy + cy * cy * yy
            if after < (1 - 1e-9) * before:
                rows[j, 0] -= int(times) * rows[i, 0]
                rows[j, 1] -= int(times) * rows[i, 1]
                changed = True
        if not changed:
            break
    return rows


@njit(cache=True)
def diamond(vertices: Any) -> tuple[Any, Any]:
    """(shares, outwards): Σ share_j |w_j| <= |y|_K for every y = w @ outwards.

    shares are rounded down to 30 bits. At every vertex the sum is at most MARGIN times a float
    sum that is at most 1 up to rounding, hence below 1; a convex function takes its maximum over
    K at a vertex.
    """
    rows = reduced_rows(*inertia(vertices))
    size = len(vertices) // 2
    sizes = np.empty((size, 2))
    widest = np.zeros(2)
    for k in range(size):
        for j in range(2):
            w = rows[j, 0] * vertices[k, 0] + rows[j, 1] * vertices[k, 1]
            sizes[k, j] = abs(w)
            widest[j] = max(widest[j], sizes[k, j])
    best, shares = np.inf, np.empty(2)
    for tilt in TILTS:
        first, second = tilt / widest[0], 1 / (tilt * widest[1])
        reach = 0.0
        for k in range(size):
            reach = max(reach, first * sizes[k, 0] + second * sizes[k, 1])
        if reach < best:
            best = reach
            shares[0], shares[1] = MARGIN * first / reach, MARGIN * second / reach
    for j in range(2):
        mantissa, exponent = math.frexp(shares[j])
        shares[j] = math.ldexp(math.floor(mantissa * 2.0**30), exponent - 30)
    sign = cross(rows[0, 0], rows[0, 1], rows[1, 0], rows[1, 1])  # the determinant, 1 or -1
    outwards = np.empty((2, 2), dtype=np.int64)
    outwards[0, 0], outwards[0, 1] = sign * rows[1, 1], -sign * rows[1, 0]
    outwards[1, 0], outwards[1, 1] = -sign * rows[0, 1], sign * rows[0, 0]
    return shares, outwards
