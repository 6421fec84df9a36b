"""Six jobs as people have them: from a dirty file to a picture, in few commands and no script.

`python -m pytest tests/journeys -s` prints how many commands each takes and how long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from shoal.cli import app
from shoal.data.generate import (
    activity_table,
    contact_network,
    friends_places,
    map_walk,
    phone_table,
    power_table,
)


@dataclass
class Journey:
    """A folder, and the commands typed in it."""

    folder: Path
    commands: int = 0
    edits: int = 0
    seconds: float = 0.0
    said: str = field(default="", repr=False)

    def run(self, *words: str, feed: str | None = None) -> Any:
        """One command that must succeed; its JSON where there is any."""
        begun = time.perf_counter()
        done = CliRunner().invoke(app, list(words), input=feed)
        self.seconds += time.perf_counter() - begun
        self.commands += 1
        assert done.exit_code == 0, f"shoal {' '.join(words)}\n{done.output}"
        self.said = done.output
        return json.loads(done.stdout) if "--json" in words else done.stdout

    def picture(self, name: str) -> None:
        assert (self.folder / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def journey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Journey]:
    monkeypatch.chdir(tmp_path)
    made = Journey(tmp_path)
    yield made
    print(
        f"\n{request.node.name[5:]:12} {made.commands} commands, {made.edits} edits, "
        f"{made.seconds:.1f} s"
    )


def dirtied(frame: pl.DataFrame, column: str, seed: int = 1) -> pl.DataFrame:
    """Rows out of order, and a word for nothing in one of 80."""
    draw = np.random.default_rng(seed)
    holes = pl.Series(draw.random(frame.height) < 1 / 80)
    spoilt = frame.with_columns(pl.when(~holes).then(pl.col(column).cast(pl.String)).alias(column))
    return spoilt.with_columns(pl.col(column).fill_null("NaN")).sample(
        fraction=1.0, shuffle=True, seed=seed
    )


def test_activity(journey: Journey) -> None:
    """Days of several people in a file with semicolons: how each one's time is spent."""
    raw = dirtied(activity_table(people=3, days=1), "state")
    raw.write_csv("days.csv", separator=";", datetime_format="%Y-%m-%d %H:%M:%S")
    columns = ("--state", "state", "--series", "series", "--time", "time", "--sep", ";")
    more = ("--gap", "10min", "--missing", "gap", "--length", "1440", "--spec", "shoal.toml")
    journey.run("fit", "days.csv", "-o", "model.json", *columns, *more)
    journey.run("release", "shoal.toml", "days.csv", "-o", "out.json", "--plot", "out.png")
    journey.picture("out.png")
    assert len(json.loads(Path("out.json").read_text())["releases"]) == 3
    assert (journey.commands, journey.edits) == (2, 0)


def test_power(journey: Journey) -> None:
    """A meter's watts: what a year of daily releases may spend, and the first of them."""
    raw = dirtied(power_table(days=4).select("time", "watts"), "watts")
    raw.write_csv("power.csv")
    columns = ("--state", "watts", "--time", "time", "--gap", "10min", "--missing", "gap")
    more = ("--bins", "200,500,2000", "--length", "1440", "--spec", "shoal.toml")
    journey.run("fit", "power.csv", "-o", "model.json", *columns, *more)
    year = journey.run("budget", "shoal.toml", "--releases", "365", "--json", "--plot", "b.png")
    assert year["paces"][0]["epsilon_all"] <= 1 + 1e-9
    journey.picture("b.png")
    day = ("--where", "time < 2024-03-05")
    journey.run("release", "shoal.toml", "power.csv", "-o", "out.json", *day, "--plot", "d.png")
    journey.picture("d.png")
    assert (journey.commands, journey.edits) == (3, 0)


