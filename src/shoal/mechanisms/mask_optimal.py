"""The optimal check: the most releases of any causal way to show or suppress, where it fits.

Proof: mask_optimal.md.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.loss.suppression_adaptive import search
from shoal.loss.suppression_window import affordable, windowed
from shoal.mechanisms import mask_task
from shoal.mechanisms.mask_machine_history import HistoryMask
from shoal.mechanisms.mask_probabilistic import vector
from shoal.mechanisms.row import Mechanism

NAME = "mask-optimal"
EXACT = "linear programs over all causal ways to show or suppress, solved for every segment"
PARTLY = (
    "linear programs with a memory of the first slots of a segment, a table without memory after"
)


def calibrate(task: Task, delta: Fraction, *, seconds: float | None = None) -> Plan:
    """The better of the adaptive check and a linear program, for each stretch between releases.

    The optimum over all mechanisms when every program covers its segment (the certificate says
    so); never below the adaptive check, whose time is taken first; programs get half as much.
    Long days get smaller programs, and when time is short only their likeliest releases do.
    """
    seconds = mask_task.seconds_for(NAME) if seconds is None else seconds
    measured = mask_task.arrays(task, delta)
    baseline = vector((measured,), seconds / 4)
    base = search(measured, float(delta), baseline=baseline, work=seconds * mask_task.SPEED)
    programs, nodes = affordable(measured, seconds / 2)
    found = windowed(measured, float(delta), base, programs=programs, nodes=nodes)
    body = HistoryMask.of(mask_task.contexts_of(task), measured.slots, found.policies, found.digits)
    reason = f"{EXACT if found.exact else PARTLY} (mask_optimal.md)"
    return mask_task.mask_plan(task, NAME, delta, body, found.expected, reason)


ROW = Mechanism(NAME, mask_task.refuse_families, calibrate, mask_task.loss)
