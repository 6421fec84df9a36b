"""Series of states, cut at gaps into chains: what a file of observations becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shoal.core.charge import PartOf, part_span
from shoal.core.codec import Ints, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.records import Sequences, label, sequences, shown_names
from shoal.data.frames import to_polars, unused_levels
from shoal.data.rows import (
    MISSING,
    Bins,
    BinSpec,
    check_missing,
    chosen,
    encode_texts,
    fill_missing_state,
    nulls_for_missing,
    numbers_of,
    parse_where,
    texts,
)
from shoal.data.times import (
    Duration,
    calendar_part,
    check_calendar,
    clock,
    duration,
    holds_seconds,
    microseconds,
    readable,
    refuse_unclear,
)

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Several series (people, houses), each a tuple of chains of indices into `states`.

    A chain is a stretch without a gap. `states` are the labels that occur, sorted, unless given.
    Where series were cut by the calendar, `parts` says of each name whose part it is. `named` is
    False where names are made up from those of files or tables. Arrays are locked.
    """

    states: tuple[str, ...]
    names: tuple[str, ...]
    chains: tuple[tuple[Ints, ...], ...]
    parts: Mapping[str, PartOf] = field(default_factory=dict)
    named: bool = True

    @property
    def entries(self) -> dict[str, int]:
        """How many entries each series has, in all its chains."""
        return {
            name: sum(map(len, chains))
            for name, chains in zip(self.names, self.chains, strict=True)
        }

    def __post_init__(self) -> None:
        """Refuse names or states that are missing or repeated, and indices outside the states.

        Chains are copied unless they are read-only.
        """
        if len(self.names) != len(self.chains) or len(set(self.names)) < len(self.names):
            raise InputError(
                f"names holds {len(self.names)} names for {len(self.chains)} series; "
                "each series needs a name of its own"
            )
        if len(set(self.states)) < len(self.states):
            raise InputError(f"states is {list(self.states)}; each state needs its own name")
        chains = tuple(tuple(_private(chain) for chain in series) for series in self.chains)
        object.__setattr__(self, "chains", chains)
        flat = np.concatenate([np.empty(0, np.int64), *(c for series in chains for c in series)])
        if flat.size and not (flat.min() >= 0 and flat.max() < len(self.states)):
            raise InputError(f"a chain holds an index outside 0 … {len(self.states) - 1}")

    @classmethod
    def of(
        cls, series: Mapping[str, Sequence[Sequence[Any]]], states: Sequence[Any] | None = None
    ) -> Self:
        """A data set from labels: name of the series -> its chains."""
        said = {
            str(name): [[label(item) for item in chain] for chain in chains]
            for name, chains in series.items()
        }
        found = {item for chains in said.values() for chain in chains for item in chain}
        names = tuple(sorted(found)) if states is None else tuple(label(s) for s in states)
        _refuse_unknown_states(sorted(found), names)
        index = {state: i for i, state in enumerate(names)}
        places = (
            tuple(as_read_only([index[item] for item in chain], np.int64) for chain in chains)
            for chains in said.values()
        )
        return cls(names, tuple(said), tuple(places))

    @property
    def total(self) -> int:
        """Entries of all series together."""
        return sum(len(chain) for series in self.chains for chain in series)

    @property
    def longest(self) -> int:
        """Entries of the longest chain: what correlation can tie together."""
        return max((len(chain) for series in self.chains for chain in series), default=0)

    def sequences(
        self, states: Sequence[str] | None = None, series: str | None = None
    ) -> Sequences:
        """The chains of one series, or of all together, as indices into `states`.

        A state that occurs in the chosen series and is not in `states` is refused.
        """
        chosen = self._chosen(series)
        if sum(map(len, chosen)) < 2:
            what = "the data" if series is None else f"series {series!r}"
            raise DataError(
                f"{what} holds {sum(map(len, chosen))} entries; at least 2 are needed: "
                "leave it out or collect more"
            )
        if states is None or tuple(states) == self.states:
            return Sequences(self.states, chosen)
        return Sequences(tuple(states), self._recode(chosen, tuple(states)))

    def on(self, states: Sequence[str]) -> Dataset:
        """The same series as indices into `states`, in that order."""
        place = iter(self._recode(self._chosen(None), tuple(states)))
        chains = tuple(tuple(next(place) for _ in series) for series in self.chains)
        return Dataset(tuple(states), self.names, chains, self.parts, self.named)

    def describe(self) -> str:
        """Return in words how many series, entries, chains and states there are."""
        number = sum(map(len, self.chains))
        chains = "1 chain" if number == 1 else f"{number:,} chains"
        return (
            f"{len(self.names)} series, {self.total:,} entries in {chains} "
            f"(the longest has {self.longest:,}), {len(self.states)} states"
        )

    def _chosen(self, series: str | None) -> tuple[Ints, ...]:
        """Return the chains of one series, of all without a name; refuse an unknown name."""
        if series is None:
            return tuple(chain for chains in self.chains for chain in chains)
        if series not in self.names:
            shown = ", ".join(self.names[:8]) + (", …" if len(self.names) > 8 else "")
            raise InputError(f"series is {series!r}; it must be one of {shown}")
        return self.chains[self.names.index(series)]

    def _recode(self, chains: tuple[Ints, ...], states: tuple[str, ...]) -> tuple[Ints, ...]:
        """Return the chains as indices into `states`; refuse a state that occurs and is not
        there.
        """
        flat = np.concatenate(chains)
        occurring = np.flatnonzero(np.bincount(flat, minlength=len(self.states)))
        _refuse_unknown_states([self.states[i] for i in occurring], states)
        place = {state: i for i, state in enumerate(states)}
        table = np.array([place.get(state, -1) for state in self.states], dtype=np.int64)
        return cut(table[flat], np.cumsum([len(chain) for chain in chains])[:-1])


