"""Files of rides, goals and roads: what is read of them, and cut tracks as GPX."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import DataError, InputError
from shoal.share.maps import Line

LARGEST_FILE = 2**28  # bytes of a file that is read whole
EXTRACTS = (
    "maps of roads are free: cut a region at https://extract.bbbike.org (GeoJSON or OSM XML), or "
    "take one from https://download.geofabrik.de and turn it into XML with `osmium cat "
    "x.osm.pbf -o x.osm`; give it with --roads"
)
STRIPPED = {
    "time": "clock times", "ele": "altitude", "hr": "heart rate", "cad": "cadence",
    "atemp": "temperature", "power": "power", "speed": "speed", "name": "names",
    "creator": "the device", "desc": "descriptions", "cmt": "comments",
}  # fmt: skip


class Ride(NamedTuple):
    """Positions of one track (latitude, longitude), its file, and what the file held beside."""

    file: Path
    positions: Floats
    beside: tuple[str, ...]


class Goal(NamedTuple):
    """A place the rider declared; `track` is a pattern of file names, empty for every ride."""

    latitude: float
    longitude: float
    track: str = ""

    def is_for(self, file: Path) -> bool:
        """Return whether the goal is declared for one ride by the name of its file."""
        return bool(self.track) and fnmatch(file.name, self.track)


def read_ride(path: Path) -> Ride:
    """Return the positions of a GPX or GeoJSON file, all of its tracks one after the other."""
    text = _text(path)
    if path.suffix.lower() == ".gpx":
        places, beside = _gpx(text, path)
    elif path.suffix.lower() in (".geojson", ".json"):
        features = list(_features(text, path))
        beside = {key for one in features for key in one.get("properties") or {}}
        places = [(y, x) for one in features for x, y in _coordinates(one.get("geometry") or {})]
    else:
        raise InputError(f"{path.name} is no GPX or GeoJSON file; export the ride as GPX")
    positions = np.array(places, dtype=float).reshape(-1, 2)
    if len(positions) < 2 or not np.isfinite(positions).all() or np.abs(positions[:, 0]).max() > 90:
        raise DataError(f"{path.name} holds no track of two positions in degrees; leave it out")
    named = sorted({STRIPPED[name] for name in beside if name in STRIPPED})
    return Ride(path, positions, tuple(named))


def read_rides_of(paths: Sequence[Path]) -> list[Ride]:
    """Return the rides of files and of folders, whose GPX and GeoJSON files are taken by name."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [*path.glob("*.gpx"), *path.glob("*.GPX"), *path.glob("*.geojson")]
            files += sorted(set(inside))
        elif path.is_file():
            files.append(path)
        else:
            raise InputError(f"{path} is no file and no folder; name rides as GPX or GeoJSON")
    if not files:
        raise InputError("no ride is named; give GPX files, or a folder that holds some")
    return [read_ride(file) for file in files]


def _gpx(text: str, path: Path) -> tuple[list[tuple[float, float]], set[str]]:
    root = _xml(text, path)
    beside = {element.tag.rpartition("}")[2] for element in root.iter()}
    beside |= {"creator"} if root.get("creator") else set()
    found = [e for e in root.iter() if e.tag.rpartition("}")[2] in ("trkpt", "rtept")]
    try:
        return [(float(e.attrib["lat"]), float(e.attrib["lon"])) for e in found], beside
    except (KeyError, ValueError):
        raise DataError(f"{path.name} holds a position without numbers lat and lon") from None


def read_goals(path: Path) -> list[Goal]:
    """Return declared goals of a CSV with lat, lon and perhaps track, or of GeoJSON points."""
    text = _text(path)
    try:
        if path.suffix.lower() == ".csv":
            rows = list(csv.DictReader(text.splitlines()))
            return [
                Goal(float(row["lat"]), float(row["lon"]), (row.get("track") or "").strip())
                for row in rows
            ]
        found = []
        for feature in _features(text, path):
            x, y = feature["geometry"]["coordinates"][:2]
            name = (feature.get("properties") or {}).get("track") or ""
            found.append(Goal(float(y), float(x), str(name)))
        return found
    except (KeyError, ValueError, TypeError):
        raise DataError(
            f"{path.name} holds no goals; give columns lat, lon and perhaps track (a file name), "
            "or GeoJSON points"
        ) from None


