"""Ways to publish rides and hide home, side by side: circles, gates, cuts, ledgers, stops.

Every way cuts the same legs. The adversary knows the map, the model and the way of cutting, and
applies Bayes' rule to all rides together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats
from shoal.share.charges import RoadTables, tables_of
from shoal.share.history import History, Leg, ShareRule
from shoal.share.roads import metres_between
from shoal.share.stops import stop_set
from studies.report import Cell, Figure, Report, Table
from studies.share_worlds import World, worlds

EPSILON = 1.0
MOVES = 24  # centres of a moved circle that the adversary weighs
MOVED_METRES = 250.0

Logs = Floats  # log-likelihood of one output for each candidate


class Outcome(NamedTuple):
    """What one way showed in one world, and what Bayes' rule made of it."""

    way: str
    exact: float
    shift: float
    home: float
    left: float


def run() -> Report:
    """Return a table and a figure per world; `studies.share_frontier` measures the frontier."""
    tables, figures = [], []
    for world in worlds():
        found = outcomes(world)
        tables.append(_table(world, found))
        figures.append(_figure(world, found))
    tables.append(impossible())
    return Report(
        name="share-rides",
        source="Beside Hassan, Hussain and Bates 2018: what hides home in rides.",
        tables=tuple(tables),
        figures=tuple(figures),
    )


def impossible() -> Table:
    """Return what no truthful rule can avoid: the log-odds along a perfect grid."""
    side = 40
    rows = [(x, round(math.log((1 + side / x) / 2), 3)) for x in (10, 20, 30, 39)]
    return Table(
        title="a grid of 40 by 40 blocks: log-odds of the first two crossings, shown from x on",
        columns=("blocks from home along the far side", "log-odds, nats"),
        rows=tuple(rows),
        notes=(
            "a cap of .0025 a leg, ε = 1 over 400 legs, leaves less than the last block to show",
            "goals tell by themselves: where people prefer near ones (e-fold in 3 km), each moves "
            "the odds by about .2 nats, whatever is cut; a departure time whose density falls "
            "e-fold in an hour tells about .06 nats a leg",
            "stops are chosen for riders of the model: person 68 of GeoLife leaves it, most rides "
            "miss the stops and show their goal alone, where the frontier shows more; the promise "
            "is about riders of the model by either rule",
        ),
    )


def outcomes(world: World) -> list[Outcome]:
    """Return every way's outcome in one world; ways that the world refuses are left out."""
    ways: dict[str, Callable[[World], Iterator[tuple[float, Logs]]]] = {
        "circle of 400 m": lambda w: _circles(w, 400.0),
        "circle of 800 m": lambda w: _circles(w, 800.0),
        "circle of 800 m, moved once": _moved_circle,
        "zone and 1,000 m": _around_the_zone,
        "gates, ε = 1 a leg": _gates,
        "influence cut, ε / legs a leg": _influence,
        "pair ledger, frontier, ε = 1": _frontier,
        "pair ledger, stops, ε = 1": _stops,
    }
    whole = sum(world.metres(leg.path) for leg in world.legs)
    found = []
    for name, way in ways.items():
        shown, total = 0.0, np.zeros(len(world.place.zone))
        for metres, logs in way(world):
            shown += metres
            total = total + logs
        total = np.where(np.isnan(total), -np.inf, total)
        if not np.isfinite(total).any():
            found.append(Outcome(name, shown / whole, math.inf, 0.0, 0.0))
            continue
        weight = np.exp(total - total.max())
        posterior = weight / weight.sum()
        home = float(posterior[world.place.zone.tolist().index(world.home)])
        spread = float(total.max() - total.min())
        found.append(Outcome(name, shown / whole, spread, home, float(1 / (posterior**2).sum())))
    return found


def _tables(world: World) -> RoadTables:
    return tables_of(world.roads, world.place)


def _absolute(tables: RoadTables, goal: int, crossing: int) -> Logs:
    """Return ln (walks from each candidate to a crossing) - ln (walks to the goal)."""
    scale = tables.exponents(0)
    logs: Logs = tables.goal_table(goal).logs[crossing, 0]
    return logs + float(scale[goal] - scale[crossing]) * math.log(2.0)


