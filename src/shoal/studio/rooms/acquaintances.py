"""The user's own table of people for the Ties room: the ties between them, and the attack on it.

The attack is that of Liu, Chakraborty & Mittal 2016, Section IV. The adversary knows all other
people and all friendships, and sees one release. It is drawn on this screen only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import DataError, InputError
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry
from shoal.data.entries import LEAST_VISITS, people_of, read_table
from shoal.data.generate import friends_places
from shoal.mechanisms.choice import calibrate
from shoal.noise.primitives import SeededRng
from shoal.records.attack import guess_values
from shoal.records.domain import RecordDomain
from shoal.records.kmeans import Centroids
from shoal.records.pairwise import Dependence, RecordGroups
from shoal.records.place_attack import (
    EARTH_RADIUS_KM,
    City,
    FriendAdversary,
    LocatedPerson,
    People,
    ReleasedCentroids,
    locate,
)
from shoal.records.sources import pairs_of_counts
from shoal.studio.bench import number, text
from shoal.studio.tables import chosen

if TYPE_CHECKING:
    import polars as pl

MOST_PEOPLE_DRAWN = 300  # drawn, and attacked
MOST_VALUES = 12  # of a column, that the page shows
CLUSTERS, ROUNDS = 8, 3  # of the K-means that is released
KM = EARTH_RADIUS_KM * math.pi / 180  # of a degree of latitude
NO_TIES = "no two people of the table are tied; check that both files use the same names"


class TiedPeople(NamedTuple):
    """People by name, their values by number of `states`, and pairs of numbers who are tied."""

    names: tuple[str, ...]
    states: tuple[str, ...]
    values: Ints
    ties: Ints


def tied_people(params: Mapping[str, Any]) -> TiedPeople:
    """Return the people of a table with one value each, and the ties of another table."""
    columns = chosen(params, "ties")
    if "state" not in columns:
        raise InputError("no column is chosen for the state; choose what friends share")
    table = _read_columns(text(params, "file"), columns["series"], columns["state"]).drop_nulls()
    people = table.unique(columns["series"], keep="first", maintain_order=True)
    names = tuple(people[columns["series"]].cast(str).to_list())
    if not 2 <= len(names) <= MOST_PEOPLE_DRAWN:
        raise InputError(
            f"the table holds {len(names):,} people; the studio draws 2 to "
            f"{MOST_PEOPLE_DRAWN}: give a "
            "part of it, or use `shoal attack`"
        )
    values = people[columns["state"]].cast(str)
    states = tuple(values.unique().sort().to_list())
    if not 2 <= len(states) <= MOST_VALUES:
        raise InputError(
            f"the column holds {len(states)} different values; the studio shows 2 to "
            f"{MOST_VALUES}: choose another column"
        )
    index = {state: at for at, state in enumerate(states)}
    coded = np.array([index[value] for value in values.to_list()], dtype=np.int64)
    return TiedPeople(names, states, coded, _ties(params, names))


def _read_columns(file: str, *columns: str) -> pl.DataFrame:
    table = read_table(file)
    lacking = [name for name in columns if name not in table.columns]
    if lacking:
        raise DataError(f"the table has no column {lacking[0]!r}; choose one of its columns")
    return table.select(columns)


def _ties(params: Mapping[str, Any], names: tuple[str, ...]) -> Ints:
    """Return each tied pair of people in the table once, from a file with two columns of names."""
    if not params.get("friends"):
        raise InputError("who is tied to whom is missing; open a second table of pairs of people")
    pairs = read_table(Path(text(params, "friends")))
    if pairs.width < 2:
        raise DataError("the table of ties has one column; it needs two, one for each friend")
    place = {name: at for at, name in enumerate(names)}
    ends = [pairs.to_series(side).cast(str).to_list() for side in (0, 1)]
    known = {
        (min(place[a], place[b]), max(place[a], place[b]))
        for a, b in zip(*ends, strict=True)
        if a in place and b in place and a != b
    }
    if not known:
        raise DataError(NO_TIES)
    return np.array(sorted(known), dtype=np.int64)


def model_lines(group: TiedPeople) -> str:
    """Return the `[[model]]` of tied people, from the frequency of each pair of values."""
    domain = RecordDomain.named(group.states)
    law = pairs_of_counts(domain, group.values, group.ties, smoothing=1.0).laws[0]
    rows = [[round(float(share), 9) for share in row] for row in law]
    rows[-1][-1] += 1 - sum(map(sum, rows))  # the table sums to one as it is written
    return (
        'kind = "dependence"\n'
        f"states = {json.dumps(list(group.states))}\n"
        f"records = {len(group.names)}\n"
        f"ties = {json.dumps(group.ties.tolist())}\n"
        f"law = {json.dumps(rows)}\n"
        'joint = "pairs"'
    )


def describe_guesses(group: TiedPeople, ordinary: Plan) -> tuple[str, list[float]]:
    """Return in words what a release and the ties reveal, and each truth's belief in percent."""
    body, model = ordinary.body, ordinary.task.family[0]
    assert isinstance(body, Additive)
    assert isinstance(model, Dependence)
    answer = ordinary.release([group.states[at] for at in group.values], rng=SeededRng(1)).answer
    query: Any = ordinary.task.query
    found = guess_values(
        model, query, np.array(answer.values), float(body.noise.scale), group.values
    )
    right = [found.right(law) for law in (found.alone, found.tied, found.tied_after)]
    sure = found.tied_after[np.arange(len(group.values)), group.values]
    words = (
        f"Somebody who knows the ties and everybody else, and sees one ordinary "
        f"{of_budget(float(ordinary.guarantee.amount))} release, guesses {right[2]:.0%} of the "
        f"people right instead of {right[0]:.0%}. The ties alone give {right[1]:.0%}, which no "
        "noise can take back."
    )
    return words, [100 * float(share) for share in sure]


