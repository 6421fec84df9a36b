"""Rules that were found broken: each must break here, or the oracle would find nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shoal.share.charges import GoalTable, RoadTables
from shoal.share.history import History, Leg, ShownLeg
from tests.share.enumeration import ExactTown, Law, Path, broken, leg_law, random_town
from tests.share.histories import TwoLegs, begun, roads_of, usual

TOWNS = range(40)


def worst_over(
    make: Callable[[ExactTown, int], TwoLegs], kind: str, *, homeward: bool, symmetric: bool = False
) -> float:
    """Return how far the worst output of some towns passes its bound, at the first that does."""
    worst = 0.0
    for seed in TOWNS:
        town = random_town(seed, one_way=False, two_way_weights=symmetric)
        worst = max(worst, make(town, seed).worst(kind, town.goals[0], homeward))
        if worst > 1.05:
            break
    return worst


def test_one_direction_for_both_breaks() -> None:
    """A reversed copy that is charged by the law of legs out only."""

    def cut(history: History, leg: Leg) -> ShownLeg:
        shown = history.cut(Leg(leg.outward(), leg.goal))
        return replace(shown, homeward=False)

    def make(town: ExactTown, seed: int) -> TwoLegs:
        out_only = begun(roads_of(town, both_ways=False), town.zone, Fraction(1))
        return TwoLegs(town, out_only, cut)

    assert worst_over(make, "reversed", homeward=True) > 1.05


def test_walks_through_the_goal_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charges by walks that may pass the goal, where riders stop at it."""
    whole = RoadTables.goal_table

    def passing(self: RoadTables, goal: int) -> GoalTable:
        table = whole(self, goal)
        logs = [log - log[:, [goal]] for log, _ in self._logs]
        kept = np.ascontiguousarray(np.stack(logs).transpose(2, 0, 1))
        spread = (kept.max(axis=2) - kept.min(axis=2)).max(axis=1) + table.error
        return table._replace(logs=kept, widest=spread)

    monkeypatch.setattr(RoadTables, "goal_table", passing)

    assert worst_behind_the_goal() > 5


def test_the_true_rule_holds_behind_the_goal() -> None:
    assert worst_behind_the_goal() <= 1 + 1e-9


def worst_behind_the_goal() -> float:
    """Return the worst ratio where crossing 5 lies behind goal 4: most walks to 5 pass the goal."""
    pairs = {(0, 2): 4, (1, 3): 4, (2, 6): 4, (3, 6): 4, (6, 4): 4, (4, 5): 2}
    arcs = {}
    for (a, b), weight in pairs.items():
        arcs[a, b] = arcs[b, a] = Fraction(1, weight)
    arcs[2, 5] = arcs[5, 2] = Fraction(1, 64)
    arcs[3, 5] = arcs[5, 3] = Fraction(1, 4096)
    town = ExactTown(7, arcs, (0, 1), (4,))
    legs = TwoLegs(town, begun(roads_of(town), town.zone, Fraction(1), legs=1), longest=8)
    return legs.worst("copied", 4, False)


def test_the_true_rule_holds_on_the_same_towns() -> None:
    def make(town: ExactTown, seed: int) -> TwoLegs:
        return TwoLegs(town, begun(roads_of(town), town.zone, Fraction(1)), usual)

    assert worst_over(make, "reversed", homeward=True) <= 1 + 1e-9
    assert worst_over(make, "copied", homeward=False) <= 1 + 1e-9


def test_no_charge_for_later_legs_breaks() -> None:
    """A second leg that is free because it could be a copy may be a fresh one."""

    def make(town: ExactTown, seed: int) -> TwoLegs:
        return FirstOnly(town, begun(roads_of(town), town.zone, Fraction(2)))

    assert worst_over(make, "fresh", homeward=False, symmetric=True) > 1.05