def cut(flat: Ints, starts: Ints) -> tuple[Ints, ...]:
    """`flat` as locked pieces, a new one at each of `starts`; one copy in memory, not many."""
    whole = as_read_only(flat, np.int64)
    return tuple(np.split(whole, starts))


def _refuse_unknown_states(occurring: Sequence[str], states: tuple[str, ...]) -> None:
    """Refuse a state outside `states`, in the words every release uses."""
    unknown = set(occurring) - set(states)
    if unknown:
        sequences([min(unknown)] * 2, states)


def _private(chain: Ints) -> Ints:
    """`chain` itself when it is read-only throughout, else a locked copy."""
    owner: Any = chain if chain.base is None else chain.base
    frozen = isinstance(owner, np.ndarray) and not owner.flags.writeable
    if frozen and not chain.flags.writeable and chain.dtype == np.int64 and chain.ndim == 1:
        return chain
    return as_read_only(chain.ravel(), np.int64)


MOST_STATES_READ = 4096  # a dense matrix of these takes 134 MB, and several are needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Where the entries are in a table, and what is done to raw rows before they are entries.

    `state`, `series` (one column or several) and `time` name columns; a pause longer than `gap`
    begins a new chain. `missing` is what becomes of rows without a state: refused, dropped (the
    rows around become neighbours), cut out (a gap), or a state of their own. `bins` turn numbers
    into states; `unit` is what bare numbers of `time` count, `tz` the zone of times that name
    none; `where` keeps rows that meet a condition; `every` (hour, day, week, month, quarter, year)
    cuts each series by the calendar of its own zone, and makes a series of every part.
    """

    state: str
    series: str | Sequence[str] | None = None
    time: str | None = None
    gap: Duration | None = None
    missing: str = "refuse"
    bins: BinSpec | Bins | None = None
    unit: str | None = None
    tz: str | None = None
    where: str | None = None
    every: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown way with missing cells, bad conditions, and a gap or calendar without
        time.
        """
        check_missing(self.missing)
        if self.every is not None and (check_calendar(self.every), self.time)[1] is None:
            raise InputError(
                f"every is {self.every!r}, but no time column is named; name it with time=…"
            )
        if self.gap is not None:
            if self.time is None:
                raise InputError(
                    f"gap is {self.gap}, but no time column is named; name it with time=…"
                )
            duration(self.gap)
        if self.where is not None:
            parse_where(self.where)

    @property
    def pause(self) -> timedelta | None:
        """The gap as a length of time."""
        return None if self.gap is None else duration(self.gap)

    @property
    def all_states(self) -> tuple[str, ...] | None:
        """Every bin in order, whether or not a row lies in it; None where states are as found."""
        if not isinstance(self.bins, Bins):
            return None
        return (*self.bins.labels, *((MISSING,) if self.missing == "state" else ()))

    def series_in(self, present: Sequence[str]) -> tuple[str, ...]:
        """The columns that tell series apart: "a,b" names two where no column is called so."""
        if self.series is None:
            return ()
        if isinstance(self.series, str):
            parts = [part.strip() for part in self.series.split(",")]
            several = self.series not in present and len(parts) > 1
            return tuple(parts) if several else (self.series,)
        return tuple(self.series)

    def needed_columns(self, present: Sequence[str]) -> list[str]:
        """All columns that are looked at, each once."""
        conditions = [] if self.where is None else [term[0] for term in parse_where(self.where)]
        own = [self.state, *self.series_in(present), self.time, *conditions]
        return list(dict.fromkeys(name for name in own if name is not None))


