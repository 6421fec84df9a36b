"""Norms of vectors under a body, as exact fractions, and the facets behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as patterns
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.geometry.span import VECTOR_LIMIT, Integers, determinant, largest, product, span_of


class Norms(NamedTuple):
    """numerators / denominators, entry by entry; 1/0 outside the span of the body."""

    numerators: Integers
    denominators: Integers

    def upper(self) -> Floats:
        """Floats at or above the exact values, within a relative 2^-51; inf outside the span."""
        exact_zero = self.numerators == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.numerators.astype(np.float64) / self.denominators.astype(np.float64)
        # two conversions and a quotient lose at most 1.5 units in the last place
        above = np.nextafter(ratio * (1 + 2.0**-51), np.inf)
        return np.where(exact_zero, 0.0, above)

    def at_most_one(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether the vector lies in the body, its boundary included; exact."""
        inside = (self.numerators <= self.denominators) & (self.denominators > 0)
        return inside.astype(bool)

    def fraction(self, index: int) -> Fraction | None:
        """The exact value, or None for infinity."""
        denominator = int(self.denominators[index])
        return Fraction(int(self.numerators[index]), denominator) if denominator else None


def planar_norms(vertices: Integers, vectors: Integers) -> Norms:
    """Norms under a polygon around 0, vertices counter-clockwise."""
    if largest(vectors) > VECTOR_LIMIT:
        return _wide_planar_norms(vertices, vectors)
    from shoal.geometry.kernels import norms_kernel

    numerators = np.empty(len(vectors), dtype=np.int64)
    denominators = np.empty(len(vectors), dtype=np.int64)
    rows = np.ascontiguousarray(vectors, dtype=np.int64)
    norms_kernel(vertices, rows, numerators, denominators)
    return Norms(numerators, denominators)


def linear_norms(half_length: int, vectors: Integers) -> Norms:
    """|y| / half_length on a line."""
    return Norms(np.abs(vectors[:, 0]), np.full(len(vectors), half_length, dtype=np.int64))


def facet_norms(facets: Facets, vectors: Integers) -> Norms:
    """max over facets of n·v / offset: Python's integers, brought to one denominator."""
    common = math.lcm(*(int(offset) for offset in facets.offsets))
    scaled = facets.normals * (common // facets.offsets)[:, None]
    heights = product(vectors.astype(object), scaled.T.astype(object))
    top = heights.max(axis=1) if len(vectors) else np.zeros(0, dtype=object)
    return Norms(top, np.full(len(vectors), common, dtype=object))


def _wide_planar_norms(vertices: Integers, vectors: Integers) -> Norms:
    """The same with Python's integers: max over edges, since each edge is a facet."""
    after = np.roll(vertices, -1, axis=0).astype(object)
    before = vertices.astype(object)
    edges = after - before
    normals = np.stack([edges[:, 1], -edges[:, 0]], axis=1)
    offsets = (normals * before).sum(axis=1)
    return facet_norms(Facets(normals, offsets, np.zeros((0, 2), dtype=np.int64)), vectors)


# Facets of a body in three or more dimensions: found by Qhull, made sound on integers.
#
# Qhull works in floating point, so what it returns is only trusted to name d vertices of each
# facet. The normal of the plane through them is computed on integers, and the offset is the
# largest n·v over *all* vertices v: every half-space {x : n·x <= offset} contains the whole hull,
# whatever Qhull did. The body in force is the intersection of these half-spaces and of their
# negatives. It contains the hull and, when Qhull was right, equals it; a larger body only adds
# noise.


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


# How far a body given by facets reaches in a direction, with a certificate on integers.


MOST_PATTERNS = 6  # dimensions up to which every sign pattern is bounded on its own


def facet_reach(
    facets: Facets, rates: Sequence[Fraction], rows: Sequence[Sequence[int]]
) -> Fraction:
    """An upper bound on max Σ rate_j |row_j·x| over the body; exact up to six dimensions.

    The sum is the largest of its 2^d sign patterns, each linear. Beyond six dimensions the
    coordinates are bounded one by one and added up, which is looser.
    """
    d = len(rates)
    directions = [[rate * value for value in row] for rate, row in zip(rates, rows, strict=True)]
    if d > MOST_PATTERNS:
        return sum((support(facets, direction) for direction in directions), Fraction(0))
    reach = Fraction(0)
    for signs in patterns((1, -1), repeat=d - 1):
        signed = zip((1, *signs), directions, strict=True)
        mixed = [[sign * value for value in direction] for sign, direction in signed]
        total = [sum(column, Fraction(0)) for column in zip(*mixed, strict=True)]
        reach = max(reach, support(facets, total))
    return reach


def support(facets: Facets, direction: Sequence[Fraction]) -> Fraction:
    """An upper bound on max direction·x over the body, exact when the linear program is right.

    Whenever direction = Σ λ_i n_i with d facets n_i, direction·x <= Σ |λ_i| offset_i, because
    the body is symmetric. The program only chooses which d facets; λ is solved on rationals.
    """
    chosen = _independent(facets, _ranked(facets, direction))
    normals = [[int(value) for value in facets.normals[i]] for i in chosen]
    weights = _solve([list(column) for column in zip(*normals, strict=True)], direction)
    return sum(
        (abs(weight) * int(facets.offsets[i]) for weight, i in zip(weights, chosen, strict=True)),
        Fraction(0),
    )


def _ranked(facets: Facets, direction: Sequence[Fraction]) -> Integers:
    """Facets in the order in which the linear program max direction·x leans on them."""
    from scipy.optimize import linprog

    scaled = facets.normals.astype(float) / facets.offsets.astype(float)[:, None]
    goal = np.array([float(value) for value in direction])
    size = np.abs(goal).max()
    answer = linprog(
        -goal / (size or 1.0), A_ub=scaled, b_ub=np.ones(len(scaled)), bounds=(None, None)
    )
    if answer.x is None:
        return np.arange(len(scaled))
    return np.lexsort((1 - scaled @ answer.x, answer.ineqlin.marginals))


def _independent(facets: Facets, order: Integers) -> list[int]:
    """The first d facets in `order` whose normals are independent."""
    chosen: list[int] = []
    for index in order:
        trial = facets.normals[[*chosen, int(index)]]
        if span_of(trial).dimension == len(trial):
            chosen.append(int(index))
        if len(chosen) == facets.normals.shape[1]:
            break
    return chosen


def _solve(matrix: list[list[int]], right: Sequence[Fraction]) -> list[Fraction]:
    """The solution of matrix x = right, by Cramer's rule on integers."""
    common = int(np.lcm.reduce([value.denominator for value in right], dtype=object))
    whole = [int(value * common) for value in right]
    below = determinant(matrix) * common
    solution = []
    for column in range(len(matrix)):
        replaced = [
            [*row[:column], value, *row[column + 1 :]]
            for row, value in zip(matrix, whole, strict=True)
        ]
        solution.append(Fraction(determinant(replaced), below))
    return solution
