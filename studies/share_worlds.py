"""Places to hide a home in: an invented town, a perfect grid, and people of GeoLife."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats
from shoal.share.history import Leg
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads, metres_between
from studies.share_towns import Rider, Town, make_town
from studies.sources import real_folder

TOWN_SEED = 11  # not used for any choice
RIDES = 100
GRID_SIDE, GRID_METRES = 36, 200.0  # crossings along one side of the grid, and their distance
CELL_METRES = 200.0  # GeoLife: cells stand for roads
PEOPLE, MOST_LEGS, FARTHEST_START = 2, 60, 1500.0
USUAL_MOVES = 5.0  # moves of others that make a step between cells half as cheap as it can be


class World(NamedTuple):
    """A map, a hidden zone, where home is, and all legs between home and goals."""

    name: str
    roads: Roads
    place: PermanentPlace
    home: int
    legs: tuple[Leg, ...]

    def metres(self, path: tuple[int, ...]) -> float:
        """Return the length of a path."""
        steps = np.array([*pairwise(path)], dtype=np.int64).reshape(-1, 2)
        return float(metres_between(self.roads.points, steps[:, 0], steps[:, 1]).sum())


def worlds() -> Iterator[World]:
    """Yield the town and the grid, then people of GeoLife where the data are there."""
    yield town_world()
    yield grid_world()
    folder = real_folder()
    if folder is not None and (folder / "geolife_beijing_3rdring_60s.parquet").exists():
        yield from geolife_worlds(folder / "geolife_beijing_3rdring_60s.parquet")


def town_world(seed: int = TOWN_SEED, rides: int = RIDES) -> World:
    """Return an invented town with merging roads, and a rider who follows its model."""
    town, random = make_town(seed), np.random.default_rng(1000 + seed)
    near = town.near(random.uniform(-3000, 3000), random.uniform(-6000, 0), 400)
    home = int(random.choice(near))
    far = np.hypot(*(town.xy - town.xy[home]).T)
    goals = random.choice(np.flatnonzero((far > 3000) & (far < 7500)), 30, replace=False)
    place = town.square_zone(home, 620.0)
    return World("invented town", town.roads(), place, home, _ridden(town, home, goals, rides))


def grid_world(rides: int = RIDES) -> World:
    """Return streets that cross at right angles and all weigh the same."""
    number = np.arange(GRID_SIDE**2).reshape(GRID_SIDE, GRID_SIDE)
    pairs = np.vstack(
        [
            np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()]),
            np.column_stack([number[:-1].ravel(), number[1:].ravel()]),
        ]
    )
    x, y = np.meshgrid(np.arange(GRID_SIDE), np.arange(GRID_SIDE), indexing="ij")
    xy = np.column_stack([x.ravel(), y.ravel()]) * np.float64(GRID_METRES)
    lengths = np.full(len(pairs), GRID_METRES)
    town, random = Town(xy, pairs, lengths, lengths), np.random.default_rng(3)
    home = int(number[10, 9])
    far = np.hypot(*(xy - xy[home]).T)
    goals = random.choice(np.flatnonzero((far > 3000) & (far < 5000)), 30, replace=False)
    place = PermanentPlace.of(number[8:12, 8:12].ravel().tolist(), about="a square")
    return World("perfect grid", town.roads(), place, home, _ridden(town, home, goals, rides))


def _ridden(town: Town, home: int, goals: Floats, rides: int) -> tuple[Leg, ...]:
    """Return rides to goals and back, drawn from the model."""
    random = np.random.default_rng(5)
    rider, legs = Rider(town.roads(), 0, random), []
    for _ in range(rides):
        goal = int(random.choice(goals))
        for homeward in (False, True):
            path = rider.leg(home, goal)
            legs.append(Leg(path[::-1] if homeward else path, goal, homeward))
    return tuple(legs)


def geolife_worlds(path: Path) -> Iterator[World]:
    """Yield the people with most legs; the map of each is what all others did, in cells."""
    import polars as pl

    frame = pl.read_parquet(path).filter(~pl.col("shared")).sort("user", "traj", "time_utc")
    low = np.array(frame.select(pl.min("lat"), pl.min("lon")).row(0))
    scale = CELL_METRES / 111_194.9 * np.array([1.0, 1 / math.cos(math.radians(39.9))])
    count = tuple(
        int(n) + 1
        for n in (np.array(frame.select(pl.max("lat"), pl.max("lon")).row(0)) - low) // scale
    )
    walks: dict[int, list[tuple[int, ...]]] = {}
    for (user, _), rows in frame.group_by(["user", "traj"], maintain_order=True):
        where = rows.select("lat", "lon").to_numpy().astype(float)
        walks.setdefault(int(str(user)), []).append(_cells((where - low) / scale, count[1]))
    moves = {
        user: Counter(step for walk in own for step in pairwise(walk))
        for user, own in walks.items()
    }
    everybody: Counter[tuple[int, int]] = Counter()
    for counted in moves.values():
        everybody.update(counted)
    found = []
    for user, own in walks.items():
        ends = Counter(end for walk in own for end in (walk[0], walk[-1]))
        home = ends.most_common(1)[0][0]
        found.append((ends[home], user, home))
    for _, user, home in sorted(found, reverse=True)[:PEOPLE]:
        others = everybody - moves[user]
        roads = _cell_roads(count, others, low, scale)
        place = _cell_square(home, count)
        legs = _legs_of(walks[user], roads, place)
        if len(legs) > 10:
            yield World(f"GeoLife, person {user}", roads, place, home, legs)


def _cells(where: Floats, columns: int) -> tuple[int, ...]:
    """Return the cells of a track, each beside the next one."""
    dense = [where[:1]]
    for a, b in pairwise(where):
        steps = max(1, math.ceil(float(np.abs(b - a).max()) * 4))
        dense.append(a + (np.arange(1, steps + 1) / steps)[:, None] * (b - a))
    row, column = np.floor(np.vstack(dense)).astype(int).T
    cells = (row * columns + column).tolist()
    return tuple(c for k, c in enumerate(cells) if k == 0 or c != cells[k - 1])


def _cell_roads(
    count: tuple[int, ...], moves: Counter[tuple[int, int]], low: Floats, scale: Floats
) -> Roads:
    """Return cells joined to their eight neighbours; steps that others took are cheaper."""
    rows, columns = count
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = np.vstack(
        [
            np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()]),
            np.column_stack([number[:-1].ravel(), number[1:].ravel()]),
            np.column_stack([number[:-1, :-1].ravel(), number[1:, 1:].ravel()]),
            np.column_stack([number[:-1, 1:].ravel(), number[1:, :-1].ravel()]),
        ]
    )
    both = np.array([moves[a, b] + moves[b, a] for a, b in pairs.tolist()], dtype=float)
    straight = (np.abs(pairs[:, 0] - pairs[:, 1]) == 1) | (pairs[:, 1] - pairs[:, 0] == columns)
    length = CELL_METRES * np.where(straight, 1.0, math.sqrt(2))
    weights = np.exp(-length * (1.2 - 0.7 * both / (both + USUAL_MOVES)) / 60.0)
    points = low + (np.column_stack(np.divmod(number.ravel(), columns)) + 0.5) * scale
    return Roads.of(points, np.vstack([pairs, pairs[:, ::-1]]), np.concatenate([weights] * 2))


def _cell_square(home: int, count: tuple[int, ...]) -> PermanentPlace:
    """Return the square of a fixed grid of 5 by 5 cells, a kilometre wide, that holds home."""
    row, column = divmod(home, count[1])
    rows = range(row // 5 * 5, min(row // 5 * 5 + 5, count[0]))
    columns = range(column // 5 * 5, min(column // 5 * 5 + 5, count[1]))
    return PermanentPlace.of([r * count[1] + c for r in rows for c in columns], about="a square")


def _legs_of(walks: list[tuple[int, ...]], roads: Roads, place: PermanentPlace) -> tuple[Leg, ...]:
    """Return the legs between the zone and the other ends of walks that touch it at one end."""
    zone, found = set(place.zone.tolist()), []
    middle = int(place.zone[len(place.zone) // 2])
    for walk in walks:
        for homeward, way in ((False, walk), (True, walk[::-1])):
            far = float(metres_between(roads.points, way[-1], middle))
            if way[0] not in zone or way[-1] in zone or far < FARTHEST_START:
                continue
            goal = way[-1]
            whole = way[: way.index(goal) + 1]
            last = max(k for k, cell in enumerate(whole) if cell in zone)
            path = whole[last:]
            found.append(Leg(path[::-1] if homeward else path, goal, homeward))
    return tuple(found[:MOST_LEGS])
