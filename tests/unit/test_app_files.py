"""Files of apps, watches and meters: known by their content, read rightly, refused in words."""

from __future__ import annotations

import importlib.util
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import shoal
from shoal.core.errors import DataError
from shoal.data.formats import WHAT_IS_READ, format_of, read_known
from shoal.data.json_items import json_items
from shoal.data.markup import MAX_DEPTH, elements
from shoal.data.positions import day_traces
from shoal.data.track_files import moment_of
from shoal.places.formats import read_track
from tests import app_files
from tests.app_files import BEGIN, SERIES, TRACKS, Point, walk, write

NAMES = {
    "ride.gpx": "GPX",
    "dawarich.json": "GeoJSON",
    "line.geojson": "GeoJSON",
    "way.kml": "KML",
    "run.tcx": "TCX",
    "Timeline.json": "Google Timeline",
    "location-history.json": "Google Timeline",
    "Records.json": "Google Takeout Records",
    "2024_MAY.json": "Google Takeout semantic history",
    "2024-05.rec": "OwnTracks recorder",
    "skmob.csv": "scikit-mobility CSV",
    "positionfixes.csv": "trackintel CSV",
    "usage.xml": "Green Button",
    "export.xml": "Apple Health",
    "heart_rate-2024-05-04.json": "Fitbit JSON",
}
NAMELESS = ("run.tcx", "Timeline.json", "location-history.json", "Records.json", "2024_MAY.json")


def check_track(table: pl.DataFrame, points: list[Point], user: str) -> None:
    assert table.columns == ["user", "time", "lat", "lon"]
    assert table["time"].dtype == pl.Datetime("us", "UTC")
    assert table["user"].unique().to_list() == [user]
    assert table["time"].to_list() == [time for *_, time in points]
    for column, index in (("lat", 0), ("lon", 1)):
        wanted = [point[index] for point in points]
        assert table[column].to_list() == pytest.approx(wanted, abs=1.1e-7)


@pytest.mark.parametrize("name", TRACKS)
def test_a_track_of_every_app_is_the_same_walk(name: str, tmp_path: Path) -> None:
    points = walk(30)
    path = write(tmp_path, name, TRACKS[name](points))
    assert format_of(path).name == NAMES[name]
    check_track(read_track(path), points, path.stem if name in NAMELESS else "ann")


@pytest.mark.parametrize("name", [*TRACKS, *SERIES])
def test_a_format_is_known_by_content_whatever_the_file_is_called(
    name: str, tmp_path: Path
) -> None:
    content = TRACKS[name](walk(5)) if name in TRACKS else SERIES[name]()
    assert format_of(write(tmp_path, "file.dat", content)).name == NAMES[name]


def test_a_fit_file_of_a_watch_is_read_or_says_what_to_install(tmp_path: Path) -> None:
    points = walk(12)
    path = write(tmp_path, "run.fit", app_files.fit_file(points))
    assert format_of(path).name == "FIT"
    if importlib.util.find_spec("fitdecode") is None:
        with pytest.raises(shoal.InputError, match=r"pip install 'shoal\[tracks\]'.*GPX"):
            read_track(path)
        pytest.skip("fitdecode is not installed; the refusal was checked instead")
    check_track(read_track(path), points, "run")
    damaged = write(tmp_path, "cut.fit", app_files.fit_file(points)[:-9])
    with pytest.raises(DataError, match="damaged or cut short"):
        read_track(damaged)


def test_tracks_without_times_have_none(tmp_path: Path) -> None:
    table = read_track(write(tmp_path, "bare.gpx", app_files.gpx(walk(4), timed=False)))
    assert table["time"].null_count() == 4
    assert table["time"].dtype == pl.Datetime("us", "UTC")


def test_readings_of_a_meter_have_their_unit_and_their_end(tmp_path: Path) -> None:
    path = write(tmp_path, "usage.xml", app_files.green_button(3))
    table = read_known(path, format_of(path))
    assert table["unit"].unique().to_list() == ["Wh"]
    assert table["time"].to_list() == [BEGIN + timedelta(hours=k) for k in range(3)]
    assert (table["end"] - table["time"]).unique().to_list() == [timedelta(hours=1)]
    values = [float(text.partition("<")[0]) for text in path.read_text().split("<value>")[1:]]
    assert table["value"].to_list() == [value / 1000 for value in values]
    other = write(tmp_path, "gas.xml", app_files.green_button(2, power=0, code=169))
    assert read_known(other, format_of(other))["unit"].to_list() == ["therm", "therm"]


