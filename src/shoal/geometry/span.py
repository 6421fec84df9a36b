"""Integers that decide promises, and the spans of lattices: exact, never on floats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Ints, locked
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
            object.__setattr__(self, name, locked(getattr(self, name), np.object_))

    @property
    def dimension(self) -> int:
        return len(self.basis)

    @property
    def full(self) -> bool:
        """Whether the span is the whole space, with its own coordinates."""
        return len(self.basis) == len(self.inward)

    def coordinates(self, vectors: Integers) -> tuple[Integers, np.ndarray[tuple[int], np.dtype]]:
        """y of every vector, and whether the vector lies in the span (else y means nothing)."""
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


def cell_volume(span: Span) -> float:
    """The volume of one lattice cell of the span, √det(basis basisᵀ)."""
    return math.sqrt(determinant(span.gram())) if not span.full else 1.0


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
