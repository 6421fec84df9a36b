"""Matching positions to roads: the likeliest walk on the map, by a hidden Markov model.

Newson & Krumm 2009: positions lie near the road (normal), and the way on the road between two
positions is about as long as the straight line (exponential).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import DataError
from shoal.share.maps import StreetMap
from shoal.share.roads import EARTH_METRES

SIGMA_METRES = 12.0  # spread of positions about the road
BETA_METRES = 15.0  # how much longer than straight a way between two positions is
NEAR_METRES = 60.0  # roads further from a position are no candidates
MOST_CANDIDATES = 8  # roads looked at for one position
STEP_METRES = 30.0  # positions nearer to the one before are left out
DETOUR_METRES = 150.0  # how much longer than straight a way may be at most


class Spot(NamedTuple):
    """A place on a road: the road, metres from its beginning, and metres beside it."""

    road: int
    along: float
    beside: float


class Matched(NamedTuple):
    """A walk as crossings, and for each crossing the first position after passing it."""

    path: tuple[int, ...]
    passed: tuple[int, ...]


class Matcher:
    """Matches tracks to one map. Pieces of roads are kept in a grid of squares."""

    def __init__(self, streets: StreetMap) -> None:
        self.streets = streets
        middle = math.radians(float(streets.points[:, 0].mean()))
        self._scale = np.radians(1.0) * EARTH_METRES * np.array([1.0, math.cos(middle)])
        starts, ends, roads, along = [], [], [], []
        for road, shape in enumerate(streets.shapes):
            flat = shape * self._scale
            far = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(flat, axis=0).T))])
            starts.append(flat[:-1])
            ends.append(flat[1:])
            roads.append(np.full(len(flat) - 1, road))
            along.append(far[:-1])
        self._start, self._end = np.concatenate(starts), np.concatenate(ends)
        self._road: Ints = np.concatenate(roads)
        self._along: Floats = np.concatenate(along)
        self._cells: dict[tuple[int, int], list[int]] = defaultdict(list)
        for piece in range(len(self._road)):
            low = np.floor(np.minimum(self._start[piece], self._end[piece]) / NEAR_METRES)
            high = np.floor(np.maximum(self._start[piece], self._end[piece]) / NEAR_METRES)
            for x in range(int(low[0]), int(high[0]) + 1):
                for y in range(int(low[1]), int(high[1]) + 1):
                    self._cells[x, y].append(piece)
        self._after: dict[int, list[int]] = defaultdict(list)
        for road, tail in enumerate(streets.tails.tolist()):
            self._after[tail].append(road)
        self._near: dict[int, tuple[float, dict[int, tuple[float, int]]]] = {}

    def match(self, positions: Floats) -> Matched:
        """Return the likeliest walk of positions (latitude, longitude), in their order.

        Positions off the map are passed over. Refused where none is near a road.
        """
        flat = positions * self._scale
        kept: list[int] = []
        spots: list[list[Spot]] = []
        for number in range(len(flat)):
            near_last = kept and np.hypot(*(flat[number] - flat[kept[-1]])) < STEP_METRES
            if near_last and number < len(flat) - 1:
                continue
            near = self._spots(flat[number])
            if near:
                kept.append(number)
                spots.append(near)
        if not kept:
            raise DataError("no position of the track is near a road of the map; is it the map?")
        chosen = self._likeliest(flat[kept], spots)
        return self._walk(chosen, kept)

    def _spots(self, where: Floats) -> list[Spot]:
        """The nearest place on each road near a position, nearest first."""
        x, y = np.floor(where / NEAR_METRES).astype(int)
        pieces = sorted(
            {p for i in (-1, 0, 1) for j in (-1, 0, 1) for p in self._cells.get((x + i, y + j), ())}
        )
        if not pieces:
            return []
        start, end = self._start[pieces], self._end[pieces]
        way = end - start
        length = np.maximum((way**2).sum(axis=1), 1e-9)
        share = np.clip(((where - start) * way).sum(axis=1) / length, 0.0, 1.0)
        beside = np.hypot(*(where - start - share[:, None] * way).T)
        best: dict[int, Spot] = {}
        for k in np.argsort(beside, kind="stable").tolist():
            road = int(self._road[pieces[k]])
            if beside[k] > NEAR_METRES or len(best) >= MOST_CANDIDATES:
                break
            along = self._along[pieces[k]] + share[k] * math.sqrt(length[k])
            best.setdefault(road, Spot(road, float(along), float(beside[k])))
        return list(best.values())

    def _likeliest(self, flat: Floats, spots: list[list[Spot]]) -> list[tuple[int, Spot]]:
        """The likeliest spot of each position, with its number; a new start where none follows."""
        score = [-0.5 * (s.beside / SIGMA_METRES) ** 2 for s in spots[0]]
        before: list[list[int]] = [[-1] * len(spots[0])]
        for step in range(1, len(spots)):
            straight = float(np.hypot(*(flat[step] - flat[step - 1])))
            new, back = [], []
            for spot in spots[step]:
                ways = [self._way(old, spot, straight) for old in spots[step - 1]]
                gains = [
                    value - abs(way - straight) / BETA_METRES
                    for value, way in zip(score, ways, strict=True)
                ]
                best = int(np.argmax(gains))
                new.append(gains[best] - 0.5 * (spot.beside / SIGMA_METRES) ** 2)
                back.append(best if math.isfinite(gains[best]) else -1)
            if not any(math.isfinite(value) for value in new):
                new = [-0.5 * (s.beside / SIGMA_METRES) ** 2 for s in spots[step]]
            score = new
            before.append(back)
        chosen, at = [], int(np.argmax(score))
        for step in range(len(spots) - 1, -1, -1):
            chosen.append((step, spots[step][at]))
            at = before[step][at]
            if at < 0 and step:
                break  # nothing before joins: the walk begins here
        return chosen[::-1]

    def _way(self, old: Spot, new: Spot, straight: float) -> float:
        """Metres on the roads from one spot to another; inf where it is too far."""
        if old.road == new.road and new.along >= old.along - SIGMA_METRES:
            return abs(new.along - old.along)
        rest = float(self.streets.lengths[old.road]) - old.along
        limit = straight + DETOUR_METRES
        reached = self._reached(int(self.streets.heads[old.road]), limit)
        found = reached.get(int(self.streets.tails[new.road]))
        return math.inf if found is None else rest + found[0] + new.along

    def _reached(self, crossing: int, limit: float) -> dict[int, tuple[float, int]]:
        """Crossings within a way of `limit` metres: how far, and by which last road."""
        known = self._near.get(crossing)
        if known is not None and known[0] >= limit:
            return known[1]
        found: dict[int, tuple[float, int]] = {}
        queue = [(0.0, crossing, -1)]
        while queue:
            far, here, road = heapq.heappop(queue)
            if here in found:
                continue
            found[here] = far, road
            for after in self._after[here]:
                length = far + float(self.streets.lengths[after])
                if length <= limit:
                    heapq.heappush(queue, (length, int(self.streets.heads[after]), after))
        self._near[crossing] = limit, found
        return found

    def way_between(self, first: int, second: int, limit: float) -> tuple[int, ...] | None:
        """Return the crossings of the shortest way between two, both included; None if too long."""
        found, path = self._reached(first, limit), [second]
        if second not in found:
            return None
        while path[-1] != first:
            path.append(int(self.streets.tails[found[path[-1]][1]]))
        return tuple(path[::-1])

    def _walk(self, chosen: list[tuple[int, Spot]], kept: list[int]) -> Matched:
        """The crossings that the chosen spots pass, one after the other."""
        tails, heads = self.streets.tails, self.streets.heads
        path, passed = [int(tails[chosen[0][1].road])], [kept[chosen[0][0]]]
        for (_, old), (step, new) in itertools.pairwise(chosen):
            if old.road == new.road and new.along >= old.along - SIGMA_METRES:
                continue
            limit = self._near[int(heads[old.road])][0]
            joined = self.way_between(int(heads[old.road]), int(tails[new.road]), limit)
            for crossing in joined or ():
                path.append(crossing)
                passed.append(kept[step])
        path.append(int(heads[chosen[-1][1].road]))
        passed.append(kept[chosen[-1][0]])
        return Matched(tuple(path), tuple(passed))