def refuse_levels(levels: Sequence[str], what: str) -> None:
    """Refuse levels of a categorical column that no row takes: are they states or left-overs?"""
    if levels:
        raise DataError(
            f"{what} has the level {levels[0]!r}"
            f"{f' and {len(levels) - 1} more' if len(levels) > 1 else ''}, which no row takes; "
            "drop unused levels (pandas: .cat.remove_unused_categories()), or make the column text"
        )


def from_table(frame: Any, *, name: str = "data", **columns: Any) -> Dataset:
    """The chains of a table of any library, one row per entry; `columns` are those of `Columns`.

    Rows are sorted by time within each series; a pause longer than `gap` starts a new chain.
    Without `time` the order of the rows counts; without `series` all rows are one, called `name`.
    """
    role_columns = Columns(**columns)
    table = to_polars(frame)
    check_columns(table.columns, "the table", role_columns)
    levels = unused_levels(frame, role_columns.state) if role_columns.bins is None else ()
    if role_columns.where is None:
        refuse_levels(levels, f"the table: column {role_columns.state!r}")
    role_columns = with_bins(role_columns, [table], ["the table"])
    tidied = tidy(table, "the table", role_columns, name=name)
    made = chains_of(
        tidied,
        role_columns.pause,
        seconds=_bare(table, role_columns),
        states=role_columns.all_states,
    )
    return replace(made, named=role_columns.series is not None)


def with_bins(columns: Columns, tables: Sequence[pl.DataFrame], sources: Sequence[str]) -> Columns:
    """`columns` with the bins asked for made of the rows of all tables that count."""
    if columns.bins is None:
        return columns
    import polars as pl

    numbers = [
        numbers_of(chosen(table, columns.where, source)[columns.state], source)
        for table, source in zip(tables, sources, strict=True)
    ]
    return replace(columns, bins=Bins.of(columns.bins, pl.concat(numbers)))


def _bare(table: pl.DataFrame, columns: Columns) -> bool:
    return columns.time is not None and holds_seconds(table[columns.time])


def tidy(frame: pl.DataFrame, source: str, columns: Columns, *, name: str) -> pl.DataFrame:
    """Columns series and state as text, and time in microseconds when there is one.

    A null state is left only where it cuts the chain. `source` names the table in refusals.
    """
    check_columns(frame.columns, source, columns)
    if frame.height == 0:
        raise DataError(f"{source} holds no rows; at least 2 are needed")
    frame = _filter_rows(frame, columns, source)
    states = _state_texts(frame[columns.state], source, columns)
    return _owners_and_times(frame, source, columns, name).with_columns(states.alias("state"))


