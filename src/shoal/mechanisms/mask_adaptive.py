"""The adaptive check: suppression that depends on the last release. Proof: mask_adaptive.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Floats
from shoal.loss.suppression import Day
from shoal.loss.suppression_adaptive import adaptive
from shoal.loss.suppression_family import family_search, family_verified
from shoal.mechanisms import mask_hybrid, mask_task
from shoal.mechanisms.mask_machine import SegmentMask
from shoal.mechanisms.mask_probabilistic import vector
from shoal.mechanisms.row import Mechanism

NAME = "mask-adaptive"
REASON = (
    "given a release the future is independent of the past, so each stretch between releases "
    "was made private on its own (mask_adaptive.md)"
)


def calibrate(task: Task, delta: Fraction, *, seconds: float | None = None) -> Plan:
    """The best policy found for each stretch, backwards in time; never below the hybrid check."""
    seconds = mask_task.seconds_for(NAME) if seconds is None else seconds
    days = mask_task.days_of(task, delta)
    baseline = vector(days, seconds / 4)
    work = seconds * mask_task.SPEED
    if len(days) > 1:
        return _for_family(task, delta, days, baseline, work)
    found = adaptive(days[0], float(delta), baseline=baseline, work=work)
    body = SegmentMask.of(mask_task.contexts_of(task), days[0].slots, found.hidden)
    return mask_task.mask_plan(task, NAME, delta, body, found.expected, REASON)


def _for_family(
    task: Task, delta: Fraction, days: Sequence[Day], baseline: Floats, work: float
) -> Plan:
    """Private under every member. Its search looks at their mean, so the hybrid may be better."""
    policies = family_search(
        days, float(delta), baseline=baseline, table=mask_task.marked(days), work=work
    )
    found = family_verified(days, float(delta), policies)
    body = SegmentMask.of(mask_task.contexts_of(task), days[0].slots, found.hidden)
    plan = mask_task.mask_plan(task, NAME, delta, body, found.expected, REASON)
    hybrid = mask_hybrid.of_vector(task, delta, days, baseline)
    return replace(hybrid, mechanism=NAME) if hybrid.cost < plan.cost else plan


ROW = Mechanism(NAME, mask_task.refuse, calibrate, mask_task.loss)
