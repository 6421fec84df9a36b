"""Road maps from lines: crossings, the roads between them, and the usual family of tastes."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import DataError
from shoal.share.roads import EARTH_METRES, Roads, strongly_connected

MU_METRES = 30.0  # detour in metres that makes a route e times less likely
CROSSING_METRES = 20.0  # what passing a crossing costs, as metres of road
TASTES = 6  # members of the usual family
TASTE_SPREAD = 0.2  # how far a member's cost of a road may lie from its length
LONGEST_ROAD = 3000.0  # metres; longer roads are cut, so that their weights stay within the floats
SAME_PLACE = 6  # decimals of degrees in which two ends of lines are one crossing
EASY = {"cycleway": 0.8, "residential": 0.95, "living_street": 0.95, "trunk": 1.5, "primary": 1.2}

Place = tuple[float, float]  # longitude, latitude


class Line(NamedTuple):
    """A line of a map: places as (longitude, latitude), whether it has one way, and its class."""

    places: tuple[Place, ...]
    one_way: bool = False
    road_class: str = ""


@dataclass(frozen=True)
class StreetMap:
    """Crossings in degrees, and for each one-way road its ends, its shape, length and cost."""

    points: Floats
    tails: Ints
    heads: Ints
    shapes: tuple[Floats, ...]
    lengths: Floats
    costs: Floats

    def roads(self) -> Roads:
        """Return the road model with the usual tastes: the map's own costs, and five others.

        The others change each road's cost by up to a fifth, the same way in both directions.
        """
        members, low = [self.costs], np.minimum(self.tails, self.heads)
        names = low * len(self.points) + np.maximum(self.tails, self.heads)
        _, street = np.unique(names, return_inverse=True)
        for member in range(1, TASTES):
            draw = np.random.default_rng(member).uniform(
                1 - TASTE_SPREAD, 1 + TASTE_SPREAD, street.max() + 1
            )
            members.append(self.costs * draw[street])
        weights = np.exp(-(np.array(members) + CROSSING_METRES) / MU_METRES)
        ends = np.column_stack([self.tails, self.heads])
        return Roads.of(self.points, ends, weights)

    def nearest(self, latitude: float, longitude: float) -> tuple[int, float]:
        """Return the crossing nearest to a place, and how far it is in metres."""
        far = distances(self.points, latitude, longitude)
        crossing = int(far.argmin())
        return crossing, float(far[crossing])


def distances(points: Floats, latitude: float, longitude: float) -> Floats:
    """Return the distances in metres of points in degrees from one place."""
    north = np.radians(points[:, 0] - latitude)
    east = np.radians(points[:, 1] - longitude) * math.cos(math.radians(latitude))
    found: Floats = EARTH_METRES * np.hypot(north, east)
    return found


def street_map(lines: Iterable[Line]) -> StreetMap:
    """Return the largest connected part of a map, with bends drawn but not counted as crossings.

    Of several roads between two crossings the cheapest stays. Every crossing reaches every other.
    """
    steps: dict[Place, dict[Place, str]] = defaultdict(dict)
    for line in lines:
        places = [(round(x, SAME_PLACE), round(y, SAME_PLACE)) for x, y in line.places]
        for a, b in itertools.pairwise(places):
            if a != b:
                steps[a][b] = line.road_class
                if not line.one_way:
                    steps[b][a] = line.road_class
    if not steps:
        raise DataError("the map holds no roads; give lines, such as those of an OSM extract")
    joined: dict[Place, set[Place]] = defaultdict(set)
    for a, after in steps.items():
        for b in after:
            joined[a].add(b)
            joined[b].add(a)
    return _connected(_contracted(steps, joined))


def _is_bend(place: Place, steps: Mapping[Place, Mapping[Place, str]], joined: Any) -> bool:
    """Whether a place lies between two others on one road, both ways or one way through."""
    near = joined[place]
    if len(near) != 2:
        return False
    a, b = near
    there = place in steps.get(a, {}) and b in steps.get(place, {})
    back = place in steps.get(b, {}) and a in steps.get(place, {})
    arcs = sum(place in steps.get(n, {}) for n in near) + len(steps.get(place, {}))
    return (there and back) or (arcs == 2 and there != back)


def _contracted(
    steps: Mapping[Place, Mapping[Place, str]], joined: Mapping[Place, set[Place]]
) -> dict[tuple[Place, Place], tuple[float, list[Place]]]:
    """Return cost and shape of the road from each crossing to each next one."""
    bends = {place for place in joined if _is_bend(place, steps, joined)}
    found: dict[tuple[Place, Place], tuple[float, list[Place]]] = {}
    for start in joined.keys() - bends:
        for following in steps.get(start, {}):
            shape, cost = [start, following], _cost(start, following, steps)
            far = cost
            while shape[-1] in bends and far < LONGEST_ROAD:
                onward = [n for n in steps.get(shape[-1], {}) if n != shape[-2]]
                if not onward:
                    break
                step = _cost(shape[-1], onward[0], steps)
                cost, far = cost + step, far + step
                shape.append(onward[0])
            pair = start, shape[-1]
            if shape[-1] in bends or pair[0] == pair[1]:
                continue
            if pair not in found or cost < found[pair][0]:
                found[pair] = cost, shape
    return found


def _cost(a: Place, b: Place, steps: Mapping[Place, Mapping[Place, str]]) -> float:
    """The cost of a straight piece of road in metres."""
    return _metres(a, b) * EASY.get(steps[a][b], 1.0)


def _metres(a: Place, b: Place) -> float:
    middle = math.radians((a[1] + b[1]) / 2)
    return EARTH_METRES * math.hypot(
        math.radians(a[0] - b[0]) * math.cos(middle), math.radians(a[1] - b[1])
    )


def _connected(found: Mapping[tuple[Place, Place], tuple[float, list[Place]]]) -> StreetMap:
    """The map of the crossings that all reach each other."""
    places = sorted({end for pair in found for end in pair})
    number = {place: k for k, place in enumerate(places)}
    pairs = sorted(found)
    tails = np.array([number[a] for a, _ in pairs], dtype=np.int64)
    heads = np.array([number[b] for _, b in pairs], dtype=np.int64)
    if not pairs:
        raise DataError("the map holds no road between two crossings; give a larger map")
    kept = strongly_connected(len(places), tails, heads)
    new = np.cumsum(kept) - 1
    roads = [k for k in range(len(pairs)) if kept[tails[k]] and kept[heads[k]]]
    shapes = [np.array([(y, x) for x, y in found[pairs[k]][1]]) for k in roads]
    lengths = [
        sum(_metres(a, b) for a, b in itertools.pairwise(s))
        for s in (found[pairs[k]][1] for k in roads)
    ]
    return StreetMap(
        points=np.array([(y, x) for x, y in places])[kept],
        tails=new[tails[roads]],
        heads=new[heads[roads]],
        shapes=tuple(shapes),
        lengths=np.array(lengths),
        costs=np.array([found[pairs[k]][0] for k in roads]),
    )
