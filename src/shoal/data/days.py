"""Days of contexts from tables of timed rows: a context for every slot of the clock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.core.errors import DataError, InputError
from shoal.data.read import raw_tables
from shoal.data.rows import WORDS
from shoal.data.table import Columns
from shoal.data.times import clock, duration

if TYPE_CHECKING:
    import polars as pl

MINUTE = 60_000_000  # in microseconds
DAY = 24 * 60  # in minutes
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
    """Person, microseconds of the wall clock and context of every row; null where it is empty."""
    import polars as pl

    used = next((name for name in OTHERS if columns.pop(name, None) is not None), None)
    if used is not None:
        raise InputError(
            f"{used} does not go with slots: a slot without a reading is left out; drop {used}"
        )
    if columns.get("state") is None or columns.get("time") is None:
        raise InputError("days need the columns of contexts and times; name state and time")
    told = Columns(**columns)
    parts = []
    for frame, source, own in raw_tables(data, told, sep=sep):
        context = frame[told.state].cast(pl.String).str.strip_chars()
        worded = context.str.to_lowercase().is_in(["", *WORDS])
        owners = [pl.col(name).cast(pl.String) for name in told.series_in(frame.columns)]
        person = pl.concat_str(owners, separator="/") if owners else pl.lit(own)
        parts.append(
            frame.select(
                person=person,
                time=clock(frame[str(told.time)], source, told.tz, told.unit),
                context=pl.select(pl.when(~worded).then(context)).to_series(),
            )
        )
    table = pl.concat(parts)
    if table.height == 0:
        raise DataError("the data holds no rows; at least one day is needed")
    return table


def traces_of(table: pl.DataFrame, slots: Slots) -> Traces:
    """The days of every person, in order; of several readings in a slot the first counts."""
    days: dict[tuple[str, int], list[str | None]] = {}
    outside = further = 0
    for person, time, context in table.sort("time", maintain_order=True).iter_rows():
        day, minute = divmod(time // MINUTE, DAY)
        slot = (minute - slots.start) // slots.minutes
        if not 0 <= slot < slots.number:
            outside += 1
            continue
        trace = days.setdefault((person, day), [None] * slots.number)
        further += trace[slot] is not None
        trace[slot] = context if trace[slot] is None else trace[slot]
    if not days:
        raise DataError("no row lies in the hours of the day (--hours); check them and the times")
    return Traces(list(days.values()), table.height, outside, further)
