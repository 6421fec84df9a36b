"""Times in data: lengths as people write them ("10min", "1h30min"), and columns of moments."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.core.errors import DataError, InputError
from shoal.core.numbers import positive, significant

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


Duration = str | timedelta | float  # "10min", a timedelta (pandas' and NumPy's too), or seconds


def duration(value: Duration, field: str = "gap") -> timedelta:
    """The length of time, however it is given; a bare number is seconds. Above 0."""
    if isinstance(value, str):
        return parse_duration(value, field)
    if hasattr(value, "to_pytimedelta"):
        value = value.to_pytimedelta()
    elif hasattr(value, "astype") and hasattr(value, "dtype") and value.dtype.kind == "m":
        value = timedelta(microseconds=int(value.astype("timedelta64[us]").astype(int)))
    if isinstance(value, timedelta):
        length = value
    else:
        try:
            length = timedelta(microseconds=round(positive(value, field) * 10**6))
        except OverflowError:
            raise InputError(f"{field} is {value}; it must be below 1e14 seconds") from None
    if length <= timedelta(0):
        raise InputError(f"{field} is {value}; it must be longer than 0")
    return length


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


OFFSET = r"(?:Z|[+-][0-9]{2}:?[0-9]{2})$"
_FORMATS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_LIMIT = 2**62  # microseconds; far beyond any calendar, and differences still fit 64 bits


# units of bare numbers, in microseconds; the words by which the name of a column says its unit
UNITS = {
    "ns": Fraction(1, 1000), "us": Fraction(1), "ms": Fraction(1000), "s": Fraction(10**6),
    "min": Fraction(60 * 10**6), "h": Fraction(3600 * 10**6), "d": Fraction(86_400 * 10**6),
}  # fmt: skip
_SPOKEN = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "min": ("minute", "minutes", "mins"),
    "h": ("hour", "hours"),
    "d": ("day", "days"),
    "ms": ("ms", "millis", "millisecond", "milliseconds"),
    "us": ("us", "micros", "microsecond", "microseconds"),
    "ns": ("ns", "nanos", "nanosecond", "nanoseconds"),
}
_EPOCH = (10**8, 10**11)  # seconds since 1970 lie between: 1973 to the year 5138


def microseconds(
    column: pl.Series,
    source: str,
    *,
    unit: str | None = None,
    tz: str | None = None,
    series: pl.Series | None = None,
) -> pl.Series:
    """Each time as whole microseconds (rounded), comparable within `column`.

    Takes datetimes and dates, ISO 8601 text, and numbers or numeric text in `unit`: without one
    what the column's name says ("minute"), else seconds. Times with an offset are converted to UTC;
    times without stay as written, or are taken as of the zone `tz`; the two cannot be mixed.
    `series` tells apart whose times may be equal.
    """
    import polars as pl

    kind = column.dtype
    if kind == pl.String and not holds_seconds(column):
        parsed = _in_zone(_from_text(column, source), column, tz, source, series)
    elif kind.is_numeric() or kind == pl.String:
        parsed = _from_numbers(column, unit_of(column, source, unit))
    elif kind in (pl.Date, pl.Datetime):
        parsed = _in_zone(column.dt.epoch("us"), column, tz, source, series)
    else:
        raise DataError(
            f"{source}: column {column.name!r} holds {kind} values; a time must be a datetime, "
            "ISO text such as '2024-05-01T08:30:00', or a number of seconds"
        )
    _refuse_unparsed(column, parsed, source)
    return parsed


def unit_of(column: pl.Series, source: str, unit: str | None = None) -> str:
    """The unit of a column of numbers: as given, as its name says, or seconds.

    Numbers that as seconds would lie beyond the year 5138 are refused without a unit: they are
    milli-, micro- or nanoseconds.
    """
    import polars as pl

    if unit is not None:
        if unit not in UNITS:
            raise InputError(f"unit is {unit!r}; it must be one of {', '.join(UNITS)}")
        return unit
    spoken = _spoken_unit(column)
    if spoken is not None:
        return spoken
    largest = column.cast(pl.Float64, strict=False).fill_nan(None).abs().max()
    if isinstance(largest, float) and _EPOCH[1] < largest < 1e20:  # beyond, it is no time at all
        likely = next((u for u, most in (("ms", 1e14), ("us", 1e17)) if largest < most), "ns")
        raise DataError(
            f"{source}: column {column.name!r} holds {largest:.0f}, which as seconds is beyond the "
            f"year 5138; say what the numbers count (unit={likely!r}, --time-unit {likely})"
        )
    return "s"


def refuse_unclear(
    column: pl.Series, times: Any, gap: timedelta | None, unit: str | None, source: str
) -> None:
    """Refuse a gap over bare numbers 1, 2, 3, … whose unit is not known.

    Minutes taken for seconds would never show a pause. Numbers that are seconds since 1970, steps
    other than 1, and gaps of less than a minute's worth of steps are clear enough.
    """
    import numpy as np

    if gap is None or unit is not None or not holds_seconds(column) or len(times) < 2:
        return
    if _spoken_unit(column) is not None or times.max() >= _EPOCH[0] * 10**6:
        return
    steps = np.diff(np.unique(times))
    if len(steps) and np.median(steps) == 10**6 and gap >= timedelta(seconds=60):
        raise DataError(
            f"{source}: column {column.name!r} counts 1, 2, 3, … and nothing says whether seconds "
            "or minutes, which the gap depends on; give unit='min' or 's' (--time-unit min)"
        )


def _spoken_unit(column: pl.Series) -> str | None:
    """The unit that the last word of a column's name says, if any."""
    words = re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name).lower())
    return next((said for said, spoken in _SPOKEN.items() if words[-1] in spoken), None)