class Town(NamedTuple):
    """People with their most visited places, and the pairs of friends."""

    people: People
    names: tuple[str, ...]


def example_town() -> Town:
    """Return a synthetic town whose people visit the places of their friends."""
    town = friends_places(people=120, seed=1)
    return _town(town.checkins(), town.ties(), "user", "latitude", "longitude")


def town_of(params: Mapping[str, Any]) -> Town:
    """Return the town of a table of check-ins: a person and degrees in every row."""
    columns = chosen(params, "ties")
    named = [columns["series"], columns["latitude"], columns["longitude"]]
    table = _read_columns(text(params, "file"), *named).drop_nulls()
    if not params.get("friends"):
        raise InputError("who is tied to whom is missing; open a second table of pairs of people")
    friends = read_table(text(params, "friends"))
    return _town(table, friends, *named)


def _town(table: pl.DataFrame, friends: pl.DataFrame, user: str, lat: str, lon: str) -> Town:
    """Rows of one place, to some ten metres, are visits to it."""
    import polars as pl

    for name in (lat, lon):
        if not table[name].dtype.is_numeric():
            raise DataError(f"column {name!r} holds texts; choose a column of degrees")
    place = pl.format("{} {}", pl.col(lat).round(4), pl.col(lon).round(4)).alias("shoal place")
    visits = table.with_columns(place)
    often = visits[user].value_counts()["count"] >= LEAST_VISITS
    people, names = people_of(
        visits, friends, _city(visits, lat, lon), user=user, latitude=lat, longitude=lon,
        place="shoal place", least=LEAST_VISITS if int(often.sum()) >= 3 else 1,
    )  # fmt: skip
    if len(names) > MOST_PEOPLE_DRAWN:
        raise InputError(
            f"the table holds {len(names):,} people; the studio attacks at most "
            f"{MOST_PEOPLE_DRAWN}: "
            "give a part of it, or use `shoal attack`"
        )
    if not len(people.friends):
        raise DataError(NO_TIES)
    return Town(people, names)


