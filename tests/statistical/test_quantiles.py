"""Quantiles of a released histogram: their intervals hold as often as they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import shoal
from shoal.core.plan import Plan
from shoal.mechanisms import quantile

EDGES = (0, 10, 20, 30, 40, 60, 80, 100)
STATES = [f"bin {i}" for i in range(7)]
CHAIN = shoal.MarkovChain.of(np.full((7, 7), 1 / 7), states=STATES, length=500)


def plan_of(mechanism: str, *, relative: bool = False) -> Plan:
    if mechanism == "numbers":
        query = shoal.records.number_histogram(EDGES)
        return shoal.calibrate(query, shoal.EachEntry(), shoal.records.RecordGroups(4), epsilon=1)
    length = 500 if relative else None
    histogram = shoal.histogram(STATES, relative=relative, length=length)
    return shoal.calibrate(histogram, shoal.EachEntry(), CHAIN, epsilon="0.2", mechanism=mechanism)


@pytest.mark.parametrize("mechanism", ["lift", "laplace", "numbers"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_intervals_hold_the_quantile_as_often_as_they_say(mechanism: str, share: float) -> None:
    """Drawn many times about one data set; a confidence of a half is not always kept."""
    plan, rng = plan_of(mechanism), np.random.default_rng(1)
    numbers = np.sort(rng.gamma(2, 15, size=500).clip(0, 99))
    truth = numbers[int(np.ceil(share * 500)) - 1]
    own = [STATES[i] for i in np.searchsorted(EDGES, numbers, side="right") - 1]
    data = numbers.tolist() if mechanism == "numbers" else own
    edges = None if mechanism == "numbers" else EDGES
    sure = half = 0
    for seed in range(60):
        release = plan.release(data, rng=seed)
        found = quantile(plan, release, share, edges=edges, total=500)
        assert found.low <= found.value <= found.high
        sure += found.low <= truth <= found.high
        half += _inside(
            quantile(plan, release, share, edges=edges, total=500, confidence=0.02), float(truth)
        )
    assert sure >= 55
    assert half < 60 or share != 0.5 or mechanism != "laplace"  # the control


def _inside(found: object, truth: float) -> bool:
    return bool(found.low <= truth <= found.high)  # type: ignore[attr-defined]


def test_a_median_without_noise_is_that_of_the_bins() -> None:
    plan = plan_of("laplace", relative=True)
    strong = shoal.calibrate(
        plan.task.query, shoal.EachEntry(), CHAIN, epsilon=10_000, mechanism="laplace"
    )
    data = ["bin 0"] * 100 + ["bin 3"] * 300 + ["bin 6"] * 100
    found = quantile(strong, strong.release(data), edges=EDGES, total=1)
    assert found.value == pytest.approx(35, abs=0.01)
    assert (found.low, found.high) == (30, 40)
    assert "50% of the numbers are below 35" in found.describe()


def test_what_is_no_histogram_or_no_range_is_refused() -> None:
    plan = plan_of("lift")
    release = plan.release(STATES * 5, rng=1)
    other = shoal.calibrate(shoal.count(STATES, "bin 1"), shoal.EachEntry(), CHAIN, epsilon=1)
    refused: dict[str, Callable[[], object]] = {
        "edges is missing": lambda: quantile(plan, release),
        "one more than bins": lambda: quantile(plan, release, edges=[0, 1]),
        "between 0 and 1": lambda: quantile(plan, release, 1.0, edges=EDGES),
        "not of a histogram": lambda: quantile(other, other.release(STATES * 5, rng=1)),
        "not made by this plan": lambda: quantile(plan_of("laplace"), release, edges=EDGES),
    }
    for words, call in refused.items():
        with pytest.raises(shoal.InputError, match=words):
            call()