CALENDAR = {  # parts of the calendar and how one is written
    "hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m",
    "quarter": "%Y-Q", "year": "%Y",
}  # fmt: skip


def check_calendar(every: str) -> str:
    """`every` itself, refused when it is no part of the calendar."""
    if every not in CALENDAR:
        raise InputError(f"every is {every!r}; it must be one of {', '.join(CALENDAR)}")
    return every


def calendar_part(wall: pl.Series, every: str) -> pl.Series:
    """The day, week, … of each time in microseconds on the wall clock, as "2024-03-04"."""
    import polars as pl

    times = wall.cast(pl.Datetime("us"))
    named = times.dt.strftime(CALENDAR[check_calendar(every)])
    return named + times.dt.quarter().cast(pl.String) if every == "quarter" else named


def clock(
    column: pl.Series, source: str, tz: str | None = None, unit: str | None = None
) -> pl.Series:
    """Microseconds on the wall clock: of `tz`, else of the column's own zone, else as written."""
    import polars as pl

    kind = column.dtype
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        local = column.dt.convert_time_zone(_zone(tz)) if tz is not None else column
        return local.dt.replace_time_zone(None).dt.epoch("us")
    if kind == pl.String and not holds_seconds(column):
        text = column.str.strip_chars()
        zoned = text.str.contains(OFFSET)
        if zoned.any() and tz is not None:
            utc = microseconds(column, source).cast(pl.Datetime("us", "UTC"))
            return utc.dt.convert_time_zone(_zone(tz)).dt.replace_time_zone(None).dt.epoch("us")
        if zoned.any():
            microseconds(column, source)  # refuses mixtures and what is no time
            return _iso(text.str.replace(" ", "T", literal=True).str.replace(OFFSET, ""))
    return microseconds(column, source, unit=unit)


def _in_zone(
    parsed: pl.Series, column: pl.Series, tz: str | None, source: str, series: pl.Series | None
) -> pl.Series:
    """Times without a zone taken as wall clock times of `tz`, in UTC.

    Of an hour that a clock shows twice, a series' first row with a time is the earlier one.
    """
    import polars as pl

    if tz is None or getattr(column.dtype, "time_zone", None) is not None:
        return parsed
    if column.dtype == pl.String and column.str.strip_chars().str.contains(OFFSET).any():
        return parsed
    local = parsed.cast(pl.Datetime("us"))
    apart = series if series is not None else pl.repeat("", len(local), eager=True)
    first = pl.DataFrame({"series": apart, "time": local}).to_struct().is_first_distinct()
    early, late = (
        local.dt.replace_time_zone(_zone(tz), ambiguous=which, non_existent="null")
        for which in ("earliest", "latest")
    )
    found = early.zip_with(first, late)
    skipped = found.is_null() & local.is_not_null()
    if skipped.any():
        row = int(skipped.arg_max() or 0)
        raise DataError(
            f"{source}: column {column.name!r} holds {column[row]!r} in row {row + 1}, which no "
            f"clock of {tz} shows (summer time begins); check tz, or write times in UTC"
        )
    return found.dt.epoch("us")