def _city(table: pl.DataFrame, lat: str, lon: str) -> City:
    """Return the smallest square box, in kilometres, around all places."""
    south, north = (float(str(edge)) for edge in (table[lat].min(), table[lat].max()))
    west, east = (float(str(edge)) for edge in (table[lon].min(), table[lon].max()))
    shrink = max(0.01, math.cos(math.radians((south + north) / 2)))
    side = 1.04 * max(north - south, (east - west) * shrink, 0.01) / 2
    middle, across = (south + north) / 2, (west + east) / 2
    return City(
        south=round(middle - side, 4),
        west=round(across - side / shrink, 4),
        north=round(middle + side, 4),
        east=round(across + side / shrink, 4),
    )


def query_lines(city: City) -> str:
    """Return the `[query]` of a spec for K-means clusters of the people in this box."""
    return (
        f'kind = "places"\nsouth = {city.south}\nwest = {city.west}\nnorth = {city.north}\n'
        f"east = {city.east}\nclusters = {CLUSTERS}\nrounds = {ROUNDS}"
    )


def attack_map(town: Town, query: Centroids, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sentence and the map of the attack: what friends and one release reveal."""
    people, epsilon = town.people, number(params, "epsilon", 1.0)
    plan = calibrate(query, EachEntry(), RecordGroups(1), epsilon=epsilon, mechanism="laplace")
    assert isinstance(plan.body, Additive)
    answer = plan.body.draw(query.read(people.vectors), SeededRng(1))
    seen = ReleasedCentroids(query, answer, float(plan.body.noise.scale), people)
    all_people = np.ones(len(people), dtype=bool)
    plain = FriendAdversary(people=people, known=all_people, ties=False)
    social = FriendAdversary(people=people, known=all_people, ties=True)
    tied = [int(one) for one in np.unique(people.friends)]
    before = {one: locate(plain, None, one) for one in tied}
    alone = {one: locate(social, None, one) for one in tied}
    after = {one: locate(social, seen, one) for one in tied}
    target = _target(town, params, before, after)
    return {
        "sentence": (
            f"Somebody who knows who is whose friend and sees one ordinary "
            f"{of_budget(epsilon)} release places people within {_mean(after):.2g} km instead of "
            f"{_mean(before):.2g} km. The friendships alone give {_mean(alone):.2g} km, "
            "which no noise can take back."
        ),
        "about": f"{town.names[target]} is placed within {after[target].error_km:.2g} km instead "
        f"of {before[target].error_km:.2g} km.",
        "person": town.names[target],
        "people": [town.names[one] for one in tied],
        "map": belief_map(town, target, after[target]),
    }


def of_budget(epsilon: float) -> str:
    """Return the budget in text that does not break across lines."""
    return f"ε\u00a0=\u00a0{epsilon:g}"


def _mean(found: Mapping[int, LocatedPerson]) -> float:
    return fmean(one.error_km for one in found.values())


def _target(
    town: Town,
    params: Mapping[str, Any],
    before: Mapping[int, LocatedPerson],
    after: Mapping[int, LocatedPerson],
) -> int:
    """Return the person on the map: the chosen one, else the one about whom friends reveal most."""
    wanted = params.get("person")
    if wanted is not None and wanted in town.names and town.names.index(wanted) in after:
        return town.names.index(wanted)
    return max(after, key=lambda one: before[one].error_km - after[one].error_km)


def belief_map(town: Town, target: int, found: LocatedPerson) -> dict[str, Any]:
    """Props of the map: where somebody is believed to be, where the person is, the best guess."""
    city = town.people.city
    shrink = math.cos(math.radians((city.south + city.north) / 2))
    width = (city.north - city.south) * KM / city.cells
    places = [(column, row) for row in range(city.cells) for column in range(city.cells)]

    def point(latitude: float, longitude: float) -> list[float]:
        east = (longitude - city.west) * KM * shrink
        return [east - width / 2, (latitude - city.south) * KM - width / 2]

    return {
        "cells": [
            {"name": f"{row},{column}", "x": column * width, "y": row * width}
            for column, row in places
        ],
        "width": width,
        "belief": found.after.tolist(),
        "truth": int(town.people.cells()[target]),
        "estimate": point(float(found.guess[0]), float(found.guess[1])),
    }
