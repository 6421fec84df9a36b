"""K-norm noise shaped by the policy: the planar isotropic mechanism. Proof: location_knorm.md."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms import location_task
from shoal.mechanisms.row import Mechanism

NAME = "location-knorm"
NOISE = "k-norm"
REASON = (
    "lattice K-norm noise under the sensitivity hull of the repaired policy (the planar isotropic "
    "mechanism is this very distribution: its transform changes nothing)"
)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """P(z | s) ∝ exp(-ε |z - f(s)|_K) on the lattice, K the hull of the policy at each step.

    Xiao & Xiong 2016, Definition 3.3 and Theorem 6.2; Xiao 2017, Algorithm 2 (PIM).
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
