"""Greedy and exhaustive searches for one suppression probability per slot and state.

Privacy is monotone here (raising a probability never hurts; Götz, Nath & Gehrke 2012, Theorem 1),
so both searches start from suppressing everything and lower one probability at a time. The cache
of Lemma 3 is not used: it is unsound (ERRATA 003).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import (
    Day,
    future_beliefs,
    memoryless_rise,
    releasable,
    released_fraction,
)

MEMORY = 1 << 30  # bytes of rows; what would need more stays suppressed


def greedy(day: Day, order: Iterable[int], levels: Floats, *, work: float = np.inf) -> Floats:
    """Suppression probabilities that are private and that no single lowering improves.

    Coordinates t·n + j are lowered once, in the given order, to the least of `levels` (ascending,
    the last is 1) that keeps every bound: one pass is enough, because a coordinate that could not
    be lowered then cannot be lowered later. `work` limits the multiplications spent; coordinates
    not reached stay at 1.
    """
    search = _Search(day)
    shown = releasable(day, future_beliefs(day))
    for place in order:
        if shown.flat[place] and search.work < work:
            search.lower(*divmod(int(place), day.size), levels)
    return search.hidden


def prior_order(day: Day) -> Ints:
    """Likely states first: the paper's heuristic, ties in order of slot and state."""
    return np.argsort(-day.prior.ravel(), kind="stable")


def orders(day: Day, restarts: int) -> list[Ints]:
    """Prior order, forward in time, backward, then random ones, the same at every call."""
    count = day.slots * day.size
    rng = np.random.default_rng(2012)
    listed = [prior_order(day), np.arange(count), np.arange(count)[::-1]]
    listed += [rng.permutation(count) for _ in range(max(0, restarts - len(listed)))]
    return listed[:restarts]


def best_on_grid(day: Day, levels: Sequence[float]) -> Floats:
    """The private vector of highest utility on the grid, by exhaustive search.

    Coordinates are fixed one after the other. A branch is cut when it is not private with all
    later coordinates suppressed (then nothing below it is, by monotonicity), or when releasing
    all later ones would not beat the best vector found. Exponential: for tiny chains.
    """
    shown = releasable(day, future_beliefs(day))
    places = [int(p) for p in prior_order(day) if shown.flat[p]]
    gain = day.prior.ravel()
    rest = np.concatenate([np.cumsum(gain[places][::-1])[::-1], [0.0]])
    best: list[tuple[float, Floats]] = [(-1.0, np.ones((day.slots, day.size)))]

    def follow(depth: int, hidden: Floats, reached: float) -> None:
        if reached + rest[depth] <= best[0][0] + 1e-12 or not private(day, hidden):
            return
        if depth == len(places):
            best[0] = (reached, hidden.copy())
            return
        for level in sorted(levels):
            hidden.flat[places[depth]] = level
            follow(depth + 1, hidden, reached + gain[places[depth]] * (1 - level))
        hidden.flat[places[depth]] = 1.0

    follow(0, np.ones((day.slots, day.size)), 0.0)
    return best[0][1]


def private(day: Day, hidden: Floats) -> bool:
    """The whole check without division: no output of `hidden` breaks a bound."""
    search = _Search(day, hidden)
    shown = hidden < 1
    if (shown[day.when, day.who]).any():
        return False
    origins = [(-1, 0)] + [(int(t), int(j)) for t, j in np.argwhere(shown & day.possible)]
    return not any(search.breaches(*search.row(t, j), t, t) for t, j in origins)


@dataclass(frozen=True, slots=True)
class Grid:
    """What a restart of the greedy search uses: an order of coordinates and a set of levels."""

    order: Ints
    levels: Floats


def best_of(day: Day, grids: Iterable[Grid], *, work: float = np.inf) -> Floats:
    """The vector of highest expected utility among several greedy searches."""
    best, value = np.ones((day.slots, day.size)), 0.0
    for grid in grids:
        found = greedy(day, grid.order, grid.levels, work=work)
        reached = released_fraction(day, found)
        if reached > value * (1 + 1e-12) and memoryless_rise(day, found) <= _allowed(day):
            best, value = found, reached
    return best


def _allowed(day: Day) -> float:
    """The rise that every bound stands for: the same for all secrets, by construction."""
    if not len(day.bound):
        return np.inf
    return float((day.share * (day.bound - day.prior[day.when, day.who])).max())


