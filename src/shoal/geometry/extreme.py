"""Extreme points in several dimensions, with Qhull's answer checked on integers."""

from __future__ import annotations

import numpy as np

from shoal.core.value import Ints
from shoal.geometry.span import determinant


def extreme_points(points: Ints) -> Ints:
    """Indices of points whose hull is the hull of all; full-dimensional, two dimensions or more.

    Qhull names the vertices and its facets. A point it dropped stays dropped only if it lies on
    the inner side of every facet's plane, computed on integers from d kept vertices; so rounding
    can keep a point too many but never lose one.
    """
    from scipy.spatial import ConvexHull, QhullError

    try:
        hull = ConvexHull(points.astype(np.float64))
    except QhullError:
        return np.arange(len(points))
    kept = np.zeros(len(points), dtype=bool)
    kept[hull.vertices] = True
    exact = points.astype(object)
    centre = exact[hull.vertices].sum(axis=0)
    count = len(hull.vertices)
    for simplex in hull.simplices:
        normal, offset = _plane(exact[simplex], centre, count)
        kept |= (exact @ normal > offset).astype(bool)
    return np.flatnonzero(kept)


def _plane(
    corners: np.ndarray[tuple[int, ...], np.dtype[np.object_]],
    centre: np.ndarray[tuple[int, ...], np.dtype[np.object_]],
    count: int,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.object_]], int]:
    """Integer (n, c) with n·x = c through d corners and n·centre/count <= c."""
    size = corners.shape[1]
    edges = [[int(a) - int(b) for a, b in zip(row, corners[0], strict=True)] for row in corners[1:]]
    minors = [[[row[j] for j in range(size) if j != axis] for row in edges] for axis in range(size)]
    normal = np.array(
        [(-1) ** axis * determinant(minor) for axis, minor in enumerate(minors)], dtype=object
    )
    offset = int(normal @ corners[0])
    if int(normal @ centre) > count * offset:
        return -normal, -offset
    return normal, offset
