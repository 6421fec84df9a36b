"""The law of one day: a Markov chain from "start" to "end" with a matrix of its own per step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import admit_length, checked_rows, numbers
from shoal.core.charge import Rng, categorical, uniforms
from shoal.core.codec import Bools, Floats, Ints, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, exact, whole
from shoal.core.records import Sequences, checked_states, label
from shoal.core.registry import load
from shoal.core.task import Law, Model
from shoal.core.walk import Walk

if TYPE_CHECKING:
    from shoal.core.motion import Motion


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DayChain(Law):
    """X_1 … X_T with P(X_1 = x) = initial[x], P(X_{t+1} = y | X_t = x) = transition[t-1, x, y].

    `transition` is (T - 1, n, n): slots may differ, so "at work at 9:00" can be likely and "at
    work at 3:00" impossible. A week or a month is the same type with more slots. Different days
    are independent of each other: what one day tells about another is outside the model, and a
    longer chain is the way to say that they are not.

    Slot t begins `start_minute + (t - 1) * slot_minutes` minutes after midnight; both are only
    for people who read a calendar, and slot_minutes = 0 says that slots have no clock.
    Götz, Nath & Gehrke 2012, Section 2.2.
    """

    kind = "day-chain"

    states: tuple[str, ...]
    initial: Floats
    transition: Floats
    slot_minutes: int = 0
    start_minute: int = 0

    def __post_init__(self) -> None:
        """Check shapes and rows, and lock the arrays."""
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
        checked = (
            checked_rows(array, "transition", array.shape) if len(array) else as_read_only(array)
        )
        fields: dict[str, Any] = {"states": states, "initial": initial, "transition": checked}
        for name in ("slot_minutes", "start_minute"):
            fields[name] = whole(getattr(self, name), name, least=0)
        for name, value in fields.items():
            object.__setattr__(self, name, value)

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
        """Return a day from plain lists or sparse matrices, one per step.

        A single matrix with `slots` is used for every step.
        """
        law = numbers(initial, "initial")
        names = tuple(str(i) for i in range(law.size)) if states is None else states
        size = len(names)
        matrices = _dense_matrices(transition, size)
        if slots is not None:
            if matrices.ndim != 2:
                raise InputError("slots is given together with one matrix per step; give one only")
            matrices = np.broadcast_to(matrices, (whole(slots, "slots") - 1, size, size))
        elif matrices.ndim == 2:
            raise InputError("transition is a single matrix; give slots, the length of the day")
        return cls(
            states=tuple(label(name) for name in names), initial=law, transition=matrices, **rest
        )

    @classmethod
    def joined(cls, days: Sequence[DayChain]) -> DayChain:
        """Return independent days, one after the other, as one long chain.

        This is the model for an event over a week: each day starts from its initial law, and what
        has happened stays. The clock must continue where the day before ends, so days of a week
        have 24 hours.
        """
        if not days:
            raise InputError("days is empty; give at least one day chain")
        first, parts = days[0], [days[0].transition]
        for before, day in pairwise(days):
            if (day.states, day.slot_minutes) != (first.states, first.slot_minutes):
                raise InputError("days differ in their contexts or slot_minutes; join equal ones")
            ends = before.start_minute + before.slots * before.slot_minutes
            if day.slot_minutes and (ends - day.start_minute) % 1440:
                raise InputError(
                    f"a day ends at {_clock(ends)} and the next begins at "
                    f"{_clock(day.start_minute % 1440)}; joined days must follow each other "
                    "without a pause: fit or write days of 24 hours (--hours 00:00-24:00)"
                )
            parts += [np.broadcast_to(day.initial, (1, day.size, day.size)), day.transition]
        return cls(
            states=first.states,
            initial=first.initial,
            transition=np.concatenate(parts),
            slot_minutes=first.slot_minutes,
            start_minute=first.start_minute,
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
        """Return P(X_t = x), (slots, states): an adversary's belief before any output."""
        rows = np.empty((self.slots, self.size))
        rows[0] = self.initial
        for t, matrix in enumerate(self.transition):
            rows[t + 1] = rows[t] @ matrix
        return rows

    def without_memory(self) -> Self:
        """Return the day with the same law of every slot and independent slots."""
        laws = self.marginals()
        rows = np.repeat(laws[1:, None, :], self.size, axis=1)
        return replace(self, transition=rows / rows.sum(axis=2, keepdims=True))

    def support(self) -> Bools:
        """Return the mask (slots, states) of possible states, from masks, so nothing underflows."""
        possible = np.zeros((self.slots, self.size), dtype=np.bool_)
        possible[0] = self.initial > 0
        for t, matrix in enumerate(self.transition):
            possible[t + 1] = (matrix[possible[t]] > 0).any(axis=0)
        return possible

    def sample(self, rng: Rng) -> Ints:
        """Draw the state indices of one random day. Model data only: not a private release."""
        draws = uniforms(self.slots, rng)
        path = np.empty(self.slots, dtype=np.int64)
        row = self.initial
        for t in range(self.slots):
            path[t] = categorical(row, draws[t])
            if t + 1 < self.slots:
                row = self.transition[t, path[t]]
        return path

    def clock(self, slot: int) -> str:
        """Return when slot `slot` (from 0) begins, as "09:30"; its number without a clock."""
        if not self.slot_minutes:
            return str(slot + 1)
        day, minute = divmod(self.start_minute + slot * self.slot_minutes, 1440)
        time = f"{minute // 60:02d}:{minute % 60:02d}"
        return f"day {day + 1} {time}" if day else time

    def walk(self) -> Walk:
        """Return the day as a walk with one matrix per step; a day of one slot has none to use."""
        shown, several = np.arange(self.size), self.slots > 1
        matrices = self.transition if several else np.eye(self.size)[None]
        return Walk(self.states, self.initial, matrices, shown, (shown,), self.slots, several)

    def motion(self) -> Motion:
        from shoal.core.motion import first_order

        return first_order(list(self.transition), self.initial, self.slots, homogeneous=False)

    def admit(self, records: Sequences) -> None:
        """Refuse days longer than the law covers."""
        admit_length(records, self.slots)

    def describe(self) -> str:
        span = f" of {self.slot_minutes} minutes" if self.slot_minutes else ""
        return (
            f"a day chain of {self.slots} slots{span} on {self.size} contexts, one matrix per "
            "step, days independent"
        )