class _Search:
    """The rows of a greedy search: one per releasable origin, and one per secret."""

    def __init__(self, day: Day, hidden: Floats | None = None) -> None:
        from shoal.loss import suppression_greedy_kernels as kernels

        self.kernels = kernels
        self.day = day
        self.hidden = np.ones((day.slots, day.size)) if hidden is None else hidden.copy()
        self.shown = np.zeros((day.slots + 1, day.size), dtype=np.bool_)
        self.shown[:-1] = (self.hidden < 1) & day.possible
        self.shown[-1, 0] = True
        self.table = np.zeros((day.slots + 1, day.size, len(day.when)))
        self.scale = np.zeros((day.slots + 1, len(day.when)), dtype=np.int64)
        self._extend_secrets(-1)
        start = self.row(-1, 0)
        self.origins = [(-1, 0)]
        self.asked = [0]
        self.rows = [start]
        self.work = 0.0

    def row(self, slot: int, state: int) -> tuple[Floats, Ints]:
        """K(origin → ·) under the current probabilities."""
        values = np.zeros((self.day.slots + 1, self.day.size))
        powers = np.zeros(self.day.slots + 1, dtype=np.int64)
        self._extend(values, powers, (slot, state), -1)
        return values, powers

    def lower(self, slot: int, state: int, levels: Floats) -> None:
        """Lowers one probability to the least level that keeps every bound."""
        star, lift = self.row(slot, state)
        if self.breaches(star, lift, slot, slot):
            return
        least = 1.0 - levels[-2] if len(levels) > 1 else 2.0
        room = self._room((slot, state), star, lift, least * (1 - 1e-9))
        if room < least * (1 - 1e-9):
            return
        place = (slot, state)
        first = int(np.searchsorted(levels, (1.0 - room) * (1 - 1e-12)))
        for level in levels[first : first + 2]:  # the second when rounding spoiled the first
            if level < 1 and self._settle(place, float(level), star, lift):
                return
        self._restore(place)

    def _room(self, place: tuple[int, int], star: Floats, lift: Ints, least: float) -> float:
        """The largest release probability of `place`; below `least` as soon as that is certain.

        The origin that turned the last candidate down is asked first: it often does again.
        """
        room = 1.0
        each = float(self.shown[place[0] + 1 :].sum() * len(self.day.when))
        for turn, which in enumerate(self.asked):
            origin, (row, power) = self.origins[which][0], self.rows[which]
            if origin >= place[0]:
                continue
            if not self.kernels.released_here(
                row, power, origin, place, self.hidden, *self._secrets()
            ):
                room = 0.0
            else:
                room = self.kernels.room(
                    row,
                    power,
                    origin,
                    place,
                    star,
                    lift,
                    self.hidden,
                    self.shown,
                    *self._secrets(),
                    room,
                    least,
                )
            self.work += each
            if room < least:
                self.asked.insert(0, self.asked.pop(turn))
                return room
        return room

    def breaches(self, row: Floats, power: Ints, slot: int, after: int) -> bool:
        return bool(
            self.kernels.breached(
                row, power, slot, after, self.hidden, self.shown, *self._secrets()
            )
        )

    def _settle(self, place: tuple[int, int], level: float, star: Floats, lift: Ints) -> bool:
        """Takes the level, recomputes every row it changes, and looks again at those outputs."""
        slot, state = place
        self.hidden[slot, state] = level
        self.shown[slot, state] = True
        self._refresh(slot)
        for (origin, _), (row, power) in zip(self.origins, self.rows, strict=True):
            if origin < slot and row[slot, state] > 0 and self.breaches(row, power, origin, slot):
                return False
        if len(self.rows) * star.nbytes < MEMORY:
            self.asked.insert(0, len(self.origins))
            self.origins.append(place)
            self.rows.append((star, lift))
            return True
        return False

    def _restore(self, place: tuple[int, int]) -> None:
        if self.shown[place]:
            self.hidden[place] = 1.0
            self.shown[place] = False
            self._refresh(place[0])

    def _refresh(self, slot: int) -> None:
        """Recomputes, never subtracts: a difference would leave 1e-17 where nothing is left."""
        for origin, (row, power) in zip(self.origins, self.rows, strict=True):
            if origin[0] < slot:
                self._extend(row, power, origin, slot)
                self.work += (self.day.slots - slot) * self.day.size**2
        self._extend_secrets(slot)

    def _extend(self, row: Floats, power: Ints, origin: tuple[int, int], since: int) -> None:
        self.kernels.extend_row(
            self.day.initial, self.day.moves, self.hidden, origin, since, row, power
        )

    def _extend_secrets(self, since: int) -> None:
        self.kernels.extend_secrets(
            self.day.moves, self.hidden, self.day.when, self.day.who, since, self.table, self.scale
        )

    def _secrets(self) -> tuple[Ints, Ints, Floats, Floats, Ints]:
        day = self.day
        return day.when, day.who, day.bound, self.table, self.scale
