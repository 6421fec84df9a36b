"""`shoal leak` on streams: ordinary noise over time, and gaps in a day."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.audit import audit
from shoal.chains.families import OrderChain
from shoal.contexts.day import DayChain
from shoal.core.task import Model
from shoal.mechanisms.choice import choose
from shoal.places.views.plan import over_time
from shoal.spec.request import read_request
from tests.cli.conftest import Run
from tests.locations import SIX, running_task, walk
from tests.specs import CONTEXTS, PLACES


def measured(run: Run, folder: Path, text: str, *options: str) -> dict[str, Any]:
    """The one object `shoal leak --json` prints for a spec."""
    (folder / "stream.toml").write_text(text)
    result = run("leak", "stream.toml", "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_more_steps_tell_more_about_a_position(run: Run, folder: Path) -> None:
    found = measured(run, folder, PLACES.format(side=4))
    (model,) = found["models"]
    steps = model["steps"]
    assert [row["steps"] for row in steps] == [1, 2, 4, 8, 16]
    assert steps[0]["told"] <= steps[0]["at_most"] == pytest.approx(1, rel=1e-9)
    bounds = [row["at_most"] for row in steps]
    assert bounds == sorted(bounds)
    assert all(row["told"] <= row["at_most"] * (1 + 1e-9) for row in steps)
    assert steps[-1]["told"] > 1.5  # an ordinary stream really breaks what a step promised
    assert found["epsilon"] == bounds[-1]
    assert measured(run, folder, PLACES.format(side=4)) == found


def test_less_noise_at_every_step_tells_more(run: Run, folder: Path) -> None:
    weak = measured(run, folder, PLACES.format(side=3), "--eta", "2")
    strong = measured(run, folder, PLACES.format(side=3), "--eta", "0.5")
    assert weak["eta"] == 2.0
    assert weak["epsilon"] > strong["epsilon"] > 0.5


def test_a_large_map_gets_the_bound_of_the_stream(run: Run, folder: Path) -> None:
    found = measured(run, folder, PLACES.format(side=17))
    steps = found["models"][0]["steps"]
    assert found["about"] == "any two states"
    assert {row["told"] for row in steps} == {None}
    assert steps[3]["at_most"] == pytest.approx(8 * steps[0]["at_most"], rel=1e-9)
    assert "no outputs of 16 steps" in run("leak", "stream.toml").stdout


def test_gaps_in_a_day_give_away_what_an_audit_finds(run: Run, folder: Path) -> None:
    found = measured(run, folder, CONTEXTS.format(slots=4))
    request = read_request(folder / "stream.toml")
    plan = choose(request.task, request.epsilon(), "mask-sensitive").plan
    # the audit of so short a day runs the machine through every output there is
    assert found["rise"] == pytest.approx(audit(plan).upper, rel=1e-9)
    assert found["rise"] > 0.9 > found["belief_delta"] == 0.1
    assert found["breached"] == 3  # clinic at every slot but the first
    told = " ".join(run("leak", "stream.toml").stdout.split())
    assert "raises the belief in a sensitive context by 0.956" in told
    assert "3 of 3 sensitive (slot, context) pairs are breached" in told


def test_contexts_have_no_level_to_choose(run: Run, folder: Path) -> None:
    (folder / "stream.toml").write_text(CONTEXTS.format(slots=4))
    result = run("leak", "stream.toml", "--eta", "1")
    assert result.exit_code == 2
    assert "--eta is 1, but contexts are hidden without noise" in result.stderr


@pytest.mark.parametrize(
    "text", [PLACES.format(side=3), CONTEXTS.format(slots=4)], ids=["places", "contexts"]
)
def test_the_leak_of_a_stream_is_drawn(run: Run, folder: Path, text: str) -> None:
    (folder / "stream.toml").write_text(text)
    result = run("leak", "stream.toml", "--plot", "leak.png")
    assert "The chart is in leak.png" in result.stdout
    assert (folder / "leak.png").read_bytes().startswith(b"\x89PNG")


def kinds_of_chains() -> dict[str, Model]:
    """The running example's walk, as every kind of chain a stream of places follows."""
    chain = walk(length=5)
    day = DayChain.of(chain.transition, initial=chain.initial, states=SIX, slots=5)
    newest = np.tile(chain.transition, (len(SIX), 1))  # the older of two entries says nothing
    even = np.full(len(SIX) ** 2, 1 / len(SIX) ** 2)
    order = OrderChain(states=SIX, order=2, conditional=newest, initial=even, length=5)
    return {"chain": chain, "day": day, "order": order}


@pytest.mark.parametrize("kind", ["chain", "day", "order"])
def test_every_kind_of_chain_is_followed_to_its_end(kind: str) -> None:
    task = running_task(kinds_of_chains()[kind])
    rows = over_time(choose(task, Fraction(1), "location-laplace").plan)
    assert [row.steps for row in rows] == [1, 2, 4]  # the model ends after 5
    assert [row.largest_change is None for row in rows] == [kind == "order"] * 3
    bounds = [row.at_most for row in rows]
    assert 0 < bounds[0] <= bounds[1] <= bounds[2]
