"""The beliefs of somebody who knows a plan, for many outputs of it.

The same as `shoal.attacks.contexts.context_beliefs`, with what follows a release looked up once.
"""

from __future__ import annotations

import numpy as np

from shoal.attacks.contexts import Output, between
from shoal.core.plan import Plan
from shoal.core.value import Floats, Ints
from shoal.loss.suppression import Day, decoded
from shoal.loss.suppression_adaptive import Origin, simulatable_segments
from shoal.loss.suppression_history import fine_decoded
from shoal.mechanisms.mask_machine import SegmentMask, VectorMask
from shoal.mechanisms.mask_machine_history import HistoryMask
from shoal.mechanisms.mask_machine_simulatable import SimulatableMask
from shoal.mechanisms.mask_task import arrays, machine_states


class Adversary:
    """One who knows the chain and the plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.order = plan, machine_states(plan.body)
        self.day = arrays(plan.task, plan.guarantee.amount, states=self.order)
        self.index = {name: place for place, name in enumerate(self.order)}
        self.turn = [self.index[name] for name in plan.task.query.states]
        self.tables = _tables(plan.body, self.day)
        body = plan.body
        plain = np.zeros(self.day.size, dtype=np.int64)
        self.digits: Ints = body.digits if isinstance(body, HistoryMask) else plain

    def beliefs(self, output: Output) -> Floats:
        """P(X_t = j | output); refused when the output cannot occur under the chain."""
        day = self.day
        found = np.zeros((day.slots, day.size))
        origin: Origin = (-1, 0)
        releases = [(t, self.index[c]) for t, c in enumerate(output) if c is not None]
        for slot, state in [*releases, (day.slots, 0)]:
            hidden = self._after(origin)
            found[origin[0] + 1 : slot] = between(day, origin, slot, state, hidden, self.digits)
            if slot < day.slots:
                found[slot, state] = 1.0
                origin = (slot, state)
        return found[:, self.turn]

    def _after(self, origin: Origin) -> list[Floats]:
        """The probabilities of the slots after a release, each (histories, states)."""
        day, slot = self.day, origin[0]
        if isinstance(self.plan.body, VectorMask):
            return [row[None, :] for row in decoded(self.plan.body.codes)[slot + 1 :]]
        windows, rows = self.tables.get(origin, ([], np.ones((0, day.size))))
        tail = np.ones((day.slots - 1 - slot, day.size))
        tail[: len(rows)] = rows
        return [*windows, *(row[None, :] for row in tail[len(windows) :])]


def _tables(body: object, day: Day) -> dict[Origin, tuple[list[Floats], Floats]]:
    """What follows each release: tables with a memory, and the table without one."""
    match body:
        case SegmentMask():
            return {o: ([], decoded(codes)) for o, codes in body.policies().items()}
        case SimulatableMask():
            hidden = simulatable_segments(day, body.table).hidden
            return {origin: ([], decoded(codes)) for origin, codes in hidden.items()}
        case HistoryMask():
            return {
                origin: ([fine_decoded(codes) for codes in plan.codes], decoded(plan.tail))
                for origin, plan in body.policies().items()
            }
    return {}
