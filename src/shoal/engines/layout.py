"""Which columns of the input say whose row it is, when it happened and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from shoal.core.errors import InputError

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a job.

    `by` names the subject: each one gets a release of its own. `series` tells chains apart inside
    a subject (the people of a region), `time` orders a chain and a pause longer than `gap` starts
    a new one, `group` says which plan a subject is under, `period` which part of its data a row
    belongs to: a subject gets one release per period. With `daily` the period is the date of the
    time. A period is a claim of independence. Plans about numbers (K-means) have no `state` but
    `numbers`, the columns of each record; location plans on a map may have `latitude` and
    `longitude` instead.
    """

    by: str
    state: str | None = None
    series: str | None = None
    time: str | None = None
    gap: timedelta | None = None
    group: str | None = None
    period: str | None = None
    daily: bool = False
    numbers: tuple[str, ...] = ()
    latitude: str | None = None
    longitude: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", tuple(self.numbers))
        if (self.latitude is None) != (self.longitude is None):
            raise InputError("latitude and longitude go together; name both columns, or neither")
        if [self.state is None, not self.numbers, self.latitude is None].count(False) != 1:
            raise InputError(
                "name the column of the state, those of latitude and longitude, or columns of "
                "numbers, but not more than one of them"
            )
        if self.gap is not None and self.time is None:
            raise InputError(f"gap is {self.gap}, but no time column is named; name it")
        if self.gap is not None and self.gap <= timedelta(0):
            raise InputError(f"gap is {self.gap}; it must be longer than 0")
        if self.daily and (self.time is None or self.period is not None):
            raise InputError("daily needs a time column, and no column of periods beside it")
        if self.series == self.by:
            object.__setattr__(self, "series", None)
        single = (self.state, self.series, self.time, self.latitude, self.longitude)
        roles = [self.by, *filter(None, single), *self.numbers]
        twice = next((name for name in roles if roles.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"column {twice!r} is named for two purposes; name another column")

    @property
    def columns(self) -> dict[str, str]:
        """Role to column, of every role that has one; `by` is the role "subject"."""
        named = {
            "subject": self.by,
            "period": self.period,
            "group": self.group,
            "series": self.series,
            "time": self.time,
            "state": self.state,
            "latitude": self.latitude,
            "longitude": self.longitude,
        }
        named |= {f"number {place}": column for place, column in enumerate(self.numbers)}
        return {role: column for role, column in named.items() if column is not None}

    @property
    def owners(self) -> list[str]:
        """The roles of text that say whose a row is; all of them must be there."""
        told = {"period": self.daily, **dict.fromkeys(self.columns, True)}
        return [role for role in ("subject", "period", "group", "series") if told.get(role)]

    @property
    def gap_microseconds(self) -> int | None:
        return None if self.gap is None else self.gap // MICROSECOND

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data; `of` reads it again."""
        named = {name: getattr(self, name) for name in self.__slots__ if name != "gap"}
        return {**named, "gap_microseconds": self.gap_microseconds}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """The layout stored by `as_dict`."""
        rest = {name: value for name, value in data.items() if name != "gap_microseconds"}
        gap = data.get("gap_microseconds")
        return cls(gap=None if gap is None else gap * MICROSECOND, **rest)