def read_roads(path: Path) -> list[Line]:
    """Return the lines of a road map: GeoJSON lines, or an OSM extract as XML through osmnx."""
    if path.name.lower().endswith(".pbf"):
        raise InputError(
            f"{path.name} is a compressed extract; turn it into XML with `osmium cat {path.name} "
            f"-o {path.name.removesuffix('.pbf')}`, and give that"
        )
    if path.suffix.lower() in (".osm", ".xml"):
        return _osm(path)
    lines = []
    for feature in _features(_text(path), path):
        geometry, said = feature.get("geometry") or {}, feature.get("properties") or {}
        parts = geometry.get("coordinates") or []
        kind = geometry.get("type")
        if kind not in ("LineString", "MultiLineString"):
            continue
        one_way = str(said.get("oneway", "")).lower()
        for part in [parts] if kind == "LineString" else parts:
            places = tuple((float(x), float(y)) for x, y, *_ in part)
            ordered = places[::-1] if one_way == "-1" else places
            ways = one_way in ("yes", "true", "1", "-1")
            lines.append(Line(ordered, ways, str(said.get("highway", ""))))
    if not lines:
        raise DataError(f"{path.name} holds no lines of roads; {EXTRACTS}")
    return lines


def _osm(path: Path) -> list[Line]:
    try:
        import osmnx
    except ImportError:
        raise InputError(
            "OpenStreetMap extracts need osmnx; install it with `pip install 'shoal[roads]'`, or "
            "give GeoJSON lines"
        ) from None
    graph = osmnx.graph_from_xml(path, simplify=False)
    where = {node: (float(d["x"]), float(d["y"])) for node, d in graph.nodes(data=True)}
    return [
        Line((where[a], where[b]), True, str(said.get("highway", "")))
        for a, b, said in graph.edges(data=True)
    ]


def read_rings(path: Path) -> list[list[tuple[float, float]]]:
    """Return the rings of the first polygon of a GeoJSON file, as (longitude, latitude)."""
    for feature in _features(_text(path), path):
        geometry = feature.get("geometry") or {}
        if geometry.get("type") == "Polygon":
            return [[(float(x), float(y)) for x, y, *_ in r] for r in geometry["coordinates"]]
    raise DataError(f"{path.name} holds no polygon; draw the district as one")


def gpx_of(parts: Sequence[Floats]) -> str:
    """Return cut tracks as GPX: latitude and longitude to a tenth of a metre, nothing else."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append('<gpx version="1.1" creator="shoal" xmlns="http://www.topografix.com/GPX/1/1">')
    lines.append("<trk>")
    for part in parts:
        lines.append("<trkseg>")
        for latitude, longitude in part.tolist():
            where = f"lat={quoteattr(f'{latitude:.6f}')} lon={quoteattr(f'{longitude:.6f}')}"
            lines.append(f"<trkpt {where}/>")
        lines.append("</trkseg>")
    return "\n".join([*lines, "</trk>", "</gpx>", ""])


def read_parts(path: Path) -> list[Floats]:
    """Return the parts of a track that `gpx_of` wrote, one array of positions each."""
    parts = []
    for segment in _xml(_text(path), path).iter():
        if segment.tag.rpartition("}")[2] == "trkseg":
            rows = [(float(one.attrib["lat"]), float(one.attrib["lon"])) for one in segment]
            parts.append(np.array(rows, dtype=float).reshape(-1, 2))
    return parts


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            most = LARGEST_FILE >> 20
            raise DataError(f"{path.name} is larger than {most} MiB; cut out the region")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the name") from None
    except UnicodeDecodeError:
        raise DataError(f"{path.name} is no text in UTF-8; export it again") from None


def _xml(text: str, path: Path) -> ElementTree.Element:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DataError(f"{path.name} defines entities, which no ride needs; export it again")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError:
        raise DataError(f"{path.name} is no complete XML; export the ride again") from None


def _features(text: str, path: Path) -> Iterator[dict[str, Any]]:
    try:
        data = json.loads(text)
    except ValueError:
        raise DataError(f"{path.name} is no JSON; export it as GeoJSON") from None
    if not isinstance(data, dict):
        raise DataError(f"{path.name} is no GeoJSON; it must hold features")
    features = data.get("features")
    if isinstance(features, list):
        yield from (one for one in features if isinstance(one, dict))
    elif data.get("type") == "Feature":
        yield data
    else:
        yield {"geometry": data, "properties": {}}


def _coordinates(geometry: dict[str, Any]) -> Iterator[tuple[float, float]]:
    parts, kind = geometry.get("coordinates") or [], geometry.get("type")
    if kind == "Point":
        parts = [parts]
    elif kind == "MultiLineString":
        parts = [place for part in parts for place in part]
    elif kind not in ("LineString", "MultiPoint"):
        return
    for place in parts:
        yield float(place[0]), float(place[1])
