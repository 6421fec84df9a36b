"""Parts of a map by name: around a point, or inside the polygons of a GeoJSON document.

A zone is the tuple of states whose centres lie inside, so it can be named in events
(`shoal.visit(zone)`), policies and categories. The state that covers the point itself belongs to
the zone around it, however small the radius.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive
from shoal.core.task import Model
from shoal.places.locate import StateLocator
from shoal.places.map import EARTH_RADIUS_M
from shoal.places.walk import SparseChain


def zone(model: Model, place: Any, *, radius_km: Number | None = None) -> tuple[str, ...]:
    """The states around (latitude, longitude), or inside a GeoJSON polygon, of a model on a map."""
    chain = on_map(model)
    if isinstance(place, Mapping):
        if radius_km is not None:
            raise InputError(
                "radius_km is for a point; a polygon has its own shape, so leave it out"
            )
        inside = _covered(place, centres_of(chain))
    else:
        if radius_km is None:
            raise InputError("radius_km is missing; say how far around the point the zone reaches")
        inside = _around(chain, place, float(positive(radius_km, "radius_km")))
    if not inside.any():
        raise InputError("the zone holds no state of the map; check latitude and longitude")
    return tuple(chain.states[k] for k in np.flatnonzero(inside).tolist())


def zones_of(
    model: Model, document: Any, *, name: str = "name", others: bool = False
) -> dict[str, tuple[str, ...]]:
    """The zones of a GeoJSON FeatureCollection (a mapping or a file) by the property `name`.

    A state in several belongs to the first. With `others`, states in none are the zone "".
    """
    chain, centres = on_map(model), centres_of(on_map(model))
    features = geojson(document).get("features")
    if not isinstance(features, list) or not features:
        raise InputError("the document has no features; give a GeoJSON FeatureCollection")
    left, found = np.ones(len(centres), dtype=np.bool_), {}
    for feature in features:
        words = (feature.get("properties") or {}).get(name)
        if words is None:
            raise InputError(f"a feature has no property {name!r}; name the one that names zones")
        inside = left & _covered(feature, centres)
        left &= ~inside
        if inside.any():
            found[str(words)] = tuple(chain.states[k] for k in np.flatnonzero(inside).tolist())
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


def distances_km(centres: Floats, latitude: float, longitude: float) -> Floats:
    """How far each centre lies from a point, on a plane map around it."""
    metres = EARTH_RADIUS_M * math.pi / 180
    north = (centres[:, 0] - latitude) * metres
    east = (centres[:, 1] - longitude) * metres * math.cos(math.radians(latitude))
    return np.asarray(np.hypot(north, east) / 1000)


def on_map(model: Model) -> SparseChain:
    """The model itself; refused when it has no map."""
    if not isinstance(model, SparseChain) or model.grid is None:
        raise InputError("zones need a model on a map; fit one with shoal.fit_grid, or name states")
    return model


def _around(chain: SparseChain, place: Any, radius_km: float) -> Bools:
    here = StateLocator(chain).state_of(place)
    latitude, longitude = (float(value) for value in place)
    inside = distances_km(centres_of(chain), latitude, longitude) <= radius_km
    inside[here] = True
    return inside


def _covered(shape: Mapping[str, Any], centres: Floats) -> Bools:
    """Which centres lie inside a GeoJSON object: polygons, and collections of them."""
    kind = shape.get("type")
    if kind == "Feature":
        return _covered(shape.get("geometry") or {}, centres)
    parts = {"FeatureCollection": "features", "GeometryCollection": "geometries"}
    if kind in parts:
        found = np.zeros(len(centres), dtype=np.bool_)
        for part in shape.get(parts[kind]) or []:
            found |= _covered(part, centres)
        return found
    if kind not in ("Polygon", "MultiPolygon"):
        raise InputError(f"the GeoJSON object is a {kind!r}; zones are Polygon or MultiPolygon")
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
