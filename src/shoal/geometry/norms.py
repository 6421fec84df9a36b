"""Norms of vectors under a body, as exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.core.value import Floats
from shoal.geometry.facets import Facets
from shoal.geometry.integers import VECTOR_LIMIT, Integers, largest, product


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
    from shoal.geometry.planar_kernels import norms_kernel

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
