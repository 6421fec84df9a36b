"""Files of positions that apps and watches write, as rows of who, when and where.

One reader a format; each yields `TimedPosition`s in the file's order. `track_table` makes the
table.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.core.errors import DataError, InputError
from shoal.data.json_items import json_items
from shoal.data.markup import Element, elements

if TYPE_CHECKING:
    import polars as pl

MAX_POSITIONS = 50_000_000  # of a file: 2 GB in memory
EPOCH_UNITS = ((1e11, 10**6), (1e14, 10**3), (1e17, 1))  # below, in microseconds: s, ms, us
E7 = 10_000_000  # units of a degree in Google's files
_OVERFLOW = 2**32  # added to negative numbers by an error in some of these files
_DEGREES = re.compile(r"(?:geo:)?\s*(-?[0-9.]+)\s*°?\s*,\s*(-?[0-9.]+)\s*°?")
_WORDS_OF_TIME = ("time", "timestamp", "datetime", "recorded_at", "tst")
_WORDS_OF_PERSON = ("user", "device_id", "tracker_id", "name")


class TimedPosition(NamedTuple):
    """A position as a file holds it; the time is text, a number since 1970, or None."""

    user: str
    time: Any
    latitude: Any
    longitude: Any


def track_table(path: Path, readings: Iterable[TimedPosition]) -> pl.DataFrame:
    """The columns user, time (UTC, null where there is none), lat and lon of `readings`."""
    import polars as pl

    users: list[str] = []
    times, places = array("q"), (array("d"), array("d"))
    missing: list[int] = []
    for number, one in enumerate(readings):
        if number >= MAX_POSITIONS:
            raise DataError(f"{str(path)!r} holds more than {MAX_POSITIONS:,} positions; split it")
        time = _microseconds(path, number, one.time)
        if time is None:
            missing.append(number)
        users.append(one.user)
        times.append(time or 0)
        for values, degrees in zip(places, _position(path, number, one), strict=True):
            values.append(degrees)
    if not users:
        raise DataError(f"{str(path)!r} holds no positions; at least one is needed")
    column = pl.Series("time", times, dtype=pl.Int64)
    if missing:
        column = column.scatter(missing, None)
    return pl.DataFrame(
        {
            "user": pl.Series(users, dtype=pl.String),
            "time": column.cast(pl.Datetime("us", "UTC")),
            "lat": pl.Series(places[0], dtype=pl.Float64),
            "lon": pl.Series(places[1], dtype=pl.Float64),
        }
    )


def moment_of(value: Any) -> datetime | None:
    """The time that text in ISO 8601 or a number since 1970 means, in UTC; ValueError if neither.

    Numbers are seconds, milli- or microseconds, by their size; text without an offset is UTC.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    if isinstance(value, str):
        if not re.fullmatch(r"\s*-?[0-9]+(\.[0-9]+)?\s*", value):
            found = datetime.fromisoformat(value.strip())
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        value = float(value) if "." in value else int(value)
    factor = next((unit for most, unit in EPOCH_UNITS if abs(value) < most), None)
    if factor is None:
        raise ValueError
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(value * factor))


def _microseconds(path: Path, number: int, value: Any) -> int | None:
    """Return a time in microseconds since 1970, None for None; refuse what is no time."""
    try:
        moment = moment_of(value)
    except (ValueError, OverflowError):
        raise DataError(
            f"{str(path)!r} holds the time {str(value)[:40]!r} at position {number + 1}, which is "
            "neither ISO 8601, such as '2024-05-01T08:30:00Z', nor a number of seconds since 1970; "
            "correct it, or leave out all times"
        ) from None
    since = None if moment is None else moment - datetime(1970, 1, 1, tzinfo=UTC)
    return None if since is None else since // timedelta(microseconds=1)


def _position(path: Path, number: int, one: TimedPosition) -> tuple[float, float]:
    """Return (latitude, longitude) in degrees; refuse anything outside the ranges of the earth."""
    try:
        latitude, longitude = float(one.latitude), float(one.longitude)
    except (TypeError, ValueError):
        latitude = longitude = math.nan
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise DataError(
            f"{str(path)!r} holds {one.latitude!r}, {one.longitude!r} at position {number + 1}, "
            "which is no latitude and longitude in degrees; correct it, or leave it out"
        )
    return latitude, longitude


def gpx_readings(path: Path) -> Iterator[TimedPosition]:
    """Points of tracks and routes; a track is a person, named by it or else by the file."""
    user = path.stem
    for found in elements(path, ("trkpt", "rtept", "name"), ("trk", "rte")):
        if found.tag in ("trk", "rte"):
            user = path.stem
        elif found.tag == "name":
            named = found.parent in ("trk", "rte")
            user = found.text if named and found.text else user
        else:
            places = (found.attributes.get("lat"), found.attributes.get("lon"))
            yield TimedPosition(user, found.text_of("time"), *places)


def tcx_readings(path: Path) -> Iterator[TimedPosition]:
    """Track points of an activity that have a position; the person is named by the file."""
    for point in elements(path, ("Trackpoint",)):
        place = point.find("Position")
        if place is not None:
            degrees = (place.text_of("LatitudeDegrees"), place.text_of("LongitudeDegrees"))
            yield TimedPosition(path.stem, point.text_of("Time"), *degrees)


