"""Events on streams of places, from a spec to a plan, a stream, a leak, an attack and a ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli import app
from shoal.core.errors import SpecError
from shoal.places.formats import zone
from shoal.places.policy import PolicyGraph
from shoal.spec.request import parse_request

MAP = """
[[model]]
kind = "grid-walk"
south = 39.9
west = 116.3
cell_km = 0.5
rows = 4
columns = 4
length = 12
[query]
kind = "measurement"
"""
POLICY = """
[secrets]
kind = "policy-graph"
graph = "radius"
radius_km = 0.8
"""
EVENING = """slot_minutes = 60
start_time = "mon 12:00"
places = { home = [39.903, 116.303] }
[[secrets.event]]
visit = "within 600 m of home"
between = ["18:00", "21:00"]
"""
AMOUNT = '[privacy]\nepsilon = 1.0\nmechanism = "location-graph-exponential"\n'
WATCHED = MAP + POLICY + EVENING + AMOUNT + "event_epsilon = 0.5\n"
PLAIN = MAP + POLICY + AMOUNT


@pytest.fixture
def specs(folder: Path) -> Path:
    (folder / "watched.toml").write_text(WATCHED)
    (folder / "plain.toml").write_text(PLAIN)
    lines = ["time,lat,lon"]
    lines += [f"2024-03-04T{12 + t}:00,{39.902 + 0.004 * (t % 3)},116.304" for t in range(12)]
    (folder / "track.csv").write_text("\n".join(lines) + "\n")
    return folder


def run(*args: str, text: str | None = None) -> Any:
    return CliRunner().invoke(app, list(args), input=text)


def test_a_spec_names_zones_as_events() -> None:
    task = parse_request(WATCHED, folder=Path()).task
    policy = task.secrets
    assert isinstance(policy, PolicyGraph)
    assert policy.watch is not None
    home = zone(task.family[0], (39.903, 116.303), radius_km="0.6")
    evening = shoal.Events.of(shoal.visit(home, between=("18:00", "21:00")))
    assert policy.watch.events == evening
    assert [float(each) for each in policy.watch.amounts] == [0.5]
    assert (policy.watch.slot_minutes, policy.watch.start_minute) == (60, 720)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MAP + POLICY + EVENING + AMOUNT, "privacy.event_epsilon is missing"),
        (PLAIN + "event_epsilon = 1\n", "no stream of places names events"),
        (WATCHED.replace("_epsilon = 0.5", "_epsilon = [1, 2]"), "holds 2 amounts for 1 events"),
        (WATCHED.replace("of home", "of work"), "say where it is in places"),
        (WATCHED.replace("slot_minutes = 60\n", ""), "start_time without slot_minutes"),
        (MAP + POLICY + "slots = 3\n" + AMOUNT, "has slots, which is for events"),
        (WATCHED.replace('"18:00", "21:00"', "20, 21"), "begins at slot 20"),
    ],
)
def test_what_does_not_fit_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_request(text, folder=Path())


def test_plan_says_what_walks_would_show_and_tell(specs: Path) -> None:
    found = json.loads(run("plan", "watched.toml", "--json").stdout)
    (row,) = found["places"]["events"]["beliefs"]
    assert row["told"] <= row["promised"] == 0.5
    assert {rule["kind"] for rule in found["composition"]} == {"per-step", "one-stream"}
    said = run("plan", "watched.toml").stdout
    assert "made-up walks" in said
    assert "of the 0.5 that are allowed" in " ".join(said.split())


def test_leak_says_what_a_plain_stream_tells_of_the_event(specs: Path) -> None:
    found = json.loads(run("leak", "watched.toml", "--json").stdout)
    (row,) = found["events"]
    assert row["told"] > 0.5
    assert json.loads(run("leak", "plain.toml", "--json").stdout)["events"] == []


def test_attack_shows_beliefs_in_events_of_any_plan(specs: Path) -> None:
    place = ("track.csv", "--lat", "lat", "--lon", "lon", "--time", "time")
    (one,) = json.loads(run("attack", "watched.toml", *place, "--json").stdout)["events"]
    assert one["promised"] == 0.5
    assert len(one["beliefs"]) == len(one["plain"]) == 13
    naive = run("attack", "plain.toml", *place, "--secrets", "watched.toml")
    said = " ".join(naive.stdout.split())
    assert "this stream hides each step at epsilon = 1; that one was" in said
    assert "not promised" in said
    refused = run("attack", "plain.toml", *place, "--secrets", "plain.toml")
    assert refused.exit_code != 0


def test_stream_tells_the_belief_and_is_charged_once_a_step(specs: Path) -> None:
    lines = "".join('{"state": "1,1"}\n' for _ in range(3))
    out = [
        json.loads(line)
        for line in run("stream", "watched.toml", text=lines).stdout.split("\n")[:3]
    ]
    assert all(0 < line["event_beliefs"][0] < 1 for line in out)
    account = ("--ledger", "ledger.db", "--subject", "ann")
    first = run("stream", "watched.toml", *account, text=lines).stdout
    assert run("stream", "watched.toml", *account, text=lines).stdout == first
    late = run("stream", "watched.toml", *account, text='{"skip": 1}\n' + lines)
    assert late.exit_code == 3
    assert "give the readings that were released again" in " ".join(late.output.split())
    other = run("stream", "plain.toml", *account, "--strict", text=lines)
    assert other.exit_code != 0
