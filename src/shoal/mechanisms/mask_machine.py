"""The machines that suppression plans run: a state in, the same state or nothing out.

All of them draw 16 bits per step whether they need them or not, suppress what the model does not
know, and begin a new day after the last slot. Showing `None` means "suppressed".

A reading of `None` is a slot that was not read. `step` knows no more than the tables do, which are
for days on which every slot was read; so where that matters it shows nothing for the rest of the
day. `resume`, which streams use, is also told the model, and goes on (mask_missing.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shoal.core.errors import InputError
from shoal.core.records import label
from shoal.core.rng import Rng
from shoal.core.value import Ints, Value, locked
from shoal.loss.suppression import LEVELS, Codes, Day, decoded
from shoal.loss.suppression_adaptive import Origin
from shoal.loss.suppression_missing import AfterGaps, Belief, onward, opening

ALWAYS = LEVELS - 1  # the code of probability 1


@dataclass(frozen=True, slots=True, eq=False)
class MaskState(Value):
    """Where a day stands: the next slot, and the last release (slot -1 is "start").

    `note` is what a machine adds to that: when the simulatable check shows a state again, or the
    sensitive visits since the last release. It can tell about suppressed contexts, so a state is
    as private as the day itself. `gaps` are the slots that were not read, as boundaries: from
    gaps[0] up to gaps[1], and so on; a release forgets all but the last of them.
    """

    slot: int = 0
    origin: int = -1
    context: int = 0
    note: int = 0
    gaps: tuple[int, ...] = field(default=(), metadata={"later": True})

    @property
    def unread(self) -> bool:
        """Whether a slot was not read since the last release."""
        return bool(self.gaps) and self.gaps[-1] > self.origin + 1

    def suppressed(self, note: int = 0) -> MaskState:
        """The state after a slot that showed nothing."""
        return replace(self, slot=self.slot + 1, note=note)

    def released(self, context: int, note: int = 0) -> MaskState:
        """The state after a slot that showed its context."""
        return MaskState(self.slot + 1, self.slot, context, note, self.gaps[-2:])

    def missed(self, until: int | None = None) -> MaskState:
        """The state after a slot that was not read, nor will be any before `until`."""
        end = self.slot + 1 if until is None else until
        joined = bool(self.gaps) and self.gaps[-1] >= self.slot
        gaps = (*self.gaps[:-1], end) if joined else (*self.gaps, self.slot, end)
        return replace(self, slot=self.slot + 1, note=0, gaps=gaps)


START = MaskState()


class Mask(Value):
    """What the machines share: names to indices and releases to tables, not stored but rebuilt."""

    __slots__ = ("_index", "_tables")
    _index: dict[str, int]
    _tables: dict[Origin, tuple[int, int]]

    def remember(self, states: tuple[str, ...], tables: dict[Origin, tuple[int, int]]) -> None:
        """Keeps what every step looks up."""
        object.__setattr__(self, "_index", {name: place for place, name in enumerate(states)})
        object.__setattr__(self, "_tables", tables)

    def context_of(self, observed: Any) -> int:
        """The index of a context; -1 for a missing or unknown one, which is suppressed."""
        if observed is None:
            return -1
        return self._index.get(observed if isinstance(observed, str) else label(observed), -1)

    def step(self, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
        """The state after this slot, and the context or None."""
        raise NotImplementedError

    def resume(
        self, state: MaskState, observed: Any, rng: Rng, model: Callable[[], AfterGaps]
    ) -> tuple[MaskState, str | None]:
        """As `step`, by somebody who knows the model and so can go on after a slot not read."""
        return self.step(state, observed, rng)


class Tabled(Mask):
    """A machine whose probabilities depend on the last release: tables that assume all readings."""

    __slots__ = ()

    def listed(self, origin: Origin) -> bool:
        """Whether there is a table for what follows a release."""
        return origin in self._tables

    def length(self) -> int:
        """The slots of a day."""
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        """The contexts, in the order of the tables."""
        raise NotImplementedError

    def begun(self, day: Day, origin: Origin, until: int) -> Belief | None:
        """The belief before slot `until`, when all slots since a release were read and suppressed.

        None when that cannot happen.
        """
        raise NotImplementedError

    def resume(
        self, state: MaskState, observed: Any, rng: Rng, model: Callable[[], AfterGaps]
    ) -> tuple[MaskState, str | None]:
        """As `step`; after a slot that was not read, up to the next release, by the filter.

        Also after a release that has no table on a day with such slots: releases that cannot come
        up when every slot is read have none.
        """
        state = START if state.slot >= self.length() else state
        if observed is None:
            rng.words(1)
            return state.missed(), None
        origin = (state.origin, state.context)
        filtered = bool(state.gaps) and not self.listed(origin)
        if not (filtered or state.unread):
            return self.step(state, observed, rng)
        since = [gap for gap in state.gaps[::2] if gap > state.origin]
        first = state.origin + 1 if filtered and state.gaps[0] <= state.origin else since[0]
        context, code = self.context_of(observed), ALWAYS
        if context >= 0 and state.slot >= state.gaps[-1]:
            codes = model().codes(origin, state.gaps, state.slot, first, self.begun)
            code = int(codes[context])
        if hides(code, rng):
            return state.suppressed(), None
        return state.released(context), self.names()[context]


def hides(code: int, rng: Rng) -> bool:
    """True with probability code/65536, and always for 65535; one word is drawn in any case."""
    return (int(rng.words(1)[0]) & ALWAYS) < code or code == ALWAYS


@dataclass(frozen=True, slots=True, eq=False)
class VectorMask(Mask):
    """Suppresses state j at slot t with probability `codes[t, j]`, whatever happened before."""

    states: tuple[str, ...]
    codes: Codes

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 2 or codes.shape[1] != len(self.states) or codes.dtype != np.uint16:
            raise InputError(
                f"codes has shape {codes.shape}; a day on {len(self.states)} contexts needs 16-bit "
                f"codes of shape (slots, {len(self.states)})"
            )
        object.__setattr__(self, "states", tuple(self.states))
        object.__setattr__(self, "codes", locked(codes, np.uint16))
        self.remember(self.states, {})

    def init(self) -> MaskState:
        return START

    def step(self, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
        """The state after this slot, and the context or None."""
        slot = state.slot % len(self.codes)
        context = self.context_of(observed)
        code = int(self.codes[slot, context]) if context >= 0 else ALWAYS
        if hides(code, rng):
            return MaskState(slot + 1), None
        return MaskState(slot + 1), self.states[context]

    def describe(self) -> str:
        mean = float((self.codes < ALWAYS).mean())
        return (
            "each context is suppressed with a probability of its own at every slot "
            f"({mean:.0%} of the {self.codes.size} can be shown at all)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SegmentMask(Tabled):
    """Suppression that depends on the last release: a table of its own after each of them.

    `origins[k]` = (slot, context) of a release, `codes[starts[k]:starts[k + 1]]` its table, one
    row of n codes for each slot after it. After a release that is not listed the rest of the day
    is suppressed, and so is everything after the rows of a table.
    """

    states: tuple[str, ...]
    slots: int
    origins: Ints
    starts: Ints
    codes: Codes

    def __post_init__(self) -> None:
        origins = locked(np.asarray(self.origins).reshape(-1, 2), np.int64)
        starts = locked(self.starts, np.int64)
        if len(starts) != len(origins) + 1 or (len(starts) and starts[-1] != len(self.codes)):
            raise InputError("starts must hold one more number than origins, up to the last code")
        object.__setattr__(self, "states", tuple(self.states))
        object.__setattr__(self, "origins", origins)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "codes", locked(self.codes, np.uint16))
        check_origins(origins, self.slots, len(self.states))
        rows, rest = np.divmod(np.diff(starts), len(self.states))
        if (
            starts[0] != 0
            or rest.any()
            or ((rows < 0) | (rows > self.slots - 1 - origins[:, 0])).any()
        ):
            raise InputError(
                "starts must cut codes into one table per origin, of whole rows, one for each slot "
                "after it at most"
            )
        places = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        pairs = [(slot, context) for slot, context in origins.tolist()]
        self.remember(self.states, dict(zip(pairs, places, strict=True)))

    @classmethod
    def of(cls, states: tuple[str, ...], slots: int, hidden: dict[Origin, Codes]) -> SegmentMask:
        """From one table per release; rows that suppress everything at their end are dropped."""
        kept = sorted(hidden)
        tables = [_trimmed(hidden[origin]).ravel() for origin in kept]
        sizes = [0, *(table.size for table in tables)]
        flat = np.concatenate([np.empty(0, np.uint16), *tables])
        return cls(states, slots, np.array(kept, dtype=np.int64), np.cumsum(sizes), flat)

    def policies(self) -> dict[Origin, Codes]:
        """The table after each release that has one."""
        size = len(self.states)
        return {
            origin: self.codes[first:last].reshape(-1, size)
            for origin, (first, last) in self._tables.items()
        }

    def init(self) -> MaskState:
        return START

    def step(self, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
        """The state after this slot, and the context or None."""
        if state.slot >= self.slots:
            state = START
        slot, context = state.slot, self.context_of(observed)
        code = ALWAYS
        if observed is None:
            rng.words(1)
            return state.missed(self.slots), None
        if context >= 0 and not state.unread:
            first, last = self._tables.get((state.origin, state.context), (0, 0))
            place = first + (slot - state.origin - 1) * len(self.states) + context
            code = int(self.codes[place]) if place < last else ALWAYS
        if hides(code, rng):
            return state.suppressed(), None
        return state.released(context), self.states[context]

    def length(self) -> int:
        return self.slots

    def names(self) -> tuple[str, ...]:
        return self.states

    def begun(self, day: Day, origin: Origin, until: int) -> Belief | None:
        """The belief before slot `until`, when all slots since a release were read and suppressed.

        None when that cannot happen.
        """
        return self.onward_from(day, origin, origin[0] + 1, opening(day, origin), until)

    def onward_from(
        self, day: Day, origin: Origin, slot: int, belief: Belief | None, until: int
    ) -> Belief | None:
        """`belief` before `slot`, followed to slot `until` while the table suppresses."""
        size = len(self.states)
        start, last = self._tables.get(origin, (0, 0))
        for t in range(slot, until):
            place = start + (t - origin[0] - 1) * size
            hidden = decoded(self.codes[place : place + size]) if place < last else np.ones(size)
            belief = None if belief is None else onward(day, origin, t, belief, hidden)
        return belief

    def describe(self) -> str:
        return (
            "suppression probabilities that depend on the last release: "
            f"{len(self.origins)} tables, {self.codes.nbytes / 1e6:.3g} MB"
        )


def check_origins(origins: Ints, slots: int, size: int) -> None:
    """Refuses releases that are not of this day, or listed twice: one table would hide another."""
    slot, context = origins[:, 0], origins[:, 1]
    inside = (slot >= -1) & (slot < slots) & (context >= 0) & (context < size)
    if not (inside & ((slot >= 0) | (context == 0))).all():
        raise InputError(
            f"origins names a release outside the day; slots are 0 to {slots - 1} and contexts 0 "
            f"to {size - 1}, and (-1, 0) is the start"
        )
    if len({(int(t), int(j)) for t, j in origins}) < len(origins):
        raise InputError("origins names a release twice; each has one table")


def _trimmed(codes: Codes) -> Codes:
    """The table without the rows at its end that suppress everything."""
    shown = np.flatnonzero((codes < ALWAYS).any(axis=1))
    return codes[: int(shown[-1]) + 1] if len(shown) else codes[:0]
