"""What is in files of data: rows, columns, units, times, pauses and places, and how to go on."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.numbers import significant
from shoal.data.entries import read_table
from shoal.data.formats import GEOJSON, OSM, FileFormat, format_of, own_columns
from shoal.data.guess import guess_columns
from shoal.data.points import CATEGORY, read_points
from shoal.data.positions import positions
from shoal.data.read import Paths, matching
from shoal.data.times import length, microseconds, pauses_in

if TYPE_CHECKING:
    import polars as pl

    from shoal.data.times import Pauses

MAX_CELLS = 1000  # of the map that is proposed: all mechanisms for places follow as many
CELLS_KM = (0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100)
STEPS = ("1s", "2s", "5s", "10s", "15s", "20s", "30s", "1min", "2min", "5min", "10min", "15min",
         "30min", "1h", "2h", "6h", "1d")  # fmt: skip
STEP_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)
KM_PER_DEGREE = 111.195
WIDEST_DEGREES = 5.0  # of a box that is proposed as it is
AROUND_DEGREES = 0.2  # to each side of the middle of a wider one
MAX_STATES = 24  # different numbers of a column that are states; more of them are amounts
MAX_WORDS = 512  # different texts of a column that are states
GAP_STEPS = 3  # usual steps that are proposed as the longest pause inside a chain
MICROSECONDS_OF_HOUR = 3_600_000_000
FEWEST_COLUMNS_OF_RECORDS = 4  # fewer columns without a time are likely one series of states
MAX_EMPTY_SHARE = 20  # steps for each row beyond which a pause is proposed to end a stream
PAUSE = "1h"  # the one that is proposed
MOST_SHOWN = 8  # names that are listed
MOST_COLUMNS = 20  # columns that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What files hold.

    `people` are the names of the series, `span` the first and the last time (of the wall clock, or
    UTC where `zoned`), `step` the usual seconds between rows of one series, `box` south, west,
    north and east in degrees, `states` the different values where they are few, `low` and `high`
    the ends of a column of numbers, `empty` the empty cells by column. `following` are the commands
    that can come next, and `advice` is what to know before typing them.
    """

    files: tuple[Path, ...]
    format: str
    rows: int
    columns: Mapping[str, str]
    people: tuple[str, ...] = ()
    span: tuple[datetime, datetime] | None = None
    zoned: bool = True
    step: float | None = None
    pauses: Pauses | None = None
    box: tuple[float, float, float, float] | None = None
    unit: str = ""
    states: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    empty: Mapping[str, int]
    advice: str = ""
    following: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roles:
    """The columns that count, and the options that name them on the command line."""

    series: str | None = None
    time: str | None = None
    latitude: str | None = None
    longitude: str | None = None
    state: str | None = None
    named: bool = False

    def options(self, *roles: str) -> list[str]:
        """Options for those of the roles that have a column; none where files name their own."""
        names = {"latitude": "lat", "longitude": "lon"}
        given = ((role, getattr(self, role)) for role in roles)
        return [] if self.named else [
            word for role, column in given if column
            for word in (f"--{names.get(role, role)}", column)
        ]  # fmt: skip


def contents_of(data: Paths) -> Contents:
    """What is in files of one kind, and the command that goes on with them."""
    import polars as pl

    files = matching(data)
    known, own = format_of(files[0]), dict[str, Any](own_columns(files))
    table = pl.concat([read_table(file) for file in files], how="diagonal_relaxed")
    roles = replace(_Roles(named=True), **own) if own else _guess_roles(table)
    given = [data] if isinstance(data, str) else [str(each) for each in _as_list(data)]
    points = _points_in(files, known, table, roles)
    if points is not None:
        return _of_points(files, known, points)
    if roles.latitude is not None:
        return _of_places(files, known, table, roles, given)
    return _of_values(files, known, table, roles, given)


def _points_in(
    files: tuple[Path, ...], known: FileFormat, table: pl.DataFrame, roles: _Roles
) -> pl.DataFrame | None:
    """The points of interest of a file: positions with a category and no times; else None."""
    if len(files) > 1 or roles.latitude is None:
        return None
    if roles.time is not None and table[roles.time].null_count() < table.height:
        return None
    if known is OSM:
        return table
    if known is not GEOJSON and known.shape != "table":
        return None
    points = read_points(files[0])
    return points if CATEGORY in points.columns else None


