"""What may be shown after slots that nobody read: an exact filter over the hidden contexts.

Tables of suppression probabilities are calibrated for days on which every earlier coin was thrown.
A slot without a reading throws none: a public step that tells nothing. From there to the next
release this follows what an adversary believes, one day chain at a time, and lets a context be
shown only as often as leaves every belief inside its bound, whichever way the coin falls.
Proof: contexts/checks/mask_missing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from shoal.contexts.search.adaptive import Origin, coming_to
from shoal.contexts.search.beliefs import LEVELS, Codes, Day, decoded, encoded, future_beliefs
from shoal.core.codec import Bools, Floats, Ints

KEPT = 256  # beliefs remembered: some people's days side by side, of some ten thousand numbers each
LEAST = 2.0**-12  # nothing is shown more often than 1 minus this: every output stays possible
MARGIN = 1e-12  # of belief, kept from every bound besides what rounding may add
PACE = 0.3  # of the room is spent at a slot: .15 of 32 slots shown with one not read, .12 with all
SHARES = (1.0, 0.9, 0.5, 0.1)  # of the probabilities wished for, tried in turn


class Belief(NamedTuple):
    """What is believed before a slot, given the last release and what followed: all of it public.

    `logs[j]` is log P(X_t = j | …) up to a constant, -inf only where j is impossible, and
    `held[j, c]` = P(secret c | …, X_t = j), for the secrets after the release.
    """

    logs: Floats
    held: Floats


Begun = Callable[[Day, Origin, int], Belief | None]


def opening(day: Day, origin: Origin) -> Belief:
    """The belief before the slot after a release (slot -1 is "start")."""
    slot, state = origin
    law = day.initial if slot < 0 else day.moves[slot, state]
    return Belief(logs_of(law), future_beliefs(day)[slot + 1][:, after(day, slot) :])


def onward(day: Day, origin: Origin, t: int, belief: Belief, hidden: Floats) -> Belief | None:
    """The belief before slot t + 1 when slot t was suppressed with probabilities `hidden`.

    All ones for a slot that was not read: nothing is learned. None when nothing could be
    suppressed, so that no law is left. Weights are logarithms, so none underflows; the held
    beliefs are averages by the reversed chain, a stochastic matrix.
    """
    kept = (belief.logs + logs_of(hidden))[None]
    logs, held = pushed(day, origin, t, kept, belief.held[None], np.zeros(day.size, np.int64))
    if not np.isfinite(logs).any():
        return None
    return Belief(logs[0] - logs[np.isfinite(logs)].max(), held[0])


def pushed(
    day: Day, origin: Origin, t: int, kept: Floats, held: Floats, digits: Ints
) -> tuple[Floats, Floats]:
    """Log laws kept[h, j] and beliefs held[h, j, c] at slot t, moved on to slot t + 1.

    Each history h grows by the digit of the state that is left; with digits of 0 there is one.
    """
    first = after(day, origin[0])
    past = after(day, t) - first
    logs, beliefs = [], []
    for digit in range(int(digits.max()) + 1):
        group = np.flatnonzero(digits == digit)
        weight = kept[:, group, None] + logs_of(day.moves[t, group])  # [h, j, k]
        law = np.logaddexp.reduce(weight, axis=1)
        back = np.exp(weight - np.where(np.isfinite(law), law, 0.0)[:, None])
        later = np.repeat(future_beliefs(day)[t + 1][None, :, first:], len(kept), axis=0)
        later[..., :past] = 0.0
        for place, j in enumerate(group):  # in this order everywhere: a stored stream goes on alike
            later[..., :past] += back[:, place, :, None] * held[:, None, j, :past]
        logs.append(law)
        beliefs.append(later)
    shape = (len(logs) * len(kept), day.size)
    joined = np.stack(beliefs, axis=1).reshape(*shape, held.shape[2])
    return np.stack(logs, axis=1).reshape(shape), joined


def allowed(days: Sequence[Day], beliefs: Sequence[Belief | None], origin: Origin, t: int) -> Codes:
    """Suppression probabilities at slot t, as codes, that keep every bound of every day.

    x may be shown only if P(c | …, X_t = x) stays inside the bound of each secret, and only as
    often as leaves the belief after suppression inside too; what costs the least room comes first.
    Suppressing everything always keeps the bounds. Rounded to more suppression.
    """
    alive = [_Rows(d, b, origin, t) for d, b in zip(days, beliefs, strict=True) if b is not None]
    nothing = np.full(days[0].size, LEVELS - 1, dtype=np.uint16)
    shown = np.any([np.zeros(len(nothing), np.bool_), *(rows.possible for rows in alive)], axis=0)
    for rows in alive:
        shown &= ~rows.possible | (rows.spare >= 0).all(axis=1)
    if not shown.any():
        return nothing
    wished = _wished(alive, shown, max(PACE, 1 / (days[0].slots - t)))
    for share in SHARES:
        codes = encoded(1.0 - share * wished)
        if all(rows.keep(codes) for rows in alive):
            return codes
    return nothing


class _Rows:
    """One day's bounds at one slot: `spare[j, c]` is the bound less the belief if j is shown."""

    def __init__(self, day: Day, belief: Belief, origin: Origin, t: int) -> None:
        self.logs, self.held = belief.logs, belief.held
        self.possible: Bools = np.isfinite(belief.logs)
        spread = np.abs(belief.logs[self.possible]).max(initial=0.0) + day.size
        rounding = 16 * np.finfo(np.float64).eps * (t - origin[0] + 1) * (spread + 745.0)
        self.bound = day.bound[after(day, origin[0]) :] - MARGIN - rounding
        self.spare = self.bound - belief.held
        weight = np.exp(belief.logs - belief.logs[self.possible].max())
        self.law = weight / weight.sum()

    def keep(self, codes: Codes) -> bool:
        """Whether the belief after a suppression at these codes is inside every bound."""
        logs = self.logs + logs_of(decoded(codes))
        weight = np.exp(logs - logs[np.isfinite(logs)].max())
        return bool(((weight[:, None] * self.held).sum(axis=0) / weight.sum() <= self.bound).all())


