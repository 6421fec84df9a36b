"""Files of measurements that meters and watches write, as rows of when, until when and what."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.core.errors import DataError
from shoal.data.json_items import json_items
from shoal.data.markup import Element, elements
from shoal.data.track_files import moment_of

if TYPE_CHECKING:
    import polars as pl

MAX_MEASUREMENTS = 50_000_000  # of a file: 4 GB in memory
# codes of units in Green Button files (ESPI, `uom`) that meters of homes use
ESPI_UNITS = {
    "38": "W", "42": "m3", "63": "VAh", "72": "Wh", "73": "varh", "119": "ft3", "128": "gal",
    "134": "L", "169": "therm",
}  # fmt: skip
_APPLE_PREFIXES = ("HKQuantityTypeIdentifier", "HKCategoryTypeIdentifier", "HKDataType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Measurement(NamedTuple):
    """A measurement as a file holds it: whose or of what, when, until when, what, in which unit."""

    series: str
    time: datetime
    end: datetime | None
    value: str | float
    unit: str = ""


def series_table(path: Path, rows: Iterable[Measurement]) -> pl.DataFrame:
    """The columns series, time and end (UTC; end may be null), value and unit of `rows`.

    Values are numbers if all of them are, else text.
    """
    import polars as pl

    names: list[str] = []
    units: list[str] = []
    values: list[str | float] = []
    times, ends, open_ends = array("q"), array("q"), list[int]()
    for number, row in enumerate(rows):
        if number >= MAX_MEASUREMENTS:
            raise DataError(
                f"{str(path)!r} holds more than {MAX_MEASUREMENTS:,} measurements; split it"
            )
        names.append(row.series)
        units.append(row.unit)
        values.append(row.value)
        times.append(_micros(row.time))
        ends.append(0 if row.end is None else _micros(row.end))
        if row.end is None:
            open_ends.append(number)
    if not names:
        raise DataError(f"{str(path)!r} holds no measurements; at least two are needed")
    end = pl.Series("end", ends, dtype=pl.Int64)
    end = end.scatter(open_ends, None) if open_ends else end
    said = pl.Series("value", [str(value) for value in values], dtype=pl.String)
    numbers = said.cast(pl.Float64, strict=False)
    clock = pl.Datetime("us", "UTC")
    return pl.DataFrame(
        {
            "series": pl.Series(names, dtype=pl.String),
            "time": pl.Series(times, dtype=pl.Int64).cast(clock),
            "end": end.cast(clock),
            "value": said if numbers.null_count() else numbers,
            "unit": pl.Series(units, dtype=pl.String),
        }
    )


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _time_of(path: Path, value: Any) -> datetime:
    """A time that must be there: ISO 8601, seconds since 1970, or as Apple or Fitbit write it."""
    text = value.replace(" +", "+").replace(" -", "-") if isinstance(value, str) else value
    try:
        if isinstance(text, str) and text[2:3] == "/":
            return datetime.strptime(text, "%m/%d/%y %H:%M:%S").replace(tzinfo=UTC)
        found = moment_of(text)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise DataError(
            f"{str(path)!r} holds the time {str(value)[:40]!r}, which cannot be read; make it again"
        )
    return found


class _Kind(NamedTuple):
    """What the numbers of a Green Button meter reading count."""

    factor: Decimal
    unit: str


def green_button_rows(path: Path) -> Iterator[Measurement]:
    """Interval readings of a Green Button file, in the unit it names, a series a meter reading.

    The reading type of a block is the one its meter reading links to, or the only one there is.
    """
    kinds: dict[str, _Kind] = {}
    links: dict[str, str] = {}  # meter reading to its reading type
    for entry in elements(path, ("entry",)):
        own = _links(entry).get("self", [""])[0]
        kind = entry.find("content", "ReadingType")
        if kind is not None:
            kinds[own] = _kind_of_element(path, kind)
        if entry.find("content", "MeterReading") is not None:
            related = _links(entry).get("related", [])
            links[own] = next((each for each in related if "/ReadingType/" in each), "")
    for entry in elements(path, ("entry",)):
        content = entry.find("content")
        blocks = [] if content is None else content.children
        meter = _meter(entry, links)
        for block in (each for each in blocks if each.tag == "IntervalBlock"):
            if len(kinds) > 1 and links.get(meter) not in kinds:
                raise DataError(
                    f"{str(path)!r} has {len(kinds)} reading types, and a block of readings links "
                    "to none of them; make the file again with one"
                )
            only = next(iter(kinds.values()), _Kind(Decimal(1), ""))
            kind_of_block = kinds.get(links.get(meter, ""), only)
            name = meter.rstrip("/").rpartition("/")[2] if len(links) > 1 else path.stem
            yield from _intervals(path, block, name, kind_of_block)


def _links(entry: Element) -> dict[str, list[str]]:
    """Return the addresses of an entry's links by their relation."""
    found: dict[str, list[str]] = {}
    for link in entry.children:
        if link.tag == "link":
            found.setdefault(link.attributes.get("rel", ""), []).append(
                link.attributes.get("href", "")
            )
    return found


