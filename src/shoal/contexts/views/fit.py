"""`shoal fit --slot`: the chain of a day from timed contexts, one matrix for every step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.cli import show
from shoal.cli.fit import note_one_series, note_twins
from shoal.cli.options import check_output
from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    import polars as pl

    from shoal.cli.sources import NamedColumns
    from shoal.contexts.day import DayChain

MINUTE = 60_000_000  # in microseconds
DAY = 24 * 60  # in minutes


class DayWish(NamedTuple):
    """What `shoal fit --slot` was asked for: how a day is cut, and how counts are smoothed."""

    slot: str
    hours: str | None
    smoothing: str
    spread: int


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


def fit_contexts(
    data: str,
    out: Path,
    columns: NamedColumns,
    options: dict[str, Any],
    *,
    as_json: bool,
    force: bool,
) -> None:
    """Fits, stores and reports the chain of a day; `options` are the fields of a DayWish."""
    from shoal.contexts.day import fit_day
    from shoal.core.registry import dumps
    from shoal.data.files import atomic_write

    wish = DayWish(**options)
    if columns.state is None or columns.time is None:
        raise InputError("--slot needs the columns of contexts and times; name --state and --time")
    if columns.gap is not None:
        raise InputError("--gap does not go with --slot: slots without a reading are left out")
    if out.suffix.lower() != ".json":
        raise InputError(f"--out is {str(out)!r}; a model is written as .json")
    check_output(out, force=force)
    slots = slots_of(wish)
    with show.working("reading"):
        rows = timed_rows(data, columns)
        found = traces_of(rows, slots)
    with show.working("fitting"):
        try:
            chain = fit_day(
                found.days,
                smoothing=wish.smoothing,
                spread=wish.spread,
                slot_minutes=slots.minutes,
                start_minute=slots.start,
            )
        except DataError as error:
            raise DataError(f"{error}; --hours says which hours a day has") from None
    note_one_series(columns.series, rows["person"].n_unique())
    note_twins(rows["context"].drop_nulls().unique().sort())
    atomic_write(out, dumps(chain) + "\n")
    if as_json:
        show.print_json(_object(out, chain, found))
    else:
        _print(out, chain, found)


def slots_of(wish: DayWish) -> Slots:
    """How the options cut a day; slots must fill the hours."""
    from shoal.data.times import parse_duration

    minutes, rest = divmod(parse_duration(wish.slot, "--slot").total_seconds(), 60)
    if rest or minutes < 1:
        raise InputError(f"--slot is {wish.slot!r}; it must be whole minutes, such as 30min")
    start, end = 0, DAY
    if wish.hours is not None:
        shown = re.fullmatch(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)", wish.hours.replace(" ", ""))
        ends = [int(part) for part in shown.groups()] if shown else [1, 60, 0, 0]
        start, end = 60 * ends[0] + ends[1], 60 * ends[2] + ends[3]
        if not start < end <= DAY or max(ends[1], ends[3]) > 59:
            raise InputError(
                f"--hours is {wish.hours!r}; it must be two times of a day such as 08:00-16:00, "
                "at most 00:00-24:00"
            )
    count, rest = divmod(end - start, int(minutes))
    if rest or count < 2:
        raise InputError(
            f"--slot is {wish.slot!r}, which does not divide the {end - start} minutes of the day "
            "into two or more slots; choose another length, or other --hours"
        )
    return Slots(start, int(minutes), count)


def timed_rows(data: str, columns: NamedColumns) -> pl.DataFrame:
    """Person, microseconds of the wall clock and context of every row; null where it is empty."""
    import polars as pl

    from shoal.data.read import load, matching, names_of
    from shoal.data.times import clock

    parts = []
    files = matching(data)
    for file, own in zip(files, names_of(files), strict=True):
        frame = load(file, state=str(columns.state), series=columns.series, time=columns.time)
        context = frame[str(columns.state)].cast(pl.String).str.strip_chars()
        person = pl.lit(own) if columns.series is None else pl.col(columns.series)
        parts.append(
            frame.select(
                person=person.cast(pl.String),
                time=clock(frame[str(columns.time)], repr(str(file)), columns.tz),
                context=pl.select(pl.when(context != "").then(context)).to_series(),
            )
        )
    table = pl.concat(parts)
    if table.height == 0:
        raise DataError(f"{data!r} holds no rows; at least one day is needed")
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


def _object(out: Path, chain: DayChain, found: Traces) -> dict[str, Any]:
    missing = sum(context is None for day in found.days for context in day)
    return {
        "path": str(out),
        "states": list(chain.states),
        "days": len(found.days),
        "slots": chain.slots,
        "slot_minutes": chain.slot_minutes,
        "start_minute": chain.start_minute,
        "rows": found.readings,
        "rows_outside": found.outside,
        "rows_further": found.further,
        "slots_missing": missing,
        "private": False,
    }


def _print(out: Path, chain: DayChain, found: Traces) -> None:
    from shoal.cli.fit import NOT_PRIVATE

    told = _object(out, chain, found)
    cells = len(found.days) * chain.slots
    screen = show.console()
    screen.print(f"Read {found.readings:,} rows as {len(found.days):,} day(s).")
    screen.print(f"Model in {out}: {chain.describe()}.")
    screen.print(f"{told['slots_missing']:,} of {cells:,} slots have no reading.")
    if found.further:
        screen.print(f"{found.further:,} rows share a slot with an earlier one, which counts.")
    if found.outside:
        screen.print(f"{found.outside:,} rows lie at other hours and were left out.")
    screen.print()
    screen.print(NOT_PRIVATE)
    screen.print(f'In a spec:\n  [[model]]\n  file = "{out.name}"')
