"""Points of interest: places with a name and a category, from OpenStreetMap, GeoJSON or a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError, InputError
from shoal.data.json_items import json_items
from shoal.data.markup import elements, root_of

if TYPE_CHECKING:
    import polars as pl

MAX_POINTS = 2_000_000  # of a file: all restaurants and shops of a large country
HEAD_BYTES = 1 << 12
CATEGORY = "category"  # the column that says what a place is, where a file names no other
# what OpenStreetMap calls the kind of a place, the first that is there counts
OSM_KEYS = ("amenity", "shop", "tourism", "leisure", "healthcare", "office", "craft", "historic")
WHAT_IS_READ = (
    "points of interest are read from OpenStreetMap (.osm, Overpass JSON), GeoJSON, and tables "
    "(CSV, TSV, Parquet, JSON Lines) with columns of latitude and longitude"
)

Row = dict[str, Any]


def read_points(path: str | Path) -> pl.DataFrame:
    """Return the columns lat and lon, and the properties of each place as text.

    An area is where the middle of its bounding box is. A file of OpenStreetMap gives its objects
    that have one of OSM_KEYS; a column `category` is added from these keys where none is there.
    """
    import polars as pl

    file = Path(path)
    if not file.is_file():
        raise InputError(f"no file is at {str(path)!r}; check the path")
    rows = _rows(file)
    table = _table(file) if rows is None else pl.DataFrame(list(rows), infer_schema_length=None)
    if not table.height:
        raise DataError(f"{str(path)!r} holds no points; {WHAT_IS_READ}")
    table = _in_degrees(file, table)
    keys = [key for key in OSM_KEYS if key in table.columns]
    if CATEGORY not in table.columns and keys:
        table = table.with_columns(pl.coalesce(keys).alias(CATEGORY))
    return table


def _rows(file: Path) -> Iterator[Row] | None:
    """Return the places of a file of OpenStreetMap or GeoJSON; None for tables."""
    with file.open("rb") as stream:
        head = stream.read(HEAD_BYTES).decode("utf-8-sig", errors="replace").lstrip()
    if head.startswith("<"):
        if root_of(head)[0] != "osm":
            raise DataError(f"{str(file)!r} is XML, but not of OpenStreetMap; {WHAT_IS_READ}")
        return _refuse_too_many(file, _of_osm(file))
    if not head.startswith("{") or file.suffix.lower() in (".jsonl", ".ndjson"):
        return None
    return _refuse_too_many(file, _of_json(file))


def _refuse_too_many(file: Path, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the rows; refused beyond MAX_POINTS."""
    for number, row in enumerate(rows):
        if number >= MAX_POINTS:
            raise DataError(
                f"{str(file)!r} holds more than {MAX_POINTS:,} points; cut out a region"
            )
        yield row


def _of_osm(file: Path) -> Iterator[Row]:
    """Yield nodes and ways of an extract that say what they are."""
    nodes: dict[str, tuple[float, float]] = {}
    for element in elements(file, ("node", "way")):
        tags = {
            child.attributes.get("k", ""): child.attributes.get("v", "")
            for child in element.children
            if child.tag == "tag"
        }
        known = any(key in tags for key in OSM_KEYS)
        if element.tag == "node":
            try:
                place = float(element.attributes["lat"]), float(element.attributes["lon"])
            except (KeyError, ValueError):
                continue  # a deleted node has no place
            nodes[element.attributes.get("id", "")] = place
            if known:
                yield {**tags, "lat": place[0], "lon": place[1]}
        elif known:
            own = [child.attributes.get("ref", "") for child in element.children]
            corners = [nodes[ref] for ref in own if ref in nodes]
            if corners:
                lat, lon = _middle(corners)
                yield {**tags, "lat": lat, "lon": lon}


def _of_json(file: Path) -> Iterator[Row]:
    """Yield the features of GeoJSON, or the elements of Overpass that have a place."""
    for item in json_items(file):
        if not item.listed or not isinstance(item.value, Mapping):
            continue
        if item.key == "elements":
            where = item.value.get("center") or item.value
            if "lat" in where and item.value.get("tags"):
                yield {**_texts(item.value["tags"]), "lat": where["lat"], "lon": where["lon"]}
        elif item.key == "features":
            corners = list(_corners((item.value.get("geometry") or {}).get("coordinates")))
            if corners:
                lat, lon = _middle(corners)
                yield {**_texts(item.value.get("properties") or {}), "lat": lat, "lon": lon}


def _texts(properties: Mapping[str, Any]) -> Row:
    """Return properties as texts; lists and objects are left out."""
    kept = ((key, value) for key, value in properties.items() if not isinstance(value, dict | list))
    return {str(key): None if value is None else str(value) for key, value in kept}


def _corners(coordinates: Any) -> Iterator[tuple[float, float]]:
    """Yield latitude and longitude of every position in the coordinates of a geometry."""
    if not isinstance(coordinates, list) or not coordinates:
        return
    if isinstance(coordinates[0], int | float):
        if len(coordinates) >= 2 and isinstance(coordinates[1], int | float):
            yield float(coordinates[1]), float(coordinates[0])
        return
    for part in coordinates:
        yield from _corners(part)


def _middle(corners: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the middle of the bounding box of points."""
    lats, lons = zip(*corners, strict=True)
    return (min(lats) + max(lats)) / 2, (min(lons) + max(lons)) / 2


def _table(file: Path) -> pl.DataFrame:
    """Return a table with its columns of latitude and longitude called lat and lon."""
    import polars as pl

    from shoal.data.entries import read_table
    from shoal.data.guess import guess_columns

    table = read_table(str(file))
    found = guess_columns(table, ("latitude", "longitude"))
    lat, lon = found["latitude"], found["longitude"]
    if lat is None or lon is None:
        raise DataError(
            f"{str(file)!r} has no numbers called lat and lon (or latitude and longitude); its "
            f"columns are {', '.join(table.columns[:12])}: rename two of them"
        )
    others = [name for name in table.columns if name not in (lat, lon)]
    flat = [name for name in others if not table[name].dtype.is_nested()]
    return table.select(
        pl.col(lat).alias("lat"), pl.col(lon).alias("lon"), pl.col(flat).cast(pl.String)
    )


def _in_degrees(file: Path, table: pl.DataFrame) -> pl.DataFrame:
    """Return the table without rows that have no place; refused when some are no degrees."""
    import polars as pl

    degrees = table.with_columns(pl.col("lat", "lon").cast(pl.Float64, strict=False))
    placed = degrees.drop_nulls(["lat", "lon"]).drop_nans(["lat", "lon"])
    wrong = placed.filter((pl.col("lat").abs() > 90) | (pl.col("lon").abs() > 180))
    if wrong.height or not placed.height:
        raise DataError(
            f"{str(file)!r} has {wrong.height or table.height} rows without a latitude from -90 to "
            "90 and a longitude from -180 to 180; check that the columns hold degrees"
        )
    return placed
