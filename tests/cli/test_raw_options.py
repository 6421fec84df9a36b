"""What raw data needs, on the command line: from a dirty file to a fair model and a release."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import shoal

Run = Callable[..., Any]

SPEC = """
[data]
state = "watts"
series = "house"
time = "t"
time_unit = "min"
gap = "10min"
missing = "gap"
sep = ";"

[[model]]
file = "model.json"

[secrets]
kind = "each-entry"

[query]
kind = "histogram"

[privacy]
epsilon = 5.0
"""


def done(result: Any) -> str:
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def refused(result: Any) -> str:
    assert result.exit_code == 2, result.output
    return str(result.stderr)


@pytest.fixture
def house(folder: Path) -> Path:
    """A semicolon file of watts by minute, with holes and a flag."""
    rows = [
        {"house": house, "t": t, "watts": watts, "flag": "bad" if t % 50 == 7 else "ok"}
        for house in ("x", "y")
        for t in range(200)
        for watts in [None if t % 40 == 3 else [20.5, 180, 2400.25][(t // 7 + t // 20) % 3]]
    ]
    pl.DataFrame(rows).write_csv(folder / "power.csv", separator=";")
    (folder / "spec.toml").write_text(SPEC)
    return folder


COLUMNS = ("--state", "watts", "--series", "house", "--time", "t", "--sep", ";")


def test_from_a_dirty_file_to_a_release(run: Run, house: Path) -> None:
    fit = ("fit", "power.csv", "-o", "model.json", *COLUMNS, "--gap", "10min")
    assert "--missing drop" in refused(run(*fit))
    assert "nothing says whether" in refused(run(*fit, "--missing", "gap", "--bins", "100,1000"))
    more = ("--missing", "gap", "--bins", "100,1000", "--time-unit", "min")
    done(run(*fit, *more))
    model = shoal.loads((house / "model.json").read_text())
    assert set(model.states) == {"below 100", "100 to 1000", "1000 or more"}
    done(run("release", "spec.toml", "power.csv", "-o", "out.json"))  # bins are the model's
    values = json.loads((house / "out.json").read_text())["releases"]
    assert set(values) == {"x", "y"}
    assert set(values["x"]["values"]) == set(model.states)
    checked = run("check", "model.json", "power.csv", *COLUMNS, "--missing", "gap", "--json")
    found = json.loads(done(checked))
    assert found["steps"] > 300
    assert len(found["orders"]) == 3
    assert "Verdict" in done(run("check", "model.json", "power.csv", *COLUMNS, "--missing", "drop"))


def test_rows_are_chosen_and_orders_fitted(run: Run, house: Path) -> None:
    some = ("--where", "flag = ok and house = x", "--missing", "drop", "--bins", "100,1000")
    done(run("fit", "power.csv", "-o", "two.json", *COLUMNS, *some, "--order", "2", "--json"))
    assert shoal.loads((house / "two.json").read_text()).order == 2
    text = refused(run("check", "two.json", "power.csv", *COLUMNS))
    assert "holds a OrderChain; check takes a Markov chain of order 1" in text
    group = ("--order", "2", "--group", "house", "--bins", "9", "--missing", "drop")
    assert "--order does not go with --group" in refused(
        run("fit", "power.csv", "-o", "g.json", *COLUMNS, *group)
    )
    assert "are for chains of states" in refused(
        run("fit", "power.csv", "-o", "g.json", "--grid", "1", "--bins", "8")
    )


def test_a_day_is_fitted_in_its_zone(run: Run, folder: Path) -> None:
    hours = pl.datetime_range(
        pl.datetime(2024, 7, 1), pl.datetime(2024, 7, 3, 23), "1h", time_zone="UTC", eager=True
    ).alias("t")
    frame = pl.DataFrame({"t": hours, "u": "x"}).with_columns(
        c=pl.when(pl.col("t").dt.convert_time_zone("Europe/Berlin").dt.hour() < 8)
        .then(pl.lit("sleep"))
        .otherwise(pl.lit("wake"))
    )
    frame.with_columns(pl.col("t").dt.convert_time_zone("Europe/Berlin")).write_parquet(
        folder / "zoned.parquet"
    )
    frame.write_parquet(folder / "utc.parquet")
    fit = ("--slot", "1h", "--state", "c", "--series", "u", "--time", "t")
    done(run("fit", "zoned.parquet", "-o", "own.json", *fit))
    done(run("fit", "utc.parquet", "-o", "told.json", *fit, "--tz", "Europe/Berlin"))
    done(run("fit", "utc.parquet", "-o", "utc.json", *fit))
    own, told, utc = (
        shoal.loads((folder / f"{name}.json").read_text()) for name in ("own", "told", "utc")
    )
    assert own == told != utc
    asleep = own.states.index("sleep")
    assert own.transition[6, asleep, asleep] > 0.9  # from 6 to 7 in the morning
    assert own.transition[7, asleep, asleep] < 0.2
