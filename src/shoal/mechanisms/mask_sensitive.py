"""Suppress exactly the sensitive contexts: what people try first, kept for comparison."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.loss.suppression import breached_secrets, encoded, released_fraction
from shoal.mechanisms import mask_task
from shoal.mechanisms.mask_machine import VectorMask
from shoal.mechanisms.row import Mechanism

NAME = "mask-sensitive"
REASON = "none: the sensitive contexts are suppressed and nothing else, which bounds no belief"


def calibrate(task: Task, delta: Fraction) -> Plan:
    """Sensitive contexts always suppressed, all others always shown. Not private.

    Suppression itself tells ("suppressed means hospital"), and so do the contexts before and
    after. The certificate says how far a belief can rise and for how many secrets it does.
    Götz, Nath & Gehrke 2012, Section 1 and Figure 4.
    """
    day, secrets = mask_task.parts(task)
    measured = mask_task.arrays(task, delta, everything=True)
    hidden = np.where((secrets.shares(day) > 0) | ~measured.possible, 1.0, 0.0)
    breached = breached_secrets(measured, hidden, float(delta))
    return mask_task.mask_plan(
        task,
        NAME,
        delta,
        VectorMask(day.states, encoded(hidden)),
        released_fraction(measured, hidden),
        REASON,
        breached=breached,
        proved=False,
        caveat=f"{breached} of {len(measured.when)} sensitive (slot, context) pairs are breached",
    )


ROW = Mechanism(NAME, mask_task.refuse, calibrate, mask_task.loss)
