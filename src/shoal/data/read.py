"""Reading series of states from CSV, Parquet and JSON Lines."""

from __future__ import annotations

import glob
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.errors import DataError, InputError
from shoal.data.table import Dataset, chains_of, check_columns, check_gap, tidy
from shoal.data.times import holds_seconds

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".parquet", ".jsonl", ".ndjson")
REASONS = {  # by what the reader's own words hold
    "utf-8": "it is not text in UTF-8; save it as UTF-8",
    "more fields than": "a row has more fields than the first line; give every row the same number",
}


def read(
    path: str | os.PathLike[str],
    *,
    state: str,
    series: str | None = None,
    time: str | None = None,
    gap: timedelta | None = None,
) -> Dataset:
    """The chains in a file, or in all files a pattern such as "days/*.csv" names.

    `state`, `series` and `time` name columns. Rows are sorted by time within each series (without
    a time column their order counts) and a pause longer than `gap` starts a new chain. Without a
    series column each file is one series, named after the file. A CSV has no types: its states are
    the text between the commas.
    """
    check_gap(gap, time)
    files = matching(path)
    names = names_of(files)
    parts, seconds = [], False
    for file, name in zip(files, names, strict=True):
        frame = load(file, state=state, series=series, time=time)
        source = repr(str(file))
        parts.append(tidy(frame, source, state=state, series=series, time=time, name=name))
        seconds = time is not None and holds_seconds(frame[time])
    return chains_of(_together(parts), gap, seconds=seconds)


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
    import polars as pl

    scan = _scan(file)
    try:
        if file.stat().st_size == 0:
            raise DataError(f"{str(file)!r} is empty; at least 2 rows are needed")
        if file.suffix.lower() != ".parquet":
            _refuse_utf16(file)
        present = scan.collect_schema().names()
        source = repr(str(file))
        check_columns(present, source, state=state, series=series, time=time, role=role)
        wanted = dict.fromkeys(name for name in (state, series, time) if name is not None)
        if file.suffix.lower() == ".csv":  # whole rows, so that one with too many fields is seen
            return scan.collect().select(list(wanted))
        return scan.select(list(wanted)).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(
            f"{str(file)!r} cannot be read as {file.suffix.lower()[1:]}: {_reason(error)}"
        ) from None


def _refuse_utf16(file: Path) -> None:
    """Refuses text whose first bytes say UTF-16: its columns would have names of odd characters."""
    with file.open("rb") as opened:
        mark = opened.read(2)
    if mark in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(
            f"{str(file)!r} cannot be read as {file.suffix.lower()[1:]}: {REASONS['utf-8']}"
        )


def _scan(file: Path) -> pl.LazyFrame:
    import polars as pl

    # the name is taken literally, although polars would expand * and [ in it
    match file.suffix.lower():
        case ".csv":
            return pl.scan_csv(file, infer_schema=False, glob=False)
        case ".parquet":
            return pl.scan_parquet(file, glob=False)
        case ".jsonl" | ".ndjson":
            return pl.scan_ndjson(glob.escape(str(file)), infer_schema_length=None)
    raise InputError(
        f"{str(file)!r} ends in {file.suffix!r}; data files end in one of {', '.join(SUFFIXES)}"
    )


def names_of(files: tuple[Path, ...]) -> list[str]:
    """File stems, or whole paths when two files share a stem."""
    stems = [file.stem for file in files]
    return stems if len(set(stems)) == len(stems) else [str(file) for file in files]


def _together(parts: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return parts[0] if len(parts) == 1 else pl.concat(parts)


def _reason(error: BaseException) -> str:
    """What is wrong with a file and what to do, in our words where the reader's are known."""
    text = str(error).strip().splitlines()
    line = text[0].rstrip(".") if text else type(error).__name__
    for mark, words in REASONS.items():
        if mark in line:
            return words
    return f"{line}; it may be cut short or of another format: make it again"
