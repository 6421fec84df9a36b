"""Places as people have them: GPX and GeoJSON, zones, policies in words, roads, maps as pages."""

from __future__ import annotations

import itertools
import json
import sys
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli.app import app
from shoal.core.errors import DataError, InputError
from shoal.core.plan import Plan
from shoal.core.registry import dumps, loads
from shoal.mechanisms.choice import calibrate
from shoal.noise.primitives import SeededRng
from shoal.places.formats import (
    read_track,
    tracks_geojson,
    tracks_gpx,
    zone,
    zones_of,
)
from shoal.places.map import RoadMap, SquareGrid
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.stream import LocationStream
from shoal.places.tracks import TrackColumns, release_tracks
from shoal.places.views.tracks import map_page
from shoal.places.walk import free_walk
from shoal.places.words import policy_in_words

GRID = SquareGrid(south=Fraction(52), west=Fraction(13), cell_m=Fraction(500), rows=6, columns=6)
TOWN = free_walk(GRID)
HOME = tuple(GRID.centre_of(14).tolist())


@pytest.fixture(scope="module")
def plan() -> Plan:
    query = coordinates(TOWN)
    policy = PolicyGraph.within(query, 1)
    return calibrate(query, policy, TOWN, epsilon=1, mechanism="location-knorm")


def readings(steps: int = 4) -> pl.DataFrame:
    places = GRID.centre_of(np.array([14, 15, 21, 20]))[:steps]
    times = [datetime(2024, 3, 4, 8, 5 * k, tzinfo=UTC) for k in range(steps)]
    return pl.DataFrame(
        {"user": ["ann <&>"] * steps, "time": times, "lat": places[:, 0], "lon": places[:, 1]}
    )


COLUMNS = TrackColumns(user="user", time="time", latitude="lat", longitude="lon")


def released(plan: Plan, **rest: Any) -> pl.DataFrame:
    columns = TrackColumns(user="user", time="time", latitude="lat", longitude="lon", **rest)
    rows: pl.DataFrame = release_tracks(plan, readings(), columns, seed=3)
    return rows


def test_steps_keep_their_times_and_have_degrees_beside_km(plan: Plan) -> None:
    rows = released(plan)
    assert rows["time"].to_list() == readings()["time"].to_list()
    assert rows["time"].dtype == pl.Datetime("us", "UTC")
    for name in ("z", "estimate"):
        km = rows.select(f"{name}_east", f"{name}_north").to_numpy()
        degrees = rows.select(f"{name}_lat", f"{name}_lon").to_numpy()
        assert np.allclose(GRID.to_degrees(km), degrees)
    even = released(plan, every=150.0)
    assert even.height == 7
    assert [when.minute for when in even["time"]] == [0, 2, 5, 7, 10, 12, 15]
    assert even["z_lat"].null_count() == 3
    numbers = readings().with_columns(time=pl.Series([0.0, 60.5, 120.0, 200.0]))
    kept = release_tracks(plan, numbers, COLUMNS, seed=3)["time"]
    assert kept.to_list() == [0.0, 60.5, 120.0, 200.0]


