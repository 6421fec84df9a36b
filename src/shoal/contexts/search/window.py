"""The best policy with a memory of sensitive visits, segment by segment: linear programs.

In masses r(t, j, h) released and u(t, j, h) suppressed, r + u = Σ u before · moves, the expected
number of releases is linear, and so is every bound: Σ_{h ∋ c} r(t, j, h) ≤ b(c) Σ_h r(t, j, h).
Solved backwards in time this is the optimum over all causal ways to show or suppress, when the
window covers the segment; a shorter window ends in a table without memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.contexts.search.adaptive import releases_backward, value_of_table
from shoal.contexts.search.beliefs import (
    COIN_LEVELS,
    Codes,
    Day,
    Origin,
    law_after_release,
    releasable_states,
    upper_bound,
)
from shoal.contexts.search.limits import Effort
from shoal.contexts.search.memory import (
    Remembering,
    certify_rise,
    history_digits,
    history_value,
)
from shoal.contexts.search.program import SegmentProgram, SegmentTask
from shoal.core.codec import Floats, Ints


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Constants that share linear programs out over the releases of a day."""

    most_nodes: int = 1500  # (slot, history, state) nodes of one program
    # tried in turn: the first that all segments can have
    nodes_tried: tuple[int, ...] = (1500, 700, 300, 140)
    seconds_per_node: float = 1e-3  # nominal, for equal answers of equal calls
    # parts of each bound given up in turn, until the rounded policy keeps its bounds
    margins: tuple[float, ...] = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
    # parts of the policy replaced by suppressing everything, which keeps bounds by more than
    # rounding
    mixes: tuple[float, ...] = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    near_optimum: float = 1e-7  # releases: a segment this near to its optimum is not improved
    optimal: float = 1e-6  # releases of a day: a plan this near to the optimum is called optimal


PROGRAMS = ProgramSettings()


@dataclass(frozen=True, slots=True)
class Histories:
    """The policies of all releases that can occur, and the mean number of releases of a day.

    No mechanism releases more than `expected + short` on average: by the duals of the programs
    when each covers its segment, or because no more may be released at all.
    """

    policies: dict[Origin, Remembering]
    digits: Ints
    expected: float
    short: float

    @property
    def exact(self) -> bool:
        """Return whether this is the optimum, to 1e-6 releases."""
        return self.short <= PROGRAMS.optimal


def search_windows(
    day: Day,
    delta: float,
    base: dict[Origin, Codes],
    *,
    programs: int,
    nodes: int = PROGRAMS.most_nodes,
    work: float | Effort = np.inf,
) -> Histories:
    """Return the better of `base` and a linear program for each segment, backwards in time.

    `base` gives each release its table without memory, a private one. At most `programs` segments,
    the likeliest ones, get a program, and none once the clock of `work`, if any, has run out.
    """
    effort = Effort.of(work)
    digits = history_digits(day)
    releasable = releasable_states(day, day.future)
    all_shown = int(releasable.sum())
    if effort.clock is not None:  # what `base` did not evaluate is not evaluated now
        looked = np.zeros_like(releasable)
        for slot, state in base:
            looked[slot, state] |= slot >= 0
        releasable &= looked
    origins = list(releases_backward(releasable))
    likely = sorted(origins, key=lambda o: -day.prior[o] if o[0] >= 0 else -2.0)[:programs]
    chosen = set(likely)
    value = np.zeros((day.slots, day.size))
    short = np.zeros((day.slots, day.size))  # what later releases lack of their optimum
    policies: dict[Origin, Remembering] = {}
    complete = len(chosen) == len(origins) and all_shown == releasable.sum()
    for origin in origins:
        slot = origin[0]
        tail = base.get(origin, np.full((0, day.size), COIN_LEVELS - 1, dtype=np.uint16))
        plan, most = Remembering((), tail), np.inf
        best = value_of_table(day, origin, tail, value)
        timely = origin in chosen and not effort.late()
        window = fitting_window(day, slot, digits, nodes)[0] if timely else 0
        if window == day.slots - 1 - slot:
            most = 0.0  # of the last slot, after which nothing is released
        if window:
            given = SegmentTask(day, delta, origin, tail, digits, value, releasable)
            found = solve_segment(given, window, effort.seconds())
            most = most + found.most
            if found.plan is not None and found.value > best:
                plan, best = found.plan, found.value
        lack = max(0.0, most - best) + _later_lack(day, origin, short)
        if slot >= 0:
            value[origin], short[origin] = best, lack
        if plan.codes or (plan.tail < COIN_LEVELS - 1).any():
            policies[origin] = plan
    lack = min(lack if complete else np.inf, upper_bound((day,)) - best)
    return Histories(policies, digits, best, lack)


