"""The probabilistic check: one suppression probability per slot and context.

Proof: mask_probabilistic.md.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Floats
from shoal.loss.suppression import (
    LEVELS,
    Day,
    encoded,
    future_beliefs,
    releasable,
    released_fraction,
)
from shoal.loss.suppression_greedy import Grid, best_of, best_on_grid, orders
from shoal.mechanisms import mask_task
from shoal.mechanisms.mask_machine import VectorMask
from shoal.mechanisms.row import Mechanism

NAME = "mask-probabilistic"
REASON = (
    "every output (release, suppressed …, release) was checked, and privacy is monotone in the "
    "probabilities (Götz, Nath & Gehrke 2012, Theorems 1 and 2)"
)
STEPS = (10, 5, 20)  # a finer grid is not better: what one coordinate takes, others lose
RESTARTS = 6
SMALL = 4  # releasable coordinates up to which the grid is searched exhaustively


def calibrate(task: Task, delta: Fraction, *, seconds: float = mask_task.SECONDS) -> Plan:
    """The best of several greedy searches: orders of coordinates times grids of levels."""
    day, _ = mask_task.parts(task)
    measured = mask_task.arrays(task, delta)
    hidden = vector(measured, seconds)
    return mask_task.mask_plan(
        task,
        NAME,
        delta,
        VectorMask(day.states, encoded(hidden)),
        released_fraction(measured, hidden),
        REASON,
    )


def vector(day: Day, seconds: float) -> Floats:
    """Private suppression probabilities on multiples of 1/65536."""
    grids = [Grid(order, _levels(steps)) for steps, order in product(STEPS, orders(day, RESTARTS))]
    found = best_of(day, grids, work=seconds * mask_task.SPEED / len(grids))
    if releasable(day, future_beliefs(day)).sum() <= SMALL:
        exact = best_on_grid(day, _levels(STEPS[0]).tolist())
        if released_fraction(day, exact) > released_fraction(day, found):
            return exact
    return found


def _levels(steps: int) -> Floats:
    """0, 1/steps, …, 1, rounded up to multiples of 1/65536."""
    return np.ceil(np.arange(steps + 1) / steps * LEVELS) / LEVELS


ROW = Mechanism(NAME, mask_task.refuse, calibrate, mask_task.loss)
