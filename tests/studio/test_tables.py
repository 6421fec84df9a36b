"""What a person's own files are taken for: columns, gaps, rooms, and what cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.registry import dumps
from shoal.data.guess import guess_columns
from shoal.mechanisms.choice import calibrate
from shoal.places.map import SquareGrid
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.walk import free_walk
from shoal.studio.rooms import places
from shoal.studio.rooms.ground import map_from_file, own_track, step_of
from shoal.studio.tables import chosen, columns_of, gap_of, look, room_of


def quiet(words: str, share: float) -> None:
    """Nobody listens."""


@pytest.mark.parametrize(
    ("columns", "roles", "wanted"),
    [
        ("user_id,time_utc,main_activity", "state series time", "main_activity user_id time_utc"),
        ("minute,what", "state series time", "what None minute"),
        ("Person,Lat,Lng,Date", "latitude longitude series time", "Lat Lng Person Date"),
        ("y,x", "latitude longitude", "None None"),
    ],
)
def test_columns_are_guessed_by_their_names(columns: str, roles: str, wanted: str) -> None:
    table = pl.DataFrame({name: [1.5, 2.5] for name in columns.split(",")})
    for name in ("main_activity", "what"):
        if name in table.columns:
            table = table.with_columns(pl.Series(name, ["a", "b"]))
    found = guess_columns(table, tuple(roles.split()))
    assert " ".join(str(found[role]) for role in roles.split()) == wanted


def test_a_column_of_texts_is_no_latitude() -> None:
    table = pl.DataFrame({"lat": ["north", "south"], "lon": [1.0, 2.0]})
    assert guess_columns(table, ("latitude", "longitude")) == {"latitude": None, "longitude": "lon"}


def test_the_few_pauses_of_a_series_cut_it_and_the_many_do_not() -> None:
    owners = pl.Series(["a"] * 40)
    seconds = [60.0 * at + (3600 if at > 20 else 0) for at in range(40)]
    assert gap_of(owners, pl.Series(seconds))[0] == "90s"
    assert gap_of(owners, pl.Series([60.0 * at for at in range(40)])) == (None, "")
    uneven = [60.0 * at + (300 if at % 3 else 0) + 400 * (at // 3) for at in range(40)]
    gap, words = gap_of(owners, pl.Series(uneven))
    assert gap is None
    assert "each counts as one step" in words


@pytest.mark.parametrize(
    ("name", "text", "room"),
    [
        ("a.csv", "time,state\n1,a\n", "leak"),
        ("a.csv", "user,LAT,lon\n", "places"),
        ("a.tsv", "lat\tlongitude\n", "places"),
        ("a.gpx", "", "places"),
        ("a.db", "", "budget"),
        ("a.toml", "", "audit"),
        ("a.bif", "", "ties"),
        ("a.csv", "", "leak"),
        ("a.parquet", "no table", "leak"),
    ],
)
def test_a_file_is_for_the_room_its_name_and_columns_say(
    tmp_path: Path, name: str, text: str, room: str
) -> None:
    (tmp_path / name).write_text(text)
    assert room_of(tmp_path / name) == room


def test_the_columns_of_a_parquet_file_are_read_without_its_rows(tmp_path: Path) -> None:
    pl.DataFrame({"lat": [1.0], "lon": [2.0]}).write_parquet(tmp_path / "a.parquet")
    assert columns_of(tmp_path / "a.parquet") == ["lat", "lon"]
    assert room_of(tmp_path / "a.parquet") == "places"


def test_empty_cells_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,state\n1,a\n2,\n3,b\n")
    found = look({"file": str(tmp_path / "a.csv"), "room": "leak"}, quiet)
    assert found["empty"] == "Empty cells: 1 of 3 in 'state'."
    assert found["ready"]


def test_a_room_without_columns_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no columns to choose in the room 'budget'"):
        look({"file": "a.csv", "room": "budget"}, quiet)
    with pytest.raises(InputError, match="no column is chosen for the time"):
        chosen({"columns": {"state": "a"}}, "day")


TRACK = "user,time,lat,lon\n" + "".join(
    f"{who},2026-03-02T08:{at:02d}:00,{52.5 + 0.004 * (at % 9)},{13.4 + 0.01 * (who == 'b')}\n"
    for who in "ab"
    for at in range(40)
)


def source(folder: Path, text: str) -> dict[str, Any]:
    (folder / "track.csv").write_text(text)
    columns = {"latitude": "lat", "longitude": "lon", "series": "user", "time": "time"}
    return {"file": str(folder / "track.csv"), "columns": columns}


def test_one_bad_fix_does_not_stretch_the_map(tmp_path: Path) -> None:
    good = map_from_file(source(tmp_path, TRACK * 1))
    many = TRACK + "".join(
        f"c,2026-03-02T{9 + at // 60:02d}:{at % 60:02d}:00,52.51,13.405\n" for at in range(300)
    )
    bad = map_from_file(source(tmp_path, many + "a,2026-03-02T20:00:00,0.0,0.0\n"))
    assert bad.cell_km == good.cell_km
    assert "1 positions lie beyond the map" in bad.about


def test_the_track_that_is_played_is_that_of_the_person(tmp_path: Path) -> None:
    params = source(tmp_path, TRACK)
    track = own_track({**params, "person": "b"}, 10)
    assert len(track) == 10
    assert {longitude for _, longitude in track} == {13.41}
    with pytest.raises(InputError, match="nobody in the file is called 'x'"):
        own_track({**params, "person": "x"}, 10)


def test_a_step_is_the_usual_time_between_readings_rounded_up() -> None:
    table = pl.DataFrame({"user": ["a"] * 5, "seconds": [0.0, 40.0, 80.0, 120.0, 4000.0]})
    assert step_of(table) == 60.0
    assert step_of(table.drop("seconds")) is None


def test_a_map_that_the_command_line_stored_opens_in_places_with_a_track(tmp_path: Path) -> None:
    """1,892 cells of `shoal fit --grid 0.34`: more than the studio draws of its own."""
    grid = SquareGrid.covering(south=52.4, west=13.2, north=52.53, east=13.41, cell_km="0.34")
    chain = free_walk(grid, stay=0.6)
    assert chain.size > 1024
    map_file = tmp_path / "town.json"
    map_file.write_text(dumps(chain) + "\n")
    assert room_of(map_file) == "places"
    policy = {"graph": "radius", "radius_km": 0.5, "epsilon": 1.0, "model": str(map_file)}
    alone = places.plan(policy, quiet)
    assert len(alone["map"]["cells"]) == chain.size
    assert f"{chain.size:,} cells of 0.34 km" in alone["about"]
    track = source(tmp_path, TRACK.replace("13.4", "13.3"))
    own = places.plan({**policy, **track}, quiet)
    assert own["plan"] == alone["plan"]
    assert own["people"] == ["a", "b"]
    shown = {**track, "plans": [own["plan"]], "titles": [""], "person": "a", "steps": 5}
    assert places.play(shown, quiet)["player"]["count"] == 5


def test_other_stored_documents_are_not_taken_for_maps(tmp_path: Path) -> None:
    grid = SquareGrid.covering(south=52.4, west=13.2, north=52.43, east=13.25, cell_km="0.5")
    chain = free_walk(grid, stay=0.6)
    where = coordinates(chain)
    plan = calibrate(where, PolicyGraph.within(where, 1), chain, epsilon=1)
    (tmp_path / "plan.json").write_text(dumps(plan))
    assert room_of(tmp_path / "plan.json") == "audit"
    (tmp_path / "m.json").write_text(dumps(MarkovChain.of([[0.5, 0.5], [0.5, 0.5]])))
    with pytest.raises(InputError, match="holds a MarkovChain; the Places room opens a map"):
        places.plan({"model": str(tmp_path / "m.json")}, quiet)
