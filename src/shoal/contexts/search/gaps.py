"""What may be released after unread slots: an exact filter over the suppressed contexts.

Tables of suppression probabilities are calibrated for days on which every earlier slot was read.
A slot without a reading is a public step that tells nothing. From there to the next release the
filter follows what an adversary believes, one day chain at a time, and releases a context only
as often as keeps every belief within its bound, after a release as after a suppression.
Proof: contexts/checks/mask_missing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.contexts.search.beliefs import (
    COIN_LEVELS,
    Codes,
    Day,
    Origin,
    days_allowing,
    decoded,
    encoded,
    law_after_release,
)
from shoal.core.codec import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class GapSettings:
    """Constants of the filter, measured with benchmarks/mask.py --missing."""

    beliefs_kept: int = 256  # cached beliefs, of some ten thousand numbers each
    least_suppression: float = 2.0**-12  # nothing is released with a probability above 1 minus this
    belief_margin: float = 1e-12  # kept below every bound besides what rounding may add
    # share of the room spent at a slot: .15 of 32 slots released with one unread, .12 at 1
    pace: float = 0.3
    # of the wanted probabilities, tried in turn
    shares_tried: tuple[float, ...] = (1.0, 0.9, 0.5, 0.1)


GAPS = GapSettings()


class Belief(NamedTuple):
    """The belief before a slot, given the last release and what followed. It is public.

    `logs[j]` is log P(X_t = j | …) up to a constant, -inf only where j is impossible, and
    `held[j, c]` = P(secret c | …, X_t = j), for the secrets after the release.
    """

    logs: Floats
    held: Floats


BeliefsBefore = Callable[[Day, Origin, int], Belief | None]


def opening(day: Day, origin: Origin) -> Belief:
    """Return the belief before the slot after a release (slot -1 is the start)."""
    slot = origin[0]
    later = day.future[slot + 1][:, count_secrets_until(day, slot) :]
    return Belief(logs_of(law_after_release(day, origin)), later)


def onward(day: Day, origin: Origin, t: int, belief: Belief, suppression: Floats) -> Belief | None:
    """Return the belief before slot t + 1 when slot t was suppressed; None when that is impossible.

    `suppression` holds the probabilities of slot t. Weights are logarithms, so none underflows; the
    held beliefs are averages by the reversed chain, a stochastic matrix.
    """
    kept = (belief.logs + logs_of(suppression))[None]
    logs, held = pushed(day, origin, t, kept, belief.held[None], np.zeros(day.size, np.int64))
    if not np.isfinite(logs).any():
        return None
    return Belief(logs[0] - logs[np.isfinite(logs)].max(), held[0])


def pushed(
    day: Day, origin: Origin, t: int, kept: Floats, held: Floats, digits: Ints
) -> tuple[Floats, Floats]:
    """Return log laws kept[h, j] and beliefs held[h, j, c] of slot t moved on to slot t + 1.

    Each history h grows by the digit of the state that is left; with digits of 0 there is one.
    """
    first = count_secrets_until(day, origin[0])
    past = count_secrets_until(day, t) - first
    logs, beliefs = [], []
    for digit in range(int(digits.max()) + 1):
        group = np.flatnonzero(digits == digit)
        weight = kept[:, group, None] + logs_of(day.moves[t, group])  # [h, j, k]
        law = np.logaddexp.reduce(weight, axis=1)
        back = np.exp(weight - np.where(np.isfinite(law), law, 0.0)[:, None])
        later = np.repeat(day.future[t + 1][None, :, first:], len(kept), axis=0)
        later[..., :past] = 0.0
        for index, j in enumerate(group):  # in this order everywhere: a stored stream goes on alike
            later[..., :past] += back[:, index, :, None] * held[:, None, j, :past]
        logs.append(law)
        beliefs.append(later)
    shape = (len(logs) * len(kept), day.size)
    joined = np.stack(beliefs, axis=1).reshape(*shape, held.shape[2])
    return np.stack(logs, axis=1).reshape(shape), joined


def codes_after_gap(
    days: Sequence[Day], beliefs: Sequence[Belief | None], origin: Origin, t: int
) -> Codes:
    """Return codes for slot t that keep every bound of every day after a slot without a reading.

    x may be released only if P(c | …, X_t = x) is within the bound of each secret, and only as
    often as keeps the belief after suppression within it; what costs the least room comes first.
    Suppressing everything always keeps the bounds. Codes round to more suppression.
    """
    alive = [
        _SlotBounds(d, b, origin, t) for d, b in zip(days, beliefs, strict=True) if b is not None
    ]
    nothing = np.full(days[0].size, COIN_LEVELS - 1, dtype=np.uint16)
    releasable = np.any(
        [np.zeros(len(nothing), np.bool_), *(rows.possible for rows in alive)], axis=0
    )
    for rows in alive:
        releasable &= ~rows.possible | (rows.spare >= 0).all(axis=1)
    if not releasable.any():
        return nothing
    chances = _release_chances(alive, releasable, max(GAPS.pace, 1 / (days[0].slots - t)))
    for share in GAPS.shares_tried:
        codes = encoded(1.0 - share * chances)
        if all(rows.keep(codes) for rows in alive):
            return codes
    return nothing


class _SlotBounds:
    """The bounds of one day at one slot.

    `spare[j, c]` is the bound of secret c less the belief that a release of j causes.
    """

    def __init__(self, day: Day, belief: Belief, origin: Origin, t: int) -> None:
        """Compute the law of the slot and the room that rounding leaves below each bound."""
        self.logs, self.held = belief.logs, belief.held
        self.possible: Bools = np.isfinite(belief.logs)
        spread = np.abs(belief.logs[self.possible]).max(initial=0.0) + day.size
        rounding = 16 * np.finfo(np.float64).eps * (t - origin[0] + 1) * (spread + 745.0)
        self.bound = (
            day.bound[count_secrets_until(day, origin[0]) :] - GAPS.belief_margin - rounding
        )
        self.spare = self.bound - belief.held
        weight = np.exp(belief.logs - belief.logs[self.possible].max())
        self.law = weight / weight.sum()

    def keep(self, codes: Codes) -> bool:
        """Return whether the belief after a suppression at these codes keeps every bound."""
        logs = self.logs + logs_of(decoded(codes))
        weight = np.exp(logs - logs[np.isfinite(logs)].max())
        return bool(((weight[:, None] * self.held).sum(axis=0) / weight.sum() <= self.bound).all())


def _release_chances(alive: Sequence[_SlotBounds], releasable: Bools, pace: float) -> Floats:
    """Return how often to release each context: the cheapest first, within a share of the room.

    Releasing j with probability x takes x·P(j)·(bound - belief) of the room of each secret.
    """
    cost = np.concatenate([(rows.law[:, None] * rows.spare).T for rows in alive])  # [row, j]
    room = np.concatenate([(rows.law[:, None] * rows.spare).sum(axis=0) for rows in alive])
    price = (
        np.concatenate([rows.spare.T for rows in alive])
        / np.maximum(room, GAPS.belief_margin**2)[:, None]
    )
    room, chances = room * pace, np.zeros(len(releasable))
    for j in sorted(np.flatnonzero(releasable), key=lambda j: float(price[:, j].max(initial=0.0))):
        takes = cost[:, j] > 0
        limit = (room[takes] / cost[takes, j]).min(initial=1.0)
        chances[j] = min(max(float(limit), 0.0), 1.0 - GAPS.least_suppression)
        room = room - chances[j] * cost[:, j]
    return chances


class AfterGaps:
    """The filter that decides every slot between one without a reading and the next release.

    A function of what is public: the last release, which slots were not read since, the slot. So
    a stream keeps only those, and finds the same probabilities again when it is taken up.
    """

    def __init__(self, days: Sequence[Day]) -> None:
        self.days = tuple(days)
        self._kept: dict[tuple[int, ...], list[Belief | None]] = {}

    def codes(
        self, origin: Origin, gaps: tuple[int, ...], slot: int, first: int, go: BeliefsBefore
    ) -> Codes:
        """Return the codes of `slot`; the filter starts at slot `first` with beliefs from `go`.

        `gaps` are the slots not read as boundaries: from gaps[0] up to gaps[1], and so on.
        """
        t = slot
        while t > first and _history_key(origin, gaps, t) not in self._kept:
            t -= 1
        known = self._kept.get(_history_key(origin, gaps, t))
        beliefs = known or [
            go(day, origin, t) if days_allowing((day,), origin) else None for day in self.days
        ]
        for u in range(t, slot):
            suppression = np.ones(self.days[0].size)
            if not _in_gap(gaps, u):
                suppression = decoded(codes_after_gap(self.days, beliefs, origin, u))
            beliefs = [
                None if belief is None else onward(day, origin, u, belief, suppression)
                for day, belief in zip(self.days, beliefs, strict=True)
            ]
        while len(self._kept) >= GAPS.beliefs_kept:
            self._kept.pop(next(iter(self._kept)))
        self._kept[_history_key(origin, gaps, slot)] = beliefs
        return codes_after_gap(self.days, beliefs, origin, slot)


def count_secrets_until(day: Day, slot: int) -> int:
    """Return how many secrets lie at `slot` or before it."""
    return int(np.searchsorted(day.when, slot, side="right"))


def logs_of(values: Floats) -> Floats:
    """Return natural logarithms, -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def log_sums(logs: Floats) -> Floats:
    """Return log Σ exp over the first axis; -inf where every term is -inf."""
    return np.asarray(np.logaddexp.reduce(logs, axis=0))


def _in_gap(gaps: tuple[int, ...], slot: int) -> bool:
    return any(a <= slot < b for a, b in zip(gaps[::2], gaps[1::2], strict=True))


def _history_key(origin: Origin, gaps: tuple[int, ...], slot: int) -> tuple[int, ...]:
    """Return what decides the belief before a slot: the release, the slot and earlier gaps."""
    known = [
        edge
        for a, b in zip(gaps[::2], gaps[1::2], strict=True)
        if a < slot
        for edge in (a, min(b, slot))
    ]
    return (*origin, slot, *known)
