"""Roads as a model of routes: a graph, a family of weights, and the walks that riders take.

A leg from a crossing h to a goal d is a walk with probability w(walk) / (sum over all walks from h
to d), where w multiplies the weights of its roads (recursive logit). A family holds several sets of
weights, because nobody knows the tastes of a rider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats, Ints, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.task import Law

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LEAST_WEIGHT = 2.0**-400  # below it a weight times its return weight would leave the floats
EARTH_METRES = 6_371_000.0  # mean radius


class RouteLaw(NamedTuple):
    """One law of the routes between hidden crossings and goals, seen from the crossing.

    `matrix[i, j]` is the weight of the step from state i to state j. A state is a crossing, or a
    directed road where turns cost something. A leg home is seen backwards, so that every law goes
    from the hidden crossing to the goal.
    """

    matrix: csr_array
    member: int  # of the family
    homeward: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roads(Law):
    """A graph of crossings and one-way roads, with the weights of every member of a family.

    `points` are latitude and longitude in degrees, one row per crossing; coordinates of an invented
    town are fine where no distance in metres is asked for. `weights[k, r]` in (0, 1) belongs to
    member k and road r. `turns[k]` in (0, 1] multiplies a route's weight for every right angle it
    turns (1: turns are free). With `both_ways` legs home are shown too, and a leg may repeat an
    earlier one in the other direction; without it every leg leads away from the hidden place.
    """

    kind = "roads"

    points: Floats
    tails: Ints
    heads: Ints
    weights: Floats
    turns: Floats
    both_ways: bool = True

    @classmethod
    def of(
        cls,
        points: Any,
        roads: Any,
        weights: Any,
        *,
        turns: Sequence[float] | None = None,
        both_ways: bool = True,
    ) -> Roads:
        """Build from crossings, pairs of crossings, and one or several lists of weights."""
        table = np.atleast_2d(np.asarray(weights, dtype=float))
        pairs = np.asarray(roads, dtype=np.int64).reshape(-1, 2)
        free = np.ones(len(table)) if turns is None else np.asarray(turns, dtype=float)
        return cls(
            points=as_read_only(points),
            tails=as_read_only(pairs[:, 0], np.int64),
            heads=as_read_only(pairs[:, 1], np.int64),
            weights=as_read_only(table),
            turns=as_read_only(free),
            both_ways=both_ways,
        )

    def __post_init__(self) -> None:
        count, roads = len(self.points), len(self.tails)
        if self.points.ndim != 2 or self.points.shape[1] != 2 or not np.isfinite(self.points).all():
            raise InputError("points must be finite numbers in two columns, one row per crossing")
        if self.weights.ndim != 2 or self.weights.shape != (len(self.turns), roads) or not roads:
            raise InputError(
                f"weights has shape {self.weights.shape}; it must be members x {roads} roads, with "
                f"{len(self.turns)} value(s) of turns"
            )
        ends = np.concatenate([self.tails, self.heads])
        if ends.min() < 0 or ends.max() >= count or (self.tails == self.heads).any():
            raise InputError(f"a road must join two different crossings from 0 to {count - 1}")
        if len(set(zip(self.tails.tolist(), self.heads.tolist(), strict=True))) < roads:
            raise InputError("roads names a pair of crossings twice; keep the better road only")
        if not ((self.weights >= LEAST_WEIGHT) & (self.weights < 1)).all():
            raise InputError(
                "weights must lie between 2^-400 and 1; cut long roads by crossings, or raise the "
                "cost scale"
            )
        if not ((self.turns > 0) & (self.turns <= 1)).all():
            raise InputError(f"turns is {self.turns.tolist()}; each must be in (0, 1]")

    @property
    def states(self) -> tuple[str, ...] | None:
        """None: the crossings of a map are too many to be named."""
        return None

    @property
    def tied(self) -> int | None:
        """None: every leg of a history depends on the same hidden place."""
        return None

    @property
    def size(self) -> int:
        """The number of crossings."""
        return len(self.points)

    @property
    def members(self) -> int:  # type: ignore[override]
        """The number of sets of weights."""
        return len(self.weights)

    def describe(self) -> str:
        kinds = "taste" if len(self.weights) == 1 else "tastes"
        turning = "" if (self.turns == 1).all() else " and costs of turns"
        return (
            f"riders who choose routes by recursive logit on {self.size:,} crossings and "
            f"{len(self.tails):,} one-way roads, with {len(self.weights)} {kinds}{turning}"
        )

    def admit(self, records: Any) -> None:
        """Refuse legs with a crossing that is not on the map."""
        for leg in records:
            if min(leg.path) < 0 or max(leg.path) >= self.size:
                raise DataError(
                    f"a leg names crossing {max(leg.path)}; the map has crossings 0 to "
                    f"{self.size - 1}"
                )


class RoadStates:
    """The states of the walks on `roads`, and the laws over them.

    `first[i]` and `last[i]` are the crossings at which state i begins and ends, in the direction
    away from the hidden place. Both are the crossing itself where turns are free.
    """

    def __init__(self, roads: Roads) -> None:
        self.roads = roads
        self.by_road = bool((roads.turns < 1).any())
        if not self.by_road:
            self.first: Ints = np.arange(roads.size)
            self.last: Ints = self.first
            return
        pairs = np.stack([roads.tails, roads.heads], axis=1)
        both = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
        self.first, self.last = both[:, 0], both[:, 1]

    @property
    def count(self) -> int:
        """The number of states."""
        return len(self.first)

    @cached_property
    def laws(self) -> list[RouteLaw]:
        """Every law a leg may follow: each member, away from the place and back.

        The two directions are one law where all roads weigh the same both ways.
        """
        found = []
        for member in range(len(self.roads.weights)):
            out = self._matrix(member, homeward=False)
            found.append(RouteLaw(out, member, False))
            if not self.roads.both_ways:
                continue
            back = self._matrix(member, homeward=True)
            difference = abs(out - back)
            if self.by_road or (difference.nnz and difference.max() > 0):
                found.append(RouteLaw(back, member, True))
        return found

    def starts(self, law: RouteLaw, crossings: Sequence[int]) -> Floats:
        """Return the weights with which walks from each crossing begin, one row per crossing."""
        rows = np.zeros((len(crossings), self.count))
        for row, crossing in enumerate(crossings):
            if not self.by_road:
                rows[row, crossing] = 1.0
                continue
            begun = np.flatnonzero(self.first == crossing)
            rows[row, begun] = self._road_weights(law.member, law.homeward)[begun]
        return rows

    def ends(self, goal: int) -> Ints:
        """Return the states in which a walk to the goal ends."""
        return np.flatnonzero(self.last == goal)

    def states_of(self, path: Sequence[int]) -> list[int]:
        """Return the states of a walk that is given by its crossings, away from the place.

        Refuses with a DataError a walk that leaves the roads.
        """
        if not self.by_road:
            return [int(crossing) for crossing in path]
        try:
            return [self._place[pair] for pair in pairwise(path)]
        except KeyError as error:
            raise DataError(f"no road joins the crossings {error.args[0]} of a leg") from None

    @cached_property
    def neighbours(self) -> csr_array:
        """The states that may follow each state under any law, as a matrix of 0 and 1."""
        from scipy.sparse import csr_array

        joined = csr_array((self.count, self.count))
        for law in self.laws:
            joined = joined + law.matrix
        joined = csr_array(joined)
        joined.sort_indices()
        return joined

    @cached_property
    def _place(self) -> dict[tuple[int, int], int]:
        pairs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return {pair: state for state, pair in enumerate(pairs)}

    def _road_weights(self, member: int, homeward: bool) -> Floats:
        """The weight of the road of each state as it is ridden; 0 where nobody may ride it so."""
        roads = self.roads
        ends = zip(roads.tails.tolist(), roads.heads.tolist(), strict=True)
        known = dict(zip(ends, roads.weights[member].tolist(), strict=True))
        pairs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return np.array([known.get((b, a) if homeward else (a, b), 0.0) for a, b in pairs])

    def _matrix(self, member: int, homeward: bool) -> csr_array:
        from scipy.sparse import csr_array

        roads, shape = self.roads, (self.count, self.count)
        if not self.by_road:
            ends = (roads.heads, roads.tails) if homeward else (roads.tails, roads.heads)
            return csr_array((roads.weights[member], ends), shape=shape)
        weights = self._road_weights(member, homeward)
        order = np.argsort(self.first, kind="stable")
        begin = np.searchsorted(self.first[order], np.arange(roads.size + 1))
        before, after = [], []
        for state, crossing in enumerate(self.last.tolist()):
            following = order[begin[crossing] : begin[crossing + 1]]
            before.append(np.full(len(following), state))
            after.append(following)
        rows, columns = np.concatenate(before), np.concatenate(after)
        angles = self._right_angles(rows, columns)
        values = weights[columns] * roads.turns[member] ** angles
        ridden = (values >= LEAST_WEIGHT) & (weights[rows] > 0)
        return csr_array((values[ridden], (rows[ridden], columns[ridden])), shape=shape)

    def _right_angles(self, before: Ints, after: Ints) -> Floats:
        """How far a walk turns between two states, in right angles from 0 to 2."""
        x, y = plane(self.roads.points)
        dx, dy = x[self.last] - x[self.first], y[self.last] - y[self.first]
        heading = np.arctan2(dy, dx)
        turn = np.abs(heading[after] - heading[before])
        angles: Floats = np.minimum(turn, 2 * math.pi - turn) / (math.pi / 2)
        return angles


def plane(points: Floats) -> tuple[Floats, Floats]:
    """Return x and y in metres of points in degrees, about the middle of all points."""
    latitude, longitude = np.radians(points[:, 0]), np.radians(points[:, 1])
    middle = 0.5 * (latitude.min() + latitude.max())
    return EARTH_METRES * longitude * math.cos(middle), EARTH_METRES * latitude


def metres_between(points: Floats, first: Any, second: Any) -> Floats:
    """Return the distances between points of two lists of indices, straight and in metres."""
    x, y = plane(points)
    distances: Floats = np.hypot(x[first] - x[second], y[first] - y[second])
    return distances


def strongly_connected(count: int, tails: Ints, heads: Ints) -> Bools:
    """Return the mask of the crossings of the largest part in which each reaches each other."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(tails)), (tails, heads)), shape=(count, count))
    _, labels = connected_components(graph, directed=True, connection="strong")
    return np.asarray(labels == np.bincount(labels).argmax())
