"""Integers that decide promises: spans of lattices, moments, norms and facets of bodies; exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as patterns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints, as_read_only
from shoal.core.errors import InputError

# Exact integer arrays: int64 where it provably suffices, Python's integers elsewhere.


Integers = npt.NDArray[Any]  # int64, or Python integers (dtype object)

POINT_LIMIT = 2**28  # coordinates of points in lattice units
BODY_LIMIT = 2**29  # coordinates of a body: differences of points
VECTOR_LIMIT = 2**31  # vectors whose norm in the plane int64 decides


def integer_rows(values: npt.ArrayLike, field: str) -> Integers:
    """`values` as an (n, d) array of integers; refused when a coordinate is not a whole number."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"{field} has shape {array.shape}; it must be (count, dimension)")
    if array.dtype == object:
        return array
    fractional = array.dtype.kind not in "iu" and bool(array.size)
    if fractional and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise InputError(f"{field} must be whole numbers of lattice steps; snap them first")
    return array.astype(np.int64)


def largest(values: Integers) -> int:
    """The largest coordinate in size, 0 when there is none."""
    return int(max(abs(values.max()), abs(values.min()))) if values.size else 0


def check_size(values: Integers, field: str, limit: int) -> Integers:
    """`values` as int64; refused when a coordinate exceeds `limit`."""
    size = largest(values)
    if size > limit:
        raise InputError(
            f"{field} reach {size} lattice steps; the largest allowed is {limit} "
            "(use a coarser lattice)"
        )
    return values.astype(np.int64)


def product(left: Integers, right: Integers) -> Integers:
    """left @ right exactly: int64 when no sum can leave 63 bits, else Python's integers."""
    if largest(left) * largest(right) * max(1, left.shape[-1]) < 2**62:
        return np.asarray(left.astype(np.int64) @ right.astype(np.int64))
    return np.asarray(left.astype(object) @ right.astype(object))


# The lattice inside the span of a flat body: integer coordinates, one to one.
#
# A unimodular U with V U = [H 0] (V holds the vectors as rows, H has independent columns) turns
# the span into the first d' coordinates: x lies in the span exactly when the other coordinates of
# x U are 0, and then y = (x U)[:d'] runs through all of Z^d' as x runs through the lattice points
# of the span. Cohen 1993, "A course in computational algebraic number theory", section 2.4.


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """`inward` is U (d, d); `basis` is (d', d): lattice points of the span are y @ basis."""

    inward: Integers
    basis: Integers

    def __post_init__(self) -> None:
        for name in ("inward", "basis"):
            object.__setattr__(self, name, as_read_only(getattr(self, name), np.object_))

    @property
    def dimension(self) -> int:
        return len(self.basis)

    @property
    def full(self) -> bool:
        """Whether the span is the whole space, with its own coordinates."""
        return len(self.basis) == len(self.inward)

    def coordinates(self, vectors: Integers) -> tuple[Integers, np.ndarray[tuple[int], np.dtype]]:
        """y of every vector, and whether the vector lies in the span (else y is undefined)."""
        if self.full:
            return vectors, np.ones(len(vectors), dtype=bool)
        moved = product(vectors, self.inward)
        rest = moved[:, self.dimension :]
        return moved[:, : self.dimension], (rest == 0).all(axis=1).astype(bool)

    def vectors(self, coordinates: Integers) -> Integers:
        """The lattice points y @ basis."""
        return coordinates if self.full else product(coordinates, self.basis)

    def gram(self) -> list[list[int]]:
        """G = basis basisᵀ: |y @ basis|² = y G yᵀ."""
        rows = [[int(value) for value in row] for row in self.basis]
        return [[sum(a * b for a, b in zip(u, v, strict=True)) for v in rows] for u in rows]


def span_of(vectors: Integers) -> Span:
    """The span of the rows of `vectors` (n, d), with lattice coordinates.

    The identity when they span the space, so that a full body keeps its own coordinates.
    """
    width = vectors.shape[1]
    rows = [[int(value) for value in row] for row in vectors]
    change, inverse, rank = _column_echelon(rows, width)
    if rank == width:
        change = inverse = _identity(width)
    else:
        _shorten(change, inverse, rank)
    return Span(
        inward=np.array(change, dtype=object).reshape(width, width),
        basis=np.array(inverse[:rank], dtype=object).reshape(rank, width),
    )


def determinant(matrix: list[list[int]]) -> int:
    """The determinant of a square matrix of integers, by fraction-free elimination."""
    rows = [list(row) for row in matrix]
    sign, previous = 1, 1
    for k in range(len(rows) - 1):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            rows[k], rows[pivot], sign = rows[pivot], rows[k], -sign
        for i in range(k + 1, len(rows)):
            for j in range(k + 1, len(rows)):
                value = rows[i][j] * rows[k][k] - rows[i][k] * rows[k][j]
                rows[i][j] = value // previous
        previous = rows[k][k]
    return sign * rows[-1][-1] if rows else 1


