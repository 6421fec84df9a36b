"""Greedy and exhaustive searches for one suppression probability per slot and state.

Privacy is monotone here (raising a probability never hurts; Götz, Nath & Gehrke 2012, Theorem 1),
so both searches start from suppressing everything and lower one probability at a time. The cache
of Lemma 3 is not used: it is unsound (ERRATA 003).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.contexts.search.beliefs import (
    Day,
    as_family,
    jointly_releasable,
    memoryless_rise,
    vector_value,
)
from shoal.contexts.search.limits import Effort
from shoal.core.codec import Floats, Ints

KERNEL_CALL_WORK = 1e4  # multiplications that calling a compiled loop stands for
MAX_ROW_BYTES = 1 << 30  # bytes of rows; what would need more stays suppressed


def search_vector(
    days: Day | Sequence[Day],
    order: Iterable[int],
    levels: Floats,
    *,
    work: float | Effort = np.inf,
) -> Floats:
    """Return private suppression probabilities (slots, states) that no single decrease improves.

    Coordinates t·n + j are lowered once, in the given order, to the least of `levels` (ascending,
    the last is 1) that keeps every bound: one pass is enough, because a coordinate that could not
    be lowered then cannot be lowered later. With several days (the members of a family) a level
    must keep the bounds of each: the highest of their least levels does, by monotonicity. `work`
    limits what is spent; coordinates not reached stay at 1, and what is found is private whenever
    it ends.
    """
    family = as_family(days)
    effort = Effort.of(work)
    searches = [_MemberSearch(day, effort) for day in family]
    releasable = jointly_releasable(family)
    for index in order:
        if effort.over():
            break
        if releasable.flat[index]:
            _lower_entry(searches, divmod(int(index), family[0].size), levels)
    return searches[0].suppression


def _lower_entry(searches: Sequence[_MemberSearch], entry: tuple[int, int], levels: Floats) -> None:
    """Lower one probability to the least level that keeps every bound of every member."""
    first = 0
    for search in searches:
        first = max(first, search.least(entry, levels))
        if first >= len(levels) - 1:
            return
    for level in levels[first : first + 2]:  # the second when rounding broke the first
        if level < 1 and all(search.settles(entry, float(level)) for search in searches):
            for search in searches:
                search.keep(entry)
            return
    for search in searches:
        search.restore(entry)


def prior_order(days: Day | Sequence[Day]) -> Ints:
    """Return entries t·n + j with likely states first: the paper's heuristic, ties in order.

    Of several days the mean counts.
    """
    family = as_family(days)
    prior = sum(day.prior for day in family) / len(family)
    return np.argsort(-np.asarray(prior).ravel(), kind="stable")


def restart_orders(days: Day | Sequence[Day], restarts: int) -> list[Ints]:
    """Return entry orders: by prior, forward, backward, then random ones from a fixed seed."""
    count = as_family(days)[0].prior.size
    rng = np.random.default_rng(2012)
    listed = [prior_order(days), np.arange(count), np.arange(count)[::-1]]
    listed += [rng.permutation(count) for _ in range(max(0, restarts - len(listed)))]
    return listed[:restarts]


def keeps_every_bound(day: Day, suppression: Floats) -> bool:
    """Return whether no output of a vector breaks a bound, by a check without division."""
    from shoal.contexts.search import greedy_kernels as kernels

    if (suppression < 1)[day.when, day.who].any():
        return False
    return not kernels.day_breaks_any_bound(_suppressed_day(day, suppression))


def _suppressed_day(day: Day, suppression: Floats) -> Any:
    """Return a day under some suppression with its table of secrets, for the compiled loops."""
    from shoal.contexts.search.greedy_kernels import SuppressedDay, extend_secrets

    releasable = np.zeros((day.slots + 1, day.size), dtype=np.bool_)
    releasable[:-1], releasable[-1, 0] = (suppression < 1) & day.possible, True
    table = np.zeros((day.slots + 1, day.size, len(day.when)))
    scale = np.zeros((day.slots + 1, len(day.when)), dtype=np.int64)
    secrets = day.when, day.who, day.bound, table, scale
    found = SuppressedDay(day.initial, day.moves, suppression, releasable, *secrets)
    extend_secrets(found, -1)
    return found


@dataclass(frozen=True, slots=True)
class Grid:
    """The order of entries and the ascending levels of one restart of the greedy search."""

    order: Ints
    levels: Floats


def best_vector(
    days: Day | Sequence[Day], grids: Sequence[Grid], *, work: float | Effort = np.inf
) -> Floats:
    """Return the private vector with the most expected releases among several greedy searches.

    Of several days the one on which least is released counts. The first search may take half of
    `work`, each later one an even share of what is left.
    """
    family = as_family(days)
    effort = Effort.of(work)
    best, value = np.ones((family[0].slots, family[0].size)), 0.0
    for turn, grid in enumerate(grids):
        if effort.over():
            break
        part = effort.part(1 / (len(grids) - turn) if turn else 1 / 2)
        found = search_vector(family, grid.order, grid.levels, work=part)
        reached = min(vector_value(day, found) for day in family)
        if reached > value * (1 + 1e-12):
            part.spend(sum(_recheck_cost(day, found) for day in family))
            if all(memoryless_rise(day, found) <= day.delta for day in family):
                best, value = found, reached
        effort.spend(part.spent)
    return best


def _recheck_cost(day: Day, suppression: Floats) -> float:
    """Return roughly how many multiplications the re-check of a vector takes."""
    rows = 1 + int((suppression < 1).sum()) + len(day.when)
    return rows * day.slots * day.size * (day.size + 20) / 2 + KERNEL_CALL_WORK


class _MemberSearch:
    """The state of a greedy search on one day chain: one row per releasable origin."""

    def __init__(self, day: Day, effort: Effort) -> None:
        """Start with every entry suppressed and the start as the only origin."""
        from shoal.contexts.search import greedy_kernels as kernels

        self.kernels, self.effort, self.day = kernels, effort, day
        self.suppression = np.ones((day.slots, day.size))
        self.now = _suppressed_day(day, self.suppression)
        self.origins, self.asked = [(-1, 0)], [0]
        self.star = self.row((-1, 0))  # the row of the last candidate
        self.rows = [self.star]

    def row(self, origin: tuple[int, int]) -> tuple[Floats, Ints]:
        """Return K(origin → ·) under the current probabilities, with a power of two per slot."""
        values = np.zeros((self.day.slots + 1, self.day.size))
        powers = np.zeros(self.day.slots + 1, dtype=np.int64)
        self.kernels.extend_row(self.now, origin, -1, values, powers)
        self.effort.spend((self.day.slots - origin[0]) * self.day.size**2 + KERNEL_CALL_WORK)
        return values, powers

    def least(self, entry: tuple[int, int], levels: Floats) -> int:
        """Return the index of the least level that keeps every bound of this day; else the last.

        A state that cannot occur bounds nothing.
        """
        last = len(levels) - 1
        if not self.day.possible[entry]:
            return 0
        if (len(self.rows) + 1) * self.rows[0][0].nbytes > MAX_ROW_BYTES:
            return last
        self.star = self.row(entry)
        if self.kernels.breaks_any_bound(*self.star, entry[0], entry[0], self.now):
            return last
        least = 1.0 - levels[-2] if last else 2.0
        room = self._room(entry, least * (1 - 1e-9))
        if room < least * (1 - 1e-9):
            return last
        return min(last, int(np.searchsorted(levels, (1.0 - room) * (1 - 1e-12))))

    def _room(self, entry: tuple[int, int], least: float) -> float:
        """Return the largest release probability of an entry, or a value below `least`.

        The origin that turned the last candidate down is asked first: it often does again.
        """
        room = 1.0
        each = float(self.now.released[entry[0] + 1 :].sum() * len(self.day.when))
        for turn, which in enumerate(self.asked):
            slot = self.origins[which][0]
            if slot >= entry[0]:
                continue
            if self.effort.late():
                return 0.0
            known = *self.rows[which], slot, entry, *self.star
            room = self.kernels.largest_release_chance(*known, self.now, room, least)
            self.effort.spend(each + KERNEL_CALL_WORK)
            if room < least:
                self.asked.insert(0, self.asked.pop(turn))
                return room
        return room

    def settles(self, entry: tuple[int, int], level: float) -> bool:
        """Set a level, recompute the rows it changes, and return whether their outputs keep
        bounds.
        """
        slot = entry[0]
        self.suppression[entry] = level
        self.now.released[entry] = self.day.possible[entry]
        if not self.now.released[entry]:
            return True
        self._refresh(slot)
        outputs = float(self.now.released[slot + 1 :].sum() * len(self.day.when)) + KERNEL_CALL_WORK
        self.effort.spend(outputs * len(self.rows))
        return not any(
            origin < slot
            and row[entry] > 0
            and self.kernels.breaks_any_bound(row, power, origin, slot, self.now)
            for (origin, _), (row, power) in zip(self.origins, self.rows, strict=True)
        )

    def keep(self, entry: tuple[int, int]) -> None:
        """Accept the level of an entry: from now on outputs begin there too."""
        if self.now.released[entry]:
            self.asked.insert(0, len(self.origins))
            self.origins.append(entry)
            self.rows.append(self.star)

    def restore(self, entry: tuple[int, int]) -> None:
        """Suppress an entry always again."""
        self.suppression[entry] = 1.0
        if self.now.released[entry]:
            self.now.released[entry] = False
            self._refresh(entry[0])

    def _refresh(self, slot: int) -> None:
        """Recompute rows after a slot; a subtraction would leave 1e-17 where nothing is left."""
        later = (self.day.slots - slot) * self.day.size**2
        for origin, row in zip(self.origins, self.rows, strict=True):
            if origin[0] < slot:
                self.kernels.extend_row(self.now, origin, slot, *row)
                self.effort.spend(later + KERNEL_CALL_WORK)
        self.kernels.extend_secrets(self.now, slot)
        self.effort.spend(later * len(self.day.when) / 2)
