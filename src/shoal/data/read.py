"""Reading series of states from tables of any library, and from CSV, Parquet and JSON Lines."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError, InputError
from shoal.data.frames import is_frame, parquet_whole, to_polars
from shoal.data.rows import Bins, Wish, chosen
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

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
TEXT = (".csv", ".tsv")
REASONS = {  # by what the reader's own words hold
    "utf-8": "it is not text in UTF-8; save it as UTF-8",
    "more fields than": "a row has more fields than the first line; give every row the same number",
}


def read(
    source: Any,
    *,
    state: str,
    series: str | Sequence[str] | None = None,
    time: str | None = None,
    gap: Duration | None = None,
    missing: str = "refuse",
    bins: Wish | Bins | None = None,
    unit: str | None = None,
    tz: str | None = None,
    where: str | None = None,
    every: str | None = None,
    sep: str = ",",
) -> Dataset:
    """The chains in a table, in a file, or in all files a pattern such as "days/*.csv" names.

    Keywords are those of `shoal.data.table.Columns`. Rows are sorted by time within each series
    (without a time column their order counts) and a pause longer than `gap` starts a new chain.
    Without a series column each file is one series, named after the file. A CSV has no types: its
    states are the text between the separators, `sep`.
    """
    told: dict[str, Any] = {"state": state, "series": series, "time": time, "gap": gap}
    told |= {"missing": missing, "bins": bins, "unit": unit, "tz": tz, "where": where}
    if is_frame(source):
        return from_table(source, every=every, **told)
    columns = Columns(every=every, **told)
    import polars as pl

    files = matching(source)
    tables = [load_columns(file, columns, sep=sep) for file in files]
    columns = with_bins(columns, tables, [repr(str(file)) for file in files])
    parts = [
        tidy(table, repr(str(file)), columns, name=name)
        for file, table, name in zip(files, tables, names_of(files), strict=True)
    ]
    seconds = time is not None and holds_seconds(tables[-1][time])
    made = chains_of(pl.concat(parts), columns.pause, seconds=seconds, states=columns.all_states)
    return replace(made, named=columns.series is not None)


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
        table = load_columns(file, columns, sep=sep, role=role)
        for other, own in others:
            more = load_columns(file, Columns(state=other), sep=sep, role=own)
            table = table.with_columns(more[other])
        source = repr(str(file))
        found.append((chosen(table, columns.where, source), source, name))
    return found


def matching(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The one file at `path`, or the files the pattern names, sorted."""
    target = Path(path)
    if target.is_dir():
        raise DataError(
            f"{str(path)!r} is a folder; name a file, or a pattern such as "
            f"{os.path.join(str(path), '*.csv')!r}"
        )
    if target.exists():
        return (target,)
    found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
    files = tuple(file for file in found if file.is_file())
    if not files:
        pattern = "file matches" if glob.has_magic(str(path)) else "file is at"
        raise DataError(f"no {pattern} {str(path)!r}; check the path")
    return files


def load(
    file: Path, *, state: str, series: str | None, time: str | None, role: str = "state"
) -> pl.DataFrame:
    """The named columns of one file, as it holds them (a CSV as text).

    `role` is what a refusal calls the column `state`.
    """
    return load_columns(file, Columns(state=state, series=series, time=time), role=role)


def load_columns(
    file: Path, columns: Columns, *, sep: str = ",", role: str = "state"
) -> pl.DataFrame:
    """The same for all that `columns` name."""
    import polars as pl
    import pyarrow as pa

    def choose(present: list[str]) -> list[str]:
        check_columns(present, repr(str(file)), columns, role=role)
        return [name for name in columns.wanted(present) if name in present]

    opened = scan(file, sep)
    try:
        if file.stat().st_size == 0:
            raise DataError(f"{str(file)!r} is empty; at least 2 rows are needed")
        if file.suffix.lower() == ".parquet":
            return parquet_whole(file, choose)
        _refuse_utf16(file)
        wanted = choose(opened.collect_schema().names())
        if file.suffix.lower() in TEXT:  # whole rows, so that one with too many fields is seen
            return opened.collect().select(wanted)
        return opened.select(wanted).collect()
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        pa.ArrowException,
        OSError,
    ) as error:
        raise DataError(
            f"{str(file)!r} cannot be read as {file.suffix.lower()[1:]}: {reason_of(error)}"
        ) from None


def _refuse_utf16(file: Path) -> None:
    """Refuses text whose first bytes say UTF-16: its columns would have names of odd characters."""
    with file.open("rb") as opened:
        mark = opened.read(2)
    if mark in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(
            f"{str(file)!r} cannot be read as {file.suffix.lower()[1:]}: {REASONS['utf-8']}"
        )


def scan(file: Path, sep: str = ",") -> pl.LazyFrame:
    """The rows of a file, not yet read; those of a Parquet file are read by another reader."""
    import polars as pl

    mark = {"\\t": "\t", "tab": "\t"}.get(sep, sep)
    if len(mark.encode()) != 1:
        raise InputError(f"sep is {sep!r}; it must be one character such as ';', or 'tab'")
    # the name is taken literally, although polars would expand * and [ in it
    match file.suffix.lower():
        case ".csv":
            return pl.scan_csv(file, infer_schema=False, glob=False, separator=mark)
        case ".tsv":
            return pl.scan_csv(file, infer_schema=False, glob=False, separator="\t")
        case ".parquet":
            return pl.LazyFrame()  # read by another reader
        case ".jsonl" | ".ndjson":
            return pl.scan_ndjson(glob.escape(str(file)), infer_schema_length=None)
    raise InputError(
        f"{str(file)!r} ends in {file.suffix!r}; data files end in one of {', '.join(SUFFIXES)}"
    )


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
