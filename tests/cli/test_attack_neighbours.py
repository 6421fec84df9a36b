"""`shoal attack` on people with friends and on tied records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.data.generate import friends_places
from tests.cli.conftest import Run

PLACES = """
[data]
state = "place"
series = "user"
[[model]]
kind = "groups"
largest = 1
[secrets]
kind = "each-entry"
[query]
kind = "places"
south = 50
west = 10
north = 50.18
east = 10.28
rounds = 2
[privacy]
epsilon = 40
"""

TIES = """
[data]
state = "income"
[[model]]
kind = "dependence"
states = ["low", "middle", "high"]
values = [1, 2, 4]
records = 6
ties = [[0, 1], [1, 2], [3, 4]]
law = [[0.25, 0.05, 0.02], [0.05, 0.26, 0.05], [0.02, 0.05, 0.25]]
[secrets]
kind = "each-entry"
[query]
kind = "sum"
weights = { low = 1, middle = 2, high = 4 }
[privacy]
epsilon = 1
"""


@pytest.fixture
def town(tmp_path: Path) -> Path:
    made = friends_places(people=80, seed=3)
    made.checkins().write_csv(tmp_path / "checkins.csv")
    made.ties().write_csv(tmp_path / "friends.csv")
    (tmp_path / "places.toml").write_text(PLACES)
    return tmp_path


def test_the_attack_on_places_says_what_friendships_do(run: Run, town: Path) -> None:
    chart = town / "a.png"
    result = run(
        "attack", str(town / "places.toml"), str(town / "checkins.csv"),
        "--friends", str(town / "friends.csv"), "--plot", str(chart),
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    flat = " ".join(result.stdout.split())
    assert "an adversary who knows the friendships and sees the release locates a user" in flat
    assert " km instead of " in flat
    assert "No noise can take this back" in flat
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert f"The chart is in {chart}" in flat


def test_the_attack_on_places_as_json(run: Run, town: Path) -> None:
    result = run(
        "attack", str(town / "places.toml"), str(town / "checkins.csv"),
        "--friends", str(town / "friends.csv"), "--json",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert found["people"] == 80
    errors = found["error_km"]
    assert errors["friends"] < errors["before"]
    assert errors["both"] < errors["before"]
    assert found["release_bits"]["both"] <= found["bits_allowed"]
    assert found["entry_epsilon"] == pytest.approx(40)


def test_what_is_missing_is_named(run: Run, town: Path) -> None:
    spec, data = str(town / "places.toml"), str(town / "checkins.csv")
    assert "--friends is missing" in run("attack", spec, data).stderr
    (town / "none.csv").write_text("a,b\nx,y\n")
    none = run("attack", spec, data, "--friends", str(town / "none.csv"))
    assert none.exit_code != 0
    assert "no two people" in none.stderr
    (town / "places.toml").write_text(PLACES.replace('series = "user"\n', ""))
    assert "must name series" in run("attack", spec, data, "--friends", data).stderr


def test_tied_records_are_guessed_from_each_other(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ties.toml").write_text(TIES)
    (tmp_path / "ties.csv").write_text("income\nlow\nlow\nmiddle\nhigh\nhigh\nlow\n")
    chart = tmp_path / "t.png"
    args = ("attack", str(tmp_path / "ties.toml"), str(tmp_path / "ties.csv"))
    text = " ".join(run(*args, "--plot", str(chart)).stdout.split())
    assert "an adversary who knows the ties" in text
    assert chart.exists()
    assert f"The chart is in {chart}" in text
    found = json.loads(run(*args, "--json").stdout)
    assert found["right_guesses"]["ties"] > found["right_guesses"]["alone"]


def test_places_can_be_planned_under_declared_ties_too(run: Run, tmp_path: Path) -> None:
    """A model of tied records whose values have names serves people's places as well."""
    model = TIES[TIES.index("[[model]]") : TIES.index("[secrets]")]
    groups = PLACES[PLACES.index("[[model]]") : PLACES.index("[secrets]")]
    (tmp_path / "spec.toml").write_text(PLACES.replace(groups, model))
    found = json.loads(run("plan", str(tmp_path / "spec.toml"), "--json").stdout)
    assert found["mechanism"] == "group"
    assert found["scale"] == pytest.approx(3 * 2 * (12 + 2 * 43 / 64) / 40, rel=1e-6)


def test_places_are_released_from_check_ins(run: Run, town: Path) -> None:
    spec, data, out = (str(town / name) for name in ("places.toml", "checkins.csv", "r.json"))
    result = run("release", spec, data, "-o", out, "--seed", "1")
    assert result.exit_code == 0, result.stderr
    assert "latitude" in result.stdout
    stored = json.loads(Path(out).read_text())
    assert "round 2 cluster 8 count" in json.dumps(stored)
    charged = run("release", spec, data, "-o", out, "--force", "--ledger", str(town / "l.db"))
    assert "name the subject with --subject" in charged.stderr
    named = data.replace("checkins", "renamed")
    Path(named).write_text(Path(data).read_text().replace("latitude", "north"))
    refused = run("release", spec, named, "-o", out, "--force")
    assert "no column 'latitude' or 'lat'" in refused.stderr
