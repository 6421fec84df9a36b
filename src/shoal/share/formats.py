"""Files of rides, goals and roads: what is read of them, and cut tracks as GPX."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import DataError, InputError
from shoal.data.formats import FIT, GEOJSON, GPX, KML, TCX, FileFormat, format_of, read_known
from shoal.share.maps import Line

LARGEST_FILE = 2**28  # bytes of a file that is read whole
EXTRACTS = (
    "maps of roads are free: cut a region at https://extract.bbbike.org (GeoJSON or OSM XML), or "
    "take one from https://download.geofabrik.de (.osm.pbf); give it with --roads"
)
STRIPPED = {  # words of files of rides, in small letters, and what they carry
    "time": "clock times", "when": "clock times", "coordtimes": "clock times",
    "times": "clock times", "timestamp": "clock times", "ele": "altitude",
    "altitudemeters": "altitude", "hr": "heart rate", "heartratebpm": "heart rate",
    "cad": "cadence", "cadence": "cadence", "atemp": "temperature", "power": "power",
    "watts": "power", "speed": "speed", "calories": "totals", "totaltimeseconds": "totals",
    "distancemeters": "totals", "name": "names", "creator": "the device", "desc": "descriptions",
    "description": "descriptions", "cmt": "comments", "notes": "comments",
}  # fmt: skip
WORD = re.compile(r"""[<\s:"']([a-z]+)(?=[>\s="':/])""")
ONE_RIDE = (GPX, FIT, TCX, KML, GEOJSON)
RIDE_FILES = "GPX, FIT, TCX, KML or GeoJSON"
RIDE_SUFFIXES = (".gpx", ".fit", ".tcx", ".kml", ".geojson")
NO_ROADS = {  # classes of OpenStreetMap on which nobody rides, or which are not built
    "motorway", "motorway_link", "construction", "proposed", "abandoned", "razed", "platform",
    "raceway", "bus_guideway", "elevator", "corridor",
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
    """Return the positions of one ride, all tracks of its file one after the other.

    The file is GPX, KML, TCX, FIT or GeoJSON. Refuses files with the history of many days.
    """
    known = _format_of(path)
    if known not in ONE_RIDE:
        raise InputError(f"{path.name} is {known.name}; give each ride as {RIDE_FILES}")
    table = read_known(path, known)
    positions = table.select("lat", "lon").to_numpy().astype(float)
    if len(positions) < 2:
        raise DataError(f"{path.name} holds no track of two positions in degrees; leave it out")
    if known is FIT:
        return Ride(path, positions, ("clock times", "sensor readings", "the device"))
    words = set(WORD.findall(path.read_text(encoding="utf-8-sig", errors="replace").lower()))
    beside = {what for name, what in STRIPPED.items() if name in words}
    return Ride(path, positions, tuple(sorted(beside)))


def _format_of(path: Path) -> FileFormat:
    """Return the format of a file by its content; refuse files that are too large or no text."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            most = LARGEST_FILE >> 20
            raise DataError(f"{path.name} is larger than {most} MiB; give each ride as a file")
        return format_of(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the name") from None


def read_rides_of(paths: Sequence[Path]) -> list[Ride]:
    """Return the rides of files and of folders, whose files are taken by suffix, in order."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(one for one in path.iterdir() if one.suffix.lower() in RIDE_SUFFIXES)
        elif path.is_file():
            files.append(path)
        else:
            raise InputError(f"{path} is no file and no folder; name rides as {RIDE_FILES}")
    if not files:
        raise InputError(f"no ride is named; give {RIDE_FILES} files, or a folder of them")
    return [read_ride(file) for file in files]


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
    """Return the lines of a road map: GeoJSON lines, or an OSM extract (.osm, .osm.pbf)."""
    if path.suffix.lower() in (".osm", ".pbf", ".xml", ".bz2"):
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
    """Return the roads of an OpenStreetMap extract, read by pyosmium without any network."""
    try:
        import osmium
    except ImportError:
        raise InputError(
            f"{path.name} is an OpenStreetMap extract, which needs pyosmium; install it with `pip "
            "install 'shoal[osm]'`, or give GeoJSON lines"
        ) from None
    if not path.is_file():
        raise InputError(f"{path} is no file; {EXTRACTS}")
    lines = []
    try:
        for way in osmium.FileProcessor(str(path)).with_locations():
            if way.is_way() and way.tags.get("highway", "construction") not in NO_ROADS:
                lines += _lines_of_way(way)
    except RuntimeError:
        raise DataError(f"{path.name} is damaged or no OpenStreetMap extract; {EXTRACTS}") from None
    if not lines:
        raise DataError(f"{path.name} holds no lines of roads; {EXTRACTS}")
    return lines


def _lines_of_way(way: Any) -> list[Line]:
    """Return the line of one OpenStreetMap way; none where its nodes were cut away."""
    tags, nodes = way.tags, [node for node in way.nodes if node.location.valid()]
    one_way = tags.get("oneway", "yes" if tags.get("junction") == "roundabout" else "no")
    if tags.get("oneway:bicycle") == "no":
        one_way = "no"
    places = tuple((node.location.lon, node.location.lat) for node in nodes)
    ordered = places[::-1] if one_way == "-1" else places
    if len(ordered) < 2:
        return []
    return [Line(ordered, one_way in ("yes", "true", "1", "-1"), tags["highway"])]


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
