"""Convex bodies with vertices on the integer lattice, symmetric about 0: hulls and norms."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from shoal.core.charge import Rng
from shoal.core.codec import Bools, Floats, Ints, Value, locked
from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive
from shoal.geometry.norms import Facets, Norms, facet_norms, facets_of, linear_norms, planar_norms
from shoal.geometry.span import (
    BODY_LIMIT,
    POINT_LIMIT,
    Integers,
    Moments,
    Span,
    cell_volume,
    check_size,
    determinant,
    integer_rows,
    moments_of,
    span_of,
    trace_with,
)


def symmetric_vertices(differences: Ints) -> Ints:
    """The vertices of conv{±v} in canonical order; a row of zeros when every v is 0."""
    if differences.shape[1] == 2:
        from shoal.geometry.kernels import symmetric_outline

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
        from shoal.geometry.kernels import difference_outline

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

    return extreme_points(inner.astype(np.int64))


# Extreme points in several dimensions, with Qhull's answer checked on integers.


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


# Convex bodies around 0 on the integer lattice: what a policy must make indistinguishable.


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


# Uniform points in a body, as floats: for plots, references and estimates, never for noise.


def uniform_points(body: Body, count: int, rng: Rng) -> Floats:
    """`count` points uniform in the body, (count, d), in lattice units.

    A simplex with a corner at 0 is chosen by its volume and a point in it by sorted uniforms.
    With three dimensions or more of the hull that Qhull found.
    """
    d = body.dimension
    if d == 0:
        return np.zeros((count, body.ambient))
    pieces = _simplices(body)
    volumes = np.abs(np.linalg.det(pieces))
    uniforms = (rng.words(count * (d + 1)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    rows = uniforms.reshape(count, d + 1)
    chosen = np.searchsorted(np.cumsum(volumes) / volumes.sum(), rows[:, 0], side="right")
    # the gaps between d sorted uniforms, with 0 in front, weigh the corners; the rest is 0's
    ordered = np.sort(rows[:, 1:], axis=1)
    weights = np.diff(ordered, axis=1, prepend=0.0)
    inner = np.einsum("nk,nkj->nj", weights, pieces[np.minimum(chosen, len(pieces) - 1)])
    return np.asarray(inner @ body.span.basis.astype(np.float64))


def knorm_points(body: Body, epsilon: float, count: int, rng: Rng) -> Floats:
    """Continuous K-norm noise: a uniform point of the body times Gamma(d' + 1, 1/epsilon).

    The construction of Hardt & Talwar 2010 that the exact lattice sampler is compared with; the
    Gamma variable is minus the logarithm of a product of d' + 1 uniforms.
    """
    d = body.dimension
    points = uniform_points(body, count, rng)
    words = rng.words(count * (d + 1)).reshape(count, d + 1)
    uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(points * (-np.log(uniforms).sum(axis=1) / epsilon)[:, None])


def _simplices(body: Body) -> Floats:
    """The corners, other than 0, of simplices that tile the body, in span coordinates."""
    corners = body.flat.astype(np.float64)
    if body.facets is not None:
        return np.asarray(corners[body.facets.simplices])
    if body.dimension == 1:
        return corners[:, None, :]
    return np.stack([corners, np.roll(corners, -1, axis=0)], axis=1)
