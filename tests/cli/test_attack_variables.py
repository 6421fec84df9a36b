"""`shoal attack` on sums with a weight per person, by somebody who holds a crowd or a chain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.attacks.beliefs import attack, laplace_variables
from shoal.chains.model import MarkovChain
from shoal.core.registry import dumps
from shoal.mechanisms.variables import variable_sum
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable
from tests.cli.conftest import Run
from tests.cli.test_attack_locations import found
from tests.cli.test_location_cli import done, refused
from tests.networks.models import joint_of

SPEC = """
[[model]]
kind = "contagion"
people = ["ann", "bob", "cleo", "dan"]
edges = [["ann", "bob"], ["bob", "cleo"]]
laws = { "3" = [0.4, 0.1, 0.2, 0.3], "1" = [0.8, 0.2] }
[secrets]
kind = "each-entry"
[query]
kind = "variable-sum"
weights = { ann = { ill = 1 }, bob = { ill = 2 }, dan = { ill = 0.5 } }
[privacy]
epsilon = 1.0
"""
COMMAND = ("attack", "crowd.toml", "crowd.csv", "--state", "value")


@pytest.fixture
def town(folder: Path) -> Path:
    (folder / "crowd.toml").write_text(SPEC)
    (folder / "crowd.csv").write_text("value\nill\nill\nwell\nwell\n")
    chain = MarkovChain.of(
        [[0.9, 0.1], [0.3, 0.7]], states=["well", "ill"], initial=[0.6, 0.4], length=4
    )
    (folder / "chain.json").write_text(dumps(chain))
    return folder


def test_a_crowd_is_attacked_person_by_person(run: Run, town: Path) -> None:
    text = done(run(*COMMAND, "--plot", "crowd.png"))
    assert any(f"{name} (really" in text for name in ("ann", "bob", "cleo", "dan"))
    data = found(run, *COMMAND, "--scale", "0.5")
    model = Contagion.from_edges(
        ["ann", "bob", "cleo", "dan"],
        [("ann", "bob"), ("bob", "cleo")],
        {3: [0.4, 0.1, 0.2, 0.3], 1: [0.8, 0.2]},
    )
    query = variable_sum(model, {"ann": {"ill": 1}, "bob": {"ill": 2}, "dan": {"ill": "1/2"}})
    listed = JointTable.of(joint_of(model), variables=model.variables, domains=[model.states] * 4)
    expected = attack(listed, [laplace_variables(query, [data["released"]["sum"]], 0.5)], 4)
    assert np.array(data["after"]) == pytest.approx(expected.after, abs=1e-10)
    assert data["states"] == ["well", "ill"]


def test_the_promise_holds_against_the_crowd(run: Run, town: Path) -> None:
    for seed in ("0", "1", "2"):
        data = found(run, *COMMAND, "--seed", seed)
        assert 0 < data["largest_change"]["log_odds"] <= 1 + 1e-9


def test_somebody_may_hold_a_chain_of_the_people_instead(run: Run, town: Path) -> None:
    text = done(run(*COMMAND, "--adversary", "chain.json"))
    assert any(f"{name} (really" in text for name in ("ann", "bob", "cleo", "dan"))
    own, other = found(run, *COMMAND), found(run, *COMMAND, "--adversary", "chain.json")
    assert own["released"] == other["released"]
    assert other["before"][0] == pytest.approx([0.6, 0.4])


def test_a_chain_on_other_values_is_refused(run: Run, town: Path) -> None:
    chain = MarkovChain.of([[0.9, 0.1], [0.3, 0.7]], states=["no", "yes"], length=4)
    (town / "other.json").write_text(dumps(chain))
    assert "give a model on these" in refused(run(*COMMAND, "--adversary", "other.json"))


def test_adversaries_who_know_less_and_more_are_told_too(run: Run, town: Path) -> None:
    text = done(run(*COMMAND))
    assert "for somebody who takes entries for independent odds change by a factor" in text
    data = found(run, *COMMAND)
    kinds = data["adversaries"]
    assert list(kinds) == ["weak", "standard", "strong"]
    assert kinds["standard"]["log_odds"] == pytest.approx(data["largest_change"]["log_odds"])
    assert kinds["standard"]["log_ratio"] == pytest.approx(data["largest_rise"]["log_ratio"])
    truth = [1, 1, 0, 0]
    expected = np.mean([1 - data["after"][t][x] for t, x in enumerate(truth)])
    assert data["correctness"] == pytest.approx(float(expected))
    days = found(run, "attack", "spec.toml", "days.csv")["adversaries"]
    assert 0 < days["strong"]["log_odds"] <= days["standard"]["log_odds"]