def _of_points(files: tuple[Path, ...], known: FileFormat, points: pl.DataFrame) -> Contents:
    """Points of interest: their box and categories, and how a policy names them."""
    facts = _facts(files, known, points, _Roles(latitude="lat", longitude="lon"))
    facts["empty"] = {}  # most tags are those of few points
    low, high = points.select("lat", "lon").min().row(0), points.select("lat", "lon").max().row(0)
    kinds = points[CATEGORY].value_counts(sort=True)[CATEGORY] if CATEGORY in points.columns else ()
    return Contents(
        **facts,
        box=(*low, *high),
        states=tuple(kind for kind in kinds if kind is not None),
        advice=(
            "These are points of interest, not a track: to hide which of them one is at, name the "
            "file in [secrets.places] of a spec, or give `shoal fit` of a track the options "
            f"--places {shlex.quote(str(files[0]))} --same {CATEGORY} --within 1km."
        ),
    )


def _as_list(data: Paths) -> list[object]:
    return list(data) if isinstance(data, Sequence) else [data]


def _guess_roles(table: pl.DataFrame) -> _Roles:
    """What the columns of a table are likely to be; a latitude counts with a longitude only."""
    found: dict[str, Any] = guess_columns(
        table, ("latitude", "longitude", "time", "series", "state")
    )
    if found["latitude"] is None or found["longitude"] is None:
        found |= {"latitude": None, "longitude": None}
    else:
        found["state"] = None
    return replace(_Roles(), **found)


def _facts(
    files: tuple[Path, ...], known: FileFormat, table: pl.DataFrame, roles: _Roles
) -> dict[str, Any]:
    """What is said of every kind of data."""
    import polars as pl

    empty = {name: table[name].null_count() for name in table.columns}
    facts: dict[str, Any] = {
        "files": files,
        "format": known.name,
        "rows": table.height,
        "columns": {name: _kind_of_column(table[name]) for name in table.columns},
        "empty": {name: count for name, count in empty.items() if count and name != "end"},
    }
    owners = pl.Series("series", [""]).new_from_index(0, table.height)
    if roles.series is not None:
        owners = table[roles.series].cast(pl.String)
        facts["people"] = tuple(owners.drop_nulls().unique(maintain_order=True).to_list())
    if roles.time is None or table[roles.time].null_count() == table.height:
        return facts
    column = table[roles.time].drop_nulls()
    times = microseconds(column, repr(str(files[0])))
    clock = times.cast(pl.Datetime("us"))
    zone = getattr(column.dtype, "time_zone", None)
    texts = column.dtype == pl.String and bool(column.str.contains(r"(Z|[+-]\d\d:?\d\d)\s*$").all())
    if not column.dtype.is_numeric():
        facts |= {"span": (clock.min(), clock.max()), "zoned": zone is not None or texts}
    seconds = times.cast(pl.Float64) / 1e6
    own = owners.filter(table[roles.time].is_not_null())
    steps = pl.DataFrame({"own": own, "at": seconds}).sort("own", "at")
    gaps = steps.select(pl.col("at").diff().over("own")).to_series().drop_nulls()
    usual = gaps.filter(gaps > 0).quantile(0.5, interpolation="lower")
    return facts | {"step": usual, "pauses": pauses_in(own, seconds)}


def _kind_of_column(column: pl.Series) -> str:
    """What a column holds, in a word."""
    import polars as pl

    if column.dtype.is_numeric():
        return "numbers"
    if column.dtype.is_temporal():
        return "times"
    return "true or false" if column.dtype == pl.Boolean else "text"


def _of_places(
    files: tuple[Path, ...],
    known: FileFormat,
    table: pl.DataFrame,
    roles: _Roles,
    given: list[str],
) -> Contents:
    """Positions: their box, and a map of at most `MAX_CELLS` cells."""
    facts = _facts(files, known, table, roles)
    named = {role: getattr(roles, role) for role in ("series", "time", "latitude", "longitude")}
    places = positions([str(file) for file in files], **named).drop_nulls(["lat", "lon"])
    low, high = places.select("lat", "lon").min().row(0), places.select("lat", "lon").max().row(0)
    box, options, advice = (*low, *high), list[str](), ""
    wide = max(high[0] - low[0], high[1] - low[1])
    if wide > WIDEST_DEGREES:
        middle = places.select("lat", "lon").median().row(0)
        sides = [middle[k % 2] + (-1 if k < 2 else 1) * AROUND_DEGREES for k in range(4)]
        box_of_map = (sides[0], sides[1], sides[2], sides[3])
        options += ["--box", ",".join(f"{side:.2f}" for side in sides)]
        advice = (
            "The positions lie far apart, and one map covers a town or a region: --box says which."
        )
    else:
        box_of_map = box
    options += ["--grid", f"{cell_km(box_of_map):g}"]
    step = facts.get("step")
    if isinstance(step, float) and step > 0:
        options += ["--every", _usual_step(step)]
        steps = _even_steps(facts, step)
        if steps > MAX_EMPTY_SHARE * table.height:
            options += ["--gap", PAUSE]
            advice = " ".join(
                [
                    advice,
                    f"Without --gap these {table.height:,} rows would be {steps:,} steps, most of "
                    f"them empty. --gap {PAUSE} begins another stream after a longer pause, as if "
                    "it were of somebody else; leave it out to keep one stream of each person.",
                ]
            ).strip()
    options += roles.options("latitude", "longitude", "series", "time")
    following = (_fit(given, options),)
    return Contents(**facts, box=box, advice=advice, following=following)


