"""Location commands from the outside: plan, stream, fit --grid, locations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from shoal.cli import app
from shoal.core.registry import loads
from shoal.ledger import open_ledger
from shoal.noise.primitives import SeededRng
from shoal.places.walk import SparseChain
from shoal.spec.request import spec_schema
from tests.cli.conftest import Run
from tests.locations import town

MAP = """
[[model]]
kind = "grid-walk"
south = 39.0
west = 116.0
cell_km = 0.5
rows = 5
columns = 6
[secrets]
kind = "policy-graph"
graph = "radius"
radius_km = 0.8
[query]
kind = "measurement"
[privacy]
epsilon = 1.0
mechanism = "location-knorm"
"""


@pytest.fixture
def maps(folder: Path) -> Path:
    """The working folder with a map spec and tracks of three people."""
    (folder / "map.toml").write_text(MAP)
    chain = town(5, 6)
    assert chain.grid is not None
    lines = ["who,t,lat,lon,cell"]
    for person in range(3):
        for minute, x in enumerate(chain.sample(25, SeededRng(person))):
            latitude, longitude = chain.grid.centre_of(int(x))
            lines.append(f"p{person},{60 * minute},{latitude},{longitude},{chain.states[x]!r}")
    (folder / "tracks.csv").write_text("\n".join(lines).replace("'", '"') + "\n")
    return folder


def fed(*arguments: str, lines: str) -> Result:
    """`shoal ARGUMENTS…` with these lines on standard input."""
    return CliRunner().invoke(app, list(arguments), input=lines)


def done(result: Result) -> str:
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


def refused(result: Result) -> str:
    assert result.exit_code == 2, (result.stdout, result.exception)
    return result.stderr


def test_a_location_plan_is_shown_as_a_map_with_its_hull(run: Run, maps: Path) -> None:
    text = done(run("plan", "map.toml", "--compare", "--save", "plan.json", "--plot", "map.png"))
    assert "The hull of the policy among 30 states" in text
    assert "location-staircase" in text
    assert "  .###..\n  .#@#..\n  .###.." in text
    assert (maps / "map.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(done(run("plan", "map.toml", "--json")))
    places = found["places"]
    assert places["centre"] == "2,2"
    assert len(places["joined"]) == 8
    assert places["degree_of_protection"] == 9
    assert places["area"] == pytest.approx(1.0)
    assert places["estimate_error"] < places["point_error"]
    assert found["certificate"]["eta"] == pytest.approx(5.0)


def test_a_useless_policy_is_called_so(run: Run, maps: Path) -> None:
    complete = MAP.replace('"radius"\nradius_km = 0.8', '"complete"').replace("1.0", "0.05")
    (maps / "all.toml").write_text(complete)
    assert "tells hardly more than a guess" in done(run("plan", "all.toml"))


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_stream_of_places_goes_on_where_it_stopped(run: Run, maps: Path) -> None:
    done(run("plan", "map.toml", "--save", "plan.json"))
    first = '{"at": "08:00", "state": "2,2"}\n{"skip": 2}\n'
    second = '{"lat": 39.006, "lon": 116.006}\n{"state": null}\n'
    whole = fed("stream", "plan.json", "--seed", "5", lines=first + second)
    shown = lines_of(done(whole))
    assert [row["time"] for row in shown] == [1, 3, 4, 5]
    assert shown[1]["z"] is None
    assert [row.get("at") for row in shown] == ["08:00", None, None, None]
    assert shown[0]["epsilon"] == 1
    assert shown[3]["loss_path"] == pytest.approx(10)
    assert shown[2]["estimate_degrees"][0] == pytest.approx(39.01, abs=0.03)
    fed("stream", "plan.json", "--seed", "5", "--state", "s.json", lines=first)
    state = json.loads((maps / "s.json").read_text().splitlines()[0])
    assert state["value"]["state"]["time"] == 3
    rest = fed("stream", "plan.json", "--seed", "5", "--state", "s.json", lines=second)
    assert [row["time"] for row in lines_of(done(rest))] == [4, 5]
    assert oct((maps / "s.json").stat().st_mode)[-3:] == "600"


def test_a_known_start_and_charged_steps(run: Run, maps: Path) -> None:
    args = ("stream", "map.toml", "--ledger", "l.db", "--subject", "ann", "--start", "0,0")
    lines = lines_of(done(fed(*args, lines='{"state": "1,1"}\n{"state": "1,2"}\n')))
    assert [row["possible"] for row in lines] == [4, 9]
    again = lines_of(done(fed(*args, lines='{"state": "1,1"}\n{"state": "0,0"}\n')))
    assert again == lines  # the same steps of the same stream: stored outputs, no second draw
    assert "2" in done(run("ledger", "show", "l.db"))


@pytest.mark.parametrize(
    ("args", "line", "message"),
    [
        ((), '{"place": 1}', "line 1: the line has neither state nor lat and lon"),
        ((), '{"lat": 39.0}', "lat and lon go together"),
        ((), '{"skip": 0}', "skip is 0"),
        ((), '{"state": "9,9"}', "not one of the model's"),
        (("--ledger", "l.db"), "{}", "--ledger needs --subject"),
        (("--start", "9,9"), "{}", "not one of the model's"),
    ],
)
def test_lines_that_make_no_sense_are_told(
    maps: Path, args: tuple[str, ...], line: str, message: str
) -> None:
    assert message in refused(fed("stream", "map.toml", "--strict", *args, lines=line + "\n"))


def test_every_line_is_written_at_once(maps: Path) -> None:
    """A reader at the other end of a pipe gets its answer before the next line is sent."""
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-c", "from shoal.cli import main; main()", "stream", "map.toml"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=maps
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for step in (1, 2):
        process.stdin.write('{"state": "2,2"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["time"] == step
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


def test_a_map_is_fitted_from_tracks_and_used_by_a_spec(run: Run, maps: Path) -> None:
    options = ("--grid", "0.5", "--lat", "lat", "--lon", "lon", "--series", "who", "--time", "t")
    text = done(run("fit", "tracks.csv", "-o", "town.json", *options, "--gap", "10min"))
    assert "72 transitions in 3 chain(s)" in text
    model = loads((maps / "town.json").read_text())
    assert isinstance(model, SparseChain)
    mine = ("--personal", "p1", "--box", "39,116,39.03,116.04", "--smoothing", "0", "--json")
    found = json.loads(done(run("fit", "tracks.csv", "-o", "p1.json", *options, *mine)))
    assert found["personal"] == "p1"
    assert found["private"] is False
    spec = MAP.replace(MAP[: MAP.index("[secrets]")], '[[model]]\nfile = "town.json"\n')
    (maps / "fitted.toml").write_text(spec)
    assert f"{model.size} states" in done(run("plan", "fitted.toml"))
    hexagons = ("--grid", "h3:8", *options[2:])
    pytest.importorskip("h3")
    done(run("fit", "tracks.csv", "-o", "hex.json", *hexagons))
    assert loads((maps / "hex.json").read_text()).grid.size > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--grid", "0.5"), "name --lat and --lon"),
        (("--grid", "x", "--lat", "lat", "--lon", "lon"), "--grid is 'x'"),
        (("--grid", "1", "--lat", "lat", "--lon", "lon", "--box", "1,2"), "south,west,north,east"),
        (("--grid", "1", "--lat", "lat", "--lon", "lon", "--personal", "me"), "name --series too"),
        (
            ("--grid", "1", "--lat", "lat", "--lon", "lon", "--gap", "1h"),
            "--gap is given without times",
        ),
        (("--state", "cell", "--grid", "1"), "do not go with --grid"),
        ((), "no column of states is named"),
    ],
)
def test_fits_that_make_no_sense_are_told(
    run: Run, maps: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in refused(run("fit", "tracks.csv", "-o", "m.json", *options))


def test_tables_of_tracks_are_released_by_the_stream(run: Run, maps: Path) -> None:
    places = ("--series", "who", "--lat", "lat", "--lon", "lon", "--time", "t", "--every", "60s")
    seeded = ("release", "map.toml", "tracks.csv", "--seed", "3", *places)
    text = done(run(*seeded, "-o", "out.csv", "--plot", "trace.png"))
    assert "75 steps of 3 stream(s)" in text
    table = pl.read_csv(maps / "out.csv")
    assert table.height == 75
    assert {"user", "z_east", "estimate_north", "estimate_lat", "loss_path"} <= set(table.columns)
    for name in ("trace.png", "trace-over-time.png"):
        assert (maps / name).read_bytes().startswith(b"\x89PNG")
    found = json.loads(done(run(*seeded, "-o", "out.parquet", "--json")))
    assert (found["steps"], found["secure"]) == (75, False)
    same = pl.read_parquet(maps / "out.parquet")
    assert same["z_east"].to_list() == table["z_east"].to_list()
    by_state = ("--series", "who", "--state", "cell", "--ledger", "l.db")
    done(run("release", "map.toml", "tracks.csv", "-o", "charged.csv", *by_state))
    assert pl.read_csv(maps / "charged.csv").height == 75


def test_a_track_of_nobody_is_not_charged(run: Run, maps: Path) -> None:
    pl.read_csv(maps / "tracks.csv").head(25).drop("who").write_csv(maps / "mine.csv")
    charged = ("--state", "cell", "--ledger", "l.db")
    whole = ("release", "map.toml", "mine.csv", "-o", "o.csv", *charged)
    assert "nothing says whose data it is" in refused(run(*whole))
    assert not (maps / "l.db").exists()
    done(run(*whole, "--subject", "ann"))
    with open_ledger(maps / "l.db") as ledger:
        assert {name for name, _ in ledger.accounts()} == {"ann"}
    assert pl.read_csv(maps / "o.csv")["user"].unique().to_list() == ["ann"]
    tracks = ("release", "map.toml", "tracks.csv", "-o", "p.csv", *charged, "--series", "who")
    assert "but the data holds 3 people" in refused(run(*tracks, "--subject", "ann"))


def test_tables_that_make_no_sense_are_told(run: Run, maps: Path) -> None:
    where = ("--lat", "lat", "--lon", "lon")
    assert "are for streams of places, and" in refused(
        run("release", "spec.toml", "tracks.csv", "-o", "o.parquet", *where)
    )
    assert "name --lat and --lon" in refused(
        run("release", "map.toml", "tracks.csv", "-o", "o.csv")
    )
    assert "need the column of times" in refused(
        run("release", "map.toml", "tracks.csv", "-o", "o.csv", *where, "--gap", "1h")
    )
    assert "steps of places as .csv" in refused(
        run("release", "map.toml", "tracks.csv", "-o", "o.txt", *where)
    )


STREAMS = sorted((Path(__file__).parents[2] / "examples" / "streams").glob("*.toml"))


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_the_stream_examples_run(run: Run, path: Path) -> None:
    plan = json.loads(done(run("plan", str(path), "--json")))
    assert plan["loss"] <= plan["epsilon"] * (1 + 1e-9)
    jsonschema.validate(tomllib.loads(path.read_text()), spec_schema())
    assert json.loads(done(run("audit", str(path), "--json")))["verdict"] == "kept"