class FirstOnly(TwoLegs):
    """Charges the first leg only."""

    def bound(self, output: tuple[Path, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return super().bound(output[:1])


def test_dropping_a_track_after_its_cut_breaks() -> None:
    """Publishing only rides whose withheld part is short."""
    worst = 0.0
    for seed in TOWNS:
        town = random_town(seed, one_way=False, two_way_weights=True)
        legs = TwoLegs(town, begun(roads_of(town), town.zone, Fraction(1, 2)))
        law = leg_law(town, town.goals[0], 5, homeward=False)
        kept: dict[int, Law] = {home: {} for home in town.zone}
        for home, walks in law.walks.items():
            for path, chance in walks.items():
                one = legs.shown((), path, town.goals[0], False)
                dropped = len(path) - (len(one) - 2) > 2  # the hidden part has several roads
                output = ((0,),) if dropped else (one,)
                legs.after.setdefault(((0,),), legs.start)
                kept[home][output] = kept[home].get(output, Fraction(0)) + chance
        worst = max(worst, broken(kept, law.rest, legs.bound))
    assert worst > 1.05


def test_goals_by_the_first_stop_break() -> None:
    """Bound for 8 with coffee at 3: where the code takes 3 for the goal, odds are 328 to 49."""
    arcs = {
        (0, 3): Fraction(1, 2), (0, 4): Fraction(1, 8), (1, 3): Fraction(1, 4),
        (1, 4): Fraction(1, 4), (2, 4): Fraction(1, 2), (2, 3): Fraction(1, 16),
        (3, 5): Fraction(1, 2), (3, 6): Fraction(1, 4), (4, 5): Fraction(1, 4),
        (4, 6): Fraction(1, 2), (5, 6): Fraction(1, 8), (5, 7): Fraction(1, 2),
        (6, 7): Fraction(1, 2), (5, 8): Fraction(1, 16), (7, 8): Fraction(1, 2),
    }  # fmt: skip
    town = ExactTown(9, arcs, (0, 1, 2), (8,))
    law = leg_law(town, 8, 9, homeward=False)
    roads = roads_of(town, both_ways=False)
    history = begun(roads, town.zone, Fraction(1, 100))
    stopped = {home: Fraction(0) for home in town.zone}
    for home, walks in law.walks.items():
        for path, chance in walks.items():
            if 3 in path:
                shown = history.cut(Leg(path[: path.index(3) + 1], 3))
                assert shown.path == (3,)
                assert history.absorb(shown).worst() == 0
                stopped[home] += chance
    assert stopped[0] / stopped[2] == Fraction(328, 49)
    assert math.log(stopped[0] / stopped[2]) > 1.9


def test_a_signed_ledger_breaks() -> None:
    """Charges of both signs cancel, although the second leg may tell nothing."""

    def make(town: ExactTown, seed: int) -> TwoLegs:
        return Signed(town, begun(roads_of(town), town.zone, Fraction(2)))

    assert worst_over(make, "uninformative", homeward=False, symmetric=True) > 1.05


class Signed(TwoLegs):
    """Bounds by the signed sum of log-likelihoods of both legs."""

    def bound(self, output: tuple[Path, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        tables = self.start.rule.tables(0)
        total = np.zeros((len(self.town.zone),) * 2)
        for one in output:
            leg = ShownLeg.decoded(one)
            outward = leg.path[::-1] if leg.homeward else leg.path
            if len(outward) > 1:
                logs = tables.goal_table(leg.goal).logs[outward[0], 0]
                total += logs[:, None] - logs[None, :]
        return np.exp(total)


COFFEE = {
    (0, 3): Fraction(1, 2), (0, 4): Fraction(1, 8), (1, 3): Fraction(1, 4),
    (1, 4): Fraction(1, 4), (2, 4): Fraction(1, 2), (2, 3): Fraction(1, 16),
    (3, 5): Fraction(1, 2), (3, 6): Fraction(1, 4), (4, 5): Fraction(1, 4),
    (4, 6): Fraction(1, 2), (5, 7): Fraction(1, 2), (6, 7): Fraction(1, 2), (7, 8): Fraction(1, 2),
}  # fmt: skip


def test_charging_a_stop_that_was_not_declared_breaks() -> None:
    """Rides with coffee at 3 are charged as legs to 3, the others as legs to 8: absence tells."""
    town = ExactTown(9, COFFEE, (0, 1, 2), (8,))
    roads = roads_of(town, both_ways=False)
    history = begun(roads, town.zone, Fraction(1, 100))
    outputs: dict[int, Law] = {home: {} for home in town.zone}
    charged: dict[tuple[Path, ...], History] = {}
    law = leg_law(town, 8, 9, homeward=False)
    for home, walks in law.walks.items():
        for path, chance in walks.items():
            at = path.index(3) if 3 in path else len(path) - 1
            shown = history.cut(Leg(path[: at + 1], path[at]))
            charged[(shown.encoded,)] = history.absorb(shown)
            known = outputs[home]
            known[(shown.encoded,)] = known.get((shown.encoded,), Fraction(0)) + chance
    assert broken(outputs, law.rest, lambda one: np.exp(charged[one].spent())) > 1.05


def test_a_live_leg_out_shows_the_clock_and_breaks() -> None:
    """A leg that appears when its rider comes to the first shown crossing tells how long that took.

    Every road takes a minute and rides begin at eight.
    """
    worst = 0.0
    for seed in TOWNS:
        town = random_town(seed, one_way=False, two_way_weights=True)
        legs = TwoLegs(town, begun(roads_of(town), town.zone, Fraction(1, 2)))
        law = leg_law(town, town.goals[0], 5, homeward=False)
        timed: dict[int, Law] = {home: {} for home in town.zone}
        for home, walks in law.walks.items():
            for path, chance in walks.items():
                one = legs.shown((), path, town.goals[0], False)
                hidden = len(path) - len(ShownLeg.decoded(one).path)
                output = (one, (hidden,))
                legs.after.setdefault(output, legs.after[(one,)])
                timed[home][output] = timed[home].get(output, Fraction(0)) + chance
        worst = max(worst, broken(timed, law.rest, legs.bound))
    assert worst > 1.05


def test_a_remembered_trunk_breaks_for_nothing() -> None:
    """Riders who always go on from a gate as they did before: no charge, and the odds move.

    Both candidates ride over 4, so what is shown from there on costs nothing. Whoever uses one gate
    mostly shows one way mostly.
    """
    gates = {0: Fraction(9, 10), 1: Fraction(1, 2)}  # chance of gate 2; gate 3 otherwise
    arcs = {(0, 2): Fraction(9, 20), (0, 3): Fraction(1, 20), (1, 2): Fraction(1, 4)}
    arcs |= {(1, 3): Fraction(1, 4), (2, 4): Fraction(1, 2), (3, 4): Fraction(1, 2)}
    arcs |= {(4, 5): Fraction(1, 4), (4, 6): Fraction(1, 4), (5, 7): Fraction(1, 2)}
    arcs |= {(6, 7): Fraction(1, 2)}
    town = ExactTown(8, arcs, (0, 1), (7,))
    history = begun(roads_of(town, both_ways=False), town.zone, Fraction(1))
    for way in (5, 6):
        shown = history.cut(Leg((0, 2, 4, way, 7), 7))
        assert shown.path == (4, way, 7)
        history = history.absorb(shown)
    assert history.worst() < 1e-9
    # two legs over different ways need two gates: each gate has one way, drawn once
    differ = {home: (1 - p * p - (1 - p) * (1 - p)) / 2 for home, p in gates.items()}
    assert differ[1] / differ[0] == Fraction(25, 9)
