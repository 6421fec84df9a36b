"""Tables of positions for the commands about places: files in, people, seconds and places out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import typer

from shoal.cli import show
from shoal.cli.fit import note_one_series
from shoal.cli.show import check_output, see
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import positive
from shoal.core.records import label
from shoal.core.registry import dumps
from shoal.data.positions import paths_in, positions
from shoal.data.times import parse_duration, pauses_in
from shoal.data.write import atomic_write
from shoal.places.formats import centres_of, on_map
from shoal.places.map import EARTH_RADIUS_M, HexGrid, SquareGrid
from shoal.places.runtime import StateLocator
from shoal.places.tracks import TrackColumns, step_of
from shoal.places.walk import Start, fit_grid, fit_person, grid_of

if TYPE_CHECKING:
    import polars as pl

    from shoal.cli.fit import FitOptions
    from shoal.cli.sources import NamedColumns
    from shoal.core.plan import Plan
    from shoal.core.task import Model
    from shoal.places.map import Grid
    from shoal.places.walk import GridFit


def read_positions(path: str | Sequence[str], **columns: Any) -> pl.DataFrame:
    """What `shoal.data.positions.positions` finds in files whose columns the command names."""
    given = {"--lat": "latitude", "--lon": "longitude", "--state": "state"}
    named = [option for option, role in given.items() if columns.get(role) is not None]
    if named not in (["--lat", "--lon"], ["--state"]):
        raise InputError(
            f"{' and '.join(named) or 'no column of places'} is given; name --lat and --lon, "
            f"or --state, but not both ({see(path)})"
        )
    return positions(path, **columns)


def track_positions(
    plan: Plan, data: str | Sequence[str], named: NamedColumns, every: str | None
) -> tuple[pl.DataFrame, TrackColumns]:
    """The positions in files, and where their table keeps what, on steps of the plan's model."""
    if named.every is not None:
        raise InputError(
            f"every is {named.every!r}, and places are released step by step; drop it from [data], "
            "or give the length of a step with --every, such as 1min"
        )
    asked = None if every is None else parse_duration(every, "--every").total_seconds()
    step = step_of(plan, asked)
    roles = ("series", "time", "latitude", "longitude", "state")
    table = read_positions(data, **{role: getattr(named, role) for role in roles}, **named.raw)
    columns = TrackColumns.of(
        table,
        every=step,
        gap=None if named.gap is None else parse_duration(named.gap).total_seconds(),
    )
    return table, columns


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


def off_the_map(table: pl.DataFrame, chain: Any) -> int:
    """How many positions lie in no cell that the model knows; 0 for a model without a map."""
    grid, usable = grid_of(chain), _usable(table) if "lat" in table.columns else None
    if grid is None or usable is None:
        return 0
    cells = grid.cell_of(usable["lat"].to_numpy(), usable["lon"].to_numpy())
    return int(np.count_nonzero(~np.isin(cells, chain.cells)))


def check_states(table: pl.DataFrame, chain: Model) -> None:
    """Refuses a column of states that names one the model does not know."""
    known = {label(state) for state in chain.states or ()}
    for row, name in enumerate(table["state"] if "state" in table.columns else (), 1):
        if name is not None and label(name) not in known:
            shown = ", ".join(str(state) for state in (chain.states or ())[:8])
            raise DataError(
                f"the column of --state holds {name!r} in row {row}; it must hold states of the "
                f"model ({shown}, …): correct it, or name --lat and --lon instead"
            )


def cell_at(model: Any, point: tuple[float, float]) -> dict[str, Any]:
    """The cell of a model's map that covers a point, else the nearest one, and its centre."""
    chain = on_map(model)
    number = StateLocator(chain).state_of(point)
    centre = tuple(centres_of(chain)[number].tolist())
    north, east = (math.radians(a - b) for a, b in zip(point, centre, strict=True))
    km = math.hypot(north, east * math.cos(math.radians(point[0]))) * EARTH_RADIUS_M / 1000
    return {
        "cell": chain.states[number],
        "centre": centre,
        "distance_km": km,
        "inside": chain.grid is not None
        and chain.cells is not None
        and int(chain.grid.cell_of(*point)) in chain.cells,
    }


# `shoal fit --grid`: a chain on the cells of a map, from trajectories.


FINEST = 15  # resolution of hexagons
EDGE_MARGIN = 1e-9  # degrees, so that the last position lies inside the last cell


