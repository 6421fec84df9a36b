"""Maps as people have them: GPX and GeoJSON in and out, zones by name."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from shoal.core.codec import Bools, Floats
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, positive
from shoal.core.task import Model
from shoal.data.formats import WHAT_IS_READ, format_of
from shoal.data.positions import positions
from shoal.data.read import matching
from shoal.places.map import EARTH_RADIUS_M
from shoal.places.runtime import StateLocator
from shoal.places.walk import SparseChain

if TYPE_CHECKING:
    import polars as pl

    from shoal.core.plan import Plan


SUFFIXES = (".gpx", ".geojson")
SOURCE = "released with Shoal: noisy points and estimates, not true positions"


def is_track(path: str | Path) -> bool:
    """Whether a file is written as a track by this module, by its suffix."""
    return Path(path).suffix.lower() in SUFFIXES


def read_track(path: str | Path) -> pl.DataFrame:
    """Columns user, time (UTC; null where the file has none), lat and lon, in the file's order.

    Any format of tracks that Shoal reads, known by its content: GPX, GeoJSON, KML, TCX, FIT, Google
    Timeline and Takeout, OwnTracks, CSV of scikit-mobility and trackintel.
    """
    import polars as pl

    (file,) = matching(path)[:1]
    known = format_of(file)
    if known.shape != "track":
        raise DataError(f"{str(path)!r} is {known.name}, which is no track; {WHAT_IS_READ}")
    table = positions(file)
    clock = pl.Datetime("us", "UTC")
    if "time" not in table.columns:
        return table.select("user", pl.lit(None, dtype=clock).alias("time"), "lat", "lon")
    return table.select("user", pl.col("time").dt.replace_time_zone("UTC"), "lat", "lon")


# What was released, on a map.


def tracks_geojson(rows: pl.DataFrame) -> str:
    """Steps of `release_tracks` as GeoJSON: a line of estimates a stream, a point a step."""
    features: list[dict[str, Any]] = []
    for (user, part), own in rows.group_by(["user", "part"], maintain_order=True):
        named = {"user": user, "part": part}
        line = [[row["estimate_lon"], row["estimate_lat"]] for row in _steps(own)]
        properties: dict[str, Any] = {**named, "kind": "estimates", "about": SOURCE}
        if "time" in own.columns:
            properties["coordTimes"] = [_stamp(row.get("time")) for row in _steps(own)]
        features.append(_feature("LineString", line, properties))
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


def _feature(kind: str, where: Any, properties: dict[str, Any]) -> dict[str, Any]:
    shape = {"type": kind, "coordinates": where}
    return {"type": "Feature", "geometry": shape, "properties": properties}


def _stamp(when: Any) -> Any:
    """A time as ISO 8601; numbers stay what they are."""
    return when.isoformat().replace("+00:00", "Z") if hasattr(when, "isoformat") else when


# Parts of a map by name: around a point, or inside the polygons of a GeoJSON document.
#
# A zone is the tuple of states whose centres lie inside, so it can be named in events
# (`shoal.visit(zone)`), policies and categories. The state that covers the point itself belongs to
# the zone around it, however small the radius.


def zone(model: Model, place: Any, *, radius_km: Number | None = None) -> tuple[str, ...]:
    """The states of a place on a model's map: around a point, or inside a GeoJSON object.

    A point is (latitude, longitude), a GeoJSON Point or each point of a MultiPoint; without a
    radius it is the state that covers it. Polygons and lists of features take no radius.
    """
    chain = on_map(model)
    radius = None if radius_km is None else float(positive(radius_km, "radius_km"))
    if isinstance(place, Mapping):
        points = points_of(place)
        if points is None and radius is not None:
            raise InputError(
                "radius_km is for a point; a polygon has its own shape, so leave it out"
            )
        inside = (
            _states_inside(place, chain) if points is None else _around_any(chain, points, radius)
        )
    else:
        inside = _around(chain, place, radius)
    if not inside.any():
        raise InputError("the zone holds no state of the map; check latitude and longitude")
    return tuple(chain.states[k] for k in np.flatnonzero(inside).tolist())


def zones_of(
    model: Model,
    document: Any,
    *,
    name: str = "name",
    others: bool = False,
    radius_km: Number | None = None,
) -> dict[str, tuple[str, ...]]:
    """The zones of a GeoJSON FeatureCollection (a mapping or a file) by the property `name`.

    A point is the state that covers it, or all states within `radius_km`; several features of one
    name are one zone. A state in several zones belongs to the first. With `others`, states in none
    are the zone "".
    """
    chain = on_map(model)
    radius = None if radius_km is None else float(positive(radius_km, "radius_km"))
    features = geojson(document).get("features")
    if not isinstance(features, list) or not features:
        raise InputError("the document has no features; give a GeoJSON FeatureCollection")
    left, found = np.ones(chain.size, dtype=np.bool_), dict[str, tuple[str, ...]]()
    for feature in features:
        words = (feature.get("properties") or {}).get(name)
        if words is None:
            raise InputError(f"a feature has no property {name!r}; name the one that names zones")
        point = _point(feature)
        shape = _states_inside(feature, chain) if point is None else _around(chain, point, radius)
        inside = left & shape
        left &= ~inside
        if inside.any():
            own = (chain.states[k] for k in np.flatnonzero(inside).tolist())
            found[str(words)] = (*found.get(str(words), ()), *own)
    if others and left.any():
        found[""] = tuple(chain.states[k] for k in np.flatnonzero(left).tolist())
    return found


def geojson(document: Any) -> dict[str, Any]:
    """A GeoJSON object from a mapping, a text or a file."""
    if isinstance(document, Mapping):
        return dict(document)
    try:
        is_file = isinstance(document, PathLike) or not str(document).lstrip().startswith("{")
        text = Path(document).read_text(encoding="utf-8") if is_file else str(document)
        found = json.loads(text)
    except (OSError, ValueError, RecursionError):
        raise InputError("the GeoJSON document cannot be read as JSON; check the file") from None
    if not isinstance(found, dict):
        raise InputError("the GeoJSON document is no object; give a FeatureCollection")
    return found


def centres_of(chain: SparseChain) -> Floats:
    """Latitude and longitude of each state's centre."""
    assert chain.grid is not None
    return chain.grid.centre_of(chain.cells)


