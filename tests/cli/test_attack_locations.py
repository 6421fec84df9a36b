"""`shoal attack` on streams of places and on sums over variables, from the outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.core.registry import dumps
from tests.cli.conftest import Run
from tests.cli.test_location_cli import MAP, done, maps, refused
from tests.locations import town
from tests.specs import HOUSEHOLD

__all__ = ["maps"]  # a fixture

WHERE = ("--lat", "lat", "--lon", "lon", "--series", "who", "--time", "t")
ATTACK = ("attack", "map.toml", "tracks.csv", *WHERE)


def found(run: Run, *arguments: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(done(run(*arguments, "--json")))
    return data


def test_a_track_is_told_in_words_with_units(run: Run, maps: Path) -> None:
    text = done(run(*ATTACK, "--plot", "track.png"))
    for title in ("In short", "Released", "Before", "On the way", "Afterwards", "Likeliest path"):
        assert title in text
    assert "places p0 within" in text
    assert " m instead of " in text
    assert "25 steps of p0 by location-knorm: 25 points" in text
    assert "by at most a factor of 2.718" in text
    assert (maps / "track.png").read_bytes().startswith(b"\x89PNG")


def test_seeing_more_helps_and_the_promise_of_a_step_holds(run: Run, maps: Path) -> None:
    for name in ("p0", "p1", "p2"):
        data = found(run, *ATTACK, "--who", name)
        assert data["series"] == name
        assert data["error"]["nothing"] > data["error"]["past"]
        assert data["believed_error"]["past"] > data["believed_error"]["all"]
        bits = data["entropy_bits"]
        assert bits["nothing"] > bits["past"] > bits["all"]
        assert data["log_odds"]["own"]["joined"] <= data["promised"] * (1 + 1e-9)
        assert data["log_odds"]["past"]["any_two"] <= data["loss_here"]
        assert data["log_odds"]["all"]["any_two"] <= data["loss_path"]
        assert len(data["track"]) == data["steps"] == data["released"] == 25
        assert data["plan_model_error"] is None
        distances = [step["distance"]["all"] for step in data["track"]]
        assert sum(distances) / 25 == pytest.approx(data["error"]["all"])


def test_the_columns_may_stand_in_the_spec(run: Run, maps: Path) -> None:
    spec = (maps / "map.toml").read_text(encoding="utf-8")
    columns = '[data]\nlat = "lat"\nlon = "lon"\nseries = "who"\ntime = "t"\n'
    (maps / "named.toml").write_text(columns + spec, encoding="utf-8")
    assert found(run, "attack", "named.toml", "tracks.csv") == found(run, *ATTACK)
    done(run("locations", "named.toml", "tracks.csv", "-o", "a.csv", "--seed", "1"))
    done(run("locations", "map.toml", "tracks.csv", *WHERE, "-o", "b.csv", "--seed", "1"))
    assert (maps / "a.csv").read_bytes() == (maps / "b.csv").read_bytes()
    by_state = found(run, "attack", "named.toml", "tracks.csv", "--state", "cell")
    assert by_state["steps"] == 25  # an option that names places replaces both columns


def test_the_seed_decides_what_is_drawn(run: Run, maps: Path) -> None:
    one, again, other = (found(run, *ATTACK, "--seed", seed) for seed in ("1", "1", "2"))
    assert one == again
    assert one["track"][0]["released"] != other["track"][0]["released"]


def test_a_stored_plan_and_named_states_do_as_well(run: Run, maps: Path) -> None:
    done(run("plan", "map.toml", "--save", "plan.json"))
    by_state = ("--series", "who", "--time", "t", "--state", "cell")
    one, two = (
        found(run, "attack", source, "tracks.csv", *how)
        for source, how in (("plan.json", by_state), ("map.toml", WHERE))
    )
    assert one == two


def test_a_spec_may_name_the_columns(run: Run, maps: Path) -> None:
    (maps / "named.toml").write_text(
        '[data]\nstate = "cell"\nseries = "who"\ntime = "t"\ngap = "10min"\n' + MAP
    )
    assert found(run, "attack", "named.toml", "tracks.csv")["series"] == "p0"


def test_an_adversary_with_another_model_is_compared_with_the_plan_s(run: Run, maps: Path) -> None:
    (maps / "corner.json").write_text(dumps(town(5, 6, start=0)))
    data = found(run, *ATTACK, "--adversary", "corner.json")
    own = found(run, *ATTACK)
    assert data["plan_model_error"] == pytest.approx(
        {name: own["error"][name] for name in ("nothing", "past", "all")}
    )
    assert data["error"]["past"] > own["error"]["past"]
    assert data["log_odds"]["own"]["joined"] <= 1 + 1e-9
    assert any("calls the true place impossible" in note for note in data["notes"])
    assert "Plan's model" in done(run(*ATTACK, "--adversary", "corner.json"))


def test_a_known_start_skipped_steps_and_cuts(run: Run, maps: Path) -> None:
    lines = (maps / "tracks.csv").read_text().splitlines()
    (maps / "gaps.csv").write_text("\n".join([lines[0], *lines[1:4], *lines[6:10]]) + "\n")
    begun = ("attack", "map.toml", "gaps.csv", *WHERE, "--every", "60s")
    data = found(run, *begun)
    assert (data["steps"], data["released"]) == (9, 7)
    assert [step["truth"] is None for step in data["track"]][3:5] == [True, True]
    assert data["track"][3]["distance"]["all"] is None
    text = done(run(*begun, "--steps", "4"))
    assert "3 points (1 without one)" in text
    assert "the first 4 of 9 steps were attacked; --steps takes more" in text
    first = data["track"][0]["truth"]
    known = found(run, *begun, "--start", first)
    assert known["entropy_bits"]["nothing"] < data["entropy_bits"]["nothing"]


def test_the_longest_stretch_and_positions_off_the_map(run: Run, maps: Path) -> None:
    rows = ["who,t,lat,lon", "a,0,39.001,116.001", "a,60,39.001,116.001"]
    rows += [f"a,{5000 + 60 * k},39.001,{116.001 + 0.001 * k}" for k in range(4)]
    rows += ["a,5240,49.0,116.0"]
    (maps / "cut.csv").write_text("\n".join(rows) + "\n")
    data = found(run, "attack", "map.toml", "cut.csv", *WHERE, "--gap", "10min")
    assert data["steps"] == 5
    assert any("the longest of 2 stretches" in note for note in data["notes"])
    assert any("1 position(s) off the map" in note for note in data["notes"])


def test_measurements_of_one_number_are_drawn_over_time(run: Run, maps: Path) -> None:
    spec = """
