"""`shoal fit --grid`: a chain on the cells of a map, from trajectories."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shoal.cli import show
from shoal.cli.outputs import check_output
from shoal.core.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from shoal.models.grid import Grid
    from shoal.models.grid_fit import GridFit

FINEST = 15  # resolution of hexagons
MARGIN = 1e-9  # degrees, so that the last position lies inside the last cell


@dataclass(frozen=True, slots=True)
class MapWish:
    """What `shoal fit --grid` was asked for.

    `grid` is the width of square cells in km ("0.34"), or "h3:RESOLUTION"; `box` is
    "south,west,north,east" in degrees, by default that of the data; `personal` names one person
    whose own chain is wanted, leaning on everybody's.
    """

    grid: str
    latitude: str | None
    longitude: str | None
    series: str | None
    time: str | None
    gap: str | None
    smoothing: str
    length: int | None
    initial: str
    box: str | None
    personal: str | None


def fit_map(data: str, out: Path, wish: MapWish, *, as_json: bool, force: bool) -> None:
    """Fits, stores and reports a map model."""
    from shoal.cli.location_table import read_positions
    from shoal.data.files import atomic_write
    from shoal.kinds import dumps

    if wish.personal is not None and wish.series is None:
        raise InputError("--personal needs the column of people; name --series too")
    if out.suffix.lower() != ".json":
        raise InputError(f"--out is {str(out)!r}; a model is written as .json")
    check_output(out, force=force)
    with show.working("reading"):
        table = read_positions(
            data,
            series=wish.series,
            time=wish.time,
            latitude=wish.latitude,
            longitude=wish.longitude,
        )
    with show.working("fitting"):
        fitted, chain = _fitted(table, wish)
    _note(table, wish)
    atomic_write(out, dumps(chain) + "\n")
    found = _object(out, fitted, wish)
    if as_json:
        show.print_json(found)
        return
    screen = show.console()
    screen.print(f"Map of {fitted.chain.describe()}.")
    screen.print(fitted.describe() + ".")
    empty = table.height - _usable(table).height
    if empty:
        screen.print(f"{empty} reading(s) hold no position; they count as outside the map.")
    if wish.personal is not None:
        screen.print(f"The model is that of {wish.personal!r}, leaning on everybody's.")
    screen.print(
        "The model itself is not private: it tells about the trajectories it was fitted on."
    )
    screen.print(f'In a spec:\n  [[model]]\n  file = "{out.name}"')


def _note(table: pl.DataFrame, wish: MapWish) -> None:
    """Tells of jumps that are none: between people, and over pauses."""
    import typer

    from shoal.cli.fit_notes import note_one_series
    from shoal.cli.pauses import pauses_in

    note_one_series(wish.series, table["user"].n_unique())
    if wish.time is None or wish.gap is not None:
        return
    pauses = pauses_in(table["user"], table["seconds"])
    if pauses is not None:
        typer.echo(
            f"NOTE: {pauses.describe()}; each counts as one step. Give --gap to begin a new chain "
            "after a longer one.",
            err=True,
        )


def _fitted(table: pl.DataFrame, wish: MapWish) -> tuple[GridFit, Any]:
    from shoal.models.grid_fit import Start, fit_grid, personal

    grid = _grid(table, wish)
    paths = _paths(table, grid, wish)
    every = [piece for pieces in paths.values() for piece in pieces]
    start = "visits" if wish.initial == "stationary" else wish.initial
    fitted = fit_grid(
        grid,
        every,
        smoothing=wish.smoothing,
        initial=cast("Start", start),
        length=wish.length,
    )
    if wish.personal is None:
        return fitted, fitted.chain
    if wish.personal not in paths:
        raise InputError(f"--personal is {wish.personal!r}; no series of the data has that name")
    return fitted, personal(fitted.chain, paths[wish.personal])


def _paths(table: pl.DataFrame, grid: Grid, wish: MapWish) -> dict[str, list[Any]]:
    """Chains of cells by person."""
    from shoal.data.durations import parse_duration
    from shoal.models.grid_fit import cut_at_gaps

    gap = None if wish.gap is None else parse_duration(wish.gap).total_seconds()
    if gap is not None and wish.time is None:
        raise InputError("--gap is given without --time; name the time column, or drop --gap")
    found: dict[str, list[Any]] = {}
    for (user,), own in table.group_by(["user"], maintain_order=True):
        rows = own.sort("seconds") if wish.time is not None else own
        cells = grid.cell_of(rows["lat"].to_numpy(), rows["lon"].to_numpy())
        whole = [cells] if gap is None else cut_at_gaps(cells, rows["seconds"].to_numpy(), gap)
        found[str(user)] = list(whole)
    return found


def _grid(table: pl.DataFrame, wish: MapWish) -> Grid:
    from shoal.core.numbers import positive
    from shoal.models.grid import HexGrid, SquareGrid

    south, west, north, east = _box(table, wish.box)
    hexagons = re.fullmatch(r"h3:(\d+)", wish.grid)
    if hexagons:
        size = int(hexagons[1])
        if size > FINEST:
            raise InputError(
                f"--grid is {wish.grid!r}; a resolution is 0 to {FINEST}, such as h3:8"
            )
        # hexagons are taken by their centres: without a rim, positions at the edge lie outside
        high, wide = _rim(size, south, north) if wish.box is None else (0.0, 0.0)
        return HexGrid.covering(
            south=south - high,
            west=west - wide,
            north=north + high,
            east=east + wide,
            resolution=size,
        )
    if wish.grid.startswith("h3"):
        raise InputError(f"--grid is {wish.grid!r}; hexagons are named by a resolution, as in h3:8")
    try:
        width = positive(wish.grid, "--grid")
    except InputError:
        raise InputError(
            f"--grid is {wish.grid!r}; it must be the width of a cell in km, above 0, such as 0.5, "
            "or hexagons such as h3:8"
        ) from None
    return SquareGrid.covering(
        south=south, west=west, north=north + MARGIN, east=east + MARGIN, cell_km=width
    )


def _rim(resolution: int, south: float, north: float) -> tuple[float, float]:
    """Degrees of latitude and longitude in which a hexagon of this size fits whole."""
    from shoal.models.grid import EARTH_RADIUS_M

    try:
        import h3
    except ImportError:
        return 0.0, 0.0  # the grid itself says what to install
    metres = 2.5 * h3.average_hexagon_edge_length(resolution, unit="m")  # sizes vary
    degrees = math.degrees(metres / EARTH_RADIUS_M)
    return degrees, degrees / max(math.cos(math.radians(max(abs(south), abs(north)))), 0.01)


def _box(table: pl.DataFrame, box: str | None) -> tuple[float, float, float, float]:
    if box is not None:
        try:
            south, west, north, east = (float(part) for part in box.split(","))
        except ValueError:
            raise InputError(f"--box is {box!r}; it must be south,west,north,east") from None
        return south, west, north, east
    usable = _usable(table)
    if usable.height == 0:
        raise InputError("the data holds no latitude and longitude; check --lat and --lon")
    low, high = usable.select("lat", "lon").min().row(0), usable.select("lat", "lon").max().row(0)
    return low[0], low[1], high[0], high[1]


def _usable(table: pl.DataFrame) -> pl.DataFrame:
    return table.drop_nulls(["lat", "lon"]).drop_nans(["lat", "lon"])


def _object(out: Path, fitted: GridFit, wish: MapWish) -> dict[str, Any]:
    return {
        "path": str(out),
        "cells": fitted.chain.size,
        "moves": len(fitted.chain.targets),
        "transitions": fitted.transitions,
        "chains": fitted.chains,
        "dead_ends": list(fitted.dead_ends),
        "outside": fitted.outside,
        "personal": wish.personal,
        "private": False,
    }
