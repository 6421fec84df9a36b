"""A history of legs as a value: what was shown, what it cost, and what the next leg may show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats, Value
from shoal.core.errors import DataError, InputError, PromiseBroken
from shoal.share.charges import RoadTables, tables_of
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads
from shoal.share.stops import (
    LARGEST_CELL,
    PRICE_METRES,
    StopSet,
    best_stop_sets,
    goal_charge,
    stop_set,
)

CAP_FACTOR = 5.0  # a leg may cost this many times epsilon / sqrt(planned legs); tuned on one town
UNREADABLE = "a stored leg cannot be read; was the ledger changed by hand?"
OUT, HOME, BY_STOPS, FIRST = 0, 1, 2, 4  # bits of the first number of a stored leg


Ends = tuple[int, int]  # the number of a hidden place, and a goal


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

    `path` is in the direction of the ride; the goal alone where nothing else is shown. With
    `by_stops` the leg was cut by the stops of its goal. The first such leg names them: `stops`, and
    the `pooled` ones among them, which are public.
    """

    kind = "shown-leg"

    path: tuple[int, ...]
    goal: int
    homeward: bool = False
    place: int = 0
    by_stops: bool = field(default=False, metadata={"later": True})
    stops: tuple[int, ...] = field(default=(), metadata={"later": True})
    pooled: tuple[int, ...] = field(default=(), metadata={"later": True})

    @property
    def encoded(self) -> tuple[int, ...]:
        """Return whole numbers that say all of it, as a ledger stores them."""
        first = (HOME if self.homeward else OUT) + (BY_STOPS if self.by_stops else 0)
        if not self.stops:
            return (first, self.place, *self.path)
        named = (len(self.stops), *self.stops, len(self.pooled), *self.pooled)
        return (first + FIRST, self.place, *named, *self.path)

    @classmethod
    def decoded(cls, numbers: Sequence[int]) -> ShownLeg:
        """Return the leg behind `encoded`; refused where it holds none."""
        try:
            first, place, *rest = map(int, numbers)
            stops: list[int] = []
            pooled: list[int] = []
            if first & FIRST:
                stops, rest = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
                pooled, rest = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
            homeward, by_stops = bool(first & HOME), bool(first & BY_STOPS)
            goal = rest[0] if homeward else rest[-1]
        except (ValueError, IndexError):
            raise DataError(UNREADABLE) from None
        if not 0 <= first < 2 * FIRST or min(numbers) < 0 or (stops and not by_stops):
            raise DataError(UNREADABLE)
        return cls(tuple(rest), goal, homeward, place, by_stops, tuple(stops), tuple(pooled))


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

    def price(self) -> float:
        """Return what a charge of 1 is worth, in metres of shown ways."""
        return PRICE_METRES * self.legs / float(self.epsilon)

    def limit(self, number: int) -> float:
        """Return the most that any pair may have cost after leg `number`, counted from 1."""
        share = math.sqrt(min(1.0, number / self.legs))
        return math.nextafter(float(self.epsilon) * share, 0.0) * (1 - 1e-15)


