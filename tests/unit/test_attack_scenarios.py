"""The papers' attacks give the papers' numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from studies.scenarios import (
    SCENARIOS,
    Scenario,
    day_of_minutes,
    dp_under_correlation,
    kinds_of_adversary,
    local_hull,
    mask_sensitive,
    set_labels,
    stream_of_places,
    weak_adversary_learns,
    wrong_model,
)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_tells_its_story(name: str) -> None:
    if name == "day-of-minutes":
        found: Scenario = day_of_minutes(minutes=100)
    else:
        found = SCENARIOS[name]()
    assert found.name == name
    assert found.measured > found.promised
    assert len(found.story) > 80
    assert all(isinstance(value, float) for _, value in found.figures)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_correlation_costs_half_as_much_again(epsilon: float) -> None:
    """Liu et al. 2016, Example 1 and Figure 6: 1.5 ε for the sum, 0.5 ε for the difference."""
    figures = dict(dp_under_correlation(epsilon).figures)
    assert figures["sum"] == pytest.approx(1.5 * epsilon)
    assert figures["difference"] == pytest.approx(0.5 * epsilon)


def test_the_product_approaches_the_continuous_value() -> None:
    """0.7604 at ε = 1 with X continuous; the grid comes closer the finer it is."""
    values = [dict(dp_under_correlation(1.0, points).figures)["product"] for points in (51, 801)]
    assert abs(values[1] - 0.7603950509927565) < 1e-4
    assert abs(values[1] - 0.7603950509927565) < abs(values[0] - 0.7603950509927565)


def test_the_shape_of_the_noise_gives_the_state_away() -> None:
    figures = dict(local_hull(draws=500).figures)
    assert figures["right guesses, local hull"] == 1.0
    assert 0.4 < figures["right guesses, common hull"] < 0.7


def test_gaps_reveal_what_they_hide() -> None:
    figures = dict(mask_sensitive().figures)
    assert figures["belief after"] == pytest.approx(1.0)
    assert figures["belief after, streets hidden too"] < 0.3


def test_a_set_labelled_adversary_learns_from_the_gap() -> None:
    """Götz, Nath & Gehrke 2012, Example 6: 1/6 to 3/4, or to 1/2 with the simulatable check."""
    assert dict(set_labels().figures) == pytest.approx(
        {"belief before": 1 / 6, "belief after": 3 / 4}
    )
    assert dict(set_labels(simulatable=True).figures)["belief after"] == pytest.approx(0.5)


def test_a_weak_adversary_catches_up() -> None:
    figures = dict(weak_adversary_learns(seed=1).figures)
    knowing = figures["knowing the chain"]
    assert figures["after 0 days"] < 0.5 * knowing
    assert abs(figures["after 300 days"] - knowing) < 0.05


def test_knowing_the_chain_beats_knowing_everybody() -> None:
    figures = dict(kinds_of_adversary(scale=2.0).figures)
    assert figures["weak"] == pytest.approx(0.5)
    assert figures["strong"] == pytest.approx(0.5)
    assert figures["strong belief"] < figures["weak belief"] < figures["standard belief"]
    assert figures["standard"] > 2


def test_a_wrong_model_costs_more_the_slower_the_true_chain() -> None:
    figures = dict(wrong_model(length=30).figures)
    assert figures["as assumed"] == pytest.approx(1.0, abs=1e-6)
    assert figures["keeps 0.7"] < 1 < figures["keeps 0.9"] < figures["keeps 0.95"]
    assert math.isfinite(figures["starts in run, 0.95"])


def test_the_page_gives_the_figures_of_the_stream_of_places() -> None:
    page = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text(encoding="utf-8")
    figures = dict(stream_of_places().figures)
    errors = [figures[f"the plan's walk, {by}"] for by in ("all", "nothing")]
    assert "within {:.2f} km instead of {:.2f} km".format(*errors) in page
    assert f"{figures['the real walk, all']:.2f} km for who knows" in page


def test_knowing_how_people_move_and_the_whole_stream_brings_one_nearer() -> None:
    figures = dict(stream_of_places(people=6, steps=30).figures)
    assert figures["one output"] <= 1 + 1e-9 < figures["all outputs"]
    for name in ("the plan's walk", "the real walk"):
        assert figures[f"{name}, nothing"] > figures[f"{name}, past"] > figures[f"{name}, all"]
    assert figures["the real walk, all"] < figures["the plan's walk, all"]
    # who takes every step by itself learns nothing from the others
    alone = "frequencies alone"
    assert figures[f"{alone}, past"] == pytest.approx(figures[f"{alone}, all"])
    assert figures[f"{alone}, all"] > figures["the real walk, all"]
