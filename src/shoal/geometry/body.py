"""Convex bodies with vertices on the integer lattice, symmetric about 0: hulls and norms."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive
from shoal.geometry.span import (
    BODY_LIMIT,
    POINT_LIMIT,
    Facets,
    Integers,
    Moments,
    Norms,
    Span,
    check_size,
    facet_norms,
    facets_of,
    integer_rows,
    largest,
    linear_norms,
    moments_of,
    normal_through,
    planar_norms,
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
        normal = normal_through(exact[simplex])
        offset = int(normal @ exact[simplex[0]])
        if int(normal @ centre) > count * offset:
            normal, offset = -normal, -offset
        kept |= (exact @ normal > offset).astype(bool)
    return np.flatnonzero(kept)


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

    kind = "body"

    vertices: Ints
    span: Span = field(init=False, repr=False, metadata=_DERIVED)
    flat: Ints = field(init=False, repr=False, metadata=_DERIVED)
    facets: Facets | None = field(init=False, repr=False, metadata=_DERIVED)

    def __post_init__(self) -> None:
        """Refuse vertices that are not integers, are too many, or are not in canonical form."""
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
        own = as_read_only(vertices, np.int64)
        object.__setattr__(self, "vertices", own)
        object.__setattr__(self, "span", span)
        object.__setattr__(self, "flat", own if flat is vertices else as_read_only(flat, np.int64))
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


# Sensitivity hulls of one graph under many constraints, each in microseconds.
#
# A stream needs K = conv{±(f(s) - f(s')) : ss' an edge, s and s' still possible} at every step,
# while the graph stays. Edges with the same difference are one group; groups are peeled into onion
# layers. At a step the layers are scanned from the outside and the scan stops at the first layer of
# which every group still has a living edge, because the hull of that layer holds all deeper ones.
# Cliques need no edges: K = P - P with P the hull of the clique's living points.


MOST_LAYERS = 64  # deeper groups share the last layer


@dataclass(frozen=True, slots=True, eq=False)
class HullIndex:
    """Answers `body(members)` for a fixed graph on points of the plane.

    `order` sorts the points, `graph` is all that compiled code asks, bound to one array as
    `graph_kernels` says; `joins` says whether there are edges. `cliques` holds the states of each
    clique in lexicographic order of their points.
    """

    points: Ints
    order: Ints
    graph: Ints
    joins: bool
    cliques: tuple[Ints, ...]

    def body(self, members: Bools) -> Body:
        """K of the edges among the members; the point {0} when there is none."""
        return body_of(self.vertices(members))

    def vertices(self, members: Bools) -> Ints:
        """The vertices of `body(members)`, in canonical order."""
        from shoal.geometry.graph_kernels import edge_hull, hull_of_members

        living = [clique for clique in self.cliques if members[clique].any()]
        parts = [np.asarray(hull_of_members(members, each, self.points)) for each in living]
        if self.joins:
            parts.append(np.asarray(edge_hull(members, np.flatnonzero(members), self.graph)))
        if len(parts) == 1:
            return parts[0]
        joined = np.concatenate(parts) if parts else np.zeros((0, 2), dtype=np.int64)
        return symmetric_hull(joined).vertices


def hull_index(
    points: npt.ArrayLike,
    edges: npt.ArrayLike,
    groups: npt.ArrayLike,
    *,
    by_nearest: bool = False,
    partners: Ints | None = None,
) -> HullIndex:
    """The index of a graph with these edges (m, 2) and a clique for each group number >= 0.

    points (k, 2) are integers of at most 2^28; groups (k,) is -1 for states in no clique.
    `by_nearest`: compiled code joins exposed states to partners (-1: none), or to the nearest.
    """
    from shoal.geometry.graph_kernels import bound

    rows = check_size(integer_rows(points, "points"), "points", POINT_LIMIT)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    numbers = np.asarray(groups, dtype=np.int64)
    order = lexicographic(rows)
    cliques = tuple(order[numbers[order] == group] for group in np.unique(numbers[numbers >= 0]))
    vectors, group = _differences(rows, pairs)
    layer = _layers(vectors)
    ordered = np.lexsort((np.arange(len(vectors)), layer))  # groups in layer order
    place = np.empty(len(vectors), dtype=np.int64)
    place[ordered] = np.arange(len(vectors))
    by_group = np.argsort(place[group], kind="stable")
    layers = np.searchsorted(layer[ordered], np.arange(int(layer.max(initial=-1)) + 2))
    starts = np.searchsorted(place[group][by_group], np.arange(len(vectors) + 1))
    by_layer = layers, starts, pairs[by_group, 0], pairs[by_group, 1]
    by_state = _adjacency(len(rows), pairs, place[group])
    preferred = np.empty(0, np.int64) if partners is None else partners
    repair = np.array([by_nearest]), preferred
    graph = bound([rows, order, *by_layer, ordered, vectors, *by_state, *repair])
    return HullIndex(rows, order, graph, len(pairs) > 0, cliques)


def _differences(points: Ints, edges: Ints) -> tuple[Ints, Ints]:
    """Distinct differences of edges, of ±v the positive one, sorted; and the one of each edge."""
    moves = points[edges[:, 0]] - points[edges[:, 1]]
    negative = (moves[:, 0] < 0) | ((moves[:, 0] == 0) & (moves[:, 1] < 0))
    folded = np.where(negative[:, None], -moves, moves)
    keys, group = np.unique((folded[:, 0] << 31) + folded[:, 1] + 2**30, return_inverse=True)
    return np.stack([keys >> 31, (keys & (2**31 - 1)) - 2**30], axis=1), group.reshape(-1)


def _layers(vectors: Ints) -> Ints:
    """The onion layer of each vector in the cloud of all ±v, 0 the outermost."""
    from shoal.geometry.kernels import symmetric_outline

    layer = np.full(len(vectors), -1, dtype=np.int64)
    keys = (vectors[:, 0] << 31) + vectors[:, 1]
    for depth in range(MOST_LAYERS):
        left = np.flatnonzero(layer < 0)
        if not len(left):
            break
        outline = symmetric_outline(vectors[left])
        outer = np.isin(keys[left], (outline[:, 0] << 31) + outline[:, 1])
        layer[left[outer if depth + 1 < MOST_LAYERS else slice(None)]] = depth
    return layer


def _adjacency(size: int, edges: Ints, group: Ints) -> tuple[Ints, Ints, Ints]:
    """For each state its slice of `others`, the states it is joined to, and each edge's group."""
    ends = np.concatenate([edges[:, 0], edges[:, 1]])
    order = np.argsort(ends, kind="stable")
    pointers = np.searchsorted(ends[order], np.arange(size + 1))
    others = np.concatenate([edges[:, 1], edges[:, 0]])[order]
    return pointers, others, np.concatenate([group, group])[order]


# Stand-ins: the nearest member of a changing set of lattice points.


def lexicographic(points: Ints) -> Ints:
    """The order of planar points by first, then second coordinate, then index."""
    return np.lexsort((points[:, 1], points[:, 0]))


def nearest_members(points: Ints, members: npt.NDArray[np.bool_], order: Ints) -> Ints:
    """For each state its nearest member, itself if it is one; ties by index. In the plane.

    `order` is `lexicographic(points)`, made once for all sets; at least one state is a member.
    Coordinates at most 2^28, so squared distances stay below 2^60. About 0.1 µs a state.
    """
    from shoal.geometry.graph_kernels import stand_ins

    if points.shape[1] != 2 or largest(points) > POINT_LIMIT or not members.any():
        raise ValueError("points must be planar, within 2^28, and have a member")
    return np.asarray(stand_ins(points, order, members))
