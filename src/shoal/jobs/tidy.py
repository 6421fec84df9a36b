"""Convert the columns of a file to the columns of a job: text, microseconds and state codes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import DataError
from shoal.data.rows import MISSING, Bins, encode_texts, meeting, nulls_for_missing, texts
from shoal.data.times import (
    OFFSET,
    calendar_part,
    clock,
    holds_seconds,
    microseconds,
    unreadable,
)
from shoal.jobs.inputs import Layout

if TYPE_CHECKING:
    import polars as pl

# codes of rows without a usable state
UNKNOWN, NO_STATE, NO_TIME, NO_NUMBER, NO_DEGREES = -1, -2, -3, -4, -5
CUT = -6  # a row without a state that ends a chain, where the layout says so
PROBLEMS = {
    UNKNOWN: "a state the model does not know",
    NO_STATE: "a row without a state",
    NO_TIME: "a row without a time",
    NO_NUMBER: "a row without a number",
    NO_DEGREES: "a latitude or longitude that is not in degrees",
}
NO_SUBJECT = "a row without a subject, series, period or group"


class Locator(Protocol):
    """A map that turns the coordinates of rows into states."""

    def codes(self, frame: pl.DataFrame, layout: Layout, source: str) -> tuple[pl.Series, int]:
        """Return the state code of each row, and how many points no state covers."""
        ...


class Tidied(NamedTuple):
    """The rows with a subject, how many rows had none, and how many points lie off the map.

    `bad` holds the indices of unusable rows, from 0, and the reason, never their values.
    `left_out` counts rows that fail a condition or are dropped because a value is missing.
    """

    rows: pl.DataFrame
    unowned: int
    off_map: int
    bad: list[tuple[int, str]]
    left_out: int = 0


def tidy(
    frame: pl.DataFrame,
    layout: Layout,
    states: tuple[str, ...],
    source: str,
    maps: Locator | None = None,
) -> Tidied:
    """Return the rows of a file in the columns of a job, with the counts of dropped rows.

    Columns are those of `tidy_schema`: text, `time` in whole microseconds, numbers, and `state`: an
    index into `states`, 0 for rows of numbers, or UNKNOWN, NO_STATE, NO_TIME, NO_NUMBER, NO_DEGREES
    or CUT. A row with an empty subject, series, period or group has no subject. `source`
    names the file in refusals of whole columns; `maps` turn coordinates into states.
    """
    import polars as pl

    places = _counting(frame, layout, source)
    if places is not None:
        all_rows, frame = frame.height, frame[places]
    columns = {
        role: texts(frame[column], source)
        for role, column in layout.columns.items()
        if role in layout.owners
    }
    off_map = 0
    if layout.state is not None:
        named = _state_texts(frame[layout.state], layout, states, source)
        codes = state_codes(named, states)
        if layout.missing == "gap":
            codes = codes.set(named.is_null(), CUT)
    elif layout.latitude is not None:
        assert maps is not None  # a job makes them from its plans
        codes, off_map = maps.codes(frame, layout, source)
    else:
        codes = _numbers(frame, layout, columns, source)
    if layout.time is not None:
        timed, missing = _times(frame[layout.time], source, layout, columns["subject"])
        columns |= timed
        if missing is not None:
            codes = codes.set(missing, NO_TIME)
    whole = pl.DataFrame({**columns, "state": codes}).select(list(tidy_schema(layout)))
    empty = any(whole[role].null_count() for role in layout.owners)
    kept = whole.drop_nulls(layout.owners) if empty else whole
    bad = _bad_rows(whole, layout, empty=empty)
    unowned = whole.height - kept.height
    if places is None:
        return Tidied(kept, unowned, off_map, bad)
    bad = [(int(places[at]), why) for at, why in bad]
    return Tidied(kept, unowned, off_map, bad, all_rows - len(places))


def _counting(frame: pl.DataFrame, layout: Layout, source: str) -> Ints | None:
    """Return the indices of the rows that are kept; None where all are."""
    kept = None if layout.where is None else meeting(frame, layout.where, source)
    if layout.missing == "drop":
        own = [layout.columns[role] for role in ("subject", "series", "time", "state")
               if role in layout.columns]  # fmt: skip
        for name in own:
            there = nulls_for_missing(frame[name], "drop", source).is_not_null()
            kept = there if kept is None else kept & there
    return None if kept is None else np.flatnonzero(kept.to_numpy())


def _state_texts(
    column: pl.Series, layout: Layout, states: tuple[str, ...], source: str
) -> pl.Series:
    """Return the state of each row as text, with numbers binned and missing values replaced."""
    import polars as pl

    bins = layout.edges or Bins.named_by([state for state in states if state != MISSING])
    if bins is not None and column.dtype.is_numeric():
        named = bins.cut(column.cast(pl.Float64).fill_nan(None))
    else:
        named = texts(column, source)
        if layout.missing != "refuse":
            named = nulls_for_missing(named, layout.missing, source)
        if bins is not None:
            numbers = named.str.strip_chars().cast(pl.Float64, strict=False)
            raw = numbers.is_finite().fill_null(False) & ~named.is_in(states).fill_null(False)
            named = bins.cut(numbers).zip_with(raw, named)
    return named.fill_null(MISSING) if layout.missing == "state" else named


def _bad_rows(whole: pl.DataFrame, layout: Layout, *, empty: bool) -> list[tuple[int, str]]:
    """Return the index and reason of each unusable row; a missing state is no fault here."""
    import polars as pl

    found: dict[int, str] = {}
    codes = whole["state"].to_numpy()
    if codes.min(initial=0) < 0:
        for code, reason in PROBLEMS.items():
            if code != NO_STATE:
                found |= dict.fromkeys(np.flatnonzero(codes == code).tolist(), reason)
    if empty:
        without_owner = whole.select(pl.any_horizontal(pl.col(layout.owners).is_null())).to_series()
        found |= dict.fromkeys(np.flatnonzero(without_owner.to_numpy()).tolist(), NO_SUBJECT)
    return sorted(found.items())


def tidy_schema(layout: Layout) -> dict[str, Any]:
    """Return the polars type of each column of tidy rows by name, in order."""
    import polars as pl

    schema: dict[str, Any] = dict.fromkeys(layout.owners, pl.String)
    if layout.time is not None:
        schema["time"] = pl.Int64
    if layout.on_the_wall:
        schema["instant"] = pl.Int64
    schema |= {role: pl.Float64 for role in layout.columns if role.startswith("number ")}
    return {**schema, "state": pl.Int32}


def _numbers(
    frame: pl.DataFrame, layout: Layout, columns: dict[str, pl.Series], source: str
) -> pl.Series:
    """Add the columns of numbers (0 where there is none), and return the code of each row."""
    import polars as pl

    codes = pl.Series("state", np.zeros(frame.height, dtype=np.int32))
    for place, name in enumerate(layout.numbers):
        column = frame[name]
        if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean, pl.Null)):
            raise DataError(f"{source}: column {name!r} holds {column.dtype} values, not numbers")
        found = column.cast(pl.Float64, strict=False)
        missing = ~found.is_finite().fill_null(False)
        codes = codes.set(missing, NO_NUMBER)
        columns[f"number {place}"] = found.set(missing, 0.0)
    return codes


def state_codes(column: pl.Series, states: tuple[str, ...]) -> pl.Series:
    """Return the index of each state: UNKNOWN if it is not in `states`, NO_STATE if missing."""
    import polars as pl

    # a cast to a fixed list of texts takes half the time of a replacement
    found = column.cast(pl.Enum(states), strict=False).to_physical()
    codes = found.cast(pl.Int32).fill_null(UNKNOWN)
    return codes.set(column.is_null(), NO_STATE) if column.null_count() else codes


def shard_of(subjects: pl.Series, shards: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the shard of each subject: CRC-32 of its name modulo `shards`, on every machine."""
    # finding the distinct names pays when each has several rows
    distinct: Any = subjects.approx_n_unique() if len(subjects) else 0
    if distinct > len(subjects) // 4:
        return _hash_names(subjects.to_list()) % shards
    codes, names = encode_texts(subjects)
    return (_hash_names(names) % shards)[codes]


