"""Costs of turns: states are directed roads, and charges by crossings alone break."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np

from shoal.share.history import History, Leg, ShareRule
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads
from tests.share.enumeration import Law, broken

# at the equator, where degrees are square: both candidates meet at 2, one rides on straight to 3,
# the other one to 4
PLACES = {
    0: (-1, 0), 1: (0, -1), 2: (0, 0), 3: (1, 0), 4: (0, 1), 5: (1, 1), 6: (2, 1), 7: (3, 1),
}  # fmt: skip
PAIRS = [(0, 2), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5), (5, 6), (6, 7)]
TURN = Fraction(1, 4)  # what a right angle multiplies a route's weight by
LONGEST = 9
ZONE, GOAL = (0, 1), 7


def town(*, turns: bool) -> Roads:
    pairs = PAIRS + [(b, a) for a, b in PAIRS]
    points = [(0.001 * y, 0.001 * x) for x, y in (PLACES[k] for k in sorted(PLACES))]
    factor = [float(TURN)] if turns else None
    return Roads.of(points, pairs, np.full(len(pairs), 0.25), turns=factor)


def right_angles(a: int, b: int, c: int) -> int:
    """Return how many right angles a rider turns from the road a-b to the road b-c."""
    first = np.sign(np.subtract(PLACES[b], PLACES[a]))
    second = np.sign(np.subtract(PLACES[c], PLACES[b]))
    return int(1 - first @ second)


def laws(
    *, homeward: bool
) -> tuple[dict[int, dict[tuple[int, ...], Fraction]], dict[int, Fraction]]:
    """Return walks from each candidate to the goal, seen from the candidate, and what is missing.

    The missing mass is bounded by the walks of the last length times what all longer ones add.
    """
    after = defaultdict(list)
    for a, b in PAIRS:
        after[a].append(b)
        after[b].append(a)
    found: dict[int, dict[tuple[int, ...], Fraction]] = {}
    rest: dict[int, Fraction] = {}
    for home in ZONE:
        start, end = (GOAL, home) if homeward else (home, GOAL)
        own: dict[tuple[int, ...], Fraction] = {}
        begun: list[tuple[tuple[int, ...], Fraction]] = [((start,), Fraction(1))]
        for _ in range(LONGEST):
            longer: list[tuple[tuple[int, ...], Fraction]] = []
            for path, weight in begun:
                for crossing in after[path[-1]]:
                    if homeward and crossing == GOAL:
                        continue
                    angles = right_angles(path[-2], path[-1], crossing) if len(path) > 1 else 0
                    walk = (*path, crossing), weight * Fraction(1, 4) * TURN**angles
                    if crossing == end:
                        own[walk[0]] = walk[1]
                    else:
                        longer.append(walk)
            begun = longer
        # a step multiplies the rest by less than 1/2
        left = 2 * sum((weight for _, weight in begun), Fraction(0))
        total = sum(own.values(), Fraction(0))
        found[home] = {path[::-1] if homeward else path: w / total for path, w in own.items()}
        rest[home] = left / total
    return found, rest


def worst(roads: Roads, *, homeward: bool, epsilon: Fraction = Fraction(1, 2)) -> float:
    place = PermanentPlace.of(ZONE)
    rule = ShareRule(roads=roads, places=(place,), epsilon=epsilon, legs=1)
    history, walks = History(rule), laws(homeward=homeward)
    outputs: dict[int, Law] = {home: {} for home in ZONE}
    after: dict[tuple[tuple[int, ...], ...], History] = {}
    for home, own in walks[0].items():
        for path, chance in own.items():
            ridden = path[::-1] if homeward else path
            shown = history.cut(Leg(ridden, GOAL, homeward))
            after[(shown.encoded,)] = history.absorb(shown)
            known = outputs[home]
            known[(shown.encoded,)] = known.get((shown.encoded,), Fraction(0)) + chance
    return broken(outputs, walks[1], lambda output: np.exp(after[output].spent()))


def test_charges_by_directed_roads_hold() -> None:
    for homeward in (False, True):
        for epsilon in (Fraction(1, 2), Fraction(3)):
            assert worst(town(turns=True), homeward=homeward, epsilon=epsilon) <= 1 + 1e-9


def test_something_is_shown() -> None:
    rule = ShareRule(
        roads=town(turns=True), places=(PermanentPlace.of(ZONE),), epsilon=Fraction(3), legs=1
    )
    assert History(rule).cut(Leg((0, 2, 3, 5, 6, 7), GOAL)).path == (2, 3, 5, 6, 7)


def test_charges_by_crossings_break_where_turns_cost() -> None:
    assert max(worst(town(turns=False), homeward=homeward) for homeward in (False, True)) > 1.05
