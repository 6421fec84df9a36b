"""An audit as JSON that is JSON, and as the props of its pictures."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest

from shoal.audit.exact import audit, audit_noise
from shoal.audit.result import Audit
from shoal.audit.statistical import Estimate, audit_black_box
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import MECHANISMS
from shoal.studio.props import audit_densities

CHAIN = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit & rest", "<walk>"], length=20)


def computed(scale: float = 2) -> Audit:
    query = count(CHAIN.states, "<walk>")
    return audit_noise(query, EachEntry(), CHAIN, scale=scale, claimed=1, curve=True)


def sampled() -> Estimate:
    return audit_black_box(
        lambda data: data.count("<walk>"),
        EachEntry(),
        CHAIN,
        claimed=1,
        draws=4000,
        lengths=(2, 4),
    )


@pytest.mark.parametrize("found", [computed(), sampled()], ids=["computed", "sampled"])
def test_json_is_json(found: Audit | Estimate) -> None:
    data = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert data["promised"] == 1.0
    assert data["violated"] == found.violated
    assert data["verdict"] == found.verdict
    assert data["in_words"] == found.describe()
    assert data["worst_case"]["facts"]
    assert isinstance(data["not_checked"], list)


def test_json_tells_exact_from_interval() -> None:
    assert computed().as_json()["kind"] == "exact"
    assert sampled().as_json()["kind"] == "black-box"
    assert computed().as_json()["worst_case"]["output"] == [None]  # beyond everything possible


def streamed() -> Audit:
    day = DayChain.of([[0.6, 0.4], [0.3, 0.7]], initial=[0.5, 0.5], states=["s", "x"], slots=3)
    task = Task(query=CurrentState(("s", "x")), secrets=SensitiveContexts.of("s"), family=(day,))
    return audit(MECHANISMS["mask-adaptive"].calibrate(task, Fraction(1, 4)))


def test_adversaries_who_know_less_are_in_every_form_of_a_report() -> None:
    found = streamed()
    listed = json.loads(json.dumps(found.as_json()))["adversaries"]
    assert [one["challenge"] for one in listed] == [
        "nothing to learn",
        "LC1 and LC2",
        "nothing learned",
    ]
    assert [one["covered"] for one in listed] == [True, True, False]
    assert listed[0]["after"] - listed[0]["before"] == pytest.approx(listed[0]["rise"])
    assert "Adversaries: an adversary who knows the chain" in found.describe()
    assert computed().as_json()["adversaries"] == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_a_box_without_numbers_has_pictures_and_json(value: float | None) -> None:
    found = audit_black_box(
        lambda data: value if "<walk>" in data else 0.0,
        EachEntry(),
        CHAIN,
        claimed=1,
        draws=4000,
        lengths=(1,),
    )
    assert found.violated
    assert "nan" not in json.dumps(found.as_json(), allow_nan=False).lower()
    assert "nan" not in json.dumps(audit_densities(found), allow_nan=False).lower()


def test_an_interval_without_an_upper_end_is_json() -> None:
    """A periodic chain of any length: no bound applies."""
    chain = MarkovChain.of([[0, 1], [1, 0]], initial=[0.5, 0.5])
    found = audit_noise(count(chain.states, "1"), EachEntry(), chain, scale=3, claimed=1)
    assert math.isinf(found.upper)
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["upper"] is None
    assert audit_densities(found)["losses"][-1]["value"] is None
    assert found.verdict == "not decided"
