"""The probabilistic check: one suppression probability per slot and context.

Proof: mask_probabilistic.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from shoal.additive.plans import Mechanism
from shoal.contexts.checks import search_budget, task as mask_task
from shoal.contexts.machine import VectorMask
from shoal.contexts.search.beliefs import (
    LEVELS,
    Day,
    encoded,
    jointly_releasable,
    released_fraction,
)
from shoal.contexts.search.greedy import Grid, best_of, best_on_grid, orders
from shoal.contexts.search.pacing import Effort
from shoal.core.codec import Floats
from shoal.core.plan import Plan
from shoal.core.task import Task

NAME = "mask-probabilistic"
REASON = (
    "every output (release, suppressed …, release) was checked, and privacy is monotone in the "
    "probabilities (Götz, Nath & Gehrke 2012, Theorems 1 and 2)"
)
STEPS = (10, 5, 20)  # a finer grid is not better: what one coordinate takes, others lose
RESTARTS = 6
FLOORS = (0.0, 2.0**-16, 2.0**-8, 1.0)  # least probabilities of suppression, the last always safe
SMALL = 4  # releasable coordinates up to which the grid is searched exhaustively


def calibrate(task: Task, delta: Fraction) -> Plan:
    """The best of several greedy searches: orders of coordinates times grids of levels."""
    days = mask_task.days_of(task, delta)
    effort = search_budget.turn_of(NAME)
    return of_vector(task, delta, days, vector_of(task, delta, days, effort))


def of_vector(task: Task, delta: Fraction, days: Sequence[Day], hidden: Floats) -> Plan:
    """The plan that suppresses with the probabilities `hidden`."""
    body = VectorMask(mask_task.contexts_of(task), encoded(hidden))
    releases = min(released_fraction(day, hidden) for day in days)
    return mask_task.mask_plan(task, NAME, delta, body, releases, REASON)


def vector_of(task: Task, delta: Fraction, days: Sequence[Day], effort: Effort) -> Floats:
    """`vector`, found once for all checks inside one time limit, and looked at once more.

    The search subtracts: beside a state of mass 1 that is always shown, one of mass 1e-300 is lost
    to it. Raising probabilities is safe, and a suppression that the likely states share hides it.
    """

    def found() -> Floats:
        hidden = vector(days, effort)
        tried = (np.maximum(hidden, floor) for floor in FLOORS)
        return next(p for p in tried if mask_task.vector_keeps(task, delta, p))

    return search_budget.shared((task, delta, "vector"), found)


def vector(days: Sequence[Day], effort: Effort) -> Floats:
    """Private suppression probabilities on multiples of 1/65536, under each of `days`."""
    grids = [Grid(order, _levels(steps)) for steps, order in product(STEPS, orders(days, RESTARTS))]
    found = best_of(days, grids, work=effort)
    if jointly_releasable(days).sum() > SMALL:
        return found
    exact = best_on_grid(days, _levels(STEPS[0]).tolist())
    return max(found, exact, key=lambda hidden: min(released_fraction(d, hidden) for d in days))


def _levels(steps: int) -> Floats:
    """0, 1/steps, …, 1, rounded up to multiples of 1/65536."""
    return np.ceil(np.arange(steps + 1) / steps * LEVELS) / LEVELS


ROW = Mechanism(
    NAME, mask_task.refuse, calibrate, mask_task.loss, mask_task.promise, mask_task.rules
)
