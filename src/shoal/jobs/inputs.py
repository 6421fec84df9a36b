"""The input files of a job, and the columns that hold subject, time and state of a row."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import unquote

from shoal.core.charge import check_periods
from shoal.core.errors import DataError, InputError, StoredError
from shoal.core.records import shown_names
from shoal.data.frames import parquet_frames, reading_errors
from shoal.data.read import scan
from shoal.data.rows import Bins, check_missing, parse_where
from shoal.data.times import check_calendar
from shoal.jobs.journal import fits

if TYPE_CHECKING:
    import polars as pl

MICROSECOND = timedelta(microseconds=1)
MEMBERS = ("series", "everybody")  # whom a job charges beside the subject of an aggregate
SHAPES = {  # of stored layouts; all else is a text or nothing
    **dict.fromkeys(("by", "missing", "sep"), str),
    **dict.fromkeys(("daily", "weekly"), bool),
    "numbers": [str],
    "gap_microseconds": (int, type(None)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a job.

    `by` is the column of the subject: each subject gets its own release. `series` separates the
    chains inside a subject (the people of a region). `time` orders a chain, and a pause longer than
    `gap` starts a new one. `group` selects the plan of a subject. `period` is the part of the data
    that a row belongs to: a subject gets one release per period. With `daily` the period is the
    date of the time, with `weekly` its week, with `every` its day, week, month, …, all by the wall
    clock of the zone. `periods` is "parts" (periods belong to one series; the default of `every`)
    or "independent", which the caller claims. Plans about numbers (K-means) have `numbers`, the
    columns of each record, in place of `state`. Location plans on a map may have `latitude` and
    `longitude` instead. `members` names those whom a ledger charges beside the subject, when it is
    an aggregate: its "series" (people of a region), or "everybody".
    `missing`, `bins`, `unit`, `tz`, `where` and `sep` are those of `shoal.read`.
    """

    by: str
    state: str | None = None
    series: str | None = None
    time: str | None = None
    gap: timedelta | None = None
    group: str | None = None
    period: str | None = None
    daily: bool = False
    weekly: bool = False
    numbers: tuple[str, ...] = ()
    latitude: str | None = None
    longitude: str | None = None
    every: str | None = None
    periods: str | None = None
    missing: str = "refuse"
    bins: str | None = None
    unit: str | None = None
    tz: str | None = None
    where: str | None = None
    sep: str = ","
    members: str | None = None

    def __post_init__(self) -> None:
        """Check that the columns and options go together, and store `numbers` as a tuple.

        Refuses no or several columns of the state, `latitude` without `longitude`, `gap` or a
        calendar without `time`, a `gap` that is not above 0, and a column named for two roles.
        A `series` that is the same column as `by` becomes None.
        """
        object.__setattr__(self, "numbers", tuple(self.numbers))
        self._check_rows()
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
        if (self.on_the_wall or self.every) and (self.time is None or self.period is not None):
            asked = "daily" if self.daily else "weekly" if self.weekly else "every"
            raise InputError(f"{asked} needs a time column, and no column of periods beside it")
        self._check_members()
        if self.series == self.by:
            object.__setattr__(self, "series", None)
        single = (self.state, self.series, self.time, self.latitude, self.longitude)
        roles = [self.by, *filter(None, single), *self.numbers]
        twice = next((name for name in roles if roles.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"column {twice!r} is named for two purposes; name another column")

    def _check_rows(self) -> None:
        """Refuse options for raw rows under which no row could be read."""
        check_missing(self.missing)
        if self.every is not None:
            check_calendar(self.every)
            object.__setattr__(self, "periods", check_periods(self.periods or "parts", "every"))
        if self.missing != "refuse" and self.state is None:
            raise InputError(
                f"missing is {self.missing!r}, which is for rows with a state; drop it"
            )
        if self.bins is not None and (self.state is None or "," not in self.bins):
            raise InputError(
                f"bins is {self.bins!r}; in a job it is the edges of the model's states, such as "
                "100,500,2000: a number of bins would be found in the data"
            )
        if self.where is not None:
            parse_where(self.where)

    def _check_members(self) -> None:
        """Refuse an unknown value of `members`, and "series" without a column of series."""
        if self.members not in (None, *MEMBERS):
            raise InputError(
                f"members is {self.members!r}; in a job it is {' or '.join(map(repr, MEMBERS))}"
            )
        if self.members == "series" and self.series in (None, self.by):
            raise InputError(
                "members is 'series', and no column of series is named beside that of the subject; "
                "name the column of people with series (--series)"
            )

    @property
    def on_the_wall(self) -> bool:
        """Whether the position of a row in its day or week follows the wall clock."""
        return self.daily or self.weekly

    @property
    def part(self) -> str | None:
        """The part of the calendar that makes a period, such as "day"; None without one."""
        return "day" if self.daily else "week" if self.weekly else self.every

    @property
    def edges(self) -> Bins | None:
        """The edges of the bins that turn numbers into states, if any are given."""
        if self.bins is None:
            return None
        import polars as pl

        return Bins.of(self.bins, pl.Series([], dtype=pl.Float64))

    @property
    def conditions(self) -> list[str]:
        """The columns that the conditions of `where` need."""
        return [] if self.where is None else [term[0] for term in parse_where(self.where)]

    @property
    def read_columns(self) -> list[str]:
        """All columns that a job reads, each once."""
        return list(dict.fromkeys([*self.columns.values(), *self.conditions]))

    @property
    def columns(self) -> dict[str, str]:
        """The column of each role that has one; `by` is the role "subject"."""
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
        """The text columns that identify a row's subject; none of them may be empty in a row."""
        roles = {"period": self.part is not None, **dict.fromkeys(self.columns, True)}
        return [role for role in ("subject", "period", "group", "series") if roles.get(role)]

    @property
    def gap_microseconds(self) -> int | None:
        return None if self.gap is None else self.gap // MICROSECOND

    def as_dict(self) -> dict[str, Any]:
        """Return the layout as plain JSON data, which `of` reads."""
        named = {name: getattr(self, name) for name in self.__slots__ if name != "gap"}
        plain = {"numbers": list(self.numbers), "gap_microseconds": self.gap_microseconds}
        return named | plain

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """Return the layout that `as_dict` stored."""
        if not fits(data, {name: SHAPES.get(name, (str, type(None))) for name in data}):
            raise StoredError("the layout of the job was changed or damaged; start it again")
        rest = {name: value for name, value in data.items() if name != "gap_microseconds"}
        if "periods" not in data:  # earlier versions took them as independent
            rest["periods"] = "independent"
        gap = data.get("gap_microseconds")
        return cls(gap=None if gap is None else gap * MICROSECOND, **rest)


SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
TEXT = (".csv", ".tsv")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
LARGE = 8 * 2**20  # bytes of text per read; they take about ten times as much memory
TEXT_ROW = 24  # least bytes of a row of text, for an upper estimate of the rows of a file


class InputFile(NamedTuple):
    """An input file as it was when the job began; a job refuses files that changed since."""

    path: str
    size: int
    modified: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Self:
        found = os.stat(path)
        return cls(str(path), found.st_size, found.st_mtime_ns)

    @property
    def suffix(self) -> str:
        return Path(self.path).suffix.lower()

    @property
    def folders(self) -> dict[str, str | None]:
        """The columns and values that hive folders such as day=2024-05-01 add to every row."""
        found: dict[str, str | None] = {}
        for part in Path(self.path).parts[:-1]:
            name, equals, value = part.partition("=")
            if equals and name:
                found[unquote(name)] = None if value == NO_VALUE else unquote(value)
        return found


class BadFile(NamedTuple):
    """A file that could not be used, the reason, and its number of rows (None: unknown)."""

    path: str
    reason: str
    rows: int | None


def find_inputs(pattern: str | os.PathLike[str], out: Path) -> tuple[InputFile, ...]:
    """Return the files that a pattern, folder or path names, sorted, without the job's output.

    Names that begin with "_" or "." are left out, as Spark does.
    """
    text = str(pattern)
    search = os.path.join(text, "**", "*") if os.path.isdir(text) else text
    # a path that exists is taken literally, even if it contains a star
    names = [text] if os.path.isfile(text) else glob.glob(search, recursive=True)
    inside = os.path.join(os.path.realpath(out), "")
    files = sorted(
        name
        for name in set(names)
        if os.path.isfile(name)
        and not Path(name).name.startswith(("_", "."))
        and not os.path.realpath(name).startswith(inside)
    )
    if not files:
        raise DataError(f"no file matches {text!r}; check the path, or name a folder of data files")
    return tuple(InputFile.of(os.path.abspath(name)) for name in files)


def first_changed_file(files: tuple[InputFile, ...]) -> str | None:
    """Return the first file that changed since the job began; None when there is none."""
    for file in files:
        if not os.path.isfile(file.path) or InputFile.of(file.path) != file:
            return file.path
    return None


def frames(file: InputFile, layout: Layout, piece: int) -> Iterator[pl.DataFrame]:
    """Yield the columns of the layout in pieces of at most about `piece` rows.

    Values of a CSV stay text. Raises DataError with the reason when the file is bad, perhaps
    after some pieces were yielded.
    """

    try:
        if file.suffix == ".parquet":
            if not file.size:
                _locate_columns(file, layout, [])
            for frame in parquet_frames(file.path, partial(_locate_columns, file, layout), piece):
                yield _with_folders(frame, file, layout)
            return
        found = _scan(file, layout.sep)
        present = found.collect_schema().names() if file.size else []
        wanted = _locate_columns(file, layout, present)
        if file.suffix not in TEXT:  # of a CSV read whole rows, to notice excess fields
            found = found.select(wanted)
        pieces = found.collect_batches(chunk_size=piece) if file.size > LARGE else [found.collect()]
        for frame in pieces:
            for part in frame.iter_slices(piece) if frame.height else [frame]:
                yield _with_folders(part.select(wanted), file, layout)
    except reading_errors() as error:
        raise DataError(
            f"it cannot be read as {file.suffix[1:]} ({type(error).__name__}); it may be cut "
            "short, damaged or of another format"
        ) from None


def rows_in(file: InputFile) -> int | None:
    """Return the number of rows from a Parquet footer; None for other files."""
    if file.suffix != ".parquet":
        return None
    import polars as pl

    try:
        return int(pl.scan_parquet(file.path).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        return None


def guessed_rows(file: InputFile) -> int:
    """Return an upper estimate of the rows, which decides the number of shards."""
    known = rows_in(file)
    return file.size // TEXT_ROW + 1 if known is None else known


def _scan(file: InputFile, sep: str) -> pl.LazyFrame:
    if file.suffix not in SUFFIXES:
        raise DataError(
            f"it ends in {file.suffix!r}; data files end in one of {', '.join(SUFFIXES)}"
        )
    return scan(Path(file.path), sep)


def _locate_columns(file: InputFile, layout: Layout, present: list[str]) -> list[str]:
    """Return the columns to read; refused when one is neither in the file nor in its folders."""
    folders = file.folders
    if not file.size:
        raise DataError("it is empty; a data file has at least its column names")
    named = [*layout.columns.items(), *(("condition", name) for name in layout.conditions)]
    for role, column in named:
        if column not in present and column not in folders:
            raise DataError(
                f"it has no column {column!r}, named as the {role}; it has: {shown_names(present)}"
            )
    return [name for name in layout.read_columns if name in present]


def _with_folders(frame: pl.DataFrame, file: InputFile, layout: Layout) -> pl.DataFrame:
    """Return the frame with the columns that only the folders' names contain."""
    import polars as pl

    folders: dict[str, Any] = file.folders
    missing = [name for name in layout.read_columns if name not in frame.columns]
    return frame.with_columns(
        pl.lit(folders[name], dtype=pl.String).alias(name) for name in dict.fromkeys(missing)
    )
