"""Which periods of one subject may hold the same data, so that their charges count together.

A period is a claim: its data is independent of every other period's. Only the caller can make that
claim. Periods that Shoal names itself (none at all, a date, a stretch between two gaps) are held to
what is known of them: when they lie, and what their names say. rules.md, section 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from shoal.core.charge import WHOLE, Part

MICROSECONDS = 1_000_000  # of a second, in which instants are counted
FARTHEST_ZONE = 14 * 3600 * MICROSECONDS  # the clocks of two zones and of UTC differ by no more
UNNAMED = ""

Interval = tuple[int, int]  # microseconds since 1970, the second exclusive

_CALENDAR = re.compile(
    r"(?P<year>\d{4})(?:-W(?P<week>\d{2})|-Q(?P<quarter>[1-4])"
    r"|-(?P<month>\d{2})(?:-(?P<day>\d{2})(?:T(?P<hour>\d{2}))?)?)?"
)


class PeriodFacts(NamedTuple):
    """What the charges of one period say of when it lies.

    `spans` are sorted and do not meet. `located` says that every charge tells its span.
    """

    name: str
    spans: tuple[Interval, ...]
    located: bool


def periods_together(charged: Iterable[tuple[str, str]], period: str) -> frozenset[str]:
    """Return the periods whose charges count together with those of `period`, itself included.

    `charged` are the periods and the texts of the parts of all charges about one subject. Two
    periods count together when they may hold the same data, or both meet a third that may.
    """
    return _together(frozenset(charged), period)


def part_in_series(period: str, part: Part) -> Part:
    """Return what a charge reads, as a part of all the subject's data; the whole if unknown.

    For periods that count together. Periods named by the caller share no entry with each other.
    """
    if part.covers is not None:
        first, last = part.covers
        return Part(span=(first // MICROSECONDS, -(-last // MICROSECONDS)), seconds=True)
    if part.seconds:
        return part
    if period == UNNAMED:
        return WHOLE if part.name else part
    lies = calendar_interval(period)
    if lies is None:
        return Part(name=period.partition("/")[0])
    first, last = lies[0] - FARTHEST_ZONE, lies[1] + FARTHEST_ZONE
    if first < 0:
        return WHOLE
    return Part(span=(first // MICROSECONDS, last // MICROSECONDS), seconds=True)


@lru_cache(maxsize=4096)
def calendar_interval(name: str) -> Interval | None:
    """Return the microseconds of a year, quarter, month, week, day or hour, read as UTC.

    The name is as `every` and days of contexts write it: "2024", "2024-Q2", "2024-03", "2024-W07",
    "2024-03-04", "2024-03-04T17". None for any other name.
    """
    found = _CALENDAR.fullmatch(name)
    if found is None:
        return None
    number = {key: int(value) for key, value in found.groupdict().items() if value is not None}
    try:
        first, last = _dates(number)
    except (ValueError, OverflowError):
        return None
    ends = (datetime(each.year, each.month, each.day, tzinfo=UTC) for each in (first, last))
    begins, until = (round(each.timestamp()) * MICROSECONDS for each in ends)
    if "hour" not in number:
        return begins, until
    if number["hour"] > 23:
        return None
    begins += number["hour"] * 3600 * MICROSECONDS
    return begins, begins + 3600 * MICROSECONDS


def _dates(number: dict[str, int]) -> tuple[date, date]:
    """Return the first date of what the numbers name, and the first date after it."""
    year = number["year"]
    if "week" in number:
        monday = date.fromisocalendar(year, number["week"], 1)
        return monday, monday + timedelta(days=7)
    if "day" in number:
        day = date(year, number["month"], number["day"])
        return day, day + timedelta(days=1)
    if "quarter" in number:
        first, months = 3 * number["quarter"] - 2, 3
    elif "month" in number:
        first, months = number["month"], 1
    else:
        first, months = 1, 12
    after = first + months
    return date(year, first, 1), date(year + (after > 12), after - 12 * (after > 12), 1)


@lru_cache(maxsize=4096)
def _together(named: frozenset[tuple[str, str]], period: str) -> frozenset[str]:
    """Return the periods that are linked to `period` by others that may hold the same data."""
    parts: dict[str, list[Part]] = {period: []}
    for name, text in named:
        parts.setdefault(name, []).append(Part.stored(text))
    left = {name: _facts(name, own) for name, own in parts.items()}
    found, waiting = {period}, [left.pop(period)]
    while waiting:
        one = waiting.pop()
        met = [other for other in left.values() if _may_meet(one, other)]
        for other in met:
            del left[other.name]
        found.update(other.name for other in met)
        waiting += met
    return frozenset(found)


def _facts(name: str, parts: Sequence[Part]) -> PeriodFacts:
    spans = [span for span in map(_span, parts) if span is not None]
    return PeriodFacts(name, _joined(spans), len(spans) == len(parts) > 0)


def _span(part: Part) -> Interval | None:
    """Return when the data that a charge read lies; None where it does not say."""
    if part.covers is not None:
        return part.covers
    if part.seconds and part.span is not None:
        return part.span[0] * MICROSECONDS, part.span[1] * MICROSECONDS
    return None


def _joined(spans: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the same instants as sorted intervals that do not meet."""
    found: list[Interval] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def _may_meet(one: PeriodFacts, other: PeriodFacts) -> bool:
    """Whether two periods of one subject may hold the same data, by their times and names."""
    if _intersect(one.spans, other.spans):
        return True
    mine, theirs = calendar_interval(one.name), calendar_interval(other.name)
    pairs = ((mine, other), (theirs, one))
    in_any_zone = any(
        lies is not None and _intersect((_widened(lies),), at.spans) for lies, at in pairs
    )
    if UNNAMED in (one.name, other.name):  # a part of a series meets the week of its day, too
        return in_any_zone or not (one.located and other.located)
    if one.located and other.located:
        return False
    if any(a.name.startswith(f"{b.name}/") for a, b in ((one, other), (other, one))):
        return True
    if mine is not None and theirs is not None:
        return _intersect((mine,), (theirs,))
    return in_any_zone


def _widened(lies: Interval) -> Interval:
    """Return the interval of a calendar name in any zone."""
    return lies[0] - FARTHEST_ZONE, lies[1] + FARTHEST_ZONE


def _intersect(one: Sequence[Interval], other: Sequence[Interval]) -> bool:
    """Whether two lists of intervals, neither of which meets itself, share an instant."""
    ends = sorted((*one, *other))
    return any(after[0] < before[1] for before, after in pairwise(ends))