def certified_value(given: SegmentTask, plan: Remembering) -> float | None:
    """Return the expected releases of a policy; None unless it certainly keeps its bounds.

    `certified` decides, in directed rounding.
    """
    day, origin, digits = given.day, given.origin, given.digits
    if certify_rise(day, origin, plan, digits)[0] > math.nextafter(given.delta, 0.0):
        return None
    return history_value(day, origin, plan, given.value, digits)


def _later_lack(day: Day, origin: Origin, short: Floats) -> float:
    """Return how far the releases after one are from their optimum; at most the largest of any."""
    slot, law, total = origin[0], law_after_release(day, origin), 0.0
    for t in range(slot + 1, day.slots):
        some = (short[t] > 0) & (law > 0)
        total += float(law[some] @ short[t][some])
        law = law @ day.moves[t]
    return min(total, float(short[slot + 1 :].max(initial=0.0)))


def affordable_programs(day: Day, seconds: float) -> tuple[int, int]:
    """Return how many programs to solve, and their nodes, within some nominal seconds.

    The largest programs that all segments can have; when not even small ones fit, small ones for
    the likeliest segments. A node counts a millisecond, so that equal calls give equal answers.
    """
    digits = history_digits(day)
    releasable = releasable_states(day, day.future)
    slots = [-1, *np.argwhere(releasable)[:, 0].tolist()]
    for nodes in PROGRAMS.nodes_tried:
        sizes = {slot: fitting_window(day, slot, digits, nodes)[1] for slot in set(slots)}
        if sum(PROGRAMS.seconds_per_node * sizes[slot] for slot in slots) <= seconds:
            return len(slots), nodes
    return max(
        1, int(seconds / (PROGRAMS.seconds_per_node * PROGRAMS.nodes_tried[-1]))
    ), PROGRAMS.nodes_tried[-1]


def fitting_window(day: Day, slot: int, digits: Ints, most: int) -> tuple[int, int]:
    """Return the longest window after `slot` with at most `most` nodes, and its nodes."""
    base = int(digits.max()) + 1
    window = nodes = 0
    while window < day.slots - 1 - slot and nodes + base**window * day.size <= most:
        nodes += base**window * day.size
        window += 1
    return window, nodes


@dataclass(frozen=True, slots=True)
class SolvedWindow:
    """A policy that passed, or None; its expected releases; and what no policy exceeds."""

    plan: Remembering | None
    value: float
    most: float


def solve_segment(given: SegmentTask, window: int, seconds: float = np.inf) -> SolvedWindow:
    """Return the best policy of the linear program that, rounded, certainly keeps its bounds.

    More and more of the bounds and of the policy is given up, until one passes and no more than
    that could be gained.
    """
    program = SegmentProgram(given, window, seconds)
    best, most = SolvedWindow(None, -1.0, np.inf), np.inf
    for margin in PROGRAMS.margins:
        solution = program.solve(margin)
        if solution is None:
            continue
        most = min(most, solution.most)
        for mix in PROGRAMS.mixes:
            plan = Remembering(program.tables(solution, margin, mix), given.tail)
            if (reached := certified_value(given, plan)) is not None:
                if reached > best.value:
                    best = SolvedWindow(plan, reached, most)
                break
        if most - best.value <= max(PROGRAMS.near_optimum, margin):
            break
    if most == np.inf:  # bounds that are met exactly leave nothing to give up
        exact = program.solve(None)
        most = np.inf if exact is None else exact.most
    return SolvedWindow(best.plan, best.value, most)
