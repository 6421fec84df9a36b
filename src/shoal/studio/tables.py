"""The user's own files: their columns, their missing values, and the room they fit."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError, InputError
from shoal.data.guess import NAMES, guess_columns

if TYPE_CHECKING:
    import polars as pl

PEEKED = 5000  # rows looked at to guess columns
TABLES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
TRACKS = (".gpx", ".geojson")
LEDGERS = (".db", ".sqlite", ".sqlite3")
SPECS = (".toml", ".json")
NETWORKS = (".bif",)
SUFFIXES = TABLES + TRACKS + LEDGERS + SPECS + NETWORKS
ROOM_OF = {**dict.fromkeys(TRACKS, "places"), **dict.fromkeys(LEDGERS, "budget"),
           **dict.fromkeys(SPECS, "audit"), **dict.fromkeys(NETWORKS, "ties")}  # fmt: skip
KIND = re.compile(rb'"kind"\s*:\s*"([^"]+)"')  # the first one is that of a stored document
# the columns that a room uses; the first ones are required
ROLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "leak": (("state",), ("series", "time")),
    "day": (("state", "time"), ("series",)),
    "places": (("latitude", "longitude"), ("series", "time")),
    "ties": (("series",), ("state", "latitude", "longitude")),
}
NO_TABLE = (
    "the file is no table that can be read; give a CSV with a line of names, or a Parquet file"
)
OFTEN = 0.1  # larger shares of pauses belong to the series and are no gaps in it


def look(params: Mapping[str, Any], say: Any) -> dict[str, Any]:
    """Return the columns of a file, those that the room needs, and their missing values."""
    say("reading the file", 0.3)
    file, room = Path(str(params.get("file"))), str(params.get("room"))
    if room not in ROLES:
        raise InputError(f"there are no columns to choose in the room {room!r}")
    if file.suffix.lower() in TRACKS and room == "places":
        return {"columns": [], "guess": {}, "needed": [], "empty": "", "ready": True}
    table = peek_rows(file)
    needed, wanted = ROLES[room]
    if table.width < len(needed) + (room == "ties"):
        raise InputError(
            f"the table has {table.width} column(s); this room needs {' and '.join(needed)}"
            + (" and a value" if room == "ties" else "")
        )
    guess = guess_columns(table, needed + wanted)
    return {
        "columns": list(table.columns),
        "guess": guess,
        "needed": list(needed),
        "empty": empty_words(table, guess),
        "ready": all(guess[role] is not None for role in needed),
    }


def empty_words(table: pl.DataFrame, guess: Mapping[str, str | None]) -> str:
    """Return a sentence that names guessed columns with empty cells; "" where there are none."""
    notes = [
        f"{count:,} of {table.height:,} in {name!r}"
        for name in filter(None, guess.values())
        if (count := int(table[name].null_count()))
    ]
    return f"Empty cells: {', '.join(notes)}." if notes else ""


def peek_rows(file: Path) -> pl.DataFrame:
    """Return the first rows of a table, enough to guess the roles of its columns."""
    import polars as pl

    from shoal.data.frames import parquet_frames

    try:
        match file.suffix.lower():
            case ".parquet":
                return next(parquet_frames(file, list, PEEKED))
            case ".jsonl" | ".ndjson":
                return pl.read_ndjson(file, n_rows=PEEKED)
            case ".csv" | ".tsv":
                mark = "\t" if file.suffix.lower() == ".tsv" else ","
                return pl.read_csv(
                    file, n_rows=PEEKED, separator=mark, infer_schema_length=1000,
                    try_parse_dates=True,
                )  # fmt: skip
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, OSError):
        raise InputError(NO_TABLE) from None
    raise InputError(NO_TABLE)


def chosen(params: Mapping[str, Any], room: str) -> dict[str, str]:
    """Return the columns chosen for a room; refused where a required one is missing."""
    named = params.get("columns")
    columns = {role: str(name) for role, name in (named or {}).items() if name}
    for role in ROLES[room][0]:
        if role not in columns:
            raise InputError(f"no column is chosen for the {role}; choose one")
    return {role: name for role, name in columns.items() if role in sum(ROLES[room], ())}


def gap_of(owners: pl.Series, seconds: pl.Series) -> tuple[str | None, str]:
    """Return the pause that starts a new chain, as a spec writes it, and the pauses in words.

    None where all steps are alike, or where pauses are too frequent to be gaps.
    """
    from shoal.data.times import LONGER, pauses_in

    pauses = pauses_in(owners, seconds)
    if pauses is None:
        return None, ""
    if pauses.number > OFTEN * len(seconds):
        return None, f"{pauses.describe()}; each counts as one step"
    return f"{math.ceil(LONGER * pauses.usual)}s", f"{pauses.describe()}; each starts a new chain"


def usual_step(table: pl.DataFrame, owner: str, when: str) -> float:
    """Return the usual time between two rows of one owner; 0 where there are none."""
    import polars as pl

    steps = table.sort(owner, when).select(pl.col(when).diff().over(owner)).to_series()
    usual = steps.filter(steps > 0).median()
    return 0.0 if usual is None else float(str(usual))


def count_noun(number: int, one: str, many: str) -> str:
    """Return a number and its noun: "1 person", "2,000 people"."""
    return f"{number:,} {one if number == 1 else many}"


def room_of(file: Path) -> str:
    """Return the room that fits a file, by its suffix or by its columns."""
    suffix = file.suffix.lower()
    kind = KIND.search(_beginning(file)) if suffix == ".json" else None
    if kind is not None and kind[1] == b"sparse-chain":
        return "places"  # a map that `shoal fit --grid` stored
    if suffix in ROOM_OF:
        return ROOM_OF[suffix]
    try:
        names = {name.lower() for name in columns_of(file)}
    except (DataError, OSError, ValueError, csv.Error):
        return "leak"  # which says what is wrong with the file
    located = all(names & set(NAMES[role]) for role in ("latitude", "longitude"))
    return "places" if located else "leak"


def _beginning(file: Path) -> bytes:
    """Return the first bytes of a file, where a stored document names its kind; b"" on errors."""
    try:
        with file.open("rb") as stream:
            return stream.read(PEEKED)
    except OSError:
        return b""


def columns_of(file: Path) -> list[str]:
    """Return the names of a table's columns, without reading its rows."""
    if file.suffix.lower() == ".parquet":
        import polars as pl

        try:
            return list(pl.read_parquet_schema(file))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            raise DataError(NO_TABLE) from None
    with file.open(encoding="utf-8-sig", newline="") as lines:
        mark = "\t" if file.suffix.lower() == ".tsv" else ","
        return next(csv.reader([lines.readline(2**16)], delimiter=mark), [])
