"""When the days of a stream begin, and where the next clock of a stream takes over.

A stream that gets another plan, slots or zone covers no moment and begins no date twice: what a day
promises is about readings that nothing else was shown about.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from shoal.core.plan import Plan
from shoal.events.window import SlotClock
from shoal.gateway.clock import MINUTES_A_DAY, Clock, checked_zone, day_clock, steady_clock
from shoal.gateway.machines import COUNTS, PLACES, stream_kind
from shoal.gateway.problems import not_understood

MAX_DAYS_AHEAD = 366  # days from today on which a clock may begin
SAME_MOMENT = 1e-3  # seconds: far below a slot, far above the rounding of UTC seconds


class Covered(NamedTuple):
    """What earlier slots of a stream covered: the time before `until`, and dates up to `date`.

    `until` is in UTC seconds. `date` names the last day of a clock of kind "day", "" for none.
    """

    until: float
    date: str


def covered_before(clock: Clock, ordinal: int) -> Covered:
    """Return what the slots before `ordinal` covered, under this clock and those before it."""
    last = clock.slot(ordinal - 1)
    return Covered(last.ends, max(clock.lived, last.day) if clock.kind == "day" else clock.lived)


def clock_of(
    plan: Plan,
    asked: dict[str, Any],
    zone: str,
    now: float,
    after: int,
    *,
    covered: Covered | None = None,
    like: Clock | None = None,
) -> Clock:
    """Return the clock a person asked for: of equal slots, or by the wall clock of the model.

    `after` is the ordinal its first slot has. `covered` is what earlier slots of the stream
    covered: the first day opens after it and has a later date. `like` is the clock it takes over
    from at `now`, whose grace and length of slots it keeps unless others are asked for.
    """
    kind = stream_kind(plan)
    slots, own = kind.slots(plan), kind.clock(plan)
    every, grace = asked.get("every"), float(asked.get("grace") or (like.grace if like else 0.0))
    if every is None and like is not None and like.kind == "every":
        every = like.seconds
    if every is not None and own is not None and kind is PLACES:
        raise not_understood(
            "clock.every is given, or the stream has it, and the events of the plan are by the "
            "clock; leave it out, or begin a stream of another name"
        )
    if every is None and own is None:
        raise not_understood("clock.every is missing; say how many seconds a slot lasts")
    if every is not None:
        begins = (now // every + 1) * every
        if kind is COUNTS:  # steps of whole hours are those of the wall clock
            whole, offset = every * slots, _offset(zone, now)
            begins = (now + offset) // whole * whole - offset
        begins = now if like else begins
        clock = steady_clock(seconds=every, slots=slots, begins=begins, zone=zone, grace=grace)
    else:
        assert own is not None
        local = datetime.fromtimestamp(now, ZoneInfo(checked_zone(zone))).date()
        clock = day_clock(
            slots=slots,
            minutes=own.slot_minutes,
            start=own.start_minute % MINUTES_A_DAY,
            zone=zone,
            begins=_first_day(own, slots, local, asked.get("begins")),
            grace=grace,
        )
    clock = replace(clock, first=after)
    return clock if covered is None else _begun_after(clock, covered)


def next_clock(plan: Plan, asked: dict[str, Any], zone: str, old: Clock, first: int) -> Clock:
    """Return the clock that takes over from `old`, at its slot `first` or at a later day of it.

    `first` begins a day of `old`. Later days of `old` that end before the first day of the new
    clock opens keep the old plan: a plan for weeks takes over when a week begins.
    """
    covered = covered_before(old, first)
    new = clock_of(plan, asked, zone, covered.until, first, covered=covered, like=old)
    opening, length = new.slot(first), max(1, old.slots)
    by_date = old.kind == new.kind == "day"
    if old.kind == "every":
        room = opening.opens + SAME_MOMENT - old.slot(first).opens
        first += length * max(0, int(room // (length * old.seconds)))
    while old.kind == "day":
        last = old.slot(first + length - 1)
        if last.ends > opening.opens + SAME_MOMENT or (by_date and last.day >= opening.day):
            break
        first += length
    return replace(new, first=first, lived=covered_before(old, first).date)


def _begun_after(clock: Clock, covered: Covered) -> Clock:
    """Return the clock with its first day moved on until no moment or date of it was covered."""
    opening = clock.slot(clock.first)
    while clock.kind == "day" and (
        opening.day <= covered.date or opening.opens < covered.until - SAME_MOMENT
    ):
        clock = replace(clock, begins=clock.slot(clock.first + clock.slots).day)
        opening = clock.slot(clock.first)
    return replace(clock, lived=covered.date)


def _offset(zone: str, now: float) -> float:
    """Return the seconds that the wall clock of a zone is ahead of UTC."""
    ahead = datetime.fromtimestamp(now, ZoneInfo(checked_zone(zone))).utcoffset()
    return 0.0 if ahead is None else ahead.total_seconds()


def _first_day(own: SlotClock, slots: int, today: date, asked: str | None) -> date:
    """Return the date of slot 0: today, or of a model of a week the last date of its first day."""
    begins = today if asked is None else _date(asked, today)
    if not own.slot_minutes or own.calendar(slots) == "day":
        return begins
    late = (begins.weekday() - own.start_minute // MINUTES_A_DAY) % 7
    if asked is not None and late:
        raise not_understood(
            f"clock.begins is {asked}, {late} day(s) after the day of the week on which the model "
            "of the plan begins; leave it out, or name that day"
        )
    return begins - timedelta(days=late)


def _date(asked: str, today: date) -> date:
    """Return the date that was asked for; refused when there is none, or it is years away."""
    try:
        found = date.fromisoformat(asked)
    except ValueError:
        found = date.min
    if abs((found - today).days) > MAX_DAYS_AHEAD:
        raise not_understood(
            f"clock.begins is {asked}; name a date within a year of today, such as {today}"
        )
    return found
