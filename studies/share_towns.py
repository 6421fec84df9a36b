"""Invented towns with merging roads, and riders who follow a road model exactly.

A town has random crossings joined by short roads, a river with a few bridges, and arterial roads on
which riding costs less. Everything follows from a seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import Delaunay

from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads

MIDDLE = 52.5  # latitude of the middle of every town, degrees
CROSSING_METRES = 20.0  # what passing a crossing costs, as metres of road
DEGREE_METRES = 6_371_000.0 * math.pi / 180  # metres in a degree of latitude


@dataclass(frozen=True)
class Town:
    """Crossings in metres, roads as pairs (each in one direction), lengths and costs in metres."""

    xy: NDArray[np.float64]
    pairs: NDArray[np.int64]
    lengths: NDArray[np.float64]
    costs: NDArray[np.float64]

    @property
    def points(self) -> NDArray[np.float64]:
        """Return latitude and longitude of the crossings, in degrees."""
        lat = MIDDLE + self.xy[:, 1] / DEGREE_METRES
        lon = 13.4 + self.xy[:, 0] / (DEGREE_METRES * math.cos(math.radians(MIDDLE)))
        return np.column_stack([lat, lon])

    def roads(self, mu: float = 30.0, costs: NDArray[np.float64] | None = None) -> Roads:
        """Return the road model with weights e^(-cost/mu), both directions alike."""
        table = np.atleast_2d(self.costs if costs is None else costs)
        weights = np.exp(-np.concatenate([table, table], axis=1) / mu)
        return Roads.of(self.points, np.vstack([self.pairs, self.pairs[:, ::-1]]), weights)

    def near(self, x: float, y: float, radius: float) -> NDArray[np.int64]:
        """Return the crossings within a radius in metres."""
        return np.flatnonzero(np.hypot(self.xy[:, 0] - x, self.xy[:, 1] - y) <= radius)

    def square_zone(self, crossing: int, side: float) -> PermanentPlace:
        """Return the square of a fixed grid that holds a crossing."""
        cell = np.floor(self.xy / side)
        inside = (cell == cell[crossing]).all(axis=1)
        return PermanentPlace.of(np.flatnonzero(inside).tolist(), about="a square")


def make_town(seed: int, crossings: int = 10_000, side: float = 16_000.0, bridges: int = 4) -> Town:
    """Return a town of about so many crossings on a square of `side` metres."""
    random = np.random.default_rng(seed)
    xy = random.uniform(-side / 2, side / 2, (crossings, 2))
    spacing = side / math.sqrt(crossings)
    pairs = _delaunay(xy)
    lengths = np.hypot(*(xy[pairs[:, 0]] - xy[pairs[:, 1]]).T)
    keep = (lengths < 3 * spacing) & (random.random(len(pairs)) > 0.3)
    pairs, lengths = pairs[keep], lengths[keep]
    keep = _bridges(xy, pairs, random, side, bridges)
    pairs, lengths = pairs[keep], lengths[keep]
    xy, pairs = _largest_part(xy, pairs)
    lengths = np.hypot(*(xy[pairs[:, 0]] - xy[pairs[:, 1]]).T)
    costs = lengths * random.uniform(1.0, 1.3, len(pairs))
    return Town(xy, pairs, lengths, _arterials(xy, pairs, lengths, costs, random, side))


def _delaunay(xy: NDArray[np.float64]) -> NDArray[np.int64]:
    triangles = Delaunay(xy).simplices
    sides = np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]])
    return np.unique(np.sort(sides, axis=1), axis=0).astype(np.int64)


def _bridges(
    xy: NDArray[np.float64],
    pairs: NDArray[np.int64],
    random: np.random.Generator,
    side: float,
    bridges: int,
) -> NDArray[np.bool_]:
    """Return which roads stay when a winding river has a few bridges only."""
    phase = random.uniform(0, 2 * math.pi)
    river = 0.12 * side + 0.05 * side * np.sin(4 * xy[:, 0] / side * math.pi + phase)
    north = xy[:, 1] > river
    crossing = north[pairs[:, 0]] != north[pairs[:, 1]]
    middle = xy[pairs].mean(axis=1)[:, 0]
    keep: NDArray[np.bool_] = ~crossing
    spread = np.linspace(-0.35, 0.35, bridges) if bridges > 1 else np.zeros(1)
    for bridge in (spread + random.uniform(-0.04, 0.04, bridges)) * side:
        over = np.flatnonzero(crossing)
        keep[over[np.argmin(np.abs(middle[over] - bridge))]] = True
    return keep


def _largest_part(
    xy: NDArray[np.float64], pairs: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    graph = csr_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(len(xy), len(xy)))
    _, labels = connected_components(graph, directed=False)
    kept = labels == np.bincount(labels).argmax()
    number = np.cumsum(kept) - 1
    return xy[kept], number[pairs[kept[pairs].all(axis=1)]]


def _arterials(
    xy: NDArray[np.float64],
    pairs: NDArray[np.int64],
    lengths: NDArray[np.float64],
    costs: NDArray[np.float64],
    random: np.random.Generator,
    side: float,
) -> NDArray[np.float64]:
    """Return costs in which roads on shortest ways across the town cost six tenths."""
    both = (np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]]))
    graph = csr_array((np.concatenate([lengths] * 2), both), shape=(len(xy), len(xy)))
    count = max(4, round(side / 1600))
    ends = random.integers(0, len(xy), (2 * count, 2))
    _, before = dijkstra(graph, indices=ends[:, 0], return_predecessors=True)
    main = set()
    for row, (start, end) in enumerate(ends.tolist()):
        at = end
        while at != start and before[row, at] >= 0:
            main.add((min(at, int(before[row, at])), max(at, int(before[row, at]))))
            at = int(before[row, at])
    cheap = np.array([(min(a, b), max(a, b)) in main for a, b in pairs.tolist()])
    return np.where(cheap, 0.6 * costs, costs) + CROSSING_METRES


class Rider:
    """Draws legs from the law of one member: walks that stop at their first arrival at a goal."""

    def __init__(self, roads: Roads, member: int, random: np.random.Generator) -> None:
        self.random = random
        shape = (roads.size, roads.size)
        self.step = csr_array((roads.weights[member], (roads.tails, roads.heads)), shape=shape)
        self.lengths = csr_array(
            (-np.log(roads.weights[member]), (roads.tails, roads.heads)), shape=shape
        )
        self._heights: dict[int, NDArray[np.float64]] = {}

    def leg(self, start: int, goal: int) -> tuple[int, ...]:
        """Return one walk from start to goal as crossings."""
        height = self._height(goal)
        path = [start]
        while path[-1] != goal:
            begin, end = self.step.indptr[path[-1] : path[-1] + 2]
            following = self.step.indices[begin:end]
            log = np.log(self.step.data[begin:end]) + height[following]
            law = np.exp(log - log.max())
            path.append(int(self.random.choice(following, p=law / law.sum())))
        return tuple(path)

    def _height(self, goal: int) -> NDArray[np.float64]:
        """Return ln of the sum of walks that stop at the goal, from every crossing."""
        from scipy.sparse import csc_array, identity
        from scipy.sparse.linalg import splu

        if goal not in self._heights:
            far = dijkstra(csr_array(self.lengths.T), indices=goal)
            coo = self.step.tocoo()
            data = np.exp(np.log(coo.data) + far[coo.row] - far[coo.col])
            data[coo.row == goal] = 0.0
            matrix = csr_array((data, (coo.row, coo.col)), shape=self.step.shape)
            begun = np.zeros(len(far))
            begun[goal] = 1.0
            solved = splu(csc_array(identity(len(far)) - matrix)).solve(begun)
            self._heights[goal] = np.log(np.maximum(solved, 1e-300)) - far
        return self._heights[goal]


def path_metres(town: Town, path: tuple[int, ...]) -> float:
    """Return the length of a path in metres."""
    where = town.xy[list(path)]
    return float(np.hypot(*np.diff(where, axis=0).T).sum())
