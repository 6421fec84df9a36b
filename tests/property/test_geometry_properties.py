"""Hulls, norms, spans and stand-ins against definitions: collinear, equal and far points too."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from shoal.core.codec import Ints
from shoal.core.errors import InputError
from shoal.core.registry import dumps, loads
from shoal.geometry import graph_kernels
from shoal.geometry.body import (
    Body,
    difference_body,
    hull_index,
    lexicographic,
    nearest_members,
    symmetric_hull,
)
from shoal.geometry.kernels import grown_outline
from shoal.geometry.span import BODY_LIMIT, POINT_LIMIT, determinant, span_of
from shoal.noise.primitives import SeededRng
from shoal.places.policy import surrogates
from tests.bodies import uniform_points

SIZES = (1, 2, 5, 1000, BODY_LIMIT)


@st.composite
def clouds(draw: st.DrawFn, d: int = 2, most: int = 8, largest: int = BODY_LIMIT) -> Ints:
    """Rows of integers: scattered, on a line, repeated, or far apart."""
    size = draw(st.sampled_from([size for size in SIZES if size <= largest]))
    count = draw(st.integers(0, most))
    row = st.lists(st.integers(-size, size), min_size=d, max_size=d)
    if draw(st.booleans()):
        return np.array(draw(st.lists(row, min_size=count, max_size=count))).reshape(count, d)
    # on a line through 0, some of them equal
    step = np.array(draw(st.lists(st.integers(-3, 3), min_size=d, max_size=d)))
    times = draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))
    return np.asarray(np.array(times, dtype=np.int64)[:, None] * step[None, :])


def cross(a: Any, b: Any) -> int:
    return int(a[0]) * int(b[1]) - int(a[1]) * int(b[0])


def planar_norm(vectors: Ints, v: Any) -> Fraction | None:
    """|v|_K = min Σ|λ| over v = Σ λ_i u_i: attained with two of the vectors; None: not spanned."""
    best: Fraction | None = Fraction(0) if not any(int(x) for x in v) else None
    for i, j in itertools.combinations_with_replacement(range(len(vectors)), 2):
        a, b = vectors[i], vectors[j]
        if cross(a, b):
            total = abs(Fraction(cross(v, b), cross(a, b))) + abs(
                Fraction(cross(a, v), cross(a, b))
            )
        elif any(int(x) for x in a) and cross(a, v) == 0:
            axis = 0 if a[0] else 1
            total = abs(Fraction(int(v[axis]), int(a[axis])))
        else:
            continue
        best = total if best is None else min(best, total)
    return best


@given(clouds(), st.lists(st.integers(-2000, 2000), min_size=2, max_size=2))
def test_norms_are_least_combinations(vectors: Ints, v: list[int]) -> None:
    norms = symmetric_hull(vectors).norm([v])
    expected = planar_norm(vectors, v)
    assert norms.fraction(0) == expected
    upper = float(norms.upper()[0])
    assert upper == math.inf if expected is None else upper >= expected
    if expected:
        assert upper <= float(expected) * (1 + 1e-14)


@given(clouds())
def test_the_hull_holds_its_points_and_no_vertex_is_idle(vectors: Ints) -> None:
    body = symmetric_hull(vectors)
    if len(vectors):
        assert body.contains(vectors).all()
    assert np.array_equal(symmetric_hull(body.vertices).vertices, body.vertices)
    for k in range(len(body.vertices) if body.dimension else 0):
        others = np.delete(body.vertices, k, axis=0)
        opposite = (others == -body.vertices[k]).all(axis=1)
        assert not symmetric_hull(others[~opposite]).contains(body.vertices[[k]])[0]


@given(clouds(largest=POINT_LIMIT))
def test_merged_edges_are_the_hull_of_all_differences(points: Ints) -> None:
    pairs = (points[:, None, :] - points[None, :, :]).reshape(-1, 2)
    assert difference_body(points) == symmetric_hull(pairs)


@given(clouds())
def test_relabelling_scaling_and_storing_change_nothing(vectors: Ints) -> None:
    body = symmetric_hull(vectors)
    assert symmetric_hull(-vectors[::-1]) == body
    assert loads(dumps(body)) == body
    small = vectors // 4  # so that four times fits the limit
    assert symmetric_hull(4 * small).mse(1) == 16 * symmetric_hull(small).mse(1)


@given(clouds(d=3, most=6, largest=1000))
@settings(max_examples=60)
def test_bodies_in_space_hold_their_vectors(vectors: Ints) -> None:
    body = symmetric_hull(vectors)
    assert body.dimension == np.linalg.matrix_rank(vectors) if len(vectors) else True
    if len(vectors):
        assert body.contains(vectors).all()
        outside = np.array([[1, 10**6, 10**9 + 7]])
        assert body.dimension == 3 or body.norm(outside).fraction(0) is None or not vectors.any()


@given(clouds(largest=1000))
def test_a_plane_in_space_is_the_same_body(vectors: Ints) -> None:
    """(x, y) ↦ (x, y, x + y) keeps norms, and flat bodies are handled in their span."""
    lifted = np.concatenate([vectors, vectors.sum(axis=1, keepdims=True)], axis=1)
    flat, deep = symmetric_hull(vectors), symmetric_hull(lifted)
    assert deep.dimension == flat.dimension
    probe = np.array([[3, -1], [0, 2], [7, 7]])
    raised = np.concatenate([probe, probe.sum(axis=1, keepdims=True)], axis=1)
    for k in range(len(probe)):
        assert flat.norm(probe).fraction(k) == deep.norm(raised).fraction(k)


@given(clouds(d=3, most=4, largest=1000), st.lists(st.integers(-5, 5), min_size=4, max_size=4))
def test_span_coordinates_are_one_to_one(vectors: Ints, times: list[int]) -> None:
    span = span_of(vectors)
    inside = np.array(times[: len(vectors)], dtype=np.int64)[None, :] @ vectors[: len(times)]
    inner, spanned = span.coordinates(inside)
    assert spanned.all()
    assert np.array_equal(span.vectors(inner), inside)
    back, _ = span.coordinates(span.vectors(np.eye(span.dimension, dtype=np.int64)))
    assert np.array_equal(back, np.eye(span.dimension, dtype=np.int64))
    assert abs(determinant(span.inward.tolist())) == 1


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    """Points, edges, groups and members."""
    points = draw(clouds(most=10, largest=POINT_LIMIT).filter(len))
    k = len(points)
    state = st.integers(0, k - 1)
    pair = st.tuples(state, state).filter(lambda edge: edge[0] != edge[1])
    edges = draw(st.lists(pair, max_size=20 if k > 1 else 0))
    groups = draw(st.lists(st.integers(-1, 1), min_size=k, max_size=k))
    members = draw(st.lists(st.booleans(), min_size=k, max_size=k))
    return (
        points,
        np.array(edges, dtype=np.int64).reshape(-1, 2),
        np.array(groups),
        np.array(members),
    )


@given(graphs())
def test_the_index_finds_the_hull(
    graph: tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]],
) -> None:
    points, edges, groups, members = graph
    states = range(len(points))
    joined = {tuple(edge) for edge in edges.tolist()}
    joined |= {(a, b) for a in states for b in states if a != b and groups[a] == groups[b] >= 0}
    living = [(a, b) for a, b in joined if members[a] and members[b]]
    index = hull_index(points, edges, groups)
    expected = symmetric_hull(np.array([points[a] - points[b] for a, b in living]).reshape(-1, 2))
    assert index.body(members) == expected


@given(clouds(most=12, largest=POINT_LIMIT).filter(len), st.data())
def test_stand_ins_are_nearest_with_ties_by_index(points: Ints, data: st.DataObject) -> None:
    flags = st.lists(st.booleans(), min_size=len(points), max_size=len(points)).filter(any)
    members = np.array(data.draw(flags))
    found = nearest_members(points, members, lexicographic(points))
    for state in range(len(points)):
        squares = ((points - points[state]) ** 2).sum(axis=1)
        best = min((int(squares[m]), m) for m in np.flatnonzero(members))[1]
        assert found[state] == (state if members[state] else best)


@given(clouds(most=9, largest=POINT_LIMIT), clouds(most=1, largest=POINT_LIMIT).filter(len))
def test_a_body_grown_by_a_vector_is_the_hull_of_both(vectors: Ints, more: Ints) -> None:
    body = symmetric_hull(vectors)
    if body.dimension == 2:
        x, y = more[0].tolist()
        expected = symmetric_hull(np.concatenate([vectors, more])).vertices
        assert np.array_equal(grown_outline(body.vertices, x, y), expected)


@given(clouds(most=12, largest=12).filter(len), st.data())
def test_stand_ins_in_a_small_box_are_the_same_three_ways(
    points: Ints, data: st.DataObject
) -> None:
    """Comparison, parabolas and columns; points repeat, and the box may be a line or a cell."""
    flags = st.lists(st.booleans(), min_size=len(points), max_size=len(points)).filter(any)
    members = np.array(data.draw(flags))
    (west, south), (east, north) = points.min(axis=0), points.max(axis=0)
    box = int(west), int(south), int(east - west + 1), int(north - south + 1)
    expected = graph_kernels.by_sweep(points, lexicographic(points), members).tolist()
    assert graph_kernels.by_comparison(points, members, *box).tolist() == expected
    assert graph_kernels.by_raster(points, members, *box).tolist() == expected


@pytest.mark.parametrize("side", [63, 64, 65])
def test_stand_ins_at_the_size_where_the_way_changes(side: int) -> None:
    cells = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    for corner in (0, side - 1, side**2 - 1):
        members = np.zeros(len(cells), dtype=np.bool_)
        members[[corner, len(cells) // 2]] = True
        found = nearest_members(cells, members, lexicographic(cells))
        assert np.array_equal(found, surrogates(cells, members))


@given(clouds(largest=1000))
@settings(max_examples=25)
def test_uniform_points_lie_in_the_body_with_its_second_moment(vectors: Ints) -> None:
    body = symmetric_hull(vectors)
    points = uniform_points(body, 4000, SeededRng(1))
    tiny = 2.0**-20
    stretched = np.rint(points / tiny).astype(np.int64)
    if body.dimension == 2 and np.abs(stretched).max() < 2**31:
        assert (body.norm_upper(stretched) * tiny <= 1 + 1e-3).all()
    mean_square = float((points**2).sum(axis=1).mean())
    assert mean_square == pytest.approx(float(body.second_moment), rel=0.15, abs=1e-9)


def test_coordinates_beyond_the_limit_are_refused() -> None:
    with pytest.raises(InputError, match="coarser lattice"):
        symmetric_hull([[BODY_LIMIT + 1, 0]])
    with pytest.raises(InputError, match="coarser lattice"):
        difference_body([[POINT_LIMIT + 1, 0]])
    with pytest.raises(InputError, match="snap them first"):
        symmetric_hull([[0.5, 1.0]])
    with pytest.raises(InputError, match=r"\(count, dimension\)"):
        symmetric_hull([1, 2])


def test_vertices_out_of_order_are_refused() -> None:
    with pytest.raises(InputError, match="canonical order"):
        Body(vertices=np.array([[1, 0], [-1, 0]]))
    with pytest.raises(InputError, match="canonical order"):
        Body(vertices=np.array([[-1, 0], [2, 0]]))


def test_far_vectors_are_measured_with_wide_integers() -> None:
    body = symmetric_hull([[BODY_LIMIT, 1], [1, BODY_LIMIT], [BODY_LIMIT, BODY_LIMIT - 1]])
    far = np.array([[2**40, 2**45 + 1], [2**62, -(2**62)]])
    norms = body.norm(far)
    for k in range(2):
        assert norms.fraction(k) == planar_norm(body.vertices, far[k])


def test_tilted_planes_of_far_points_have_small_coordinates() -> None:
    """The basis of a span is reduced; without it these coordinates reach 10^9 and are refused."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        plane = rng.integers(-(10**6), 10**6, (2, 3))
        vectors = rng.integers(-5, 6, (6, 2)) @ plane
        body = symmetric_hull(vectors)
        assert body.contains(vectors).all()
        assert np.abs(body.flat).max() < 10**4
