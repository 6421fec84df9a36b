"""Compiled hulls of integer points in the plane; importing this imports numba.

Coordinates are at most LIMIT = 2^28 in size. A turn is the sign of a cross product of two
differences, each coordinate of which is at most 2^29: the products are at most 2^58 and their
difference at most 2^59, so int64 decides every turn exactly. Bodies made of differences of such
points have coordinates up to 2^29, differences up to 2^30 and cross products up to 2^61.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)
def cross(ax: int, ay: int, bx: int, by: int) -> int:
    """ax·by - ay·bx: positive when b lies to the left of a."""
    return ax * by - ay * bx


@njit(cache=True)
def lower_chain(points: Any, out: Any) -> int:
    """Writes the strict lower hull of lexicographically sorted points to `out`; its length.

    From the smallest to the largest point, counter-clockwise; points on an edge, and repeated
    points, are left out.
    """
    size = 0
    for k in range(len(points)):
        x, y = points[k, 0], points[k, 1]
        while size and out[size - 1, 0] == x and out[size - 1, 1] == y:
            size -= 1
        while size >= 2:
            ax, ay = out[size - 2, 0], out[size - 2, 1]
            bx, by = out[size - 1, 0], out[size - 1, 1]
            if cross(bx - ax, by - ay, x - bx, y - by) > 0:
                break
            size -= 1
        out[size, 0], out[size, 1] = x, y
        size += 1
    return size


@njit(cache=True)
def closed_by_symmetry(chain: Any, size: int) -> Any:
    """The whole outline from the lower chain of a symmetric body: the rest is its negative."""
    if size <= 1:
        return chain[:size].copy()
    whole = np.empty((2 * (size - 1), 2), dtype=np.int64)
    for k in range(size - 1):
        for axis in range(2):
            whole[k, axis] = chain[k, axis]
            whole[k + size - 1, axis] = -chain[k, axis]
    return whole


@njit(cache=True)
def symmetric_outline(half: Any) -> Any:
    """Vertices of conv{±h}, from sorted vectors h > 0 in lexicographic order; (0, 0) if none.

    Negation reverses the order, so the sorted list of all points is the negated half backwards
    and then the half.
    """
    count = len(half)
    if count == 0:
        return np.zeros((1, 2), dtype=np.int64)
    points = np.empty((2 * count, 2), dtype=np.int64)
    for k in range(count):
        for axis in range(2):
            points[count - 1 - k, axis] = -half[k, axis]
            points[count + k, axis] = half[k, axis]
    chain = np.empty((2 * count, 2), dtype=np.int64)
    return closed_by_symmetry(chain, lower_chain(points, chain))


@njit(cache=True)
def grown_outline(vertices: Any, x: int, y: int) -> Any:
    """Vertices of conv(K ∪ {±(x, y)}), from those of a symmetric planar body K."""
    half = len(vertices) // 2  # the other half are their negatives
    keys = np.empty(half + 1, dtype=np.int64)
    for k in range(half + 1):
        u, v = (vertices[k, 0], vertices[k, 1]) if k < half else (x, y)
        if u < 0 or (u == 0 and v < 0):
            u, v = -u, -v
        keys[k] = (u << 31) + v + 2**30  # |v| <= 2^29: sorts by u, then by v
    keys.sort()
    vectors = np.empty((half + 1, 2), dtype=np.int64)
    for k in range(half + 1):
        vectors[k, 0], vectors[k, 1] = keys[k] >> 31, (keys[k] & (2**31 - 1)) - 2**30
    return symmetric_outline(vectors)


@njit(cache=True)
def outline(points: Any) -> tuple[Any, Any]:
    """Lower and upper hull chains of lexicographically sorted points, both from the smallest.

    The upper chain is given as the negative of the lower chain of the negated points: it runs
    from minus the largest point to minus the smallest.
    """
    count = len(points)
    lower = np.empty((count, 2), dtype=np.int64)
    low = lower_chain(points, lower)
    negated = np.empty((count, 2), dtype=np.int64)
    for k in range(count):
        for axis in range(2):
            negated[k, axis] = -points[count - 1 - k, axis]
    upper = np.empty((count, 2), dtype=np.int64)
    high = lower_chain(negated, upper)
    return lower[:low], upper[:high]


@njit(cache=True)
def difference_outline(points: Any) -> Any:
    """Vertices of conv{p - q}, from lexicographically sorted points: two edge fans merged.

    conv{p - q} = P + (-P), whose lower chain starts at min - max and follows the edges of the
    lower chains of P and of -P in order of their angle, parallel ones joined.
    """
    first, second = outline(points)
    chain = np.empty((len(first) + len(second), 2), dtype=np.int64)
    x = first[0, 0] + second[0, 0]
    y = first[0, 1] + second[0, 1]
    chain[0, 0], chain[0, 1] = x, y
    size, i, j = 1, 0, 0
    while i + 1 < len(first) or j + 1 < len(second):
        turn = 0
        if i + 1 == len(first):
            turn = -1
        elif j + 1 == len(second):
            turn = 1
        else:
            turn = cross(
                first[i + 1, 0] - first[i, 0],
                first[i + 1, 1] - first[i, 1],
                second[j + 1, 0] - second[j, 0],
                second[j + 1, 1] - second[j, 1],
            )
        if turn >= 0:
            x += first[i + 1, 0] - first[i, 0]
            y += first[i + 1, 1] - first[i, 1]
            i += 1
        if turn <= 0:
            x += second[j + 1, 0] - second[j, 0]
            y += second[j + 1, 1] - second[j, 1]
            j += 1
        chain[size, 0], chain[size, 1] = x, y
        size += 1
    return closed_by_symmetry(chain, size)


@njit(cache=True)
def cone_of(vertices: Any, x: int, y: int) -> int:
    """The i with (x, y) in the cone of vertices[i] and vertices[i + 1], by bisection.

    `vertices` run counter-clockwise around 0, at least three of them; (x, y) is not 0. The half
    plane left of vertices[0] holds the first half of the cones, the other one the second half.
    """
    half = len(vertices) // 2
    side = cross(vertices[0, 0], vertices[0, 1], x, y)
    ahead = vertices[0, 0] * x + vertices[0, 1] * y > 0
    start = 0 if side > 0 or (side == 0 and ahead) else half
    low, high = 0, half - 1
    while low < high:
        middle = (low + high + 1) // 2
        at = start + middle
        if cross(vertices[at, 0], vertices[at, 1], x, y) >= 0:
            low = middle
        else:
            high = middle - 1
    return start + low


@njit(cache=True)
def norm_parts(vertices: Any, x: int, y: int) -> tuple[int, int]:
    """(n·v, c) with |v|_K = n·v / c, v = (x, y) ≠ 0: n the outer normal of its edge, c = n·vertex.

    Exact in int64 for coordinates up to 2^31.
    """
    i = cone_of(vertices, x, y)
    j = i + 1 if i + 1 < len(vertices) else 0
    ax, ay = vertices[i, 0], vertices[i, 1]
    bx, by = vertices[j, 0], vertices[j, 1]
    return cross(x, y, bx - ax, by - ay), cross(ax, ay, bx, by)


@njit(cache=True)
def norms_kernel(vertices: Any, vectors: Any, numerators: Any, denominators: Any) -> None:
    """Writes the parts of every vector's norm; 0/1 for 0."""
    numerators[:], denominators[:] = 0, 1
    for k in range(len(vectors)):
        x, y = vectors[k, 0], vectors[k, 1]
        if x != 0 or y != 0:
            numerators[k], denominators[k] = norm_parts(vertices, x, y)


