"""The beliefs of somebody who knows a plan, for many outputs of it.

The same as `shoal.contexts.attack.context_beliefs`, with what follows a release looked up once.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from shoal.contexts.attack import Output, beliefs_between, suppression_after
from shoal.contexts.checks.task import first_day, machine_states
from shoal.contexts.machine import HistoryMask
from shoal.contexts.search.beliefs import START
from shoal.core.codec import Floats, Ints
from shoal.core.plan import Plan


class Adversary:
    """One who knows the chain and the plan."""

    def __init__(self, plan: Plan) -> None:
        body, order = plan.body, machine_states(plan.body)
        self.day = first_day(plan.task, plan.guarantee.amount, states=order)
        self.index = {name: place for place, name in enumerate(order)}
        self.turn = [self.index[name] for name in plan.task.query.states]
        self.after = lru_cache(maxsize=None)(partial(suppression_after, body))
        plain = np.zeros(self.day.size, dtype=np.int64)
        self.digits: Ints = body.digits if isinstance(body, HistoryMask) else plain

    def beliefs(self, output: Output) -> Floats:
        """P(X_t = j | output); refused when the output cannot occur under the chain."""
        day, origin = self.day, START
        found = np.zeros((day.slots, day.size))
        releases = [(t, self.index[c]) for t, c in enumerate(output) if c is not None]
        for slot, state in [*releases, (day.slots, 0)]:
            hidden = self.after(origin)
            found[origin[0] + 1 : slot] = beliefs_between(
                day, origin, slot, state, hidden, self.digits
            )
            if slot < day.slots:
                found[slot, state] = 1.0
                origin = (slot, state)
        return found[:, self.turn]
