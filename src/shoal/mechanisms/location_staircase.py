"""Staircase noise shaped by the policy, for larger epsilon. Proof: location_staircase.md."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms import location_task
from shoal.mechanisms.row import Mechanism

NAME = "location-staircase"
NOISE = "staircase"
REASON = (
    "staircase noise under the norm of the sensitivity hull of the repaired policy; states that "
    "are not joined are protected in whole steps of epsilon, less than by K-norm noise"
)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """P(z | s) ∝ exp(-ε ⌊|z - f(s)|_K + 1 - width⌋), the width of least error.

    Worth it from ε = 2 on: 5 % less squared error there, 27 % at 4.
    """
    return location_task.location_plan(task, NAME, epsilon, NOISE, REASON)


ROW = Mechanism(
    NAME,
    location_task.refuse,
    calibrate,
    partial(location_task.loss, noise=NOISE),
    location_task.promise,
    location_task.rules,
)
