"""Facets of a body in three or more dimensions: found by Qhull, made sound on integers.

Qhull works in floating point, so what it returns is only trusted to name d vertices of each
facet. The normal of the plane through them is computed on integers, and the offset is the largest
n·v over *all* vertices v: every half-space {x : n·x <= offset} contains the whole hull, whatever
Qhull did. The body in force is the intersection of these half-spaces and of their negatives. It
contains the hull and, when Qhull was right, equals it; a larger body only adds noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.core.errors import InputError
from shoal.geometry.integers import Integers
from shoal.geometry.span import determinant, span_of

TOO_THIN = (
    "the differences span {dimension} dimensions but are too thin for a hull in floating point; "
    "use a coarser lattice or fewer measurements"
)


@dataclass(frozen=True, slots=True, eq=False)
class Facets:
    """The body {x : normals·x <= offsets}, in Python's integers; `simplices` index the vertices.

    The simplices with 0 tile the hull when Qhull was right (used for volumes, never for noise).
    """

    normals: Integers
    offsets: Integers
    simplices: Integers


def facets_of(vertices: Integers) -> Facets:
    """The facets of conv(vertices): symmetric, full-dimensional, in three or more dimensions.

    Refused when the normals found do not span the space: the body would not be bounded.
    """
    from scipy.spatial import ConvexHull, QhullError

    try:
        hull = ConvexHull(vertices.astype(np.float64))
    except QhullError:
        raise InputError(TOO_THIN.format(dimension=vertices.shape[1])) from None
    exact = vertices.astype(object)
    found: dict[tuple[int, ...], int] = {}
    for simplex in hull.simplices:
        normal = _normal(exact[simplex])
        if any(normal):
            offset = max(int(value) for value in exact @ np.array(normal, dtype=object))
            common = math.gcd(*normal, offset)
            found[tuple(value // common for value in normal)] = offset // common
    for normal in list(found):  # the body is symmetric, so are its facets
        found.setdefault(tuple(-value for value in normal), found[normal])
    ordered = sorted(found)
    if span_of(np.array(ordered, dtype=object)).dimension < vertices.shape[1]:
        raise InputError(TOO_THIN.format(dimension=vertices.shape[1]))
    return Facets(
        normals=np.array(ordered, dtype=object),
        offsets=np.array([found[normal] for normal in ordered], dtype=object),
        simplices=hull.simplices.astype(np.int64),
    )


def _normal(points: Integers) -> tuple[int, ...]:
    """An outer normal of the hyperplane through d points, by cofactors; 0 when they are flat."""
    base = [int(value) for value in points[0]]
    edges = [[int(a) - b for a, b in zip(row, base, strict=True)] for row in points[1:]]
    size = len(base)
    normal = []
    for axis in range(size):
        minor = [[row[j] for j in range(size) if j != axis] for row in edges]
        normal.append((-1) ** axis * determinant(minor))
    outward = sum(n * b for n, b in zip(normal, base, strict=True))
    return tuple(normal if outward >= 0 else [-value for value in normal])
