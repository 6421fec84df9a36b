"""Stop sets: the law of the goal alone in fractions, histories by stops, and broken rules."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from shoal.core.errors import DataError, Refused
from shoal.share import stops as module
from shoal.share.charges import RoadTables
from shoal.share.history import History, Leg, ShownLeg
from shoal.share.place import PermanentPlace
from shoal.share.stops import StopSet, goal_charge, stop_set
from tests.share.enumeration import ExactTown, Path, random_town, solved
from tests.share.histories import KINDS, TwoLegs, begun, roads_of


def alone_law(
    town: ExactTown, goal: int, stops: set[int], pooled: set[int], *, homeward: bool
) -> list[Fraction]:
    """Return P(goal alone | candidate), from walks that remember which stop they met.

    A leg out remembers its last stop or candidate; a leg home the first one after the goal.
    """
    return [
        _home_law(town, home, goal, stops, pooled) if homeward
        else _out_law(town, home, goal, stops, pooled)
        for home in town.zone
    ]  # fmt: skip


def _out_law(town: ExactTown, home: int, goal: int, stops: set[int], pooled: set[int]) -> Fraction:
    """States are crossings with a mark: whether the last stop so far shows the goal alone."""
    size = town.size
    alone = {crossing: crossing in pooled or crossing in town.zone for crossing in range(size)}

    def marked(crossing: int, mark: bool) -> int:
        met = crossing in stops or crossing in town.zone
        return crossing + size * int(alone[crossing] if met else mark)

    rows = [
        [Fraction(int(i == j)) for j in range(2 * size)] + [Fraction(0)] for i in range(2 * size)
    ]
    for (a, b), weight in town.stopping(goal).arcs.items():
        for mark in (False, True):
            rows[a + size * int(mark)][marked(b, mark)] -= weight
    rows[goal + size][-1] = Fraction(1)
    whole = [list(row) for row in rows]
    whole[goal][-1] = Fraction(1)
    begin = marked(home, True)
    return solved(rows)[begin] / solved(whole)[begin]


def _home_law(town: ExactTown, home: int, goal: int, stops: set[int], pooled: set[int]) -> Fraction:
    """States are crossings with a mark: nothing met yet, goal alone (1), or shown (2)."""
    size, after = town.size, {}
    for crossing in range(size):
        for mark in range(3):
            met = crossing in stops or crossing in town.zone
            new = (1 if crossing in pooled or crossing in town.zone else 2) if met else 0
            after[crossing, mark] = crossing + size * (mark or new)
    rows = [
        [Fraction(int(i == j)) for j in range(3 * size)] + [Fraction(0)] for i in range(3 * size)
    ]
    for (a, b), weight in town.arcs.items():
        if b != goal and a != home:
            for mark in range(3):
                rows[a + size * mark][after[b, mark]] -= weight
    rows[home + size][-1] = Fraction(1)
    whole = [list(row) for row in rows]
    whole[home + 2 * size][-1] = Fraction(1)
    return solved(rows)[goal] / solved(whole)[goal]


def some_stops(town: ExactTown, goal: int, seed: int) -> tuple[set[int], set[int]]:
    draw = random.Random(seed)
    outside = [c for c in range(town.size) if c not in town.zone and c != goal]
    stops = set(draw.sample(outside, draw.choice([1, 2, 3])))
    pooled = {draw.choice(sorted(stops))} if draw.random() < 0.6 else set()
    return stops, pooled


def as_set(tables: RoadTables, goal: int, stops: set[int], pooled: set[int]) -> StopSet:
    sorted_stops, sorted_pooled = (np.array(sorted(s), dtype=np.int64) for s in (stops, pooled))
    return stop_set(tables, goal, sorted_stops, sorted_pooled)


@pytest.mark.parametrize("seed", range(24))
def test_the_law_of_the_goal_alone(seed: int) -> None:
    town = random_town(seed, one_way=seed % 3 == 1, two_way_weights=seed % 3 == 0)
    goal = town.goals[seed % 2]
    tables = RoadTables(roads_of(town), PermanentPlace.of(town.zone))
    stops, pooled = some_stops(town, goal, seed)
    found = as_set(tables, goal, stops, pooled)
    for number, law in enumerate(tables.states.laws):
        exact = alone_law(town, goal, stops, pooled, homeward=law.homeward)
        assert (min(exact) > 0) == bool(np.isfinite(found.logs[number]).all())
        if min(exact) > 0:
            logs = np.array([math.log(one) for one in exact])
            difference = (found.logs[number] - found.logs[number][0]) - (logs - logs[0])
            assert np.abs(difference).max() <= found.error < 1e-9


def by_stops(town: ExactTown, goal: int, seed: int, epsilon: Fraction) -> TwoLegs:
    """Return an oracle whose rule uses random stops for the first goal, not the best ones."""
    start = begun(roads_of(town), town.zone, epsilon)
    stops, pooled = some_stops(town, goal, seed)
    made = as_set(start.rule.tables(0), goal, stops, pooled)
    legs = TwoLegs(town, start)

    def cut(history: History, leg: Leg) -> ShownLeg:
        if leg.goal != goal or history.stops_of(0, goal) is not None:
            return history.cut(leg)
        fits = made.widest <= float(epsilon)
        named = History(history.rule, history.shown, history._spent, {(0, goal): made})
        shown = named.cut(leg) if fits else ShownLeg((goal,), goal, leg.homeward)
        if not shown.by_stops:
            return shown
        return ShownLeg(
            shown.path, goal, leg.homeward, 0, True, tuple(sorted(stops)), tuple(sorted(pooled))
        )

    legs.cut = cut
    return legs


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_histories_by_stops_keep_their_charges(first: int) -> None:
    assert max(worst_by_stops(seed) for seed in range(first, first + 10)) <= 1 + 1e-9


@pytest.mark.slow
def test_histories_by_stops_keep_their_charges_in_many_towns() -> None:
    worst = [worst_by_stops(seed) for seed in range(5000, 5600)]
    assert max(worst) <= 1 + 1e-9
    assert max(worst) > 0.9


def worst_by_stops(seed: int, kind: str = "") -> float:
    town = random_town(seed, one_way=seed % 3 == 1, two_way_weights=seed % 3 == 0)
    goal = town.goals[seed % 2]
    try:
        legs = by_stops(town, goal, seed, Fraction(4))
    except Refused:  # a stop that some candidate cannot reach
        return 0.0
    return legs.worst(kind or KINDS[seed % 5], goal, seed % 7 < 3)


def test_stops_are_used_by_the_rule_itself() -> None:
    shown = []
    for seed in range(6):
        town = random_town(seed, one_way=False, two_way_weights=True)
        history = begun(roads_of(town), town.zone, Fraction(4), legs=40)
        for walk in list(town.walks(0, town.goals[0], 4))[:5]:
            shown.append(history.cut(Leg(walk, town.goals[0])))
            history = history.absorb(shown[-1])
        assert history == History(history.rule, history.shown)
        assert (history.spent() == History(history.rule, history.shown).spent()).all()
    assert any(one.by_stops and len(one.path) > 1 for one in shown)
    for one in shown:
        assert ShownLeg.decoded(one.encoded) == one


def test_the_goal_alone_for_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def free(
        tables: RoadTables, stops: StopSet | None
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.zeros((len(tables.place.zone),) * 2)

    monkeypatch.setattr("shoal.share.history.goal_charge", free)
    assert max(worst_by_stops(seed, "fresh") for seed in range(20)) > 1.05


def test_other_stops_for_the_same_ride_break() -> None:
    """A ride that is repeated, cut by other stops: each cut has its charge, both tell more."""
    worst = 0.0
    for seed in range(60):
        town = random_town(seed, one_way=False, two_way_weights=True)
        goal = town.goals[0]
        tables = RoadTables(roads_of(town), PermanentPlace.of(town.zone))
        rules = [some_stops(town, goal, seed + shift) for shift in (0, 100)]
        sets = [as_set(tables, goal, *rule) for rule in rules]
        law: dict[tuple[Path, Path], list[float]] = {}
        for row, home in enumerate(town.zone):
            for walk, chance in town.walks(home, goal, 6).items():
                both = tuple(module_cut(walk, rule, town) for rule in rules)
                law.setdefault((both[0], both[1]), [0.0] * len(town.zone))[row] += float(chance)
        totals = [float(town.stopping(goal).sums_to(goal)[home]) for home in town.zone]
        for (one, two), mass in law.items():
            charges = charge_of_output(tables, goal, sets[0], one)
            charges = charges + charge_of_output(tables, goal, sets[1], two)
            for i, j in ((0, 1), (1, 0)):
                rest = totals[j] - sum(each[j] for each in law.values())
                ratio = mass[i] / totals[i] / ((mass[j] + rest) / totals[j])
                worst = max(worst, ratio / math.exp(charges[i, j]))
    assert worst > 1.05


def module_cut(walk: Path, rule: tuple[set[int], set[int]], town: ExactTown) -> Path:
    """Return what a rule shows of a walk, written anew."""
    stops, pooled = rule
    last = max(k for k, crossing in enumerate(walk) if crossing in stops or crossing in town.zone)
    shown = walk[last] in stops and walk[last] not in pooled
    return walk[last:] if shown else walk[-1:]


def charge_of_output(
    tables: RoadTables, goal: int, stops: StopSet, output: Path
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    if len(output) == 1:
        return goal_charge(tables, stops) if np.isfinite(stops.logs).all() else np.zeros((9, 9))
    return tables.charge(tables.goal_table(goal), output[0])


def test_what_is_refused() -> None:
    town = random_town(3, one_way=False, two_way_weights=True)
    start, goal = begun(roads_of(town), town.zone, Fraction(4)), town.goals[0]
    tables, gate = start.rule.tables(0), len(town.zone)
    for wrong in ([0], [goal], []):
        with pytest.raises(Refused, match="outside the hidden zone"):
            stop_set(tables, goal, np.array(wrong, dtype=np.int64), np.array([gate]))
    named = ShownLeg((gate, goal), goal, False, 0, True, (gate, gate + 2), (gate + 2,))
    history = start.absorb(named)
    with pytest.raises(DataError, match="named once"):
        history.absorb(named)
    with pytest.raises(DataError, match="named once"):
        start.absorb(ShownLeg((gate, goal), goal, False, 0, True))
    with pytest.raises(DataError, match="by its stops"):
        history.absorb(ShownLeg((gate, goal), goal))
    with pytest.raises(DataError, match="no stop of legs"):
        history.absorb(ShownLeg((gate + 1, gate + 3, goal), goal, False, 0, True))
    shown = start.absorb(ShownLeg((gate + 2, goal), goal))
    with pytest.raises(DataError, match="named once"):
        shown.absorb(named)
    for numbers in ((), (0, 0), (9, 0, 1), (4, 0, 1, gate, 0, goal), (6, 0, 5, 1)):
        with pytest.raises(DataError, match="cannot be read"):
            ShownLeg.decoded(numbers)
    assert module.LARGEST_CELL < 1
