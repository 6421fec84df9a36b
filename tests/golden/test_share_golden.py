"""Exact cases of hiding a permanent place, from fractions computed elsewhere."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from shoal.core.codec import Floats
from shoal.share.charges import RoadTables
from shoal.share.history import History, Leg, ShareRule
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads

GOLDEN = json.loads((Path(__file__).parent / "data" / "share.json").read_text())
EDGES = [(a, b, Fraction(weight)) for a, b, weight in GOLDEN["town"]["edges"]]
ZONE = tuple(GOLDEN["town"]["zone"])


@pytest.fixture(scope="module")
def tables() -> RoadTables:
    points = [(0.01 * k, 0.0) for k in range(10)]
    weights = [float(weight) for *_, weight in EDGES]
    roads = Roads.of(points, [(a, b) for a, b, _ in EDGES], weights, both_ways=False)
    return RoadTables(roads, PermanentPlace.of(ZONE))


def level(odds: str) -> Floats:
    """Return ln of odds for every pair; the rule keeps an error of rounding below it."""
    return np.full((len(ZONE),) * 2, math.log(Fraction(odds)) + 1e-9)


def walks(start: int, goal: int) -> dict[tuple[int, ...], Fraction]:
    """Return all walks of the golden town, which has no circles, with their weights."""
    found: dict[tuple[int, ...], Fraction] = {}
    begun: list[tuple[tuple[int, ...], Fraction]] = [((start,), Fraction(1))]
    while begun:
        path, weight = begun.pop()
        if path[-1] == goal:
            found[path] = weight
        begun += [((*path, b), weight * w) for a, b, w in EDGES if a == path[-1]]
    return found


@pytest.mark.parametrize("name", sorted(GOLDEN["Z"]))
def test_sums_over_all_walks(tables: RoadTables, name: str) -> None:
    start, end = map(int, name.split("->"))
    bounds, green = tables._rows[0], tables._greens[0]
    scale = green.exponents[end] - green.exponents[start]
    exact = float(Fraction(GOLDEN["Z"][name])) * 2.0**scale
    row = ZONE.index(start)
    assert bounds.low[row, end] <= exact <= bounds.high[row, end]
    assert bounds.high[row, end] - bounds.low[row, end] < 1e-10 * exact


@pytest.mark.parametrize("name", sorted(GOLDEN["likelihoods"]))
def test_likelihoods(tables: RoadTables, name: str) -> None:
    state, goal = map(int, name.split("|"))
    exact = [math.log(Fraction(value)) for value in GOLDEN["likelihoods"][name]]
    found = tables.goal_table(goal).logs[state]
    for law in found:
        assert law - law[0] == pytest.approx(np.array(exact) - exact[0], abs=1e-10)


@pytest.mark.parametrize("case", GOLDEN["frontier"], ids=lambda c: f"{c['goal']}-{c['odds']}")
def test_frontiers(tables: RoadTables, case: dict[str, object]) -> None:
    most = level(str(case["odds"]))
    found, _ = tables.frontier(int(str(case["goal"])), np.zeros_like(most), most, most)
    assert np.flatnonzero(found.mask).tolist() == case["frontier"]


def cut(tables: RoadTables, path: tuple[int, ...], spent: Floats, odds: str) -> tuple[int, ...]:
    """Return what is shown of a leg when one limit holds for all legs, without a schedule."""
    found, _ = tables.frontier(path[-1], spent, level(odds), level(odds))
    met = [step for step, state in enumerate(path) if found.mask[state]]
    return path[met[-1] :]


@pytest.mark.parametrize("case", GOLDEN["law_of_one_leg"], ids=lambda c: str(c["odds"]))
def test_the_law_of_one_leg(tables: RoadTables, case: dict[str, object]) -> None:
    laws: dict[str, dict[str, Fraction]] = {}
    goal = int(str(case["goal"]))
    for start in ZONE:
        own = walks(start, goal)
        for path, weight in own.items():
            shown = cut(tables, path, np.zeros((3, 3)), str(case["odds"]))
            name = "-".join(map(str, shown))
            law = laws.setdefault(name, {})
            law[str(start)] = law.get(str(start), Fraction(0)) + weight / sum(own.values())
    assert {name: {h: str(p) for h, p in law.items()} for name, law in laws.items()} == case["law"]


@pytest.mark.parametrize(
    "case",
    [case for case in GOLDEN["pair_ledger"] if case["legs"] < 3],
    ids=lambda c: f"{c['legs']}-{c['odds']}-{c['copied']}",
)
def test_histories_of_the_pair_ledger(tables: RoadTables, case: dict[str, object]) -> None:
    found = history_law(tables, case)
    pairs = [(a, b) for law in found.values() for a, b in product(law, law)]
    assert len(found) == case["outputs"]
    assert max(a / b for a, b in pairs) == Fraction(str(case["worst"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in GOLDEN["pair_ledger"] if case["legs"] == 3],
    ids=lambda c: f"{c['legs']}-{c['odds']}-{c['copied']}",
)
def test_longer_histories_of_the_pair_ledger(tables: RoadTables, case: dict[str, object]) -> None:
    test_histories_of_the_pair_ledger(tables, case)


def history_law(
    tables: RoadTables, case: dict[str, object]
) -> dict[tuple[tuple[int, ...], ...], list[Fraction]]:
    """Return the probability of each history of outputs given each candidate."""
    goal, legs, odds = int(str(case["goal"])), int(str(case["legs"])), str(case["odds"])
    found: dict[tuple[tuple[int, ...], ...], list[Fraction]] = {}
    for row, start in enumerate(ZONE):
        own = walks(start, goal)
        total = sum(own.values())
        rides = product(own, repeat=1 if case["copied"] else legs)
        for ride in rides:
            chance = Fraction(1)
            for path in ride:
                chance *= own[path] / total
            spent, shown = np.zeros((3, 3)), []
            for path in ride * (legs if case["copied"] else 1):
                part = cut(tables, path, spent, odds)
                charge = tables.charge(tables.goal_table(goal), part[0])
                spent = spent + (charge if len(part) > 1 else 0.0)
                shown.append(part)
            law = found.setdefault(tuple(shown), [Fraction(0)] * len(ZONE))
            law[row] += chance
    return found


def test_the_signed_ledger_is_not_used() -> None:
    likelihoods = [[Fraction(v) for v in leg] for leg in GOLDEN["signed_ledger_breaks"]["legs"]]
    points, arcs = [(0.0, 0.1 * k) for k in range(6)], []
    # two gates: gate 2 is three times as likely from crossing 0, gate 3 from crossing 1
    for row, pair in enumerate(zip(*likelihoods, strict=True)):
        arcs += [(row, 2 + gate, float(value) / 8) for gate, value in enumerate(pair)]
    arcs += [(2, 4, 0.25), (3, 4, 0.25), (4, 5, 0.25), (2, 5, 0.125), (3, 5, 0.125)]
    roads = Roads.of(points, [a[:2] for a in arcs], [a[2] for a in arcs], both_ways=False)
    rule = ShareRule(roads=roads, places=(PermanentPlace.of((0, 1)),), epsilon=Fraction(4), legs=1)
    history = History(rule)
    for path in ((0, 2, 4, 5), (0, 3, 4, 5)):
        history = history.absorb(history.cut(Leg(path, 5)))
    assert history.spent()[0, 1] == pytest.approx(math.log(3), abs=1e-9)
    assert history.spent()[1, 0] == pytest.approx(math.log(3), abs=1e-9)


def test_a_perfect_grid() -> None:
    case = GOLDEN["perfect_grid"]
    a, b = case["a"], case["b"]
    number = {(x, y): x * (b + 1) + y for x in range(a + 1) for y in range(b + 1)}
    arcs = [(number[x, y], number[x + 1, y]) for x, y in number if x < a]
    arcs += [(number[x, y], number[x, y + 1]) for x, y in number if y < b]
    points = [(0.001 * y, 0.001 * x) for x, y in number]
    roads = Roads.of(points, arcs, np.full(len(arcs), 0.25), both_ways=False)
    place = PermanentPlace.of((number[0, 0], number[1, 0]))
    logs = RoadTables(roads, place).goal_table(number[a, b]).logs
    for x, exact in case["values"].items():
        here = logs[number[int(x), b], 0]
        assert here[0] - here[1] == pytest.approx(exact, abs=1e-9)


def test_what_is_hidden_may_be_replaced() -> None:
    case = GOLDEN["noninterference"]
    points = [(0.01 * k, 0.0) for k in range(10)]
    weights = [float(weight) for *_, weight in EDGES]
    roads = Roads.of(points, [(a, b) for a, b, _ in EDGES], weights, both_ways=False)
    epsilon = Fraction(math.log(Fraction(case["odds"])))
    rule = ShareRule(roads=roads, places=(PermanentPlace.of(ZONE),), epsilon=epsilon, legs=1)
    first, second = ([int(v) for v in text.split("-")] for text in case["example"])
    shown = [History(rule).cut(Leg(tuple(path), path[-1])).encoded for path in (first, second)]
    assert shown[0] == shown[1]
