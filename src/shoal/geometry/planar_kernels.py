"""Compiled hulls of integer points in the plane; importing this imports numba.

Coordinates are at most LIMIT = 2^28 in size. A turn is the sign of a cross product of two
differences, each coordinate of which is at most 2^29: the products are at most 2^58 and their
difference at most 2^59, so int64 decides every turn exactly. Bodies made of differences of such
points have coordinates up to 2^29, differences up to 2^30 and cross products up to 2^61.
"""

from __future__ import annotations

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
def norms_kernel(vertices: Any, vectors: Any, numerators: Any, denominators: Any) -> None:
    """|v|_K = n·v / c for every vector, n the outer normal of its edge and c = n·vertex."""
    size = len(vertices)
    for k in range(len(vectors)):
        x, y = vectors[k, 0], vectors[k, 1]
        if x == 0 and y == 0:
            numerators[k], denominators[k] = 0, 1
            continue
        i = cone_of(vertices, x, y)
        j = i + 1 if i + 1 < size else 0
        ax, ay = vertices[i, 0], vertices[i, 1]
        bx, by = vertices[j, 0], vertices[j, 1]
        numerators[k] = cross(x, y, bx - ax, by - ay)
        denominators[k] = cross(ax, ay, bx, by)


@njit(cache=True)
def inside(vertices: Any, x: int, y: int) -> bool:
    """Whether (x, y) lies in a planar body, its boundary included; decided on integers."""
    if x == 0 and y == 0:
        return True
    i = cone_of(vertices, x, y)
    j = i + 1 if i + 1 < len(vertices) else 0
    ax, ay = vertices[i, 0], vertices[i, 1]
    bx, by = vertices[j, 0], vertices[j, 1]
    return cross(x, y, bx - ax, by - ay) <= cross(ax, ay, bx, by)
