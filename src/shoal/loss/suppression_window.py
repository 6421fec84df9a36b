"""The best policy with a memory of sensitive visits, segment by segment: linear programs.

In masses r(t, j, h) shown and u(t, j, h) suppressed, r + u = Σ u before · moves, the expected
number of releases is linear, and so is every bound: Σ_{h ∋ c} r(t, j, h) ≤ b(c) Σ_h r(t, j, h).
Solved backwards in time this is the optimum over all causal ways to show or suppress, when the
window covers the segment; a shorter window ends in a table without memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import LEVELS, Codes, Day, Truths, future_beliefs, releasable
from shoal.loss.suppression_adaptive import Origin, backwards, table_value
from shoal.loss.suppression_effort import Effort
from shoal.loss.suppression_history import Remembering, digits_of, history_rise, history_value
from shoal.loss.suppression_program import Program

MOST_NODES = 1500  # (slot, history, state) nodes of one program
NODES = (MOST_NODES, 700, 300, 140)
PER_NODE = 1e-3  # nominal seconds
# what is given up until the rounded policy keeps its bounds: a part of each bound, and of the
# policy itself for the table without memory, which keeps them by more than rounding
MARGINS = ((1e-7, 0.0), (1e-5, 1e-4), (1e-3, 1e-2), (1e-2, 1e-1))


@dataclass(frozen=True, slots=True)
class Histories:
    """The policies of all releases that can occur, and the mean number of releases of a day.

    `exact` says that every segment was solved with a window that covers it.
    """

    policies: dict[Origin, Remembering]
    digits: Ints
    expected: float
    exact: bool


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
    policies: dict[Origin, Remembering] = {}
    exact = len(chosen) == len(origins) and all_shown == shown.sum()
    for origin in origins:
        slot = origin[0]
        tail = base.get(origin, np.full((0, day.size), LEVELS - 1, dtype=np.uint16))
        plan = Remembering((), tail)
        best = table_value(day, origin, tail, value)
        timely = origin in chosen and not effort.late()
        window = fitting_window(day, slot, digits, nodes) if timely else 0
        exact = exact and window == day.slots - 1 - slot
        if window:
            seconds = effort.seconds()
            found = solved(day, delta, origin, tail, window, digits, value, shown, seconds)
            reached = -1.0 if found is None else history_value(day, origin, found, digits, value)
            if found is not None and reached > best:
                plan, best = found, reached
        if slot >= 0:
            value[origin] = best
        if plan.codes or (plan.tail < LEVELS - 1).any():
            policies[origin] = plan
    return Histories(policies, digits, best, exact)


def _among(base: dict[Origin, Codes], shape: tuple[int, ...]) -> Truths:
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


def solved(
    day: Day,
    delta: float,
    origin: Origin,
    tail: Codes,
    window: int,
    digits: Ints,
    value: Floats,
    shown: Any,
    seconds: float = np.inf,
) -> Remembering | None:
    """The policy of the linear program, rounded and checked; None when none passes in time."""
    program = Program(day, origin, tail, window, digits, value, shown, seconds)
    for margin, mix in MARGINS:
        codes = program.solve(margin, mix)
        if codes is None:
            continue
        plan = Remembering(codes, tail)
        if history_rise(day, origin, plan, digits, delta) <= delta * (1 + 5e-13):
            return plan
    return None
