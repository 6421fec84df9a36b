"""Mean and histogram of numbers, alone and tied."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import shoal
from shoal.core.errors import DataError, InputError
from shoal.core.registry import dumps, loads
from shoal.noise.primitives import SeededRng
from shoal.records.domain import RecordDomain
from shoal.records.queries import GRID_STEPS, number_histogram, number_mean
from shoal.records.sources import FriendModel


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-50, 150), min_size=1, max_size=8), st.floats(-50, 150))
def test_the_mean_is_exact_and_moves_by_its_sensitivity(values: list[float], other: float) -> None:
    query = number_mean(low="-0.1", high="99.7", records=len(values))
    answers = [
        query.evaluate(query.read(row))[0] * query.lattice for row in (values, [other, *values[1:]])
    ]
    assert abs(answers[0] - answers[1]) <= query.lipschitz
    clipped = np.clip(values, -0.1, 99.7)
    assert float(answers[0]) == pytest.approx(clipped.mean(), abs=99.8 / GRID_STEPS)


def test_the_sensitivity_of_the_mean_is_reached() -> None:
    query = number_mean(low=0, high=3, records=2)
    low, high = (query.evaluate(query.read([1, end]))[0] * query.lattice for end in (-7, 8))
    assert high - low == query.lipschitz == Fraction(3, 2)


def test_bins_hold_their_lower_edge_and_the_ends_take_the_rest() -> None:
    query = number_histogram([0, 10, 20, 30], unit="people")
    assert query.evaluate(query.read([-5, 0, 9.9, 10, 20, 30, 99])) == (3, 1, 3)
    assert query.labels == ("0 to 10", "10 to 20", "20 to 30")
    moved = [query.evaluate(query.read([x, 5])) for x in (1, 11, 21)]
    apart = [
        sum(abs(a - b) for a, b in zip(x, y, strict=True))
        for x, y in itertools.combinations(moved, 2)
    ]
    assert max(apart) == query.lipschitz == 2


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.integers(1, 30))
def test_contributions_hold_what_a_value_of_the_cell_adds(value: float, cells: int) -> None:
    domain = RecordDomain.interval(0, 1, cells=cells)
    cell = int(domain.cell_of([value])[0])
    mean = number_mean(low=0, high=1, records=1)
    bins = number_histogram([0, "0.3", "0.35", 1])
    for query in (mean, bins):
        low, high = query.contributions(domain)
        added = [float(m * query.lattice) for m in query.evaluate(query.read([value]))]
        assert (low[cell] <= added).all()
        assert (added <= high[cell]).all()
        assert (high.max(axis=0) - low.min(axis=0)).sum() <= 1.01 * len(query.labels)


def test_tied_numbers_need_less_noise_than_groups() -> None:
    """Values that stay near the middle of the interval whatever their tie: conditional means."""
    domain = RecordDomain.interval(0, 1, cells=5)
    law = np.outer([0.02, 0.08, 0.8, 0.08, 0.02], [0.02, 0.08, 0.8, 0.08, 0.02])
    model = shoal.Dependence.of(domain, 4, [(0, 1), (2, 3)], law)
    query = number_mean(low=0, high=1, records=4)
    scales: dict[str, Any] = {}
    for row in ("group", "dependent-means", "best"):
        plan: Any = shoal.calibrate(query, shoal.EachEntry(), model, epsilon=1, mechanism=row)
        scales[row] = float(plan.body.noise.scale)
        assert loads(dumps(plan)) == plan
    assert scales["dependent-means"] < 0.95 * scales["group"]
    assert scales["best"] == scales["dependent-means"]
    friends = FriendModel(b=0.2, c=1.0).ties(domain, 4, [(0, 1)])
    binned = number_histogram([0, "0.5", 1])
    plan = shoal.calibrate(binned, shoal.EachEntry(), friends, epsilon=2)
    assert plan.guarantee.proved
    assert len(plan.release([0.1, 0.2, 0.9, 0.4], rng=SeededRng(0)).values) == 2
    with pytest.raises(DataError, match="exactly one value"):
        plan.release([0.1, 0.2], rng=SeededRng(0))


def test_numbers_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="low must be below high"):
        number_mean(low=1, high=1, records=3)
    with pytest.raises(InputError, match="each above the one before"):
        number_histogram([0, 2, 1])
    query = number_mean(low=0, high=1, records=2)
    for data, match in (
        ([[1, 2]], "2 numbers in a row"),
        ([1], "2 numbers in a row"),
    ):
        with pytest.raises(DataError, match=match):
            query.read(data)
    with pytest.raises(InputError, match="2 coordinates"):
        query.contributions(RecordDomain.box([0, 0], [1, 1], cells=2))