def _even_steps(facts: Mapping[str, Any], step: float) -> int:
    """How many even steps lie between the first and the last time, for one series at least."""
    span = facts.get("span")
    own = STEP_SECONDS[STEPS.index(_usual_step(step))]
    return 0 if span is None else int((span[1] - span[0]).total_seconds() // own)


def cell_km(box: tuple[float, float, float, float]) -> float:
    """The least width of square cells, of usual ones, with which a map has `MAX_CELLS` at most."""
    south, west, north, east = box
    high = (north - south) * KM_PER_DEGREE
    wide = (east - west) * KM_PER_DEGREE * math.cos(math.radians((south + north) / 2))

    def cells(width: float) -> int:
        return (math.floor(high / width) + 1) * (math.floor(wide / width) + 1)

    return next((width for width in CELLS_KM if cells(width) <= MAX_CELLS), CELLS_KM[-1])


def _usual_step(seconds: float) -> str:
    """The least usual length of a step that is not shorter than the usual time between rows."""
    pairs = zip(STEPS, STEP_SECONDS, strict=True)
    return next((words for words, own in pairs if own >= seconds), STEPS[-1])


def _of_values(
    files: tuple[Path, ...],
    known: FileFormat,
    table: pl.DataFrame,
    roles: _Roles,
    given: list[str],
) -> Contents:
    """States or numbers in time, of the series with the most rows where there are several units."""
    facts, options, advice = _facts(files, known, table, roles), list[str](), ""
    counted = table
    if known.shape == "series" and table["series"].n_unique() > 1:
        common = str(table["series"].mode().sort()[0])
        options += ["--where", f"series = '{common}'"]
        counted = table.filter(table["series"] == common)
    if roles.state is None:
        return Contents(**facts)
    if known.shape == "table" and roles.time is None and roles.series is None:
        records = _of_records(table, given)
        if records is not None:
            advice, following = records
            return Contents(**facts, advice=advice, following=following)
    state = roles.state
    apart = roles if known.shape == "series" else _add_series_column(table, roles)
    if apart is None:
        return Contents(**facts, advice=_same_times(table, roles, facts))
    roles = apart
    options += roles.options("state", "series", "time")
    if counted[state].null_count():
        options += ["--missing", "gap"]
    if facts.get("pauses") is not None:
        step = facts["step"]
        assert isinstance(step, float)
        options += ["--gap", _usual_step(GAP_STEPS * step)]
    values = counted[state].drop_nulls()
    found = _as_numbers(values)
    facts["unit"] = str(counted["unit"][0]) if known.shape == "series" else ""
    different = values.n_unique()
    if found is not None and different > MAX_STATES:
        low, high = float(str(found.min())), float(str(found.max()))
        ends = (0 if low >= 0 else -_round_up_to_125(-low), _round_up_to_125(high))
        facts |= {"low": low, "high": high}
        options += ["--range", f"{ends[0]:g},{ends[1]:g}"]
        advice = (
            "The range is rounded from the data: put in what can be measured at all, so that it "
            "tells nothing about the data."
        )
    elif different <= MAX_WORDS:
        facts["states"] = tuple(str(value) for value in values.unique().sort())
    return Contents(**facts, advice=advice, following=(_fit(given, options),))


def _of_records(table: pl.DataFrame, given: list[str]) -> tuple[str, tuple[str, ...]] | None:
    """Advice and next command for edges of a graph and for rows without times; else None."""
    stem = _stem(given)
    if table.width == 2 and all(kind.is_integer() for kind in table.dtypes):
        return (
            "Two columns of whole numbers may be the friendships of a graph: a spec asks how many "
            "friends people have. Put in how many people there are.",
            (f"shoal init --kind degrees {stem}.toml",),
        )
    if table.width < FEWEST_COLUMNS_OF_RECORDS:
        return None
    return (
        "Rows without a time and a person are records: a spec declares the columns that count, and "
        "asks for a classifier or for clusters of the rows. Put in your columns.",
        tuple(
            f"shoal init --kind {kind} {stem}-{kind}.toml" for kind in ("classifier", "clusters")
        ),
    )


def _same_times(table: pl.DataFrame, roles: _Roles, facts: Mapping[str, Any]) -> str:
    """What to do about rows of a series with the same time: a zone, where clocks went back."""
    twice = "Some rows of a series have the same time"
    assert roles.time is not None
    own = [] if roles.series is None else [roles.series]
    repeated = table.filter(table.select(*own, roles.time).is_duplicated())[roles.time]
    span = facts.get("span")
    if span is None or facts["zoned"]:
        return f"{twice}: keep one of them before fitting a model."
    clock = microseconds(repeated, "time")
    hours = (clock // MICROSECONDS_OF_HOUR).unique().sort()
    years = max(1, math.ceil((span[1] - span[0]).days / 365))
    if len(hours) > years:
        return f"{twice}: keep one of them before fitting a model."
    return (
        f"{twice}, all within an hour: clocks were set back then. Say their zone with --tz, such "
        "as --tz Europe/Berlin, and they follow one another."
    )


def _add_series_column(table: pl.DataFrame, roles: _Roles) -> _Roles | None:
    """The roles, with one more column of series where rows of one have the same time.

    None where no column of text tells such rows apart.
    """
    import polars as pl

    if roles.time is None:
        return roles
    own = [] if roles.series is None else [roles.series]
    if not table.select(*own, roles.time).is_duplicated().any():
        return roles
    used = (roles.series, roles.time, roles.state)
    texts = (n for n in table.columns if table[n].dtype == pl.String and n not in used)
    for name in texts:
        complete = not table[name].null_count()
        if complete and not table.select(*own, name, roles.time).is_duplicated().any():
            return replace(roles, series=",".join([*own, name]))
    return None


def _as_numbers(values: pl.Series) -> pl.Series | None:
    """The values as numbers; None where some are words."""
    import polars as pl

    numbers = values.cast(pl.Float64, strict=False) if values.dtype != pl.Boolean else None
    return None if numbers is None or numbers.null_count() else numbers


def _round_up_to_125(value: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is at least `value`; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= value)


def _fit(given: list[str], options: list[str]) -> str:
    """The command that fits a model and writes a spec for it."""
    stem = _stem(given)
    words = ["shoal", "fit", *given, "-o", f"{stem}-model.json", *options, "--spec", f"{stem}.toml"]
    return shlex.join(words)


def _stem(given: list[str]) -> str:
    """The name of the first file for the names of new ones."""
    return re.sub(r"[^A-Za-z0-9]+", "-", Path(given[0].rstrip("/*")).stem).strip("-") or "data"


def sentences(found: Contents) -> list[tuple[str, str]]:
    """What files hold as titles and texts."""
    several = f" in {len(found.files)} files" if len(found.files) > 1 else ""
    lines = [("Format", f"{found.format}, {found.rows:,} rows{several}")]
    types = [f"{name} ({kind})" for name, kind in found.columns.items()]
    lines.append(("Columns", _listed_in_words(types, MOST_COLUMNS)))
    if found.people:
        names = _listed_in_words(found.people, MOST_SHOWN)
        lines.append(("Series", f"{len(found.people):,}: {names}"))
    if found.span is not None:
        first, last = (moment.isoformat(sep=" ", timespec="seconds") for moment in found.span)
        zone = " UTC" if found.zoned else " (no zone is named: --tz says one)"
        lines.append(("Times", f"{first} to {last}{zone}"))
    if found.step is not None:
        pauses = found.pauses.describe() if found.pauses is not None else "no longer pause"
        lines.append(("Steps", f"usually {length(found.step)} between rows; {pauses}"))
    if found.box is not None:
        south, west, north, east = found.box
        lines.append(("Places", f"{south:.4f} to {north:.4f}° N, {west:.4f} to {east:.4f}° E"))
    if found.low is not None and found.high is not None:
        ends = f"{significant(found.low)} to {significant(found.high)} {found.unit}"
        lines.append(("Values", f"numbers from {ends.strip()}"))
    elif found.states:
        shown = _listed_in_words(found.states, MOST_SHOWN)
        lines.append(("Values", f"{len(found.states)} different: {shown}"))
    if found.empty:
        cells = [f"{count:,} in {name}" for name, count in found.empty.items()]
        lines.append(("Empty", f"cells without a value: {_listed_in_words(cells, MOST_SHOWN)}"))
    return lines


def _listed_in_words(words: Sequence[str], most: int) -> str:
    """The first words, and how many more there are."""
    more = f", … ({len(words) - most:,} more)" if len(words) > most else ""
    return ", ".join(words[:most]) + more