def owners_and_times(
    frame: pl.DataFrame, source: str, columns: Columns, *, name: str
) -> pl.DataFrame:
    """The columns series and time of `tidy` alone, without looking at the states."""
    return _owners_and_times(_filter_rows(frame, columns, source), source, columns, name)


def _filter_rows(frame: pl.DataFrame, columns: Columns, source: str) -> pl.DataFrame:
    kept = chosen(frame, columns.where, source)
    return _without_empty(kept, columns, source) if columns.missing == "drop" else kept


def _owners_and_times(
    frame: pl.DataFrame, source: str, columns: Columns, name: str
) -> pl.DataFrame:
    """Whose row it is and when, for every row."""
    import polars as pl

    owners = columns.series_in(frame.columns)
    if owners:
        named = pl.DataFrame([_label_texts(frame[owner], source) for owner in owners])
        series = named.select(series=pl.concat_str(pl.all(), separator="/"))["series"]
    else:
        series = pl.Series("series", [name]).new_from_index(0, frame.height)
    if columns.time is None:
        return pl.DataFrame(series)
    column = frame[columns.time]
    refuse_nulls(column, source, "fill in the time")
    time = microseconds(column, source, unit=columns.unit, tz=columns.tz, series=series)
    refuse_unclear(column, time.to_numpy(), columns.pause, columns.unit, source)
    placed = pl.DataFrame([series, time.alias("time")])
    if columns.every is None:
        return placed
    part = calendar_part(clock(column, source, columns.tz, columns.unit), columns.every)
    whole = pl.concat_str([series.alias("owner"), part.alias("part")], separator=" ")
    return placed.with_columns(owner="series", part=part).with_columns(series=whole)


def _without_empty(frame: pl.DataFrame, columns: Columns, source: str) -> pl.DataFrame:
    """Rows in which the state, the series and the time are all there."""
    own = [columns.state, *columns.series_in(frame.columns)]
    own += [columns.time] if columns.time is not None else []
    there = [nulls_for_missing(frame[column], "drop", source).is_not_null() for column in own]
    kept = frame.filter(*there)
    if kept.height == 0:
        raise DataError(f"{source}: every row lacks a state, a series or a time; nothing is left")
    return kept


def _state_texts(column: pl.Series, source: str, columns: Columns) -> pl.Series:
    """Every row's state as text: numbers in bins, missing values as asked for."""
    if columns.bins is not None:
        numbers = numbers_of(column, source)
        column = Bins.of(columns.bins, numbers).cut(numbers)
    column = nulls_for_missing(column, columns.missing, source)
    empty = columns.missing in ("gap", "state")
    labelled = texts(column, source) if empty else _label_texts(column, source)
    distinct = labelled.n_unique()
    if distinct > MOST_STATES_READ:
        raise DataError(
            f"{source}: column {column.name!r} holds {distinct:,} different values, and a chain "
            f"handles {MOST_STATES_READ:,} states at most; group numbers with bins=8 or "
            "bins=[100, 500] (--bins 8), or name another column"
        )
    return fill_missing_state(labelled, source) if columns.missing == "state" else labelled


def check_columns(
    present: list[str], source: str, columns: Columns, *, role: str = "state"
) -> None:
    """Refuse a table without a named column; `role` is what the column `state` holds."""
    owners = [("series", name) for name in columns.series_in(present)]
    for named, column in ((role, columns.state), *owners, ("time", columns.time)):
        if column is not None and column not in present:
            raise DataError(
                f"{source} has no column {column!r}, named as the {named}; "
                f"its columns are: {shown_names(present)}{_column_hint(present, column)}"
            )