def _hash_names(names: list[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.fromiter(
        (zlib.crc32(name.encode()) for name in names), dtype=np.int64, count=len(names)
    )


def kinds_of(frame: pl.DataFrame, layout: Layout) -> dict[str, str]:
    """Return the kind of the values of each column; files of one job must agree on them.

    Whole numbers of any width are one kind, and so are text and categories. Numbers of seconds
    and calendar times cannot be compared, nor can times with an offset and without.
    """
    found = {column: _kind_of_column(frame[column]) for column in layout.columns.values()}
    if layout.time is not None:
        found[layout.time] = _time_kind(frame[layout.time])
    for name in (*layout.numbers, *filter(None, (layout.latitude, layout.longitude))):
        found[name] = "numbers" if frame[name].dtype.is_numeric() else found[name]
    return found


def _kind_of_column(column: pl.Series) -> str:
    """Return the kind of a column's values in words.

    "nothing" is a column of nulls alone, unless its type is text or whole numbers.
    """
    import polars as pl

    kind = column.dtype
    if kind.is_integer():
        return "whole numbers"
    if kind in (pl.String, pl.Categorical, pl.Enum):
        return "text"
    return "nothing" if kind == pl.Null or column.null_count() == len(column) else str(kind)


def _time_kind(column: pl.Series) -> str:
    """Return in words how the times of a column are written, "nothing" when there are none.

    Whether text has an offset is judged by the first value alone.
    """
    import polars as pl

    present = column.drop_nulls()
    if not len(present):
        return "nothing"
    if holds_seconds(present):
        return "numbers of seconds"
    if column.dtype == pl.String:
        zoned = present.head(1).str.strip_chars().str.contains(OFFSET).item()
    else:
        zoned = getattr(column.dtype, "time_zone", None) is not None
    return "times with an offset" if zoned else "times without an offset"


def _times(
    column: pl.Series, source: str, layout: Layout, subjects: pl.Series
) -> tuple[dict[str, pl.Series], pl.Series | None]:
    """Return the column `time`, perhaps `period`, and the mask of rows without a time, or None.

    Times are whole microseconds, 0 where there is none; for days, on the wall clock. Text that
    is no time makes only its own row bad, unless most of the column is no time.
    """
    import polars as pl

    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan().fill_null(False)
    try:
        return _time_columns(column, missing, source, layout, subjects)
    except DataError:
        unread = unreadable(column) if column.dtype == pl.String else missing
        if 2 * int(unread.sum()) > len(column):
            raise
        return _time_columns(column, missing | unread, source, layout, subjects)


def _time_columns(
    column: pl.Series, missing: pl.Series, source: str, layout: Layout, subjects: pl.Series
) -> tuple[dict[str, pl.Series], pl.Series | None]:
    """Return the columns `time` and perhaps `period`, and the mask of rows without a time.

    Times are whole microseconds, 0 where `missing` is true. The mask is None when no time is
    missing. `period`, and `time` of daily and weekly layouts, follow the wall clock of the zone;
    `instant` is then the same time in any zone, where the rows name their own.
    """
    present = column.filter(~missing) if missing.any() else column
    owners = subjects.filter(~missing) if missing.any() else subjects
    found: dict[str, pl.Series] = {}
    if layout.part is not None:
        found["wall"] = clock(present, source, layout.tz, layout.unit)
    if layout.on_the_wall:  # slots of a day are by the wall clock
        found["time"] = found["wall"]
        found["instant"] = microseconds(present, source, unit=layout.unit)
    else:
        found["time"] = microseconds(
            present, source, unit=layout.unit, tz=layout.tz, series=owners.fill_null("")
        )
    whole = {name: _spread_over_rows(times, missing) for name, times in found.items()}
    if layout.part is not None:
        whole["period"] = calendar_part(whole.pop("wall"), layout.part)
    return whole, missing if missing.any() else None


def _spread_over_rows(present: pl.Series, missing: pl.Series) -> pl.Series:
    """Spread the values over the rows that have one; the other rows get 0."""
    import polars as pl

    if not missing.any():
        return present
    spread = np.zeros(len(missing), dtype=np.int64)
    spread[(~missing).to_numpy()] = present.to_numpy()
    return pl.Series(spread)
