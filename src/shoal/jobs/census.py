"""The census of one shard of rows: its subjects, the counts of states, the lengths of chains.

All of a subject's rows are in one shard, from any files, so the chains are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.charge import WHOLE, Part, PartOf, part_span
from shoal.core.codec import Floats, Ints
from shoal.core.records import Sequences
from shoal.data.rows import encode_texts
from shoal.jobs.inputs import Layout
from shoal.jobs.tidy import CUT, NO_STATE, NO_TIME, PROBLEMS

if TYPE_CHECKING:
    import polars as pl

Truths = np.ndarray[tuple[int], np.dtype[np.bool_]]

TWICE = "two rows at the same time"
GROUPS = "rows in more than one group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The sorted rows of one shard, grouped by unit; a unit is one subject in one period.

    `rows` are the rows of each unit, `counts[u, s]` how many are in state s. The rows themselves
    are in `values`, `times` and `numbers`, ordered by unit, series and time: unit u has
    values[bounds[u]:bounds[u + 1]], and its chains begin at `starts`, of which
    first_chain[u]:first_chain[u + 1] are its own. `problems` says why a unit cannot be released;
    `gaps` are its rows without a state that only cut its chains. `members` are the series of each
    unit, where they are people; else empty. `lies` is when each unit lies, where its period is of
    the calendar: its first microsecond since 1970, and the one after its last.
    """

    subjects: list[str]
    periods: list[str]
    groups: list[str]
    rows: Ints
    counts: Ints
    values: Ints
    times: Ints | None
    numbers: Floats | None
    bounds: Ints
    starts: Ints
    first_chain: Ints
    problems: dict[int, str]
    gaps: Ints
    members: list[tuple[str, ...]]
    lies: list[tuple[int, int]] | None = None

    @property
    def units(self) -> int:
        return len(self.subjects)

    @property
    def read(self) -> Ints:
        """The number of rows read of each unit, with the rows that only cut chains."""
        return self.rows + self.gaps

    def part(self, unit: int) -> PartOf:
        """Return the unit as a part of its subject's series, from the times of its entries."""
        assert self.times is not None  # a layout by the calendar has times
        own = self.times[self.bounds[unit] : self.bounds[unit + 1]]
        span = part_span(int(own.min()), int(own.max()), self.subjects[unit])
        return PartOf(self.subjects[unit], self.periods[unit], span)

    def period_part(self, unit: int) -> Part:
        """Return all of a unit as what is charged, with when its period lies if that is known."""
        if self.lies is None or self.lies[unit][0] < 0:
            return WHOLE
        return Part(covers=self.lies[unit])

    def lengths(self) -> Ints:
        """Return the number of entries of every chain."""
        return np.diff(np.append(self.starts, len(self.values)))

    def unusable(self, *codes: int) -> dict[int, str]:
        """The units with a row of one of these codes, and what is wrong with it."""
        return _unusable(np.repeat(np.arange(self.units), self.rows), self.values, codes)

    def sequences(self, unit: int, states: tuple[str, ...]) -> Sequences:
        """The chains of one unit."""
        own = self.starts[self.first_chain[unit] : self.first_chain[unit + 1]]
        ends = [*own.tolist(), int(self.bounds[unit + 1])]
        return Sequences(states, tuple(self.values[a:b] for a, b in pairwise(ends)))


def take_census(rows: pl.DataFrame, layout: Layout, size: int, *, lenient: bool = False) -> Census:
    """Return the census of tidy rows (see `tidy`) over `size` states.

    With `lenient` only a missing time makes a unit unusable: streams accept rows without a
    state, and check the rest themselves.
    """
    rows, stretch, gaps = _uncut(rows)
    unit, subjects, periods = _units(rows)
    total = len(subjects)
    series = encode_texts(rows["series"])[0] if "series" in rows.columns else None
    if stretch is not None:
        own = np.zeros(len(stretch), dtype=np.int64) if series is None else series
        series = np.unique(own * (stretch.max(initial=0) + 1) + stretch, return_inverse=True)[1]
    time = rows["time"].to_numpy() if "time" in rows.columns else None
    order, times, waits = _order(unit, series, time)
    each = np.bincount(unit, minlength=total)
    bounds = np.concatenate([[0], np.cumsum(each)])
    unit = np.repeat(np.arange(total), each)  # sorted, because the order is by unit first
    values = rows["state"].to_numpy()[order].astype(np.int64)
    key_changes = _key_changes(bounds, None if series is None else series[order])
    problems = _twice(unit, key_changes, waits)
    breaks = key_changes
    if waits is not None and layout.gap_microseconds is not None:
        breaks = key_changes | (waits > layout.gap_microseconds)
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1]) if len(unit) else np.empty(0, int)
    problems |= _unusable(unit, values, (NO_TIME,) if lenient else tuple(PROBLEMS))
    groups = _groups(rows, unit, order, total, problems)
    return Census(
        subjects=subjects,
        periods=periods,
        groups=groups,
        rows=each,
        counts=_count_states(unit, values, total, size),
        values=values,
        times=times,
        numbers=_numbers(rows, order),
        bounds=bounds,
        starts=starts,
        first_chain=np.searchsorted(starts, bounds),
        problems=problems,
        gaps=gaps if gaps is not None else np.zeros(total, dtype=np.int64),
        members=_members_by_unit(rows, total) if layout.members == "series" else [()] * total,
        lies=_lies(rows, bounds, order) if layout.part is not None else None,
    )


def _lies(rows: pl.DataFrame, bounds: Ints, order: Ints) -> list[tuple[int, int]]:
    """Return the first instant of each unit, and the one after its last, in microseconds.

    Days by the wall clock have instants of their own beside their times.
    """
    instants = rows["instant" if "instant" in rows.columns else "time"].to_numpy()[order]
    if not len(instants):
        return []
    first = np.minimum.reduceat(instants, bounds[:-1])
    last = np.maximum.reduceat(instants, bounds[:-1]) + 1
    return list(zip(first.tolist(), last.tolist(), strict=True))


