"""Timed rows of people as families take them: paths on a map, and contexts of a day in slots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import DataError, InputError
from shoal.data.formats import SERIES_COLUMNS, TRACK_COLUMNS
from shoal.data.frames import is_frame, to_polars
from shoal.data.read import columns_of, raw_tables
from shoal.data.rows import WORDS
from shoal.data.table import Columns
from shoal.data.times import Duration, clock, duration, holds_seconds, microseconds

if TYPE_CHECKING:
    import polars as pl

ROWS = ("where", "unit", "tz")  # keywords for rows, as `shoal.read` takes them
NO_NAMES: Mapping[str, int] = MappingProxyType({})
DEGREES = {"latitude": 90, "longitude": 180}


def positions(
    data: Any,
    *,
    series: str | Sequence[str] | None = None,
    time: str | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    state: str | None = None,
    missing: str = "gap",
    sep: str = ",",
    **rows: Any,
) -> pl.DataFrame:
    """Columns user, seconds and time (when there are times), and lat and lon, or state.

    Takes a table, a file, a folder or a pattern; without `series` each file is one person, named
    after it. Tracks such as GPX, and tables that `read_track` made, need no names of columns. Times
    are those of all rows or of none. `missing` is "gap" (a step without a position, which ends a
    chain) or "drop"; `rows` are `where`, `unit` and `tz` of `shoal.read`.
    """
    import polars as pl

    if state is latitude is longitude is None:
        own = _own_columns(data)
        latitude, longitude = own.get("latitude"), own.get("longitude")
        series, time = series or own.get("series"), time or own.get("time")
    roles = {"state": state, "latitude": latitude, "longitude": longitude}
    named = [(role, name) for role, name in roles.items() if name is not None]
    if [role for role, _ in named] not in (["latitude", "longitude"], ["state"]):
        shown = " and ".join(role for role, _ in named) or "no column of places"
        raise InputError(
            f"{shown} is given; name latitude and longitude (--lat, --lon), or state, but not both"
        )
    if missing not in ("gap", "drop"):
        raise InputError(f"missing is {missing!r}; of places it is 'gap' or 'drop'")
    unknown = next((name for name in rows if name not in ROWS), None)
    if unknown is not None:
        raise InputError(
            f"{unknown!r} is no keyword for positions; there are series, time, latitude, "
            f"longitude, state, missing, sep, {', '.join(ROWS)}"
        )
    (role, first), *others = named
    role_columns = Columns(state=first, series=series, time=time, **rows)
    parts = []
    further = [(name, own) for own, name in others]
    for frame, source, file_name in raw_tables(data, role_columns, *further, sep=sep, role=role):
        columns = {
            "user": _person(frame, role_columns, file_name),
            **_timed_columns(frame, role_columns, source),
        }
        if state is not None:
            columns["state"] = pl.col(state).cast(pl.String)
        else:
            for role, name in named:
                columns[role[:3]] = pl.lit(_degrees(frame[name], source, role))
        parts.append(frame.select(**columns))
    timed = {"seconds" in part.columns for part in parts}
    if len(timed) > 1:
        raise DataError(
            f"some files of {str(data)[:80]!r} have times and some have none; give all of them "
            "times, or name those without by themselves"
        )
    table = pl.concat(parts, how="vertical_relaxed")
    places = ["state"] if state is not None else ["lat", "lon"]
    kept = table.drop_nulls(places) if missing == "drop" else table
    if kept.height == 0:
        raise DataError(f"{str(data)[:80]!r} holds no rows; at least one position is needed")
    return kept


def _own_columns(data: Any) -> Mapping[str, str]:
    """The columns of a track by their roles; none of a table of other columns."""
    if not is_frame(data):
        return columns_of(data)
    present = list(to_polars(data).columns)
    known = set(TRACK_COLUMNS.values()) <= set(present)
    return TRACK_COLUMNS if known else {}


def _person(frame: pl.DataFrame, role_columns: Columns, own: str) -> Any:
    """Whose each row is: what the columns of series say, or `own`."""
    import polars as pl

    owners = [pl.col(name).cast(pl.String) for name in role_columns.series_in(frame.columns)]
    return pl.concat_str(owners, separator="/") if owners else pl.lit(own)


def _timed_columns(frame: pl.DataFrame, role_columns: Columns, source: str) -> dict[str, Any]:
    """Seconds, and as dates and times what is no bare number; nothing without a time column."""
    import polars as pl

    if role_columns.time is None:
        return {}
    column = frame[role_columns.time]
    if isinstance(column.dtype, pl.Datetime) and column.null_count():
        if column.null_count() < frame.height:
            raise DataError(
                f"{source}: {column.null_count()} of {frame.height} positions have no time; give "
                "all of them one, or none"
            )
        return {}
    found = microseconds(column, source, unit=role_columns.unit, tz=role_columns.tz)
    columns: dict[str, Any] = {"seconds": pl.lit(found.cast(pl.Float64) / 1e6)}
    if not column.dtype.is_numeric() and not holds_seconds(column):
        zone = getattr(column.dtype, "time_zone", None) and "UTC"
        columns["time"] = pl.lit(found.cast(pl.Datetime("us", zone)))
    return columns


def _degrees(values: pl.Series, source: str, role: str) -> pl.Series:
    """Numbers of a column, nothing where it is empty; refused is any other text or number."""
    import polars as pl

    most = DEGREES[role]
    if values.dtype == pl.String:
        text = values.str.strip_chars()
        values = pl.select(pl.when(text != "").then(text)).to_series().rename(values.name)
    numbers = values.cast(pl.Float64, strict=False)
    wrong = (numbers.is_null() & values.is_not_null()) | (numbers.abs() > most).fill_null(False)
    wrong = wrong & ~numbers.is_nan().fill_null(False)
    if wrong.any():
        row = wrong.to_list().index(True)
        raise DataError(
            f"{source}: column {values.name!r} holds {values[row]!r} in row {row + 1}; a {role} is "
            f"a number from -{most} to {most}, and an empty field skips the step"
        )
    return numbers.fill_nan(None)


def cell_paths(
    grid: Any,
    data: Any,
    *,
    gap: Duration | None = None,
    every: Duration | None = None,
    **columns: Any,
) -> dict[str, list[Ints]]:
    """Person to chains of cells of `grid`, cut at pauses longer than `gap`; see `positions`.

    `every` lays the positions on even steps of that length, as `paths_in` says.
    """
    names = {grid.name_of(cell): cell for cell in range(grid.size)} if columns.get("state") else {}
    return paths_in(positions(data, **columns), grid, gap, names, every=every)


def paths_in(
    table: pl.DataFrame,
    grid: Any,
    gap: Duration | None,
    names: Mapping[str, int] = NO_NAMES,
    *,
    every: Duration | None = None,
) -> dict[str, list[Ints]]:
    """The same of a table that `positions` made; `names` are those of the grid's cells.

    With `every` a chain has an entry for each step of that length, the last position of the step,
    and a step without one ends it. Without `every` each row is a step.
    """
    lengths = {"gap": gap, "every": every}
    seconds = {
        name: duration(value, name).total_seconds()
        for name, value in lengths.items()
        if value is not None
    }
    if seconds and "seconds" not in table.columns:
        raise InputError(
            f"{next(iter(seconds))} is given without a time column, or the file has no times; name "
            "it with time=…, or drop it"
        )
    found: dict[str, list[Ints]] = {}
    for (user,), own in table.group_by(["user"], maintain_order=True):
        rows = own.sort("seconds", maintain_order=True) if "seconds" in own.columns else own
        if "state" in rows.columns:
            cells = np.array([names.get(str(name), -1) for name in rows["state"]], dtype=np.int64)
        else:
            cells = grid.cell_of(rows["lat"].to_numpy(), rows["lon"].to_numpy())
        pieces = [cells]
        if seconds:
            times = rows["seconds"].to_numpy()
            pauses = np.diff(times) > seconds.get("gap", np.inf)
            breaks = np.flatnonzero(pauses) + 1
            pieces = np.split(cells, breaks)
            if "every" in seconds:
                step, apart = seconds["every"], np.split(times, breaks)
                laid = (on_steps(a, b, step) for a, b in zip(pieces, apart, strict=True))
                pieces = [run for runs in laid for run in runs]
        found[str(user)] = pieces
    return found


def on_steps(cells: Ints, seconds: Floats, every: float) -> list[Ints]:
    """The last cell of each step of `every` seconds from the first time on, cut at empty steps."""
    steps = np.floor((seconds - seconds[0]) / every).astype(np.int64)
    last = np.flatnonzero(np.diff(steps, append=steps[-1] + 1))  # times rise: the last of each step
    return np.split(cells[last], np.flatnonzero(np.diff(steps[last]) > 1) + 1)


MINUTE = 60_000_000  # in microseconds
DAY = 24 * 60  # in minutes
LONGEST_DAYS = 31  # that one reading with a beginning and an end may last
OTHERS = ("gap", "missing", "bins", "every")  # keywords of series that slots have no use for


class Slots(NamedTuple):
    """The slots of a day, in minutes after midnight."""

    start: int
    minutes: int
    number: int


class Traces(NamedTuple):
    """A context per slot for every person and day, and how much of the data that is."""

    days: list[list[str | None]]
    readings: int
    outside: int  # rows at other hours
    further: int  # rows after the first of a slot, which is the one that counts


def day_traces(data: Any, slot: Any, hours: str | None = None, **columns: Any) -> Traces:
    """The days in a table or a file, cut into slots of length `slot`; also their `Slots`."""
    return traces_of(timed_rows(data, **columns), slots_of(slot, hours))


def slots_of(slot: Any, hours: str | None = None, *, dashes: str = "") -> Slots:
    """How a day is cut; slots must fill the hours. `dashes` stand before names in refusals."""
    if slot is None:
        raise InputError("slot is missing; days of a table need the length of a slot, as '30min'")
    minutes, rest = divmod(duration(slot, f"{dashes}slot").total_seconds(), 60)
    if rest or minutes < 1:
        raise InputError(f"{dashes}slot is {slot!r}; it must be whole minutes, such as 30min")
    start, end = 0, DAY
    if hours is not None:
        shown = re.fullmatch(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)", hours.replace(" ", ""))
        ends = [int(part) for part in shown.groups()] if shown else [1, 60, 0, 0]
        start, end = 60 * ends[0] + ends[1], 60 * ends[2] + ends[3]
        if not start < end <= DAY or max(ends[1], ends[3]) > 59:
            raise InputError(
                f"{dashes}hours is {hours!r}; it must be two times of a day such as 08:00-16:00, "
                "at most 00:00-24:00"
            )
    count, rest = divmod(end - start, int(minutes))
    if rest or count < 2:
        raise InputError(
            f"{dashes}slot is {slot!r}, which does not divide the {end - start} minutes of the day "
            f"into two or more slots; choose another length, or other {dashes}hours"
        )
    return Slots(start, int(minutes), count)


def timed_rows(data: Any, *, sep: str = ",", **columns: Any) -> pl.DataFrame:
    """Person, microseconds of the wall clock and context of every row; null where it is empty.

    Files whose readings have an end (Apple Health, sleep of Fitbit) also give that, as `until`.
    """
    import polars as pl

    used = next((name for name in OTHERS if columns.pop(name, None) is not None), None)
    if used is not None:
        raise InputError(
            f"{used} does not go with slots: a slot without a reading is left out; drop {used}"
        )
    if columns.get("state") is None or columns.get("time") is None:
        raise InputError("days need the columns of contexts and times; name state and time")
    role_columns = Columns(**columns)
    lasting = not is_frame(data) and columns_of(data, tables=False) == SERIES_COLUMNS
    parts = []
    for frame, source, own in raw_tables(data, role_columns, sep=sep):
        context = frame[role_columns.state].cast(pl.String).str.strip_chars()
        worded = context.str.to_lowercase().is_in(["", *WORDS])
        until = {"until": clock(frame["end"], source, role_columns.tz)} if lasting else {}
        parts.append(
            frame.select(
                person=_person(frame, role_columns, own),
                time=clock(
                    frame[str(role_columns.time)], source, role_columns.tz, role_columns.unit
                ),
                context=pl.select(pl.when(~worded).then(context)).to_series(),
                **until,
            )
        )
    table = pl.concat(parts)
    if table.height == 0:
        raise DataError("the data holds no rows; at least one day is needed")
    return table


def traces_of(table: pl.DataFrame, slots: Slots) -> Traces:
    """The days of every person, in order; of several readings in a slot the first counts.

    A reading with an end is that of every slot that begins before it, too.
    """
    days: dict[tuple[str, int], list[str | None]] = {}
    outside = further = 0
    for person, time, context, *until in table.sort("time", maintain_order=True).iter_rows():
        for moment in (time, *_later_slots(time, until[0] if until else None, slots)):
            day, minute = divmod(moment // MINUTE, DAY)
            slot = (minute - slots.start) // slots.minutes
            if not 0 <= slot < slots.number:
                outside += moment == time
                continue
            trace = days.setdefault((person, day), [None] * slots.number)
            further += trace[slot] is not None and moment == time
            trace[slot] = context if trace[slot] is None else trace[slot]
    if not days:
        raise DataError("no row lies in the hours of the day (--hours); check them and the times")
    return Traces(list(days.values()), table.height, outside, further)


def _later_slots(time: int, until: int | None, slots: Slots) -> range:
    """When the slots begin that a reading lasts into, in microseconds; none without an end."""
    if until is None or until <= time:
        return range(0)
    if until - time > LONGEST_DAYS * DAY * MINUTE:
        raise DataError(
            f"a reading lasts {(until - time) // (DAY * MINUTE):,} days; at most {LONGEST_DAYS} "
            "are taken for one: correct its end, or leave it out with where (--where)"
        )
    step, first = slots.minutes * MINUTE, slots.start * MINUTE
    return range(first + ((time - first) // step + 1) * step, until, step)
