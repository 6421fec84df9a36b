"""The hybrid check: the better of the probabilistic and the simulatable one.

Proof: mask_hybrid.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from shoal.additive.plans import Mechanism
from shoal.contexts.checks import (
    probabilistic as mask_probabilistic,
    search_budget,
    simulatable as mask_simulatable,
    task as mask_task,
)
from shoal.contexts.search.beliefs import Day
from shoal.contexts.search.pacing import OutOfTime
from shoal.core.codec import Floats
from shoal.core.plan import Plan
from shoal.core.task import Task

NAME = "mask-hybrid"
VECTOR = 0.6  # of its time for the probabilities


def calibrate(task: Task, delta: Fraction) -> Plan:
    """Whichever of the two shows more on average; the simulatable one when they tie.

    Götz, Nath & Gehrke 2012, Section 5.1 and Theorem 5.
    """
    days = mask_task.days_of(task, delta)
    effort = search_budget.turn_of(NAME).part(VECTOR)
    return of_vector(task, delta, days, mask_probabilistic.vector_of(task, delta, days, effort))


def of_vector(task: Task, delta: Fraction, days: Sequence[Day], hidden: Floats) -> Plan:
    """The better of the simulatable check and the probabilistic one with these probabilities."""
    simulatable = mask_simulatable.plan_of(task, delta)
    probabilistic = mask_probabilistic.of_vector(task, delta, days, hidden)
    better = probabilistic if probabilistic.cost < simulatable.cost else simulatable
    return replace(better, mechanism=NAME)


def or_more(hybrid: Plan, find: Callable[[], Plan], name: str) -> Plan:
    """The plan `find` comes to; the hybrid one, as a plan of `name`, where that shows more.

    Also when the clock ended the search before there was anything to hand out.
    """
    try:
        plan = find()
    except OutOfTime:
        return replace(hybrid, mechanism=name)
    return replace(hybrid, mechanism=name) if hybrid.cost < plan.cost else plan


ROW = Mechanism(
    NAME, mask_task.refuse, calibrate, mask_task.loss, mask_task.promise, mask_task.rules
)
