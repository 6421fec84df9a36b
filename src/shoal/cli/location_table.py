"""Tables of positions for the commands about places: files in, people, seconds and places out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from shoal.cli.pauses import pauses_in
from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    import polars as pl

    from shoal.core.task import Model


def read_positions(
    path: str,
    *,
    series: str | None,
    time: str | None,
    latitude: str | None,
    longitude: str | None,
    state: str | None = None,
) -> pl.DataFrame:
    """Columns user, seconds (when there is a time), and lat and lon, or state.

    Takes a file or a pattern; without `series` each file is one person, named after it (by its
    whole path where two files have one name).
    """
    import polars as pl

    from shoal.data.read import load, matching, names_of
    from shoal.data.times import microseconds

    given = {"--lat": latitude, "--lon": longitude, "--state": state}
    named = [option for option, column in given.items() if column is not None]
    if named not in (["--lat", "--lon"], ["--state"]):
        raise InputError(
            f"{' and '.join(named) or 'no column of places'} is given; name --lat and --lon, or "
            "--state, but not both"
        )
    parts = []
    files = matching(path)
    for file, own in zip(files, names_of(files), strict=True):
        roles = {"state": state, "latitude": latitude, "longitude": longitude}
        (role, first), *others = [(role, name) for role, name in roles.items() if name is not None]
        frame = load(file, state=first, series=series, time=time, role=role)
        for role, name in others:
            other = load(file, state=name, series=None, time=None, role=role)
            frame = frame.with_columns(other[name])
        columns = {"user": pl.lit(own) if series is None else pl.col(series).cast(pl.String)}
        if time is not None:
            seconds = microseconds(frame[time], repr(str(file))).cast(pl.Float64) / 1e6
            columns["seconds"] = pl.lit(seconds)
        if state is not None:
            columns["state"] = pl.col(state).cast(pl.String)
        else:
            source = repr(str(file))
            columns["lat"] = pl.lit(_degrees(frame[str(latitude)], source, "latitude", 90))
            columns["lon"] = pl.lit(_degrees(frame[str(longitude)], source, "longitude", 180))
        parts.append(frame.select(**columns))
    table = pl.concat(parts)
    if table.height == 0:
        raise DataError(f"{path!r} holds no rows; at least one position is needed")
    return table


def check_positions(table: pl.DataFrame, chain: Model, *, cut: bool) -> None:
    """Refuses what can only be a mistake, before anything is charged, and tells what may be one.

    `cut` says that times are laid on steps, or that pauses end a stream.
    """
    check_states(table, chain)
    if not cut and "seconds" in table.columns:
        _refuse_twice(table)
    outside = off_the_map(table, chain)
    if outside and outside == table.drop_nulls(["lat", "lon"]).height:
        raise DataError(
            f"all {outside:,} positions lie off the model's map; check the map, and that --lat and "
            "--lon are not swapped"
        )
    if outside:
        typer.echo(
            f"WARNING: {outside} of {table.height} positions lie off the model's map; they are "
            "released as its nearest state. Check the map, and that --lat and --lon are not "
            "swapped.",
            err=True,
        )
    pauses = pauses_in(table["user"], table["seconds"]) if "seconds" in table.columns else None
    if pauses is not None and not cut:
        typer.echo(
            f"NOTE: {pauses.describe()}; each counts as one step. Lay the rows on even steps with "
            "--every, or begin a new stream after a pause with --gap.",
            err=True,
        )


def _refuse_twice(table: pl.DataFrame) -> None:
    """Two rows of a person at one time would be two steps of the model."""
    twice = table.filter(table.select("user", "seconds").is_duplicated())
    if twice.height:
        raise DataError(
            f"series {twice['user'][0]!r} has two rows at one time ({twice.height} such row(s) in "
            "all); a person is at one place at a time: keep one of them, or give --every, and the "
            "last row of a step counts"
        )


def off_the_map(table: pl.DataFrame, chain: Model) -> int:
    """How many positions lie in no cell that the model knows; 0 for a model without a map."""
    import numpy as np

    from shoal.models.grid_chain import SparseChain

    if not isinstance(chain, SparseChain) or chain.grid is None or "lat" not in table.columns:
        return 0
    usable = table.drop_nulls(["lat", "lon"]).drop_nans(["lat", "lon"])
    cells = chain.grid.cell_of(usable["lat"].to_numpy(), usable["lon"].to_numpy())
    known = cells >= 0 if chain.cells is None else np.isin(cells, chain.cells)
    return int(np.count_nonzero(~known))


def check_states(table: pl.DataFrame, chain: Model) -> None:
    """Refuses a column of states that names one the model does not know."""
    from shoal.core.records import label

    known = {label(state) for state in chain.states or ()}
    for row, name in enumerate(table["state"] if "state" in table.columns else (), 1):
        if name is not None and label(name) not in known:
            shown = ", ".join(str(state) for state in (chain.states or ())[:8])
            raise DataError(
                f"the column of --state holds {name!r} in row {row}; it must hold states of the "
                f"model ({shown}, …): correct it, or name --lat and --lon instead"
            )


def _degrees(values: pl.Series, source: str, role: str, most: int) -> pl.Series:
    """Numbers of a column, nothing where it is empty; refused is any other text or number."""
    import polars as pl

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
    return numbers
