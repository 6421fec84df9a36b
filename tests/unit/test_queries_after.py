"""Post-processing: functions of the release alone, each with the property it is named for."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from shoal.core.charge import Guarantee
from shoal.core.errors import InputError
from shoal.core.plan import Answer, Release
from shoal.mechanisms.queries import clipped, consistent, non_negative, project, simplex

VALUES = st.lists(st.integers(-50, 50), min_size=1, max_size=6)
STEPS = st.sampled_from([Fraction(1), Fraction(1, 3), Fraction(5, 7)])


def released(values: list[int], step: Fraction = Fraction(1)) -> Release:
    return Release(
        answer=Answer(tuple(f"s{i}" for i in range(len(values))), tuple(values), step, "entries"),
        plan="0" * 64,
        mechanism="group",
        guarantee=Guarantee(notion="group", amount=Fraction(1), over="x"),
        error=None,
        secure=True,
    )


def distance(a: tuple[Fraction, ...], b: tuple[Fraction, ...]) -> Fraction:
    return sum(((x - y) ** 2 for x, y in zip(a, b, strict=True)), Fraction(0))


@given(VALUES, STEPS)
def test_negative_values_become_0_and_others_stay(values: list[int], step: Fraction) -> None:
    before = released(values, step)
    after = non_negative(before)
    assert after.answer.exact == tuple(max(v, Fraction(0)) for v in before.answer.exact)
    assert after.processed == ("non-negative",)
    assert (after.plan, after.guarantee, after.secure) == (before.plan, before.guarantee, True)
    assert non_negative(after).answer.exact == after.answer.exact


@given(VALUES, STEPS, st.integers(-20, 20), st.integers(0, 30))
def test_clipped_values_come_no_farther_from_anything_in_the_range(
    values: list[int], step: Fraction, least: int, width: int
) -> None:
    before, most = released(values, step), least + width
    after = clipped(before, most, least)
    assert after.processed == ("clipped",)
    for one, other in zip(before.answer.exact, after.answer.exact, strict=True):
        assert least <= other <= most
        for truth in range(least, most + 1):
            assert abs(other - truth) <= abs(one - truth)
    assert clipped(after, most, least).answer.exact == after.answer.exact


def test_a_range_that_is_upside_down_is_refused() -> None:
    with pytest.raises(InputError, match="smaller number as least"):
        clipped(released([1]), 0, 4)


def test_clipping_a_count_of_four_entries_brings_its_worst_error_from_4_6_to_1_6() -> None:
    """The law of lattice noise at the lifted eta, summed here over all truths and values."""
    ratio = math.exp(-0.216)  # the eta of "at most 4" entries of [[.9, .1], [.4, .6]] at .5
    law = {k: (1 - ratio) / (1 + ratio) * ratio ** abs(k) for k in range(-200, 201)}
    plain = sum(mass * abs(k) for k, mass in law.items())
    worst = max(
        sum(mass * abs(min(max(truth + k, 0), 4) - truth) for k, mass in law.items())
        for truth in range(5)
    )
    assert plain == pytest.approx(4.59, abs=0.02)
    assert worst < 1.65


@given(VALUES, STEPS, st.integers(0, 30))
def test_the_simplex_projection_is_in_the_simplex_and_idempotent(
    values: list[int], step: Fraction, total: int
) -> None:
    after = simplex(released(values, step), total)
    assert all(v >= 0 for v in after.answer.exact)
    assert sum(after.answer.exact) == total
    assert project(after.answer.exact, Fraction(total)) == after.answer.exact


@given(st.lists(st.integers(-8, 8), min_size=3, max_size=3), st.integers(0, 5))
def test_no_point_of_the_simplex_is_nearer(values: list[int], total: int) -> None:
    exact = tuple(Fraction(v) for v in values)
    nearest = distance(project(exact, Fraction(total)), exact)
    parts = 4  # a grid of the simplex, in quarters
    for a, b in product(range(parts * total + 1), repeat=2):
        if a + b <= parts * total:
            point = (
                Fraction(a, parts),
                Fraction(b, parts),
                Fraction(parts * total - a - b, parts),
            )
            assert nearest <= distance(point, exact)


@given(VALUES, STEPS, st.integers(0, 40))
def test_consistent_counts_are_whole_non_negative_and_add_up(
    values: list[int], step: Fraction, total: int
) -> None:
    before = released(values, step)
    after = consistent(before, total)
    assert all(v.denominator == 1 and v >= 0 for v in after.answer.exact)
    assert sum(after.answer.exact) == total
    projected = project(before.answer.exact, Fraction(total))
    assert all(abs(a - p) < 1 for a, p in zip(after.answer.exact, projected, strict=True))
    assert consistent(after, total).answer.exact == after.answer.exact


def test_true_counts_are_left_alone() -> None:
    assert consistent(released([4, 0, 6]), 10).values == (4, 0, 6)
    assert simplex(released([1, 3], Fraction(1, 4))).answer.exact == (
        Fraction(1, 4),
        Fraction(3, 4),
    )


def test_ties_in_rounding_go_to_the_earlier_label() -> None:
    assert consistent(released([1, 1, 1], Fraction(1, 3)), 1).values == (1, 0, 0)


def test_steps_are_listed_in_the_order_they_were_made() -> None:
    twice = simplex(non_negative(released([-1, 3])), "1/2")
    assert twice.processed == ("non-negative", "simplex")
    assert twice.values == (0, 0.5)


@pytest.mark.parametrize("total", [-1, 2.5, True, "3"])
def test_a_total_of_counts_is_a_whole_number(total: Any) -> None:
    with pytest.raises(InputError, match=r"total is .*; it must be a whole number of at least 0"):
        consistent(released([1, 2]), total)


@pytest.mark.parametrize("total", [-1, float("nan"), float("inf"), "x"])
def test_a_total_is_a_finite_number_not_below_0(total: Any) -> None:
    with pytest.raises(InputError, match=r"total is .*; it must"):
        simplex(released([1, 2]), total)
