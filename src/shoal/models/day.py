"""The law of one day: a Markov chain from "start" to "end" with a matrix of its own per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.core.records import Sequences, label
from shoal.core.rng import Rng
from shoal.core.value import Floats, Ints, Value, locked
from shoal.models.chain import (
    admit_length,
    checked_rows,
    checked_states,
    numbers,
)
from shoal.models.sampling import categorical, uniforms

Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DayChain(Value):
    """X_1 … X_T with P(X_1 = x) = initial[x], P(X_{t+1} = y | X_t = x) = transition[t-1, x, y].

    `transition` is (T - 1, n, n): slots may differ, so "at work at 9:00" can be likely and "at
    work at 3:00" impossible. A week or a month is the same type with more slots. Different days
    are independent of each other: what one day tells about another is outside the model, and a
    longer chain is the way to say that they are not.

    Slot t begins `start_minute + (t - 1) * slot_minutes` minutes after midnight; both are only
    for people who read a calendar, and slot_minutes = 0 says that slots have no clock.
    Götz, Nath & Gehrke 2012, Section 2.2.
    """

    states: tuple[str, ...]
    initial: Floats
    transition: Floats
    slot_minutes: int = 0
    start_minute: int = 0

    def __post_init__(self) -> None:
        states = checked_states(self.states)
        size = len(states)
        initial = checked_rows(self.initial, "initial", (size,))
        array = numbers(self.transition, "transition")
        if array.size == 0:
            array = np.empty((0, size, size))  # a day of one slot
        if array.ndim != 3 or array.shape[1:] != (size, size):
            raise InputError(
                f"transition has shape {array.shape}; a day of T slots on {size} states needs "
                f"(T - 1, {size}, {size}), one matrix per step"
            )
        array = _with_idle_rows(array, initial)
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "initial", initial)
        checked = checked_rows(array, "transition", array.shape) if len(array) else locked(array)
        object.__setattr__(self, "transition", checked)
        minutes = whole(self.slot_minutes, "slot_minutes", least=0)
        object.__setattr__(self, "slot_minutes", minutes)
        start = whole(self.start_minute, "start_minute", least=0)
        object.__setattr__(self, "start_minute", start)

    @classmethod
    def of(
        cls,
        transition: Any,
        *,
        initial: npt.ArrayLike,
        states: Sequence[Any] | None = None,
        slots: int | None = None,
        **rest: Any,
    ) -> Self:
        """A day from plain lists or sparse matrices, one per step.

        A single matrix with `slots` is used for every step.
        """
        law = numbers(initial, "initial")
        names = tuple(str(i) for i in range(law.size)) if states is None else states
        size = len(names)
        matrices = _stacked(transition, size)
        if slots is not None:
            if matrices.ndim != 2:
                raise InputError("slots is given together with one matrix per step; give one only")
            matrices = np.broadcast_to(matrices, (whole(slots, "slots") - 1, size, size))
        elif matrices.ndim == 2:
            raise InputError("transition is a single matrix; give slots, the length of the day")
        return cls(
            states=tuple(label(name) for name in names), initial=law, transition=matrices, **rest
        )

    @property
    def slots(self) -> int:
        """T, the number of steps of the day."""
        return len(self.transition) + 1

    @property
    def size(self) -> int:
        return len(self.states)

    @property
    def tied(self) -> int:
        return self.slots

    def marginals(self) -> Floats:
        """P(X_t = x), one row per slot: an adversary's belief before any output."""
        rows = np.empty((self.slots, self.size))
        rows[0] = self.initial
        for t, matrix in enumerate(self.transition):
            rows[t + 1] = rows[t] @ matrix
        return rows

    def without_memory(self) -> Self:
        """The same law of every slot, slots independent: all that frequencies tell."""
        laws = self.marginals()
        rows = np.repeat(laws[1:, None, :], self.size, axis=1)
        return replace(self, transition=rows / rows.sum(axis=2, keepdims=True))

    def support(self) -> Truths:
        """Which states each slot can take; followed as booleans, so underflow hides nothing."""
        possible = np.zeros((self.slots, self.size), dtype=np.bool_)
        possible[0] = self.initial > 0
        for t, matrix in enumerate(self.transition):
            possible[t + 1] = (matrix[possible[t]] > 0).any(axis=0)
        return possible

    def sample(self, rng: Rng) -> Ints:
        """State indices of one random day. Model data only: not a private release."""
        draws = uniforms(self.slots, rng)
        path = np.empty(self.slots, dtype=np.int64)
        row = self.initial
        for t in range(self.slots):
            path[t] = categorical(row, draws[t])
            if t + 1 < self.slots:
                row = self.transition[t, path[t]]
        return path

    def clock(self, slot: int) -> str:
        """When slot `slot` (from 0) begins, as "09:30"; its number when slots have no clock."""
        if not self.slot_minutes:
            return str(slot + 1)
        day, minute = divmod(self.start_minute + slot * self.slot_minutes, 1440)
        time = f"{minute // 60:02d}:{minute % 60:02d}"
        return f"day {day + 1} {time}" if day else time

    def admit(self, records: Sequences) -> None:
        """Refuse days longer than the law covers."""
        admit_length(records, self.slots)

    def describe(self) -> str:
        span = f" of {self.slot_minutes} minutes" if self.slot_minutes else ""
        return (
            f"a day chain of {self.slots} slots{span} on {self.size} contexts, one matrix per "
            "step, days independent"
        )


def _with_idle_rows(transition: Floats, initial: Floats) -> Floats:
    """`transition` with the empty rows of states that cannot occur set to "stay".

    Such a row is never used; a state that can occur still needs a law.
    """
    empty = ~(transition != 0).any(axis=-1)
    if not empty.any():
        return transition
    filled = transition.copy()
    possible = initial > 0
    for t in range(len(filled)):
        idle = np.flatnonzero(empty[t] & ~possible)
        filled[t, idle, idle] = 1.0
        possible = (filled[t][possible] > 0).any(axis=0)
    return filled


def _stacked(transition: Any, size: int) -> Floats:
    """Dense matrices from a nested list, an array, or scipy's sparse matrices."""
    if hasattr(transition, "toarray"):
        return np.asarray(transition.toarray(), dtype=np.float64)
    if not isinstance(transition, np.ndarray) and any(hasattr(m, "toarray") for m in transition):
        return np.array([m.toarray() for m in transition], dtype=np.float64)
    array = numbers(transition, "transition")
    return array if array.size else np.empty((0, size, size))
