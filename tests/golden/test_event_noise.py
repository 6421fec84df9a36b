"""Noise and lifts for events against stored numbers, checked by hand-written enumerations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.chains.events.answers import EventLaws, event_laws, events_lift
from shoal.mechanisms.mixture import smooth_laws
from tests.event_oracle import worded

CASES = json.loads((Path(__file__).parent / "data" / "events.json").read_text())["cases"]


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == kind]


def chain_of(given: dict[str, Any]) -> shoal.MarkovChain:
    steps = given["transitions"]
    return shoal.MarkovChain.of(steps, initial=given["initial"], length=len(steps) + 1)


def laws_of(given: dict[str, Any]) -> tuple[EventLaws, float]:
    chain = chain_of(given)
    weights = dict(zip(chain.states, given["weights"], strict=True))
    query = shoal.weighted_sum(chain.states, weights)
    secrets = shoal.Events.of(worded(given["event"]))
    return event_laws(chain, query, secrets), float(query.lattice)


@pytest.mark.parametrize("case", of_kind("noise"))
def test_laws_losses_and_least_scales(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    found, lattice = laws_of(given)
    laws = found.sums[0].laws
    values = (laws.values[:, 0] * lattice).tolist()
    assert set(values) <= set(expected["support"])
    for law, name in ((laws.above[0], "law_given_event"), (laws.below[0], "law_given_not")):
        told = dict(zip(values, law.tolist(), strict=True))
        listed = [told.get(value, 0.0) for value in expected["support"]]
        assert listed == pytest.approx(expected[name], abs=case["tolerance"])
    loss = found.loss(given["scale"] / lattice)
    assert loss == pytest.approx(expected["loss"], abs=case["tolerance"])
    least = found.least_scale(given["epsilon"]).scale * lattice
    assert least == pytest.approx(expected["least_scale"], rel=case["tolerance"])
    assert found.distance() * lattice / given["epsilon"] >= least


@pytest.mark.parametrize("case", of_kind("lift"))
def test_lifts_lie_between_the_program_over_all_mechanisms_and_the_bound(
    case: dict[str, Any],
) -> None:
    given, expected = case["input"], case["expected"]
    secrets = shoal.Events.of(worded(given["event"]))
    found = events_lift(chain_of(given), secrets).loss(given["eta"])
    assert found >= expected["all_mechanisms"] - 1e-9
    assert found == pytest.approx(expected["bound"], abs=case["tolerance"])


def test_two_releases_for_one_event_cost_more_than_the_sum_of_their_budgets() -> None:
    case = next(case for case in CASES if case["id"] == "false.budgets-add")
    given, expected = case["input"], case["expected"]
    chain = shoal.MarkovChain.of(given["transition"], initial=given["initial"], length=given["T"])
    secrets = shoal.Events.of(worded(given["event"]))
    found = event_laws(chain, shoal.count(chain.states, "1"), secrets)
    scale = found.least_scale(given["epsilon_each"]).scale
    assert scale == pytest.approx(expected["least_scale"], abs=case["tolerance"])
    joint = _loss_of_two(found, scale)
    assert joint == pytest.approx(expected["joint_loss_of_two"], abs=case["tolerance"])
    assert joint > 2 * given["epsilon_each"]
    # what the lift says of both together covers it
    assert events_lift(chain, secrets).loss(2 / scale) >= joint


def _loss_of_two(found: EventLaws, scale: float) -> float:
    """Two answers with noise of their own: the supremum is on the grid of the answers."""
    laws = found.sums[0].laws
    positions = laws.values[:, 0] / scale
    densities = []
    for law in (laws.above[0], laws.below[0]):
        both = smooth_laws(np.diag(law), positions)  # of the first answer, one row per count
        densities.append(smooth_laws(both.T, positions))
    gap = np.log(densities[0]) - np.log(densities[1])
    return float(np.abs(gap).max())
