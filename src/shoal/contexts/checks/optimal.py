"""The optimal check: the most releases of any causal way to show or suppress, where it fits.

Proof: mask_optimal.md.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.additive.plans import Mechanism
from shoal.contexts.checks import adaptive, hybrid as mask_hybrid, search_budget, task as mask_task
from shoal.contexts.checks.probabilistic import vector_of
from shoal.contexts.machine import HistoryMask
from shoal.contexts.search.beliefs import Day
from shoal.contexts.search.pacing import LOOKS, SPEED, Effort, look_costs
from shoal.contexts.search.window import affordable, windowed
from shoal.core.codec import Floats
from shoal.core.plan import Plan
from shoal.core.task import Task

NAME = "mask-optimal"
BASE, PROGRAMS = 0.7, 0.9  # of the time left, for the tables without memory and for the programs
EXACT = "linear programs over all causal ways to show or suppress, solved for every segment"
PARTLY = (
    "linear programs with a memory of the first slots of a segment, a table without memory after"
)


def calibrate(task: Task, delta: Fraction) -> Plan:
    """The better of the adaptive check and a linear program, for each stretch between releases.

    The optimum over all mechanisms when every program covers its segment (the certificate says
    so); never below the adaptive check, whose time is taken first. Long days get smaller programs,
    and when time is short only their likeliest releases do. When a time limit ends the search, the
    hybrid plan takes its place.
    """
    effort = search_budget.turn_of(NAME)
    measured = mask_task.arrays(task, delta)
    baseline = vector_of(task, delta, (measured,), effort.part(adaptive.VECTOR))
    if effort.clock is None:
        return _optimal(task, delta, measured, baseline, effort)
    hybrid = mask_hybrid.of_vector(task, delta, (measured,), baseline)
    return mask_hybrid.or_more(
        hybrid, lambda: _optimal(task, delta, measured, baseline, effort), NAME
    )


def _optimal(task: Task, delta: Fraction, day: Day, baseline: Floats, effort: Effort) -> Plan:
    base = adaptive.base_of(task, delta, day, baseline, effort.part(BASE))
    rest = effort.without(LOOKS * look_costs(base, day.slots, day.size).sum()).part(PROGRAMS)
    programs, nodes = affordable(day, rest.work / SPEED)
    found = windowed(day, float(delta), base, programs=programs, nodes=nodes, work=rest)
    body = HistoryMask.of(mask_task.contexts_of(task), day.slots, found.policies, found.digits)
    reason = f"{EXACT if found.exact else PARTLY} (mask_optimal.md)"
    return mask_task.mask_plan(task, NAME, delta, body, found.expected, reason)


ROW = Mechanism(
    NAME, mask_task.refuse_families, calibrate, mask_task.loss, mask_task.promise, mask_task.rules
)
