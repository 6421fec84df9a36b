"""What must hold of exact losses whatever the laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.chains.exact.sums import chain_sum
from shoal.chains.exact.windows import least_scale, sum_loss
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.mechanisms.mixture import mixture_loss, smallest_scale, smooth_laws, two_point

ROUND = 1e-9
masses = st.one_of(st.just(0.0), st.floats(1e-12, 1.0), st.just(1e-300))
scales = st.floats(0.02, 50.0)


@st.composite
def tables(draw: st.DrawFn, rows: int = 2) -> Floats:
    """Rows of probabilities with zeros and tails of 1e-300."""
    width = draw(st.integers(1, 8))
    table = np.array([draw(st.lists(masses, min_size=width, max_size=width)) for _ in range(rows)])
    table[np.arange(rows), [draw(st.integers(0, width - 1)) for _ in range(rows)]] += 0.5
    return np.asarray(table / table.sum(axis=1, keepdims=True))


@st.composite
def chains(draw: st.DrawFn) -> tuple[Floats, Floats, list[int], int]:
    size = draw(st.integers(2, 3))
    rows = draw(tables(size + 1).filter(lambda t: t.shape[1] >= size))[:, :size]
    rows = rows + (rows.sum(axis=1, keepdims=True) == 0)
    rows = rows / rows.sum(axis=1, keepdims=True)
    weights = [draw(st.integers(-2, 2)) for _ in range(size)]
    return rows[0], rows[1:], weights, draw(st.integers(1, 5))


@given(tables(), scales, scales)
def test_more_noise_never_loses_more(laws: Floats, one: float, two: float) -> None:
    narrow, wide = sorted((one, two))
    assert mixture_loss(laws, wide) <= mixture_loss(laws, narrow) + ROUND


@given(tables(), scales)
def test_the_loss_is_at_most_the_range_over_the_scale(laws: Floats, scale: float) -> None:
    found = mixture_loss(laws, scale)
    assert 0 <= found <= (laws.shape[1] - 1) / scale + ROUND * (1 + 1 / scale)


@given(tables(3), scales)
def test_order_of_secrets_and_direction_of_values_do_not_matter(laws: Floats, scale: float) -> None:
    found = mixture_loss(laws, scale)
    assert mixture_loss(laws[::-1], scale) == pytest.approx(found, abs=ROUND)
    assert mixture_loss(laws[:, ::-1], scale) == pytest.approx(found, abs=ROUND)


@given(tables(), scales)
def test_logarithms_and_plain_numbers_agree(laws: Floats, scale: float) -> None:
    with np.errstate(divide="ignore"):
        logs = np.log(laws)
    plain, deep = mixture_loss(laws, scale), mixture_loss(logs, scale, logs=True)
    assert deep == pytest.approx(plain, abs=ROUND, rel=1e-9)


@given(tables(), st.floats(1e-4, 0.02))
def test_tiny_scales_drop_no_constraint(laws: Floats, scale: float) -> None:
    # far below underflow of exp(-1/scale): compare with the sum written out in logarithms
    grid = np.arange(laws.shape[1])
    with np.errstate(divide="ignore"):
        terms = np.log(laws)[:, None, :] - np.abs(grid[:, None] - grid[None]) / scale
    density = np.logaddexp.reduce(terms, axis=2)
    expected = float(np.abs(density[0] - density[1]).max())
    found = mixture_loss(laws, scale)
    assert expected * (1 - 1e-12) <= found <= expected * (1 + 1e-9) + ROUND


@given(tables(1), scales)
def test_smoothing_is_the_sum_it_stands_for(laws: Floats, scale: float) -> None:
    positions = np.arange(laws.shape[1]) / scale
    expected = laws @ np.exp(-np.abs(positions[:, None] - positions[None]))
    np.testing.assert_allclose(smooth_laws(laws, positions), expected, rtol=1e-12, atol=1e-320)


@given(st.lists(st.floats(-3, 3), min_size=8, max_size=8), st.floats(-30, 30))
def test_no_two_point_law_beats_the_two_point_bound(logs: list[float], log_odds: float) -> None:
    table = np.array(logs).reshape(4, 1, 2)
    top, bottom, top_start, bottom_start = table
    bound = two_point(top, bottom, top_start, bottom_start)[0]
    odds = np.array([0.0, log_odds])
    parts = [top + top_start, bottom_start, top_start, bottom + bottom_start]
    up, start, down, other = (np.logaddexp.reduce(part[0] + odds) for part in parts)
    assert up + start - down - other <= bound + 1e-12


@settings(deadline=None, max_examples=40)
@given(chains(), scales)
def test_sums_are_bounded_by_group_privacy_and_shift_free(
    chain: tuple[Floats, Floats, list[int], int], scale: float
) -> None:
    initial, matrix, weights, length = chain
    task = chain_sum(initial, matrix, weights, length)
    found = sum_loss(task, scale).value
    assert 0 <= found <= length * (max(weights) - min(weights)) / scale * (1 + 1e-9) + ROUND
    moved = chain_sum(initial, matrix, [7 - 2 * w for w in weights], length)
    assert sum_loss(moved, 2 * scale).value == pytest.approx(found, abs=ROUND, rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(chains(), scales)
def test_one_matrix_per_step_says_the_same_as_one_for_all(
    chain: tuple[Floats, Floats, list[int], int], scale: float
) -> None:
    initial, matrix, weights, length = chain
    if length > 1:
        several = chain_sum(initial, np.stack([matrix] * (length - 1)), weights, length)
        one = sum_loss(chain_sum(initial, matrix, weights, length), scale).value
        assert sum_loss(several, scale).value == pytest.approx(one, abs=ROUND, rel=1e-9)


@settings(deadline=None, max_examples=25)
@given(chains(), st.floats(0.1, 6.0))
def test_least_scales_meet_their_budget_and_fall_with_it(
    chain: tuple[Floats, Floats, list[int], int], epsilon: float
) -> None:
    task = chain_sum(*chain)
    found, looser = least_scale(task, epsilon), least_scale(task, 1.5 * epsilon)
    assert sum_loss(task, found.scale, enough=epsilon).value <= epsilon
    assert looser.scale <= found.scale * (1 + 1e-9)


def test_rows_that_miss_1_by_rounding_are_the_chain_they_round() -> None:
    rows = np.array([[0.9, 0.1], [0.4, 0.6]])
    off = rows * np.array([[1 + 4e-7], [1 - 4e-7]])
    exact, rounded = (
        sum_loss(chain_sum([0.8, 0.2], r, [0, 1], 60), 3.0).value for r in (rows, off)
    )
    assert rounded == pytest.approx(exact, abs=1e-12)
    with pytest.raises(InputError, match="must sum to 1"):
        chain_sum([0.8, 0.2], 1.01 * rows, [0, 1], 60)


def test_the_smallest_scale_is_bracketed_and_says_when_there_is_none() -> None:
    found = smallest_scale(lambda scale: 3 / scale, 0.7, 1e-3, 1e3)
    assert 3 / found <= 0.7
    assert found == pytest.approx(3 / 0.7, rel=1e-12)
    assert smallest_scale(lambda scale: 0.0, 0.7, 1e-3, 1e3) == 1e-3
    assert smallest_scale(lambda scale: 2.0, 0.7, 1e-3, 1e3) == math.inf
    assert smallest_scale(lambda scale: 3 / scale, 2.0, 2.0, 1.0) == 2.0  # the least is enough
    assert smallest_scale(lambda scale: 2.0, 0.7, 2.0, 1.0) == math.inf
    with pytest.raises(InputError, match="the least scale is 0"):
        smallest_scale(lambda scale: 2.0, 0.7, 0.0, 1.0)


def test_bad_input_is_refused_by_name() -> None:
    rows = [[0.9, 0.1], [0.4, 0.6]]
    with pytest.raises(InputError, match="scale is 0"):
        mixture_loss([[1.0]], 0)
    with pytest.raises(InputError, match="negative numbers"):
        mixture_loss([[1.0, -0.1]], 1.0)
    with pytest.raises(InputError, match="one number per column"):
        mixture_loss([[0.5, 0.5]], 1.0, values=[1.0])
    with pytest.raises(InputError, match="must increase"):
        mixture_loss([[0.5, 0.5]], 1.0, values=[1.0, 0.0])
    with pytest.raises(InputError, match="one whole number per state"):
        chain_sum([0.5, 0.5], rows, [0, 0.5], 3)
    with pytest.raises(InputError, match="shape"):
        chain_sum([0.5, 0.5], [rows, rows], [0, 1], 5)
    with pytest.raises(InputError, match="length is 0"):
        chain_sum([0.5, 0.5], rows, [0, 1], 0)
    with pytest.raises(InputError, match="epsilon is -1"):
        least_scale(chain_sum([0.5, 0.5], rows, [0, 1], 3), -1)


def test_chains_no_window_can_cover_say_why() -> None:
    swap = chain_sum([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], [0, 1], None)
    found = sum_loss(swap, 1.0)
    assert found.value == math.inf
    assert found.reason is not None
    assert "period" in found.reason
    assert least_scale(swap, 1.0).scale == math.inf
    short = chain_sum([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], [0, 1], 41)
    assert sum_loss(short, 1.0).value == pytest.approx(1.0, abs=1e-9)


def test_a_constant_needs_no_noise() -> None:
    task = chain_sum([0.5, 0.5], [[0.9, 0.1], [0.4, 0.6]], [3, 3], None)
    assert sum_loss(task, 1.0).value == 0
    assert least_scale(task, 0.1).scale == pytest.approx(1 / 64)