def _clock(minute: int) -> str:
    """A minute as a time of the day it is in; the last one of a day is 24:00."""
    hour, rest = divmod(minute % 1440, 60)
    return "24:00" if minute and not hour and not rest else f"{hour:02d}:{rest:02d}"


def _with_idle_rows(transition: Floats, initial: Floats) -> Floats:
    """Return `transition` with empty rows of states that cannot occur replaced by "stay".

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


def _dense_matrices(transition: Any, size: int) -> Floats:
    """Return dense matrices from a nested list, an array, or scipy's sparse matrices."""
    if hasattr(transition, "toarray"):
        return np.asarray(transition.toarray(), dtype=np.float64)
    if not isinstance(transition, np.ndarray) and any(hasattr(m, "toarray") for m in transition):
        return np.array([m.toarray() for m in transition], dtype=np.float64)
    array = numbers(transition, "transition")
    return array if array.size else np.empty((0, size, size))


# Day chains from traces: one slot at a time, with smoothing that can be explained.
#
# What smoothing does. Without it, what was never seen is impossible: chains from few days are
# nearly deterministic, the simulatable check releases a lot, and a day that is different from all
# seen ones leaves the model (such contexts are suppressed). An adversary who thinks the unseen
# possible is not bounded by the promise. With it every context can follow every other at every
# slot: the promise then holds against such an adversary too, days never leave the model, and the
# simulatable check releases next to nothing, because some sensitive context is always within reach.
# Smoothing over neighbouring slots (`spread`) borrows days instead of inventing them, and is the
# better cure where slots are short. How much of either is a question for days that were left out:
# `smoothing="auto"` asks it.


