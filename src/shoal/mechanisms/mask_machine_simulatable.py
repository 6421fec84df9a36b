"""The machines of the simulatable check: with a table, or computed as the day goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.errors import InputError
from shoal.core.rng import Rng
from shoal.core.value import Ints, locked
from shoal.loss.suppression import prepare
from shoal.loss.suppression_adaptive import next_release
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
        object.__setattr__(self, "table", locked(table, np.int16))
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
        if due and context >= 0 and self.table[slot + 1, context] >= 0:
            return MaskState(slot + 1, slot, context), self.states[context]
        return MaskState(slot + 1, state.origin, state.context), None

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
        return MaskState(note=self._next(-1, 0))

    def step(self, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
        """The state after this slot, and the context or None."""
        rng.words(1)
        if state.slot >= self.day.slots:
            state = self.init()
        slot, context = state.slot, self.context_of(observed)
        if state.note == slot and context >= 0 and self.day.support()[slot, context]:
            shown = self.day.states[context]
            return MaskState(slot + 1, slot, context, self._next(slot, context)), shown
        return MaskState(slot + 1, state.origin, state.context, state.note), None

    def describe(self) -> str:
        return "after each release the slot of the next one is computed, all between suppressed"

    def _next(self, slot: int, context: int) -> int:
        shares = self.secrets.shares(self.day)
        arrays = prepare(self.day.initial, self.day.transition, shares, self.delta)
        return next_release(arrays, slot, context)
