"""Day chains from traces: one slot at a time, with smoothing that can be explained.

What smoothing does. Without it, what was never seen is impossible: chains from few days are
nearly deterministic, the simulatable check shows a lot, and a day that is different from all
seen ones leaves the model (such contexts are suppressed). An adversary who thinks the unseen
possible is not bounded by the promise. With it every context can follow every other at every
slot: the promise then holds against such an adversary too, days never leave the model, and the
simulatable check shows next to nothing, because some sensitive context is always within reach.
Smoothing over neighbouring slots (`spread`) borrows days instead of inventing them, and is the
better cure where slots are short. How much of either is a question for days that were left out:
`smoothing="auto"` asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, exact, whole
from shoal.core.records import label
from shoal.core.value import Floats
from shoal.models.chain import checked_states
from shoal.models.day import DayChain

AMOUNTS = (0.1, 0.3, 1.0, 3.0, 10.0)  # of smoothing, among which "auto" chooses
Trace = Sequence[Any]  # a context per slot; None where there is no reading


def fit_day(
    days: Sequence[Trace],
    *,
    states: Sequence[Any] | None = None,
    smoothing: Number | Literal["auto"] = 0,
    spread: int = 0,
    slot_minutes: int = 0,
    start_minute: int = 0,
) -> DayChain:
    """The chain with P_t(x, y) = (n_t(x, y) + s·m(x, y)) / (n_t(x) + s): s = smoothing.

    n_t(x, y) counts the days on which y followed x after slot t, added up over `spread` slots to
    either side; pairs with a missing reading do not count. m(x, ·) mixes, half and half, the law
    of what follows x at any slot and the uniform law, so that s > 0 gives every transition a
    chance. Rows never seen take m(x, ·), with s = 0 too: they cannot be reached then, unless a
    reading was missing. With "auto" s is what `likeliest_smoothing` finds.
    """
    names, coded = _coded(days, states)
    if smoothing == "auto":
        smoothing = likeliest_smoothing(days, states=names, spread=spread)
    amount = float(exact(smoothing, "smoothing"))
    if amount < 0:
        raise InputError(f"smoothing is {smoothing}; it must be 0 or more")
    counts = _spread(_counts(coded, len(names)), whole(spread, "spread", least=0))
    firsts = np.bincount(coded[:, 0][coded[:, 0] >= 0], minlength=len(names)).astype(np.float64)
    if firsts.sum() == 0:
        raise DataError("no day has a reading in its first slot; begin the day later")
    anywhere = _rows(counts.sum(axis=0), np.full((len(names), len(names)), 1 / len(names)), 0.0)
    prior = (anywhere + 1 / len(names)) / 2
    transition = _rows(counts, np.broadcast_to(prior, counts.shape), amount)
    uniform = np.full(len(names), 1 / len(names))
    initial = (firsts + amount * uniform) / (firsts.sum() + amount)
    return DayChain(
        states=names,
        initial=initial,
        transition=transition,
        slot_minutes=slot_minutes,
        start_minute=start_minute,
    )


def likeliest_smoothing(
    days: Sequence[Trace], *, states: Sequence[Any] | None = None, spread: int = 0
) -> float:
    """Which of AMOUNTS makes days likeliest under the chain of the others; the first of equals.

    Days are left out in turn, in at most 20 groups. Needs two days.
    """
    if len(days) < 2:
        raise DataError(
            f"smoothing is 'auto' and {len(days)} day is given; leaving one out needs two days "
            "(give a number)"
        )
    names, coded = _coded(days, states)
    groups = np.arange(len(days)) % min(len(days), 20)

    def likelihood(amount: float) -> float:
        total = 0.0
        for group in range(int(groups.max()) + 1):
            rest = [day for day, own in zip(days, groups, strict=True) if own != group]
            chain = fit_day(rest, states=names, smoothing=amount, spread=spread)
            total += log_likelihood(chain, coded[groups == group])
        return total

    return max(AMOUNTS, key=likelihood)


def log_likelihood(day: DayChain, coded: Any) -> float:
    """log P of several days of indices (-1: no reading), -inf when one of them is impossible.

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
    """One chain per kind of day, such as weekday and weekend; all on the same states.

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


def _coded(days: Sequence[Trace], states: Sequence[Any] | None) -> tuple[tuple[str, ...], Any]:
    """Names, and a (days, slots) table of indices, -1 where there is no reading."""
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


def _counts(coded: Any, size: int) -> Floats:
    counts = np.zeros((coded.shape[1] - 1, size, size))
    for t in range(coded.shape[1] - 1):
        before, after = coded[:, t], coded[:, t + 1]
        both = (before >= 0) & (after >= 0)
        np.add.at(counts[t], (before[both], after[both]), 1.0)
    return counts


def _spread(counts: Floats, slots: int) -> Floats:
    padded = np.pad(counts, ((slots, slots), (0, 0), (0, 0)))
    shifted = [padded[k : k + len(counts)] for k in range(2 * slots + 1)]
    return np.asarray(np.sum(shifted, axis=0))


def _rows(counts: Floats, prior: Floats, amount: float) -> Floats:
    """(counts + amount·prior) / total, and prior where nothing was counted."""
    total = counts.sum(axis=-1, keepdims=True)
    mixed = (counts + amount * prior) / np.where(total + amount > 0, total + amount, 1.0)
    return np.asarray(np.where(total + amount > 0, mixed, prior))
