"""Context and location streams as jobs: what the live stream would have told, and no more."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.contexts.stream import ContextStream
from shoal.core.plan import Machine, Plan
from shoal.jobs import local
from shoal.jobs.drawing import seeded_source
from shoal.jobs.inputs import Layout
from shoal.jobs.job import Job
from shoal.ledger import open_ledger
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.places.stream import LocationStream
from tests.engine_jobs import plan, refused, released
from tests.locations import running_task, town_task

CONTEXTS = ("home", "work", "clinic")
SLOTS = 12


@pytest.fixture(scope="module")
def masked() -> Plan:
    """A day of twelve half hours from eight o'clock."""
    matrix = [[0.8, 0.15, 0.05], [0.3, 0.65, 0.05], [0.45, 0.05, 0.5]]
    day = DayChain.of(
        matrix,
        initial=[0.9, 0.1, 0.0],
        states=CONTEXTS,
        slots=SLOTS,
        slot_minutes=30,
        start_minute=480,
    )
    secrets = SensitiveContexts.of("clinic")
    return mask(day, secrets, delta="0.3", check="mask-probabilistic")


def people(users: int = 6, days: int = 2, *, seed: int = 3) -> pl.DataFrame:
    """Half-hourly contexts, some slots missing, one context nobody knows."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        for day in range(days):
            for slot in range(SLOTS):
                if rng.random() < 0.2:
                    continue
                context = "moon" if rng.random() < 0.05 else CONTEXTS[rng.integers(0, 3)]
                when = datetime(2024, 3, day + 1, 8, 5) + timedelta(minutes=30 * slot)
                rows.append((f"u{user}", f"2024-03-0{day + 1}", slot, when, context))
    return pl.DataFrame(
        rows,
        schema={
            "user": pl.String,
            "day": pl.String,
            "slot": pl.Int64,
            "when": pl.Datetime("us"),
            "context": pl.String,
        },
        orient="row",
    )


BY_SLOT = Layout(by="user", state="context", time="slot", period="day")
BY_CLOCK = Layout(by="user", state="context", time="when", daily=True)


@pytest.mark.parametrize("layout", [BY_SLOT, BY_CLOCK], ids=["by-slot", "by-clock"])
def test_a_day_is_what_the_live_stream_would_have_shown(
    layout: Layout, masked: Plan, tmp_path: Path
) -> None:
    frame = people()
    frame.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(tmp_path / "in.parquet")
    made = Job.of(masked, tmp_path / "in.parquet", out=tmp_path / "out", layout=layout, seed=4)
    report = local.run(made)
    assert report.adds_up
    assert (report.units, report.releases) == (12, 12)
    for row in released(tmp_path / "out").to_dicts():
        own = frame.filter(
            (pl.col("user") == row["subject"]) & (pl.col("day") == row["period"])
        ).sort("slot")
        read = dict(own.select("slot", "context").iter_rows())
        rng = seeded_source(4, masked, row["subject"], row["period"])
        stream = ContextStream.begin(masked, row["period"])
        for slot in range(SLOTS):
            stream, shown = stream.read(read.get(slot), slot=slot, rng=rng)
            assert row["shown"][slot] == shown
        assert (row["notion"], row["mechanism"]) == ("delta-privacy", "mask-probabilistic")


def test_of_several_readings_in_a_slot_the_first_counts(masked: Plan, tmp_path: Path) -> None:
    first = people(users=1, days=1)
    other = {"home": "work", "work": "clinic", "clinic": "home", "moon": "home"}
    later = first.with_columns(
        pl.col("when") + timedelta(minutes=20), pl.col("context").replace_strict(other)
    )
    tables = {"once": first, "twice": pl.concat([later, first])}
    for name, frame in tables.items():
        frame.write_parquet(tmp_path / f"{name}.parquet")
        path, out = tmp_path / f"{name}.parquet", tmp_path / name
        local.run(Job.of(masked, path, out=out, layout=BY_CLOCK, seed=6))
    assert released(tmp_path / "twice").equals(released(tmp_path / "once"))


def test_days_are_charged_once_and_come_back(masked: Plan, tmp_path: Path) -> None:
    people().write_parquet(tmp_path / "in.parquet")
    where = str(tmp_path / "budget.db")
    rest: dict[str, Any] = {"layout": BY_SLOT, "ledger": where}
    for out in ("o1", "o2"):
        local.run(Job.of(masked, tmp_path / "in.parquet", out=tmp_path / out, name="march", **rest))
    assert released(tmp_path / "o1").equals(released(tmp_path / "o2"))
    again = local.run(
        Job.of(masked, tmp_path / "in.parquet", out=tmp_path / "o3", name="april", **rest)
    )
    assert again.releases == 0
    assert set(again.refusals) == {"no theorem adds it to what the ledger already holds"}
    with open_ledger(where) as ledger:
        assert ledger.verify().intact
        assert ledger.verify().charges == 12


def test_readings_outside_the_day_are_refused(masked: Plan, tmp_path: Path) -> None:
    frame = people(users=2, days=1)
    late = frame.head(1).with_columns(pl.lit(99, dtype=pl.Int64).alias("slot"))
    pl.concat([frame, late]).write_parquet(tmp_path / "in.parquet")
    report = local.run(
        Job.of(masked, tmp_path / "in.parquet", out=tmp_path / "out", layout=BY_SLOT)
    )
    assert report.adds_up
    assert refused(tmp_path / "out") == {"u0": "a reading outside the slots of the day"}


def located(name: str, *, delta: Fraction | None = None) -> Plan:
    task = running_task(delta=delta)
    return calibrate_and_check(MECHANISMS[name], task, Fraction(1))


def walks(plan: Plan, users: int = 5, steps: int = 9, *, seed: int = 2) -> pl.DataFrame:
    """Random places; the second person pauses after the fourth step."""
    rng = np.random.default_rng(seed)
    states = plan.task.query.states
    rows = [
        (f"u{user}", 60 * (step + (100 if user == 1 and step > 3 else 0)), states[place])
        for user in range(users)
        for step, place in enumerate(rng.integers(0, len(states), steps + user).tolist())
    ]
    return pl.DataFrame(rows, schema=["user", "at", "place"], orient="row")


def steps_of(plan: Plan, places: list[str], rng: Any) -> list[Any]:
    stream, shown = LocationStream.begin(plan), []
    for place in places:
        stream, release = stream.read(place, rng=rng)
        shown.append(release)
    return shown


@pytest.mark.parametrize(
    ("name", "delta"),
    [
        ("location-knorm", None),
        ("location-laplace", None),
        ("location-staircase", None),
        ("location-graph-exponential", None),
        ("location-knorm", Fraction(1, 5)),
    ],
    ids=["knorm", "laplace", "staircase", "graph", "location-set"],
)
def test_a_trace_is_what_the_live_stream_would_have_shown(
    name: str, delta: Fraction | None, tmp_path: Path
) -> None:
    plan = located(name, delta=delta)
    frame = walks(plan)
    frame.write_parquet(tmp_path / "in.parquet")
    layout = Layout(by="user", state="place", time="at", gap=timedelta(minutes=10))
    made = Job.of(plan, tmp_path / "in.parquet", out=tmp_path / "out", layout=layout, seed=8)
    report = local.run(made)
    assert report.adds_up
    table = released(tmp_path / "out")
    assert table.height == frame.height
    for (subject, chain), part in table.group_by("subject", "chain", maintain_order=True):
        own = frame.filter(pl.col("user") == subject).sort("at")
        late = pl.col("at") >= 60 * 100
        if subject == "u1":
            own = own.filter(late if chain else ~late)
        rng = seeded_source(8, plan, str(subject), f"/{chain}")
        wanted = steps_of(plan, own["place"].to_list(), rng)
        for row, release in zip(part.sort("step").to_dicts(), wanted, strict=True):
            found = tuple(row["multiples"].values())
            assert (None if found[0] is None else found) == release.z
            assert np.allclose(tuple(row["estimate"].values()), release.estimate, atol=1e-5)
            assert row["possible"] == release.possible
            assert np.isclose(row["loss_here"], release.loss_here, rtol=1e-9)
            assert np.isclose(row["loss_path"], release.loss_path, rtol=1e-9)


def test_every_step_of_a_trace_is_charged_and_comes_back(tmp_path: Path) -> None:
    plan = located("location-knorm")
    frame = walks(plan)
    frame.write_parquet(tmp_path / "in.parquet")
    layout = Layout(by="user", state="place", time="at")
    where = str(tmp_path / "budget.db")
    for out in ("o1", "o2"):
        report = local.run(
            Job.of(
                plan,
                tmp_path / "in.parquet",
                out=tmp_path / out,
                layout=layout,
                ledger=where,
                name="monday",
            )
        )
        assert report.adds_up
    first = released(tmp_path / "o1")
    assert first.equals(released(tmp_path / "o2"))
    with open_ledger(where) as ledger:
        assert ledger.verify().intact
        drawn = first["multiples"].struct.field("temperature").drop_nulls().len()
        assert ledger.verify().charges == drawn
        total = ledger.spent("u0")
        assert total is not None
        assert total.amount == 9
        etas = [Fraction(str(row.eta)) for row in ledger.charges() if row.subject == "u0"]
    told = first.filter(pl.col("subject") == "u0")["loss_path"].max()
    assert float(sum(etas)) == pytest.approx(told)
    assert float(sum(etas)) > 9  # between any two states more is told than between joined ones


def test_a_trace_stops_where_the_ledger_does(tmp_path: Path) -> None:
    plan = located("location-knorm")
    walks(plan).write_parquet(tmp_path / "in.parquet")
    where = str(tmp_path / "budget.db")
    with open_ledger(where) as ledger:
        ledger.limit(4, unit="epsilon", subject="u2")
    report = local.run(
        Job.of(
            plan,
            tmp_path / "in.parquet",
            out=tmp_path / "out",
            layout=Layout(by="user", state="place", time="at"),
            ledger=where,
        )
    )
    assert report.adds_up
    assert report.releases == 4
    table = released(tmp_path / "out")
    assert table.filter(pl.col("subject") == "u2").height == 4
    assert report.refusals == {"the ledger's limit does not allow it": (1, 7)}


def test_many_streams_on_a_map_step_together(tmp_path: Path) -> None:
    plan = calibrate_and_check(MECHANISMS["location-knorm"], town_task(5, 5), Fraction(1))
    frame = walks(plan, users=40, steps=6)
    frame.write_parquet(tmp_path / "in.parquet")
    layout = Layout(by="user", state="place", time="at")
    for out, seed in (("o1", None), ("o2", 1)):
        rest: dict[str, Any] = {"layout": layout, "seed": seed}
        report = local.run(Job.of(plan, tmp_path / "in.parquet", out=tmp_path / out, **rest))
        assert (report.adds_up, report.releases) == (True, 40)
        assert released(tmp_path / out).height == frame.height


def test_stream_plans_and_single_releases_do_not_mix(masked: Plan, tmp_path: Path) -> None:
    people().write_parquet(tmp_path / "in.parquet")
    assert isinstance(masked.body, Machine)
    with pytest.raises(ValueError, match="split them"):
        Job.of(
            {"a": masked, "b": plan()},
            tmp_path / "in.parquet",
            out=tmp_path / "out",
            layout=Layout(by="user", state="context", group="day"),
        )
