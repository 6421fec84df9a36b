"""A history of legs as a value: what was shown, what it cost, and what the next leg may show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats, Value
from shoal.core.errors import DataError, InputError, PromiseBroken
from shoal.share.charges import RoadTables, tables_of
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads

CAP_FACTOR = 5.0  # a leg may cost this many times epsilon / sqrt(planned legs); tuned on one town
OUT, HOME = 0, 1  # the direction of a leg, as it is stored


class Leg(NamedTuple):
    """One ride between a hidden place and a goal: the crossings on the way, as they were ridden.

    A leg out begins anywhere and ends at `goal`; a leg home (`homeward`) begins at `goal`.
    `place` is the number of the hidden place at its other end.
    """

    path: tuple[int, ...]
    goal: int
    homeward: bool = False
    place: int = 0

    def outward(self) -> tuple[int, ...]:
        """Return the crossings in the direction away from the place."""
        return self.path[::-1] if self.homeward else self.path


@dataclass(frozen=True, slots=True, eq=False)
class ShownLeg(Value):
    """What is published of a leg: its goal, its direction, and the crossings at the goal's side.

    `path` is in the direction of the ride; the goal alone where nothing else is shown.
    """

    kind = "shown-leg"

    path: tuple[int, ...]
    goal: int
    homeward: bool = False
    place: int = 0

    @property
    def encoded(self) -> tuple[int, ...]:
        """Return whole numbers that say all of it, as a ledger stores them."""
        return (HOME if self.homeward else OUT, self.place, *self.path)

    @classmethod
    def decoded(cls, numbers: Sequence[int]) -> ShownLeg:
        """Return the leg behind `encoded`; refused where it holds none."""
        if len(numbers) < 3 or numbers[0] not in (OUT, HOME) or min(numbers) < 0:
            raise DataError("a stored leg cannot be read; was the ledger changed by hand?")
        direction, place, *path = map(int, numbers)
        goal = path[0] if direction == HOME else path[-1]
        return cls(tuple(path), goal, direction == HOME, place)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareRule(Value):
    """The public rule by which every leg of a history is cut.

    `legs` is the number of legs planned. Leg number i may raise no pair above
    epsilon sqrt(i / legs), and no single leg may cost more than min(epsilon, 5 epsilon /
    sqrt(legs)). Later legs may use what is left of epsilon.
    """

    kind = "share-rule"

    roads: Roads
    places: tuple[PermanentPlace, ...]
    epsilon: Fraction
    legs: int

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or self.legs < 1 or not self.places:
            raise InputError(
                f"epsilon is {self.epsilon} and legs is {self.legs}; give epsilon above 0, at "
                "least one leg and one place"
            )
        taken: set[int] = set()
        for place in self.places:
            place.check((self.roads,))
            own = set(place.hidden.tolist())
            if own & taken:
                raise InputError(
                    f"{place.about} overlaps another hidden zone; hide one zone that holds both "
                    "places, or choose zones apart"
                )
            taken |= own

    def check_goal(self, goal: int) -> None:
        """Refuse a goal in a hidden zone: a leg between two hidden places shows nothing."""
        for place in self.places:
            if goal in place.hidden:
                raise DataError(
                    f"goal is crossing {goal}, which lies in {place.about}, a hidden zone; leave "
                    "the leg out"
                )

    def tables(self, place: int) -> RoadTables:
        """Return the tables of a place; the zones of the other places may be shown."""
        return tables_of(self.roads, self.places[place])

    def cap(self) -> float:
        """Return the most that one leg may cost, rounded down."""
        share = min(1.0, CAP_FACTOR / math.sqrt(self.legs))
        return math.nextafter(float(self.epsilon) * share, 0.0) * (1 - 1e-15)

    def limit(self, number: int) -> float:
        """Return the most that any pair may have cost after leg `number`, counted from 1."""
        share = math.sqrt(min(1.0, number / self.legs))
        return math.nextafter(float(self.epsilon) * share, 0.0) * (1 - 1e-15)


@dataclass(frozen=True, slots=True, eq=False)
class History(Value):
    """Everything a rule has shown so far, in order; the next cut depends on nothing else."""

    kind = "share-history"

    rule: ShareRule
    shown: tuple[ShownLeg, ...] = ()
    _spent: tuple[Floats, ...] = field(default=(), repr=False, metadata={"stored": False})

    def __post_init__(self) -> None:
        if self.shown and not self._spent:
            object.__setattr__(self, "_spent", self._added_up())
        elif not self._spent:
            empty = tuple(np.zeros((len(p.zone),) * 2) for p in self.rule.places)
            object.__setattr__(self, "_spent", empty)

    def spent(self, place: int = 0) -> Floats:
        """Return what every ordered pair of crossings of a place has cost, rounded up."""
        return self._spent[place].copy()

    def worst(self, place: int = 0) -> float:
        """Return the largest share of the promise that any pair has used, times epsilon."""
        scale = self.rule.places[place].scale(self.rule.roads)
        return float((self._spent[place] / scale).max())

    def cut(self, leg: Leg) -> ShownLeg:
        """Return what may be shown of a leg. It is a function of the past and of what it returns.

        The leg is shown from its last visit to the frontier on (a leg home: up to its first).
        """
        self.rule.roads.admit((leg,))
        if not 0 <= leg.place < len(self.rule.places):
            raise DataError(f"leg.place is {leg.place}; there are {len(self.rule.places)} places")
        outward = leg.outward()
        if not outward or outward[-1] != leg.goal or leg.goal in outward[:-1]:
            raise DataError(
                f"a leg must meet its goal {leg.goal} once, at its end; cut the ride there"
            )
        if leg.homeward and not self.rule.roads.both_ways:
            raise DataError("the map shows no legs home; make it with both_ways=True")
        self.rule.check_goal(leg.goal)
        tables = self.rule.tables(leg.place)
        frontier, _ = tables.frontier(leg.goal, *self._room(leg.place))
        first = len(outward) - 1
        if not frontier.goal_alone:
            states = tables.states.states_of(outward)
            met = [step for step, state in enumerate(states) if frontier.mask[state]]
            first = met[-1] if met else first
        path = outward[first:]
        return ShownLeg(path[::-1] if leg.homeward else path, leg.goal, leg.homeward, leg.place)

    def absorb(self, shown: ShownLeg) -> History:
        """Return the history after an output; refused when a pair would pass the promise."""
        place = shown.place
        charge = self._charge(shown)
        spent = np.nextafter(self._spent[place] + charge, np.inf)
        spent[charge == 0] = self._spent[place][charge == 0]
        scale = self.rule.places[place].scale(self.rule.roads)
        if (spent > float(self.rule.epsilon) * scale).any():
            raise PromiseBroken(
                f"showing this leg would raise a pair to {float((spent / scale).max()):.4g}, above "
                f"epsilon = {float(self.rule.epsilon):g}; show its goal only"
            )
        after = tuple(spent if i == place else old for i, old in enumerate(self._spent))
        return History(self.rule, (*self.shown, shown), after)

    def _room(self, place: int) -> tuple[Floats, Floats, Floats]:
        """What is spent, the limits after the next leg, and the caps of one leg, per pair."""
        scale = self.rule.places[place].scale(self.rule.roads)
        number = 1 + len(self.shown)
        return self._spent[place], scale * self.rule.limit(number), scale * self.rule.cap()

    def _charge(self, shown: ShownLeg) -> Floats:
        tables = self.rule.tables(shown.place)
        outward = shown.path[::-1] if shown.homeward else shown.path
        if len(outward) == 1:
            return np.zeros_like(self._spent[shown.place])
        table = tables.goal_table(shown.goal)
        return tables.charge(table, tables.states.states_of(outward)[0])

    def _added_up(self) -> tuple[Floats, ...]:
        """What the shown legs cost, from the beginning: a stored history is not believed."""
        empty = History(self.rule)
        for leg in self.shown:
            empty = empty.absorb(leg)
        return empty._spent
