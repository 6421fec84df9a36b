"""Stop sets: public crossings from which the legs to one goal are shown, once and for all.

A leg is followed backwards from its goal to the first stop or hidden crossing. At a stop it is
shown from there on. At a `pooled` stop, or a hidden crossing, its goal alone is shown. So the goal
alone is an output with a law of its own, which is charged like any other (share.md, rule T):

    P(goal alone | h, d) = sum over hidden or pooled x of P(x is the last stop | h, d).

Pooled stops lie on ordinary ways: without them the goal alone would mean that a leg went an
unlikely way, which tells much. How a set is chosen decides how much is shown, never how much may
be told: every output of every set is charged by certified sums. Turns must be free.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import DataError, Refused
from shoal.share.charges import LOG_ERROR, RoadTables, log_middle
from shoal.share.green import Green
from shoal.share.roads import metres_between

PRICE_METRES = 50.0  # what all of epsilon is worth, in metres of each planned leg
PRICES = (1.0, 30.0)  # factors of the price of a stop; each goal takes its best set
POOLED_SHARES = (0.01, 0.05)  # least shares of legs that a pooled stop is to cover
LARGEST_CELL = 0.5  # share of epsilon that one output of a set may cost
SWEEPS = 400  # rounds of value iteration: more than the crossings of a long leg
LN2 = math.log(2.0)


class StopSet(NamedTuple):
    """A rule for all legs to one goal.

    `stops` and `pooled` are sorted crossings, the pooled ones among the stops. `logs[law,
    crossing]` are log-likelihoods of the goal alone, each within `error` / 2; minus infinity where
    every leg is shown in part. `widest` is the largest charge of any output. `metres` and `spent`
    are what a leg shows and costs on average, for the first law and any crossing of the zone.
    """

    stops: Ints
    pooled: Ints
    logs: Floats
    error: float
    widest: float
    metres: float
    spent: float


_MADE: WeakKeyDictionary[RoadTables, dict[tuple[int, bytes, bytes], StopSet]] = WeakKeyDictionary()
_CHOSEN: WeakKeyDictionary[RoadTables, dict[tuple[int, float, float], tuple[StopSet, ...]]] = (
    WeakKeyDictionary()
)


def stop_set(tables: RoadTables, goal: int, stops: Ints, pooled: Ints) -> StopSet:
    """Return the rule of given stops, with certified log-likelihoods of the goal alone.

    Refuses hidden crossings and the goal as stops. `widest` is infinite where an output is possible
    from one crossing of the zone and not known to be possible from another. Sets are kept with the
    tables, because each takes a second to make on a map of 10,000 crossings.
    """
    known = _MADE.setdefault(tables, {})
    name = goal, stops.tobytes(), pooled.tobytes()
    if name not in known:
        known[name] = _certified_set(tables, goal, stops, pooled)
    return known[name]


def _certified_set(tables: RoadTables, goal: int, stops: Ints, pooled: Ints) -> StopSet:
    hidden = tables.place.hidden
    outside = not np.isin(stops, hidden).any() and goal not in stops
    if tables.states.by_road or not outside or not np.isin(pooled, stops).all():
        raise Refused(
            "stops must be crossings outside the hidden zone and other than the goal, on a map "
            "where turns are free; show the goal alone"
        )
    shown, alone = np.setdiff1d(stops, pooled), np.concatenate([hidden, pooled])
    table = tables.goal_table(goal)
    logs, errors, first = [], [], np.zeros(0)
    for number in range(len(tables.states.laws)):
        last, error = last_stops(tables, number, goal, np.concatenate([stops, hidden]))
        logs.append(np.logaddexp.reduce(last[alone], axis=0))
        errors.append(error)
        if number == 0:
            first = np.exp(last[shown]).mean(axis=1)
    laws, error = np.array(logs), 2 * max(errors)
    widest, own = float(table.widest[shown].max(initial=0.0)), 0.0
    if (laws > -np.inf).any():
        with np.errstate(invalid="ignore"):
            own = float((laws.max(axis=1) - laws.min(axis=1)).max() + error)
        own = own if np.isfinite(laws).all() else math.inf
    metres = metres_between(tables.roads.points, shown, np.full(len(shown), goal))
    chance = float(np.exp(laws[0]).mean())
    spent = float(first @ table.widest[shown]) + (chance * own if chance else 0.0)
    return StopSet(stops, pooled, laws, error, max(widest, own), float(first @ metres), spent)


def last_stops(tables: RoadTables, number: int, goal: int, stops: Ints) -> tuple[Floats, float]:
    """Return ln P(a state is the last one of `stops` that a leg visits | crossing of the zone).

    The result has a row for every state and is minus infinity for all but `stops`. The second
    value bounds the error of each number. Refused where a sum is not known closely.
    """
    logs, error = ways_on(tables, number, goal, stops)
    table, scale = tables.goal_table(goal), tables.exponents(number)
    following = tables.states.laws[number].matrix[stops].tocoo()
    onward = np.full(len(stops), -np.inf)
    np.logaddexp.at(onward, following.row, np.log(following.data) + logs[following.col])
    possible = onward > -np.inf
    used, onward = stops[possible], onward[possible]
    arrived = table.logs[used, number] + ((scale[goal] - scale[used]) * LN2)[:, None]
    if not np.isfinite(arrived).all():
        raise Refused("a stop is not known to be reached from the whole zone; leave it out")
    found = np.full((tables.states.count, len(tables.place.zone)), -np.inf)
    found[used] = arrived + onward[:, None]
    size = np.abs(arrived).max(initial=0.0) + np.abs(onward).max(initial=0.0)
    terms = len(following.data) + len(stops) + 8
    return found, error + table.error / 2 + LOG_ERROR * float(1 + size + terms)


def goal_charge(tables: RoadTables, stops: StopSet | None) -> Floats:
    """Return the charges of ordered pairs for a goal shown alone, rounded up.

    They are 0 where the goal is all that any leg would show: without stops.
    """
    from shoal.share.kernels import charge_of

    if stops is None:
        return np.zeros((len(tables.place.zone),) * 2)
    if not np.isfinite(stops.logs).all():
        raise DataError("a goal is shown alone where its stops let no leg do so; was it changed?")
    found: Floats = np.nextafter(charge_of(stops.logs, stops.error), np.inf)
    np.fill_diagonal(found, 0.0)
    return found


def ways_on(tables: RoadTables, number: int, goal: int, stops: Ints) -> tuple[Floats, float]:
    """Return ln of the sums over walks from every state to the goal that visit no stop.

    Minus infinity where there is no such walk. The second value bounds the error of each.
    """
    from scipy.sparse import csr_array

    size = tables.states.count
    forbidden = np.zeros(size, dtype=bool)
    forbidden[stops] = True
    arcs = tables.states.laws[number].matrix.tocoo()
    kept = ~forbidden[arcs.row] & ~forbidden[arcs.col] & (arcs.row != goal)
    # with roads turned round, one row from the goal holds the sums from everywhere
    turned = csr_array((arcs.data[kept], (arcs.col[kept], arcs.row[kept])), shape=(size, size))
    green = Green(turned, np.array([goal]))
    begun = np.zeros((1, size))
    begun[0, goal] = 1.0
    row = green.rows(begun)
    logs, error = log_middle(row.low[0], row.high[0])
    if (~np.isfinite(logs) & (row.high[0] > 0)).any():
        raise Refused("a sum over walks to the goal is not known closely; show the goal alone")
    logs = logs - green.exponents * LN2
    return logs, error + LOG_ERROR * float(1 + np.abs(logs[np.isfinite(logs)]).max())


def best_stop_sets(
    tables: RoadTables, goal: int, price: float, widest: float
) -> tuple[StopSet, ...]:
    """Return sets for legs to a goal, the best first: metres shown, less `price` times the charge.

    Only sets are returned no output of which costs more than `widest`, and which are worth more
    than the goal alone. They are kept with the tables.
    """
    chosen = _CHOSEN.setdefault(tables, {})
    if (goal, price, widest) not in chosen:
        chosen[goal, price, widest] = _choose(tables, goal, price, widest)
    return chosen[goal, price, widest]


def _choose(tables: RoadTables, goal: int, price: float, widest: float) -> tuple[StopSet, ...]:
    found = []
    for factor in PRICES:
        stops = _stops_at(tables, goal, factor * price, widest)
        for share in POOLED_SHARES if len(stops) else ():
            try:
                made = _with_pooled(tables, goal, stops, share, widest)
            except Refused:
                continue
            if made.widest <= widest:
                found.append(made)
                break
    worth = [one.metres - price * one.spent for one in found]
    order = sorted(range(len(found)), key=lambda k: -worth[k])
    return tuple(found[k] for k in order if worth[k] > 0)


def _stops_at(tables: RoadTables, goal: int, price: float, widest: float) -> Ints:
    """Return the stops that are best where a charge of 1 costs `price` metres."""
    table = tables.goal_table(goal)
    usable = (table.widest <= widest) & ~tables.hidden
    usable[goal] = False
    stop = np.where(usable, -price * np.where(usable, table.widest, 0.0), -np.inf)
    values = _backward_values(tables, goal, stop)
    return np.flatnonzero(usable & (values <= stop + 1e-9))


def _with_pooled(
    tables: RoadTables, goal: int, stops: Ints, share: float, widest: float
) -> StopSet:
    """Return the set of stops with one pooled stop, which about a share of all legs visits.

    None is pooled where no leg can come to a hidden crossing without a stop.
    """
    hidden = tables.place.hidden
    last, _ = last_stops(tables, 0, goal, np.concatenate([stops, hidden]))
    pooled = stops[:0]
    if (last[hidden] > -np.inf).any():
        table, visits = tables.goal_table(goal), _visits(tables, goal)
        free = (table.widest <= 0.5 * widest) & ~tables.hidden & (visits >= share)
        free[goal] = False
        if not free.any():
            raise Refused("no crossing is visited by enough legs to be pooled")
        cost = np.where(free, visits * (1 + np.where(free, table.widest, 0.0)), np.inf)
        pooled = np.array([int(np.argmin(cost))])
    return stop_set(tables, goal, np.union1d(stops, pooled), pooled)


def _visits(tables: RoadTables, goal: int) -> Floats:
    """Return how often legs visit each state on average after their last hidden crossing."""
    onward, _ = ways_on(tables, 0, goal, tables.place.hidden)
    logs = _mean_arrivals(tables, goal) + onward + tables.exponents(0)[goal] * LN2
    return np.exp(np.where(np.isnan(logs), -np.inf, logs))


def _backward_values(tables: RoadTables, goal: int, stop: Floats) -> Floats:
    """Return the value of following a leg backwards from each crossing, in metres.

    A leg that comes to a hidden crossing loses what was shown of it, about the straight distance
    from there to the goal.
    """
    from shoal.share.kernels import stopping_values

    points, size = tables.roads.points, tables.states.count
    arcs = tables.states.laws[0].matrix.tocsc()
    after = np.repeat(np.arange(size), np.diff(arcs.indptr))
    weight = np.log(arcs.data) + _mean_arrivals(tables, goal)[arcs.indices]
    largest = np.full(size, -np.inf)
    np.maximum.at(largest, after, weight)
    usable = np.isfinite(largest)[after]
    share = np.where(usable, np.exp(weight - np.where(usable, largest[after], 0.0)), 0.0)
    total = np.bincount(after, share, size)
    chances = share / np.where(total > 0, total, 1.0)[after]
    metres = metres_between(points, arcs.indices, after)
    lost = -metres_between(points, np.arange(size), np.full(size, goal))
    end = np.where(tables.hidden | (total == 0), lost, np.inf)
    end[goal] = np.inf
    found: Floats = stopping_values(
        arcs.indptr.astype(np.int64), arcs.indices.astype(np.int64), chances, metres, stop, end,
        SWEEPS,
    )  # fmt: skip
    return found


def _mean_arrivals(tables: RoadTables, goal: int) -> Floats:
    """Return ln of the mean over the zone of walks that arrive at each state, unscaled."""
    logs = tables.goal_table(goal).logs[:, 0]
    with np.errstate(divide="ignore"):
        mean = np.logaddexp.reduce(logs, axis=1) - math.log(logs.shape[1])
    return np.asarray(mean - tables.exponents(0) * LN2)
