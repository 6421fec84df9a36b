"""Positions of people: tables and files as they come, and paths on a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import DataError, InputError
from shoal.data.read import raw_tables
from shoal.data.table import Columns
from shoal.data.times import Duration, duration, holds_seconds, microseconds
from shoal.places.walk import cut_at_gaps

if TYPE_CHECKING:
    import polars as pl

NO_NAMES: Mapping[str, int] = MappingProxyType({})
DEGREES = {"latitude": 90, "longitude": 180}


def positions(
    data: Any,
    *,
    series: str | Sequence[str] | None = None,
    time: str | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    state: str | None = None,
    missing: str = "gap",
    sep: str = ",",
    **rows: Any,
) -> pl.DataFrame:
    """Columns user, seconds and time (when there are times), and lat and lon, or state.

    Takes a table, a file or a pattern; without `series` each file is one person, named after it.
    `missing` is "gap" (a step without a position, which ends a chain) or "drop"; `rows` are
    `where`, `unit` and `tz` of `shoal.read`.
    """
    import polars as pl

    roles = {"state": state, "latitude": latitude, "longitude": longitude}
    named = [(role, name) for role, name in roles.items() if name is not None]
    if [role for role, _ in named] not in (["latitude", "longitude"], ["state"]):
        shown = " and ".join(role for role, _ in named) or "no column of places"
        raise InputError(
            f"{shown} is given; name latitude and longitude (--lat, --lon), or state, but not both"
        )
    if missing not in ("gap", "drop"):
        raise InputError(f"missing is {missing!r}; of places it is 'gap' or 'drop'")
    (role, first), *others = named
    told = Columns(state=first, series=series, time=time, **rows)
    parts = []
    further = [(name, own) for own, name in others]
    for frame, source, own in raw_tables(data, told, *further, sep=sep, role=role):
        owners = [pl.col(name).cast(pl.String) for name in told.series_in(frame.columns)]
        columns: dict[str, Any] = {
            "user": pl.concat_str(owners, separator="/") if owners else pl.lit(own)
        }
        columns |= _timed_columns(frame, told, source)
        if state is not None:
            columns["state"] = pl.col(state).cast(pl.String)
        else:
            for role, name in named:
                columns[role[:3]] = pl.lit(_degrees(frame[name], source, role))
        parts.append(frame.select(**columns))
    table = pl.concat(parts)
    places = ["state"] if state is not None else ["lat", "lon"]
    kept = table.drop_nulls(places) if missing == "drop" else table
    if kept.height == 0:
        raise DataError(f"{str(data)[:80]!r} holds no rows; at least one position is needed")
    return kept


def _timed_columns(frame: pl.DataFrame, told: Columns, source: str) -> dict[str, Any]:
    """Seconds, and as dates and times what is no bare number; nothing without a time column."""
    import polars as pl

    if told.time is None:
        return {}
    column = frame[told.time]
    found = microseconds(column, source, unit=told.unit, tz=told.tz)
    columns: dict[str, Any] = {"seconds": pl.lit(found.cast(pl.Float64) / 1e6)}
    if not column.dtype.is_numeric() and not holds_seconds(column):
        columns["time"] = pl.lit(found.cast(pl.Datetime("us")))
    return columns


def _degrees(values: pl.Series, source: str, role: str) -> pl.Series:
    """Numbers of a column, nothing where it is empty; refused is any other text or number."""
    import polars as pl

    most = DEGREES[role]
    if values.dtype == pl.String:
        text = values.str.strip_chars()
        values = pl.select(pl.when(text != "").then(text)).to_series().rename(values.name)
    numbers = values.cast(pl.Float64, strict=False)
    wrong = (numbers.is_null() & values.is_not_null()) | (numbers.abs() > most).fill_null(False)
    wrong = wrong & ~numbers.is_nan().fill_null(False)
    if wrong.any():
        row = wrong.to_list().index(True)
        raise DataError(
            f"{source}: column {values.name!r} holds {values[row]!r} in row {row + 1}; a {role} is "
            f"a number from -{most} to {most}, and an empty field skips the step"
        )
    return numbers.fill_nan(None)


def cell_paths(
    grid: Any, data: Any, *, gap: Duration | None = None, **columns: Any
) -> dict[str, list[Ints]]:
    """Person to chains of cells of `grid`, cut at pauses longer than `gap`; see `positions`."""
    names = {grid.name_of(cell): cell for cell in range(grid.size)} if columns.get("state") else {}
    return paths_in(positions(data, **columns), grid, gap, names)


def paths_in(
    table: pl.DataFrame, grid: Any, gap: Duration | None, names: Mapping[str, int] = NO_NAMES
) -> dict[str, list[Ints]]:
    """The same of a table that `positions` made; `names` are those of the grid's cells."""
    length = None if gap is None else duration(gap).total_seconds()
    if length is not None and "seconds" not in table.columns:
        raise InputError("gap is given without a time column; name it with time=…, or drop gap")
    found: dict[str, list[Ints]] = {}
    for (user,), own in table.group_by(["user"], maintain_order=True):
        rows = own.sort("seconds", maintain_order=True) if "seconds" in own.columns else own
        if "state" in rows.columns:
            cells = np.array([names.get(str(name), -1) for name in rows["state"]], dtype=np.int64)
        else:
            cells = grid.cell_of(rows["lat"].to_numpy(), rows["lon"].to_numpy())
        if length is None:
            found[str(user)] = [cells]
        else:
            found[str(user)] = cut_at_gaps(cells, rows["seconds"].to_numpy(), length)
    return found
