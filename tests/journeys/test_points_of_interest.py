"""From a track and points of interest to a release that hides which of them one was at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shoal
from shoal.spec.request import read_request
from tests import app_files
from tests.journeys.shell import Shell

CATEGORIES = ("restaurant", "pharmacy", "bar")


def points() -> list[tuple[str, str, float, float]]:
    """Name, category, latitude and longitude of points along a walk."""
    walk = app_files.walk(120)
    return [(f"p{k}", CATEGORIES[k % 3], *walk[5 * k][:2]) for k in range(24)]


def as_geojson() -> str:
    features = [
        {
            "type": "Feature",
            "properties": {"name": name, "category": kind},
            "geometry": {"type": "Point", "coordinates": [lon, lat]},
        }
        for name, kind, lat, lon in points()
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


def as_osm() -> str:
    nodes = "".join(
        f'<node id="{k}" lat="{lat}" lon="{lon}"><tag k="amenity" v="{kind}"/>'
        f'<tag k="name" v="{name}"/></node>'
        for k, (name, kind, lat, lon) in enumerate(points())
    )
    return f'<?xml version="1.0"?><osm version="0.6">{nodes}</osm>'


def as_overpass() -> str:
    elements = [
        {"type": "node", "id": k, "lat": lat, "lon": lon, "tags": {"amenity": kind, "name": name}}
        for k, (name, kind, lat, lon) in enumerate(points())
    ]
    return json.dumps({"version": 0.6, "elements": elements})


def as_csv() -> str:
    rows = [f"{name},{kind},{lat},{lon}" for name, kind, lat, lon in points()]
    return "\n".join(["name,category,latitude,longitude", *rows, ""])


FILES = {
    "pois.geojson": as_geojson,
    "pois.osm": as_osm,
    "pois.json": as_overpass,
    "pois.csv": as_csv,
}


@pytest.fixture
def town(shell: Shell) -> Shell:
    (shell.folder / "ride.gpx").write_text(app_files.gpx(app_files.walk(120)))
    for name, content in FILES.items():
        (shell.folder / name).write_text(content())
    return shell


def secrets(spec: Path, lines: str) -> None:
    """Put other [secrets] into a spec."""
    text = spec.read_text()
    begin, end = text.index("[secrets]"), text.index("[query]")
    spec.write_text(f'{text[:begin]}[secrets]\nkind = "policy-graph"\n{lines}\n{text[end:]}')


def test_a_file_of_points_becomes_a_policy_a_picture_and_a_release(town: Shell) -> None:
    said = " ".join(town.run("shoal read pois.geojson").out.split())
    assert "3 different: restaurant, pharmacy, bar" in said or "3 different: " in said
    assert "--places pois.geojson --same category --within 1km" in said
    fit = "shoal fit ride.gpx -o m.json --grid 0.5 --spec t.toml"
    made = town.run(f"{fit} --places pois.geojson --same category --within 1km")
    assert town.follow(made)
    released = json.loads((town.folder / "t-released.geojson").read_text())
    assert released["features"]
    said = " ".join(town.run("shoal plan t.toml --plot who.png").out.split())
    assert "points of interest of the same category within 1 km of each other" in said
    assert "Who looks like whom: " in said
    assert (town.folder / "who.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(town.run("shoal plan t.toml --json").out)["places"]["alike"]
    assert found["joined"] > 0
    assert found["least"] <= found["median"] <= found["most"]


def test_every_format_of_points_gives_the_same_policy(town: Shell) -> None:
    town.run("shoal fit ride.gpx -o m.json --grid 0.5 --spec t.toml")
    spec = town.folder / "t.toml"
    policies = []
    for name in FILES:
        where = f'from = "{name}"\nsame = "category"\nwithin = "1 km"'
        secrets(spec, f'graph = "places"\n[secrets.places]\n{where}')
        policies.append(read_request(spec).task.secrets)
        assert "restaurant" in town.run(f"shoal read {name}").out
    assert all(policy == policies[0] for policy in policies)


def test_policies_in_words_and_their_combinations_name_the_points(town: Shell) -> None:
    town.run("shoal fit ride.gpx -o m.json --grid 0.5 --spec t.toml")
    spec, file = town.folder / "t.toml", '[secrets.places]\nfrom = "pois.csv"'
    words = "exact unless within 400 m of pharmacy; there among the 1 km around"
    secrets(spec, f'graph = "words"\nwords = "hide which bar within 1 km; {words}"\n{file}')
    town.run("shoal plan t.toml")
    parts = '[[secrets.of]]\ngraph = "places"\n[[secrets.of]]\ngraph = "radius"\nradius_km = 0.5'
    alike = f'{file}\nsame = "category"\n'
    policies = {}
    for graph in ("all", "any"):
        secrets(spec, f'graph = "{graph}"\n{parts}\n{alike}')
        policies[graph] = len(read_request(spec).task.secrets.all_edges())  # type: ignore[attr-defined]
    assert 0 < policies["all"] < policies["any"]
    model = read_request(spec).task.family[0]
    visited = shoal.places.zone(model, points()[0][2:])
    secrets(
        spec,
        f'graph = "radius"\nradius_km = 1\nslots = 6\n{file}\n'
        '[[secrets.event]]\nvisit = "pharmacy"\nbetween = [0, 5]',
    )
    text = spec.read_text().replace("epsilon = 1.0", "epsilon = 1.0\nevent_epsilon = 1.0")
    spec.write_text(text)
    watch = read_request(spec).task.secrets.watch  # type: ignore[attr-defined]
    assert watch is not None
    assert visited


def test_points_that_cannot_be_used_are_refused_in_a_sentence(town: Shell) -> None:
    town.run("shoal fit ride.gpx -o m.json --grid 0.5 --spec t.toml")
    spec = town.folder / "t.toml"
    for lines, words in (
        ('from = "pois.csv"', "say which look alike, such as same"),
        ('from = "none.csv"\nsame = "category"', "no file is at"),
        ('from = "pois.csv"\nsame = "colour"', "have no column 'colour'"),
        ('from = "pois.csv"\nsame = "category"\nonly = "zoo"', "only names 'zoo'"),
        ('from = "pois.csv"\nsame = "category"\nwithin = "1 mile"', "must be a length such as"),
        ('from = "pois.csv"\nkind = "category"', "places.kind is 'category'; places from a file"),
        ('from = "ride.gpx"\nsame = "category"', "is XML, but not of OpenStreetMap"),
        ("home = [52.5, 13.4]", "needs a file of points of interest"),
    ):
        secrets(spec, f'graph = "places"\n[secrets.places]\n{lines}')
        town.refused("shoal plan t.toml", words)
    secrets(spec, 'graph = "all"')
    town.refused("shoal plan t.toml", 'without of, which is for "all" and "any"')
    (town.folder / "far.csv").write_text("name,category,lat,lon\na,bar,1,2\n")
    secrets(spec, 'graph = "places"\n[secrets.places]\nfrom = "far.csv"\nsame = "category"')
    town.refused("shoal plan t.toml", "none of the points of interest lies on the model's map")
    (town.folder / "bad.csv").write_text("name,category,lat,lon\na,bar,100,2\n")
    secrets(spec, 'graph = "places"\n[secrets.places]\nfrom = "bad.csv"\nsame = "category"')
    town.refused("shoal plan t.toml", "check that the columns hold degrees")
    fit = "shoal fit ride.gpx -o n.json --grid 0.5"
    town.refused(f"{fit} --places pois.csv --same category", "--places is for a spec")
    town.refused(f"{fit} --spec u.toml --places pois.csv", "--places needs --same COLUMN")
    town.refused(f"{fit} --spec u.toml --same category", "name --places too")


def test_a_service_finds_the_nearest_places_of_a_release(town: Shell) -> None:
    town.run("shoal fit ride.gpx -o m.json --grid 0.5 --spec t.toml")
    for name in ("shared.geojson", "shared.csv"):
        town.run(f"shoal release t.toml ride.gpx -o {name}")
        said = " ".join(town.run(f"shoal nearest {name} pois.geojson --k 3").out.split())
        assert "to the last estimate: p" in said
        asked = f"shoal nearest {name} pois.osm --k 3 --spec t.toml --truth ride.gpx"
        said = " ".join(town.run(asked).out.split())
        assert "of the 3 places nearest to the true position a service finds" in said
        found = json.loads(town.run(f"{asked} --json").out)
        assert found["compared"] == found["steps"] == 120
        assert 0 <= found["recall_point"] <= 1
        assert found["covered"] >= 0.8
        assert 1 <= found["set_size"] <= 24
    bars = json.loads(
        town.run("shoal nearest shared.csv pois.csv --category bar --spec t.toml --json").out
    )
    assert bars["places"] == 8
    assert set(bars["last_set"]) <= {f"p{k}" for k in range(2, 24, 3)}
    town.refused("shoal nearest shared.csv pois.csv --category zoo", "no point has; there are")
    town.refused("shoal nearest shared.csv pois.csv --truth ride.gpx", "--truth needs --spec")
    town.refused("shoal nearest pois.csv pois.csv", "has no 'user'; name a file that")
    town.run("shoal release t.toml ride.gpx -o shared.gpx")
    town.refused("shoal nearest shared.gpx pois.csv", "holds estimates alone")
    other = (town.folder / "t.toml").read_text().replace("radius_km = 1.0", "radius_km = 2.0")
    (town.folder / "other.toml").write_text(other)
    town.refused("shoal nearest shared.csv pois.csv --spec other.toml", "do not follow from its")
