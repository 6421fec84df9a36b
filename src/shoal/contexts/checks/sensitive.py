"""Suppress exactly the sensitive contexts: what people try first, kept for comparison."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from shoal.additive.plans import Mechanism
from shoal.contexts.checks import task as mask_task
from shoal.contexts.checks.task import members
from shoal.contexts.machine import VectorMask
from shoal.contexts.search.beliefs import breached_secrets, encoded, released_fraction
from shoal.core.plan import Plan
from shoal.core.task import Task

NAME = "mask-sensitive"
REASON = "none: the sensitive contexts are suppressed and nothing else, which bounds no belief"


def calibrate(task: Task, delta: Fraction) -> Plan:
    """Sensitive contexts always suppressed, all others always shown. Not private.

    Suppression itself tells ("suppressed means hospital"), and so do the contexts before and
    after. The certificate says how far a belief can rise and for how many secrets it does.
    Götz, Nath & Gehrke 2012, Section 1 and Figure 4.
    """
    day, secrets = members(task)[0], mask_task.parts(task)[1]
    days = mask_task.days_of(task, delta, everything=True)
    possible = np.any([measured.possible for measured in days], axis=0)
    hidden = np.where((secrets.shares(day) > 0) | ~possible, 1.0, 0.0)
    breached, measured = max(
        ((breached_secrets(one, hidden, float(delta)), one) for one in days),
        key=lambda pair: pair[0],
    )
    return mask_task.mask_plan(
        task,
        NAME,
        delta,
        VectorMask(day.states, encoded(hidden)),
        min(released_fraction(one, hidden) for one in days),
        REASON,
        breached=breached,
        proved=False,
        caveat=f"{breached} of {len(measured.when)} sensitive (slot, context) pairs are breached",
    )


ROW = Mechanism(
    NAME, mask_task.refuse, calibrate, mask_task.loss, mask_task.promise, mask_task.rules
)