def test_gpx_and_geojson_go_out_and_come_in_again(plan: Plan, tmp_path: Path) -> None:
    rows = released(plan)
    (tmp_path / "out.gpx").write_text(tracks_gpx(rows))
    (tmp_path / "out.geojson").write_text(tracks_geojson(rows))
    wanted = rows.select("estimate_lat", "estimate_lon").to_numpy()
    found = read_track(tmp_path / "out.gpx")
    assert found["user"].unique().to_list() == ["ann <&>/0"]
    assert found["time"].to_list() == rows["time"].to_list()
    assert np.allclose(found.select("lat", "lon").to_numpy(), wanted, atol=1e-6)
    document = json.loads((tmp_path / "out.geojson").read_text())
    assert [each["geometry"]["type"] for each in document["features"]] == ["LineString"] + [
        "Point"
    ] * 4
    again = read_track(tmp_path / "out.geojson")
    assert np.allclose(again.select("lat", "lon").to_numpy()[:4], wanted)
    assert again["time"][:4].to_list() == rows["time"].to_list()
    assert np.allclose(again.select("lat", "lon").to_numpy()[4:], wanted)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.gpx", "<gpx>", "is not XML"),
        ("a.gpx", '<!DOCTYPE a [<!ENTITY b "c">]><gpx/>', "declares entities"),
        ("a.gpx", "<gpx/>", "holds no positions"),
        ("a.gpx", '<gpx><trk><trkpt lat="1e3" lon="0"/></trk></gpx>', "no latitude"),
        (
            "a.gpx",
            '<gpx><trk><trkpt lat="1" lon="0"><time>soon</time></trkpt></trk></gpx>',
            "neither ISO 8601",
        ),
        ("a.geojson", '{"type": "Feature", "geometry": {"type": "Polygon"}}', "points and lines"),
        (
            "a.geojson",
            '{"features": [{"geometry": {"type": "LineString", "coordinates": [[1, 2], [1, 3]]}, '
            '"properties": {"times": ["2024-01-01T00:00:00Z"]}}]}',
            "1 times for 2 places",
        ),
    ],
)
def test_files_that_are_no_tracks_are_refused(
    name: str, text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=words):
        read_track(tmp_path / name)


