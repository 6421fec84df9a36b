"""The machines that suppression plans run: a state in, the same state or nothing out.

All of them draw 16 bits per step whether they need them or not, suppress what the model does not
know, and begin a new day after the last slot. Showing `None` means "suppressed".

A reading of `None` is a slot that was not read. `step` knows no more than the tables do, which are
for days on which every slot was read; so where that matters it shows nothing for the rest of the
day. `resume`, which streams use, is also told the model, and goes on (mask_missing.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar, TypeGuard

import numpy as np

from shoal.contexts.day import DayChain
from shoal.contexts.search.adaptive import next_release, simulatable_segments, trimmed
from shoal.contexts.search.beliefs import (
    COIN_LEVELS,
    Codes,
    Day,
    Origin,
    decoded,
    jointly_releasable,
    prepare,
)
from shoal.contexts.search.gaps import AfterGaps, Belief, log_sums, logs_of, onward, opening, pushed
from shoal.contexts.search.memory import FINE, FineCodes, Remembering, fine_decoded
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.charge import Rng
from shoal.core.codec import Bools, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.records import label

ALWAYS = COIN_LEVELS - 1  # the code of probability 1


@dataclass(frozen=True, slots=True, eq=False)
class MaskState(Value):
    """Where a day stands: the next slot, and the last release (slot -1 is "start").

    `note` is what a machine adds to that: when the simulatable check shows a state again, or the
    sensitive visits since the last release. It can tell about suppressed contexts, so a state is
    as private as the day itself. `gaps` are the slots that were not read, as boundaries: from
    gaps[0] up to gaps[1], and so on; a release forgets all but the last of them.
    """

    kind = "mask-state"
    slot: int = 0
    origin: int = -1
    context: int = 0
    note: int = 0
    gaps: tuple[int, ...] = field(default=(), metadata={"later": True})

    def __post_init__(self) -> None:
        numbers = (self.slot, self.origin, self.context, self.note, *self.gaps)
        if not all(type(number) is int for number in numbers) or not -1 <= self.origin <= self.slot:
            raise InputError("a stored day says where it stands in no numbers; was it changed?")

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
Stepped = tuple[MaskState, str | None]  # the state after a slot, and the context or None
Prepared = Callable[[], AfterGaps]  # the model, made when it is first asked for


Segmented = tuple[dict[Origin, Remembering], Ints]  # what follows a release, and digits of visits


def set_fields(value: Value, **fields: Any) -> None:
    """Fields of a frozen value, while it is being made."""
    for name, field_value in fields.items():
        object.__setattr__(value, name, field_value)


class Mask(Value):
    """What the machines share: names to indices and releases to tables, not stored but rebuilt."""

    __slots__ = ("_index", "_tables")
    can_be_given: ClassVar[bool] = False  # whether a law given all outputs of a day exists
    _index: dict[str, int]
    _tables: dict[Origin, tuple[int, int]]

    def remember(self, states: tuple[str, ...], tables: dict[Origin, tuple[int, int]]) -> None:
        """Keeps what every step looks up."""
        set_fields(self, _index={name: place for place, name in enumerate(states)}, _tables=tables)

    def context_of(self, observed: Any) -> int:
        """The index of a context; -1 for a missing or unknown one, which is suppressed."""
        if observed is None:
            return -1
        return self._index.get(observed if isinstance(observed, str) else label(observed), -1)

    def init(self) -> Any:
        """The state before the first slot."""
        return START

    def step(self, state: MaskState, observed: Any, rng: Rng) -> Stepped:
        """The state after this slot, and the context or None."""
        raise NotImplementedError

    def resume(self, state: MaskState, observed: Any, rng: Rng, model: Prepared | None) -> Stepped:
        """As `step`, by somebody who knows the model and so can go on after a slot not read."""
        return self.step(state, observed, rng)

    def segments(self, day: Day) -> Segmented:
        """What follows each release, and what a visit to each state adds to a history.

        Releases that are not listed suppress the rest of the day.
        """
        raise TypeError(f"no way is known to evaluate a {type(self).__name__}")

    def can_show(self, some: Bools) -> bool:
        """Whether a table shows one of these contexts at some slot."""
        raise TypeError(f"no way is known to evaluate a {type(self).__name__}")


def _without_memory(tables: Mapping[Origin, Codes], size: int) -> Segmented:
    plans = {origin: Remembering((), codes) for origin, codes in tables.items()}
    return plans, np.zeros(size, dtype=np.int64)


class Tabled(Mask):
    """A machine whose probabilities depend on the last release: tables that assume all readings."""

    __slots__ = ()
    states: tuple[str, ...]
    slots: int

    def listed(self, origin: Origin) -> bool:
        """Whether there is a table for what follows a release."""
        return origin in self._tables

    def begun(self, day: Day, origin: Origin, until: int) -> Belief | None:
        """The belief before slot `until`, when all slots since a release were read and suppressed.

        None when that cannot happen.
        """
        raise NotImplementedError

    def decided(self, state: MaskState, context: int) -> tuple[int, int, int]:
        """The code of a context where the table decides, of how many, and the note of silence."""
        raise NotImplementedError

    def step(self, state: MaskState, observed: Any, rng: Rng) -> Stepped:
        return self.resume(state, observed, rng, None)

    def resume(self, state: MaskState, observed: Any, rng: Rng, model: Prepared | None) -> Stepped:
        """As `step`; after a slot that was not read, up to the next release, by the filter.

        Also after a release that has no table on a day with such slots: releases that cannot come
        up when every slot is read have none. Without a model all is suppressed there.
        """
        state = START if state.slot >= self.slots else state
        word = int(rng.words(1)[0])
        if observed is None:
            return state.missed(self.slots if model is None else None), None
        context, levels, note, code = self.context_of(observed), COIN_LEVELS, 0, ALWAYS
        codes = None if model is None else self.filtered(state, model)
        if codes is not None:
            code = int(codes[context])
        elif model is not None or not state.unread:
            code, levels, note = self.decided(state, context)
        if context < 0 or hides(code, word, levels):
            return state.suppressed(note), None
        return state.released(context), self.states[context]

    def filtered(self, state: MaskState, model: Prepared) -> Codes | None:
        """The codes of a slot that the filter decides; None where the table does. Public."""
        origin = (state.origin, state.context)
        unlisted = bool(state.gaps) and not self.listed(origin)
        if not (unlisted or state.unread):
            return None
        if state.slot < state.gaps[-1]:
            return np.full(len(self.states), ALWAYS, dtype=np.uint16)
        since = [gap for gap in state.gaps[::2] if gap > state.origin]
        first = state.origin + 1 if unlisted and state.gaps[0] <= state.origin else since[0]
        return model().codes(origin, state.gaps, state.slot, first, self.begun)


def hides(code: int, word: int, levels: int = COIN_LEVELS) -> bool:
    """True with probability code/levels over random words, and always for the last code."""
    return (word & (levels - 1)) < code or code == levels - 1


@dataclass(frozen=True, slots=True, eq=False)
class VectorMask(Mask):
    """Suppresses state j at slot t with probability `codes[t, j]`, independently of the past."""

    kind = "vector-mask"
    states: tuple[str, ...]
    codes: Codes

    def __post_init__(self) -> None:
        """Refuse codes that are not 16-bit numbers of shape (slots, contexts)."""
        codes = np.asarray(self.codes)
        if codes.ndim != 2 or codes.shape[1] != len(self.states) or codes.dtype != np.uint16:
            raise InputError(
                f"codes has shape {codes.shape}; a day on {len(self.states)} contexts needs 16-bit "
                f"codes of shape (slots, {len(self.states)})"
            )
        set_fields(self, states=tuple(self.states), codes=as_read_only(codes, np.uint16))
        self.remember(self.states, {})

    @property
    def slots(self) -> int:
        return len(self.codes)

    def can_show(self, some: Bools) -> bool:
        return bool((self.codes[:, some] < ALWAYS).any())

    def step(self, state: MaskState, observed: Any, rng: Rng) -> Stepped:
        slot, word = state.slot % len(self.codes), int(rng.words(1)[0])
        context = self.context_of(observed)
        hidden = context < 0 or hides(int(self.codes[slot, context]), word)
        return MaskState(slot + 1), None if hidden else self.states[context]

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

    kind = "segment-mask"
    states: tuple[str, ...]
    slots: int
    origins: Ints
    starts: Ints
    codes: Codes

    def __post_init__(self) -> None:
        """Refuse tables that do not cut `codes` into whole rows, one table per origin."""
        origins = as_read_only(np.asarray(self.origins).reshape(-1, 2), np.int64)
        starts = as_read_only(self.starts, np.int64)
        if len(starts) != len(origins) + 1 or (len(starts) and starts[-1] != len(self.codes)):
            raise InputError("starts must hold one more number than origins, up to the last code")
        codes, states = as_read_only(self.codes, np.uint16), tuple(self.states)
        set_fields(self, states=states, origins=origins, starts=starts, codes=codes)
        check_origins(origins, self.slots, len(self.states))
        rows, rest = np.divmod(np.diff(starts), len(self.states))
        outside = (rows < 0) | (rows > self.slots - 1 - origins[:, 0])
        if starts[0] != 0 or rest.any() or outside.any():
            raise InputError(
                "starts must cut codes into one table per origin, of whole rows, one for each slot "
                "after it at most"
            )
        self.remember(self.states, _by_origin(origins, starts[:-1], starts[1:]))

    @classmethod
    def of(cls, states: tuple[str, ...], slots: int, hidden: dict[Origin, Codes]) -> SegmentMask:
        """From one table per release; rows that suppress everything at their end are dropped."""
        kept = sorted(hidden)
        tables = [trimmed(hidden[origin]).ravel() for origin in kept]
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

    def decided(self, state: MaskState, context: int) -> tuple[int, int, int]:
        first, last = self._tables.get((state.origin, state.context), (0, 0))
        place = first + (state.slot - state.origin - 1) * len(self.states) + context
        known = context >= 0 and place < last
        return int(self.codes[place]) if known else ALWAYS, COIN_LEVELS, 0

    def segments(self, day: Day) -> Segmented:
        return _without_memory(self.policies(), len(self.states))

    def can_show(self, some: Bools) -> bool:
        return bool((self.codes.reshape(-1, len(self.states))[:, some] < ALWAYS).any())

    def begun(self, day: Day, origin: Origin, until: int) -> Belief | None:
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


def _by_origin(origins: Ints, first: Ints, second: Ints) -> dict[Origin, tuple[int, int]]:
    listed = np.column_stack([origins, first, second]).tolist()
    return {(slot, context): (a, b) for slot, context, a, b in listed}


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


@dataclass(frozen=True, slots=True, eq=False)
class HistoryMask(Tabled):
    """Suppression by the last release and, for some slots after it, by the sensitive visits since.

    `origins[k]` is a release with a window of `windows[k]` slots, `codes[starts[k]:starts[k + 1]]`
    its tables in multiples of 2^-32: for slot m of the window one row per history of m visits.
    `digits[j]` is what a visit to state j adds to a history. After the window `tail` takes over.
    """

    kind = "history-mask"
    tail: SegmentMask
    digits: Ints
    origins: Ints
    windows: Ints
    starts: Ints
    codes: FineCodes

    @property
    def states(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.tail.states

    @property
    def slots(self) -> int:  # type: ignore[override]
        return self.tail.slots

    def __post_init__(self) -> None:
        """Refuse tables that do not match the origins and windows one by one."""
        origins = as_read_only(np.asarray(self.origins).reshape(-1, 2), np.int64)
        if not len(origins) == len(self.windows) == len(self.starts) - 1:
            raise InputError("windows must hold one number per origin, starts one more")
        numbers = {
            n: as_read_only(getattr(self, n), np.int64) for n in ("digits", "windows", "starts")
        }
        set_fields(self, origins=origins, codes=as_read_only(self.codes, np.uint32), **numbers)
        self._check()
        self.remember(self.states, _by_origin(origins, self.starts[:-1], self.windows))

    def _check(self) -> None:
        """Refuses tables that do not fit the windows: a step would read another table's codes."""
        size = len(self.states)
        check_origins(self.origins, self.slots, size)
        if self.digits.shape != (size,) or (self.digits < 0).any():
            raise InputError(f"digits must hold a number of 0 or more for each of {size} contexts")
        if ((self.windows < 0) | (self.windows > self.slots - 1 - self.origins[:, 0])).any():
            raise InputError("windows holds one that is negative or goes beyond the day")
        base = int(self.digits.max()) + 1
        sizes = [size * sum(base**m for m in range(window)) for window in self.windows.tolist()]
        ends = list(accumulate(sizes, initial=0))
        if self.starts.tolist() != ends or ends[-1] != len(self.codes):
            raise InputError("starts must cut codes into one row per history of each window")

    @classmethod
    def of(
        cls, states: tuple[str, ...], slots: int, policies: dict[Origin, Remembering], digits: Ints
    ) -> HistoryMask:
        """From what follows each release."""
        tail = SegmentMask.of(states, slots, {o: plan.tail for o, plan in policies.items()})
        kept = [origin for origin in sorted(policies) if policies[origin].codes]
        tables = [np.concatenate([c.ravel() for c in policies[o].codes]) for o in kept]
        windows = np.array([len(policies[origin].codes) for origin in kept], dtype=np.int64)
        starts = np.cumsum([0, *(table.size for table in tables)])
        flat = np.concatenate([np.empty(0, np.uint32), *tables])
        return cls(tail, digits, np.array(kept, dtype=np.int64), windows, starts, flat)

    def policies(self) -> dict[Origin, Remembering]:
        """What follows each release; those not listed suppress the rest of the day."""
        size, base = len(self.states), int(self.digits.max()) + 1
        tails = self.tail.policies()
        empty = np.empty((0, size), dtype=np.uint16)
        found = _without_memory(tails, size)[0]
        for origin, (first, window) in self._tables.items():
            ends = first + np.cumsum([0, *(base**m * size for m in range(window))])
            tables = [self.codes[a:b].reshape(-1, size) for a, b in pairwise(ends)]
            found[origin] = Remembering(tuple(tables), tails.get(origin, empty))
        return found

    def decided(self, state: MaskState, context: int) -> tuple[int, int, int]:
        """Return the code of a context, that its scale is FINE, and the note after a suppression.

        Beyond the window of the last release the tail decides.
        """
        first, window = self._tables.get((state.origin, state.context), (0, 0))
        past = state.slot - state.origin - 1
        if past >= window:
            return self.tail.decided(state, context)
        base, size = int(self.digits.max()) + 1, len(self.states)
        skipped = (base**past - 1) // (base - 1) if base > 1 else past
        code = int(self.codes[first + (skipped + state.note) * size + context])
        visit = int(self.digits[context]) if context >= 0 else 0
        return code, FINE, state.note * base + visit

    def listed(self, origin: Origin) -> bool:
        return origin in self._tables or self.tail.listed(origin)

    def segments(self, day: Day) -> Segmented:
        return self.policies(), self.digits

    def can_show(self, some: Bools) -> bool:
        codes = self.codes.reshape(-1, len(self.states))
        return bool((codes[:, some] < FINE - 1).any()) or self.tail.can_show(some)

    def begun(self, day: Day, origin: Origin, until: int) -> Belief | None:
        """As everywhere, summed over the histories of visits, which the filter does not see."""
        first, window = self._tables.get(origin, (0, 0))
        steps = min(window, until - origin[0] - 1)
        size = len(self.states)
        logs, held = opening(day, origin)
        logs, held = logs[None], held[None]  # [history, j] and [history, j, secret]
        for k in range(steps):
            codes = self.codes[first : first + len(logs) * size].reshape(-1, size)
            first += codes.size
            kept = logs + logs_of(fine_decoded(codes))
            logs, held = pushed(day, origin, origin[0] + 1 + k, kept, held, self.digits)
        law = log_sums(logs)
        share = np.exp(logs - np.where(np.isfinite(law), law, 0.0))
        merged = Belief(law, (share[..., None] * held).sum(axis=0))
        begin = origin[0] + 1 + steps
        alive = merged if np.isfinite(law).any() else None
        return self.tail.onward_from(day, origin, begin, alive, until)

    def describe(self) -> str:
        return (
            "suppression probabilities that depend on the last release and, for up to "
            f"{int(self.windows.max(initial=0))} slots after it, on the sensitive visits since"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SimulatableMask(Mask):
    """Shows the slot `table[origin + 1, context]` after a release, for every state.

    T stands for never again on this day, -1 marks contexts that are never shown.
    """

    kind = "simulatable-mask"
    states: tuple[str, ...]
    table: Ints

    def __post_init__(self) -> None:
        """Refuse a table of another shape than (slots + 1, contexts)."""
        table = np.asarray(self.table)
        if table.ndim != 2 or table.shape[1] != len(self.states):
            raise InputError(
                f"table has shape {table.shape}; it must be (slots + 1, {len(self.states)})"
            )
        narrow = table.max(initial=0) <= np.iinfo(np.int16).max  # as days of any length once were
        kind = np.int16 if narrow else np.int32
        set_fields(self, states=tuple(self.states), table=as_read_only(table, kind))
        self.remember(self.states, {})

    @property
    def slots(self) -> int:
        return len(self.table) - 1

    def segments(self, day: Day) -> Segmented:
        return _without_memory(simulatable_segments(day, self.table).hidden, len(self.states))

    def can_show(self, some: Bools) -> bool:
        return bool((self.table[1:, some] >= 0).any())

    def step(self, state: MaskState, observed: Any, rng: Rng) -> Stepped:
        """Return the next state and the context if its slot is due and it may be shown, else
        None.
        """
        rng.words(1)  # as many as the other machines take
        if state.slot >= self.slots:
            state = START
        slot, context = state.slot, self.context_of(observed)
        due = int(self.table[state.origin + 1, state.context]) == slot
        if due and not state.gaps and context >= 0 and self.table[slot + 1, context] >= 0:
            return state.released(context), self.states[context]
        return state.suppressed(state.note), None

    def resume(self, state: MaskState, observed: Any, rng: Rng, model: Prepared | None) -> Stepped:
        """As `step`; once a slot that was due is not read, the model says which is due instead.

        From then on `note` is that slot, for the rest of the day.
        """
        if state.slot >= self.slots:
            state = START
        origin, slot, context = (state.origin, state.context), state.slot, self.context_of(observed)
        due = state.note if state.gaps else int(self.table[state.origin + 1, state.context])
        if due != slot or model is None or (observed is not None and not state.gaps):
            return self.step(state, observed, rng)
        rng.words(1)
        days = model().days
        shown = jointly_releasable(days)
        if observed is None:
            note = next_release(days, shown, origin, slot + 1)
            return replace(state.missed(), note=note), None
        if context < 0 or not shown[slot, context]:
            return state.suppressed(state.note), None
        note = next_release(days, shown, (slot, context), slot + 1)
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

    kind = "live-simulatable"
    day: DayChain
    secrets: SensitiveContexts
    delta: float

    def __post_init__(self) -> None:
        self.remember(self.day.states, {})

    def init(self) -> MaskState:
        return MaskState(note=self._next(-1, 0, 0))

    def step(self, state: MaskState, observed: Any, rng: Rng) -> Stepped:
        """Return the next state and the context if its slot is due and it may be shown, else None.

        A due slot that was not read passes the turn to the next slot that may be shown.
        """
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
        days = (prepared(self.day, self.secrets, self.delta),)
        return next_release(days, jointly_releasable(days), (slot, context), earliest)


def prepared(day: DayChain, secrets: SensitiveContexts, delta: float, **rest: Any) -> Day:
    """A day chain and its secrets as arrays, for the loops of `shoal.contexts.search`."""
    shares, never = secrets.shares(day), secrets.kept_back(day)
    return prepare(day.initial, day.transition, shares, delta, never=never, **rest)


def memoryless(body: object) -> TypeGuard[VectorMask]:
    """Whether a machine suppresses by slot and context alone."""
    return isinstance(body, VectorMask)
