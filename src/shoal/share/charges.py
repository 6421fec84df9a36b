"""What a leg tells about the place: log-likelihoods of every state, charges, and the frontier.

For a leg to goal d that is shown from state y, the law of what is shown depends on the hidden
crossing h through one number only (share.md, Theorem 1):

    L_h(y | d) = ln (walks from h to y) - ln (walks from h to d).

The charge of an ordered pair is the largest difference over all laws, 0 at least.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.share.green import UNIT, Bracket, Green, arrivals, end_totals
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads, RoadStates

KEPT_BYTES = 600_000_000  # of tables of goals that are kept for further legs
KEPT_MAPS = 4  # maps and zones whose tables are kept
LOG_ERROR = 8 * UNIT  # relative error of a logarithm and of the steps around it


class GoalTable(NamedTuple):
    """Log-likelihoods for one goal, `logs[state, law, crossing]`, each within `error` / 2.

    They are scaled by powers of two that all crossings share: `RoadTables.exponents`. States whose
    likelihood is 0, or not known closely, hold minus infinity. `widest` is the largest charge over
    all pairs, per state. `ends` are the states in which legs reach the goal.
    """

    logs: Floats
    widest: Floats
    error: float
    ends: Bools


class Frontier(NamedTuple):
    """Where legs to one goal begin to be shown: states, and whether the goal alone is one."""

    mask: Bools
    goal_alone: bool


class RoadTables:
    """All tables of one map and one hidden place; rows are computed once, goals when asked for."""

    def __init__(self, roads: Roads, place: PermanentPlace) -> None:
        self.roads, self.place = roads, place
        self.states = RoadStates(roads)
        inside = np.zeros(roads.size, dtype=bool)
        inside[place.hidden] = True
        self.hidden: Bools = inside[self.states.first] | inside[self.states.last]
        self.begun: Ints = np.flatnonzero(inside[self.states.first])
        self._greens: list[Green] = []
        self._rows: list[Bracket] = []
        self._logs: list[tuple[Floats, float]] = []
        for law in self.states.laws:
            starts = self.states.starts(law, place.zone.tolist())
            if not (starts > 0).any(axis=1).all():
                stuck = place.zone[int(np.argmin((starts > 0).any(axis=1)))]
                raise InputError(
                    f"crossing {stuck} of the zone has no road out of it, or none back; leave it "
                    "out of the zone's candidates"
                )
            green = Green(law.matrix, np.flatnonzero((starts > 0).any(axis=0)))
            rows = green.rows(starts)
            self._greens.append(green)
            self._rows.append(rows)
            self._logs.append(log_middle(rows.low, rows.high))
        self._tables: OrderedDict[int, GoalTable] = OrderedDict()

    @property
    def error(self) -> float:
        """The largest error of a log-likelihood of walks from the zone."""
        return max(error for _, error in self._logs)

    def exponents(self, number: int) -> Ints:
        """Return the powers of two by which a law's sums to each state are scaled."""
        return self._greens[number].exponents

    def goal_table(self, goal: int) -> GoalTable:
        """Return the table of a goal, from memory where it was used lately."""
        if goal not in self._tables:
            table = self._compute(goal)
            room = max(1, KEPT_BYTES // max(table.logs.nbytes, 1))
            while len(self._tables) >= room:
                self._tables.popitem(last=False)
            self._tables[goal] = table
        self._tables.move_to_end(goal)
        return self._tables[goal]

    def _compute(self, goal: int) -> GoalTable:
        ends = self.states.ends(goal)
        if goal in self.place.hidden or not len(ends):
            raise InputError(
                f"goal is crossing {goal}, which lies in the hidden zone or has no road; choose a "
                "goal outside it"
            )
        found = [
            law for number in range(len(self._greens)) for law in self._laws(number, ends, goal)
        ]
        table = np.ascontiguousarray(np.stack([logs for logs, _ in found]).transpose(2, 0, 1))
        error = 2 * max(each for _, each in found)
        with np.errstate(invalid="ignore"):
            spread = (table.max(axis=2) - table.min(axis=2)).max(axis=1) + error
        known = np.isfinite(table).all(axis=(1, 2))
        mask = np.zeros(self.states.count, dtype=bool)
        mask[ends] = True
        return GoalTable(table, np.where(known, spread, np.inf), error, mask)

    def _laws(self, number: int, ends: Ints, goal: int) -> list[tuple[Floats, float]]:
        """Return log-likelihoods and their error for walks that stop at the goal.

        Where turns cost something a second law follows: walks that may pass the goal before. Where
        they are free, the part of such a walk up to the goal has the law of a walk that stops.
        """
        green, rows = self._greens[number], self._rows[number]
        if not green.reached[ends].any():
            raise _unreachable(goal)
        ends = ends[green.reached[ends]]
        passing = end_totals(Bracket(rows.low[:, ends], rows.high[:, ends]), ends, green.exponents)
        if not (passing.low > 0).all():
            raise _unreachable(goal)
        goal_rows = green.goal_rows(ends)
        found = arrivals(rows, goal_rows, ends, green.exponents)
        if found is None:
            raise Refused(
                f"goal is crossing {goal}, whose roads lead back to it so surely that first "
                "arrivals cannot be bounded; choose a crossing nearby"
            )
        again = Bracket(found.low @ goal_rows.low, found.high @ goal_rows.high)
        pad = 1 + (len(ends) + 8) * 2 * UNIT
        low = np.maximum(rows.low / pad - again.high * pad, 0.0)
        high = np.maximum(rows.high * pad - again.low / pad, 0.0)
        low[:, ends], high[:, ends] = found.low, found.high
        stop, stop_error = log_middle(low, high)
        total, total_error = log_middle(found.total_low, found.total_high)
        laws = [(stop - total[:, None], stop_error + total_error)]
        if self.states.by_road:
            logs, error = self._logs[number]
            total, total_error = log_middle(passing.low, passing.high)
            laws.append((logs - total[:, None], error + total_error))
        return laws

    def law_index(self, *, homeward: bool) -> int:
        """Return the place in a goal's table of the first member's law of one direction."""
        kinds = 2 if self.states.by_road else 1
        return kinds if homeward and len(self._greens) > 1 and self.states.laws[1].homeward else 0

    def frontier(
        self, goal: int, spent: Floats, limits: Floats, caps: Floats
    ) -> tuple[Frontier, GoalTable]:
        """Return the good states that a walk from the zone can meet first (share.md, rule S).

        A state is good when a leg shown from it keeps every pair within `caps` and, with what is
        `spent`, within `limits`. The goal itself is always good.
        """
        from shoal.share.kernels import search_frontier

        table = self.goal_table(goal)
        room = np.minimum(caps, limits - spent)
        away = ~np.eye(len(room), dtype=bool)
        quick = np.zeros(self.states.count, dtype=np.int8)
        quick[table.widest <= room[away].min()] = 1
        quick[table.widest > room[away].max() * len(room)] = -1
        quick[~np.isfinite(table.widest)] = -1
        arcs = self.states.neighbours
        mask, alone = search_frontier(
            arcs.indptr.astype(np.int64), arcs.indices.astype(np.int64), self.begun, self.hidden,
            table.ends, not self.states.by_road, quick, table.logs, table.error,
            spent, limits, caps,
        )  # fmt: skip
        return Frontier(mask, bool(alone)), table

    def charge(self, table: GoalTable, state: int) -> Floats:
        """Return the charges of ordered pairs for a leg shown from `state`, rounded up.

        Reaching the goal costs nothing where turns are free: every leg to it ends there.
        """
        from shoal.share.kernels import charge_of

        if table.ends[state] and not self.states.by_road:
            return np.zeros((len(self.place.zone),) * 2)
        found: Floats = np.nextafter(charge_of(table.logs[state], table.error), np.inf)
        np.fill_diagonal(found, 0.0)
        return found


def log_middle(low: Floats, high: Floats) -> tuple[Floats, float]:
    """Return logarithms of the middles of brackets, and the largest error over all of them.

    Entries that may be 0, or are known worse than to one part in a million, become minus infinity.
    """
    known = (low > 0) & (high - low <= 1e-6 * high)
    middle = np.where(known, 0.5 * low + 0.5 * high, 1.0)
    logs = np.log(middle)
    half = np.where(known, (high - low) / np.where(known, low, 1.0), 0.0).max(initial=0.0)
    error = float(half + LOG_ERROR * (1 + np.abs(logs).max(initial=0.0)))
    return np.where(known, logs, -np.inf), error


def _unreachable(goal: int) -> InputError:
    return InputError(
        f"goal is crossing {goal}, which some crossing of the zone cannot reach; a leg to it would "
        "tell that the place is elsewhere (leave such crossings out of the zone, or the goal)"
    )


@lru_cache(maxsize=KEPT_MAPS)
def tables_of(roads: Roads, place: PermanentPlace) -> RoadTables:
    """Return the tables of a map and a place; kept, because they take seconds to make."""
    return RoadTables(roads, place)
