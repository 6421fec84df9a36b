"""Trajectories of many people in one table: streams of their own, steps, gaps, charges."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from shoal.core.errors import DataError, InputError
from shoal.core.plan import Plan
from shoal.ledger.store import open_ledger
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.noise.primitives import SeededRng
from shoal.places.stream import LocationStream
from shoal.places.tracks import TrackColumns, release_tracks, tracks_of
from tests.locations import running_task, town_task


@pytest.fixture(scope="module")
def plan() -> Plan:
    return calibrate_and_check(MECHANISMS["location-knorm"], running_task(), Fraction(1))


TABLE = pl.DataFrame(
    {
        "who": ["bob", "ann", "bob", "ann", "ann"],
        "at": [60.0, 0.0, 0.0, 200.0, 1000.0],
        "place": ["s2", "s1", "s1", "s4", "s5"],
    }
)


def test_tracks_are_sorted_cut_at_gaps_and_put_on_steps() -> None:
    columns = TrackColumns(user="who", time="at", state="place", every=60, gap=600)
    found = [tuple(track)[:3] for track in tracks_of(TABLE, columns)]
    assert found == [
        ("bob", 0, ("s1", "s2")),
        ("ann", 0, ("s1", None, None, "s4")),
        ("ann", 1, ("s5",)),
    ]
    plain = [track.readings for track in tracks_of(TABLE, TrackColumns(user="who", state="place"))]
    assert plain == [("s2", "s1"), ("s1", "s4", "s5")]
    dated = TABLE.with_columns(pl.from_epoch(pl.col("at").cast(pl.Int64), time_unit="s"))
    assert [tuple(track)[:3] for track in tracks_of(dated, columns)] == found


def test_a_batch_is_what_each_stream_alone_would_be(plan: Plan) -> None:
    columns = TrackColumns(user="who", time="at", state="place")
    calls: list[tuple[int, int]] = []
    found = release_tracks(plan, TABLE, columns, seed=7, notify=lambda *at: calls.append(at))
    assert found["user"].to_list() == ["bob"] * 2 + ["ann"] * 3
    assert calls[-1] == (2, 2)
    stream, rng = LocationStream.begin(plan), SeededRng(7 * 1_000_003 + 1)
    for row, place in zip(found.rows(named=True)[2:], ("s1", "s4", "s5"), strict=True):
        stream, release = stream.read(place, rng=rng)
        assert (row["z_temperature"], row["z_noise"]) == release.point
        assert row["estimate_noise"] == release.estimate[1]
        assert row["possible"] == release.possible


def test_several_processes_give_the_same_rows(plan: Plan) -> None:
    names = [f"p{k}" for k in range(20)]
    table = pl.DataFrame({"who": np.repeat(names, 3), "place": ["s1", "s2", "s4"] * 20})
    columns = TrackColumns(user="who", state="place")
    alone = release_tracks(plan, table, columns, seed=1)
    together = release_tracks(plan, table, columns, seed=1, workers=2)
    assert alone.equals(together)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_missing_coordinates_are_skipped_steps() -> None:
    plan = calibrate_and_check(MECHANISMS["location-knorm"], town_task(3, 3), Fraction(1))
    table = pl.DataFrame(
        {"who": ["a"] * 3, "lat": [39.001, None, 39.01], "lon": [116.001, 1.0, 116.01]}
    )
    columns = TrackColumns(user="who", latitude="lat", longitude="lon")
    found = release_tracks(plan, table, columns, seed=1)
    assert found["z_east"].is_null().to_list() == [False, True, False]
    assert found["estimate_lat"].is_between(38.99, 39.03).all()
    assert found["step"].to_list() == [0, 1, 2]


def test_every_step_is_charged_to_its_person(plan: Plan, tmp_path: Any) -> None:
    columns = TrackColumns(user="who", state="place")
    with open_ledger(tmp_path / "l.db") as ledger:
        first = release_tracks(plan, TABLE, columns, ledger=ledger)
        again = release_tracks(plan, TABLE, columns, ledger=ledger)
        assert first.equals(again)  # taken up again, nothing is drawn or charged twice
        spent = ledger.spent("ann", "0")
        assert spent is not None
        assert spent.amount == 3
        etas = [float(Fraction(str(row.eta))) for row in ledger.charges() if row.subject == "ann"]
        told = first.filter(pl.col("user") == "ann")["loss_path"].max()
        assert sum(etas) == pytest.approx(told)
        with pytest.raises(InputError, match="seed is given"):
            release_tracks(plan, TABLE, columns, ledger=ledger, seed=1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "name the column state"),
        ({"latitude": "lat"}, "both latitude and longitude"),
        ({"state": "s", "latitude": "a", "longitude": "b"}, "but not all"),
        ({"state": "s", "gap": 5}, "need the column of times"),
        ({"state": "s", "time": "t", "every": 0}, "every is 0"),
    ],
)
def test_columns_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrackColumns(user="who", **fields)


def test_missing_columns_and_empty_tables_are_refused(plan: Plan) -> None:
    with pytest.raises(DataError, match="column 'where' is not in the data"):
        release_tracks(plan, TABLE, TrackColumns(user="who", state="where"))
    with pytest.raises(DataError, match="holds no readings"):
        release_tracks(plan, TABLE.clear(), TrackColumns(user="who", state="place"))