def _meter(entry: Element, meters: Mapping[str, str]) -> str:
    """The meter reading an entry of interval blocks belongs to: its address begins theirs."""
    hrefs = [each for own in _links(entry).values() for each in own]
    return next((m for m in meters if any(h == m or h.startswith(f"{m}/") for h in hrefs)), "")


def _kind_of_element(path: Path, kind: Element) -> _Kind:
    """Return the factor and the unit of a Green Button reading type; unknown units keep their
    code.
    """
    power, code = kind.text_of("powerOfTenMultiplier") or "0", kind.text_of("uom") or ""
    try:
        exponent = int(power)
    except ValueError:
        exponent = 99
    if not -12 <= exponent <= 12:
        raise DataError(
            f"{str(path)!r} has the powerOfTenMultiplier {power[:20]!r}; it must be a whole number "
            "from -12 to 12"
        )
    return _Kind(Decimal(10) ** exponent, ESPI_UNITS.get(code, f"uom {code}" if code else ""))


def _intervals(path: Path, block: Element, name: str, kind: _Kind) -> Iterator[Measurement]:
    """Yield the readings of a block with begin, end and value; refuse parts that are no numbers."""
    for reading in (each for each in block.children if each.tag == "IntervalReading"):
        start, span = (reading.text_of("timePeriod", word) for word in ("start", "duration"))
        value = reading.text_of("value")
        try:
            counted = Decimal(value or "") * kind.factor
            begin = datetime.fromtimestamp(int(start or ""), UTC)
            end = begin + timedelta(seconds=int(span or "0"))
        except (InvalidOperation, ValueError, OverflowError, OSError):
            raise DataError(
                f"{str(path)!r} has an IntervalReading with start {start!r}, duration {span!r} and "
                f"value {value!r}; all three must be numbers"
            ) from None
        yield Measurement(name, begin, end, float(counted), kind.unit)


def apple_health_rows(path: Path) -> Iterator[Measurement]:
    """Records of Apple Health's export.xml; the series is the type, such as "HeartRate"."""
    for record in elements(path, (), ("Record",)):
        said = record.attributes
        kind, value = said.get("type", ""), said.get("value", "")
        for prefix in _APPLE_PREFIXES:
            kind = kind.removeprefix(prefix)
        value = value.removeprefix(f"HKCategoryValue{kind}").removeprefix("HKCategoryValue")
        begin, end = (_time_of(path, said.get(key)) for key in ("startDate", "endDate"))
        if value:
            yield Measurement(kind, begin, end, value, said.get("unit", ""))


def fitbit_rows(path: Path) -> Iterator[Measurement]:
    """Entries of a Fitbit export in JSON: values with their times, and stages of sleep."""
    series = path.stem.partition("-")[0]  # files are called heart_rate-2024-05-01.json
    for item in json_items(path):
        entry = item.value
        levels = entry.get("levels") or {}
        for stage in levels.get("data") or ():
            begin = _time_of(path, stage["dateTime"])
            end = begin + timedelta(seconds=float(stage["seconds"]))
            yield Measurement(series, begin, end, str(stage["level"]))
        value = entry.get("value")
        if isinstance(value, Mapping):
            value = value.get("bpm", next(iter(value.values()), None))
        if value is not None and "dateTime" in entry:
            yield Measurement(series, _time_of(path, entry["dateTime"]), None, value)
