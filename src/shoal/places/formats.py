"""Tracks in the formats of phones and maps: GPX and GeoJSON in, what was released out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from shoal.core.errors import DataError, InputError
from shoal.places.zones import geojson

if TYPE_CHECKING:
    import polars as pl

    from shoal.core.plan import Plan

SUFFIXES = (".gpx", ".geojson")
LARGEST = 2**28  # bytes of a file that is read whole
SOURCE = "released with Shoal: noisy points and estimates, not true positions"

Reading = tuple[str, str | None, float, float]  # whose, when (ISO 8601), latitude, longitude


def is_track(path: str | Path) -> bool:
    """Whether a file is read by this module, by its suffix."""
    return Path(path).suffix.lower() in SUFFIXES


def read_track(path: str | Path) -> pl.DataFrame:
    """Columns user, time (UTC; null where the file has none), lat and lon, in the file's order.

    A GPX track is one person, named by the track or else by the file; of GeoJSON, points with the
    properties "user" and "time", and lines whose "coordTimes" or "times" time each place.
    """
    import polars as pl

    where = Path(path)
    if where.stat().st_size > LARGEST:
        raise DataError(f"{str(path)!r} is larger than {LARGEST >> 20} MiB; split it")
    read = _of_gpx if where.suffix.lower() == ".gpx" else _of_geojson
    rows = list(read(where))
    if not rows:
        raise DataError(f"{str(path)!r} holds no positions; at least one is needed")
    frame = pl.DataFrame(rows, schema=["user", "time", "lat", "lon"], orient="row")
    try:
        times = frame["time"].str.to_datetime(time_zone="UTC", time_unit="us")
    except pl.exceptions.PolarsError:
        raise DataError(f"{str(path)!r} holds a time that is not ISO 8601") from None
    return frame.with_columns(times)


def _of_gpx(path: Path) -> Iterator[Reading]:
    text = path.read_text(encoding="utf-8-sig")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DataError(f"{str(path)!r} declares entities; a GPX file has none")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        raise DataError(f"{str(path)!r} is not XML; is it a GPX file?") from None
    for track in root.iter():
        if _tag(track) not in ("trk", "rte"):
            continue
        name = next((each.text for each in track if _tag(each) == "name" and each.text), path.stem)
        for point in track.iter():
            if _tag(point) in ("trkpt", "rtept"):
                when = next((each.text for each in point if _tag(each) == "time"), None)
                yield name, when, *_position(path, point.get("lat"), point.get("lon"))


def _tag(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _of_geojson(path: Path) -> Iterator[Reading]:
    document = geojson(path)
    for feature in document.get("features", [document]):
        shape, told = feature.get("geometry") or {}, feature.get("properties") or {}
        user = str(told.get("user", told.get("name", path.stem)))
        places = shape.get("coordinates") or []
        kind = shape.get("type")
        if kind == "Point":
            times, lines = [told.get("time")], [[places]]
        elif kind in ("LineString", "MultiLineString"):
            lines = [places] if kind == "LineString" else places
            found = told.get("coordTimes", told.get("times")) or []
            nested = found and isinstance(found[0], list)
            times = [each for line in found for each in line] if nested else found
        else:
            raise DataError(f"{str(path)!r} holds a {kind!r}; tracks are points and lines")
        listed = [place for line in lines for place in line]
        if times and len(times) != len(listed):
            raise DataError(f"{str(path)!r} has {len(times)} times for {len(listed)} places")
        for place, when in zip(listed, times or [None] * len(listed), strict=True):
            pair = [*place, None, None][:2] if isinstance(place, list) else [None, None]
            yield user, when, *_position(path, pair[1], pair[0])


def _position(path: Path, latitude: Any, longitude: Any) -> tuple[float, float]:
    try:
        lat, lon = float(latitude), float(longitude)
    except (TypeError, ValueError):
        lat = lon = float("nan")
    if not (-90 <= lat <= 90 and -180 <= lon <= 180):
        raise DataError(f"{str(path)!r} holds a place that is no latitude and longitude")
    return lat, lon


# What was released, on a map.


def tracks_geojson(rows: pl.DataFrame) -> str:
    """Steps of `release_tracks` as GeoJSON: a line of estimates a stream, a point a step."""
    features: list[dict[str, Any]] = []
    for (user, part), own in rows.group_by(["user", "part"], maintain_order=True):
        named = {"user": user, "part": part}
        line = [[row["estimate_lon"], row["estimate_lat"]] for row in _steps(own)]
        told: dict[str, Any] = {**named, "kind": "estimates", "about": SOURCE}
        if "time" in own.columns:
            told["coordTimes"] = [_stamp(row.get("time")) for row in _steps(own)]
        features.append(_feature("LineString", line, told))
        for row in _steps(own):
            point = {**named, "kind": "step", "step": row["step"], "time": _stamp(row.get("time"))}
            point |= {name: row[name] for name in ("z_lat", "z_lon", "spread", "possible")}
            where = [row["estimate_lon"], row["estimate_lat"]]
            features.append(_feature("Point", where, point))
    return json.dumps({"type": "FeatureCollection", "features": features}, allow_nan=False) + "\n"


def tracks_gpx(rows: pl.DataFrame) -> str:
    """Steps of `release_tracks` as GPX 1.1: the estimates of each stream as a track."""
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<gpx version="1.1" creator="Shoal" xmlns="http://www.topografix.com/GPX/1/1">',
    ]
    for (user, part), own in rows.group_by(["user", "part"], maintain_order=True):
        parts.append(f"<trk><name>{escape(f'{user}/{part}')}</name><desc>{SOURCE}</desc><trkseg>")
        for row in _steps(own):
            lat, lon = (quoteattr(f"{row[f'estimate_{axis}']:.7f}") for axis in ("lat", "lon"))
            stamp = _stamp(row.get("time"))
            when = f"<time>{stamp}</time>" if isinstance(stamp, str) else ""
            parts.append(f"<trkpt lat={lat} lon={lon}>{when}</trkpt>")
        parts.append("</trkseg></trk>")
    return "\n".join([*parts, "</gpx>", ""])


def check_map(plan: Plan, out: Path) -> None:
    """Refuses, before anything is drawn, a map file of a model that has no map."""
    if getattr(plan.task.family[0], "grid", None) is None or plan.task.query.unit != "km":
        raise InputError(
            f"--out is {str(out)!r}, but the model has no map; write .csv, .parquet or .jsonl"
        )


def _steps(own: pl.DataFrame) -> Iterator[dict[str, Any]]:
    return own.iter_rows(named=True)


def _feature(kind: str, where: Any, told: dict[str, Any]) -> dict[str, Any]:
    shape = {"type": kind, "coordinates": where}
    return {"type": "Feature", "geometry": shape, "properties": told}


def _stamp(when: Any) -> Any:
    """A time as ISO 8601; numbers stay what they are."""
    return when.isoformat().replace("+00:00", "Z") if hasattr(when, "isoformat") else when