def test_the_command_line_reads_gpx_and_writes_maps(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(dumps(plan))
    points = "".join(
        f'<trkpt lat="{lat}" lon="{lon}"><time>{time.isoformat()}</time></trkpt>'
        for _, time, lat, lon in readings().iter_rows()
    )
    (tmp_path / "in.gpx").write_text(
        f'<gpx xmlns="http://www.topografix.com/GPX/1/1"><trk><name>ann</name><trkseg>{points}'
        "</trkseg></trk></gpx>"
    )
    for out in ("out.geojson", "out.gpx", "out.csv"):
        given = ["release", str(tmp_path / "plan.json"), str(tmp_path / "in.gpx"), "--seed", "1"]
        plot = ["--plot", str(tmp_path / f"{out}.html")]
        result = CliRunner().invoke(app, [*given, "-o", str(tmp_path / out), *plot])
        assert result.exit_code == 0, result.output
    assert read_track(tmp_path / "out.gpx")["time"].to_list() == readings()["time"].to_list()
    table = pl.read_csv(tmp_path / "out.csv", try_parse_dates=True)
    assert {"time", "z_lat", "estimate_lon"} <= set(table.columns)
    page = (tmp_path / "out.csv.html").read_text()
    assert "owner's eyes only" in page


def test_a_map_is_one_page_without_network(plan: Plan) -> None:
    page = map_page(plan, released(plan))
    assert "http://" not in page
    assert "https://" not in page
    assert "src=" not in page
    assert "default-src 'none'" in page
    assert "ann <&>" not in page  # names are written as JSON that ends no script
    assert "owner" not in page
    streams = json.loads(page.split("const streams = ")[1].split(";\n")[0])
    assert len(streams[0]["estimates"]) == 4
    assert streams[0]["name"] == "ann <&>/0"


SQUARE = {
    "type": "Polygon",
    "coordinates": [
        [[13.0, 52.0], [13.02, 52.0], [13.02, 52.01], [13.0, 52.01], [13.0, 52.0]],
        [[13.0, 52.0], [13.008, 52.0], [13.008, 52.005], [13.0, 52.005], [13.0, 52.0]],
    ],
}


def test_zones_are_states_around_a_point_or_inside_a_shape(tmp_path: Path) -> None:
    assert zone(TOWN, HOME, radius_km=0.1) == ("2,2",)
    assert set(zone(TOWN, HOME, radius_km=0.51)) == {"2,2", "1,2", "3,2", "2,1", "2,3"}
    inside = set(zone(TOWN, SQUARE))
    assert "0,0" not in inside  # in the hole
    assert {"0,1", "1,0"} <= inside
    by_hand = {
        name
        for name, (lat, lon) in zip(TOWN.states, GRID.centre_of(np.arange(36)), strict=True)
        if 52 < lat < 52.01 and 13 < lon < 13.02 and not (lat < 52.005 and lon < 13.008)
    }
    assert inside == by_hand
    features = [
        {"type": "Feature", "geometry": SQUARE, "properties": {"name": "park"}},
        {"type": "Feature", "geometry": SQUARE, "properties": {"name": "again"}},
    ]
    path = tmp_path / "zones.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    found = zones_of(TOWN, path, others=True)
    assert set(found) == {"park", ""}
    assert set(found["park"]) == inside
    assert sum(map(len, found.values())) == 36
    assert shoal.visit(found["park"], between=(0, 3)).prior(TOWN, length=4) > 0.2


@pytest.mark.parametrize(
    ("place", "radius", "words"),
    [
        (SQUARE, 1, "leave it out"),
        ({"type": "Point"}, None, "must hold a position"),
        ({"type": "LineString"}, None, "Point, Polygon or MultiPolygon"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0]]]}, None, "fewer than three"),
        ({"type": "Polygon", "coordinates": [["a"]]}, None, "must hold positions"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1]]]}, None, "no state of"),
    ],
)
def test_shapes_that_are_no_zones_are_refused(place: Any, radius: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        zone(TOWN, place, radius_km=radius)


def test_a_policy_in_words_joins_what_it_says() -> None:
    words = "exact unless within 600 m of home; there among the 1.2 km around"
    policy = policy_in_words(TOWN, words, {"home": HOME})
    wide = zone(TOWN, HOME, radius_km=1.2)
    joined = {frozenset(TOWN.states[a] for a in pair) for pair in policy.all_edges()}
    assert {pair for pair in joined if pair & set(wide)} == {
        frozenset(pair) for pair in itertools.combinations(wide, 2)
    }
    apart = [pair for pair in joined if not pair & set(wide)]
    assert len(apart) == -(-(36 - len(wide)) // 2)
    assert len(policy.alone(np.ones(36, dtype=np.bool_))) == 0
    assert policy.title == words
    everywhere = policy_in_words(TOWN, "everywhere among the 500 m around.")
    same = PolicyGraph.within(coordinates(TOWN), Fraction(1, 2))
    assert np.array_equal(everywhere.all_edges(), same.all_edges())
    park = ("0,0", "0,1", "5,5")
    zoned = policy_in_words(TOWN, "Exact unless in the park; there among the park", {"Park": park})
    inner = zoned.groups == 0
    assert {TOWN.states[k] for k in np.flatnonzero(inner)} == set(park)
    near = policy_in_words(TOWN, "unless in the park; there among the 500 m around", {"park": park})
    assert int((near.groups == 0).sum()) == 8
    both = policy_in_words(TOWN, f"{words}; everywhere among the 500 m around", {"home": HOME})
    assert len(both.all_edges()) > len(same.all_edges())


def test_far_from_home_a_policy_in_words_is_nearly_exact() -> None:
    words = "exact unless within 600 m of home; there among the 1.2 km around"
    query, policy = coordinates(TOWN), policy_in_words(TOWN, words, {"home": HOME})
    plan = calibrate(query, policy, TOWN, epsilon=1, mechanism="location-graph-exponential")
    law = plan.body.runtime.noise(np.ones(36, dtype=np.bool_)).law  # type: ignore[union-attr]
    home, far = (law.points[TOWN.states.index(name)] for name in ("2,2", "5,5"))
    rng = SeededRng(1)
    spread = [
        np.mean(
            [
                np.linalg.norm(np.array(law.draw(TOWN.states.index(name), rng)) - at)
                for _ in range(200)
            ]
        )
        for name, at in (("2,2", home), ("5,5", far))
    ]
    assert spread[1] < 1 < spread[0]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", "has no words"),
        ("always exact", "and not among what"),
        ("exact unless within 5 m of home; there", "then 'there'"),
        ("exact unless within 5 m of work; there among the 2 km around", "names 'work'"),
        ("exact unless in home; there among the home", "say how near"),
        ("exact unless in the moon; there among the moon", "does not have"),
    ],
)
def test_words_that_say_no_policy_are_refused(words: str, found: str) -> None:
    with pytest.raises(InputError, match=found):
        policy_in_words(TOWN, words, {"home": HOME, "moon": ["9,9"]})