def test_two_reading_types_need_links(tmp_path: Path) -> None:
    text = app_files.green_button(2)
    kind = text[text.index("<entry>", 200) : text.index("</entry>", text.index("ReadingType x"))]
    doubled = text.replace("</feed>", f"{kind.replace('/7', '/8')}</entry></feed>")
    path = write(tmp_path, "two.xml", doubled)
    assert read_known(path, format_of(path))["unit"].to_list() == ["Wh", "Wh"]  # by its link
    lost = write(tmp_path, "lost.xml", doubled.replace('rel="related"', 'rel="other"'))
    with pytest.raises(DataError, match="2 reading types"):
        read_known(lost, format_of(lost))


def test_health_records_keep_type_value_and_span(tmp_path: Path) -> None:
    path = write(tmp_path, "export.xml", app_files.apple_health(4))
    table = read_known(path, format_of(path))
    assert table["series"].to_list() == ["HeartRate"] * 4 + ["SleepAnalysis"]
    assert table["value"][-1] == "InBed"
    assert table["end"][-1] - table["time"][-1] == timedelta(hours=6)
    assert table["time"][1] == BEGIN + timedelta(minutes=1)


def test_a_reading_with_an_end_fills_the_slots_it_lasts_into(tmp_path: Path) -> None:
    path = write(tmp_path, "export.xml", app_files.apple_health(1))  # in bed from 8:00 to 14:00
    kept = {"where": "series = 'SleepAnalysis'", "state": "value", "time": "time"}
    found = day_traces(path, "1h", **kept)
    assert found.days == [[None] * 8 + ["InBed"] * 6 + [None] * 10]
    assert (found.readings, found.outside, found.further) == (1, 0, 0)
    local = day_traces(path, "1h", tz="Asia/Tokyo", **kept)  # 17:00 to 23:00
    assert local.days == [[None] * 17 + ["InBed"] * 6 + [None]]
    night = day_traces(path, "1h", tz="America/Los_Angeles", **kept)  # 1:00 to 7:00
    assert night.days == [[None] + ["InBed"] * 6 + [None] * 17]
    part = day_traces(path, "30min", "10:00-12:00", **kept)
    assert part.days == [["InBed"] * 4]
    long = path.read_text().replace('endDate="2024-05-04 14:00', 'endDate="2025-05-04 14:00')
    with pytest.raises(DataError, match="a reading lasts 365 days"):
        day_traces(write(tmp_path, "long.xml", long), "1h", **kept)


def test_fitbit_entries_and_stages_of_sleep_are_measurements(tmp_path: Path) -> None:
    path = write(tmp_path, "heart_rate-2024-05-04.json", app_files.fitbit(3))
    table = read_known(path, format_of(path))
    assert table["series"].to_list() == ["heart_rate"] * 3
    assert table["time"][2] == BEGIN + timedelta(minutes=2)
    stages = [{"dateTime": "2024-05-04T23:00:00.000", "level": "deep", "seconds": 90}]
    sleep = write(tmp_path, "sleep.json", json.dumps([{"logId": 1, "levels": {"data": stages}}]))
    row = read_known(sleep, format_of(sleep)).row(0, named=True)
    assert (row["value"], row["end"] - row["time"]) == ("deep", timedelta(seconds=90))


BOMB = (
    '<!DOCTYPE gpx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><gpx><trk><name>&b;</name></trk></gpx>'
)
OUTSIDE = '<!DOCTYPE gpx [<!ENTITY a SYSTEM "file:///etc/passwd">]><gpx><name>&a;</name></gpx>'


@pytest.mark.parametrize("text", [BOMB, OUTSIDE, BOMB.encode("utf-16")])
def test_entities_are_never_expanded(text: str | bytes, tmp_path: Path) -> None:
    path = write(tmp_path, "a.gpx", text)
    with pytest.raises(DataError, match="declares entities"):
        list(elements(path, ("trkpt", "name")))


