"""Laplace noise on every coordinate of a stream, for comparison. Proof: location_laplace.md."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms import location_task
from shoal.mechanisms.row import Mechanism

NAME = "location-laplace"
NOISE = "laplace"
REASON = (
    "discrete Laplace noise of scale S/ε on each coordinate, S the l1 sensitivity of the repaired "
    "policy: K-norm noise whose body is the cross-polytope of radius S"
)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Independent noise exp(-ε |z_i - f_i(s)| / S); the cross-polytope decides who is exposed.

    Xiao & Xiong 2016, Theorem 5.1; with the body of the noise in force, as Theorem 5.2 needs.
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
