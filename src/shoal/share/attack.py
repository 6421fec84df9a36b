"""Attacks on published rides: circles through their ends, averages, and Bayes' rule.

Circles: Hassan, Hussain & Bates, USENIX Security 2018. Bayes' rule is the strongest attack where
its model is the rider's; with other tastes or habits it shows what a wrong model concludes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.share.charges import tables_of
from shoal.share.history import History, ShownLeg
from shoal.share.maps import distances
from shoal.share.roads import Roads, metres_between
from shoal.share.stops import stop_set


@dataclass(frozen=True, slots=True)
class PlaceBeliefs:
    """What an adversary believes after the rides: a probability for each crossing of the zone.

    All crossings were equally likely before. `shift` is the largest change of log-odds between two
    of them.
    """

    zone: Ints
    posterior: Floats
    shift: float

    @property
    def guess(self) -> int:
        """The likeliest crossing."""
        return int(self.zone[int(self.posterior.argmax())])

    def describe(self) -> str:
        return (
            f"the likeliest of {len(self.zone)} crossings has {self.posterior.max():.1%}, where "
            f"all had {1 / len(self.zone):.1%}; odds moved at most {math.exp(self.shift):.3g}-fold"
        )


def bayes(
    history: History, *, place: int = 0, roads: Roads | None = None, member: int = 0
) -> PlaceBeliefs:
    """Return the beliefs of an adversary who takes every leg for a fresh one.

    The adversary holds one member of a map's family: the history's own map, unless `roads` gives
    other tastes on the same crossings.
    """
    rule = history.rule
    other = rule.roads if roads is None else roads
    if other.size != rule.roads.size:
        raise InputError("roads has other crossings than the history's map; change weights only")
    shown = [leg for leg in history.shown if leg.place == place]
    return _believed(history, other, place, member, shown)


def bayes_with_habits(history: History, *, place: int = 0, member: int = 0) -> PlaceBeliefs:
    """Return the beliefs of an adversary who takes equal shown parts for one ride repeated."""
    once: dict[tuple[int, tuple[int, ...]], ShownLeg] = {}
    for leg in history.shown:
        if leg.place == place:
            once.setdefault((leg.goal, tuple(sorted(leg.path))), leg)
    return _believed(history, history.rule.roads, place, member, [*once.values()])


def _believed(
    history: History, roads: Roads, place: int, member: int, legs: Sequence[ShownLeg]
) -> PlaceBeliefs:
    own = replace(roads, weights=roads.weights[[member]], turns=roads.turns[[member]])
    hidden = history.rule.places[place]
    tables, total = tables_of(own, hidden), np.zeros(len(hidden.zone))
    for leg in legs:
        outward = leg.path[::-1] if leg.homeward else leg.path
        stops = history.stops_of(place, leg.goal) if leg.by_stops else None
        if len(outward) == 1 and stops is not None:
            ours = stop_set(tables, leg.goal, stops.stops, stops.pooled)
            total += ours.logs[tables.law_index(homeward=leg.homeward)]
        elif len(outward) > 1:
            states = tables.states.states_of(outward)
            laws = tables.goal_table(leg.goal).logs[states[0]]
            total += laws[tables.law_index(homeward=leg.homeward)]
    known = np.where(np.isfinite(total), total, -np.inf)
    weight = np.exp(known - known.max())
    spread = float(known.max() - known.min())
    return PlaceBeliefs(hidden.zone, weight / weight.sum(), spread)


def circle_through(ends: Floats) -> tuple[float, float, float]:
    """Return centre (latitude, longitude) and radius in metres of the circle nearest to ends.

    Least squares in the plane (Kasa 1976), as an adversary fits a privacy zone. Needs three ends
    that do not lie on one line.
    """
    if len(ends) < 3:
        raise InputError("ends holds fewer than 3 points; a circle needs three")
    middle = ends.mean(axis=0)
    scale = np.array([111_194.9, 111_194.9 * math.cos(math.radians(float(middle[0])))])
    x, y = ((ends - middle) * scale).T
    system = np.column_stack([2 * x, 2 * y, np.ones(len(x))])
    (a, b, c), *_ = np.linalg.lstsq(system, x**2 + y**2, rcond=None)
    centre = middle + np.array([a, b]) / scale
    return float(centre[0]), float(centre[1]), math.sqrt(max(c + a**2 + b**2, 0.0))


def average_of(ends: Floats) -> tuple[float, float]:
    """Return the mean of the ends, as an adversary averages noise away."""
    latitude, longitude = ends.mean(axis=0)
    return float(latitude), float(longitude)


def ends_outside(tracks: Sequence[Floats], home: tuple[float, float], radius: float) -> Floats:
    """Return where tracks that begin or end at home leave a circle around it."""
    found = []
    for track in tracks:
        far = distances(track, *home)
        outside = np.flatnonzero(far > radius)
        if len(outside) and far[0] <= radius:
            found.append(track[outside[0]])
        if len(outside) and far[-1] <= radius:
            found.append(track[outside[-1]])
    return np.array(found).reshape(-1, 2)


def missed_by(roads: Roads, beliefs: PlaceBeliefs, home: int) -> float:
    """Return how far the likeliest crossing lies from the true one, in metres."""
    return float(metres_between(roads.points, beliefs.guess, home))