def fit_map(options: FitOptions, columns: NamedColumns) -> None:
    """Fits, stores and reports a map model.

    `options.grid` is the width of square cells in km ("0.34"), or "h3:RESOLUTION"; `options.box` is
    "south,west,north,east" in degrees, by default that of the data; `options.personal` names one
    person whose own chain is wanted, leaning on the common chain.
    """
    out = options.out
    if options.personal is not None and columns.series is None:
        raise InputError("--personal needs the column of people; name --series too")
    if out.suffix.lower() != ".json":
        raise InputError(f"--out is {str(out)!r}; a model is written as .json")
    check_output(out, force=options.force)
    roles = {role: getattr(columns, role) for role in ("series", "time", "latitude", "longitude")}
    with show.working("reading"):
        table = read_positions(options.data, **roles, **columns.raw)
    with show.working("fitting"):
        fitted, chain = _fit_grid_chain(table, options)
    _note_jumps(table, options, columns)
    atomic_write(out, dumps(chain) + "\n")
    if options.as_json:
        show.print_json(
            {
                "path": str(out),
                "cells": fitted.chain.size,
                "moves": len(fitted.chain.targets),
                "transitions": fitted.transitions,
                "chains": fitted.chains,
                "dead_ends": list(fitted.dead_ends),
                "outside": fitted.outside,
                "personal": options.personal,
                "private": False,
            }
        )
        return
    lines = [f"Map of {fitted.chain.describe()}.", f"{fitted.describe()}."]
    empty = table.height - _usable(table).height
    if empty:
        lines.append(f"{empty} reading(s) hold no position; they count as outside the map.")
    if options.personal is not None:
        lines.append(f"The model is that of {options.personal!r}, leaning on the common chain.")
    lines.append(
        "The model itself is not private: it tells about the trajectories it was fitted on."
    )
    lines.append(f'In a spec:\n  [[model]]\n  file = "{out.name}"')
    screen = show.console()
    for line in lines:
        screen.print(line)


def _note_jumps(table: pl.DataFrame, options: FitOptions, columns: NamedColumns) -> None:
    """Tells of jumps that are none: between people, and over pauses."""
    note_one_series(columns.series, table["user"].n_unique())
    if "seconds" not in table.columns or options.gap is not None or options.every is not None:
        return
    pauses = pauses_in(table["user"], table["seconds"])
    if pauses is not None:
        typer.echo(
            f"NOTE: {pauses.describe()}; each counts as one step. Lay the positions on even steps "
            "with --every, or begin a new chain after a pause with --gap.",
            err=True,
        )


def _fit_grid_chain(table: pl.DataFrame, options: FitOptions) -> tuple[GridFit, Any]:
    """Return the chain fitted to all tracks on the grid, and the one to store: that or one
    person's.

    Refused when a gap is given without times, or when no series has the name of --personal.
    """
    if options.gap is not None:
        parse_duration(options.gap)  # a bare number on the command line is refused
    step = (
        None if options.every is None else parse_duration(options.every, "--every").total_seconds()
    )
    for option, value in (("--gap", options.gap), ("--every", options.every)):
        if value is not None and "seconds" not in table.columns:
            raise InputError(
                f"{option} is given without times; name their column with --time, or drop {option}"
            )
    grid = _grid(table, options)
    paths = paths_in(table, grid, options.gap, every=step)
    every = [piece for pieces in paths.values() for piece in pieces]
    start = "visits" if options.initial == "stationary" else options.initial
    fitted = fit_grid(
        grid,
        every,
        smoothing=options.smoothing,
        initial=cast("Start", start),
        length=options.length,
    )
    fitted = fitted._replace(chain=replace(fitted.chain, step_seconds=step))
    if options.personal is None:
        return fitted, fitted.chain
    if options.personal not in paths:
        raise InputError(f"--personal is {options.personal!r}; no series of the data has that name")
    return fitted, fit_person(fitted.chain, paths[options.personal])


def _grid(table: pl.DataFrame, options: FitOptions) -> Grid:
    """Return the grid of --grid over the box: squares of a width in km, or hexagons
    "h3:RESOLUTION".
    """
    assert options.grid is not None  # what makes it a map
    south, west, north, east = _box(table, options.box)
    hexagons = re.fullmatch(r"h3:(\d+)", options.grid)
    if hexagons:
        size = int(hexagons[1])
        if size > FINEST:
            raise InputError(
                f"--grid is {options.grid!r}; a resolution is 0 to {FINEST}, such as h3:8"
            )
        # hexagons are taken by their centres: without a rim, positions at the edge lie outside
        high, wide = _rim(size, south, north) if options.box is None else (0.0, 0.0)
        return HexGrid.covering(
            south=south - high,
            west=west - wide,
            north=north + high,
            east=east + wide,
            resolution=size,
        )
    if options.grid.startswith("h3"):
        raise InputError(
            f"--grid is {options.grid!r}; hexagons are named by a resolution, as in h3:8"
        )
    try:
        width = positive(options.grid, "--grid")
    except InputError:
        raise InputError(
            f"--grid is {options.grid!r}; it must be the width of a cell in km, above 0, such as "
            "0.5, or hexagons such as h3:8"
        ) from None
    return SquareGrid.covering(
        south=south, west=west, north=north + EDGE_MARGIN, east=east + EDGE_MARGIN, cell_km=width
    )


def _rim(resolution: int, south: float, north: float) -> tuple[float, float]:
    """Degrees of latitude and longitude in which a hexagon of this size fits whole."""
    try:
        import h3
    except ImportError:
        return 0.0, 0.0  # the grid itself says what to install
    metres = 2.5 * h3.average_hexagon_edge_length(resolution, unit="m")  # sizes vary
    degrees = math.degrees(metres / EARTH_RADIUS_M)
    return degrees, degrees / max(math.cos(math.radians(max(abs(south), abs(north)))), 0.01)


def _box(table: pl.DataFrame, box: str | None) -> tuple[float, float, float, float]:
    """Return (south, west, north, east) in degrees, from --box or from the data's extremes."""
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