AMOUNTS = (0.1, 0.3, 1.0, 3.0, 10.0)  # of smoothing, among which "auto" chooses
Trace = Sequence[Any]  # a context per slot; None where there is no reading


def fit_day(
    days: Any,
    *,
    states: Sequence[Any] | None = None,
    smoothing: Number | Literal["auto"] = 0,
    spread: int = 0,
    slot_minutes: int = 0,
    start_minute: int = 0,
    slot: Any = None,
    hours: str | None = None,
    **columns: Any,
) -> DayChain:
    """Fit the chain with P_t(x, y) = (n_t(x, y) + s·m(x, y)) / (n_t(x) + s): s = smoothing.

    n_t(x, y) counts the days on which y followed x after slot t, added up over `spread` slots to
    either side; pairs with a missing reading do not count. m(x, ·) mixes, half and half, the law
    of what follows x at any slot and the uniform law, so that s > 0 gives every transition a
    chance. Rows never seen take m(x, ·), with s = 0 too: they cannot be reached then, unless a
    reading was missing. With "auto" s is what `likeliest_smoothing` finds.

    `days` are lists with a context per slot, or a table or a file of timed rows whose `columns` are
    named as in `shoal.read`, cut into slots of length `slot` ("30min") in the `hours`
    ("08:00-20:00", or all day) of the rows' own clock.
    """
    if slot is not None or columns:
        start_minute, slot_minutes, _ = load("shoal.data.positions:slots_of")(slot, hours)
        days = load("shoal.data.positions:day_traces")(days, slot, hours, **columns).days
    names, coded = _encode_days(days, states)
    if smoothing == "auto":
        smoothing = likeliest_smoothing(days, states=names, spread=spread)
    amount = float(exact(smoothing, "smoothing"))
    if amount < 0:
        raise InputError(f"smoothing is {smoothing}; it must be 0 or more")
    counts = _sum_of_neighbours(_count_moves(coded, len(names)), whole(spread, "spread", least=0))
    firsts = np.bincount(coded[:, 0][coded[:, 0] >= 0], minlength=len(names)).astype(np.float64)
    if firsts.sum() == 0:
        raise DataError(_refusal_of_empty_start(coded, start_minute, slot_minutes))
    anywhere = _smoothed_rows(
        counts.sum(axis=0), np.full((len(names), len(names)), 1 / len(names)), 0.0
    )
    prior = (anywhere + 1 / len(names)) / 2
    transition = _smoothed_rows(counts, np.broadcast_to(prior, counts.shape), amount)
    uniform = np.full(len(names), 1 / len(names))
    initial = (firsts + amount * uniform) / (firsts.sum() + amount)
    return DayChain(
        states=names,
        initial=initial,
        transition=transition,
        slot_minutes=slot_minutes,
        start_minute=start_minute,
    )


def _refusal_of_empty_start(coded: Ints, start_minute: int, slot_minutes: int) -> str:
    """Return the sentence for days without a reading in their first slot, with hours that work."""
    read = np.flatnonzero((coded >= 0).any(axis=0))
    if not read.size:
        return "no day has a reading; give rows with a context and a time"
    first, end = (start_minute + slot_minutes * int(slot) for slot in (read[0], coded.shape[1]))
    hours = "-".join(f"{minute // 60:02d}:{minute % 60:02d}" for minute in (first, end))
    return f"no day has a reading in its first slot; begin the day later, with hours {hours}"


def likeliest_smoothing(
    days: Sequence[Trace], *, states: Sequence[Any] | None = None, spread: int = 0
) -> float:
    """Return which of AMOUNTS makes left-out days likeliest under the chain of the others.

    Days are left out in turn, in at most 20 groups. Needs two days.
    """
    if len(days) < 2:
        raise DataError(
            f"smoothing is 'auto' and {len(days)} day is given; leaving one out needs two days "
            "(give a number)"
        )
    names, coded = _encode_days(days, states)
    groups = np.arange(len(days)) % min(len(days), 20)

    def likelihood(amount: float) -> float:
        """Return the log-likelihood of all days, each under the chain of the other groups."""
        total = 0.0
        for group in range(int(groups.max()) + 1):
            rest = [day for day, own in zip(days, groups, strict=True) if own != group]
            chain = fit_day(rest, states=names, smoothing=amount, spread=spread)
            total += log_likelihood(chain, coded[groups == group])
        return total

    return max(AMOUNTS, key=likelihood)


