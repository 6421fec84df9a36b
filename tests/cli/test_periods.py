"""Days of a series as parts of it: one budget for all, in single releases and in jobs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.cli.sources import NamedColumns
from shoal.core.errors import InputError
from shoal.jobs.inputs import Layout
from shoal.ledger import SqlLedger, open_ledger
from tests.cli.conftest import Run

SPEC = """
[data]
state = "watts"
series = "house"
time = "time"
gap = "10min"
missing = "gap"

[[model]]
kind = "markov-chain"
states = ["below 200", "200 to 900", "900 or more"]
transition = [[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]]
length = 1440

[secrets]
kind = "each-entry"

[query]
kind = "histogram"

[privacy]
epsilon = 1.0
"""
EVERY = SPEC.replace('missing = "gap"', 'missing = "gap"\nevery = "day"')


def spent_of(ledger: SqlLedger, subject: str) -> float:
    total = ledger.spent(subject, "")
    assert total is not None
    return float(total.amount)


@pytest.fixture
def meter(folder: Path) -> Path:
    """Six days of two houses, a reading in a minute, some of them missing."""
    draw = np.random.default_rng(3)
    times = [datetime(2024, 3, 4) + timedelta(minutes=m) for m in range(6 * 1440)]
    parts = []
    for house in ("north", "south"):
        watts = [None if u < 0.01 else round(1200 * u, 1) for u in draw.random(len(times))]
        parts.append(pl.DataFrame({"house": house, "time": times, "watts": watts, "ok": "yes"}))
    frame = pl.concat(parts)
    frame.write_parquet(folder / "power.parquet")
    frame.with_columns(pl.col("watts").cast(pl.String).fill_null("NaN")).write_csv(
        folder / "power.csv", separator=";"
    )
    (folder / "spec.toml").write_text(SPEC)
    (folder / "days.toml").write_text(EVERY)
    return folder


def spent(folder: Path, subject: str) -> Any:
    with open_ledger(folder / "b.db") as ledger:
        return ledger.spent(subject, "")


RELEASE = ("release", "days.toml", "power.parquet", "--ledger", "b.db")


def test_days_are_parts_and_all_of_them_cost_the_epsilon_once(run: Run, meter: Path) -> None:
    done = run(*RELEASE, "-o", "out.json")
    assert done.exit_code == 0, done.stderr
    assert "all parts of a series promise epsilon = 1 about any entry" in done.stdout
    found = json.loads((meter / "out.json").read_text())["releases"]
    assert [*found][:2] == ["north 2024-03-04", "north 2024-03-05"]
    assert len(found) == 12
    for house in ("north", "south"):
        total = spent(meter, house)
        assert total.charges == 6
        assert float(total.amount) == pytest.approx(1, abs=1e-6)


def test_weeks_meet_days_and_add(run: Run, meter: Path) -> None:
    limit = ("ledger", "limit", "b.db", "--epsilon", "1.000001", "--lifetime")
    assert run(*limit).exit_code == 0
    assert run(*RELEASE, "-o", "a.json").exit_code == 0
    again = run(*RELEASE, "-o", "b.json", "--every", "week")
    assert again.exit_code != 0
    assert "1.000001" in again.stderr or "limit" in again.stderr
    with open_ledger(meter / "b.db") as ledger:
        assert len(ledger.charges()) == 12


def test_a_job_does_the_same_from_raw_files(run: Run, meter: Path) -> None:
    where = ("--where", "ok = yes and time < 2024-03-06")
    job = ("release", "days.toml", "power.csv", "-o", "out", "--by", "house", "--sep", ";")
    report = run(*job, *where, "--ledger", "b.db", "--json")
    assert report.exit_code == 0, report.stderr
    told = json.loads(report.stdout)
    assert told["releases"] == 4
    assert told["rows_left_out"] == 2 * 4 * 1440
    assert told["rows"] == told["rows_released"] == 2 * 2 * 1440
    table = pl.read_parquet(meter / "out" / "*.parquet")
    assert sorted(set(table["period"])) == ["2024-03-04", "2024-03-05"]
    assert float(spent(meter, "north").amount) == pytest.approx(1, abs=1e-6)
    assert spent(meter, "north").charges == 2
    single = run(*RELEASE, "-o", "a.json", *where)  # the same spans: entries are charged again
    assert single.exit_code == 0, single.stderr
    assert float(spent(meter, "north").amount) > 1.5


def test_independence_is_claimed_by_whoever_says_so(run: Run, meter: Path) -> None:
    claim = run(*RELEASE, "-o", "a.json", "--periods", "independent", "--series", "house")
    assert claim.exit_code == 0, claim.stderr
    with open_ledger(meter / "b.db") as ledger:
        assert ("north", "2024-03-04") in ledger.accounts()
    frame = pl.read_parquet(meter / "power.parquet")
    frame.with_columns(day=pl.col("time").dt.strftime("%a")).write_parquet(meter / "named.parquet")
    job = ("release", "spec.toml", "named.parquet", "--by", "house", "--period-column", "day")
    asked = run(*job, "-o", "o1")
    assert asked.exit_code == 2
    assert "the column 'day' cuts a series into periods, and nothing says" in asked.stderr
    assert not (meter / "o1").exists()
    assert run(*job, "-o", "o2", "--periods", "independent").exit_code == 0
    parts = run(*job, "-o", "o3", "--periods", "parts", "--ledger", "c.db", "--json")
    assert parts.exit_code == 0, parts.stderr
    with open_ledger(meter / "c.db") as ledger:
        assert ledger.accounts() == [("north", ""), ("south", "")]
        assert {charge.part for charge in ledger.charges("north")} == {
            "=Mon", "=Tue", "=Wed", "=Thu", "=Fri", "=Sat",
        }  # fmt: skip
        assert spent_of(ledger, "north") <= 1 + 1e-6


def test_plan_and_spec_know_of_parts(run: Run, meter: Path) -> None:
    alone = json.loads(run("plan", "spec.toml", "--json").stdout)
    parts = json.loads(run("plan", "days.toml", "--json", "--save", "p.json").stdout)
    assert parts["mechanism"] == "lift"
    assert parts["scale"] >= alone["scale"]
    stored = shoal.loads((meter / "p.json").read_text())
    assert stored.scale == pytest.approx(parts["scale"])
    (meter / "group.toml").write_text(EVERY + 'mechanism = "group"\n')
    assert "only the lift is proved" in run("plan", "group.toml").stderr
    (meter / "no.toml").write_text(EVERY.replace('time = "time"\ngap = "10min"\n', ""))
    assert "has every without time" in run("plan", "no.toml").stderr
    wrong = run("release", "spec.toml", "power.parquet", "-o", "a.json", "--every", "90s")
    assert "it is one of hour, day, week, month, quarter, year" in wrong.stderr


def test_days_are_those_of_the_zone(meter: Path) -> None:
    frame = pl.read_parquet(meter / "power.parquet").drop_nulls("watts")
    read: dict[str, Any] = {
        "state": "watts",
        "series": "house",
        "time": "time",
        "every": "day",
        "bins": [200, 900],
    }
    plain = shoal.read(frame, **read)
    zoned = frame.with_columns(pl.col("time").dt.replace_time_zone("UTC"))
    there = shoal.read(zoned, **read, tz="Asia/Tokyo")
    assert len(plain.names) == 12
    assert len(there.names) == 14  # nine hours of the first day are the evening of the one before
    spans = sorted(part.span for part in there.parts.values() if part.subject == "north")
    assert all(a[1] <= b[0] for a, b in pairwise(spans))


@pytest.mark.parametrize("every", ["hour", "day", "week", "month", "quarter", "year"])
def test_python_releases_each_part(every: str, meter: Path) -> None:
    frame = pl.read_parquet(meter / "power.parquet").to_pandas()
    model = shoal.MarkovChain.of([[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]],
                                 states=["below 200", "200 to 900", "900 or more"])  # fmt: skip
    wish = shoal.budget(
        shoal.count(model.states, "900 or more"), shoal.EachEntry(), model, epsilon=1, releases=9
    )
    with open_ledger(meter / "b.db") as ledger:
        found = wish.plan.release_each(
            frame, series="house", state="watts", time="time", missing="gap", every=every,
            ledger=ledger,
        )  # fmt: skip
        assert spent_of(ledger, "south") <= 1 + 1e-6
    assert len(found) == 2 * {"hour": 144, "day": 6, "week": 1, "month": 1}.get(every, 1)
    assert found.library == "pandas"


def test_what_no_row_could_be_read_by_is_refused_first() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"every": "fortnight"}, "every is 'fortnight'; it must be one of hour"),
        ({"every": "day", "time": None}, "every needs a time column"),
        ({"bins": "8"}, "in a job it is the edges"),
        ({"missing": "guess"}, "missing is 'guess'"),
        ({"where": "watts"}, "where is 'watts'"),
        ({"every": "day", "periods": "perhaps"}, "periods is 'perhaps', which does not say"),
    )
    for fields, told in cases:
        with pytest.raises(InputError, match=told):
            Layout(**{"by": "house", "state": "watts", "time": "time", **fields})
    assert NamedColumns(every="day").parts
    assert not NamedColumns(every="day", periods="independent").parts
