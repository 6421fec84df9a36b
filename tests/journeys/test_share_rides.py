"""A newcomer shares a folder of rides in one command, and goes on sharing."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from shoal.cli.app import app
from shoal.data.write import atomic_write
from shoal.share.place import square_at
from studies.share_towns import Rider, Town, make_town

HOME = (0.0, -500.0)  # metres; the goals lie beyond the only bridge


def small_town() -> Town:
    return make_town(11, crossings=700, side=4000.0, bridges=1)


@pytest.fixture(scope="module")
def town() -> Town:
    return small_town()


def write_roads(town: Town, path: Path) -> None:
    features = [
        {
            "type": "Feature",
            "properties": {"highway": "residential"},
            "geometry": {
                "type": "LineString",
                "coordinates": [town.points[end][::-1].round(6).tolist() for end in pair],
            },
        }
        for pair in town.pairs.tolist()
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def gpx(town: Town, path: tuple[int, ...], random: np.random.Generator) -> str:
    """Return a ride as a device writes it: a point every ten metres with noise, clock and more."""
    where = []
    for a, b in itertools.pairwise(path):
        steps = max(1, int(np.hypot(*(town.xy[a] - town.xy[b])) // 10))
        way = town.points[b] - town.points[a]
        where += [town.points[a] + k / steps * way for k in range(steps)]
    where.append(town.points[path[-1]])
    points = np.array(where) + random.normal(0, 2e-5, (len(where), 2))
    rows = [
        f'<trkpt lat="{lat:.7f}" lon="{lon:.7f}"><ele>34.{k % 10}</ele>'
        f"<time>2026-05-01T08:{k // 60 % 60:02d}:{k % 60:02d}Z</time>"
        "<extensions><hr>121</hr></extensions></trkpt>"
        for k, (lat, lon) in enumerate(points)
    ]
    name = "<name>Morning ride from home</name>"
    body = "\n".join(rows)
    return f'<gpx creator="Device 500"><trk>{name}<trkseg>{body}</trkseg></trk></gpx>'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("person")
    write_person(base)
    return base


def write_person(base: Path) -> None:
    """Write what a person has: rides, a map, goals, and where home is."""
    town, random = small_town(), np.random.default_rng(4)
    (base / "rides").mkdir()
    write_roads(town, base / "town.geojson")
    home = int(np.argmin(np.hypot(*(town.xy - HOME).T)))
    north = np.flatnonzero(town.xy[:, 1] > 1300)
    goals, rider = random.choice(north, 2, replace=False), Rider(town.roads(), 0, random)
    rows = ["lat,lon,track"]
    rows += [f"{town.points[goal][0]},{town.points[goal][1]}," for goal in goals]
    for number in range(6):
        goal = int(goals[number % 2])
        there = rider.leg(home, goal)
        if number == 5:  # a round trip has its goal declared by its name
            there = (*there, *rider.leg(home, goal)[-2::-1])
            rows.append(f"{town.points[goal][0]},{town.points[goal][1]},ride5.gpx")
        path = there[::-1] if number in (1, 3) else there
        (base / "rides" / f"ride{number}.gpx").write_text(gpx(town, path, random))
    (base / "goals.csv").write_text("\n".join(rows))
    (base / "home").write_text(f"{town.points[home][0]:.5f},{town.points[home][1]:.5f}")


def share(folder: Path, out: Path, *more: str, rides: str = "rides") -> Result:
    words = ["share", str(folder / rides), "--roads", str(folder / "town.geojson")]
    words += ["--goals", str(folder / "goals.csv"), "-o", str(out)]
    if "--hide" not in more:
        words += ["--hide", f"home={(folder / 'home').read_text()}"]
    words += ["--epsilon", "3", "--legs", "20"]
    return CliRunner().invoke(app, [*words, *more])


def test_one_command_shares_a_folder(folder: Path, town: Town, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = share(folder, out, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["rides"] == 6
    assert found["shown_in_part"] >= 4
    assert 0 < found["metres_shown"] < found["metres"]
    assert 0 < found["spent"] <= 3
    assert {"clock times", "altitude", "heart rate", "names", "the device"} <= set(found["removed"])
    home = np.array([float(part) for part in (folder / "home").read_text().split(",")])
    for file in sorted(out.iterdir()):
        text = file.read_text()
        assert not re.search("time|ele>|hr>|name|Device|2026", text)
        where = np.array(re.findall(r'lat="([-\d.]+)" lon="([-\d.]+)"', text), dtype=float)
        if len(where):
            assert np.hypot(*((where - home) * 111_000 * [1, 0.61]).T).min() > 300
    again = json.loads(share(folder, out, "--json").stdout)
    assert again["rides"] == 0
    assert again["spent"] == found["spent"]
    status = CliRunner().invoke(app, ["share", "status", "-o", str(out), "--json"])
    assert json.loads(status.stdout)["legs"] == found["legs"] == 7
    attacks = CliRunner().invoke(app, ["share", "attack", "-o", str(out), "--json"])
    for name, one in json.loads(attacks.stdout).items():
        assert one["shift"] <= found["spent"] + 1e-6 or name == "other tastes"
        assert one["likeliest"] <= np.exp(one["shift"]) / found["candidates"]
    again = CliRunner().invoke(app, ["attack", "share", str(out), "--json"])
    assert json.loads(again.stdout) == json.loads(attacks.stdout)
    hide = ["--hide", f"home={(folder / 'home').read_text()}"]
    far = CliRunner().invoke(app, ["share", "attack", "-o", str(out), *hide, "--json"])
    assert json.loads(far.stdout)["circle"]["metres"] > 300
    assert json.loads(far.stdout)["average"]["metres"] > 300
    assert 0 <= found["circle_metres"] < 2000
    words = share(folder, tmp_path / "words").stdout
    assert "You are not that rider" in " ".join(words.split())


def test_a_stopped_run_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shoal.share.jobs import cutting

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert share(folder, whole).exit_code == 0
    write, count = atomic_write, 0

    def stop(path: Path, content: str, **how: bool) -> Path:
        nonlocal count
        count += path.suffix == ".gpx"
        if count == 3:
            raise OSError("the disk went away")
        return write(path, content, **how)

    with monkeypatch.context() as broken:
        broken.setattr(cutting, "atomic_write", stop)
        assert share(folder, stopped).exit_code != 0
    assert share(folder, stopped).exit_code == 0
    files = sorted(path.name for path in whole.iterdir())
    assert files == sorted(path.name for path in stopped.iterdir())
    for name in files:
        assert (whole / name).read_bytes() == (stopped / name).read_bytes()


def test_the_map_is_for_the_owner_alone(folder: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    done = share(folder, out)
    page = tmp_path / "out.private" / "map.html"
    assert page.stat().st_mode & 0o077 == 0
    assert "never publish it" in " ".join(done.output.split())
    text = page.read_text()
    assert "For the owner only" in text
    assert text.count('class="cut"') == 6
    assert {file.name for file in out.iterdir()} == {f"ride-{k:04d}.gpx" for k in range(1, 7)}
    # another point of the same square is another owner's map, and the same published bytes
    south, west, height, width = square_at(*map(float, (folder / "home").read_text().split(",")))
    elsewhere = f"home={south + 0.3 * height},{west + 0.6 * width}"
    assert share(folder, other, "--hide", elsewhere).exit_code == 0
    for file in out.iterdir():
        assert file.read_bytes() == (other / file.name).read_bytes()
    assert text != (tmp_path / "other.private" / "map.html").read_text()


def test_a_quarter_is_hidden_in(folder: Path, tmp_path: Path) -> None:
    done = json.loads(share(folder, tmp_path / "out", "--quarter", "--json").stdout)
    assert done["candidates"] >= 12
    assert done["metres_shown"] > 0
    assert "quarter" in " ".join(done["in_words"])
    assert "another map, zone" in refused(share(folder, tmp_path / "out"))


def refused(done: Result) -> str:
    assert done.exit_code in (2, 3), done.output
    text = " ".join(done.output.split())
    assert "Traceback" not in text
    return text


def test_what_is_refused(folder: Path, town: Town, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert share(folder, out).exit_code == 0
    assert "another map, zone, epsilon" in refused(share(folder, out, "--epsilon", "4"))
    assert "another map, zone, epsilon" in refused(share(folder, out, "--legs", "30"))
    (out / "ride-0002.gpx").unlink()
    assert "put it back" in refused(share(folder, out))
    new = tmp_path / "new"
    words = ["share", str(folder / "rides"), "-o", str(new)]
    hide = ["--hide", f"home={(folder / 'home').read_text()}"]
    assert "--roads is missing" in refused(CliRunner().invoke(app, [*words, *hide]))
    roads = ["--roads", str(folder / "town.geojson")]
    assert "--hide is missing" in refused(CliRunner().invoke(app, [*words, *roads]))
    far = ["--hide", "home=10.0,10.0"]
    assert "at least 12" in refused(CliRunner().invoke(app, [*words, *roads, *far]))
    lat, lon = map(float, (folder / "home").read_text().split(","))
    ring = [[lon + x, lat + y] for x, y in [(-0.008, -0.005), (0.008, -0.005), (0.008, 0.005)]]
    ring += [[lon - 0.008, lat + 0.005], ring[0]]
    zone = tmp_path / "zone.geojson"
    zone.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    assert "centred on home" in refused(share(folder, new, "--hide-zone", str(zone)))
    assert "name two zones" in refused(share(folder, new, "--hide-zone", str(zone), "--quarter"))
    assert refused(share(folder, new, "--seed", "1"))


def test_goals_only_needs_no_map(folder: Path, tmp_path: Path) -> None:
    words = ["share", str(folder / "rides"), "-o", str(tmp_path / "out"), "--goals-only"]
    done = CliRunner().invoke(app, [*words, "--goals", str(folder / "goals.csv"), "--json"])
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "out" / "goals.csv").read_text().splitlines()) >= 7


def test_a_map_that_is_not_there_is_refused_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    words = ["share", str(folder / "rides"), "--roads", str(tmp_path / "nowhere.geojson")]
    words += ["--hide", "home=52.5,13.4", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "nowhere.geojson cannot be read: No such file or directory; check" in done.output
    assert not (tmp_path / "out").exists()


def test_a_journal_and_a_ledger_of_different_days_are_refused(folder: Path, tmp_path: Path) -> None:
    """Other rides would take the places of published ones, and no leg of them be charged."""
    out, private = tmp_path / "out", tmp_path / "out.private"
    assert share(folder, out).exit_code == 0
    journal, ledger = ((private / name).read_bytes() for name in ("journal.json", "ledger.db"))
    (private / "journal.json").unlink()
    assert "the journal in" in refused(share(folder, out))
    (private / "journal.json").write_bytes(journal)
    for beside in private.glob("ledger.db*"):
        beside.unlink()
    assert "the ledger in" in refused(share(folder, out))
    for beside in private.glob("ledger.db*"):
        beside.unlink()
    (private / "ledger.db").write_bytes(ledger)
    assert share(folder, out).exit_code == 0
