"""Small files as apps, watches and meters write them, all of one walk or one day of a meter."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BEGIN = datetime(2024, 5, 4, 8, tzinfo=UTC)
Point = tuple[float, float, datetime]


def walk(steps: int = 240, *, seconds: int = 30) -> list[Point]:
    """A walk in a town: latitude, longitude (both to 7 digits) and time."""
    rng, heading, lat, lon = random.Random(5), 0.0, 52.5, 13.4
    found = []
    for step in range(steps):
        found.append((round(lat, 7), round(lon, 7), BEGIN + timedelta(seconds=seconds * step)))
        heading += rng.gauss(0, 0.5)
        lat += 0.0006 * math.cos(heading)
        lon += 0.0009 * math.sin(heading)
    return found


def iso(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def gpx(points: list[Point], *, timed: bool = True) -> str:
    rows = "".join(
        f'<trkpt lat="{lat}" lon="{lon}"><ele>34.5</ele>'
        + (f"<time>{iso(time)}</time>" if timed else "")
        + "</trkpt>"
        for lat, lon, time in points
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><gpx version="1.1" creator="watch" '
        'xmlns="http://www.topografix.com/GPX/1/1"><metadata><name>x</name></metadata>'
        f"<trk><name>ann</name><trkseg>{rows}</trkseg></trk></gpx>"
    )


def geojson_points(points: list[Point]) -> str:
    """As Dawarich exports: epoch seconds in the property `timestamp`."""
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [lon, lat]},
            "properties": {"timestamp": int(time.timestamp()), "tracker_id": "ann", "battery": 80},
        }
        for lat, lon, time in points
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


def geojson_line(points: list[Point]) -> str:
    feature = {
        "type": "Feature",
        "properties": {"name": "ann", "coordTimes": [iso(time) for *_, time in points]},
        "geometry": {"type": "LineString", "coordinates": [[b, a, 30.0] for a, b, _ in points]},
    }
    return json.dumps(feature, indent=1)


def kml(points: list[Point]) -> str:
    whens = "".join(f"<when>{iso(time)}</when>" for *_, time in points)
    places = "".join(f"<gx:coord>{lon} {lat} 0</gx:coord>" for lat, lon, _ in points)
    return (
        '<?xml version="1.0"?><kml xmlns="http://www.opengis.net/kml/2.2" '
        'xmlns:gx="http://www.google.com/kml/ext/2.2"><Document><Placemark><name>ann</name>'
        f"<gx:Track>{whens}{places}</gx:Track></Placemark></Document></kml>"
    )


def tcx(points: list[Point]) -> str:
    rows = "".join(
        f"<Trackpoint><Time>{iso(time)}</Time><Position><LatitudeDegrees>{lat}</LatitudeDegrees>"
        f"<LongitudeDegrees>{lon}</LongitudeDegrees></Position></Trackpoint>"
        for lat, lon, time in points
    )
    return (
        '<?xml version="1.0"?><TrainingCenterDatabase xmlns="http://www.garmin.com/xmlschemas/'
        'TrainingCenterDatabase/v2"><Activities><Activity Sport="Running"><Lap><Track>'
        f"<Trackpoint><Time>{iso(BEGIN)}</Time></Trackpoint>{rows}"
        "</Track></Lap></Activity></Activities></TrainingCenterDatabase>"
    )


def timeline_android(points: list[Point]) -> str:
    path = [{"point": f"{a}°, {b}°", "time": t.isoformat()} for a, b, t in points[:-1]]
    lat, lon, time = points[-1]
    segments: list[Any] = [
        {"startTime": iso(BEGIN), "endTime": iso(time), "timelinePath": path},
        {
            "startTime": iso(time),
            "endTime": iso(time),
            "visit": {"topCandidate": {"placeLocation": {"latLng": f"{lat}°, {lon}°"}}},
        },
    ]
    return json.dumps({"semanticSegments": segments, "rawSignals": [], "userLocationProfile": {}})


def timeline_ios(points: list[Point]) -> str:
    path = [
        {
            "point": f"geo:{lat},{lon}",
            "durationMinutesOffsetFromStartTime": str((time - BEGIN).total_seconds() / 60),
        }
        for lat, lon, time in points[1:]
    ]
    lat, lon, time = points[0]
    return json.dumps(
        [
            {
                "startTime": iso(time),
                "endTime": iso(time),
                "visit": {"topCandidate": {"placeLocation": f"geo:{lat},{lon}"}},
            },
            {"startTime": iso(BEGIN), "endTime": iso(points[-1][2]), "timelinePath": path},
        ]
    )


def _e7(degrees: float) -> int:
    return round(degrees * 1e7)


def takeout_records(points: list[Point]) -> str:
    rows = [
        {"latitudeE7": _e7(a), "longitudeE7": _e7(b), "accuracy": 20, "timestamp": iso(t)}
        for a, b, t in points
    ]
    return json.dumps({"locations": rows})


def takeout_semantic(points: list[Point]) -> str:
    (a, b, begin), *middle, (c, d, end) = points
    segment = {
        "startLocation": {"latitudeE7": _e7(a), "longitudeE7": _e7(b)},
        "endLocation": {"latitudeE7": _e7(c), "longitudeE7": _e7(d)},
        "duration": {"startTimestamp": iso(begin), "endTimestamp": iso(end)},
        "simplifiedRawPath": {
            "points": [
                {"latE7": _e7(x), "lngE7": _e7(y), "timestampMs": str(int(t.timestamp() * 1000))}
                for x, y, t in middle
            ]
        },
    }
    return json.dumps({"timelineObjects": [{"activitySegment": segment}]})


def owntracks(points: list[Point]) -> str:
    lines = []
    for lat, lon, time in points:
        said = {"_type": "location", "lat": lat, "lon": lon, "tst": int(time.timestamp())}
        lines.append(f"{iso(time)}\t{'*':<18}\t{json.dumps({**said, 'tid': 'ann'})}\n")
    lines.insert(1, f'{iso(BEGIN)}\t{"lwt":<18}\t{{"_type": "lwt", "tst": 1}}\n')
    return "".join(lines)


def skmob(points: list[Point]) -> str:
    rows = [f"{lat},{lon},{t:%Y-%m-%d %H:%M:%S},ann" for lat, lon, t in points]
    return "\n".join(["lat,lng,datetime,uid", *rows, ""])


def trackintel(points: list[Point]) -> str:
    rows = [f"{k},ann,{t.isoformat()},POINT ({b} {a})" for k, (a, b, t) in enumerate(points)]
    return "\n".join(["id,user_id,tracked_at,geom", *rows, ""])


FIT_EPOCH = datetime(1989, 12, 31, tzinfo=UTC)


def fit_file(points: list[Point]) -> bytes:
    """Messages `record` with time and position, as a watch writes them."""
    fields = ((253, 4, 0x86), (0, 4, 0x85), (1, 4, 0x85))  # number, bytes, base type
    body = struct.pack("<BBBHB", 0x40, 0, 0, 20, len(fields))
    body += b"".join(struct.pack("<BBB", *each) for each in fields)
    for lat, lon, time in points:
        since = int((time - FIT_EPOCH).total_seconds())
        semicircles = (round(degrees * 2**31 / 180) for degrees in (lat, lon))
        body += struct.pack("<BIii", 0, since, *semicircles)
    head = struct.pack("<BBHI4s", 14, 0x20, 2100, len(body), b".FIT")
    head += struct.pack("<H", _crc(head))
    return head + body + struct.pack("<H", _crc(head + body))


def _crc(data: bytes) -> int:
    """CRC-16/ARC."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc


def green_button(hours: int = 240, *, power: int = -3, code: int = 72) -> str:
    """Readings of an hour in thousandths of a Wh: a day's shape with some noise."""
    rng = random.Random(3)
    readings = "".join(
        "<IntervalReading><timePeriod><duration>3600</duration>"
        f"<start>{int(BEGIN.timestamp()) + 3600 * hour}</start></timePeriod>"
        f"<value>{int(1000 * (300 + 900 * (hour % 24 > 16) + rng.uniform(0, 400)))}</value>"
        "</IntervalReading>"
        for hour in range(hours)
    )
    base = "https://meters.example/espi/1_1/resource/UsagePoint/1/MeterReading/1"
    kind = "https://meters.example/espi/1_1/resource/ReadingType/7"
    return (
        '<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom" '
        'xmlns:espi="http://naesb.org/espi">'
        f'<entry><link rel="self" href="{base}"/><link rel="related" href="{kind}"/>'
        "<content><espi:MeterReading/></content></entry>"
        f'<entry><link rel="self" href="{kind}"/><content><ReadingType '
        f'xmlns="http://naesb.org/espi"><powerOfTenMultiplier>{power}</powerOfTenMultiplier>'
        f"<uom>{code}</uom></ReadingType></content></entry>"
        f'<entry><link rel="self" href="{base}/IntervalBlock/1"/><content><IntervalBlock '
        f'xmlns="http://naesb.org/espi">{readings}</IntervalBlock></content></entry></feed>'
    )


def apple_health(minutes: int = 300) -> str:
    rng = random.Random(4)
    rows = []
    for minute in range(minutes):
        begin = (BEGIN + timedelta(minutes=minute)).strftime("%Y-%m-%d %H:%M:%S +0000")
        pulse = 60 + 30 * (minute // 40 % 2) + rng.randrange(20)
        rows.append(
            '<Record type="HKQuantityTypeIdentifierHeartRate" sourceName="Watch" '
            f'unit="count/min" startDate="{begin}" endDate="{begin}" value="{pulse}"/>'
        )
    until = (BEGIN + timedelta(hours=6)).strftime("%Y-%m-%d %H:%M:%S +0000")
    rows.append(
        '<Record type="HKCategoryTypeIdentifierSleepAnalysis" sourceName="Watch" '
        f'startDate="2024-05-04 08:00:00 +0000" endDate="{until}" '
        'value="HKCategoryValueSleepAnalysisInBed"/>'
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE HealthData [\n'
        "<!ELEMENT HealthData (ExportDate,Me,(Record|Workout)*)>\n<!ATTLIST Me x CDATA #IMPLIED\n"
        f'>\n]>\n<HealthData locale="en">{"".join(rows)}</HealthData>\n'
    )


def fitbit(minutes: int = 300) -> str:
    rng = random.Random(6)
    rows = [
        {
            "dateTime": (BEGIN + timedelta(minutes=k)).strftime("%m/%d/%y %H:%M:%S"),
            "value": {"bpm": 60 + 30 * (k // 40 % 2) + rng.randrange(20), "confidence": 2},
        }
        for k in range(minutes)
    ]
    return json.dumps(rows)


TRACKS: dict[str, Callable[[list[Point]], str | bytes]] = {
    "ride.gpx": gpx,
    "dawarich.json": geojson_points,
    "line.geojson": geojson_line,
    "way.kml": kml,
    "run.tcx": tcx,
    "Timeline.json": timeline_android,
    "location-history.json": timeline_ios,
    "Records.json": takeout_records,
    "2024_MAY.json": takeout_semantic,
    "2024-05.rec": owntracks,
    "skmob.csv": skmob,
    "positionfixes.csv": trackintel,
}
SERIES: dict[str, Callable[[], str]] = {
    "usage.xml": green_button,
    "export.xml": apple_health,
    "heart_rate-2024-05-04.json": fitbit,
}


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