def _wished(alive: Sequence[_Rows], shown: Bools, pace: float) -> Floats:
    """How often to show each context: as often as a share of the room allows, the cheapest first.

    Showing j with probability x takes x·P(j)·(bound - belief) of the room of each secret.
    """
    cost = np.concatenate([(rows.law[:, None] * rows.spare).T for rows in alive])  # [row, j]
    room = np.concatenate([(rows.law[:, None] * rows.spare).sum(axis=0) for rows in alive])
    price = np.concatenate([rows.spare.T for rows in alive]) / np.maximum(room, MARGIN**2)[:, None]
    room, wished = room * pace, np.zeros(len(shown))
    for j in sorted(np.flatnonzero(shown), key=lambda j: float(price[:, j].max(initial=0.0))):
        takes = cost[:, j] > 0
        limit = (room[takes] / cost[takes, j]).min(initial=1.0)
        wished[j] = min(max(float(limit), 0.0), 1.0 - LEAST)
        room = room - wished[j] * cost[:, j]
    return wished


class AfterGaps:
    """Decides every slot between one that was not read and the next release, for one plan.

    A function of what is public: the last release, which slots were not read since, the slot. So
    a stream keeps only those, and finds the same probabilities again when it is taken up.
    """

    def __init__(self, days: Sequence[Day]) -> None:
        self.days = tuple(days)
        self._kept: dict[tuple[int, ...], list[Belief | None]] = {}

    def codes(
        self, origin: Origin, gaps: tuple[int, ...], slot: int, first: int, go: Begun
    ) -> Codes:
        """The codes of `slot`, whose filter begins at slot `first`, `go` giving its beliefs then.

        `gaps` are the slots not read as boundaries: from gaps[0] up to gaps[1], and so on.
        """
        beliefs = self._beliefs(origin, gaps, slot, first, go)
        return allowed(self.days, beliefs, origin, slot)

    def _beliefs(
        self, origin: Origin, gaps: tuple[int, ...], slot: int, first: int, go: Begun
    ) -> list[Belief | None]:
        t = slot
        while t > first and _key(origin, gaps, t) not in self._kept:
            t -= 1
        known = self._kept.get(_key(origin, gaps, t))
        beliefs = known or [
            go(day, origin, t) if coming_to((day,), origin) else None for day in self.days
        ]
        for u in range(t, slot):
            hidden = np.ones(self.days[0].size)
            if not _inside(gaps, u):
                hidden = decoded(allowed(self.days, beliefs, origin, u))
            beliefs = [
                None if belief is None else onward(day, origin, u, belief, hidden)
                for day, belief in zip(self.days, beliefs, strict=True)
            ]
        while len(self._kept) >= KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[_key(origin, gaps, slot)] = beliefs
        return beliefs


def after(day: Day, slot: int) -> int:
    """How many of the secrets lie at `slot` or before it."""
    return int(np.searchsorted(day.when, slot, side="right"))


def logs_of(values: Floats) -> Floats:
    """Logarithms, -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def log_sums(logs: Floats) -> Floats:
    """log Σ exp over the first axis; -inf where all are."""
    return np.asarray(np.logaddexp.reduce(logs, axis=0))


def _inside(gaps: tuple[int, ...], slot: int) -> bool:
    return any(a <= slot < b for a, b in zip(gaps[::2], gaps[1::2], strict=True))


def _key(origin: Origin, gaps: tuple[int, ...], slot: int) -> tuple[int, ...]:
    """What decides the belief before a slot: the release, and the slots not read until then."""
    known = [
        edge
        for a, b in zip(gaps[::2], gaps[1::2], strict=True)
        if a < slot
        for edge in (a, min(b, slot))
    ]
    return (*origin, slot, *known)