@dataclass(frozen=True, slots=True, eq=False)
class History(Value):
    """Everything a rule has shown so far, in order; the next cut depends on nothing else.

    The legs to one goal are cut by one of two rules. *Stops* are chosen once and stay. The
    *frontier* moves with what was spent. Stops are never chosen for a goal to which the frontier
    has shown more than the goal, because a ride that is repeated would be told in two ways.
    """

    kind = "share-history"

    rule: ShareRule
    shown: tuple[ShownLeg, ...] = ()
    _spent: tuple[Floats, ...] = field(default=(), repr=False, metadata={"stored": False})
    _stops: Mapping[Ends, StopSet | None] = field(
        default_factory=dict, repr=False, metadata={"stored": False}
    )

    def __post_init__(self) -> None:
        if self.shown and not self._spent:
            whole = self._added_up()
            object.__setattr__(self, "_spent", whole._spent)
            object.__setattr__(self, "_stops", whole._stops)
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

    def stops_of(self, place: int, goal: int) -> StopSet | None:
        """Return the stops by which legs between a place and a goal are cut; None before any."""
        return self._stops.get((place, goal))

    def cut(self, leg: Leg) -> ShownLeg:
        """Return what may be shown of a leg. Which rule cuts it is a function of the past.

        Followed backwards from the goal, the leg is shown from the first stop or crossing of the
        frontier on (a leg home: up to there). Where the goal has stops and the leg meets a pooled
        one, a hidden crossing or none, its goal alone is shown.
        """
        self._check(leg)
        outward, tables = leg.outward(), self.rule.tables(leg.place)
        known = self._stops.get((leg.place, leg.goal))
        chosen = self._chosen(tables, leg) if (leg.place, leg.goal) not in self._stops else known
        if chosen is not None:
            fits = self._fits(tables, chosen, leg)
            first = _first_met(outward, chosen, tables.hidden) if fits else len(outward) - 1
            named = chosen if fits and known is None else None
            return _shown(leg, first, by_stops=fits, named=named)
        frontier, _ = tables.frontier(leg.goal, *self._room(leg.place))
        first = len(outward) - 1
        if not frontier.goal_alone:
            states = tables.states.states_of(outward)
            met = [step for step, state in enumerate(states) if frontier.mask[state]]
            first = met[-1] if met else first
        return _shown(leg, first)

    def _check(self, leg: Leg) -> None:
        """Refuse legs off the map, without their goal, or of a place that is not hidden."""
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

    def _chosen(self, tables: RoadTables, leg: Leg) -> StopSet | None:
        """Return the stops for the legs to a goal that has none, by public numbers; None if none.

        The goal may have been shown alone before, which tells nothing.
        """
        if tables.states.by_road:
            return None
        rule = self.rule
        sets = best_stop_sets(tables, leg.goal, rule.price(), LARGEST_CELL * float(rule.epsilon))
        return next((one for one in sets if self._fits(tables, one, leg)), None)

    def _fits(self, tables: RoadTables, stops: StopSet, leg: Leg) -> bool:
        """Whether every output of a set of stops would leave every pair within the promise."""
        scale = self.rule.places[leg.place].scale(self.rule.roads)
        limits = scale * self.rule.limit(self.rule.legs)
        spent, table = self._spent[leg.place], tables.goal_table(leg.goal)
        away = ~np.eye(len(spent), dtype=bool)
        if stops.widest <= (limits - spent)[away].min():
            return True
        from shoal.share.kernels import pairs_fit

        shown = np.setdiff1d(stops.stops, stops.pooled)
        cells = [(table.logs[state], table.error) for state in shown.tolist()]
        if (stops.logs > -np.inf).any():
            cells.append((stops.logs, stops.error))
        return all(pairs_fit(logs, error, spent, limits, limits) for logs, error in cells)

    def absorb(self, shown: ShownLeg) -> History:
        """Return the history after an output; refused when a pair would pass the promise."""
        place = shown.place
        known = self._rules_after(shown)
        charge = self._charge(shown, known)
        spent = np.nextafter(self._spent[place] + charge, np.inf)
        spent[charge == 0] = self._spent[place][charge == 0]
        scale = self.rule.places[place].scale(self.rule.roads)
        if (spent > float(self.rule.epsilon) * scale).any():
            raise PromiseBroken(
                f"showing this leg would raise a pair to {float((spent / scale).max()):.4g}, above "
                f"epsilon = {float(self.rule.epsilon):g}; show its goal only"
            )
        after = tuple(spent if i == place else old for i, old in enumerate(self._spent))
        return History(self.rule, (*self.shown, shown), after, known)

    def _rules_after(self, shown: ShownLeg) -> Mapping[Ends, StopSet | None]:
        """Return which goals have stops (None: the frontier) after an output; refuse a change."""
        ends = shown.place, shown.goal
        if shown.by_stops:
            if bool(shown.stops) == (ends in self._stops):
                raise DataError(f"the stops of goal {shown.goal} are named once, by its first leg")
            if not shown.stops:
                return self._stops
            stops = np.array(shown.stops, dtype=np.int64), np.array(shown.pooled, dtype=np.int64)
            made = stop_set(self.rule.tables(shown.place), shown.goal, *stops)
            return {**self._stops, ends: made}
        if len(shown.path) == 1:
            return self._stops
        if self._stops.get(ends) is not None:
            raise DataError(f"legs to goal {shown.goal} are cut by its stops, not by the frontier")
        return {**self._stops, ends: None}

    def _room(self, place: int) -> tuple[Floats, Floats, Floats]:
        """What is spent, the limits after the next leg, and the caps of one leg, per pair."""
        scale = self.rule.places[place].scale(self.rule.roads)
        number = 1 + len(self.shown)
        return self._spent[place], scale * self.rule.limit(number), scale * self.rule.cap()

    def _charge(self, shown: ShownLeg, known: Mapping[Ends, StopSet | None]) -> Floats:
        """Return the charges of ordered pairs for an output, under the rule of its goal."""
        tables = self.rule.tables(shown.place)
        outward = shown.path[::-1] if shown.homeward else shown.path
        stops = known[shown.place, shown.goal] if shown.by_stops else None
        if len(outward) == 1:
            return goal_charge(tables, stops)
        if stops is not None and outward[0] not in set(stops.stops) - set(stops.pooled):
            raise DataError(f"crossing {outward[0]} is no stop of legs to goal {shown.goal}")
        table = tables.goal_table(shown.goal)
        return tables.charge(table, tables.states.states_of(outward)[0])

    def _added_up(self) -> History:
        """The same history from its beginning: what it says of charges is not believed."""
        whole = History(self.rule)
        for leg in self.shown:
            whole = whole.absorb(leg)
        return whole


def _first_met(outward: tuple[int, ...], stops: StopSet, hidden: Bools) -> int:
    """Return the step from which a leg is shown: its last stop; its end where that is pooled."""
    ordinary, pooled = set(stops.stops.tolist()), set(stops.pooled.tolist())
    for step in range(len(outward) - 1, -1, -1):
        if outward[step] in pooled or hidden[outward[step]]:
            break
        if outward[step] in ordinary:
            return step
    return len(outward) - 1


def _shown(
    leg: Leg, first: int, *, by_stops: bool = False, named: StopSet | None = None
) -> ShownLeg:
    """Return the output that shows a leg from step `first` of its way out on."""
    path = leg.outward()[first:]
    stops = () if named is None else tuple(named.stops.tolist())
    pooled = () if named is None else tuple(named.pooled.tolist())
    ridden = path[::-1] if leg.homeward else path
    return ShownLeg(ridden, leg.goal, leg.homeward, leg.place, by_stops, stops, pooled)