def _members_by_unit(rows: pl.DataFrame, total: int) -> list[tuple[str, ...]]:
    """Return the names of the series of each unit, each once."""
    unit = _units(rows)[0]
    series, names = encode_texts(rows["series"])
    found: list[list[str]] = [[] for _ in range(total)]
    for both in np.unique(unit * len(names) + series).tolist():
        owner, name = divmod(both, len(names))
        found[owner].append(names[name])
    return [tuple(own) for own in found]


def _uncut(rows: pl.DataFrame) -> tuple[pl.DataFrame, Ints | None, Ints | None]:
    """Return the rows that do not cut chains, the stretch of each, and the cuts of each unit.

    None when no row cuts a chain. A unit that has only such rows keeps them, without a state.
    """
    import polars as pl

    states = rows["state"].to_numpy()
    cuts = states == CUT
    if not cuts.any():
        return rows, None, None
    unit, subjects, _ = _units(rows)
    alive = np.bincount(unit[~cuts], minlength=len(subjects)) > 0
    empty, cuts = cuts & ~alive[unit], cuts & alive[unit]
    series = encode_texts(rows["series"])[0] if "series" in rows.columns else None
    time = rows["time"].to_numpy() if "time" in rows.columns else None
    order = _order(unit, series, time)[0]
    stretch = np.empty(len(unit), dtype=np.int64)
    stretch[order] = np.cumsum(cuts[order])
    with_states = rows.with_columns(
        state=pl.Series(np.where(empty, NO_STATE, states).astype(np.int32))
    )
    gaps = np.bincount(unit[cuts], minlength=len(subjects))
    return with_states.filter(~cuts), stretch[~cuts], gaps


def _count_states(unit: Ints, values: Ints, total: int, size: int) -> Ints:
    """Return counts[unit, state] of the rows; rows without a state are not counted."""
    places = unit * size
    places += values
    if values.min(initial=0) < 0:
        places = places[values >= 0]
    return np.bincount(places, minlength=total * size).reshape(total, size)


def _key_changes(bounds: Ints, series: Ints | None) -> Truths:
    """Return the mask of rows whose next row has another unit or series, without the last row."""
    changes = np.zeros(max(int(bounds[-1]) - 1, 0), dtype=np.bool_)
    changes[bounds[1:-1] - 1] = True
    if series is not None:
        changes |= np.diff(series) != 0
    return changes


def _numbers(rows: pl.DataFrame, order: Ints) -> Floats | None:
    """Return one row of numbers per record, in the order of the census."""
    names = [name for name in rows.columns if name.startswith("number ")]
    return rows.select(names).to_numpy()[order] if names else None


def _units(rows: pl.DataFrame) -> tuple[Ints, list[str], list[str]]:
    """Return the unit index of each row, and the subject and period of each unit."""
    subject, names = encode_texts(rows["subject"])
    if "period" not in rows.columns:
        return subject, names, [""] * len(names)
    period, labels = encode_texts(rows["period"])
    both = subject * len(labels) + period
    distinct, unit = np.unique(both, return_inverse=True)
    owners, parts = np.divmod(distinct, max(len(labels), 1))
    return unit, [names[i] for i in owners], [labels[i] for i in parts]


def _order(
    unit: Ints, series: Ints | None, time: Ints | None
) -> tuple[Ints, Ints | None, Ints | None]:
    """Return the order of the rows by unit, series and time, the times, and the waits between them.

    The sort is stable: rows without a time keep their order.
    """
    key = unit if series is None else unit * (int(series.max(initial=0)) + 1) + series
    # numpy sorts 16-bit keys by radix, several times faster
    narrow = key.astype(np.uint16) if key.max(initial=0) < 2**16 else key
    order = np.argsort(narrow, kind="stable")
    if time is None:
        return order, None, None
    times = time[order]
    waits = np.diff(times)
    backwards = np.flatnonzero(waits < 0)
    if (key[order[backwards]] == key[order[backwards + 1]]).any():
        order = np.lexsort((time, key))
        times = time[order]
        waits = np.diff(times)
    return order, times, waits


def _twice(unit: Ints, key_changes: Truths, waits: Ints | None) -> dict[int, str]:
    """Return the units with two rows of one series at one time; `waits` are between sorted rows."""
    if waits is None:
        return {}
    twice = np.flatnonzero(waits == 0)
    twice = twice[~key_changes[twice]]
    return dict.fromkeys(np.unique(unit[twice]).tolist(), TWICE)


def _unusable(unit: Ints, values: Ints, codes: tuple[int, ...]) -> dict[int, str]:
    """The units with a row of one of these codes, and what is wrong with it."""
    found: dict[int, str] = {}
    for code in codes if values.min(initial=0) < 0 else ():
        found |= dict.fromkeys(np.unique(unit[values == code]).tolist(), PROBLEMS[code])
    return found


def _groups(
    rows: pl.DataFrame, unit: Ints, order: Ints, total: int, problems: dict[int, str]
) -> list[str]:
    """Return the group of each unit; a unit with rows of two groups is unusable."""
    if "group" not in rows.columns:
        return [""] * total
    group, names = encode_texts(rows["group"])
    ordered = group[order]
    least = np.full(total, len(names), dtype=np.int64)
    most = np.full(total, -1, dtype=np.int64)
    np.minimum.at(least, unit, ordered)
    np.maximum.at(most, unit, ordered)
    problems |= dict.fromkeys(np.flatnonzero(least != most).tolist(), GROUPS)
    return [names[i] for i in least]