def kml_readings(path: Path) -> Iterator[TimedPosition]:
    """Timed tracks, lines and points of placemarks; each track or line is a person by its name."""
    for mark in elements(path, ("Placemark",)):
        user = mark.text_of("name") or path.stem
        stamp = mark.text_of("TimeStamp", "when") or mark.text_of("TimeSpan", "begin")
        for shape in mark.walk():
            if shape.tag == "Track":
                yield from _kml_track(path, user, shape)
            elif shape.tag in ("LineString", "Point"):
                named = user if shape.tag == "LineString" else path.stem
                for place in (shape.text_of("coordinates") or "").split():
                    longitude, latitude, *_ = [*place.split(","), None, None]
                    yield TimedPosition(named, stamp, latitude, longitude)


def _kml_track(path: Path, user: str, shape: Element) -> Iterator[TimedPosition]:
    """Yield the positions of a KML track; times may be missing, but not some of them."""
    times = [each.text for each in shape.children if each.tag == "when"]
    places = [each.text.split() for each in shape.children if each.tag == "coord"]
    if times and len(times) != len(places):
        raise DataError(f"{str(path)!r} has {len(times)} times for {len(places)} places")
    stamps: list[str | None] = [*times] or [None] * len(places)
    for time, place in zip(stamps, places, strict=True):
        longitude, latitude, *_ = [*place, None, None]
        yield TimedPosition(user, time, latitude, longitude)


def geojson_readings(path: Path) -> Iterator[TimedPosition]:
    """Points and lines of features, with times where their properties have any.

    Of a point the properties user (device_id, tracker_id, name) and time (timestamp, …) count; of a
    line user or name, and coordTimes or times, which hold a time for each place.
    """
    rest: dict[str, Any] = {}
    for item in json_items(path):
        if item.key == "features" and item.listed:
            yield from _feature(path, item.value)
        elif item.listed:
            rest.setdefault(item.key, []).append(item.value)
        else:
            rest[item.key] = item.value
    if rest.get("type") == "Feature":
        yield from _feature(path, rest)
    elif rest.get("type") != "FeatureCollection":
        yield from _feature(path, {"geometry": rest})


def _feature(path: Path, feature: Any) -> Iterator[TimedPosition]:
    """Yield the positions of a GeoJSON point or line, with the times of its properties.

    Refuses areas, and times that are not as many as the positions.
    """
    if not isinstance(feature, Mapping):
        raise DataError(f"{str(path)!r} has a feature that is no object; make it again")
    shape, said = feature.get("geometry") or {}, feature.get("properties") or {}
    user = next((str(said[key]) for key in _WORDS_OF_PERSON if said.get(key)), path.stem)
    places, kind = shape.get("coordinates") or [], shape.get("type")
    if kind == "Point":
        times, lines = (
            [next((said[key] for key in _WORDS_OF_TIME if key in said), None)],
            [[places]],
        )
    elif kind in ("LineString", "MultiLineString"):
        lines = [places] if kind == "LineString" else places
        found = said.get("coordTimes", said.get("times")) or []
        nested = found and isinstance(found[0], list)
        times = [each for line in found for each in line] if nested else found
    else:
        raise DataError(
            f"{str(path)!r} holds a {kind!r}; a track is points and lines, and areas are for zones "
            "(shoal.places.zones_of)"
        )
    listed = [place for line in lines for place in line]
    if times and len(times) != len(listed):
        raise DataError(f"{str(path)!r} has {len(times)} times for {len(listed)} places")
    for place, when in zip(listed, times or [None] * len(listed), strict=True):
        pair = [*place, None, None][:2] if isinstance(place, list) else [None, None]
        yield TimedPosition(user, when, pair[1], pair[0])


def timeline_readings(path: Path) -> Iterator[TimedPosition]:
    """Google Timeline as phones export it: paths, visits, activities and raw positions.

    A visit has its place at its beginning and its end. Positions are sorted by time, and of
    several at one time the first one counts.
    """
    found: dict[datetime, TimedPosition] = {}
    for item in json_items(path):
        if item.listed and item.key in ("", "semanticSegments", "rawSignals"):
            for one in _segment(path, item.value):
                moment = _time_of(path, one.time)
                found.setdefault(moment, one._replace(time=moment.isoformat()))
    yield from (found[moment] for moment in sorted(found))


def _segment(path: Path, segment: Mapping[str, Any]) -> Iterator[TimedPosition]:
    """Yield the positions of a segment of a phone's timeline: path, visit, activity and fixes."""
    begin, end = segment.get("startTime"), segment.get("endTime")
    for point in segment.get("timelinePath") or ():
        time, minutes = point.get("time"), point.get("durationMinutesOffsetFromStartTime")
        if time is None and minutes is not None:
            time = (_time_of(path, begin) + timedelta(minutes=float(minutes))).isoformat()
        yield _timed_position(path, time, point.get("point"))
    visit = (segment.get("visit") or {}).get("topCandidate") or {}
    if visit.get("placeLocation"):
        yield _timed_position(path, begin, visit["placeLocation"])
        yield _timed_position(path, end, visit["placeLocation"])
    activity = segment.get("activity") or {}
    for time, place in ((begin, activity.get("start")), (end, activity.get("end"))):
        if place:
            yield _timed_position(path, time, place)
    position = segment.get("position") or {}
    if position.get("LatLng"):
        yield _timed_position(path, position.get("timestamp"), position["LatLng"])


