"""Convex bodies around 0 on the integer lattice: what a policy must make indistinguishable."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive
from shoal.core.value import Floats, Ints, Value, locked
from shoal.geometry.facets import Facets, facets_of
from shoal.geometry.hull import difference_vertices, is_canonical, symmetric_vertices
from shoal.geometry.integers import BODY_LIMIT, check_size, integer_rows
from shoal.geometry.moments import Moments, moments_of
from shoal.geometry.norms import Norms, facet_norms, linear_norms, planar_norms
from shoal.geometry.span import Span, cell_volume, span_of, trace_with

Bools = npt.NDArray[np.bool_]
PLANE = span_of(np.eye(2, dtype=np.int64))
_DERIVED = {"stored": False}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Body(Value):
    """K = conv(vertices), symmetric about 0, in lattice units: a sensitivity hull.

    vertices (m, d), integers of at most 2^29, in canonical order: counter-clockwise from the
    lexicographically smallest in the plane, sorted in other dimensions; one row of zeros for the
    point {0}, two rows for a segment. Every decision about the plane and the line is made on
    integers. With three dimensions or more the body in force is the one of `facets`, which may
    be larger than the hull but never smaller. Xiao & Xiong 2016, Definition 5.2.
    """

    vertices: Ints
    span: Span = field(init=False, repr=False, metadata=_DERIVED)
    flat: Ints = field(init=False, repr=False, metadata=_DERIVED)
    facets: Facets | None = field(init=False, repr=False, metadata=_DERIVED)

    def __post_init__(self) -> None:
        rows = check_size(integer_rows(self.vertices, "vertices"), "vertices", BODY_LIMIT)
        if not is_canonical(rows):
            raise InputError(
                "vertices are not those of a body symmetric about 0 in canonical order; "
                "make it with symmetric_hull or difference_body"
            )
        self._settle(rows)

    def _settle(self, vertices: Ints) -> None:
        """Sets the vertices and what follows from them."""
        # three vertices or more of a planar body span the plane
        plane = vertices.shape[1] == 2 and len(vertices) > 2
        span = PLANE if plane else span_of(vertices)
        flat = vertices if span.full else _in_span(span, vertices)
        facets = facets_of(flat) if span.dimension >= 3 else None
        own = locked(vertices, np.int64)
        object.__setattr__(self, "vertices", own)
        object.__setattr__(self, "span", span)
        object.__setattr__(self, "flat", own if flat is vertices else locked(flat, np.int64))
        object.__setattr__(self, "facets", facets)

    @property
    def dimension(self) -> int:
        """d', the dimension of the span: 0 for the point, 1 for a segment."""
        return self.span.dimension

    @property
    def ambient(self) -> int:
        """d, the number of coordinates."""
        return int(self.vertices.shape[1])

    def norm(self, vectors: npt.ArrayLike) -> Norms:
        """|v|_K = min{r >= 0 : v in rK} of each row, as exact fractions; 1/0 outside the span.

        In three dimensions or more under the body of `facets`.
        """
        rows = integer_rows(vectors, "vectors")
        inner, inside = self.span.coordinates(rows)
        norms = self.inner_norm(inner)
        if inside.all():
            return norms
        return Norms(np.where(inside, norms.numerators, 1), np.where(inside, norms.denominators, 0))

    def norm_upper(self, vectors: npt.ArrayLike) -> Floats:
        """The norms as floats, rounded up; inf outside the span."""
        return self.norm(vectors).upper()

    def contains(self, vectors: npt.ArrayLike) -> Bools:
        """Whether each row lies in K, its boundary included; exact."""
        return self.norm(vectors).at_most_one()

    def inner_norm(self, inner: npt.NDArray[np.int64]) -> Norms:
        """The norms of rows given in the coordinates of the span."""
        match self.dimension:
            case 0:
                return Norms(np.zeros(len(inner), np.int64), np.ones(len(inner), np.int64))
            case 1:
                return linear_norms(int(abs(self.flat[0, 0])), inner)
            case 2:
                return planar_norms(self.flat, inner)
        assert self.facets is not None
        return facet_norms(self.facets, inner)

    @property
    def moments(self) -> Moments:
        """Volume and second moments in the coordinates of the span, exact."""
        return moments_of(self.flat, None if self.facets is None else self.facets.simplices)

    @property
    def content(self) -> Fraction:
        """The d-dimensional volume (the area in the plane), exact; 0 when the body is flat."""
        return self.moments.volume if self.span.full else Fraction(0)

    @property
    def volume(self) -> float:
        """The d'-dimensional volume in the span: length, area, …; 1 for the point."""
        return float(self.moments.volume) * cell_volume(self.span)

    @property
    def second_moment(self) -> Fraction:
        """E|u|² for u uniform in K, in squared lattice units; exact."""
        return trace_with(self.span.gram(), self.moments.second)

    @property
    def l1_radius(self) -> int:
        """max |v|_1 over K: the l1 sensitivity that Laplace noise must cover."""
        return int(np.abs(self.vertices).sum(axis=1).max())

    def mse(self, epsilon: Number) -> Fraction:
        """E|noise|² of K-norm noise: (d'+1)(d'+2) E_K|u|² / epsilon².

        Of the continuous law, density ∝ exp(-epsilon |x|_K) in the span: the norm of the noise
        is Gamma(d'+1, 1/epsilon). In squared lattice units.
        """
        amount = positive(epsilon, "epsilon")
        factor = (self.dimension + 1) * (self.dimension + 2)
        return factor * self.second_moment / amount**2

    def log_density(self, epsilon: float, norms: Floats) -> Floats:
        """log of epsilon^d' exp(-epsilon r) / (d'! volume) at norms r: the continuous law."""
        d = self.dimension
        constant = d * math.log(epsilon) - math.lgamma(d + 1) - math.log(self.volume)
        return constant - epsilon * norms


def symmetric_hull(differences: npt.ArrayLike) -> Body:
    """conv{±v : v a row of `differences`} (n, d): the sensitivity hull of these differences.

    The point {0} when there are none, or only zeros. Coordinates at most 2^29 lattice steps.
    """
    rows = check_size(integer_rows(differences, "differences"), "differences", BODY_LIMIT)
    return body_of(symmetric_vertices(rows))


def difference_body(points: npt.ArrayLike) -> Body:
    """conv{p - q : p, q rows of `points`} (n, d): the hull of the complete graph.

    In the plane by merging the edges of conv(points) and of its mirror image, O(h) after the
    sort; elsewhere from the differences of extreme points. Coordinates at most 2^28.
    """
    return body_of(difference_vertices(integer_rows(points, "points")))


def body_of(vertices: Ints) -> Body:
    """The body of vertices known to be canonical: skips the check of the constructor."""
    body = object.__new__(Body)
    body._settle(vertices)
    return body


def _in_span(span: Span, vertices: Ints) -> Ints:
    """The vertices in span coordinates, in canonical order there too."""
    inner, _ = span.coordinates(vertices)
    if span.dimension == 0:
        return np.zeros((1, 0), dtype=np.int64)
    return symmetric_vertices(check_size(inner, "vertices in their span", BODY_LIMIT))
