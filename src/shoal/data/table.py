"""From a table of (series, time, state) to chains: checked, sorted, cut at gaps."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.errors import DataError, InputError
from shoal.core.records import label
from shoal.core.value import Ints
from shoal.data.dataset import Dataset, cut
from shoal.data.times import holds_seconds, microseconds, readable

if TYPE_CHECKING:
    import polars as pl


def from_table(
    frame: pl.DataFrame,
    *,
    state: str,
    series: str | None = None,
    time: str | None = None,
    gap: timedelta | None = None,
    name: str = "data",
) -> Dataset:
    """The chains of a polars table, one row per entry.

    Rows are sorted by time within each series; a pause longer than `gap` starts a new chain.
    Without `time` the order of the rows counts; without `series` all rows are one, called `name`.
    """
    check_gap(gap, time)
    columns = tidy(frame, "the table", state=state, series=series, time=time, name=name)
    return chains_of(columns, gap, seconds=time is not None and holds_seconds(frame[time]))


def check_gap(gap: timedelta | None, time: str | None) -> None:
    """Refuse a gap that cannot be looked for."""
    if gap is None:
        return
    if time is None:
        raise InputError(f"gap is {gap}, but no time column is named; name it with time=…")
    if gap <= timedelta(0):
        raise InputError(f"gap is {gap}; it must be longer than 0")


def tidy(
    frame: pl.DataFrame, source: str, *, state: str, series: str | None, time: str | None, name: str
) -> pl.DataFrame:
    """Columns series and state as text, and time in microseconds when there is one; no nulls.

    `source` names the table in refusals.
    """
    import polars as pl

    check_columns(frame.columns, source, state=state, series=series, time=time)
    if frame.height == 0:
        raise DataError(f"{source} holds no rows; at least 2 are needed")
    columns = {"state": _labels(frame[state], source)}
    if series is None:
        columns["series"] = pl.Series([name]).new_from_index(0, frame.height)
    else:
        columns["series"] = _labels(frame[series], source)
    if time is not None:
        refuse_nulls(frame[time], source, "fill in the time")
        columns["time"] = microseconds(frame[time], source)
    return pl.DataFrame(columns)


def check_columns(
    present: list[str],
    source: str,
    *,
    state: str,
    series: str | None,
    time: str | None,
    role: str = "state",
) -> None:
    """Refuse a table without a named column; `role` is what the column `state` holds."""
    for field, column in ((role, state), ("series", series), ("time", time)):
        if column is not None and column not in present:
            shown = ", ".join(present[:12]) + (", …" if len(present) > 12 else "")
            raise DataError(
                f"{source} has no column {column!r}, named as the {field}; "
                f"its columns are: {shown}{_column_hint(present, column)}"
            )


def _column_hint(present: list[str], column: str) -> str:
    """What is likely wrong when a column is missing; empty when nothing is known."""
    marks = {";": "semicolons", "\t": "tabs", "|": "bars"}
    mark = next((mark for mark in marks if len(present) == 1 and mark in present[0]), None)
    if mark is not None:
        return f"; they are separated by {marks[mark]}: save the file with commas instead"
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


def chains_of(columns: pl.DataFrame, gap: timedelta | None, *, seconds: bool = False) -> Dataset:
    """The data set of tidy columns. `seconds` says how to show a time in a refusal."""
    if columns.height < 2:
        raise DataError("the data holds 1 row; at least 2 are needed")
    names, series = _coded(columns["series"])
    states, values = _coded(columns["state"])
    if "time" in columns.columns:
        time = columns["time"].to_numpy()
        order = np.lexsort((time, series))
        time, series = time[order], series[order]
        _refuse_twice(time, series, names, seconds)
        breaks = _breaks(time, gap)
    else:
        order = np.argsort(series, kind="stable")
        series = series[order]
        breaks = np.zeros(len(order) - 1, dtype=bool)
    starts = np.flatnonzero(breaks | (np.diff(series) != 0)) + 1
    pieces = cut(values[order], starts)
    owners = series[np.concatenate([[0], starts])]
    bounds = np.searchsorted(owners, np.arange(len(names) + 1))
    grouped = tuple(pieces[a:b] for a, b in pairwise(bounds))
    return Dataset(states, names, grouped)


def _breaks(time: Ints, gap: timedelta | None) -> Any:
    if gap is None:
        return np.zeros(len(time) - 1, dtype=bool)
    return np.diff(time) > gap // timedelta(microseconds=1)


def _refuse_twice(time: Ints, series: Ints, names: tuple[str, ...], seconds: bool) -> None:
    twice = np.flatnonzero((np.diff(time) == 0) & (np.diff(series) == 0))
    if len(twice):
        at = int(twice[0])
        moment = readable(int(time[at]), seconds)
        raise DataError(
            f"series {names[series[at]]!r} has two rows at time {moment}; "
            "a series may hold each time once: keep one of the rows, or name the column that tells "
            "the series apart"
        )


def _coded(column: pl.Series) -> tuple[tuple[str, ...], Ints]:
    """The distinct texts, sorted, and each row as an index into them."""
    import polars as pl

    distinct = column.unique().sort()
    codes = column.cast(pl.Enum(distinct)).to_physical()
    return tuple(distinct.to_list()), codes.to_numpy().astype(np.int64)


def _labels(column: pl.Series, source: str) -> pl.Series:
    """Each value as its label, by the same rule as `core.records.label`."""
    import polars as pl

    refuse_nulls(column, source)
    kind = column.dtype
    if kind == pl.String or kind.is_integer() or kind in (pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    if kind.is_nested() or kind in (pl.Object, pl.Binary):
        raise DataError(
            f"{source}: column {column.name!r} holds {kind} values; a label must be text, "
            "a number or a truth value"
        )
    distinct = column.unique()
    texts = [label(value) for value in distinct.to_numpy()]
    return column.replace_strict(distinct, pl.Series(texts, dtype=pl.String))
