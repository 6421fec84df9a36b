"""Made-up files of the shapes that the pages describe; nobody's in particular."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from shoal.data.generate import friends_places, map_walk, phone_table
from shoal.spec.request import read_request

SPECS = Path(__file__).parents[2] / "examples"
MATRIX = ((0.8, 0.1, 0.1), (0.3, 0.5, 0.2), (0.2, 0.3, 0.5))
ACTIVITIES = ("sit", "stand", "walk")


def minutes(count: int, seed: int) -> list[str]:
    """So many minutes of a made-up person."""
    draw, state, names = np.random.default_rng(seed), 0, []
    for _ in range(count):
        state = int(draw.choice(3, p=MATRIX[state]))
        names.append(ACTIVITIES[state])
    return names


def days(path: Path, *people: str, count: int = 240) -> None:
    """A row per person and minute: person, user, minute, time, day, shift, activity."""
    parts = []
    for seed, person in enumerate(people):
        frame = pl.DataFrame({"minute": range(count), "activity": minutes(count, seed)})
        time = pl.datetime(2024, 6, 1) + pl.duration(minutes=pl.col("minute"))
        parts.append(
            frame.with_columns(
                person=pl.lit(person),
                user=pl.lit(person),
                time=time,
                day=time.dt.date(),
                shift=pl.lit("late" if seed % 2 else "early"),
            )
        )
    table = pl.concat(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        table.write_parquet(path)
    else:
        table.write_csv(path, datetime_format="%Y-%m-%d %H:%M:%S")


def phone(path: Path, count: int = 10) -> None:
    """Weeks of contexts of one phone: user, time, t, context."""
    table = phone_table(days=count, slot_minutes=15)
    shown = table.select(user="series", time="time", t="time", context="state")
    shown.write_csv(path, datetime_format="%Y-%m-%d %H:%M:%S")


def tracks(path: Path, *people: str, hours: int = 2) -> None:
    """Positions once a minute: user, t, when, lat, lon, latitude, longitude."""
    walk = map_walk(days=1, rows=6, columns=6, cell_m=300).table()
    south, west = walk["latitude"].min(), walk["longitude"].min()
    walk = walk.with_columns(  # inside the map of the template of places
        latitude=pl.col("latitude") - south + 52.505, longitude=pl.col("longitude") - west + 13.365
    )
    first = walk.filter(pl.col("series") == walk["series"][0]).sort("time").head(hours * 60)
    parts = [
        first.select(
            user=pl.lit(person),
            t="time",
            when="time",
            lat="latitude",
            lon="longitude",
            latitude="latitude",
            longitude="longitude",
        )
        for person in people
    ]
    table = pl.concat(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        table.write_parquet(path)
    elif path.suffix == ".gpx":
        path.write_text(gpx(table))
    else:
        table.write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%SZ")


def days_on_a_map(path: Path, *people: str) -> None:
    """The columns of `days` and of `tracks` in one file, a row a minute."""
    days(path, *people, count=120)
    whole = pl.read_parquet(path)
    tracks(path, *people)
    walks = pl.read_parquet(path).select("user", "when", "latitude", "longitude")
    keys = {"minute": pl.int_range(pl.len()).over("user").cast(pl.Int64)}
    whole.join(walks.with_columns(**keys), on=["user", "minute"]).write_parquet(path)


def gpx(table: pl.DataFrame) -> str:
    """A GPX file with one track."""
    points = "\n".join(
        f'<trkpt lat="{row["lat"]}" lon="{row["lon"]}"><time>{row["t"].isoformat()}Z</time></trkpt>'
        for row in table.iter_rows(named=True)
    )
    return (
        '<gpx version="1.1" creator="t" xmlns="http://www.topografix.com/GPX/1/1">'
        f"<trk><trkseg>{points}</trkseg></trk></gpx>"
    )


def points(folder: Path) -> None:
    """Points of interest where `tracks` walk: pois.geojson and pois.csv."""
    tracks(folder / "walk.parquet", "anna")
    walk = pl.read_parquet(folder / "walk.parquet")[::6].select("lat", "lon")
    (folder / "walk.parquet").unlink()
    table = walk.with_columns(
        name=pl.format("place {}", pl.int_range(pl.len())),
        category=pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.lit("pharmacy"))
        .otherwise(pl.lit("restaurant")),
    )  # fmt: skip
    table.write_csv(folder / "pois.csv")
    features = [
        {
            "type": "Feature",
            "properties": {"name": row["name"], "category": row["category"]},
            "geometry": {"type": "Point", "coordinates": [row["lon"], row["lat"]]},
        }
        for row in table.iter_rows(named=True)
    ]
    document = {"type": "FeatureCollection", "features": features}
    (folder / "pois.geojson").write_text(json.dumps(document))


def lines(path: Path, key: str, *values: object) -> None:
    """A JSON object in each line."""
    path.write_text("".join(json.dumps({key: value}) + "\n" for value in values))


def contexts_day(path: Path) -> None:
    """Sixteen contexts of a day, as the template of contexts has them."""
    lines(path, "context", *["home"] * 4, *["work"] * 12)


def positions(path: Path, *points: tuple[float, float]) -> None:
    """A position in each line."""
    path.write_text("".join(json.dumps({"lat": a, "lon": b}) + "\n" for a, b in points))


def town(folder: Path) -> None:
    """`places.toml` with its check-ins and friendships."""
    made = friends_places(people=30)
    made.checkins().write_csv(folder / "checkins.csv")
    made.ties().write_csv(folder / "friends.csv")
    spec = (SPECS / "friends-places.toml").read_text()
    (folder / "places.toml").write_text(spec)


def model_of(spec: Path, model: Path) -> None:
    """The first model of a spec, stored as `shoal fit` stores one."""
    from shoal.core.registry import dumps

    model.write_text(dumps(read_request(spec).task.family[0]) + "\n")