[[model]]
kind = "markov-chain"
states = ["low", "mid", "high"]
transition = [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]]
initial = "stationary"
length = 6
[secrets]
kind = "policy-graph"
graph = "complete"
[query]
kind = "measurement"
values = { low = 0, mid = 1, high = 2 }
unit = "floors"
[privacy]
epsilon = 1.0
mechanism = "location-knorm"
"""
    (maps / "floors.toml").write_text(spec)
    (maps / "floors.csv").write_text("s\n" + "\n".join(["low", "mid", "mid", "high"] * 2) + "\n")
    command = ("attack", "floors.toml", "floors.csv", "--state", "s")
    text = done(run(*command, "--plot", "floors.png"))
    assert "floors instead of" in text
    assert "the first 6 of 8 steps were attacked; the model covers no more" in text
    assert (maps / "floors.png").stat().st_size > 1000
    assert found(run, *command, "--start", "low")["steps"] == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("attack", "map.toml", "tracks.csv"), "name --lat and --lon"),
        ((*ATTACK, "--who", "nobody"), "--who is 'nobody'; the data has p0, p1, p2"),
        ((*ATTACK, "--model", "1"), "the spec has models 0 to 0"),
        ((*ATTACK, "--scale", "1"), "--scale is for single releases"),
        ((*ATTACK, "--start", "9,9"), "not one of the model's states"),
        ((*ATTACK, "--adversary", "plan.json"), "holds a Plan; it must hold a model"),
        ((*ATTACK, "--adversary", "other.json"), "a state 'a' that the plan does not"),
        (("attack", "spec.toml", "days.csv", "--start", "sit"), "are for streams of places"),
        (("attack", "spec.toml", "days.csv", "--lat", "x"), "are for streams of places"),
        (
            ("attack", "spec.toml", "days.csv", "--adversary", "other.json"),
            "--adversary has the states ['a', 'b']",
        ),
    ],
)
def test_what_makes_no_sense_is_told(
    run: Run, maps: Path, arguments: tuple[str, ...], words: str
) -> None:
    from shoal.chains.model import MarkovChain

    done(run("plan", "map.toml", "--save", "plan.json"))
    other = MarkovChain.of([[0.5, 0.5], [0.5, 0.5]], states="ab", initial=[0.5, 0.5])
    (maps / "other.json").write_text(dumps(other))
    assert words in " ".join(refused(run(*arguments)).split())


def test_a_track_without_positions_is_told(run: Run, maps: Path) -> None:
    (maps / "empty.csv").write_text("who,t,lat,lon\na,0,,\na,60,,\n")
    words = refused(run("attack", "map.toml", "empty.csv", *WHERE))
    assert "the track of a has no position" in words


def test_single_releases_take_an_adversary_too(run: Run, maps: Path) -> None:
    """What a wrong chain costs: somebody who expects long walks believes other things."""
    from shoal.chains.model import MarkovChain

    chain = MarkovChain.of(
        [[0.5, 0.5], [0.05, 0.95]], states=["sit", "walk"], initial=[0.5, 0.5], length=30
    )
    (maps / "walks.json").write_text(dumps(chain))
    own = found(run, "attack", "spec.toml", "days.csv")
    other = found(run, "attack", "spec.toml", "days.csv", "--adversary", "walks.json")
    assert own["released"] == other["released"]
    assert other["before"] != own["before"]


NETWORK = (
    HOUSEHOLD
    + """[query]
kind = "variable-sum"
weights = { anna = { ill = 1 }, ben = { ill = 2 } }
[privacy]
epsilon = 1.0
mechanism = "exact"
"""
)


def test_the_column_of_people_and_the_pause_may_be_named_for_any_data(
    run: Run, folder: Path
) -> None:
    data = found(run, "attack", "spec.toml", "days.csv", "--series", "shift", "--who", "day")
    assert data["series"] == "day"
    late = refused(run("attack", "spec.toml", "days.csv", "--gap", "soon"))
    assert "soon" in late


def test_sums_over_unlike_variables_are_attacked(run: Run, folder: Path) -> None:
    (folder / "net.toml").write_text(NETWORK)
    (folder / "net.csv").write_text("value\ncold\nill\nwell\n")
    command = ("attack", "net.toml", "net.csv", "--state", "value")
    text = done(run(*command, "--plot", "net.png"))
    assert any(f"{name} (really" in text for name in ("season", "anna", "ben"))
    data = found(run, *command)
    assert data["states"] == ["warm", "cold", "well", "ill"]
    assert 0 < data["largest_change"]["log_odds"] <= 1 + 1e-9
    assert data["after"][0][2:] == [0, 0]
    assert sum(data["after"][1]) == pytest.approx(1)
    assert found(run, *command, "--scale", "1/10")["largest_change"]["log_odds"] > 1
