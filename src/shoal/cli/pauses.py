"""Pauses in times that are otherwise even: told, because without a gap they count as one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from shoal.cli import show

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns
    from shoal.data.times import Pauses


def note_pauses(path: str, columns: NamedColumns) -> None:
    """Tells the owner of the data about pauses that nothing cuts."""
    with show.working("reading"):
        found = pauses_of(path, columns)
    if found is not None:
        typer.echo(
            f"NOTE: {found.describe()}; each counts as one step. Give --gap to begin a new chain "
            "after a longer one.",
            err=True,
        )


def pauses_of(path: str, columns: NamedColumns) -> Pauses | None:
    """Pauses in the files at `path`, when a time is named and no gap cuts them."""
    if columns.time is None or columns.gap is not None or columns.state is None:
        return None
    import polars as pl

    from shoal.data.read import load_columns, matching, names_of
    from shoal.data.table import Columns, owners_and_times
    from shoal.data.times import pauses_in

    raw = {name: said for name, said in columns.raw.items() if name not in ("sep", "bins")}
    named = Columns(state=columns.state, series=columns.series, time=columns.time, **raw)
    files = matching(path)
    parts = [
        owners_and_times(
            load_columns(file, named, sep=columns.sep or ","), repr(str(file)), named, name=name
        )
        for file, name in zip(files, names_of(files), strict=True)
    ]
    whole = pl.concat(parts)
    return pauses_in(whole["series"], whole["time"].cast(pl.Float64) / 1e6)
