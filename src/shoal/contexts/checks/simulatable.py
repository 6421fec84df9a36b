"""The simulatable check: when to show is decided before the context is looked at.

Proof: mask_simulatable.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from shoal.additive.plans import Mechanism
from shoal.contexts.checks import search_budget, task as mask_task
from shoal.contexts.machine import SimulatableMask
from shoal.contexts.search.adaptive import simulatable_segments
from shoal.contexts.search.beliefs import Day
from shoal.core.codec import Ints
from shoal.core.plan import Plan
from shoal.core.task import Task

NAME = "mask-simulatable"
REASON = (
    "a slot is shown only when no state it could hold would breach a bound, so the decision "
    "itself tells nothing (Götz, Nath & Gehrke 2012, Theorem 4)"
)

TABLE = 0.3  # of its time, if it has a limit; the rest is for looking at the plan


def calibrate(task: Task, delta: Fraction) -> Plan:
    """The slot of the next release after each release, for every release that can occur.

    `LiveSimulatable` runs the same check without the table, for streams that must start at once.
    """
    search_budget.turn_of(NAME)  # refused when others used up the time
    return plan_of(task, delta)


def plan_of(task: Task, delta: Fraction) -> Plan:
    """The plan, whosever turn it is."""
    days = mask_task.days_of(task, delta)
    table = table_of(task, delta, days)
    releases = min(simulatable_segments(one, table).expected for one in days)
    body = SimulatableMask(mask_task.contexts_of(task), table)
    return mask_task.mask_plan(task, NAME, delta, body, releases, REASON)


def table_of(task: Task, delta: Fraction, days: Sequence[Day]) -> Ints:
    """The slots of the next releases; where time ran out, what follows is suppressed."""
    return search_budget.shared(
        (task, delta, "next releases"),
        lambda: mask_task.marked(days, search_budget.effort_for(NAME).part(TABLE)),
    )


ROW = Mechanism(
    NAME, mask_task.refuse, calibrate, mask_task.loss, mask_task.promise, mask_task.rules
)
