"""Events are chosen well and tested honestly; limits are those of Clopper and Pearson."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.audit.events import Event, best_event
from shoal.audit.limits import at_least, at_most, log_ratio_at_least
from shoal.core.value import Floats


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
    direction = best_event(first, second, 20_000).event.direction
    assert direction[0] * direction[1] < 0
    assert abs(direction[2]) < 0.3


def test_numbers_that_never_change_do_no_harm() -> None:
    same = np.ones((500, 2))
    found = best_event(same, same, 1000)
    assert found.expected <= 0


def test_an_event_is_told_in_words() -> None:
    event = Event(np.ones(1), ((-math.inf, 2.0), (5.0, math.inf)), False)
    assert event.describe(("x",), "steps") == "the output is below 2 steps or at least 5 steps"
    slanted = Event(np.array([1.0, -0.5]), ((0.25, 1.0),), False)
    words = slanted.describe(("a", "b"), "steps")
    assert words == "1·a + -0.5·b is from 0.25 to below 1 steps"