@lru_cache(maxsize=4)
def _roads_into(tables: RoadTables) -> dict[int, list[tuple[int, float]]]:
    """Return for each crossing those before it, with the logarithm of the road's weight."""
    found: dict[int, list[tuple[int, float]]] = {}
    arcs = tables.states.laws[0].matrix.tocoo()
    for before, after, weight in zip(arcs.row, arcs.col, arcs.data, strict=True):
        found.setdefault(int(after), []).append((int(before), math.log(weight)))
    return found


def _left_by(world: World, leg: Leg, inside: Bools) -> tuple[float, int]:
    """Return the metres after a leg has left a region for good, and the step of its first one."""
    outward = leg.outward()
    steps = np.flatnonzero(inside[list(outward)])
    first = int(steps[-1]) + 1 if len(steps) else 0
    return world.metres(outward[first:]), min(first, len(outward) - 1)


def _exits(world: World, leg: Leg, first: int, inside: Bools) -> Logs:
    """Return ln P(a leg leaves `inside` for good to its step `first` | candidate)."""
    tables, outward = _tables(world), leg.outward()
    if inside[list(outward[first:])].any():
        return np.full(len(world.place.zone), -np.inf)
    ways = [
        _absolute(tables, leg.goal, before) + log
        for before, log in _roads_into(tables)[outward[first]]
        if inside[before]
    ]
    if not ways:
        return np.full(len(world.place.zone), -np.inf)
    logs: Logs = np.logaddexp.reduce(ways, axis=0)
    return logs


def _disc(world: World, centre: int, radius: float) -> Bools:
    everywhere = np.arange(world.roads.size)
    inside: Bools = (
        metres_between(world.roads.points, everywhere, np.full(len(everywhere), centre)) <= radius
    )
    return inside


def _circles(world: World, radius: float) -> Iterator[tuple[float, Logs]]:
    """A circle around home: what leaves it is shown."""
    discs = [_disc(world, int(h), radius) for h in world.place.zone]
    own = discs[world.place.zone.tolist().index(world.home)]
    for leg in world.legs:
        metres, first = _left_by(world, leg, own)
        logs = [_exits(world, leg, first, disc)[k] for k, disc in enumerate(discs)]
        yield metres, np.array(logs)


def _moved_circle(world: World) -> Iterator[tuple[float, Logs]]:
    """A circle of 800 m whose centre was moved once, at random, by up to 250 m."""
    random = np.random.default_rng(7)
    own = _shifted(world, world.home, random)
    legs = [(leg, *_left_by(world, leg, own)) for leg in world.legs]
    total = np.full(len(world.place.zone), -np.inf)
    for k, home in enumerate(world.place.zone.tolist()):
        found: list[float] = []
        for _ in range(MOVES):
            disc = own if home == world.home and not found else _shifted(world, home, random)
            likely = 0.0
            for leg, _, first in legs:
                likely += float(_exits(world, leg, first, disc)[k])
                if likely == -math.inf:
                    break
            found.append(likely)
        total[k] = np.logaddexp.reduce(found) - math.log(MOVES)
    for number, (_, metres, _) in enumerate(legs):
        yield metres, total if number == 0 else np.zeros_like(total)


def _shifted(world: World, home: int, random: np.random.Generator) -> Bools:
    near = np.flatnonzero(_disc(world, home, MOVED_METRES))
    return _disc(world, int(random.choice(near)), 800.0)


def _around_the_zone(world: World) -> Iterator[tuple[float, Logs]]:
    """What leaves the public zone by more than a kilometre is shown: the region is public."""
    inside = np.zeros(world.roads.size, dtype=bool)
    for crossing in world.place.zone.tolist():
        inside |= _disc(world, crossing, 1000.0)
    for leg in world.legs:
        metres, first = _left_by(world, leg, inside)
        yield metres, _exits(world, leg, first, inside)


def _gates(world: World) -> Iterator[tuple[float, Logs]]:
    """Each leg begins at a crossing of its way, drawn by an exponential mechanism on its metres."""
    random, tables = np.random.default_rng(9), _tables(world)
    for leg in world.legs:
        outward = leg.outward()
        outside = [k for k, c in enumerate(outward) if c not in world.place.hidden]
        metres = np.array([world.metres(outward[k:]) for k in outside])
        chance = np.exp(0.5 * EPSILON * (metres - metres.max()) / 1000.0)
        pick = int(random.choice(len(outside), p=chance / chance.sum()))
        yield float(metres[pick]), _absolute(tables, leg.goal, outward[outside[pick]])


