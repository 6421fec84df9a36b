"""Events are chosen well and tested honestly; limits are those of Clopper and Pearson."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.audit.adaptive_testing import (
    LARGEST_FLOAT,
    Score,
    TellingEvent,
    at_least,
    at_most,
    best_event,
    log_ratio_at_least,
    scores,
)
from shoal.core.codec import Floats


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (7, 1000)])
def test_limits_solve_the_binomial_equations(hits: int, trials: int) -> None:
    low, high = at_least(hits, trials, 0.01), at_most(hits, trials, 0.01)
    assert low <= hits / trials <= high
    if hits:
        assert _tail(hits, trials, low) == pytest.approx(0.01)
    else:
        assert low == 0
    if hits < trials:
        assert 1 - _tail(hits + 1, trials, high) == pytest.approx(0.01)
    else:
        assert high == 1


def _tail(hits: int, trials: int, chance: float) -> float:
    """P(Binomial ≥ hits)."""
    return math.fsum(
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(hits, trials + 1)
    )


def test_the_log_ratio_is_below_its_estimate_and_above_nothing() -> None:
    limit = log_ratio_at_least((500, 1000), (200, 1000), 0.01)
    assert 0 < limit < math.log(2.5)
    assert log_ratio_at_least((0, 1000), (200, 1000), 0.01) == -math.inf


def test_a_shift_is_told_by_a_half_line() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(1, 1, (4000, 1)), rng.normal(0, 1, (4000, 1))
    found = best_event(first, second, 20_000)
    low, high = found.event.intervals[0]
    assert not found.event.swapped or low == -math.inf
    assert math.isinf(high) or math.isinf(low)
    assert found.expected > 1


def test_a_parity_is_told_by_bins() -> None:
    """No half-line tells even from odd; a union of bins does."""
    rng = np.random.default_rng(1)
    first = _even(rng, 4000)
    second = _even(rng, 4000) + 1
    found = best_event(first, second, 20_000)
    assert found.expected > 3
    assert len(found.event.intervals) >= 3
    fresh = _even(rng, 1000)
    hits = found.event.hits(fresh), found.event.hits(fresh + 1)
    assert abs(hits[0] - hits[1]) > 500
    assert min(hits) == 0


def _even(rng: np.random.Generator, count: int) -> Floats:
    return np.asarray(2 * rng.integers(0, 5, (count, 1)), dtype=np.float64)


def test_a_direction_is_found_in_several_numbers() -> None:
    rng = np.random.default_rng(2)
    first = rng.normal([1, -1, 0], 1, (4000, 3))
    second = rng.normal(0, 1, (4000, 3))
    direction = best_event(first, second, 20_000).event.score.direction
    assert direction[0] * direction[1] < 0
    assert abs(direction[2]) < 0.3


def test_numbers_that_never_change_do_no_harm() -> None:
    same = np.ones((500, 2))
    found = best_event(same, same, 1000)
    assert found.expected <= 0


def test_an_event_is_told_in_words() -> None:
    event = TellingEvent(Score(np.ones(1)), ((-math.inf, 2.0), (5.0, math.inf)), True, False)
    words = event.describe(("x",), "steps")
    assert words == "the output is below 2 steps or at least 5 steps or no number"
    slanted = TellingEvent(Score(np.array([1.0, -0.5, 0.0])), ((0.25, 1.0),), False, False)
    words = slanted.describe(("a", "b", "c"), "steps")
    assert words == "a + -0.5·b is from 0.25 to below 1 steps"
    rest = TellingEvent(
        Score(np.array([0.0, 1.0]), 2.0), ((1.0, math.nextafter(1.0, 2)),), False, False
    )
    words = rest.describe(("wrong number of labels",), "")
    assert words == "the remainder of output 2 divided by 2 is exactly 1"
    top = TellingEvent(Score(np.ones(1)), ((LARGEST_FLOAT, math.inf),), False, False)
    assert top.describe((), "steps") == "the output is infinite"


def test_what_is_no_number_is_an_event() -> None:
    rng = np.random.default_rng(3)
    second = rng.normal(0, 1, (4000, 1))
    first = np.where(rng.random((4000, 1)) < 0.1, math.nan, second)
    event = best_event(first, second, 20_000).event
    assert event.nothing
    assert event.intervals == ()
    assert event.hits(np.array([[math.nan], [1.0], [math.inf]])) == 1


@pytest.mark.parametrize("value", [math.inf, -math.inf, 0.25], ids=["inf", "-inf", "a quarter"])
def test_a_value_that_comes_again_is_an_event(value: float) -> None:
    """Among outputs that never repeat, one that does, given one of the facts only."""
    rng = np.random.default_rng(5)
    first, second = np.asarray(rng.normal(0, 1, (2, 4000, 1)), np.float64)
    first[rng.random(4000) < 0.03] = value
    event = best_event(first, second, 20_000).event
    assert event.hits(np.array([[value]])) == 1
    assert event.hits(second) <= 4


@pytest.mark.parametrize("sign", [1, -1])
def test_both_tails_are_looked_at_alike(sign: int) -> None:
    rng = np.random.default_rng(6)
    first, second = np.asarray(rng.normal(0, 1, (2, 20_000, 1)), np.float64)
    first[:40] = sign * 50.0
    found = best_event(rng.permutation(first), second, 50_000)
    assert found.event.hits(np.full((1, 1), sign * 50.0)) == 1
    assert found.event.hits(second) == 0


def test_remainders_show_parities_of_wide_answers() -> None:
    rng = np.random.default_rng(7)
    second = np.asarray(2 * rng.integers(0, 1000, (4000, 1)), np.float64)
    found = best_event(second + 1, second, 20_000)
    assert found.expected > 3


def test_equal_outputs_score_alike_and_huge_ones_do_not_overflow() -> None:
    score = Score(np.array([0.3, -0.7, 1.0]))
    row = np.array([0.1, 0.2, 0.3])
    assert len(set(score.of(np.tile(row, (1001, 1))).tolist())) == 1
    assert score.of(np.array([[0, 0, math.inf]])).tolist() == [LARGEST_FLOAT]
    assert np.isnan(score.of(np.array([[math.inf, math.inf, 0]]))).all()
    assert Score(np.array([1.0, 0.0])).of(np.array([[2.0, math.nan]])).tolist() == [2.0]


def test_the_numbers_that_differ_are_chosen_of_many() -> None:
    rng = np.random.default_rng(8)
    first, second = rng.normal(0, 1, (2, 1000, 30))
    first[:, 17] += 3
    chosen = [score.direction for score in scores(first, second)]
    assert any(direction[17] == 1 and np.count_nonzero(direction) == 1 for direction in chosen)
    assert len(chosen) <= 1 + 2 * 8
