"""Pauses in times that are otherwise even: told, because without a gap they count as one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import typer

from shoal.cli import show

if TYPE_CHECKING:
    import polars as pl

    from shoal.cli.sources import NamedColumns

LONGER = 1.5  # times the usual step: one missing row makes 2


class Pauses(NamedTuple):
    """How many steps in time are longer than usual, the usual one and the longest, in seconds."""

    number: int
    usual: float
    longest: float

    def describe(self) -> str:
        return (
            f"{self.number:,} pause(s) are longer than the usual {length(self.usual)} between "
            f"rows, the longest {length(self.longest)}"
        )


def pauses_in(series: pl.Series, seconds: pl.Series) -> Pauses | None:
    """Pauses inside series, whatever the order of the rows; None where all steps are alike."""
    import polars as pl

    table = pl.DataFrame({"series": series, "seconds": seconds.cast(pl.Float64)})
    steps = (
        table.sort("series", "seconds")
        .select(pl.col("seconds").diff().over("series"))
        .to_series()
        .drop_nulls()
    )
    steps = steps.filter(steps > 0)
    if steps.len() == 0:
        return None
    usual = float(steps.quantile(0.5, interpolation="lower") or 0.0)
    longer = steps.filter(steps > LONGER * usual)
    if longer.len() == 0:
        return None
    return Pauses(longer.len(), usual, float(str(longer.max())))


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


def length(seconds: float) -> str:
    """A length of time in its two largest units, such as 1h1min."""
    from shoal.core.numbers import significant

    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for place, (name, size) in enumerate(units[:-1]):
        if seconds >= size:
            whole, rest = divmod(round(seconds), size)
            smaller, unit = units[place + 1]
            return f"{whole:,}{name}" + (f"{rest // unit}{smaller}" if rest >= unit else "")
    return f"{significant(seconds)}s"