def on_map(model: Model) -> SparseChain:
    """The model itself; refused when it has no map."""
    if not isinstance(model, SparseChain) or model.grid is None:
        raise InputError("zones need a model on a map; fit one with shoal.fit_grid, or name states")
    return model


def _point(shape: Mapping[str, Any]) -> tuple[float, float] | None:
    """Latitude and longitude of a GeoJSON Point, or of a feature that is one; None for others."""
    if shape.get("type") == "Feature":
        return _point(shape.get("geometry") or {})
    if shape.get("type") != "Point":
        return None
    try:
        longitude, latitude, *_ = map(float, shape.get("coordinates") or [])
    except (TypeError, ValueError):
        raise InputError("a GeoJSON Point must hold a position [longitude, latitude]") from None
    return latitude, longitude


def points_of(shape: Mapping[str, Any]) -> list[tuple[float, float]] | None:
    """Latitude and longitude of each point of a GeoJSON Point or MultiPoint; None for others."""
    if shape.get("type") == "MultiPoint":
        places = shape.get("coordinates") or []
        points = [_point({"type": "Point", "coordinates": place}) for place in places]
        return [point for point in points if point is not None]
    point = _point(shape)
    return None if point is None else [point]


def _around_any(
    chain: SparseChain, points: Sequence[tuple[float, float]], radius_km: float | None
) -> Bools:
    """Which states `_around` finds for one of the points or more."""
    inside = np.zeros(chain.size, dtype=np.bool_)
    for point in points:
        inside |= _around(chain, point, radius_km)
    return inside


def _around(chain: SparseChain, place: Any, radius_km: float | None) -> Bools:
    """Whose centres lie within the radius on a plane map around the place, and who covers it."""
    here = StateLocator(chain).state_of(place)
    inside = np.zeros(chain.size, dtype=np.bool_)
    if radius_km is not None:
        latitude, longitude = (float(value) for value in place)
        metres = EARTH_RADIUS_M * math.pi / 180
        north, east = ((centres_of(chain) - (latitude, longitude)) * metres).T
        inside = np.hypot(north, east * math.cos(math.radians(latitude))) / 1000 <= radius_km
    inside[here] = True
    return np.asarray(inside)


def _states_inside(shape: Mapping[str, Any], chain: SparseChain) -> Bools:
    """Which states lie inside a GeoJSON object: polygons, points, and collections of them."""
    centres, kind = centres_of(chain), shape.get("type")
    if kind == "Feature":
        return _states_inside(shape.get("geometry") or {}, chain)
    parts = {"FeatureCollection": "features", "GeometryCollection": "geometries"}
    if kind in parts:
        found = np.zeros(len(centres), dtype=np.bool_)
        for part in shape.get(parts[kind]) or []:
            found |= _states_inside(part, chain)
        return found
    points = points_of(shape)
    if points is not None:
        return _around_any(chain, points, None)
    if kind not in ("Polygon", "MultiPolygon"):
        raise InputError(
            f"the GeoJSON object is a {kind!r}; zones are Point, Polygon or MultiPolygon"
        )
    polygons = shape.get("coordinates") or []
    inside = np.zeros(len(centres), dtype=np.bool_)
    for rings in [polygons] if kind == "Polygon" else polygons:
        inside |= _within(rings, centres)
    return inside


def _within(rings: Sequence[Any], centres: Floats) -> Bools:
    """Even-odd rule over all rings: the first is the outline, the others are holes."""
    odd = np.zeros(len(centres), dtype=np.bool_)
    y, x = centres[:, 0], centres[:, 1]
    for ring in rings:
        try:
            corners = np.array([[float(lon), float(lat)] for lon, lat, *_ in ring])
        except (TypeError, ValueError):
            raise InputError("a GeoJSON ring must hold positions [longitude, latitude]") from None
        if len(corners) < 3:
            raise InputError("a GeoJSON ring has fewer than three positions; give a polygon")
        for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            crosses = (y1 > y) != (y2 > y)
            with np.errstate(divide="ignore", invalid="ignore"):
                odd ^= crosses & (x < x1 + (y - y1) * (x2 - x1) / (y2 - y1))
    return odd
