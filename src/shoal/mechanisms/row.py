"""A mechanism is a row of pure functions; a plan is what a row makes of a task."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from shoal.core.composition import Composition
from shoal.core.guarantee import Guarantee
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms.additive import entry_rules, pufferfish


class Mechanism(NamedTuple):
    """One row of the table.

    `refuse` is quick and looks only at the shape of the task; `calibrate` may still raise
    `Refused` when its own computation shows that no finite noise is enough. `amount` is epsilon,
    or delta for contexts. `loss` re-evaluates the promise of a finished plan in the same unit,
    from its task and what it draws. `promise` is what a plan of this row may say for a task and an
    amount, and `rules` the theorems that add it to others, from its task and what it draws: nothing
    a plan says about itself is believed.
    """

    name: str
    refuse: Callable[[Task], str | None]
    calibrate: Callable[[Task, Fraction], Plan]
    loss: Callable[[Plan], float]
    promise: Callable[[Task, Fraction], Guarantee] = pufferfish
    rules: Callable[[Plan], tuple[Composition, ...]] = entry_rules
