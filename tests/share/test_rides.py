"""Maps from lines, matching of positions, and the parts of a ride."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from shoal.core.errors import DataError, InputError
from shoal.share.formats import read_goals, read_ride, read_rides_of, read_roads
from shoal.share.history import Leg
from shoal.share.maps import Line, street_map
from shoal.share.matching import Matcher
from shoal.share.place import PermanentPlace, square_at
from shoal.share.rides import Piece, pieces_of_ride
from studies.share_towns import Rider, make_town, path_metres
from tests.app_files import fit_file, walk


def test_bends_are_no_crossings_and_one_ways_stay() -> None:
    lines = [
        Line(((13.0, 52.0), (13.001, 52.0005), (13.002, 52.0))),  # a bend
        Line(((13.002, 52.0), (13.002, 52.002)), one_way=True),
        Line(((13.002, 52.002), (13.0, 52.0))),
        Line(((13.0, 52.0), (12.99, 52.0)), one_way=True),  # nobody comes back
    ]
    found = street_map(lines)
    assert len(found.points) == 3
    pairs = set(zip(found.tails.tolist(), found.heads.tolist(), strict=True))
    corner, far = found.nearest(52.0, 13.002)[0], found.nearest(52.002, 13.002)[0]
    assert ((corner, far) in pairs, (far, corner) in pairs) == (True, False)
    assert max(len(shape) for shape in found.shapes) == 3
    roads = found.roads()
    assert roads.weights.shape == (6, len(pairs))
    bend = np.flatnonzero([len(shape) == 3 for shape in found.shapes])
    assert len(bend) == 2
    assert roads.weights[1, bend[0]] == roads.weights[1, bend[1]]  # tastes do not see direction


def test_noisy_positions_find_their_way() -> None:
    town = make_town(3, crossings=500, side=4000.0)
    ends = town.points[:, ::-1].tolist()
    streets = street_map([Line((tuple(ends[a]), tuple(ends[b]))) for a, b in town.pairs.tolist()])
    random = np.random.default_rng(5)
    start, goal = int(np.argmin(town.xy.sum(axis=1))), int(np.argmax(town.xy.sum(axis=1)))
    path = Rider(town.roads(), 0, random).leg(start, goal)
    where = []
    for a, b in pairwise(path):
        share = np.linspace(0, 1, max(2, round(path_metres(town, (a, b)) / 10)))[:-1, None]
        where.append(town.points[a] + share * (town.points[b] - town.points[a]))
    positions = np.vstack(where) + random.normal(0, 5e-5, (sum(map(len, where)), 2))
    matched = Matcher(streets).match(positions)
    known = [streets.nearest(*town.points[crossing]) for crossing in path]
    truth = {crossing for crossing, far in known if far < 1}  # others are bends
    assert len(truth & set(matched.path)) > 0.95 * len(truth)
    assert list(matched.passed) == sorted(matched.passed)
    with pytest.raises(DataError, match="near a road"):
        Matcher(streets).match(np.array([[10.0, 10.0], [10.1, 10.1]]))


ZONE, OTHER = PermanentPlace.of((0, 1)), PermanentPlace.of((20, 21))


def test_a_round_trip_has_two_legs() -> None:
    path = (0, 2, 3, 9, 3, 2, 1)
    assert pieces_of_ride(path, [9], [ZONE]) == [
        Piece(0, 3, Leg((0, 2, 3, 9), 9)),
        Piece(3, 6, Leg((9, 3, 2, 1), 9, True)),
    ]


def test_a_ride_through_the_zone_is_two_legs_and_between_goals_none() -> None:
    path = (8, 7, 2, 0, 3, 9, 10, 11)
    found = pieces_of_ride(path, [8, 9, 11], [ZONE])
    assert [piece.leg for piece in found] == [
        Leg((8, 7, 2, 0), 8, True), Leg((0, 3, 9), 9), None,
    ]  # fmt: skip


def test_circles_at_a_goal_and_between_two_hidden_places_are_left_out() -> None:
    assert pieces_of_ride((0, 2, 9, 5, 9, 2, 1), [9], [ZONE])[1].leg == Leg((9, 2, 1), 9, True)
    found = pieces_of_ride((8, 2, 0, 3, 20, 4, 9), [8, 9], [ZONE, OTHER])
    assert [piece.leg for piece in found] == [
        Leg((8, 2, 0), 8, True), Leg((20, 4, 9), 9, False, 1),
    ]  # fmt: skip


def test_a_ride_that_misses_its_goal_has_no_parts() -> None:
    assert pieces_of_ride((0, 2, 3), [9], [ZONE]) == []


def test_squares_lie_on_one_grid() -> None:
    south, west, height, width = square_at(52.5167, 13.3833)
    assert south <= 52.5167 < south + height
    assert west <= 13.3833 < west + width
    assert square_at(south + 1e-9, west + 1e-9)[:2] == pytest.approx((south, west))
    assert 900 < width * 111_195 * np.cos(np.radians(52.5)) < 1300


WAY = [(52.5, 13.4), (52.51, 13.4), (52.51, 13.42)]
FILES = {
    "a.gpx": '<gpx creator="x"><trk><name>home</name><trkseg>{}</trkseg></trk></gpx>',
    "a.tcx": "<TrainingCenterDatabase><Activities><Activity><Lap><Calories>5</Calories><Track>{}"
    "</Track></Lap></Activity></Activities></TrainingCenterDatabase>",
    "a.kml": "<kml><Placemark><name>home</name><LineString><coordinates>{}</coordinates>"
    "</LineString></Placemark></kml>",
    "a.geojson": '{{"type": "Feature", "properties": {{"name": "home"}}, "geometry": '
    '{{"type": "LineString", "coordinates": [{}]}}}}',
}
POINTS = {
    "a.gpx": '<trkpt lat="{}" lon="{}"><ele>3</ele><time>2026-05-01T08:00:00Z</time></trkpt>',
    "a.tcx": "<Trackpoint><Time>2026-05-01T08:00:00Z</Time><Position><LatitudeDegrees>{}"
    "</LatitudeDegrees><LongitudeDegrees>{}</LongitudeDegrees></Position></Trackpoint>",
    "a.kml": "{1},{0} ",
    "a.geojson": "[{1}, {0}]",
}
BESIDE = {
    "a.gpx": ("altitude", "clock times", "names", "the device"),
    "a.tcx": ("clock times", "totals"),
    "a.kml": ("names",),
    "a.geojson": ("names",),
}


@pytest.mark.parametrize("name", FILES)
def test_a_ride_is_read_whatever_its_format(tmp_path: Path, name: str) -> None:
    points = [POINTS[name].format(*where) for where in WAY]
    joined = (", " if name == "a.geojson" else "").join(points)
    (tmp_path / name).write_text(FILES[name].format(joined))
    (ride,) = read_rides_of([tmp_path])
    assert ride.positions.tolist() == [list(where) for where in WAY]
    assert ride.beside == BESIDE[name]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.gpx", "<gpx><trk>", "XML"),
        ("a.gpx", '<!DOCTYPE g [<!ENTITY a "b">]><gpx/>', "entit"),
        ("a.gpx", '<gpx><trkpt lat="1"/></gpx>', "no latitude and longitude"),
        ("a.gpx", "<gpx/>", "no positions"),
        ("a.gpx", '<gpx><trkpt lat="1" lon="1"/></gpx>', "no track of two"),
        ("a.csv", "x,y\n1,2\n", "is CSV; give each ride as GPX"),
        (
            "a.json",
            '{"locations": [{"latitudeE7": 1, "longitudeE7": 1}]}',
            "Records; give each ride as GPX",
        ),
    ],
)
def test_files_that_are_no_rides(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_ride(tmp_path / name)


def test_files_that_are_no_maps_or_goals(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match="holds no goals"):
        read_goals(tmp_path / "a.csv")
    (tmp_path / "a.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    with pytest.raises(DataError, match="bbbike"):
        read_roads(tmp_path / "a.geojson")


def test_an_extract_without_its_library_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "osmium", None)
    with pytest.raises(InputError, match=r"needs pyosmium; install it with `pip install 'shoal\["):
        read_roads(tmp_path / "town.osm.pbf")


@pytest.mark.parametrize("suffix", ["osm", "osm.pbf"])
def test_an_extract_of_openstreetmap(tmp_path: Path, suffix: str) -> None:
    osmium = pytest.importorskip("osmium")
    nodes = [(1, 52.0, 13.0), (2, 52.0, 13.002), (3, 52.002, 13.002), (4, 51.999, 13.0)]
    ways = [
        ((1, 2), {"highway": "residential"}),
        ((2, 3), {"highway": "residential", "oneway": "yes"}),
        ((3, 1), {"highway": "cycleway", "oneway": "-1", "oneway:bicycle": "no"}),
        ((1, 4), {"highway": "path"}),
        ((2, 4), {"building": "yes"}),
        ((3, 4), {"highway": "motorway"}),
    ]
    path = tmp_path / f"town.{suffix}"
    with osmium.SimpleWriter(str(path)) as writer:
        for number, latitude, longitude in nodes:
            where = (longitude, latitude)
            writer.add_node(osmium.osm.mutable.Node(id=number, location=where, version=1))
        for number, (ends, tags) in enumerate(ways):
            writer.add_way(osmium.osm.mutable.Way(id=number + 9, nodes=ends, tags=tags, version=1))
    lines = read_roads(path)
    assert [line.road_class for line in lines] == ["residential"] * 2 + ["cycleway", "path"]
    found = street_map(lines)
    assert (len(found.points), len(found.tails)) == (4, 7)
    path.write_bytes(b"no extract")
    with pytest.raises(DataError, match="damaged or no OpenStreetMap"):
        read_roads(path)


def test_a_fit_file_is_read(tmp_path: Path) -> None:
    pytest.importorskip("fitdecode")
    points = walk(5)
    (tmp_path / "a.fit").write_bytes(fit_file(points))
    ride = read_ride(tmp_path / "a.fit")
    assert ride.positions == pytest.approx(np.array([point[:2] for point in points]), abs=1e-6)
    assert "sensor readings" in ride.beside
