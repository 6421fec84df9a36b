"""Check-ins to location vectors, and the made-up town of friends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shoal.core.errors import DataError
from shoal.data.entries import people_of, read_table
from shoal.data.generate import friends_places
from shoal.records.place_attack import City, distances_of_pairs

CITY = City(south=0, west=0, north=10, east=10)


def visits(rows: list[tuple[str, str, int]]) -> pl.DataFrame:
    """(user, place, how often); a place "3,4" lies there."""
    flat = [(user, place) for user, place, count in rows for _ in range(count)]
    return pl.DataFrame(
        {
            "user": [user for user, _ in flat],
            "place": [place for _, place in flat],
            "latitude": [float(place.split(",")[0]) for _, place in flat],
            "longitude": [float(place.split(",")[1]) for _, place in flat],
        }
    )


def test_vectors_hold_the_most_visited_places_in_order() -> None:
    table = visits(
        [
            ("a", "1,1", 3), ("a", "2,2", 5), ("a", "3,3", 3), ("a", "50,3", 99),
            ("b", "4,4", 10),
            ("c", "5,5", 9), ("c", "6,6", 1),
            ("d", "7,7", 9),
        ]
    )  # fmt: skip
    friends = pl.DataFrame({"x": ["a", "b", "d", "a"], "y": ["b", "a", "a", "c"]})
    people, names = people_of(table, friends, CITY, top=2)
    assert names == ("a", "b", "c")  # d has 9 check-ins
    assert people.vectors.tolist() == [[2, 2, 1, 1], [4, 4, 4, 4], [5, 5, 6, 6]]
    assert people.friends.tolist() == [[0, 1], [0, 2]]
    assert people.friends_of(0).tolist() == [1, 2]


def test_missing_columns_and_people_are_named() -> None:
    table = visits([("a", "1,1", 10)])
    with pytest.raises(DataError, match="no column 'lat'"):
        people_of(table, table, CITY, latitude="lat")
    with pytest.raises(DataError, match="1 people have 10 check-ins"):
        people_of(table, pl.DataFrame({"x": ["a"], "y": ["b"]}), CITY)
    three = visits([(name, "1,1", 10) for name in "abc"])
    with pytest.raises(DataError, match="two columns"):
        people_of(three, pl.DataFrame({"x": ["a"]}), CITY)


def test_the_made_up_town_is_the_same_for_a_seed_and_ties_its_friends() -> None:
    town = friends_places(people=120, seed=2)
    again = friends_places(people=120, seed=2)
    assert town.checkins().equals(again.checkins())
    south, west, north, east = town.box
    city = City(south=south, west=west, north=north, east=east)
    people, names = people_of(town.checkins(), town.ties(), city)
    assert names == town.people
    close, far = distances_of_pairs(people, strangers=2000)
    assert np.median(close) < np.median(far) / 2


def test_tables_are_read_by_their_suffix(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_ndjson(tmp_path / "t.jsonl")
    for suffix in ("csv", "parquet", "jsonl"):
        assert read_table(tmp_path / f"t.{suffix}").equals(frame)
    (tmp_path / "t.txt").write_text("a")
    with pytest.raises(DataError, match=r"t\.txt' is of no known format"):
        read_table(tmp_path / "t.txt")
    (tmp_path / "bad.parquet").write_text("a")
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / "bad.parquet")