def trace_with(gram: list[list[int]], moments: list[list[Fraction]]) -> Fraction:
    """tr(G M) for symmetric G and M."""
    size = range(len(gram))
    return sum((gram[i][j] * moments[i][j] for i in size for j in size), Fraction(0))


def _identity(width: int) -> list[list[int]]:
    return [[int(i == j) for j in range(width)] for i in range(width)]


def _column_echelon(
    rows: list[list[int]], width: int
) -> tuple[list[list[int]], list[list[int]], int]:
    """U and its inverse with rows @ U = [H 0], and the rank: Euclid's algorithm on columns.

    A row that is 0 beyond the columns fixed so far is spanned already and is passed over.
    """
    change, inverse, rank = _identity(width), _identity(width), 0
    for row in rows:
        image = [sum(row[i] * change[i][j] for i in range(width)) for j in range(width)]
        while rank < width and any(image[rank:]):
            live = [j for j in range(rank, width) if image[j]]
            pivot = min(live, key=lambda j: abs(image[j]))
            if len(live) == 1:
                _swap(change, inverse, image, rank, pivot)
                rank += 1
                break
            for j in live:
                if j != pivot:
                    _subtract(change, inverse, image, j, pivot, image[j] // image[pivot])
        if rank == width:
            break
    return change, inverse, rank


def _shorten(change: list[list[int]], inverse: list[list[int]], rank: int) -> None:
    """Makes the basis (the first `rank` rows of the inverse) short, so that coordinates are small.

    Lagrange's step on every pair: b_j minus the nearest multiple of b_i, as long as |b_j| falls.
    """
    changed = True
    while changed:
        changed = False
        for i in range(rank):
            own = sum(a * a for a in inverse[i])
            for j in range(rank):
                mixed = sum(a * b for a, b in zip(inverse[i], inverse[j], strict=True))
                times = (2 * mixed + own) // (2 * own)
                if i == j or 2 * abs(mixed) <= own:
                    continue  # already nearest, or a tie that would go back and forth
                inverse[j] = [b - times * a for a, b in zip(inverse[i], inverse[j], strict=True)]
                for row in change:
                    row[i] += times * row[j]
                changed = True


def _swap(
    change: list[list[int]], inverse: list[list[int]], image: list[int], a: int, b: int
) -> None:
    """Exchanges columns a and b of U, and rows a and b of its inverse."""
    image[a], image[b] = image[b], image[a]
    inverse[a], inverse[b] = inverse[b], inverse[a]
    for row in change:
        row[a], row[b] = row[b], row[a]


def _subtract(
    change: list[list[int]],
    inverse: list[list[int]],
    image: list[int],
    target: int,
    source: int,
    times: int,
) -> None:
    """Column target minus `times` column source; the inverse adds the rows back."""
    image[target] -= times * image[source]
    for row in change:
        row[target] -= times * row[source]
    inverse[source] = [a + times * b for a, b in zip(inverse[source], inverse[target], strict=True)]


# Volume and second moments of a symmetric polytope, exact.


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


# Norms of vectors under a body, as exact fractions.


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
    """Return the max over facets of n·v / offset, exactly, over one common denominator."""
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
# independently of Qhull. The body in force is the intersection of these half-spaces and of their
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
        normal = normal_through(exact[simplex])
        if normal.any():
            offset = max(int(value) for value in exact @ normal)
            common = math.gcd(*normal, offset)
            found[tuple(value // common for value in normal)] = offset // common
    for side in list(found):  # the body is symmetric, so are its facets
        found.setdefault(tuple(-value for value in side), found[side])
    ordered = sorted(found)
    if span_of(np.array(ordered, dtype=object)).dimension < vertices.shape[1]:
        raise InputError(TOO_THIN.format(dimension=vertices.shape[1]))
    return Facets(
        normals=np.array(ordered, dtype=object),
        offsets=np.array([found[side] for side in ordered], dtype=object),
        simplices=hull.simplices.astype(np.int64),
    )


def normal_through(points: Integers) -> Integers:
    """A normal of the hyperplane through d points, by cofactors, away from 0; 0 if they are flat.

    Python's integers.
    """
    base = [int(value) for value in points[0]]
    edges = [[int(a) - b for a, b in zip(row, base, strict=True)] for row in points[1:]]
    axes = range(len(base))
    minors = [[[row[j] for j in axes if j != axis] for row in edges] for axis in axes]
    normal = np.array([(-1) ** k * determinant(minors[k]) for k in axes], dtype=object)
    return normal if int(normal @ np.array(base, dtype=object)) >= 0 else -normal


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
    chosen = _independent(facets, _rank_facets(facets, direction))
    normals = [[int(value) for value in facets.normals[i]] for i in chosen]
    weights = _solve([list(column) for column in zip(*normals, strict=True)], direction)
    return sum(
        (abs(weight) * int(facets.offsets[i]) for weight, i in zip(weights, chosen, strict=True)),
        Fraction(0),
    )


def _rank_facets(facets: Facets, direction: Sequence[Fraction]) -> Integers:
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
