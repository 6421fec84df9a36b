"""The adaptive check: suppression that depends on the last release. Proof: mask_adaptive.md."""

from __future__ import annotations

from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.loss.suppression_adaptive import adaptive
from shoal.mechanisms import mask_task
from shoal.mechanisms.mask_machine import SegmentMask
from shoal.mechanisms.mask_probabilistic import vector
from shoal.mechanisms.row import Mechanism

NAME = "mask-adaptive"
REASON = (
    "given a release the future is independent of the past, so each stretch between releases "
    "was made private on its own (mask_adaptive.md)"
)


def calibrate(task: Task, delta: Fraction, *, seconds: float = mask_task.SECONDS) -> Plan:
    """The best policy found for each stretch, backwards in time; never below the hybrid check."""
    day, _ = mask_task.parts(task)
    measured = mask_task.arrays(task, delta)
    baseline = vector(measured, seconds / 4)
    found = adaptive(measured, float(delta), baseline=baseline, work=seconds * mask_task.SPEED)
    body = SegmentMask.of(day.states, day.slots, found.hidden)
    return mask_task.mask_plan(task, NAME, delta, body, found.expected, REASON)


ROW = Mechanism(NAME, mask_task.refuse, calibrate, mask_task.loss)