@njit(cache=True)
def inside(vertices: Any, x: int, y: int) -> bool:
    """Whether (x, y) lies in a planar body, its boundary included; decided on integers."""
    if x == 0 and y == 0:
        return True
    above, below = norm_parts(vertices, x, y)
    return above <= below


# Compiled search for a small diamond around a planar body; importing this imports numba.


MOST_ROUNDS = 100  # of reduction; stopping early costs acceptance, never exactness
LARGEST_ENTRY = 2.0**30  # of T: products with coordinates up to 2^29 stay below 2^61
TILTS = np.exp2(np.linspace(-2.0, 2.0, 33))  # the shapes of diamond tried
ROUNDED_SUMS = 1 - 2.0**-20  # covers the rounding of the sums below, which is under 2^-50


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
            shares[0], shares[1] = ROUNDED_SUMS * first / reach, ROUNDED_SUMS * second / reach
    for j in range(2):
        mantissa, exponent = math.frexp(shares[j])
        shares[j] = math.ldexp(math.floor(mantissa * 2.0**30), exponent - 30)
    sign = cross(rows[0, 0], rows[0, 1], rows[1, 0], rows[1, 1])  # the determinant, 1 or -1
    outwards = np.empty((2, 2), dtype=np.int64)
    outwards[0, 0], outwards[0, 1] = sign * rows[1, 1], -sign * rows[1, 0]
    outwards[1, 0], outwards[1, 1] = -sign * rows[0, 1], sign * rows[0, 0]
    return shares, outwards
