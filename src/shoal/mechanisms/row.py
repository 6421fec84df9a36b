"""A mechanism is a row of pure functions; a plan is what a row makes of a task."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from shoal.core.plan import Plan
from shoal.core.task import Task


class Mechanism(NamedTuple):
    """One row of the table.

    `refuse` is quick and looks only at the shape of the task; `calibrate` may still raise
    `Refused` when its own computation shows that no finite noise is enough. `amount` is epsilon,
    or delta for contexts. `loss` re-evaluates the promise of a finished plan in the same unit,
    from the plan alone. `notion` is what its proved plans promise, None for the notion the secrets
    ask for; a row that only repeats a published claim has `proves` False.
    """

    name: str
    refuse: Callable[[Task], str | None]
    calibrate: Callable[[Task, Fraction], Plan]
    loss: Callable[[Plan], float]
    notion: str | None = None
    proves: bool = True

    def may_say(self, plan: Plan) -> bool:
        """Whether the guarantee of `plan` says no more than a row like this one proves."""
        notion = self.notion or plan.task.secrets.notion
        return not plan.guarantee.proved or (self.proves and plan.guarantee.notion == notion)
