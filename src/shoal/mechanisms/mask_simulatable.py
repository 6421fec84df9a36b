"""The simulatable check: when to show is decided before the context is looked at.

Proof: mask_simulatable.md.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.loss.suppression_adaptive import simulatable_segments
from shoal.mechanisms import mask_task
from shoal.mechanisms.mask_machine_simulatable import SimulatableMask
from shoal.mechanisms.row import Mechanism

NAME = "mask-simulatable"
REASON = (
    "a slot is shown only when no state it could hold would breach a bound, so the decision "
    "itself tells nothing (Götz, Nath & Gehrke 2012, Theorem 4)"
)


def calibrate(task: Task, delta: Fraction) -> Plan:
    """The slot of the next release after each release, for every release that can occur.

    `LiveSimulatable` runs the same check without the table, for streams that must start at once.
    """
    days = mask_task.days_of(task, delta)
    table = mask_task.marked(days)
    releases = min(simulatable_segments(one, table).expected for one in days)
    body = SimulatableMask(mask_task.contexts_of(task), table)
    return mask_task.mask_plan(task, NAME, delta, body, releases, REASON)


ROW = Mechanism(NAME, mask_task.refuse, calibrate, mask_task.loss)
