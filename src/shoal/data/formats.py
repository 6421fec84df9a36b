"""Which format a file is of, by what is in it, and the files of apps and meters as tables.

A table (CSV, Parquet, JSON Lines) has columns its owner names. A track or a series has columns of
its own, which need not be named: `FileFormat.columns` says which role each of them has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from shoal.core.errors import DataError

if TYPE_CHECKING:
    import polars as pl

HEAD_BYTES = 1 << 16  # of a file that are looked at
MAX_KEPT_BYTES = 1 << 25  # of a file whose table is kept: some years of a meter
FILES_KEPT = 8  # tables kept at most
FIRST_ITEMS = 3  # of a JSON document that are looked at
NO_COLUMNS: Mapping[str, str] = MappingProxyType({})
TRACK_COLUMNS = MappingProxyType(
    {"series": "user", "time": "time", "latitude": "lat", "longitude": "lon"}
)
SERIES_COLUMNS = MappingProxyType({"series": "series", "time": "time", "state": "value"})
TABLE_SUFFIXES = MappingProxyType(
    {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
)
WHAT_IS_READ = (
    "Shoal reads tables (CSV, TSV, Parquet, JSON Lines), tracks (GPX, GeoJSON, KML, TCX, FIT, "
    "Google Timeline and Takeout, OwnTracks, CSV of scikit-mobility and trackintel) and series "
    "(Green Button, Apple Health, Fitbit JSON); and points of interest (OpenStreetMap, GeoJSON)"
)


class FileFormat(NamedTuple):
    """A format: its name, what it holds, its own columns by role, and the module:name that reads.

    `reader` is empty for tables; `kind` is what polars calls a table's format.
    """

    name: str
    shape: Literal["table", "track", "series", "points"]
    columns: Mapping[str, str] = NO_COLUMNS
    reader: str = ""
    kind: str = ""


def _track(name: str, reader: str) -> FileFormat:
    return FileFormat(name, "track", TRACK_COLUMNS, f"track_files:{reader}")


def _series(name: str, reader: str) -> FileFormat:
    return FileFormat(name, "series", SERIES_COLUMNS, f"series_files:{reader}")


TABLE_FORMATS = {
    "csv": FileFormat("CSV", "table", kind="csv"),
    "tsv": FileFormat("TSV", "table", kind="tsv"),
    "parquet": FileFormat("Parquet", "table", kind="parquet"),
    "jsonl": FileFormat("JSON Lines", "table", kind="jsonl"),
}
GPX, KML = _track("GPX", "gpx_readings"), _track("KML", "kml_readings")
TCX, FIT = _track("TCX", "tcx_readings"), _track("FIT", "fit_readings")
GEOJSON = _track("GeoJSON", "geojson_readings")
TIMELINE = _track("Google Timeline", "timeline_readings")
RECORDS = _track("Google Takeout Records", "records_readings")
SEMANTIC = _track("Google Takeout semantic history", "semantic_readings")
OWNTRACKS = _track("OwnTracks recorder", "owntracks_readings")
SKMOB = FileFormat(
    "scikit-mobility CSV",
    "track",
    MappingProxyType({"series": "uid", "time": "datetime", "latitude": "lat", "longitude": "lng"}),
    kind="csv",
)
TRACKINTEL = FileFormat(
    "trackintel CSV",
    "track",
    MappingProxyType(
        {"series": "user_id", "time": "tracked_at", "latitude": "lat", "longitude": "lon"}
    ),
    kind="csv",
)
OSM = FileFormat("OpenStreetMap", "points", kind="points")
GREEN_BUTTON = _series("Green Button", "green_button_rows")
APPLE_HEALTH = _series("Apple Health", "apple_health_rows")
FITBIT = _series("Fitbit JSON", "fitbit_rows")
ROOTS = {
    "gpx": GPX,
    "kml": KML,
    "TrainingCenterDatabase": TCX,
    "HealthData": APPLE_HEALTH,
    "osm": OSM,
}
PACKED = {b"PK\x03\x04": "a ZIP archive", b"\x1f\x8b": "packed with gzip"}
_OWNTRACKS_LINE = re.compile(r"\S+\t\S+ *\t\{")


def format_of(path: Path) -> FileFormat:
    """The format of a file by its content; refused, with all that is read, when it is none."""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    named = TABLE_FORMATS.get(TABLE_SUFFIXES.get(path.suffix.lower(), ""))
    if not head and named is None:
        raise DataError(f"{str(path)!r} is empty; {WHAT_IS_READ}")
    if head.startswith(b"PAR1"):
        return TABLE_FORMATS["parquet"]
    if head[8:12] == b".FIT":
        return FIT
    packed = next((words for mark, words in PACKED.items() if head.startswith(mark)), None)
    if packed is not None and named is None:
        raise DataError(f"{str(path)!r} is {packed}; unpack it and name the file inside")
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    found = None
    if text.startswith("<"):
        found = _of_markup(text)
    elif text.startswith(("{", "[")) and path.suffix.lower() not in (".jsonl", ".ndjson"):
        found = _of_json(path, text)
    elif _OWNTRACKS_LINE.match(text):
        found = OWNTRACKS
    elif text and (named is None or named.kind == "csv"):
        found = _of_lines(text, named)
    if found is None and named is None:
        raise DataError(f"{str(path)!r} is of no known format; {WHAT_IS_READ}")
    return found or named or TABLE_FORMATS["csv"]


def _of_markup(text: str) -> FileFormat | None:
    """Return the format of XML text by its root element, None for an unknown one."""
    from shoal.data.markup import root_of

    tag, _ = root_of(text)
    if tag == "feed" and "naesb.org/espi" in text:
        return GREEN_BUTTON
    return ROOTS.get(tag)


def _of_json(path: Path, text: str) -> FileFormat | None:
    """Return the format of JSON text by its first items, None for an unknown one.

    Only the first 12 items are read.
    """
    from shoal.data.json_items import json_items

    first, _, rest = text.partition("\n")
    if rest.lstrip().startswith("{") and _is_object(first):
        return TABLE_FORMATS["jsonl"]
    keys: set[str] = set()
    for item in islice(json_items(path), 12):
        keys |= {item.key, f"{item.key}={item.value}" if item.key == "type" else item.key}
        inside = item.value if item.listed and isinstance(item.value, Mapping) else {}
        if item.key == "" and {"visit", "activity", "timelinePath"} & set(inside):
            return TIMELINE
        if item.key == "" and ("levels" in inside or {"dateTime", "value"} <= set(inside)):
            return FITBIT
        if item.key == "elements" and {"type", "id"} <= set(inside):
            return OSM
        if item.key == "locations" and "latitudeE7" in inside:
            return RECORDS
    by_key = {"semanticSegments": TIMELINE, "rawSignals": TIMELINE, "timelineObjects": SEMANTIC}
    known = next((by_key[key] for key in keys if key in by_key), None)
    return known or (GEOJSON if keys & {"features", "geometry", "coordinates"} else None)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _of_lines(text: str, named: FileFormat | None) -> FileFormat | None:
    """The format of lines of text: known by the names of their columns, or a table of any."""
    first, *more = islice(text.splitlines(), 3)
    columns = {name.strip().strip('"') for name in first.split(",")}
    if {"tracked_at", "geom", "user_id"} <= columns:
        return TRACKINTEL
    if {"lat", "lng", "datetime"} <= columns:
        own = {role: name for role, name in SKMOB.columns.items() if name in columns}
        return SKMOB._replace(columns=own)
    if named is not None or not more or "\0" in text or "\ufffd" in text:
        return named
    marks = [
        (first.count(mark), kind) for mark, kind in (("\t", "tsv"), (",", "csv"), (";", "csv"))
    ]
    most, kind = max(marks)
    return TABLE_FORMATS[kind] if most else None


def own_columns(files: Iterable[Path], *, tables: bool = True) -> Mapping[str, str]:
    """Role to column of files that name their own columns; none for other tables.

    Without `tables` also none for tables whose columns have the names of a known program.

    Refused when some of the files are tables and others are not: one command reads one kind.
    """
    formats = {file: format_of(file) for file in files}
    first, own = next(iter(formats.items()))
    other = next((file for file, each in formats.items() if each.columns != own.columns), None)
    if other is not None:
        raise DataError(
            f"{str(first)!r} is {own.name} and {str(other)!r} is {formats[other].name}; name files "
            "whose columns are called alike, such as all the GPX files"
        )
    return own.columns if tables or own.reader else NO_COLUMNS


def read_known(path: Path, known: FileFormat) -> pl.DataFrame:
    """The table of a track or a series, all columns.

    A command asks for the unit, the rows and the pauses of a file: small files are kept, and read
    again when they change.
    """
    state = path.stat()
    if state.st_size > MAX_KEPT_BYTES:
        return _read_known(path, known)
    return _read_kept(path.absolute(), known.name, state.st_mtime_ns, state.st_size, path)


@lru_cache(maxsize=FILES_KEPT)
def _read_kept(absolute: Path, name: str, changed: int, size: int, path: Path) -> pl.DataFrame:
    """The table of a file in the state that its time and its size say."""
    return _read_known(path, format_of(path))


def _read_known(path: Path, known: FileFormat) -> pl.DataFrame:
    """The table of a track or a series, read from the file."""
    import polars as pl

    if known is OSM:
        from shoal.data.points import read_points

        return read_points(path)
    if not known.reader:
        found = pl.read_csv(path, infer_schema=False)
        return _with_degrees(path, found) if known is TRACKINTEL else found
    from importlib import import_module

    module, _, name = known.reader.partition(":")
    home = import_module(f"shoal.data.{module}")
    read: Callable[[Path], Any] = getattr(home, name)
    table_of = home.track_table if known.shape == "track" else home.series_table
    try:
        table: pl.DataFrame = table_of(path, read(path))
    except (AttributeError, KeyError, TypeError, IndexError):  # a file may hold anything
        raise DataError(f"{str(path)!r} is not built as {known.name} is; make it again") from None
    return table


def _with_degrees(path: Path, table: pl.DataFrame) -> pl.DataFrame:
    """The table with lat and lon from points such as "POINT (13.4 52.5)"."""
    import polars as pl

    found = pl.col("geom").str.extract_groups(
        r"^\s*POINT\s*\(\s*(?<lon>-?[0-9.]+)\s+(?<lat>-?[0-9.]+)"
    )
    made = table.with_columns(found.struct.field("lat"), found.struct.field("lon"))
    if made["lat"].null_count():
        row = int(made["lat"].is_null().arg_max() or 0) + 1
        raise DataError(f"{str(path)!r}: column 'geom' holds no POINT in row {row}; correct it")
    return made
