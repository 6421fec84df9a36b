"""Reading series of states from tables of any library, and from CSV, Parquet and JSON Lines."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError, InputError
from shoal.data.formats import (
    TABLE_SUFFIXES,
    WHAT_IS_READ,
    FileFormat,
    format_of,
    own_columns,
    read_known,
)
from shoal.data.frames import is_frame, parquet_whole, reading_errors, to_polars
from shoal.data.rows import Bins, BinSpec, chosen
from shoal.data.table import (
    Columns,
    Dataset,
    chains_of,
    check_columns,
    from_table,
    tidy,
    with_bins,
)
from shoal.data.times import Duration, holds_seconds

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = tuple(TABLE_SUFFIXES)
TRACK_SUFFIXES = (".gpx", ".geojson", ".kml", ".tcx", ".fit", ".rec")
TEXT = ("csv", "tsv")
REASONS = {  # by what the reader's own words hold
    "utf-8": "it is not text in UTF-8; save it as UTF-8",
    "more fields than": "a row has more fields than the first line; give every row the same number",
}


def read(
    source: Any,
    *,
    state: str | None = None,
    series: str | Sequence[str] | None = None,
    time: str | None = None,
    gap: Duration | None = None,
    missing: str = "refuse",
    bins: BinSpec | Bins | None = None,
    unit: str | None = None,
    tz: str | None = None,
    where: str | None = None,
    every: str | None = None,
    sep: str = ",",
) -> Dataset:
    """The chains in a table, in a file, or in all files of a folder or of a pattern ("days/*.csv").

    A file that names its own columns, such as Green Button's, needs no `state`. Keywords are those
    of `shoal.data.table.Columns`. Rows are sorted by time within each series (without a time column
    their order counts) and a pause longer than `gap` starts a new chain. Without a series column
    each file is one series, named after the file. A CSV has no types: its states are the text
    between the separators, `sep`.
    """
    arguments: dict[str, Any] = {"state": state, "series": series, "time": time, "gap": gap}
    arguments |= {"missing": missing, "bins": bins, "unit": unit, "tz": tz, "where": where}
    if is_frame(source):
        _check_state(state, "the table")
        return from_table(source, every=every, **arguments)
    files = matching(source)
    if state is None:
        own = own_columns(files)
        _check_state(own.get("state"), repr(str(source)))
        arguments |= {role: name for role, name in own.items() if arguments[role] is None}
        time = arguments["time"]
    columns = Columns(every=every, **arguments)
    import polars as pl

    tables = [load_columns(file, columns, sep=sep) for file in files]
    columns = with_bins(columns, tables, [repr(str(file)) for file in files])
    parts = [
        tidy(table, repr(str(file)), columns, name=name)
        for file, table, name in zip(files, tables, names_of(files), strict=True)
    ]
    seconds = time is not None and holds_seconds(tables[-1][time])
    made = chains_of(pl.concat(parts), columns.pause, seconds=seconds, states=columns.all_states)
    return replace(made, named=columns.series is not None)


def _check_state(state: str | None, source: str) -> None:
    if state is None:
        raise InputError(f"{source} has no column of states of its own; name it with state=…")


def raw_tables(
    data: Any, columns: Columns, *others: tuple[str, str], sep: str = ",", role: str = "state"
) -> list[tuple[pl.DataFrame, str, str]]:
    """Each table with its name in refusals and that of its series: a table, or the files of a path.

    Rows are those that count (`where`); `others` are further columns with their roles.
    """
    if is_frame(data):
        table = to_polars(data)
        for name, own in ((columns.state, role), *others):
            check_columns(table.columns, "the table", replace(columns, state=name), role=own)
        return [(chosen(table, columns.where, "the table"), "the table", "data")]
    files, found = matching(data), []
    for file, name in zip(files, names_of(files), strict=True):
        table = load_columns(file, columns, *others, sep=sep, role=role)
        source = repr(str(file))
        found.append((chosen(table, columns.where, source), source, name))
    return found


Paths = str | os.PathLike[str] | Sequence[str]


def matching(path: Paths) -> tuple[Path, ...]:
    """The one file at `path`, the files in a folder or of a pattern, sorted, or those of a list.

    In folders, names that begin with "_" or "." are left out, as other programs do.
    """
    if not isinstance(path, str | os.PathLike):
        found = [file for each in path for file in matching(each)]
        return tuple(dict.fromkeys(found))
    target = Path(path)
    if target.is_file():
        return (target,)
    if target.is_dir():
        inside = (each.relative_to(target).parts for each in target.rglob("*") if each.is_file())
        files = sorted(
            target.joinpath(*parts)
            for parts in inside
            if not any(part.startswith(("_", ".")) for part in parts)
        )
        if not files:
            raise DataError(f"the folder {str(path)!r} holds no files; name another")
        return tuple(files)
    files = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
    files = [file for file in files if file.is_file()]
    if not files:
        pattern = "file matches" if glob.has_magic(str(path)) else "file is at"
        raise DataError(f"no {pattern} {str(path)!r}; check the path")
    return tuple(files)


def columns_of(path: Paths, *, tables: bool = True) -> Mapping[str, str]:
    """Role to column of the files at `path` that name their own columns; nothing for others.

    Without `tables` only of files that are no tables, whose columns have no other names.
    """
    return own_columns(matching(path), tables=tables)


def unit_in(path: Paths, where: str | None = None) -> str:
    """The one unit of the measurements that count (`where`) in files of series; else ""."""
    units: set[str] = set()
    for file in matching(path):
        known = format_of(file)
        if known.shape == "series":
            counted = chosen(read_known(file, known), where, repr(str(file)))
            units |= set(counted["unit"].unique())
    if len(units) > 1:
        shown = ", ".join(sorted(map(repr, units))[:6])
        raise DataError(
            f"the measurements are in several units ({shown}); keep one with where, such as "
            "\"unit = 'Wh'\" (--where)"
        )
    return next(iter(units), "")


def load(
    file: Path, *, state: str, series: str | None, time: str | None, role: str = "state"
) -> pl.DataFrame:
    """The named columns of one file, as it holds them (a CSV as text).

    `role` is what a refusal calls the column `state`.
    """
    return load_columns(file, Columns(state=state, series=series, time=time), role=role)


def load_columns(
    file: Path,
    columns: Columns,
    *others: tuple[str, str],
    sep: str = ",",
    role: str = "state",
) -> pl.DataFrame:
    """The same for all that `columns` name, and the columns of `others` (name and role).

    A column that a track or a series does not have is its own of that role: names in a spec are
    those of tables.
    """
    known = format_of(file)
    if known.shape != "table":
        return _own_table(file, known, columns, others, role)

    def choose(present: list[str]) -> list[str]:
        check_columns(present, repr(str(file)), columns, role=role)
        for name, own in others:
            check_columns(present, repr(str(file)), Columns(state=name), role=own)
        wanted = [*columns.needed_columns(present), *(name for name, _ in others)]
        return list(dict.fromkeys(name for name in wanted if name in present))

    if file.stat().st_size == 0:
        raise DataError(f"{str(file)!r} is empty; at least 2 rows are needed")
    return _load_table(file, known, choose, sep)


def _load_table(
    file: Path, known: FileFormat, choose: Callable[[list[str]], list[str]], sep: str
) -> pl.DataFrame:
    """The columns of a table that `choose` picks from the names of all."""

    try:
        if known.kind == "parquet":
            return parquet_whole(file, choose)
        opened = scan(file, sep, known.kind)
        _refuse_utf16(file)
        wanted = choose(opened.collect_schema().names())
        if known.kind in TEXT:  # whole rows, so that one with too many fields is seen
            return opened.collect().select(wanted)
        return opened.select(wanted).collect()
    except reading_errors() as error:
        raise DataError(
            f"{str(file)!r} cannot be read as {file.suffix.lower()[1:] or known.kind}: "
            f"{reason_of(error)}"
        ) from None


def _own_table(
    file: Path,
    known: FileFormat,
    columns: Columns,
    others: Sequence[tuple[str, str]],
    role: str,
) -> pl.DataFrame:
    """The table of a track or a series, with its own columns under the names asked for too."""
    table = read_known(file, known)
    owners = columns.series_in(table.columns)
    named = [(columns.state, role), *others, (columns.time, "time")]
    named += [(owners[0], "series")] if len(owners) == 1 else []
    aliases = {
        name: known.columns[own]
        for name, own in named
        if name is not None and name not in table.columns and own in known.columns
    }
    table = table.with_columns(table[own].alias(name) for name, own in aliases.items())
    check_columns(table.columns, repr(str(file)), columns, role=role)
    for name, own in others:
        check_columns(table.columns, repr(str(file)), Columns(state=name), role=own)
    return table


def _refuse_utf16(file: Path) -> None:
    """Refuses text whose first bytes say UTF-16: its columns would have names of odd characters."""
    with file.open("rb") as opened:
        mark = opened.read(2)
    if mark in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(
            f"{str(file)!r} cannot be read as {file.suffix.lower()[1:]}: {REASONS['utf-8']}"
        )


def scan(file: Path, sep: str = ",", kind: str | None = None) -> pl.LazyFrame:
    """The rows of a table, not yet read; those of a Parquet file are read by another reader.

    `kind` is what `FileFormat.kind` says, by default what the file's name ends in.
    """
    import polars as pl

    mark = {"\\t": "\t", "tab": "\t"}.get(sep, sep)
    if len(mark.encode()) != 1:
        raise InputError(f"sep is {sep!r}; it must be one character such as ';', or 'tab'")
    # the name is taken literally, although polars would expand * and [ in it
    match kind or TABLE_SUFFIXES.get(file.suffix.lower()):
        case "csv":
            return pl.scan_csv(file, infer_schema=False, glob=False, separator=mark)
        case "tsv":
            return pl.scan_csv(file, infer_schema=False, glob=False, separator="\t")
        case "parquet":
            return pl.LazyFrame()  # read by another reader
        case "jsonl":
            return pl.scan_ndjson(glob.escape(str(file)), infer_schema_length=None)
    raise InputError(f"{str(file)!r} ends in {file.suffix!r}; {WHAT_IS_READ}")


def names_of(files: tuple[Path, ...]) -> list[str]:
    """File stems, or whole paths when two files share a stem."""
    stems = [file.stem for file in files]
    return stems if len(set(stems)) == len(stems) else [str(file) for file in files]


def reason_of(error: BaseException) -> str:
    """What is wrong with a file and what to do, in our words where the reader's are known."""
    text = str(error).strip().splitlines()
    line = text[0].rstrip(".") if text else type(error).__name__
    for mark, words in REASONS.items():
        if mark in line:
            return words
    # not the reader's own words: they may hold what the file holds
    return f"{type(error).__name__}; it may be cut short or of another format: make it again"
