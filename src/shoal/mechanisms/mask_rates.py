"""How often each context is shown at each slot, exactly, and why it is not shown more often."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.plan import Plan
from shoal.core.value import Floats
from shoal.loss.suppression import Day, decoded, jointly_releasable
from shoal.loss.suppression_adaptive import Origin, full, simulatable_segments
from shoal.loss.suppression_history import Remembering, fine_decoded, flow
from shoal.mechanisms.mask_machine import SegmentMask, VectorMask
from shoal.mechanisms.mask_machine_history import HistoryMask
from shoal.mechanisms.mask_machine_simulatable import SimulatableMask
from shoal.mechanisms.mask_task import arrays, days_of, machine_states


def shown_rates(plan: Plan) -> Floats:
    """r[t, j] = P(X_t = j and the plan shows it); its sum is the expected number of releases.

    Under the first chain of a family.
    """
    order = machine_states(plan.body)
    day = arrays(plan.task, plan.guarantee.amount, states=order)
    return _rates(day, plan.body)[:, [order.index(name) for name in plan.task.query.states]]


def _rates(day: Day, body: Any) -> Floats:
    match body:
        case VectorMask():
            return np.asarray(day.prior * (1.0 - decoded(body.codes)))
        case SegmentMask():
            return _followed(day, body.policies())
        case SimulatableMask():
            return _followed(day, simulatable_segments(day, body.table).hidden)
        case HistoryMask():
            return _followed(day, body.policies(), digits=body.digits)
    raise TypeError(f"no way is known to follow a {type(body).__name__}")


def reasons(plan: Plan) -> list[list[str]]:
    """For each slot and context why it is not always shown: "" where it is.

    "impossible", "sensitive", "tells what follows" (showing it would raise a later belief by
    itself), or "hides others" (it is suppressed so that suppression does not tell).
    """
    names = plan.task.query.states
    days = days_of(plan.task, plan.guarantee.amount, states=names)
    day, open_to = days[0], jointly_releasable(days)
    rates = shown_rates(plan)
    secret = np.zeros((day.slots, day.size), dtype=np.bool_)
    secret[day.when, day.who] = True
    return [
        [_reason(day, rates, secret, open_to, t, j) for j in range(day.size)]
        for t in range(day.slots)
    ]


def _reason(day: Day, rates: Floats, secret: Any, open_to: Any, t: int, j: int) -> str:
    if not day.possible[t, j]:
        return "impossible"
    if secret[t, j]:
        return "sensitive"
    if not open_to[t, j]:
        return "tells what follows"
    return "" if rates[t, j] >= day.prior[t, j] * (1 - 1e-9) else "hides others"


def _followed(day: Day, policies: dict[Origin, Any], digits: Any = None) -> Floats:
    """Release masses, from "start" on: each release hands its mass to its own segment."""
    rates = np.zeros((day.slots, day.size))
    for slot in range(-1, day.slots):
        for state in range(day.size if slot >= 0 else 1):
            mass = 1.0 if slot < 0 else rates[slot, state]
            plan = policies.get((slot, state))
            if mass > 0 and plan is not None:
                _add_segment(day, (slot, state), plan, digits, mass, rates)
    return rates


def _add_segment(
    day: Day, origin: Origin, plan: Any, digits: Any, mass: float, rates: Floats
) -> None:
    slot, state = origin
    begin = slot + 1
    if isinstance(plan, Remembering):
        arriving = flow(day, slot, state, plan, digits)
        for k, codes in enumerate(plan.codes):
            rates[slot + 1 + k] += mass * (arriving[k] * (1 - fine_decoded(codes))).sum(axis=0)
        begin, law, codes_after = begin + len(plan.codes), arriving[-1].sum(axis=0), plan.tail
    else:
        law, codes_after = (day.initial if slot < 0 else day.moves[slot, state]), plan
    hidden = full(day, slot, {origin: codes_after}, state)
    for t in range(begin, day.slots):
        rates[t] += mass * law * (1.0 - hidden[t])
        law = (law * hidden[t]) @ day.moves[t]
