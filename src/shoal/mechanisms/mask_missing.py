"""One step of a suppression plan by somebody who may not have read every slot.

Proof: mask_missing.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from shoal.core.errors import InputError
from shoal.core.plan import Machine, Plan
from shoal.core.rng import Rng
from shoal.loss.suppression_missing import AfterGaps
from shoal.mechanisms.mask_machine import Mask, MaskState
from shoal.mechanisms.mask_task import days_of, machine_states


def advance(plan: Plan, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
    """The state after a slot, and the context or None; `observed` is None when it was not read.

    All that runs a plan through a day comes through here. That a slot was not read is taken for
    public: it must not depend on the contexts, given what was shown before.
    """
    body = plan.body
    if isinstance(body, Mask):
        return body.resume(state, observed, rng, lambda: _model(plan))
    if not isinstance(body, Machine):
        raise InputError(f"{plan.mechanism} makes single releases; use plan.release(data)")
    after: tuple[MaskState, str | None] = body.step(state, observed, rng)
    return after


@lru_cache(maxsize=8)
def _model(plan: Plan) -> AfterGaps:
    """The day chains of a plan and their secrets, prepared when a first slot is missing."""
    return AfterGaps(days_of(plan.task, plan.guarantee.amount, states=machine_states(plan.body)))
