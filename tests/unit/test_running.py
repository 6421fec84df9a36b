"""Sums in steps: what is refused, in words; specs; `shoal stream`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli import app
from shoal.mechanisms import RunningStream, in_steps
from shoal.mechanisms.table import verify_promise
from shoal.spec.request import parse_request

CHAIN = shoal.MarkovChain.of([[0.7, 0.3], [0.4, 0.6]], states=["still", "moving"])
COUNT = shoal.count(CHAIN.states, "moving")
SPEC = """
[[model]]
kind = "markov-chain"
states = ["still", "moving"]
transition = [[0.7, 0.3], [0.4, 0.6]]
[secrets]
kind = "each-entry"
[query]
kind = "count"
states = ["moving"]
every = 3
[privacy]
epsilon = 1
"""


def plan_of(epsilon: float = 1) -> shoal.Plan:
    return shoal.calibrate(in_steps(COUNT, 3), shoal.EachEntry(), CHAIN, epsilon=epsilon)


def test_a_spec_asks_for_steps(tmp_path: Path) -> None:
    plan = parse_request(SPEC, folder=tmp_path).plan()
    assert plan == plan_of()
    assert plan.mechanism == "lift"
    assert verify_promise(plan) <= 1
    assert plan.explain().startswith("Asked:        for every 3 entries: how many")


@pytest.mark.parametrize(
    ("line", "with_", "words"),
    [
        ("every = 3", "every = 1", "every is 1; it must be a whole number of at least 2"),
        ("epsilon = 1", 'epsilon = 1\nmechanism = "exact"', "for sums over entries only"),
    ],
)
def test_odd_specs_are_told(line: str, with_: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(shoal.ShoalError, match=words):
        parse_request(SPEC.replace(line, with_), folder=tmp_path).plan()


def test_models_and_queries_that_end_are_refused() -> None:
    ends = shoal.MarkovChain.of([[0.7, 0.3], [0.4, 0.6]], states=CHAIN.states, length=30)
    with pytest.raises(shoal.InputError, match=r"the series goes on, and a model is .* at most 30"):
        shoal.calibrate(in_steps(COUNT, 3), shoal.EachEntry(), ends, epsilon=1)
    means = shoal.mean(CHAIN.states, {"moving": 1}, length=3)
    with pytest.raises(shoal.InputError, match="no count, sum or histogram of counts"):
        in_steps(means, 3)
    with pytest.raises(shoal.DataError, match="steps of 3 need one series"):
        plan_of().release([["still"] * 4, ["still"] * 4])
    with pytest.raises(shoal.InputError, match="an entry is no state of the model"):
        RunningStream.begin(plan_of()).read("flying")
    single = shoal.calibrate(COUNT, shoal.EachEntry(), CHAIN, epsilon=1, mechanism="lift")
    with pytest.raises(shoal.InputError, match="lift has no steps"):
        RunningStream.begin(single)


def test_an_audit_is_between_one_step_and_the_lift_of_all() -> None:
    found = shoal.audit(plan_of())
    assert 0.3 < found.lower <= found.upper <= 1
    forged = plan_of(8)
    assert verify_promise(forged) > 1
    assert math.isfinite(verify_promise(forged))


def test_lines_of_entries(tmp_path: Path) -> None:
    spec = tmp_path / "counts.toml"
    spec.write_text(SPEC)
    readings = [{"state": "moving"}, {"skip": 1}, {"state": "still"}, {"state": "flying"}]
    lines = "".join(json.dumps(each) + "\n" for each in readings)
    ledger = ["--ledger", str(tmp_path / "ledger.db"), "--subject", "ada", "--start", "60"]
    done = CliRunner().invoke(app, ["stream", str(spec), *ledger], input=lines)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each.get("entries") for each in told] == [61, 62, 63, None]
    assert set(told[2]["shown"]) == {"moving"}
    assert told[2]["read"] == 2
    assert told[3]["error"]
