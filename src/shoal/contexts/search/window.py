"""The best policy with a memory of sensitive visits, segment by segment: linear programs.

In masses r(t, j, h) shown and u(t, j, h) suppressed, r + u = Σ u before · moves, the expected
number of releases is linear, and so is every bound: Σ_{h ∋ c} r(t, j, h) ≤ b(c) Σ_h r(t, j, h).
Solved backwards in time this is the optimum over all causal ways to show or suppress, when the
window covers the segment; a shorter window ends in a table without memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.contexts.search.adaptive import Origin, backwards, table_value
from shoal.contexts.search.beliefs import (
    LEVELS,
    Codes,
    Day,
    future_beliefs,
    releasable,
    upper_bound,
)
from shoal.contexts.search.memory import Remembering, certified, digits_of, history_value
from shoal.contexts.search.pacing import Effort
from shoal.contexts.search.program import Program
from shoal.core.codec import Bools, Floats, Ints

MOST_NODES = 1500  # (slot, history, state) nodes of one program
NODES = (MOST_NODES, 700, 300, 140)
PER_NODE = 1e-3  # nominal seconds
# parts of each bound given up, one after the other, until the rounded policy keeps its bounds, and
# parts of the policy itself for suppressing everything, which keeps them by more than rounding
MARGINS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
MIXES = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
NEAR = 1e-7  # releases: a policy as near to the optimum of its segment is not improved
OPTIMAL = 1e-6  # releases of a day: as near to the optimum is called optimal


@dataclass(frozen=True, slots=True)
class Histories:
    """The policies of all releases that can occur, and the mean number of releases of a day.

    No mechanism whatever shows more than `expected + short` on average: by the duals of the
    programs when each covers its segment, or because no more may be shown at all.
    """

    policies: dict[Origin, Remembering]
    digits: Ints
    expected: float
    short: float

    @property
    def exact(self) -> bool:
        """Whether this is the optimum, to 1e-6 releases."""
        return self.short <= OPTIMAL


def windowed(
    day: Day,
    delta: float,
    base: dict[Origin, Codes],
    *,
    programs: int,
    nodes: int = MOST_NODES,
    work: float | Effort = np.inf,
) -> Histories:
    """The better of `base` and of the linear program, for each segment, backwards in time.

    `base` gives each release its table without memory, a private one. At most `programs` segments,
    the likeliest ones, get a program, and none once the clock of `work`, if any, has run out.
    """
    effort = Effort.of(work)
    digits = digits_of(day)
    shown = releasable(day, future_beliefs(day))
    all_shown = int(shown.sum())
    if effort.clock is not None:  # what was not looked at for `base` is not looked at now
        shown &= _among(base, shown.shape)
    origins = list(backwards(shown))
    likely = sorted(origins, key=lambda o: -day.prior[o] if o[0] >= 0 else -2.0)[:programs]
    chosen = set(likely)
    value = np.zeros((day.slots, day.size))
    short = np.zeros((day.slots, day.size))  # what later releases lack of their optimum
    policies: dict[Origin, Remembering] = {}
    complete = len(chosen) == len(origins) and all_shown == shown.sum()
    for origin in origins:
        slot = origin[0]
        tail = base.get(origin, np.full((0, day.size), LEVELS - 1, dtype=np.uint16))
        plan, most = Remembering((), tail), np.inf
        best = table_value(day, origin, tail, value)
        timely = origin in chosen and not effort.late()
        window = fitting_window(day, slot, digits, nodes) if timely else 0
        if window == day.slots - 1 - slot:
            most = 0.0  # of the last slot, after which nothing is shown
        if window:
            seconds = effort.seconds()
            found = solved(day, delta, origin, tail, window, digits, value, shown, seconds)
            most = most + found.most
            if found.plan is not None and found.value > best:
                plan, best = found.plan, found.value
        lack = max(0.0, most - best) + _later(day, origin, short)
        if slot >= 0:
            value[origin], short[origin] = best, lack
        if plan.codes or (plan.tail < LEVELS - 1).any():
            policies[origin] = plan
    lack = min(lack if complete else np.inf, upper_bound((day,)) - best)
    return Histories(policies, digits, best, lack)


def _later(day: Day, origin: Origin, short: Floats) -> float:
    """What the releases after one lack together: the next one lacks at most the most of any."""
    slot, state = origin
    law = day.initial if slot < 0 else day.moves[slot, state]
    total = 0.0
    for t in range(slot + 1, day.slots):
        some = (short[t] > 0) & (law > 0)
        total += float(law[some] @ short[t][some])
        law = law @ day.moves[t]
    return min(total, float(short[slot + 1 :].max(initial=0.0)))


def _among(base: dict[Origin, Codes], shape: tuple[int, ...]) -> Bools:
    """Which states were looked at: those that have a table, if only one without rows."""
    found = np.zeros(shape, dtype=np.bool_)
    for slot, state in base:
        found[slot, state] |= slot >= 0
    return found


def affordable(day: Day, seconds: float) -> tuple[int, int]:
    """How many programs, and how many nodes each: what fits into some nominal seconds.

    The largest programs that all segments can have; when not even small ones fit, small ones for
    the likeliest segments. A node counts a millisecond, so that equal calls give equal answers.
    """
    digits = digits_of(day)
    shown = releasable(day, future_beliefs(day))
    slots = [-1, *np.argwhere(shown)[:, 0].tolist()]
    for nodes in NODES:
        costs = {slot: PER_NODE * _nodes(day, slot, digits, nodes) for slot in set(slots)}
        if sum(costs[slot] for slot in slots) <= seconds:
            return len(slots), nodes
    return max(1, int(seconds / (PER_NODE * NODES[-1]))), NODES[-1]


def _nodes(day: Day, slot: int, digits: Ints, most: int) -> int:
    """The nodes of the longest window after `slot` that has at most so many."""
    base = int(digits.max()) + 1
    window = fitting_window(day, slot, digits, most)
    return sum(day.size * base**k for k in range(window))


def fitting_window(day: Day, slot: int, digits: Ints, nodes: int) -> int:
    """The longest window after `slot` whose program has at most `nodes` nodes."""
    base = int(digits.max()) + 1
    total = window = 0
    while window < day.slots - 1 - slot:
        total += base**window * day.size
        if total > nodes:
            break
        window += 1
    return window


@dataclass(frozen=True, slots=True)
class Solved:
    """A policy, if one passed, the releases it leads to, and what none whatever exceeds."""

    plan: Remembering | None
    value: float
    most: float


def solved(
    day: Day,
    delta: float,
    origin: Origin,
    tail: Codes,
    window: int,
    digits: Ints,
    value: Floats,
    shown: Bools,
    seconds: float = np.inf,
) -> Solved:
    """The best policy of the linear program that, rounded, keeps its bounds for certain.

    `certified` decides, in directed rounding. More and more of the bounds and of the policy is
    given up, until one passes and no more than that could be gained.
    """
    program = Program(day, origin, tail, window, digits, value, shown, delta, seconds)
    best, most = Solved(None, -1.0, np.inf), np.inf
    least = math.nextafter(delta, 0.0)
    for margin in MARGINS:
        solution = program.solve(margin)
        if solution is None:
            continue
        most = min(most, solution.most)
        for mix in MIXES:
            plan = Remembering(program.tables(solution, margin, mix), tail)
            if certified(day, origin, plan, digits)[0] <= least:
                reached = history_value(day, origin, plan, digits, value)
                if reached > best.value:
                    best = Solved(plan, reached, most)
                break
        if most - best.value <= max(NEAR, margin):
            break
    if most == np.inf:  # bounds that are met exactly leave nothing to give up
        exact = program.solve(None)
        most = np.inf if exact is None else exact.most
    return Solved(best.plan, best.value, most)
