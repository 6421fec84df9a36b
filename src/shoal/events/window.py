"""Windows of time: by slot, by clock, by day of the week."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Bools, Ints
from shoal.core.errors import InputError
from shoal.core.numbers import whole

Between = tuple[int, int] | tuple[str, str] | None
DAY, WEEK = 1440, 7 * 1440  # minutes
THURSDAY = 3 * DAY  # minutes from a Monday to 1970-01-01
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MOMENT = re.compile(r"(?:(mon|tue|wed|thu|fri|sat|sun)[a-z]*)?\s*(?:(\d{1,2}):(\d{2}))?", re.I)


class SlotClock(NamedTuple):
    """Slot t (from 0) begins `start_minute + t·slot_minutes` minutes after Monday, 00:00."""

    slot_minutes: int
    start_minute: int = 0

    def calendar(self, slots: int) -> str:
        """The part of the calendar that so many slots are of: a "day", or from Monday a "week"."""
        if slots * self.slot_minutes > WEEK:
            raise InputError(
                f"the model has {slots} slots of {self.slot_minutes} minutes, more than a week; "
                "name a column of periods, or shorten it"
            )
        return "week" if slots * self.slot_minutes > DAY else "day"

    def slots_at(self, minutes: Ints, slots: int) -> Ints:
        """The slot of each minute since 1970, in its day or week; negative before the first."""
        weekly = self.calendar(slots) == "week"
        span, since = (WEEK, THURSDAY) if weekly else (DAY, 0)
        return np.asarray(
            ((minutes + since) % span - self.start_minute % span) // self.slot_minutes
        )


class Moment(NamedTuple):
    """A day of the week or every day (None), and minutes after its midnight."""

    day: int | None
    minute: int

    def of_week(self) -> int:
        return (self.day or 0) * DAY + self.minute


def checked_between(between: Any) -> Between:
    """`between` as two slots or two moments, in order and well written; None for every slot."""
    if between is None:
        return None
    try:
        first, last = between
    except (TypeError, ValueError):
        raise InputError(
            f"between is {between!r}; give (first, last), two slots counted from 0 or two times "
            "such as ('mon 08:00', 'fri 24:00')"
        ) from None
    if isinstance(first, str) and isinstance(last, str):
        _moments((first, last))
        return first, last
    if isinstance(first, str) or isinstance(last, str):
        raise InputError(f"between is {between!r}; give two slots or two times, not one of each")
    low, high = whole(first, "between", least=0), whole(last, "between", least=0)
    if high < low:
        raise InputError(f"between is ({low}, {high}); the first slot comes after the last")
    return low, high


def window(between: Between, length: int, clock: SlotClock | None) -> Bools:
    """Which of `length` slots a window holds: every slot it touches, for times of a clock.

    Times without a day hold every day, and a window whose end comes before its beginning runs
    past midnight, or past Sunday.
    """
    slots = np.arange(length)
    if between is None:
        return np.ones(length, dtype=np.bool_)
    first, last = between
    if isinstance(first, str) or isinstance(last, str):
        return _on_the_clock((str(first), str(last)), slots, clock)
    if first >= length:
        raise InputError(f"between begins at slot {first}; the model has slots 0 to {length - 1}")
    return np.asarray((slots >= first) & (slots <= last))


def window_words(between: Between) -> str:
    """The window as the end of a sentence."""
    if between is None:
        return ""
    first, last = between
    if isinstance(first, str):
        return f" between {first} and {last}"
    return f" at slot {first}" if first == last else f" in slots {first} to {last}"


def _on_the_clock(between: tuple[str, str], slots: Any, clock: SlotClock | None) -> Bools:
    """Return which of `slots` overlap the clock window `between`, one boolean per slot.

    A window without weekdays repeats daily, one with weekdays weekly. A window that ends before it
    begins wraps around. Refuses slots without a clock.
    """
    if clock is None or clock.slot_minutes <= 0:
        raise InputError(
            f"between is {between!r}, and the model's slots have no clock; give slot_minutes and "
            "start_minute to the day, or slots from 0"
        )
    first, last = _moments(between)
    span = DAY if first.day is None else WEEK
    begins = (clock.start_minute + slots * clock.slot_minutes) % span
    low, high = first.of_week(), last.of_week()
    length = (high - low) % span or span
    # minutes from the window's beginning to the slot's: inside, or the slot reaches into it
    after = (begins - low) % span
    return np.asarray((after < length) | (after + clock.slot_minutes > span))


def minute_of_week(text: str) -> int:
    """The minutes from Monday, 00:00 to a time such as "mon 08:00" or "08:00"."""
    return _moment(text, last=False).of_week()


def _moments(between: tuple[str, str]) -> tuple[Moment, Moment]:
    first, last = (_moment(text, last=i == 1) for i, text in enumerate(between))
    if (first.day is None) != (last.day is None):
        raise InputError(f"between is {between!r}; name a day in both or in none")
    return first, last


def _moment(text: str, *, last: bool) -> Moment:
    """Return the moment written in `text`, with its clock time in minutes after midnight.

    A day without a time means its beginning, or its end when `last`. Refuses unknown forms and
    times after 24:00.
    """
    found = _MOMENT.fullmatch(text.strip())
    if not text.strip() or found is None:
        raise InputError(
            f"between holds {text!r}; write a time as '18:00', 'mon 08:30', 'fri' or 'fri 24:00'"
        )
    day, hour, minute = found.groups()
    clock = (DAY if last else 0) if hour is None else int(hour) * 60 + int(minute)
    if clock > DAY or (minute is not None and int(minute) > 59):
        raise InputError(f"between holds {text!r}; the hours of a day end at 24:00")
    return Moment(None if day is None else WEEKDAYS.index(day.lower()[:3]), clock)
