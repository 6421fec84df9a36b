"""What an adversary believes who sees everything an application may: from public outputs alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.contexts.audit.events import UNREAD, slot_beliefs
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.gateway.machines import SHOWN, SUPPRESSED, day_of
from shoal.places.packed import from_bytes

MOST = 400  # places told of a heat map, the likeliest


def heat_map(plan: Plan, state: bytes) -> list[dict[str, Any]]:
    """The probability of each place after the last closed step, the likeliest first."""
    model: Any = plan.task.family[0]
    belief = np.asarray(from_bytes(state).state.belief, np.float64)
    names = plan.task.query.states
    law = belief.reshape(-1, len(names)).sum(axis=0) if len(belief) != len(names) else belief
    law = law / law.sum()
    grid, cells = getattr(model, "grid", None), getattr(model, "cells", None)
    found = []
    for place in np.argsort(-law)[:MOST].tolist():
        told: dict[str, Any] = {"state": names[place], "belief": float(law[place])}
        if grid is not None and cells is not None:
            lat, lon = grid.centre_of(cells[place]).tolist()
            told |= {"lat": lat, "lon": lon}
        found.append(told)
    return found


def context_curves(plan: Plan, statuses: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """P(X_t = s) before and after the outputs of a day so far, for every slot and context.

    `statuses` holds (status, context) of each closed slot of the day, from its first. A slot that
    is not read tells nothing. `after` is None where the model calls the outputs impossible.
    """
    day = day_of(plan)
    outputs = [shown if status in (SHOWN, SUPPRESSED) else UNREAD for status, shown in statuses]
    try:
        after: Any = slot_beliefs(plan, outputs).round(9).tolist()
    except InputError:
        after = None
    return {
        "contexts": list(day.states),
        "closed": len(statuses),
        "before": day.marginals().round(9).tolist(),
        "after": after,
    }