def _timed_position(path: Path, time: Any, place: Any) -> TimedPosition:
    """A reading of a place such as "52.5°, 13.4°", "geo:52.5,13.4" or {"latLng": …}."""
    text = place.get("latLng") if isinstance(place, Mapping) else place
    found = _DEGREES.fullmatch(str(text).strip())
    return TimedPosition(path.stem, time, *(found.groups() if found else (text, None)))


def _time_of(path: Path, time: Any) -> datetime:
    """Return the moment that a timeline writes; refuse what is not ISO 8601."""
    try:
        moment = moment_of(time)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise DataError(
            f"{str(path)!r} holds the time {str(time)[:40]!r}, which is not ISO 8601; make it again"
        )
    return moment


def records_readings(path: Path) -> Iterator[TimedPosition]:
    """Google Takeout's Records.json: every location with its time."""
    for item in json_items(path):
        if item.key == "locations" and item.listed and "latitudeE7" in item.value:
            when = item.value.get("timestamp", item.value.get("timestampMs"))
            places = _of_e7(item.value, "latitudeE7", "longitudeE7")
            yield TimedPosition(path.stem, when, *places)


def semantic_readings(path: Path) -> Iterator[TimedPosition]:
    """Google Takeout's semantic history of a month: places visited and ways between them."""
    for item in json_items(path):
        if item.key != "timelineObjects" or not item.listed:
            continue
        visit, way = item.value.get("placeVisit"), item.value.get("activitySegment")
        if visit is not None:
            for end in ("start", "end"):
                yield from _endpoint(path, visit, "location", end)
        if way is not None:
            yield from _endpoint(path, way, "startLocation", "start")
            for point in (way.get("simplifiedRawPath") or {}).get("points") or ():
                when = point.get("timestamp", point.get("timestampMs"))
                yield TimedPosition(path.stem, when, *_of_e7(point, "latE7", "lngE7"))
            yield from _endpoint(path, way, "endLocation", "end")


def _endpoint(path: Path, part: Mapping[str, Any], where: str, end: str) -> Iterator[TimedPosition]:
    place, span = part.get(where) or {}, part.get("duration") or {}
    if "latitudeE7" in place:
        when = span.get(f"{end}Timestamp", span.get(f"{end}TimestampMs"))
        yield TimedPosition(path.stem, when, *_of_e7(place, "latitudeE7", "longitudeE7"))


def _of_e7(place: Mapping[str, Any], *keys: str) -> Iterator[Any]:
    """Degrees of numbers in ten-millionths; negative ones that overflowed are mended."""
    for key, most in zip(keys, (90, 180), strict=True):
        value = place.get(key)
        if isinstance(value, int) and value > most * E7:
            value -= _OVERFLOW
        yield value / E7 if isinstance(value, int) else value


def owntracks_readings(path: Path) -> Iterator[TimedPosition]:
    """Locations in a file of the OwnTracks recorder: a line has a time, a kind and JSON."""
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            _, _, text = line.rstrip("\n").rpartition("\t")
            try:
                said = json.loads(text)
            except ValueError:
                raise DataError(
                    f"{str(path)!r} has a line {number} that ends in no JSON; remove it"
                ) from None
            if said.get("_type") == "location":
                when = said.get("tst", line.partition("\t")[0])
                yield TimedPosition(str(said.get("tid", path.stem)), when, said["lat"], said["lon"])


SEMICIRCLES = 2**31 / 180  # a degree in the files of watches


def fit_readings(path: Path) -> Iterator[TimedPosition]:
    """Records of a watch's FIT file that have a position; the person is named by the file."""
    try:
        import fitdecode
    except ImportError:
        raise InputError(
            "FIT files need fitdecode, which is not installed; install it with "
            "`pip install 'shoal[tracks]'`, or export the activity as GPX or TCX"
        ) from None
    try:
        with fitdecode.FitReader(str(path)) as frames:
            for frame in frames:
                if frame.frame_type == fitdecode.FIT_FRAME_DATA and frame.name == "record":
                    get: Callable[..., Any] = frame.get_value
                    latitude = get("position_lat", fallback=None)
                    longitude = get("position_long", fallback=None)
                    if latitude is not None and longitude is not None:
                        when = get("timestamp", fallback=None)
                        at = when.isoformat() if isinstance(when, datetime) else None
                        yield TimedPosition(
                            path.stem, at, latitude / SEMICIRCLES, longitude / SEMICIRCLES
                        )
    except fitdecode.FitError:
        raise DataError(
            f"{str(path)!r} is damaged or cut short; copy it from the watch again"
        ) from None
