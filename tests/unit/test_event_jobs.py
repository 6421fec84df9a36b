"""Jobs of plans that promise something about events: as the stream of one person, charged once."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.jobs.drawing import seeded_source
from shoal.jobs.live import Live, LiveReading
from shoal.ledger import open_ledger
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.places.events import event_curve
from shoal.places.packed import from_bytes, to_bytes
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.stream import LocationStream
from tests.engine_jobs import refused, released
from tests.locations import town

MONDAY = datetime(2024, 3, 4)
SECRET = bytes(range(32))
AMOUNT = 0.4


def watching(**clock: Any) -> Plan:
    """A small town whose streams keep a visit of one corner secret."""
    chain = town(3, 3)
    query = coordinates(chain)
    between: Any = ("tue 08:00", "tue 20:00") if "slot_minutes" in clock else (1, 5)
    events = shoal.Events.of(shoal.visit(["0,0", "0,1"], between=between))
    policy = PolicyGraph.within(query, 0.8).watching(events, AMOUNT, **{"slots": 8, **clock})
    task = Task(query=query, secrets=policy, family=(chain,))
    return calibrate_and_check(MECHANISMS["location-knorm"], task, Fraction(1))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return watching()


def rows(users: int = 3, steps: int = 8) -> pl.DataFrame:
    """Walks round the corner, with a row without a place."""
    names = ["0,0", "0,1", "1,1", "0,0", None, "1,0", "0,0", "2,2"]
    listed = [(f"u{u}", t, names[(t + u) % len(names)]) for u in range(users) for t in range(steps)]
    return pl.DataFrame(listed, schema=["user", "at", "place"], orient="row")


def job(plan: Plan, frame: pl.DataFrame, out: Path, **options: Any) -> pl.DataFrame:
    data = out.with_suffix(".parquet")
    frame.write_parquet(data)
    named: Any = {"by": "user", "state": "place", "time": "at", **options}
    assert shoal.release_files(plan, data, out=out, **named).adds_up
    return released(out)


def outputs(table: pl.DataFrame, user: str) -> list[tuple[int, ...] | None]:
    mine = table.filter(pl.col("subject") == user).sort("step")["multiples"].to_list()
    return [None if None in each.values() else tuple(each.values()) for each in mine]


def test_a_job_of_places_with_events_is_the_stream_of_each_person(
    plan: Plan, tmp_path: Path
) -> None:
    table = job(plan, rows(), tmp_path / "out", seed=8)
    held_back = 0
    for user in ("u0", "u1", "u2"):
        stream, rng = LocationStream.begin(plan), seeded_source(8, plan, user, "/0")
        told = []
        for place in rows().filter(pl.col("user") == user)["place"].to_list():
            stream, release = stream.read(place, rng=rng)
            told.append(release.z)
            held_back += release.guarantee is not None and release.guarantee.amount < 1
        assert outputs(table, user) == told
    assert held_back > 3


def test_a_charged_job_keeps_the_promise_and_is_one_charge_about_the_event(
    plan: Plan, tmp_path: Path
) -> None:
    """Another job of the same rows brings the same outputs back, whatever it is called."""
    with open_ledger(tmp_path / "ledger") as ledger:
        first = job(plan, rows(), tmp_path / "one", ledger=str(tmp_path / "ledger"), name="a")
        again = job(plan, rows(), tmp_path / "two", ledger=str(tmp_path / "ledger"), name="b")
        for user in ("u0", "u1", "u2"):
            shown = outputs(first, user)
            assert shown == outputs(again, user)
            curve = event_curve(plan, shown, plan.body.watch)[:, 0]  # type: ignore[union-attr]
            odds = np.log(curve) - np.log1p(-curve)
            assert np.abs(odds - odds[0]).max() <= AMOUNT * (1 + 1e-9)
            spent = ledger.spent(user, "")
            assert spent is not None
            assert spent.charges == len(shown) - shown.count(None)
            assert "0.4" in spent.explanation
    with pytest.raises(InputError, match="leave requester out of the job"):
        job(plan, rows(), tmp_path / "x", ledger=str(tmp_path / "ledger"), requester="shop")


def test_rows_go_into_the_slots_of_the_events_clock(tmp_path: Path) -> None:
    """Two weeks are two streams; of two rows in one slot the first counts; a slot may be empty."""
    plan = watching(slots=14, slot_minutes=720)
    hours = [(0, "2,2"), (3, "0,0"), (31, "0,0"), (36, "0,1"), (100, "1,1"), (190, "1,1")]
    frame = pl.DataFrame(
        [("ann", MONDAY + timedelta(hours=h), place) for h, place in hours],
        schema=["user", "at", "place"],
        orient="row",
    )
    table = job(plan, frame, tmp_path / "out", seed=3)
    assert table.select("period", "step").rows() == [
        ("2024-W10", 0),
        ("2024-W10", 2),
        ("2024-W10", 3),
        ("2024-W10", 8),
        ("2024-W11", 1),
    ]
    stream, rng = LocationStream.begin(plan), seeded_source(3, plan, "ann", "2024-W10/0")
    slots = {0: "2,2", 2: "0,0", 3: "0,1", 8: "1,1"}
    told = []
    for slot in range(9):
        stream, release = stream.read(slots.get(slot), rng=rng)
        told += [release.z] if slot in slots else []
    assert outputs(table.filter(pl.col("period") == "2024-W10"), "ann") == told


def test_a_person_in_pieces_is_refused_because_events_are_about_one_stream(
    plan: Plan, tmp_path: Path
) -> None:
    frame = rows(2).with_columns(
        at=pl.col("at") * 60 + pl.when(pl.col("at") > 4).then(4000).otherwise(0)
    )
    first = frame.filter((pl.col("user") == "u0") | (pl.col("at") < 400))
    table = job(plan, first, tmp_path / "out", gap="30min")
    assert table["subject"].unique().to_list() == ["u1"]
    assert "several chains" in refused(tmp_path / "out")["u0"]


def test_weeks_of_contexts_with_an_event_over_the_week(tmp_path: Path) -> None:
    matrix = [[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2]]
    day = shoal.DayChain.of(
        matrix,
        initial=[0.8, 0.2, 0.0],
        states=["home", "work", "clinic"],
        slots=4,
        slot_minutes=360,
    )
    week = shoal.DayChain.joined([day] * 7)
    clinic = shoal.Events.of(shoal.visit("clinic", between=("mon", "fri")))
    plan = shoal.mask(week, clinic, delta=0.1, memory="none")
    frame = pl.DataFrame(
        [("ann", MONDAY + timedelta(hours=6 * k), "home" if k % 4 else "work") for k in range(40)],
        schema=["user", "at", "place"],
        orient="row",
    )
    table = job(plan, frame, tmp_path / "out", ledger=str(tmp_path / "ledger"))
    assert table["period"].to_list() == ["2024-W10", "2024-W11"]
    assert [len(each) for each in table["shown"].to_list()] == [28, 28]
    assert all(each is None for each in table["shown"].to_list()[1][12:])
    with open_ledger(tmp_path / "ledger") as ledger:
        assert [each.period for each in ledger.charges()] == ["2024-W10", "2024-W11"]


def test_a_live_job_goes_on_from_what_it_stored(plan: Plan) -> None:
    live = Live.of(plan, SECRET)
    told = [
        LiveReading("", t, place)
        for t, place in enumerate(["0,0", "0,1", None, "0,0", "1,1", "0,0", "2,2", "0,0"])
    ]
    whole, shown = live.advance("ann", None, told)
    stored, pieces = None, []
    for row in told:
        stored, some = live.advance("ann", stored, [row])
        pieces += some
    assert (stored, pieces) == (whole, shown)
    shown_points = [each.cells["multiples"] for each in shown]
    curve = event_curve(plan, shown_points, plan.body.watch)[:, 0]  # type: ignore[union-attr]
    odds = np.log(curve) - np.log1p(-curve)
    assert 0 < np.abs(odds - odds[0]).max() <= AMOUNT * (1 + 1e-9)
    with pytest.raises(InputError, match="rows of a live job are steps without one"):
        Live.of(watching(slots=14, slot_minutes=720), SECRET).advance("ann", None, told)


def test_a_packed_stream_is_that_of_its_plan_and_no_other(plan: Plan) -> None:
    stream = LocationStream.begin(plan, "1,1")
    for place in ("0,0", "0,1"):
        stream, _ = stream.read(place)
    stored = stream.to_bytes()
    assert LocationStream.from_bytes(plan, stored) == stream
    kept = from_bytes(stored)
    assert to_bytes(kept) == stored
    assert kept.start == 4
    other = watching(slots=9)
    with pytest.raises(shoal.StoredError, match="belongs to another plan"):
        LocationStream.from_bytes(other, stored)
    with pytest.raises(shoal.StoredError, match="belongs to another plan"):
        LocationStream.from_bytes(plan, to_bytes(kept._replace(held=(), shown=b"")))
