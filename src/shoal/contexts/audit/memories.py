"""What machines remember, as an observer of their outputs follows it.

Masses are (rows, memory, context): `condition_on` takes those before a slot to those after an
output of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.contexts.audit.sweep import FINE, ConstantRng, Tables, tables_of
from shoal.contexts.checks.task import days_of, machine_states
from shoal.contexts.machine import START, MaskState, SimulatableMask, Tabled
from shoal.contexts.online import OnlineMask
from shoal.contexts.search.beliefs import decoded
from shoal.contexts.search.gaps import AfterGaps
from shoal.contexts.stream import advance
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.events.filter import GRAIN, Held

Output = Sequence[str | None]


UNKNOWN_CONTEXT = "\0nowhere"  # a context no model knows: suppressed like any other


UNREAD = "\0unread"  # stands for a slot that was not read, in a list of outputs


class TableMemory:
    """The machine memory of table machines: the history of visits since the last release."""

    def __init__(self, plan: Plan, tables: Tables) -> None:
        self.plan, self.tables, self.states = plan, tables, tables.states
        self.state: MaskState = START
        self.base = int(tables.digits.max(initial=0)) + 1
        self.rows: dict[tuple[int, int], list[Floats]] = {}

    def suppression(self, slot: int) -> Floats:
        """Return P(nothing is released | history, context) at a slot that is read."""
        body, state = self.plan.body, self.state
        if isinstance(body, Tabled):
            codes = body.filtered(state, self._model)
            if codes is not None:
                return decoded(codes)[None, :]
        if isinstance(body, SimulatableMask):
            asked = [advance(self.plan, state, name, ConstantRng(0))[1] for name in self.states]
            return np.array([[float(released is None) for released in asked]])
        origin = (state.origin, state.context)
        if origin not in self.rows:
            self.rows = {origin: self.tables.after(*origin)}
        return self.rows[origin][slot - state.origin - 1]

    def record_output(self, output: object) -> None:
        """Advance the machine state by one slot with this output.

        What follows silence does not depend on the context, but for the history.
        """
        word = ConstantRng(0 if output in (None, UNREAD) else FINE - 1)
        observed = {None: UNKNOWN_CONTEXT, UNREAD: None}.get(output, output)  # type: ignore[call-overload]
        moved, released = advance(self.plan, self.state, observed, word)
        if output not in (None, UNREAD) and released != output:
            # hidden after the history that silence was taken for: another one led to the release
            moved = self.state.released(self.states.index(str(output)))
        self.state = moved

    def condition_on(self, mass: Floats, slot: int, output: object, context: int) -> Floats:
        """Return the masses (rows, histories, contexts) after an output of this slot."""
        unread = output == UNREAD
        suppression = np.ones((1, mass.shape[2])) if unread else self.suppression(slot)
        self.record_output(output)
        if output is not None and not unread:
            kept = np.zeros((len(mass), 1, mass.shape[2]))
            released = mass[:, :, context] * (
                1 - np.broadcast_to(suppression, mass.shape[1:])[:, context]
            )
            kept[:, 0, context] = released.sum(axis=1)
            return kept
        kept = mass * suppression
        if unread or slot + 1 >= self.tables.slots or len(self.suppression(slot + 1)) == 1:
            return np.asarray(kept.sum(axis=1, keepdims=True))
        fresh = np.zeros((len(kept), kept.shape[1] * self.base, kept.shape[2]))
        for j in range(kept.shape[2]):
            rows = np.arange(kept.shape[1]) * self.base + self.tables.digits[j]
            fresh[:, rows, j] = kept[:, :, j]
        return fresh

    def _model(self) -> AfterGaps:
        order = machine_states(self.plan.body)
        return AfterGaps(days_of(self.plan.task, self.plan.guarantee.amount, states=order))


class OnlineMemory:
    """The machine memory of the online check: the state of the events' automaton."""

    def __init__(self, body: OnlineMask) -> None:
        self.program, self.states = body.program(), body.states
        self.held: tuple[Held, ...] = self.program.begin()

    def condition_on(self, mass: Floats, slot: int, output: object, context: int) -> Floats:
        """Return the masses (rows, automaton states, contexts) after an output of this slot."""
        program, unread = self.program, output == UNREAD
        step = program.memory.steps[slot]
        if unread:
            step = np.broadcast_to(step[:, [program.guess(self.held, slot)]], step.shape)
        moved = np.zeros((len(mass), program.memory.sizes[slot + 1], mass.shape[2]))
        columns = np.arange(mass.shape[2])
        for m, x in np.ndindex(mass.shape[1:]):
            moved[:, step[m, x], x] += mass[:, m, x]
        self.held = program.arrive(self.held, slot, read=not unread)
        if unread:
            return moved
        codes = program.allowed(self.held, slot)
        context_shown = None if output is None else context
        self.held = program.after(self.held, codes, context_shown)
        chance = codes * GRAIN
        return (
            moved * np.where(columns == context, chance, 0.0)
            if context_shown is not None
            else moved * (1 - chance)
        )


def machine_memory(plan: Plan) -> TableMemory | OnlineMemory:
    """Return the memory of a plan's machine; refuse machines without tables."""
    if isinstance(plan.body, OnlineMask):
        return OnlineMemory(plan.body)
    tables = tables_of(plan.body)
    if tables is None:
        raise InputError(f"no way is known to follow {plan.mechanism} from outside")
    return TableMemory(plan, tables)