def roads() -> Any:
    """A square of four roads with a dead end, in both directions."""
    graph = nx.MultiDiGraph()
    corners = {
        1: (13.0, 52.0),
        2: (13.01, 52.0),
        3: (13.01, 52.01),
        4: (13.0, 52.01),
        5: (13.03, 52.01),
    }
    for node, (x, y) in corners.items():
        graph.add_node(node, x=x, y=y)
    for a, b in [(1, 2), (2, 3), (3, 4), (4, 1), (3, 5)]:
        graph.add_edge(a, b)
        graph.add_edge(b, a)
    return graph


def test_roads_are_a_map_whose_pieces_are_states() -> None:
    road = RoadMap.of_graph(roads())
    assert road.names == ("1-2", "1-4", "2-3", "3-4", "3-5")
    assert road.adjacent(4) == (2, 3)
    assert int(road.cell_of(52.0001, 13.004)) == 0
    assert int(road.cell_of(52.5, 13.9)) == 4  # no point is off the map
    assert int(road.cell_of(float("nan"), 13.0)) == -1
    assert road.cell_of(np.array([52.0, 52.01]), np.array([13.005, 13.02])).tolist() == [0, 4]
    assert np.allclose(
        road.to_degrees(road.lattice_of(np.arange(5)) / 1000),
        road.centre_of(np.arange(5)),
        atol=1e-5,
    )
    chain = free_walk(road, stay=0.4, start=0)
    assert chain.initial.tolist() == [1, 0, 0, 0, 0]
    query = coordinates(chain)
    plan = calibrate(query, PolicyGraph.nearest(query, 2), chain, epsilon=1)
    stream, release = LocationStream.begin(plan).read((52.0001, 13.004), rng=SeededRng(1))
    assert release.unit == "km"
    assert loads(dumps(stream)) == stream
    assert zone(chain, (52.01, 13.02), radius_km=0.1) == ("3-5",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda graph: graph.remove_edges_from(list(graph.edges)), "no edge between"),
        (lambda graph: graph.nodes[1].pop("x"), "has no x and y"),
    ],
)
def test_graphs_that_are_no_roads_are_refused(change: Any, words: str) -> None:
    graph = roads()
    change(graph)
    with pytest.raises(InputError, match=words):
        RoadMap.of_graph(graph)


def test_ends_and_names_of_roads_are_checked() -> None:
    with pytest.raises(InputError, match="four finite numbers"):
        RoadMap(ends=np.zeros((1, 3)), names=("a",))
    with pytest.raises(InputError, match="name each once"):
        RoadMap(ends=np.zeros((2, 4)), names=("a", "a"))


EXTRACT = """<?xml version="1.0" encoding="UTF-8"?>
<osm version="0.6" generator="by hand">
 <node id="1" lat="52.0" lon="13.0"/>
 <node id="2" lat="52.0" lon="13.01"/>
 <node id="3" lat="52.01" lon="13.01"/>
 <node id="4" lat="52.02" lon="13.01"/>
 <way id="10"><nd ref="1"/><nd ref="2"/><tag k="highway" v="residential"/></way>
 <way id="11"><nd ref="2"/><nd ref="3"/><nd ref="4"/><tag k="highway" v="primary"/></way>
</osm>
"""


@pytest.mark.engines
def test_a_map_of_roads_comes_from_an_extract(tmp_path: Path) -> None:
    pytest.importorskip("osmnx")
    (tmp_path / "town.osm").write_text(EXTRACT)
    road = RoadMap.of_extract(str(tmp_path / "town.osm"))
    assert [road.name_of(k) for k in range(road.size)] == ["1-2", "2-3", "3-4"]  # every bend
    assert road.cell_of([52.0], [13.004]).tolist() == [0]
    chain = free_walk(road)
    query = coordinates(chain)
    made = calibrate(query, PolicyGraph.complete(chain.states), chain, epsilon=1)
    assert made.guarantee.proved
    assert loads(dumps(chain)) == chain


def test_an_extract_without_osmnx_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "osmnx", None)
    with pytest.raises(InputError, match=r"need osmnx; install it with"):
        RoadMap.of_extract("town.osm")
