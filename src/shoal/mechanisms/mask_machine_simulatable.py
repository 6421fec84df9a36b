"""The machines of the simulatable check: with a table, or computed as the day goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.core.errors import InputError
from shoal.core.rng import Rng
from shoal.core.value import Ints, locked
from shoal.loss.suppression import jointly_releasable, prepare
from shoal.loss.suppression_family import next_for_all
from shoal.loss.suppression_missing import AfterGaps
from shoal.mechanisms.mask_machine import START, Mask, MaskState
from shoal.models.day import DayChain
from shoal.secrets.contexts import SensitiveContexts


@dataclass(frozen=True, slots=True, eq=False)
class SimulatableMask(Mask):
    """Shows the slot `table[origin + 1, context]` after a release, whatever its state is.

    T stands for never again on this day, -1 marks contexts that are never shown.
    """

    states: tuple[str, ...]
    table: Ints

    def __post_init__(self) -> None:
        table = np.asarray(self.table)
        if table.ndim != 2 or table.shape[1] != len(self.states):
            raise InputError(
                f"table has shape {table.shape}; it must be (slots + 1, {len(self.states)})"
            )
        object.__setattr__(self, "states", tuple(self.states))
        narrow = table.max(initial=0) <= np.iinfo(np.int16).max  # as days of any length once were
        object.__setattr__(self, "table", locked(table, np.int16 if narrow else np.int32))
        self.remember(self.states, {})

    def init(self) -> MaskState:
        return START

    def step(self, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
        """The state after this slot, and the context or None."""
        rng.words(1)  # as many as the other machines take
        if state.slot >= len(self.table) - 1:
            state = START
        slot, context = state.slot, self.context_of(observed)
        due = int(self.table[state.origin + 1, state.context]) == slot
        if due and not state.gaps and context >= 0 and self.table[slot + 1, context] >= 0:
            return state.released(context), self.states[context]
        return state.suppressed(state.note), None

    def resume(
        self, state: MaskState, observed: Any, rng: Rng, model: Callable[[], AfterGaps]
    ) -> tuple[MaskState, str | None]:
        """As `step`; once a slot that was due is not read, the model says which is due instead.

        From then on `note` is that slot, for the rest of the day.
        """
        if state.slot >= len(self.table) - 1:
            state = START
        origin, slot, context = (state.origin, state.context), state.slot, self.context_of(observed)
        due = state.note if state.gaps else int(self.table[state.origin + 1, state.context])
        if due != slot or (observed is not None and not state.gaps):
            return self.step(state, observed, rng)
        rng.words(1)
        days = model().days
        if observed is None:
            left = state.missed()
            return replace(left, note=next_for_all(days, origin, slot + 1)), None
        if context < 0 or not jointly_releasable(days)[slot, context]:
            return state.suppressed(state.note), None
        note = next_for_all(days, (slot, context), slot + 1)
        return state.released(context, note), self.states[context]

    def describe(self) -> str:
        return (
            "after each release the slot of the next one is fixed, before its context is known; "
            "all slots between are suppressed"
        )


@dataclass(frozen=True, slots=True, eq=False)
class LiveSimulatable(Mask):
    """The simulatable check without a table: each release computes when the next one is due.

    Starts at once, where every other check needs a calibration; a release costs milliseconds.
    """

    day: DayChain
    secrets: SensitiveContexts
    delta: float

    def __post_init__(self) -> None:
        self.remember(self.day.states, {})

    def init(self) -> MaskState:
        return MaskState(note=self._next(-1, 0, 0))

    def step(self, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
        """The state after this slot, and the context or None."""
        rng.words(1)
        if state.slot >= self.day.slots:
            state = self.init()
        slot, context = state.slot, self.context_of(observed)
        if state.note == slot and observed is None:
            return state.suppressed(self._next(state.origin, state.context, slot + 1)), None
        if state.note == slot and context >= 0 and self.day.support()[slot, context]:
            due = self._next(slot, context, slot + 1)
            return state.released(context, due), self.day.states[context]
        return state.suppressed(state.note), None

    def describe(self) -> str:
        return "after each release the slot of the next one is computed, all between suppressed"

    def _next(self, slot: int, context: int, earliest: int) -> int:
        shares = self.secrets.shares(self.day)
        arrays = prepare(self.day.initial, self.day.transition, shares, self.delta)
        return next_for_all((arrays,), (slot, context), earliest)