def log_likelihood(day: DayChain, coded: Any) -> float:
    """Return log P of days of indices (-1: no reading), -inf when one of them is impossible.

    Slots without a reading, and the moves into and out of them, are left out.
    """
    firsts = coded[:, 0][coded[:, 0] >= 0]
    with np.errstate(divide="ignore"):
        total = np.log(day.initial[firsts]).sum()
        for t in range(day.slots - 1):
            before, after = coded[:, t], coded[:, t + 1]
            both = (before >= 0) & (after >= 0)
            total += np.log(day.transition[t, before[both], after[both]]).sum()
    return float(total)


def fit_day_kinds(
    days: Mapping[Any, Trace], kind: Callable[[Any], str], **options: Any
) -> dict[str, DayChain]:
    """Fit one chain per kind of day, such as weekday and weekend, all on the same states.

    `kind` must be public: which chain is used may depend on the date, never on the contexts.
    """
    groups: dict[str, list[Trace]] = {}
    for day, trace in days.items():
        groups.setdefault(kind(day), []).append(trace)
    if not groups:
        raise DataError("no day is given; give at least one")
    states = options.pop("states", None)
    if states is None:
        found = {label(c) for trace in days.values() for c in trace if c is not None}
        states = sorted(found)
    return {name: fit_day(traces, states=states, **options) for name, traces in groups.items()}


def _encode_days(
    days: Sequence[Trace], states: Sequence[Any] | None
) -> tuple[tuple[str, ...], Any]:
    """Return names, and a (days, slots) table of indices, -1 where there is no reading."""
    if not days:
        raise DataError("no day is given; give at least one")
    lengths = {len(day) for day in days}
    if len(lengths) > 1 or 0 in lengths:
        raise DataError(
            f"days have {sorted(lengths)} slots; every day needs the same number of slots "
            "(fill gaps with None)"
        )
    texts = [[None if c is None else label(c) for c in day] for day in days]
    if states is None:
        states = sorted({c for day in texts for c in day if c is not None})
    names = checked_states(states)
    index: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    unknown = {c for day in texts for c in day if c is not None and c not in index}
    if unknown:
        raise DataError(f"a day holds {sorted(unknown)[0]!r}, which is not one of {list(names)}")
    return names, np.array([[index.get(c, -1) for c in day] for day in texts])


def _count_moves(coded: Any, size: int) -> Floats:
    """Return the counts (slots - 1, states, states) of steps whose both slots have a reading."""
    counts = np.zeros((coded.shape[1] - 1, size, size))
    for t in range(coded.shape[1] - 1):
        before, after = coded[:, t], coded[:, t + 1]
        both = (before >= 0) & (after >= 0)
        np.add.at(counts[t], (before[both], after[both]), 1.0)
    return counts


def _sum_of_neighbours(counts: Floats, slots: int) -> Floats:
    padded = np.pad(counts, ((slots, slots), (0, 0), (0, 0)))
    shifted = [padded[k : k + len(counts)] for k in range(2 * slots + 1)]
    return np.asarray(np.sum(shifted, axis=0))


def _smoothed_rows(counts: Floats, prior: Floats, amount: float) -> Floats:
    """Return (counts + amount·prior) / total, and the prior where nothing was counted."""
    total = counts.sum(axis=-1, keepdims=True)
    mixed = (counts + amount * prior) / np.where(total + amount > 0, total + amount, 1.0)
    return np.asarray(np.where(total + amount > 0, mixed, prior))


def day_chains(family: Iterable[Model]) -> tuple[DayChain, ...]:
    """Return the day chains among the models of a family."""
    return tuple(model for model in family if isinstance(model, DayChain))