def _zone(tz: str) -> str:
    """Return the name of a time zone; refuse an unknown one."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"tz is {tz!r}; give a zone such as 'Europe/Berlin' or 'UTC'") from None
    return tz


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


def _from_numbers(column: pl.Series, unit: str) -> pl.Series:
    """Numbers, or texts of numbers, of `unit` as microseconds; null where one is not usable."""
    import polars as pl

    if column.dtype == pl.String:
        text = column.str.strip_chars()
        whole = text.cast(pl.Int64, strict=False)
        exact = whole.null_count() == 0
        column = whole if exact else text.cast(pl.Float64, strict=False)
    factor = UNITS[unit]
    if column.dtype.is_integer():
        whole = column.cast(pl.Int64, strict=False)
        limit = min(_LIMIT, int(_LIMIT / factor))
        inside = whole.set(whole.abs() > limit, None)
        if factor.denominator == 1:
            return inside * int(factor)
        return (inside + factor.denominator // 2) // factor.denominator
    scaled = (column.cast(pl.Float64) * float(factor)).round()
    return scaled.set(~(scaled.abs() < float(_LIMIT)), None).cast(pl.Int64, strict=False)


def _from_text(column: pl.Series, source: str) -> pl.Series:
    """Return microseconds since 1970 (int64) from ISO text, null where it cannot be read.

    Refuses a column in which some times have an offset and others have none.
    """
    text = column.str.strip_chars().str.replace(" ", "T", literal=True)
    zoned = text.str.contains(OFFSET)
    if zoned.any() and not zoned.all():
        raise DataError(
            f"{source}: column {column.name!r} mixes times with an offset such as 'Z' and times "
            "without; write all of them in UTC"
        )
    return _iso_with_offset(text) if zoned.any() else _iso(text)


def _iso(text: pl.Series) -> pl.Series:
    """Return microseconds since 1970 from ISO text without an offset, null where no format fits."""
    parsed = text.str.to_datetime(_FORMATS[0], time_unit="us", strict=False)
    for pattern in _FORMATS[1:]:
        if parsed.null_count():
            again = text.str.to_datetime(pattern, time_unit="us", strict=False)
            parsed = parsed.zip_with(parsed.is_not_null(), again)
    return parsed.dt.epoch("us")


def unreadable(column: pl.Series) -> pl.Series:
    """Where text is neither number nor date, whichever of the two most of the column is."""
    import polars as pl

    text = column.str.strip_chars()
    numbers = text.cast(pl.Float64, strict=False).is_finite().fill_null(False)
    dates = _iso(text.str.replace(OFFSET, "").str.replace(" ", "T", literal=True)).is_not_null()
    return ~(numbers if int(numbers.sum()) > int(dates.sum()) else dates)


def _iso_with_offset(text: pl.Series) -> pl.Series:
    """Local time minus its offset, each parsed once."""
    import polars as pl

    offset = text.str.extract(f"({OFFSET})").str.replace("Z", "+00:00", literal=True)
    digits = offset.str.replace_all("[+:-]", "").cast(pl.Int64, strict=False)
    minutes = digits // 100 * 60 + digits % 100
    sign = offset.str.starts_with("-").cast(pl.Int64) * -2 + 1
    return _iso(text.str.replace(OFFSET, "")) - sign * minutes * 60_000_000


def _refuse_unparsed(column: pl.Series, parsed: pl.Series, source: str) -> None:
    """Refuse a column with a time that could not be read, naming the first."""
    if parsed.null_count() == 0:
        return
    row = int(parsed.is_null().arg_max() or 0)
    first = "a number of seconds, like the first" if holds_seconds(column) and row else "a time"
    raise DataError(
        f"{source}: column {column.name!r} holds {str(column[row])!r} in row {row + 1}, which is "
        f"not {first}; write times as '2024-05-01T08:30:00' or as a number of seconds"
    )


LONGER = 1.5  # times the usual step: one missing row makes 2


class Pauses(NamedTuple):
    """How many steps in time are longer than usual, the usual one and the longest, in seconds."""

    number: int
    usual: float
    longest: float

    def describe(self) -> str:
        return (
            f"{self.number:,} pause(s) are longer than the usual {length(self.usual)} between "
            f"rows, the longest {length(self.longest)}"
        )


def pauses_in(series: pl.Series, seconds: pl.Series) -> Pauses | None:
    """Pauses inside series, in any order of the rows; None where all steps are alike."""
    import polars as pl

    table = pl.DataFrame({"series": series, "seconds": seconds.cast(pl.Float64)})
    steps = (
        table.sort("series", "seconds")
        .select(pl.col("seconds").diff().over("series"))
        .to_series()
        .drop_nulls()
    )
    steps = steps.filter(steps > 0)
    if steps.len() == 0:
        return None
    usual = float(steps.quantile(0.5, interpolation="lower") or 0.0)
    longer = steps.filter(steps > LONGER * usual)
    if longer.len() == 0:
        return None
    return Pauses(longer.len(), usual, float(str(longer.max())))


def length(seconds: float) -> str:
    """A length of time in its two largest units, such as 1h1min."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for place, (name, size) in enumerate(units[:-1]):
        if seconds >= size:
            whole, rest = divmod(round(seconds), size)
            smaller, unit = units[place + 1]
            return f"{whole:,}{name}" + (f"{rest // unit}{smaller}" if rest >= unit else "")
    return f"{significant(seconds)}s"