def _influence(world: World) -> Iterator[tuple[float, Logs]]:
    """Each leg tells at most epsilon / legs; nothing is remembered."""
    count = len(world.place.zone)
    share, spent = np.full((count, count), EPSILON / len(world.legs)), np.zeros((count, count))
    for leg in world.legs:
        metres, _, logs = _by_frontier(world, leg, spent, share, share)
        yield metres, logs


def _frontier(world: World) -> Iterator[tuple[float, Logs]]:
    """Rule S of share.md alone: a frontier that moves with what was spent."""
    rule = _rule(world)
    spent = np.zeros((len(world.place.zone),) * 2)
    for number, leg in enumerate(world.legs, 1):
        limits = np.full_like(spent, rule.limit(number))
        metres, charge, logs = _by_frontier(
            world, leg, spent, limits, np.full_like(spent, rule.cap())
        )
        spent = spent + charge
        yield metres, logs


def _by_frontier(
    world: World, leg: Leg, spent: Floats, limits: Floats, caps: Floats
) -> tuple[float, Floats, Logs]:
    """Return metres, charges and log-likelihoods of a leg that is cut at the frontier."""
    tables, outward = _tables(world), leg.outward()
    frontier, table = tables.frontier(leg.goal, spent, limits, caps)
    met = [k for k, state in enumerate(outward) if frontier.mask[state]]
    first = len(outward) - 1 if frontier.goal_alone or not met else met[-1]
    if first == len(outward) - 1:
        return 0.0, np.zeros_like(spent), np.zeros(len(spent))
    charge = tables.charge(table, outward[first])
    return world.metres(outward[first:]), charge, _absolute(tables, leg.goal, outward[first])


def _stops(world: World) -> Iterator[tuple[float, Logs]]:
    """The rule of `shoal share`."""
    history, tables = History(_rule(world)), _tables(world)
    for leg in world.legs:
        shown = history.cut(leg)
        history = history.absorb(shown)
        stops = history.stops_of(0, leg.goal) if shown.by_stops else None
        outward = shown.path[::-1] if shown.homeward else shown.path
        logs = np.zeros(len(world.place.zone))
        if len(outward) > 1:
            logs = _absolute(tables, leg.goal, outward[0])
        elif stops is not None:
            logs = stop_set(tables, leg.goal, stops.stops, stops.pooled).logs[0]
        yield world.metres(shown.path), logs


def _rule(world: World) -> ShareRule:
    return ShareRule(
        roads=world.roads, places=(world.place,), epsilon=Fraction(EPSILON), legs=len(world.legs)
    )


def _table(world: World, found: list[Outcome]) -> Table:
    prior = 1 / len(world.place.zone)
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        shift = "∞" if math.isinf(one.shift) else f"{one.shift:.3g}"
        rows.append((one.way, round(one.exact, 2), shift, f"{one.home:.2g}", round(one.left, 1)))
    return Table(
        title=f"{world.name}: {len(world.legs)} legs, {len(world.place.zone)} candidates",
        columns=(
            "way of cutting", "shown as ridden", "odds moved, nats", "belief in home",
            "candidates left",
        ),
        rows=tuple(rows),
        notes=(
            f"belief in the true home after all rides; {prior:.2g} before",
            "∞: some candidate is ruled out; an empty belief means that the model rules out all, "
            "home too: real riders leave it",
            "candidates left: one over the chance that two draws from the beliefs agree",
        ),
    )  # fmt: skip


def _figure(world: World, found: list[Outcome]) -> Figure:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for one in found:
            shift = min(max(one.shift, 1e-4), 1e4)
            axes.plot(one.exact, shift, "o", label=one.way)
        axes.axhline(EPSILON, color="black", linewidth=0.8, linestyle=":")
        axes.set_yscale("log")
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the way shown as ridden")
        axes.set_ylabel("odds moved, nats")
        axes.legend(frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.spines[["top", "right"]].set_visible(False)

    name = "share-" + world.name.replace(",", "").replace(" ", "-").lower()
    return Figure(name=name, caption=f"{world.name}: what is shown, and what it tells", draw=draw)
