"""Noise for events of a chain from the command line: plan, leak, audit, release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shoal
from tests.cli.conftest import Run

SPEC = """
[data]
state = "place"
[[model]]
kind = "markov-chain"
states = ["home", "work", "clinic"]
transition = [[0.9, 0.08, 0.02], [0.1, 0.88, 0.02], [0.3, 0.1, 0.6]]
length = 12
[secrets]
kind = "events"
[[secrets.event]]
visit = "clinic"
between = [3, 8]
[query]
kind = "count"
states = ["work"]
[privacy]
epsilon = 1.0
"""
EVENT = shoal.visit("clinic", between=(3, 8))


@pytest.fixture
def chain(folder: Path) -> shoal.MarkovChain:
    (folder / "clinic.toml").write_text(SPEC)
    (folder / "day.csv").write_text("place\n" + "home\nwork\nclinic\n" * 4)
    (folder / "short.csv").write_text("place\n" + "home\nwork\nclinic\n" * 3)
    return shoal.MarkovChain.of(
        [[0.9, 0.08, 0.02], [0.1, 0.88, 0.02], [0.3, 0.1, 0.6]],
        states=["home", "work", "clinic"],
        length=12,
    )


def test_plan_and_audit_agree_with_the_library(chain: shoal.MarkovChain, run: Run) -> None:
    told = json.loads(run("plan", "clinic.toml", "--json", "--compare").output)
    plan = shoal.calibrate(
        shoal.count(chain.states, "work"), shoal.Events.of(EVENT), chain, epsilon=1
    )
    assert told["mechanism"] == plan.mechanism == "exact"
    assert told["scale"] == pytest.approx(plan.scale)
    assert told["alternatives"]["lift"]["scale"] > told["scale"]
    audited = run("audit", "clinic.toml")
    assert audited.exit_code == 0, audited.output
    words = " ".join(audited.output.split())
    assert "the claim is kept" in words
    assert "“at 'clinic' in slots 3 to 8”" in words


def test_leak_says_what_an_ordinary_release_tells_about_the_event(
    chain: shoal.MarkovChain, run: Run
) -> None:
    found = run("leak", "clinic.toml", "--eta", "0.1")
    assert found.exit_code == 0, found.output
    words = " ".join(found.output.split())
    assert "It says nothing about whether one was at 'clinic' in slots 3 to 8" in words
    told = json.loads(run("leak", "clinic.toml", "--eta", "0.1", "--json").output)
    assert told["epsilon"] == shoal.leakage(chain, "0.1", secrets=shoal.Events.of(EVENT)).value


def test_release_takes_whole_days_only(chain: shoal.MarkovChain, run: Run) -> None:
    found = run("release", "clinic.toml", "day.csv", "-o", "out.json")
    assert found.exit_code == 0, found.output
    refused = run("release", "clinic.toml", "short.csv", "-o", "no.json")
    assert refused.exit_code != 0
    assert "another length than the 12 slots" in " ".join(refused.output.split())


def test_attack_tells_the_belief_in_the_event(chain: shoal.MarkovChain, run: Run) -> None:
    found = run("attack", "clinic.toml", "day.csv")
    assert found.exit_code == 0, found.output
    words = " ".join(found.output.split())
    assert "at 'clinic' in slots 3 to 8 (it did happen): the belief went from 13.9%" in words
    assert "no odds of having been at 'clinic' in slots 3 to 8 change by more than" in words
