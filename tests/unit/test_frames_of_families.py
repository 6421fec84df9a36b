"""Tables of every library in the fits and releases of the families; raw rows on maps and days."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shoal
from shoal.chains.fit import fit_groups
from shoal.core.errors import DataError, InputError
from shoal.core.records import sequences
from shoal.places.tracks import TrackColumns, release_tracks
from shoal.places.walk import baum_welch, fit_grid, fit_person
from shoal.records import RecordDomain, fit_friends, pairs_of_counts


def _dask(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)


def _ibis(frame: pd.DataFrame) -> Any:
    pytest.importorskip("pyarrow_hotfix")  # which Ibis imports to hand out Arrow tables
    ibis = pytest.importorskip("ibis")
    return ibis.memtable(frame)


ENGINES = ("duckdb", "dask", "ibis")


def _duckdb(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("duckdb").connect().from_df(frame)


LIBRARIES: dict[str, Any] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": pa.Table.from_pandas,
    "duckdb": _duckdb,
    "dask": _dask,
    "ibis": _ibis,
}
BEGIN = datetime(2024, 5, 1)
DAYS = pd.DataFrame(
    [
        (who, BEGIN + timedelta(hours=h), "sleep" if h % 24 < 8 else work, work)
        for who, work in (("anna", "work"), ("ben", "home"))
        for h in range(72)
    ],
    columns=["who", "t", "what", "kind"],
)
GRID = shoal.SquareGrid.covering(south=52.5, west=13.3, north=52.52, east=13.34, cell_km="0.5")
WALK = pd.DataFrame(
    [
        ("anna", BEGIN + timedelta(minutes=m), 52.501 + 0.004 * (m % 5), 13.301 + 0.005 * (m % 7))
        for m in range(40)
    ],
    columns=["who", "t", "north", "east"],
)
PLACED: dict[str, Any] = {"series": "who", "time": "t", "latitude": "north", "longitude": "east"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_fits_the_same_models(library: str) -> None:
    def as_own(frame: pd.DataFrame) -> Any:
        return LIBRARIES[library](frame)

    named: dict[str, Any] = {"state": "what", "series": "who", "time": "t"}
    plain = [["sleep"] * 8 + ["work"] * 16] * 3 + [["sleep"] * 8 + ["home"] * 16] * 3
    assert shoal.fit_day(as_own(DAYS), slot="1h", **named) == shoal.fit_day(plain, slot_minutes=60)
    chain = shoal.fit_chain(as_own(DAYS), smoothing=1, **named)
    assert chain == shoal.fit_chain(DAYS, smoothing=1, **named)
    groups = fit_groups(as_own(DAYS), group="kind", smoothing=1, **named)
    own = sequences([DAYS["what"][72:].to_list()], chain.states)
    assert list(groups) == ["home", "work"]
    assert groups["home"] == shoal.fit_chain(own, smoothing=1)
    cells = GRID.cell_of(WALK["north"].to_numpy(), WALK["east"].to_numpy())
    wanted = fit_grid(GRID, [cells], smoothing=1).chain
    assert fit_grid(GRID, as_own(WALK), smoothing=1, **PLACED).chain == wanted
    person = fit_person(wanted, [cells])
    assert fit_person(wanted, as_own(WALK), **PLACED) == person


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_holds_records_and_likelihoods(library: str) -> None:
    def as_own(frame: pd.DataFrame) -> Any:
        return LIBRARIES[library](frame)

    domain = RecordDomain.interval(0, 10, cells=5)
    people = pd.DataFrame({"name": ["a", "b", "c", "d"], "age": [1.0, 2.0, 7.0, 8.0]})
    ties = pd.DataFrame({"one": ["a", "c"], "other": ["b", "d"]})
    wanted = fit_friends(domain, people["age"].to_numpy(), [[0, 1], [2, 3]])
    assert fit_friends(domain, as_own(people), as_own(ties), series="name") == wanted
    counted = pairs_of_counts(domain, people["age"].to_numpy(), [[0, 1], [2, 3]], smoothing=1)
    own = pairs_of_counts(domain, as_own(people), as_own(ties), series="name", smoothing=1)
    assert own == counted
    start = shoal.MarkovChain.of([[0.7, 0.3], [0.4, 0.6]], states=["up", "down"])
    logs = np.log([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.2, 0.8]])
    table = pd.DataFrame(logs, columns=["up", "down"]).assign(run=["x", "x", "y", "y"])
    learned = baum_welch(start, as_own(table), series="run", rounds=3)
    plain = baum_welch(start, [logs[:2], logs[2:]], rounds=3)
    assert learned.chain == plain.chain
    assert learned.log_likelihoods == plain.log_likelihoods


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tracks_are_released_in_the_library_they_came_in(library: str, tmp_path: Path) -> None:
    chain = fit_grid(GRID, WALK, smoothing=1, **PLACED).chain
    query = shoal.coordinates(chain)
    plan = shoal.calibrate(query, shoal.PolicyGraph.within(query, 1), chain, epsilon=1)
    made = release_tracks(plan, LIBRARIES[library](WALK), every="2min", seed=3, **PLACED)
    assert type(made).__module__.partition(".")[0] == library
    table = pl.from_pandas(WALK)
    columns = TrackColumns(user="who", time="t", latitude="north", longitude="east", every=120)
    wanted = release_tracks(plan, table, columns, seed=3)
    assert pl.DataFrame(made)["estimate_lat"].to_list() == wanted["estimate_lat"].to_list()
    WALK.to_csv(tmp_path / "w.csv", index=False, sep=";")
    again = release_tracks(
        plan, tmp_path / "w.csv", every=120, seed=3, sep=";", where="who = anna", **PLACED
    )
    assert again["estimate_lat"].to_list() == wanted["estimate_lat"].to_list()


def test_what_cannot_be_read_is_refused_in_a_sentence() -> None:
    with pytest.raises(DataError, match=r"a table with columns; hand over one of them"):
        shoal.sequences(DAYS, ["sleep", "work"])
    with pytest.raises(InputError, match="slot is missing; days of a table need"):
        shoal.fit_day(DAYS, state="what", time="t")
    with pytest.raises(InputError, match="bins does not go with slots"):
        shoal.fit_day(DAYS, slot="1h", state="what", time="t", bins=3)
    with pytest.raises(InputError, match="group is missing"):
        fit_groups(DAYS, state="what", series="who")
    with pytest.raises(InputError, match="latitude is given; name latitude and longitude"):
        fit_grid(GRID, WALK, latitude="north")
    with pytest.raises(DataError, match="has no column 'south', named as the latitude"):
        fit_grid(GRID, WALK, latitude="south", longitude="east")
    with pytest.raises(InputError, match="gap is given without a time column"):
        fit_grid(GRID, WALK, latitude="north", longitude="east", gap="5min")
    domain = RecordDomain.interval(0, 10, cells=5)
    people = pd.DataFrame({"name": ["a", "b"], "age": [1.0, 2.0]})
    with pytest.raises(DataError, match="edges name 'z'"):
        fit_friends(domain, people, pd.DataFrame({"x": ["a"], "y": ["z"]}), series="name")
    with pytest.raises(InputError, match="series and state name columns"):
        fit_friends(domain, [1.0, 2.0], [[0, 1]], series="name")
    start = shoal.MarkovChain.of([[0.7, 0.3], [0.4, 0.6]], states=["up", "down"])
    with pytest.raises(DataError, match="has no column 'up'"):
        baum_welch(start, people)
