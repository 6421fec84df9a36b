"""Vertices of convex hulls on the integer lattice."""

from __future__ import annotations

import numpy as np

from shoal.core.value import Ints
from shoal.geometry.integers import POINT_LIMIT, Integers, check_size
from shoal.geometry.span import span_of


def symmetric_vertices(differences: Ints) -> Ints:
    """The vertices of conv{±v} in canonical order; a row of zeros when every v is 0."""
    if differences.shape[1] == 2:
        from shoal.geometry.planar_kernels import symmetric_outline

        return np.asarray(symmetric_outline(positive_half(differences)))
    half = positive_half(differences)
    if not len(half):
        return np.zeros((1, differences.shape[1]), dtype=np.int64)
    points = np.concatenate([-half[::-1], half])
    return _sorted_rows(points[_extreme(points)])


def difference_vertices(points: Integers) -> Ints:
    """The vertices of conv{p - q} in canonical order."""
    rows = check_size(points, "points", POINT_LIMIT)
    if not len(rows):
        return np.zeros((1, rows.shape[1]), dtype=np.int64)
    ordered = _sorted_rows(rows)
    if rows.shape[1] == 2:
        from shoal.geometry.planar_kernels import difference_outline

        return np.asarray(difference_outline(ordered))
    corners = ordered[_extreme(ordered)]
    differences = (corners[:, None, :] - corners[None, :, :]).reshape(-1, rows.shape[1])
    return symmetric_vertices(differences)


def is_canonical(vertices: Ints) -> bool:
    """Whether `vertices` are as the functions above return them.

    Beyond the plane only order and symmetry are checked: rounding inside Qhull may keep a point
    that is not extreme, which changes nothing about the body.
    """
    if vertices.shape[1] == 2:
        return np.array_equal(vertices, symmetric_vertices(vertices))
    if len(vertices) == 1:
        return not vertices.any()
    ordered = _sorted_rows(vertices)
    return np.array_equal(vertices, ordered) and np.array_equal(vertices, -ordered[::-1])


def positive_half(vectors: Ints) -> Ints:
    """Of each pair ±v the one whose first coordinate other than 0 is positive: sorted, distinct."""
    rows: Ints = vectors[(vectors != 0).any(axis=1)]
    if not len(rows):
        return rows
    first = rows[np.arange(len(rows)), (rows != 0).argmax(axis=1)]
    return _sorted_rows(np.where(first[:, None] < 0, -rows, rows))


def _sorted_rows(rows: Ints) -> Ints:
    """Distinct rows in lexicographic order; in the plane through one key a row."""
    if rows.shape[1] != 2:
        return np.unique(rows, axis=0)
    # |y| <= 2^29, so the second coordinate fits 31 bits and the key 61
    keys = np.unique((rows[:, 0] << 31) + (rows[:, 1] + 2**30))
    return np.stack([keys >> 31, (keys & (2**31 - 1)) - 2**30], axis=1)


def _extreme(points: Ints) -> Ints:
    """Indices of points that include every vertex of their hull, in any dimension.

    Exact on a line; in more dimensions Qhull's vertices in the span of the points, and all of
    them when Qhull cannot tell. Leaving out a true vertex here would shrink the body, so those
    that Qhull drops are checked against its facets on integers and kept when outside.
    """
    span = span_of(points - points[0])
    inner, _ = span.coordinates((points - points[0]).astype(object))
    if span.dimension == 0:
        return np.zeros(1, dtype=np.int64)
    if span.dimension == 1:
        line = inner[:, 0]
        return np.unique(np.array([line.argmin(), line.argmax()], dtype=np.int64))
    from shoal.geometry.extreme import extreme_points

    return extreme_points(inner.astype(np.int64))
