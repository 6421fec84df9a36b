"""Compiled parts of a location step: thresholds against exact sums, places against a sort."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shoal.geometry.body import symmetric_hull
from shoal.noise.knorm_kernels import norms_of
from shoal.places.kernels import (
    by_edges,
    count_inside,
    degree_of,
    exp_minus_all,
    largest_places,
    likely,
    output_norms,
    threshold,
)
from shoal.places.policy import location_set
from shoal.places.runtime import _indices_of_largest

WEIGHTS = st.lists(
    st.sampled_from([0, 1, 1, 2, 3, 5, 7, 50, 1e-9, 1e-300]), min_size=1, max_size=40
)


@given(WEIGHTS.filter(any), st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.5, 0.9]))
def test_a_clear_threshold_is_the_location_set(weights: list[float], delta: float) -> None:
    prior = np.array(weights) / sum(weights)
    least, clear = threshold(prior, float(1 - Fraction(str(delta))))
    if clear:
        assert np.array_equal((prior >= least) & (prior > 0), location_set(prior, delta))
    possible = np.arange(len(prior)) % 4 != 1
    same, members = likely(prior, possible, float(1 - Fraction(str(delta))))
    assert same == clear
    if clear:
        assert np.array_equal(members, possible & location_set(prior, delta))


def test_everything_possible_is_likely_when_the_floats_have_lost_all() -> None:
    possible = np.array([True, False, True])
    clear, members = likely(np.zeros(3), possible, 0.99)
    assert clear
    assert np.array_equal(members, possible)
    assert members is not possible


@given(WEIGHTS, st.integers(1, 5))
def test_the_largest_places_go_by_value_then_by_index(weights: list[float], count: int) -> None:
    values = np.array(weights, dtype=np.float64)
    expected = np.argsort(-values, kind="stable")[:count]
    assert largest_places(values, count).tolist() == expected.tolist()
    assert _indices_of_largest(values, count).tolist() == expected.tolist()


@pytest.mark.parametrize("delta", ["0.1", "0.05"])
def test_a_sum_on_the_boundary_is_not_clear(delta: str) -> None:
    """The thesis's own example: .4 + .3 + .2 is below .9 in floats. Xiao 2017, Section 3.2.1."""
    prior = np.array([0.3, 0.4, 0.05, 0.2, 0.03, 0.02])
    assert not threshold(prior, float(1 - Fraction(delta)))[1]


def test_long_priors_are_partitioned_without_sorting() -> None:
    rng = np.random.default_rng(0)
    for shape in (0.02, 1.0, 50.0):
        prior = rng.dirichlet(np.full(3000, shape))
        least, clear = threshold(prior, 0.99)
        assert clear
        assert np.array_equal(prior >= least, location_set(prior, "0.01"))


@given(st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6)), min_size=2, max_size=12))
def test_degrees_count_members_within_the_body(cells: list[tuple[int, int]]) -> None:
    points = np.array(cells)
    members = np.arange(len(points)) % 3 != 2
    body = symmetric_hull([[3, 1], [1, -2], [0, 2]])
    expected = body.contains(points[members] - points[0]).sum()
    assert count_inside(body.vertices, points, members, 0) == expected


@given(
    st.lists(st.tuples(st.integers(-40, 40), st.integers(-40, 40)), min_size=2, max_size=40),
    st.sampled_from([1, 2**14, 2**20, 2**23]),
    st.tuples(st.integers(-(2**31) + 2**28 + 1, 2**31 - 2**28 - 1), st.integers(-50, 50)),
)
def test_norms_and_degrees_by_edges_are_exact(
    cells: list[tuple[int, int]], stretch: int, z: tuple[int, int]
) -> None:
    """Bit for bit the norms by cone, and counts decided on integers, for short and long edges."""
    body = symmetric_hull(np.array(cells) * stretch)
    if body.dimension < 2:
        return
    limit = 2**28 // stretch
    answers = np.clip(np.array(cells), -limit, limit) * stretch
    members = np.arange(len(cells)) % 4 != 3
    for x, y in (z, (0, 0), (answers[0, 0], answers[0, 1] - 1)):
        found = output_norms(body.vertices, answers, x, y)
        assert np.array_equal(found, norms_of(body.vertices, np.array([x, y]) - answers))
    for state in range(min(3, len(cells))):
        expected = count_inside(body.vertices, answers, members, state)
        assert degree_of(body.vertices, answers, members, state) == expected


def test_edges_are_tried_where_doubles_are_exact() -> None:
    short = symmetric_hull([[2**20, 0], [0, 2**20]]).vertices
    assert by_edges(short)
    assert not by_edges(symmetric_hull([[2**20 + 1, 0], [0, 1]]).vertices)
    circle = [[round(900 * np.cos(t)), round(900 * np.sin(t))] for t in np.linspace(0, 3, 30)]
    assert not by_edges(symmetric_hull(circle).vertices)


def test_exponentials_of_many_are_those_of_one() -> None:
    exponents = np.concatenate([[0.0, 1e-300, 709.9, 710.0], np.linspace(0, 700, 5000)])
    found = np.empty(len(exponents))
    exp_minus_all(exponents, found)
    assert found == pytest.approx(np.exp(-exponents), rel=1e-15, abs=1e-300)
    assert found[0] == 1.0