def test_a_document_type_that_is_no_proper_one_is_skipped(tmp_path: Path) -> None:
    broken = app_files.apple_health(3).replace("<!ATTLIST Me", "ATTLIST Me")
    path = write(tmp_path, "export.xml", broken)
    assert read_known(path, format_of(path)).height == 4


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.gpx", "<gpx>" + "<a>" * (MAX_DEPTH + 1), "elements inside each other"),
        ("a.gpx", "<gpx><trk><trkpt lat='1' lon='2'>", "may be cut short"),
        ("a.gpx", "<gpx><trk><trkpt lon='2'/></trk></gpx>", "at position 1"),
        ("Records.json", '{"locations": [{"latitudeE7": 1, "longitudeE7": 2}, {', "cut short"),
        ("a.json", '{"timelineObjects": [3]}', "is not built as Google Takeout"),
        (
            "a.json",
            '{"features": [{"geometry": {"type": "Point", "coordinates": [1]}}]}',
            "None, 1",
        ),
        ("a.rec", "2024-05-04T08:00:00Z\t*      \t{broken\n", "line 1"),
        ("a.zip", b"PK\x03\x04rest", "ZIP archive; unpack"),
        ("track.gpx.gz", b"\x1f\x8brest", "packed with gzip; unpack"),
        ("a.txt", "hello\nworld\n", "no known format; Shoal reads tables"),
        ("a.html", "<html><body/></html>", "no known format; Shoal reads tables"),
        ("a.bin", bytes(range(256)), "no known format; Shoal reads tables"),
        ("empty", "", "is empty; Shoal reads tables"),
    ],
)
def test_other_files_are_refused_in_a_sentence(
    name: str, content: str | bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=words):
        read_track(write(tmp_path, name, content))


def test_the_list_of_what_is_read_names_every_format() -> None:
    for name in (*NAMES.values(), "FIT", "CSV", "TSV", "Parquet", "JSON Lines"):
        assert name.split()[0] in WHAT_IS_READ


@pytest.mark.parametrize(
    "document",
    [
        {"a": 1, "b": [1, {"c": [2]}], "d": {"e": "]}"}, "f": []},
        [1, "two", {"three": [3]}, 4.5e6, None],
        {},
        [],
    ],
)
@pytest.mark.parametrize("chunk", [1, 3, 1 << 18])
def test_json_is_read_item_by_item(
    document: Any, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.data.json_items.CHUNK_CHARACTERS", chunk)
    path = write(tmp_path, "a.json", json.dumps(document, indent=2))
    found: Any = [] if isinstance(document, list) else {}
    for item in json_items(path):
        if isinstance(document, list):
            found.append(item.value)
        elif item.listed:
            found.setdefault(item.key, []).append(item.value)
        else:
            found[item.key] = item.value
    wanted = (
        document if isinstance(document, list) else {k: v for k, v in document.items() if v != []}
    )
    assert found == wanted


@pytest.mark.parametrize(
    "text", ["", "{", "[1,", "[1,]", '{"a" 1}', "[1] 2", '{"a": 1,}', "tru", "[1 2]"]
)
def test_broken_json_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not JSON as it should be"):
        list(json_items(write(tmp_path, "a.json", text)))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1714809600, 1714809600.0),
        ("1714809600", 1714809600.0),
        (1714809600123, 1714809600.123),
        (1714809600123456, 1714809600.123456),
        ("2024-05-04T08:00:00Z", 1714809600.0),
        ("2024-05-04T10:00:00.5+02:00", 1714809600.5),
        ("2024-05-04 08:00", 1714809600.0),
    ],
)
def test_times_are_text_or_numbers_since_1970(value: Any, seconds: float) -> None:
    moment = moment_of(value)
    assert moment is not None
    assert moment.timestamp() == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize("value", [True, "soon", [], 1e30])
def test_other_times_are_none(value: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        moment_of(value)


def test_numbers_that_overflowed_are_mended(tmp_path: Path) -> None:
    places = [
        {"latitudeE7": -330000000 + 2**32, "longitudeE7": -700000000 + 2**32, "timestampMs": "1"}
    ]
    table = read_track(write(tmp_path, "Records.json", json.dumps({"locations": places})))
    assert table.select("lat", "lon").row(0) == (-33.0, -70.0)


def test_a_folder_of_files_is_all_of_them_and_kinds_are_not_mixed(tmp_path: Path) -> None:
    from shoal.data.read import columns_of, matching

    inside = tmp_path / "rides" / "may"
    inside.mkdir(parents=True)
    write(inside, "a.gpx", app_files.gpx(walk(3)))
    write(inside, "b.gpx", app_files.gpx(walk(3)))
    write(inside, ".hidden", "x")
    assert [file.name for file in matching(tmp_path / "rides")] == ["a.gpx", "b.gpx"]
    several = [str(inside / "b.gpx"), str(inside / "*.gpx")]
    assert [file.name for file in matching(several)] == ["b.gpx", "a.gpx"]
    write(inside, "usage.xml", app_files.green_button(3))
    with pytest.raises(DataError, match=r"is GPX and .* is Green Button; name files whose columns"):
        columns_of(tmp_path / "rides")
