"""`shoal release --by` on a map: latitudes and longitudes in, released points in degrees out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shoal.cli.sources import load_plan
from shoal.places.jobs import names_at
from tests.cli.conftest import SPEC, Run

JOB = ("release", "walk.toml", "in/*.csv", "--by", "user", "--seed", "3")


@pytest.fixture(autouse=True)
def lake(folder: Path, run: Run) -> pl.DataFrame:
    """Four people's points in two files, one step without, and two positions off the map."""
    assert run("init", "walk.toml", "--kind", "location").exit_code == 0
    rng = np.random.default_rng(5)
    lat, lon = 52.5 + rng.uniform(0, 0.04, 40), 13.36 + rng.uniform(0, 0.08, 40)
    lat[[3, 17]] += 1
    names = names_at(load_plan(folder / "walk.toml")[0], lat, lon)
    frame = pl.DataFrame(
        {
            "user": [f"u{number % 4}" for number in range(40)],
            "time": [f"2024-01-01 08:{number // 4:02d}:00" for number in range(40)],
            "lat": lat,
            "lon": lon,
            "cell": names,
        }
    )
    here = pl.int_range(pl.len()) == 20
    frame = frame.with_columns(
        pl.when(here).then(None).otherwise(pl.col(name)).alias(name) for name in ("lat", "cell")
    )
    (folder / "in").mkdir()
    frame.head(17).write_csv(folder / "in" / "a.csv")
    frame.tail(23).write_csv(folder / "in" / "b.csv")
    return frame


def table(folder: Path, out: str) -> pl.DataFrame:
    return pl.read_parquet(folder / out / "*.parquet").sort("subject", "step")


def test_a_spec_with_coordinates_runs_as_init_writes_it(folder: Path, run: Run) -> None:
    done = run(*JOB, "-o", "out", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["subjects"], report["rows"], report["rows_released"]) == (4, 40, 40)
    assert report["rows_off_map"] == 2
    shown = table(folder, "out")
    assert shown.height == 40
    degrees = shown["value_degrees"].struct.unnest()
    assert degrees["lat"].null_count() == 1
    assert ((degrees["lat"] - 52.5).abs() < 5).drop_nulls().all()
    assert shown["estimate_degrees"].struct.field("lon").is_between(13.3, 13.5).all()


def test_what_is_spent_on_places_is_told_by_the_step(run: Run) -> None:
    assert "policy 1 for each step of 4 release(s)" in run(*JOB, "-o", "out").stdout


def test_cells_by_name_give_the_same(folder: Path, run: Run) -> None:
    assert run(*JOB, "-o", "o1").exit_code == 0
    assert run(*JOB, "-o", "o2", "--state", "cell").exit_code == 0
    assert table(folder, "o1").equals(table(folder, "o2"))


def test_options_name_other_columns(folder: Path, run: Run) -> None:
    (folder / "cells.toml").write_text(
        (folder / "walk.toml").read_text().replace('lat = "lat"', 'state = "cell"', 1)
    )
    text = (folder / "cells.toml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("lon = ")]
    (folder / "cells.toml").write_text("\n".join(lines) + "\n")
    done = run("release", "cells.toml", *JOB[2:], "-o", "o1", "--lat", "lat", "--lon", "lon")
    assert done.exit_code == 0, done.output
    assert run(*JOB, "-o", "o2").exit_code == 0
    assert table(folder, "o1").equals(table(folder, "o2"))
    stored = run("job", "status", "o1", "--json")
    assert json.loads(stored.stdout)["rows_off_map"] == 2


def test_positions_off_the_map_are_told(folder: Path, run: Run) -> None:
    done = run(*JOB, "-o", "out")
    assert done.exit_code == 0, done.output
    assert "2 of 40 positions, taken as the nearest state" in done.stdout
    swapped = run(*JOB, "-o", "out2", "--lat", "lon", "--lon", "lat")
    assert swapped.exit_code == 0, swapped.output
    assert "39 of 40 positions, taken" in swapped.stdout


def test_what_is_no_degree_refuses_the_person(folder: Path, run: Run) -> None:
    with (folder / "in" / "b.csv").open("a") as stream:
        stream.write("u1,2024-01-01 09:00:00,north,13.4,\n")
    done = run(*JOB, "-o", "out")
    assert done.exit_code == 0, done.output
    assert "a latitude or longitude that is not in degrees" in done.stdout
    assert table(folder, "out")["subject"].unique().sort().to_list() == ["u0", "u2", "u3"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--by", "user", "--lat", "lat"), "latitude and longitude go together"),
        (("--by", "user", "--lat", "lat", "--lon", "east"), "no column 'east', named as the"),
        (("--by", "user", "--state", "cell", "--lat", "lat", "--lon", "lon"), "not more than one"),
        (("--lat", "lat", "--lon", "lon"), "and steps of places as .csv"),
    ],
    ids=["half", "column", "both", "alone"],
)
def test_bad_columns_are_one_sentence(options: tuple[str, ...], reason: str, run: Run) -> None:
    done = run("release", "walk.toml", "in/*.csv", "-o", "out", *options)
    assert done.exit_code == 2, done.output
    assert reason in done.output
    assert "Traceback" not in done.output


def test_models_without_a_map_take_no_coordinates(folder: Path, run: Run) -> None:
    done = run(
        "release",
        "spec.toml",
        "in/*.csv",
        "-o",
        "o",
        "--by",
        "user",
        "--lat",
        "lat",
        "--lon",
        "lon",
    )
    assert done.exit_code == 2
    assert "the model of group has no map" in done.output


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ('lat = "lat"', "data has one of lat and lon; name both, or neither"),
        ('state = "a"\nlat = "b"\nlon = "c"', "data has both of state and lat with lon"),
        ('time = "t"', "data has neither of state and lat with lon"),
    ],
    ids=["half", "both", "neither"],
)
def test_a_spec_names_states_or_coordinates(data: str, reason: str, folder: Path, run: Run) -> None:
    rest = SPEC[SPEC.index("[[model]]") :]
    (folder / "bad.toml").write_text(f"[data]\n{data}\n\n{rest}")
    done = run("plan", "bad.toml")
    assert done.exit_code == 2
    assert reason in done.output
