"""The hybrid check: the better of the probabilistic and the simulatable one.

Proof: mask_hybrid.md.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms import mask_probabilistic, mask_simulatable, mask_task
from shoal.mechanisms.row import Mechanism

NAME = "mask-hybrid"


def calibrate(task: Task, delta: Fraction, *, seconds: float = mask_task.SECONDS) -> Plan:
    """Whichever of the two shows more on average; the simulatable one when they tie.

    Götz, Nath & Gehrke 2012, Section 5.1 and Theorem 5.
    """
    simulatable = mask_simulatable.calibrate(task, delta)
    probabilistic = mask_probabilistic.calibrate(task, delta, seconds=seconds)
    better = probabilistic if probabilistic.cost < simulatable.cost else simulatable
    return replace(better, mechanism=NAME)


ROW = Mechanism(NAME, mask_task.refuse, calibrate, mask_task.loss)
