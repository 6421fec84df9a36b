"""Attacks on shared rides: they find home behind circles, and keep to the promise otherwise."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from shoal.core.errors import InputError
from shoal.share.attack import (
    average_of,
    bayes,
    bayes_with_habits,
    circle_through,
    ends_outside,
    missed_by,
)
from shoal.share.history import History, Leg, ShareRule, ShownLeg
from shoal.share.maps import distances
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads
from studies.share_towns import Rider, Town, make_town


@pytest.fixture(scope="module")
def town() -> Town:
    return make_town(5, crossings=400, side=3000.0, bridges=1)


def lived(town: Town, rides: int, *, epsilon: int) -> tuple[History, int, list[Leg]]:
    random = np.random.default_rng(2)
    place, roads = PermanentPlace.of(town.near(0, 0, 300).tolist()), town.roads()
    rule = ShareRule(roads=roads, places=(place,), epsilon=Fraction(epsilon), legs=2 * rides)
    home, history, legs = int(place.zone[3]), History(rule), []
    far = np.hypot(town.xy[:, 0], town.xy[:, 1]) > 900
    goals = random.choice(np.flatnonzero(far), 8, replace=False)
    rider = Rider(roads, 0, random)
    for number in range(rides):
        goal = int(goals[number % 8])
        for homeward in (False, True):
            path = rider.leg(home, goal)
            legs.append(Leg(path[::-1] if homeward else path, goal, homeward))
            history = history.absorb(history.cut(legs[-1]))
    return history, home, legs


def test_bayes_keeps_to_the_promise(town: Town) -> None:
    history, home, _ = lived(town, 30, epsilon=2)
    for beliefs in (bayes(history), bayes_with_habits(history)):
        assert beliefs.posterior.sum() == pytest.approx(1)
        assert 0 < beliefs.shift <= history.worst() + 1e-6 <= 2 + 1e-6
        assert beliefs.posterior.max() <= math.exp(2) / len(beliefs.zone)
    assert missed_by(history.rule.roads, bayes(history), home) >= 0


def test_bayes_finds_home_when_everything_is_shown(town: Town) -> None:
    """The control: legs shown from one crossing outside the zone."""
    history, home, legs = lived(town, 30, epsilon=2)
    place = history.rule.places[0]
    shown = []
    for leg in legs:
        outward = leg.outward()
        first = max(k for k, crossing in enumerate(outward) if crossing in place.hidden) + 1
        path = outward[first:]
        shown.append(ShownLeg(path[::-1] if leg.homeward else path, leg.goal, leg.homeward))
    open_book = History(history.rule)
    object.__setattr__(open_book, "shown", tuple(shown))
    found = bayes(open_book)
    assert found.shift > 10
    assert found.posterior[list(place.zone).index(home)] > 2 / len(place.zone)


def test_a_wrong_taste_concludes_something_else(town: Town) -> None:
    history, _, _ = lived(town, 10, epsilon=2)
    roads = history.rule.roads
    other = Roads.of(roads.points, np.column_stack([roads.tails, roads.heads]), roads.weights**1.3)
    assert not np.allclose(bayes(history, roads=other).posterior, bayes(history).posterior)
    fewer = Roads.of([(0, 0), (0, 1)], [(0, 1), (1, 0)], [0.1, 0.1])
    with pytest.raises(InputError, match="other crossings"):
        bayes(history, roads=fewer)


def test_a_circle_around_home_is_found(town: Town) -> None:
    _, home, legs = lived(town, 30, epsilon=2)
    random, place = np.random.default_rng(1), tuple(town.points[home])
    tracks = []
    for leg in legs:
        corners = town.points[list(leg.path)]
        share = np.linspace(0, 1, 12)[:, None]
        dense = np.vstack([a + share * (b - a) for a, b in pairwise(corners)])
        tracks.append(dense + random.normal(0, 2e-5, dense.shape))
    # rides in all directions, as real ones: turned about home
    turned = []
    for number, track in enumerate(tracks):
        angle = 2 * math.pi * number / len(tracks)
        shape = (track - place) * [1, math.cos(math.radians(place[0]))]
        x, y = shape.T
        back = np.column_stack(
            [x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)]
        )
        turned.append(place + back / [1, math.cos(math.radians(place[0]))])
    ends = ends_outside(turned, (float(place[0]), float(place[1])), 200.0)
    latitude, longitude, radius = circle_through(ends)
    assert distances(town.points[[home]], latitude, longitude)[0] < 60
    assert radius == pytest.approx(200, rel=0.3)
    assert distances(town.points[[home]], *average_of(ends))[0] < 120
    with pytest.raises(InputError, match="three"):
        circle_through(ends[:2])
