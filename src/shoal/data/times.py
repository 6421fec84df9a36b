"""Lengths of time as people write them: "10min", "90s", "1h30min"."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    import polars as pl

MILLISECONDS = {
    "ms": 1,
    "s": 1000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|min|s|h|d|w)")


def parse_duration(text: str, field: str = "gap") -> timedelta:
    """The length of time `text` names: one or more numbers, each with ms, s, min, h, d or w.

    Exact to the microsecond; a finer fraction, 0, and a number without a unit are refused.
    """
    milliseconds, place = Fraction(0), 0
    while part := _PART.match(text, place):
        milliseconds += Fraction(part[1]) * MILLISECONDS[part[2]]
        place = part.end()
    microseconds = milliseconds * 1000
    if text[place:].strip() or not microseconds or microseconds.denominator != 1:
        raise InputError(
            f"{field} is {text!r}; it must be a length of time above 0 such as '90s', '10min', "
            "'1h30min' or '1d' (units: ms, s, min, h, d, w)"
        )
    try:
        return timedelta(microseconds=int(microseconds))
    except OverflowError:
        raise InputError(f"{field} is {text!r}; it must be below a thousand million days") from None


# Times in any of the ways files hold them, as whole microseconds.


_OFFSET = r"(?:Z|[+-][0-9]{2}:?[0-9]{2})$"
_FORMATS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_LIMIT = 2**62  # microseconds; far beyond any calendar, and differences still fit 64 bits


def microseconds(column: pl.Series, source: str) -> pl.Series:
    """Each time as whole microseconds (rounded), comparable within `column`.

    Takes datetimes and dates, ISO 8601 text, and numbers or numeric text, which are seconds. Times
    with an offset are brought to UTC; times without stay as written, and the two cannot be mixed.
    """
    import polars as pl

    kind = column.dtype
    if kind == pl.String:
        parsed = _from_text(column, source)
    elif kind.is_numeric():
        parsed = _from_seconds(column)
    elif kind in (pl.Date, pl.Datetime):
        parsed = column.dt.epoch("us")
    else:
        raise DataError(
            f"{source}: column {column.name!r} holds {kind} values; a time must be a datetime, "
            "ISO text such as '2024-05-01T08:30:00', or a number of seconds"
        )
    _refuse_unparsed(column, parsed, source)
    return parsed


def readable(time: int, seconds: bool) -> str:
    """`time` in the file's own terms: a calendar time, or seconds."""
    if seconds:
        return f"{time / 1_000_000:.15g} s"
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=time)
    except OverflowError:  # years beyond 9999
        return f"{time} microseconds after 1970"
    return moment.isoformat(sep=" ")


def holds_seconds(column: pl.Series) -> bool:
    """Whether the column holds numbers or numeric text; its first value decides."""
    import polars as pl

    if column.dtype != pl.String:
        return column.dtype.is_numeric()
    head = column.head(1).str.strip_chars().cast(pl.Float64, strict=False)
    return len(head) > 0 and head.null_count() == 0


def _from_seconds(column: pl.Series) -> pl.Series:
    import polars as pl

    if column.dtype.is_integer():
        whole = column.cast(pl.Int64, strict=False)
        return whole.set(whole.abs() > _LIMIT // 1_000_000, None) * 1_000_000
    scaled = (column.cast(pl.Float64) * 1e6).round()
    return scaled.set(~(scaled.abs() < float(_LIMIT)), None).cast(pl.Int64, strict=False)


def _from_text(column: pl.Series, source: str) -> pl.Series:
    import polars as pl

    text = column.str.strip_chars()
    if holds_seconds(text):
        whole = text.cast(pl.Int64, strict=False)
        exact = whole.null_count() == 0
        return _from_seconds(whole if exact else text.cast(pl.Float64, strict=False))
    text = text.str.replace(" ", "T", literal=True)
    zoned = text.str.contains(_OFFSET)
    if zoned.any() and not zoned.all():
        raise DataError(
            f"{source}: column {column.name!r} mixes times with an offset such as 'Z' and times "
            "without; write all of them in UTC"
        )
    return _iso_with_offset(text) if zoned.any() else _iso(text)


def _iso(text: pl.Series) -> pl.Series:
    parsed = text.str.to_datetime(_FORMATS[0], time_unit="us", strict=False)
    for pattern in _FORMATS[1:]:
        if parsed.null_count():
            again = text.str.to_datetime(pattern, time_unit="us", strict=False)
            parsed = parsed.zip_with(parsed.is_not_null(), again)
    return parsed.dt.epoch("us")


def _iso_with_offset(text: pl.Series) -> pl.Series:
    """Local time minus its offset, each parsed once."""
    import polars as pl

    offset = text.str.extract(f"({_OFFSET})").str.replace("Z", "+00:00", literal=True)
    digits = offset.str.replace_all("[+:-]", "").cast(pl.Int64, strict=False)
    minutes = digits // 100 * 60 + digits % 100
    sign = offset.str.starts_with("-").cast(pl.Int64) * -2 + 1
    return _iso(text.str.replace(_OFFSET, "")) - sign * minutes * 60_000_000


def _refuse_unparsed(column: pl.Series, parsed: pl.Series, source: str) -> None:
    if parsed.null_count() == 0:
        return
    row = int(parsed.is_null().arg_max() or 0)
    first = "a number of seconds, like the first" if holds_seconds(column) and row else "a time"
    raise DataError(
        f"{source}: column {column.name!r} holds {str(column[row])!r} in row {row + 1}, which is "
        f"not {first}; write times as '2024-05-01T08:30:00' or as a number of seconds"
    )
