"""Made-up towns: contacts of households, a walk through the streets, and places friends go to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.codec import Floats, Ints, as_read_only
from shoal.core.errors import InputError
from shoal.data.synthetic.series import MONDAY, at_least_one, generator
from shoal.data.table import Dataset, cut

if TYPE_CHECKING:
    import polars as pl

FRIENDS = 4.0  # friendships per person, on average
_SIZES, _SHARES = (1, 2, 3, 4, 5), (0.3, 0.32, 0.15, 0.15, 0.08)  # of households


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContactNetwork:
    """People, the households they live in, and who meets whom.

    `household[i]` numbers the household of person i. `edges` holds each contact once, the smaller
    index first; `kinds[j]` is "household" or "friend".
    """

    people: tuple[str, ...]
    household: Ints
    edges: Ints
    kinds: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "household", as_read_only(self.household, np.int64))
        object.__setattr__(self, "edges", as_read_only(self.edges, np.int64))

    def named_edges(self) -> tuple[tuple[str, str], ...]:
        """Each contact as a pair of names."""
        return tuple((self.people[a], self.people[b]) for a, b in self.edges.tolist())

    def table(self) -> pl.DataFrame:
        """Columns person_a, person_b and kind."""
        import polars as pl

        pairs = self.named_edges()
        return pl.DataFrame(
            {
                "person_a": [a for a, _ in pairs],
                "person_b": [b for _, b in pairs],
                "kind": list(self.kinds),
            },
            schema={"person_a": pl.String, "person_b": pl.String, "kind": pl.String},
        )


def contact_network(people: int = 60, seed: int = 1) -> ContactNetwork:
    """Households of one to five who all meet, and friendships that fall off with distance.

    A few people have many friends: popularity is drawn from a heavy-tailed law.
    """
    at_least_one(people=people)
    draw = generator(seed, 0)
    household = _households(people, draw)
    homes = draw.uniform(0, 1, (int(household[-1]) + 1, 2))[household]
    together = household[:, None] == household[None, :]
    friends = draw.random((people, people)) < _closeness(homes, 0.15, draw)
    pairs = np.argwhere(np.triu(together | friends, k=1))
    kinds = tuple("household" if together[a, b] else "friend" for a, b in pairs.tolist())
    return ContactNetwork(
        people=tuple(f"p{i + 1:0{len(str(people))}d}" for i in range(people)),
        household=household,
        edges=pairs.reshape(-1, 2),
        kinds=kinds,
    )


def _households(people: int, draw: np.random.Generator) -> Ints:
    """The household of each person, numbered in order."""
    sizes = draw.choice(_SIZES, size=people, p=_SHARES)
    return np.repeat(np.arange(people), sizes)[:people]


def _closeness(homes: Floats, near: float, draw: np.random.Generator) -> Floats:
    """The chance that two people are friends, scaled to `FRIENDS` each on average.

    It falls off by e for every `near` of the distance between their homes.
    """
    popular = draw.pareto(2.5, len(homes)) + 1
    distance = np.linalg.norm(homes[:, None, :] - homes[None, :, :], axis=2)
    weight = np.outer(popular, popular) * np.exp(-distance / near)
    np.fill_diagonal(weight, 0)
    total = float(weight.sum())
    return np.asarray(np.minimum(weight * (FRIENDS * len(homes) / max(total, 1e-300)), 0.9))


SOUTH, WEST = 50.0, 10.0  # the corner of the town; no home is in it
METRES_PER_DEGREE = 111_320.0
STRIDE_M = 75.0  # metres walked in a minute
JITTER_M = 6.0  # what a receiver is off by


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MapWalk:
    """One position a minute: degrees, and the cell of a `rows` × `columns` grid it falls in.

    Cell r * columns + c is row r from the south and column c from the west, `cell_m` metres wide.
    """

    latitude: Floats
    longitude: Floats
    cells: Ints
    rows: int
    columns: int
    cell_m: float
    south: float = SOUTH
    west: float = WEST

    def __post_init__(self) -> None:
        object.__setattr__(self, "latitude", as_read_only(self.latitude))
        object.__setattr__(self, "longitude", as_read_only(self.longitude))
        object.__setattr__(self, "cells", as_read_only(self.cells, np.int64))

    def label(self, cell: int) -> str:
        """The name of a cell as a state: "r3c11"."""
        return f"r{cell // self.columns}c{cell % self.columns}"

    def dataset(self) -> Dataset:
        """The cells as one chain; the states are all cells of the grid, in order."""
        states = tuple(self.label(cell) for cell in range(self.rows * self.columns))
        return Dataset(states, ("walk",), (cut(self.cells, np.empty(0, np.int64)),))

    def table(self) -> pl.DataFrame:
        """Columns series, time, latitude, longitude and state (the cell)."""
        import polars as pl

        count = len(self.cells)
        end = MONDAY + timedelta(minutes=count - 1)
        return pl.DataFrame(
            {
                "series": ["walk"] * count,
                "time": pl.datetime_range(MONDAY, end, "1m", eager=True),
                "latitude": self.latitude,
                "longitude": self.longitude,
                "state": [self.label(int(cell)) for cell in self.cells],
            }
        )


def map_walk(
    days: int = 3, seed: int = 1, *, rows: int = 12, columns: int = 12, cell_m: float = 150.0
) -> MapWalk:
    """A person's positions, minute by minute: stays at home, work and other places, and the ways.

    Ways follow the streets, first along one direction, then the other; positions carry a
    receiver's error and never leave the map.
    """
    at_least_one(days=days, rows=rows, columns=columns)
    if not cell_m > 0:
        raise InputError(f"cell_m is {cell_m}; a cell must be wider than 0 metres")
    draw = generator(seed, 0)
    extent = np.array([rows, columns]) * cell_m
    places = draw.uniform(0.05, 0.95, (6, 2)) * extent
    path = np.concatenate([_positions_of_day(places, draw) for _ in range(days)])
    path = np.clip(path + draw.normal(0, JITTER_M, path.shape), 0, np.nextafter(extent, 0))
    cells = np.minimum((path // cell_m).astype(np.int64), np.array([rows, columns]) - 1)
    narrow = np.cos(np.radians(SOUTH))
    return MapWalk(
        latitude=SOUTH + path[:, 0] / METRES_PER_DEGREE,
        longitude=WEST + path[:, 1] / (METRES_PER_DEGREE * narrow),
        cells=cells[:, 0] * columns + cells[:, 1],
        rows=rows,
        columns=columns,
        cell_m=cell_m,
    )


def _positions_of_day(places: Floats, draw: np.random.Generator) -> Floats:
    """1,440 positions in metres from the corner: home, work, an errand or two, home."""
    errands = [int(i) for i in draw.integers(2, len(places), size=2)]
    stops = [(0, 8 * 60.0), (1, 4 * 60.0), (errands[0], 40.0), (1, 4 * 60.0), (errands[1], 60.0)]
    parts: list[Floats] = []
    here = places[0]
    for place, minutes in [*stops, (0, 1440.0)]:
        parts.append(_way(here, places[place], draw))
        here = places[place]
        stay = max(1, round(draw.normal(minutes, minutes / 10)))
        parts.append(np.repeat(here[None, :], stay, axis=0))
    return np.concatenate(parts)[:1440]


def _way(start: Floats, end: Floats, draw: np.random.Generator) -> Floats:
    """Positions a minute apart along two straight streets."""
    corner = np.array([start[0], end[1]] if draw.random() < 0.5 else [end[0], start[1]])
    legs = [(start, corner), (corner, end)]
    return np.concatenate(
        [
            np.linspace(a, b, int(np.abs(b - a).sum() // STRIDE_M) + 1, endpoint=False)
            for a, b in legs
        ]
    )


SIDE_KM = 20.0
QUARTERS = 8
VENUES_A_QUARTER = 60
NEAR_KM = 0.7  # how far people go for most of what they do
SHARED_WITH_FRIENDS = 0.25  # share of a person's places that are a friend's


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FriendsPlaces:
    """Check-ins (a person and a venue each), venues in degrees, and friendships.

    `visits` (count, 2) holds person and venue; `friends` (m, 2) each friendship once.
    `box` is south, west, north, east of the town.
    """

    people: tuple[str, ...]
    venues: Floats
    visits: Ints
    friends: Ints
    box: tuple[float, float, float, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "venues", as_read_only(self.venues))
        object.__setattr__(self, "visits", as_read_only(self.visits, np.int64))
        object.__setattr__(self, "friends", as_read_only(self.friends, np.int64))

    def checkins(self) -> pl.DataFrame:
        """Columns user, time, latitude, longitude and place."""
        import polars as pl

        person, venue = self.visits[:, 0], self.visits[:, 1]
        end = MONDAY + timedelta(minutes=17 * (len(person) - 1))
        return pl.DataFrame(
            {
                "user": [self.people[int(i)] for i in person],
                "time": pl.datetime_range(MONDAY, end, "17m", eager=True),
                "latitude": self.venues[venue, 0],
                "longitude": self.venues[venue, 1],
                "place": [f"v{int(v)}" for v in venue],
            }
        )

    def ties(self) -> pl.DataFrame:
        """Columns user_a and user_b."""
        import polars as pl

        return pl.DataFrame(
            {
                "user_a": [self.people[int(a)] for a in self.friends[:, 0]],
                "user_b": [self.people[int(b)] for b in self.friends[:, 1]],
            },
            schema={"user_a": pl.String, "user_b": pl.String},
        )


def friends_places(people: int = 300, seed: int = 1) -> FriendsPlaces:
    """People who live in quarters of a town, go out near home, and now and then where friends go.

    Friendship falls off with the distance of the homes. Each person has at least 10 check-ins.
    """
    at_least_one(people=people)
    draw = generator(seed, 0)
    quarters = draw.uniform(0.1, 0.9, (QUARTERS, 2)) * SIDE_KM
    homes = quarters[draw.integers(0, QUARTERS, people)] + draw.normal(0, 0.6, (people, 2))
    venues = np.repeat(quarters, VENUES_A_QUARTER, axis=0)
    venues = np.clip(venues + draw.normal(0, 1.0, venues.shape), 0, SIDE_KM)
    chance = _closeness(homes, 1.0, draw)
    friends = np.argwhere(np.triu(draw.random((people, people)) < chance, k=1)).reshape(-1, 2)
    visits = _visits(_favourites(homes, venues, friends, draw), draw)
    degrees = np.array([1 / METRES_PER_DEGREE, 1 / METRES_PER_DEGREE]) * 1000
    degrees[1] /= np.cos(np.radians(SOUTH))
    corner = np.array([SOUTH, WEST])
    top = corner + SIDE_KM * degrees
    return FriendsPlaces(
        people=tuple(f"p{i + 1:0{len(str(people))}d}" for i in range(people)),
        venues=corner + venues * degrees,
        visits=visits,
        friends=friends,
        box=(SOUTH, WEST, float(np.round(top[0], 6)), float(np.round(top[1], 6))),
    )


def _favourites(
    homes: Floats, venues: Floats, friends: Ints, draw: np.random.Generator
) -> list[list[int]]:
    """Each person's places, the best first: near home, and some of a friend's."""
    apart = np.linalg.norm(homes[:, None, :] - venues[None, :, :], axis=2)
    law = np.exp(-apart / NEAR_KM) + 1e-6
    law /= law.sum(axis=1, keepdims=True)
    places = [draw.choice(len(venues), size=10, replace=False, p=row).tolist() for row in law]
    for a, b in friends.tolist():
        for one, other in ((a, b), (b, a)):
            if draw.random() < SHARED_WITH_FRIENDS:
                places[one].insert(int(draw.integers(0, 3)), places[other][0])
    return [list(dict.fromkeys(row)) for row in places]


def _visits(places: list[list[int]], draw: np.random.Generator) -> Ints:
    """Person and venue of each check-in: popular places often, 10 to 60 check-ins a person."""
    rows = []
    for person, row in enumerate(places):
        share = 1 / np.arange(1, len(row) + 1)
        chosen = draw.choice(len(row), size=int(draw.integers(10, 61)), p=share / share.sum())
        rows += [(person, row[int(k)]) for k in chosen]
    table = np.array(rows, dtype=np.int64)
    return table[draw.permutation(len(table))]