def _column_hint(present: list[str], column: str) -> str:
    """What is likely wrong when a column is missing; empty when nothing is known."""
    marks = {";": "semicolons", "\t": "tabs", "|": "bars"}
    mark = next((mark for mark in marks if len(present) == 1 and mark in present[0]), None)
    if mark is not None:
        return f"; they are separated by {marks[mark]}: say so with --sep (sep=)"
    near = [name for name in present if name.strip().casefold() == column.strip().casefold()]
    return f"; did you mean {near[0]!r}?" if near else ""


def refuse_nulls(
    column: pl.Series, source: str, remedy: str = "fill in a value such as 'unknown'"
) -> None:
    """Refuse missing values, and the float that is not a number."""
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan().fill_null(False)
    if missing.any():
        row = int(missing.arg_max() or 0)
        raise DataError(
            f"{source}: column {column.name!r} is empty in {int(missing.sum())} row(s), the first "
            f"is row {row + 1}; drop these rows or {remedy}"
        )


def chains_of(
    columns: pl.DataFrame,
    gap: timedelta | None,
    *,
    seconds: bool = False,
    states: tuple[str, ...] | None = None,
) -> Dataset:
    """The data set of tidy columns; its states are those that occur unless given.

    `seconds` says how to show a time in a refusal.
    """
    if columns.height - columns["state"].null_count() < 2:
        held = columns.height - columns["state"].null_count()
        raise DataError(f"the data holds {held} row; at least 2 are needed")
    series, names = encode_texts(columns["series"])
    values, found = encode_texts(columns["state"])
    breaks = np.zeros(columns.height - 1, dtype=bool)
    if "time" in columns.columns:
        time = columns["time"].to_numpy()
        order = np.lexsort((time, series))
        time, series = time[order], series[order]
        _refuse_twice(time, series, names, seconds)
        if gap is not None:
            breaks = np.diff(time) > gap // timedelta(microseconds=1)
    else:
        order = np.argsort(series, kind="stable")
        series = series[order]
    values = values[order]
    breaks |= (np.diff(series) != 0) | (values[:-1] < 0)  # an entry that is missing cuts, too
    pieces = cut(values, np.flatnonzero(breaks) + 1)
    owners = series[np.concatenate([[0], np.flatnonzero(breaks) + 1])]
    bounds = np.searchsorted(owners, np.arange(len(names) + 1))
    grouped = tuple(_present(pieces[a:b]) for a, b in pairwise(bounds))
    dataset = Dataset(tuple(found), tuple(names), grouped, _parts_of_series(columns))
    return dataset if states is None else dataset.on(states)


def _parts_of_series(columns: pl.DataFrame) -> dict[str, PartOf]:
    """Each name to the part of a series it is; none where series are whole."""
    import polars as pl

    if "part" not in columns.columns:
        return {}
    ends = columns.group_by("series", "owner", "part").agg(
        pl.col("time").min().alias("first"), pl.col("time").max().alias("last")
    )
    return {
        name: PartOf(owner, part, part_span(first, last, owner))
        for name, owner, part, first, last in ends.iter_rows()
    }


def _present(pieces: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """The pieces without an entry that is missing at their end; empty ones are left out."""
    kept = (piece[:-1] if len(piece) and piece[-1] < 0 else piece for piece in pieces)
    return tuple(piece for piece in kept if len(piece))


def _refuse_twice(time: Ints, series: Ints, names: list[str], seconds: bool) -> None:
    """Refuse two rows of one series at the same time; both arrays are sorted by series and time."""
    twice = np.flatnonzero((np.diff(time) == 0) & (np.diff(series) == 0))
    if len(twice):
        at = int(twice[0])
        moment = readable(int(time[at]), seconds)
        raise DataError(
            f"series {names[series[at]]!r} has two rows at time {moment}; "
            "a series may hold each time once: keep one of the rows, or name the column that tells "
            "the series apart"
        )


def _label_texts(column: pl.Series, source: str) -> pl.Series:
    refuse_nulls(column, source)
    return texts(column, source)
