"""Location vectors from check-ins: each person's most visited places."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import DataError
from shoal.core.records import shown_names
from shoal.data.read import matching
from shoal.data.table import Columns, check_columns
from shoal.records.people import PLACES, City, People, location_vector

if TYPE_CHECKING:
    import polars as pl

LEAST_VISITS = 10


def people_of(
    checkins: pl.DataFrame,
    friends: pl.DataFrame | None,
    city: City,
    *,
    user: str = "user",
    latitude: str = "latitude",
    longitude: str = "longitude",
    place: str = "place",
    top: int = PLACES,
    least: int = LEAST_VISITS,
) -> tuple[People, tuple[str, ...]]:
    """The people with at least `least` check-ins in the city, and their names.

    A person's vector holds the coordinates of the `top` places visited most often, ties by name.
    `friends` has two columns of names, or is None; pairs with somebody left out are dropped.
    Liu, Chakraborty & Mittal 2016, Section IV-A, Eq. (4).
    """
    import polars as pl

    check_columns(checkins.columns, "the check-ins", Columns(state=place, series=user))
    for name in (latitude, longitude):
        if name not in checkins.columns:
            raise DataError(
                f"the check-ins have no column {name!r}; their columns are "
                f"{shown_names(checkins.columns)}"
            )
    inside = checkins.filter(
        pl.col(latitude).is_between(city.south, city.north)
        & pl.col(longitude).is_between(city.west, city.east)
    )
    counted = (
        inside.group_by(user, place)
        .agg(pl.len().alias("visits"), pl.col(latitude).first(), pl.col(longitude).first())
        .with_columns(pl.col(user).cast(pl.String), pl.col(place).cast(pl.String))
        .sort(user, "visits", place, descending=[False, True, False])
    )
    rows = (
        counted.group_by(user, maintain_order=True)
        .agg(pl.col("visits").sum().alias("total"), latitude, longitude)
        .filter(pl.col("total") >= least)
    )
    if rows.height < 3:
        raise DataError(
            f"{rows.height} people have {least} check-ins in the city; the attack needs three or "
            "more: widen the city, or ask for fewer check-ins"
        )
    names = tuple(rows[user].to_list())
    vectors = [
        location_vector(list(zip(lats, lons, strict=True)), top)
        for lats, lons in zip(rows[latitude].to_list(), rows[longitude].to_list(), strict=True)
    ]
    return People(city, np.array(vectors), _numbered(friends, names)), names


def read_table(path: str | Path) -> pl.DataFrame:
    """All columns of one CSV, Parquet or JSON Lines file, with their types."""
    import polars as pl

    (file,) = matching(path)[:1]
    try:
        match file.suffix.lower():
            case ".csv":
                return pl.read_csv(file, infer_schema_length=10_000)
            case ".parquet":
                return pl.read_parquet(file)
            case ".jsonl" | ".ndjson":
                return pl.read_ndjson(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{str(file)!r} cannot be read: {str(error).splitlines()[0]}") from None
    raise DataError(f"{str(file)!r} ends in {file.suffix!r}; use .csv, .parquet or .jsonl")


def _numbered(friends: pl.DataFrame | None, names: tuple[str, ...]) -> Ints:
    """Friendships as pairs of numbers, each once, between people who are there."""
    if friends is None:
        return np.empty((0, 2), dtype=np.int64)
    if friends.width < 2:
        raise DataError("the friendships need two columns, one for each friend")
    place = {name: number for number, name in enumerate(names)}
    ends = [friends.to_series(column).cast(str).to_list() for column in (0, 1)]
    pairs = {
        (min(place[a], place[b]), max(place[a], place[b]))
        for a, b in zip(*ends, strict=True)
        if a in place and b in place and a != b
    }
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
