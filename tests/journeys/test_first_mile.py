"""From the file people have to a release, by the commands that are printed and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import shoal
from shoal.core.registry import loads
from shoal.spec.request import read_request
from tests import app_files
from tests.app_files import SERIES, TRACKS, walk, write
from tests.journeys.typed import Typed


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    return Typed(tmp_path)


@pytest.mark.parametrize("name", ["ride.gpx", "dawarich.json", "Timeline.json", "skmob.csv"])
def test_a_track_is_fitted_planned_and_released_as_printed(typed: Typed, name: str) -> None:
    write(typed.folder, name, TRACKS[name](walk(40)))
    steps = typed.follow(f"shoal fit {name} -o m.json --grid 1 --spec r.toml")
    assert [step.split()[1] for step in steps] == ["fit", "plan", "release"]
    released = json.loads((typed.folder / "r-released.geojson").read_text())
    assert len(released["features"]) == 41


def test_a_track_without_times_is_released_step_by_step(typed: Typed) -> None:
    write(typed.folder, "bare.gpx", app_files.gpx(walk(30), timed=False))
    typed.follow("shoal fit bare.gpx -o m.json --grid 1 --spec r.toml")
    said = typed.refused("shoal fit bare.gpx -o n.json --grid 1 --every 1min")
    assert "--every is given without times" in said


def test_a_folder_and_several_files_are_fitted_together(typed: Typed) -> None:
    rides = typed.folder / "rides"
    rides.mkdir()
    for day in ("a", "b"):
        write(rides, f"{day}.gpx", app_files.gpx(walk(30)).replace("ann", day))
    (of_folder,) = typed.run("shoal fit rides -o f.json --grid 1 --json").splitlines()[-1:]
    typed.run("shoal fit rides/a.gpx rides/b.gpx -o g.json --grid 1")
    assert (typed.folder / "f.json").read_text() == (typed.folder / "g.json").read_text()
    assert of_folder


def test_help_names_the_formats_and_a_refusal_says_what_to_do(typed: Typed) -> None:
    said = typed.run("shoal fit --help")
    for word in ("GPX", "GeoJSON", "KML", "FIT", "Timeline", "Green Button", "Apple Health"):
        assert word in said
    write(typed.folder, "notes.txt", "hello\nworld\n")
    said = typed.refused("shoal fit notes.txt -o m.json --grid 1")
    assert "Shoal reads tables (CSV" in said
    write(typed.folder, "days.csv", "a,b\n1,2\n")
    assert "`shoal read days.csv`" in typed.refused("shoal fit days.csv -o m.json --grid 1")
    assert "`shoal read days.csv`" in typed.refused("shoal fit days.csv -o m.json")


def test_the_step_of_a_model_is_kept_and_another_one_refused(typed: Typed) -> None:
    write(typed.folder, "ride.gpx", app_files.gpx(walk(120, seconds=20)))
    typed.follow("shoal fit ride.gpx -o m.json --grid 1 --every 1min --spec r.toml")
    model = loads((typed.folder / "m.json").read_text())
    assert model.step_seconds == 60
    assert "a step every 60 s" in model.describe()
    released = typed.folder / "r-released.geojson"
    assert len(json.loads(released.read_text())["features"]) == 41  # 120 positions in 40 minutes
    typed.run("shoal release r.toml ride.gpx -o same.csv --every 60s")
    said = typed.refused("shoal release r.toml ride.gpx -o other.csv --every 5min")
    assert "a step of the model is 60 s" in said
    said = typed.refused("shoal attack r.toml ride.gpx --every 5min")
    assert "a step of the model is 60 s" in said
    typed.run("shoal attack r.toml ride.gpx --steps 5")


def test_a_track_knows_its_columns_in_python_too(typed: Typed) -> None:
    path = write(typed.folder, "ride.gpx", app_files.gpx(walk(30)))
    typed.run("shoal fit ride.gpx -o m.json --grid 1 --spec r.toml")
    plan = read_request(typed.folder / "r.toml").plan()
    track = shoal.places.read_track(path)
    for data in (track, path, str(path), track.to_pandas()):
        rows = shoal.places.release_tracks(plan, data, seed=1)
        assert len(rows) == 30
    assert pl.DataFrame(rows)["time"].dtype == pl.Datetime("us", "UTC")
    with pytest.raises(shoal.InputError, match="'colour' is no keyword"):
        shoal.places.release_tracks(plan, track, colour="red")
    with pytest.raises(shoal.InputError, match="name latitude and longitude"):
        shoal.places.release_tracks(plan, pl.DataFrame({"a": [1]}))


@pytest.mark.parametrize(
    "name", ["ride.gpx", "2024-05.rec", "positionfixes.csv", "usage.xml", "export.xml"]
)
def test_what_read_prints_leads_to_a_release(typed: Typed, name: str) -> None:
    content = TRACKS[name](walk(40)) if name in TRACKS else SERIES[name]()
    write(typed.folder, name, content)
    steps = typed.follow(f"shoal read {name}")
    assert [step.split()[1] for step in steps] == ["read", "fit", "plan", "release"]


def test_read_says_what_is_in_tables_and_folders(typed: Typed) -> None:
    days_csv(typed.folder)
    said = typed.run("shoal read days.csv")
    assert "2: ann, bob" in said
    assert "no zone is named: --tz says one" in said
    assert "3 different: clinic, home, work" in said
    steps = typed.follow("shoal read days.csv")
    assert "--state context --series person --time time" in steps[1]
    holes = (typed.folder / "days.csv").read_text().replace("T10:00:00,work", "T10:00:00,")
    write(typed.folder, "holes.csv", holes.replace("time,", "when,"))
    steps = typed.follow("shoal read holes.csv")
    assert "--missing gap" in steps[1]
    rooms = ["house,room,time,status"]
    rooms += [f"h,{room},2024-03-01T08:{k:02d}:00,{'on' if k % 3 else 'off'}"
              for room in ("bath", "hall") for k in range(40)]  # fmt: skip
    write(typed.folder, "rooms.csv", "\n".join([*rooms, ""]))
    steps = typed.follow("shoal read rooms.csv")
    assert "--series house,room" in steps[1]
    write(typed.folder, "twice.csv", "time,status\n1,on\n1,off\n2,on\n")
    said = typed.run("shoal read twice.csv")
    assert "Some rows of a series have the same time" in said
    assert "shoal fit" not in said
    rides = typed.folder / "rides"
    rides.mkdir()
    for name in ("a", "b"):
        write(rides, f"{name}.gpx", app_files.gpx(walk(20)).replace("ann", name))
    found = json.loads(typed.run("shoal read rides --json"))
    assert (found["rows"], found["people"], found["step"]) == (40, ["a", "b"], 30.0)
    assert found["span"] == ["2024-05-04T08:00:00", "2024-05-04T08:09:30"]
    write(typed.folder, "bare.gpx", app_files.gpx(walk(4), timed=False))
    bare = json.loads(typed.run("shoal read bare.gpx --json"))
    assert (bare["span"], bare["step"]) == (None, None)
    far = [*walk(20), (48.1, 2.3, app_files.BEGIN)]
    write(typed.folder, "far.gpx", app_files.gpx(far, timed=False))
    assert "--box 52.30,13.19,52.70,13.59" in typed.run("shoal read far.gpx")


def test_read_finds_the_cell_of_a_point(typed: Typed) -> None:
    points = walk(40)
    write(typed.folder, "ride.gpx", app_files.gpx(points))
    typed.run("shoal fit ride.gpx -o m.json --grid 0.5")
    model = loads((typed.folder / "m.json").read_text())
    lat, lon, _ = points[7]
    told = json.loads(typed.run(f"shoal read m.json --at {lat},{lon} --json"))
    assert (told["cell"],) == shoal.places.zone(model, (lat, lon))
    assert told["inside"]
    assert told["distance_km"] < 0.36  # half the diagonal of a cell
    assert "lies off the map" in typed.run("shoal read m.json --at 1,2")
    assert "--at is for a model" in typed.refused("shoal read ride.gpx --at 1,2")
    assert "give a latitude and a longitude" in typed.refused("shoal read m.json --at 91,2")


def days_csv(folder: Path) -> Path:
    lines = ["person,time,context"]
    for person in ("ann", "bob"):
        for day in range(1, 6):
            for slot in range(48):
                context = "work" if 18 <= slot < 34 else "clinic" if slot == 35 else "home"
                lines.append(
                    f"{person},2024-03-{day:02d}T{slot // 2:02d}:{slot % 2 * 30:02d}:00,{context}"
                )
    return write(folder, "days.csv", "\n".join([*lines, ""]))


def test_a_full_day_and_its_start_at_midnight_are_planned(typed: Typed) -> None:
    days_csv(typed.folder)
    columns = "--state context --time time --series person"
    steps = typed.follow(
        f"shoal fit days.csv -o day.json --slot 2h {columns} --smoothing 1 --spec d.toml"
    )
    assert [step.split()[1] for step in steps] == ["fit", "plan", "attack"]
    typed.run("shoal init --kind contexts midnight.toml")
    written = (typed.folder / "midnight.toml").read_text()
    (typed.folder / "midnight.toml").write_text(
        written.replace("start_minute = 480", "start_minute = 0").replace("slots = 16", "slots = 4")
    )
    typed.run("shoal plan midnight.toml")


def test_a_spec_of_a_chain_states_its_length_from_the_data(typed: Typed) -> None:
    days_csv(typed.folder)
    columns = "--state context --time time --series person --gap 1h"
    said = typed.run(f"shoal fit days.csv -o c.json {columns} --spec c.toml")
    assert "chains of up to 240 entries, as many as the longest one of the data" in said
    typed.follow(f"shoal fit days.csv -o c.json {columns} --spec c.toml --force")


def test_amounts_need_a_range_from_which_bins_are_cut(typed: Typed) -> None:
    write(typed.folder, "usage.xml", app_files.green_button(240))
    said = typed.refused("shoal fit usage.xml -o m.json --spec s.toml")
    assert "such as --range 0,10" in said
    typed.follow("shoal fit usage.xml -o m.json --range 0,2kWh --bins 4 --spec s.toml")
    model = loads((typed.folder / "m.json").read_text())
    assert set(model.states) <= {"below 500", "500 to 1000", "1000 to 1500", "1500 or more"}
    said = typed.refused("shoal fit usage.xml -o n.json --range 0,2kW")
    assert "the data is in Wh" in said
    (typed.folder / "watts.csv").write_text("watts\n1\n2\n3\n")
    said = typed.refused("shoal fit watts.csv -o n.json --state watts --range 0,10kW")
    assert "the data names no unit" in said
    said = typed.run("shoal fit usage.xml -o q.json --bins 4")
    assert "the edges of the bins are found in the data" in said


def test_points_are_zones_and_places_of_a_spec(typed: Typed) -> None:
    points = walk(40)
    write(typed.folder, "ride.gpx", app_files.gpx(points))
    typed.run("shoal fit ride.gpx -o m.json --grid 1 --spec r.toml")
    model = loads((typed.folder / "m.json").read_text())
    lat, lon, _ = points[10]
    feature = {
        "type": "Feature",
        "properties": {"name": "home"},
        "geometry": {"type": "Point", "coordinates": [lon, lat]},
    }
    (cell,) = shoal.places.zone(model, feature)
    assert shoal.places.zone(model, (lat, lon)) == (cell,)
    near = shoal.places.zone(model, feature, radius_km=1)
    assert cell in near
    assert len(near) > 1
    document = {"type": "FeatureCollection", "features": [feature]}
    assert shoal.places.zones_of(model, document) == {"home": (cell,)}
    assert set(shoal.places.zones_of(model, document, radius_km=1)["home"]) == set(near)
    spec = typed.folder / "r.toml"
    policy = (
        'graph = "categories"\ncategories = [["home", "within 1 km of home"]]\n'
        f"places = {{ home = [{lat}, {lon}] }}\n"
    )
    written = spec.read_text()
    begin, end = written.index("graph ="), written.index("repair =")
    spec.write_text(written[:begin] + policy + written[end:])
    typed.run("shoal plan r.toml")


def test_a_walk_starts_at_a_point(typed: Typed) -> None:
    typed.run("shoal init --kind location walk.toml")
    spec = typed.folder / "walk.toml"
    spec.write_text(spec.read_text().replace('# start = "4,5"', "start = [52.51, 13.39]"))
    model: Any = read_request(spec).task.family[0]
    first = model.states[int(model.initial.argmax())]
    assert shoal.places.zone(model, (52.51, 13.39)) == (first,)
    spec.write_text(spec.read_text().replace("52.51, 13.39", "1.0, 2.0"))
    assert "lies off the map" in typed.refused("shoal plan walk.toml")


def test_joined_days_say_that_a_week_has_no_nights_left_out() -> None:
    day = shoal.DayChain.of(
        [[0.9, 0.1], [0.5, 0.5]],
        initial=[1, 0],
        states=["home", "out"],
        slots=32,
        slot_minutes=30,
        start_minute=420,
    )
    with pytest.raises(shoal.InputError, match=r"ends at 23:00 and the next begins at 07:00; .*24"):
        shoal.DayChain.joined([day] * 7)
