"""A made-up town of friends: check-ins at places, and who knows whom."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.value import Floats, Ints, locked
from shoal.data.synthetic.rhythm import MONDAY, at_least_one, generator
from shoal.data.synthetic.town import METRES_PER_DEGREE, SOUTH, WEST

if TYPE_CHECKING:
    import polars as pl

SIDE_KM = 20.0
QUARTERS = 8
VENUES_A_QUARTER = 60
FRIENDS = 4.0  # friendships per person, on average
NEAR_KM = 0.7  # how far people go for most of what they do
TOGETHER = 0.25  # share of a person's places that are a friend's


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
        object.__setattr__(self, "venues", locked(self.venues))
        object.__setattr__(self, "visits", locked(self.visits, np.int64))
        object.__setattr__(self, "friends", locked(self.friends, np.int64))

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

    Friendship falls off with the distance of the homes. Everybody has at least 10 check-ins.
    """
    at_least_one(people=people)
    draw = generator(seed, 0)
    quarters = draw.uniform(0.1, 0.9, (QUARTERS, 2)) * SIDE_KM
    homes = quarters[draw.integers(0, QUARTERS, people)] + draw.normal(0, 0.6, (people, 2))
    venues = np.repeat(quarters, VENUES_A_QUARTER, axis=0)
    venues = np.clip(venues + draw.normal(0, 1.0, venues.shape), 0, SIDE_KM)
    chance = _friendship(homes, draw)
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


def _friendship(homes: Floats, draw: np.random.Generator) -> Floats:
    """The chance that two people are friends, scaled to `FRIENDS` each on average."""
    popular = draw.pareto(2.5, len(homes)) + 1
    apart = np.linalg.norm(homes[:, None, :] - homes[None, :, :], axis=2)
    weight = np.outer(popular, popular) * np.exp(-apart / 1.0)
    np.fill_diagonal(weight, 0)
    scale = FRIENDS * len(homes) / max(float(weight.sum()), 1e-300)
    return np.asarray(np.minimum(weight * scale, 0.9))


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
            if draw.random() < TOGETHER:
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