def test_places(journey: Journey) -> None:
    """Somebody's positions: a map fitted to them, every hour released, a picture."""
    walk = map_walk(days=1, rows=6, columns=6, cell_m=300).table()
    walk.select(user="series", t="time", lat="latitude", lon="longitude").write_csv("track.csv")
    where = ("--lat", "lat", "--lon", "lon", "--time", "t")
    fit = ("fit", "track.csv", "-o", "town.json", "--grid", "0.6", "--series", "user", *where)
    journey.run(*fit, "--gap", "1h", "--spec", "walk.toml")
    release = ("release", "walk.toml", "track.csv", "-o", "out.csv")
    journey.run(*release, "--every", "1h", "--plot", "walk.png")
    journey.picture("walk.png")
    assert pl.read_csv("out.csv").height >= 24
    assert (journey.commands, journey.edits) == (2, 0)


def test_contexts(journey: Journey) -> None:
    """Weeks of a phone's contexts: a day fitted by the clock, what may be shown of tomorrow."""
    raw = phone_table(days=20, slot_minutes=15)
    raw.with_columns(state=pl.when(pl.col("time").dt.minute() != 45).then("state")).write_csv(
        "p.csv"
    )
    fit = ("fit", "p.csv", "-o", "day.json", "--slot", "3h", "--hours", "06:00-24:00")
    columns = ("--state", "state", "--series", "series", "--time", "time")
    journey.run(*fit, *columns, "--spec", "mask.toml")
    spec = Path("mask.toml").read_text()
    assert 'sensitive = ["gym"]' in spec  # the rarest
    Path("mask.toml").write_text(spec.replace('"best"', '"mask-adaptive"'))  # the quickest
    journey.edits += 1
    plan = journey.run("plan", "mask.toml", "--save", "plan.json", "--json")
    assert plan["guarantee"]["proved"]
    lines = "\n".join(json.dumps({"context": context}) for context in ["home"] * 2 + ["work"] * 4)
    shown = journey.run("stream", "plan.json", feed=lines + "\n")
    assert len(shown.strip().splitlines()) >= 6
    journey.run("attack", "mask.toml", "p.csv", "--plot", "belief.png")
    journey.picture("belief.png")
    assert (journey.commands, journey.edits) == (4, 1)


def test_friends(journey: Journey) -> None:
    """A list of friends: what they tell about each other, and how many live in the south."""
    town = friends_places(people=20)
    place = {name: number for number, name in enumerate(town.people)}
    ties = [[place[a], place[b]] for a, b in town.ties().iter_rows()]
    apart: list[list[int]] = []
    taken: set[int] = set()
    for a, b in ties:
        if not {a, b} & taken:
            apart.append([a, b])
            taken |= {a, b}
    journey.run("init", "--kind", "friends", "friends.toml")
    text = Path("friends.toml").read_text()
    text = text.replace("records = 6", "records = 20").replace(
        "[[0, 1], [1, 2], [3, 4]]", str(apart)
    )
    Path("friends.toml").write_text(text)
    journey.edits += 1
    homes = ["north", "centre", "south"] * 7
    pl.DataFrame({"home": homes[:20]}).write_csv("homes.csv")
    journey.run("plan", "friends.toml", "--plot", "noise.png")
    journey.picture("noise.png")
    journey.run(
        "release", "friends.toml", "homes.csv", "-o", "o.json", "--state", "home", "--plot", "o.png"
    )
    journey.picture("o.png")
    assert (journey.commands, journey.edits) == (3, 1)


def test_flu(journey: Journey) -> None:
    """Households of a town and who is ill: the count, and what an ordinary one would tell."""
    sizes = np.bincount(contact_network(people=30).household).tolist()
    journey.run("init", "--kind", "contagion", "flu.toml")
    text = Path("flu.toml").read_text().replace("sizes = [4, 4, 3, 1]", f"sizes = {sizes}")
    Path("flu.toml").write_text(text)
    journey.edits += 1
    ill = np.random.default_rng(2).random(30) < 0.3
    pl.DataFrame({"flu": ["ill" if one else "well" for one in ill]}).write_csv("people.csv")
    journey.run("leak", "flu.toml", "--plot", "leak.png")
    journey.picture("leak.png")
    journey.run(
        "release", "flu.toml", "people.csv", "-o", "o.json", "--state", "flu", "--plot", "o.png"
    )
    journey.picture("o.png")
    assert (journey.commands, journey.edits) == (3, 1)
