"""Volume and second moments of a symmetric polytope, exact."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from shoal.core.value import Ints
from shoal.geometry.integers import Integers
from shoal.geometry.span import determinant


class Moments(NamedTuple):
    """volume, and second[i][j] = E[u_i u_j] for u uniform in the body."""

    volume: Fraction
    second: list[list[Fraction]]


def moments_of(vertices: Ints, simplices: Integers | None) -> Moments:
    """Moments of a full-dimensional symmetric body, cut into simplices with a corner at 0.

    For a simplex with corners 0, v_1, …, v_d:  volume |det(v)| / d!  and
    E[u uᵀ] = (Σ v_i v_iᵀ + (Σ v_i)(Σ v_i)ᵀ) / ((d+1)(d+2)).
    `simplices` index the vertices of each facet; None in the plane (edge by edge) and on the line.
    """
    rows = [[int(value) for value in row] for row in vertices]
    d = vertices.shape[1]
    if d == 0:
        return Moments(Fraction(1), [])
    weight = 0
    totals = [[0] * d for _ in range(d)]
    for corners in _pieces(rows, simplices):
        size = abs(determinant(corners))
        weight += size
        middle = [sum(column) for column in zip(*corners, strict=True)]
        for i in range(d):
            for j in range(d):
                own = sum(corner[i] * corner[j] for corner in corners)
                totals[i][j] += size * (own + middle[i] * middle[j])
    scale = (d + 1) * (d + 2) * weight
    second = [[Fraction(value, scale) for value in row] for row in totals]
    return Moments(Fraction(weight, math.factorial(d)), second)


def _pieces(rows: list[list[int]], simplices: Integers | None) -> list[list[list[int]]]:
    """The corners, other than 0, of every simplex."""
    if simplices is not None:
        return [[rows[int(index)] for index in simplex] for simplex in simplices]
    if len(rows[0]) == 1:
        return [[row] for row in rows]
    return [[rows[k], rows[(k + 1) % len(rows)]] for k in range(len(rows))]
