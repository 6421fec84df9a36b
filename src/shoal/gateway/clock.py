"""When slots open and close: by the server's clock only, in the person's zone.

Slots are counted through by an ordinal that never goes back: ordinal = day * slots + slot. A clock
of kind "day" follows the wall clock of a zone; one of kind "every" has slots of equal length.

Daylight saving: a day has all its slots on every date, by the wall clock. Slots that the clock
jumps over have no length, so they close with the one before and hold no reading; the slot
in which an hour comes twice is an hour longer.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from shoal.core.errors import InputError

MINUTES_A_DAY = 24 * 60
SHORTEST, LONGEST = 0.05, 7 * 86400.0  # seconds of a slot: below it a clock is all a server does


class ClockSlot(NamedTuple):
    """A slot of a stream: place in the order, day and number, and its time in UTC seconds."""

    ordinal: int
    day: str
    number: int
    opens: float
    ends: float


@dataclass(frozen=True, slots=True)
class Clock:
    """The slots of a stream: `slots` a day (0: no days), of `minutes` or of `seconds` each.

    `first` is the ordinal that day 0 begins with; `begins` is its date for kind "day", its UTC
    seconds for kind "every". `grace` is how long after its end a slot stays open for readings that
    are under way. `lived` is the last date that an earlier clock of this stream covered.
    """

    kind: Literal["day", "every"]
    slots: int
    begins: str
    zone: str = "UTC"
    start: int = 0
    minutes: int = 0
    seconds: float = 0.0
    grace: float = 0.0
    first: int = 0
    lived: str = ""

    def slot(self, ordinal: int) -> ClockSlot:
        """The slot of that ordinal."""
        return _slot(self, ordinal)

    def closes(self, ordinal: int) -> float:
        """When a slot closes: its end and the grace, in UTC seconds."""
        return self.slot(ordinal).ends + self.grace

    def at(self, instant: float) -> int | None:
        """The ordinal of the slot that has begun and not ended at `instant`; None between days."""
        found = self.after(instant) - 1
        return found if found >= self.first and instant < self.slot(found).ends else None

    def after(self, instant: float) -> int:
        """The first ordinal whose slot opens after `instant`, none before the first."""
        if self.kind == "every":
            return self.first + max(0, int((instant - float(self.begins)) // self.seconds) + 1)
        today = datetime.fromtimestamp(instant, ZoneInfo(self.zone)).date()
        day = max(0, (today - date.fromisoformat(self.begins)).days // self._span)
        first = self.first + max(0, day - 1) * self.slots
        places = range(first, self.first + (day + 2) * self.slots)
        return first + bisect_right(places, instant, key=lambda each: self.slot(each).opens)

    def first_of_day(self, ordinal: int) -> bool:
        """Whether a new day begins with this slot; always where a stream has no days."""
        return self.slots == 0 or (ordinal - self.first) % self.slots == 0

    def day_ends(self, ordinal: int) -> int:
        """The first ordinal of the day after that of `ordinal`."""
        if self.slots == 0:
            return ordinal + 1
        return self.first + ((ordinal - self.first) // self.slots + 1) * self.slots

    def covers(self, ordinal: int) -> tuple[int, int] | None:
        """Return when the day of a slot lies, in microseconds of UTC; None where there are no days.

        The second is exclusive, and no later than the first of the next day.
        """
        if self.slots == 0:
            return None
        after = self.day_ends(ordinal)
        last = min(self.slot(after - 1).ends, self.slot(after).opens)
        begins = self.slot(after - self.slots).opens
        return (round(begins * 1e6), round(last * 1e6)) if begins < last else None

    @property
    def _span(self) -> int:
        """How many dates one day of the model takes: of more than a day, whole weeks."""
        days = -(-self.slots * self.minutes // MINUTES_A_DAY)
        return max(1, days if days < 2 else -(-days // 7) * 7)

    def as_dict(self) -> dict[str, Any]:
        """The clock as plain data."""
        return asdict(self)

    def as_text(self) -> str:
        """The clock as JSON."""
        return json.dumps(self.as_dict())


def day_clock(
    *, slots: int, minutes: int, start: int, zone: str, begins: date, grace: float = 0.0
) -> Clock:
    """Slots by the wall clock of a zone, from `start` minutes after midnight of `begins` on."""
    if minutes < 1:
        raise InputError(
            "the plan's model does not say how many minutes a slot has; give clock.every"
        )
    return Clock("day", slots, begins.isoformat(), checked_zone(zone), start, minutes, grace=grace)


def steady_clock(
    *, seconds: float, slots: int, begins: float, zone: str = "UTC", grace: float = 0.0
) -> Clock:
    """Slots of equal length, one after the other without end."""
    if not SHORTEST <= seconds <= LONGEST:
        raise InputError(
            f"clock.every is {seconds:g}; a slot lasts {SHORTEST:g} to {LONGEST:g} seconds"
        )
    return Clock("every", slots, repr(begins), checked_zone(zone), seconds=seconds, grace=grace)


def checked_zone(zone: str) -> str:
    """`zone`, refused unless it names a time zone that is known here."""
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise InputError(
            f"timezone is {zone[:64]!r}; name one of the IANA list, such as 'Europe/Berlin'"
        ) from None
    return zone


@lru_cache(maxsize=65536)
def _slot(clock: Clock, ordinal: int) -> ClockSlot:
    """Return the slot of an ordinal: its day, its number in the day, and its open and close times.

    Times are UTC seconds. The close time is exclusive.
    """
    place = ordinal - clock.first
    day, number = divmod(place, clock.slots) if clock.slots else (0, place)
    if clock.kind == "every":
        opens = float(clock.begins) + place * clock.seconds
        begun = float(clock.begins) + day * clock.slots * clock.seconds if clock.slots else opens
        name = datetime.fromtimestamp(begun, UTC).isoformat(timespec="milliseconds")
        return ClockSlot(ordinal, name if clock.slots else "", number, opens, opens + clock.seconds)
    first = date.fromisoformat(clock.begins) + timedelta(days=day * clock._span)
    minute = clock.start + number * clock.minutes
    opens = _instant(first, minute, clock.zone)
    return ClockSlot(
        ordinal,
        first.isoformat(),
        number,
        opens,
        _instant(first, minute + clock.minutes, clock.zone),
    )


def _instant(day: date, minute: int, zone: str) -> float:
    """UTC seconds of a wall time; of one that the clock jumps over, the moment of the jump."""
    naive = datetime(day.year, day.month, day.day) + timedelta(minutes=minute)
    place = ZoneInfo(zone)
    found = naive.replace(tzinfo=place)
    instant = found.timestamp()
    if datetime.fromtimestamp(instant, place).replace(tzinfo=None) == naive:
        return instant
    early, late = found.replace(fold=1).timestamp(), instant
    before = datetime.fromtimestamp(early, place).utcoffset()
    while late - early > 0.5:  # jumps happen on whole seconds
        middle = (early + late) / 2
        if datetime.fromtimestamp(middle, place).utcoffset() == before:
            early = middle
        else:
            late = middle
    return float(round(late))
