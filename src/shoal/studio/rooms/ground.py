"""The map of the Places room: a free walk on a synthetic map, or learned from the user's file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.errors import DataError, InputError
from shoal.core.registry import dumps
from shoal.data.positions import positions
from shoal.places.formats import geojson, is_track, read_track
from shoal.places.map import SquareGrid
from shoal.places.tracks import Track, TrackColumns, tracks_of
from shoal.places.walk import SparseChain, fit_grid
from shoal.spec.fields import parse_stored, read_text
from shoal.studio.bench import number, text
from shoal.studio.tables import chosen, count_noun, usual_step

if TYPE_CHECKING:
    import polars as pl

MOST_CELLS_DRAWN = 1024  # of a map that the studio makes or learns
MOST_CELLS_STORED = 4096  # of a map that `shoal fit --grid` stored: as many as one law follows
MOST_READINGS = 200_000  # of a file: more belong to `shoal fit --grid`
MOST_POINTS_DRAWN = 20_000  # of what is drawn below the cells
WIDTHS_KM = (0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # of a cell, where none is named
STEPS_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)  # of a track, likewise
GOOD_CELLS = 400  # as many as are drawn well
PAUSE_STEPS = 10  # a longer pause ends a track
RARE = 0.005  # of readings at each edge: one bad fix must not stretch the map

WALK = """\
kind = "grid-walk"
south = 52.50
west = 13.36
cell_km = {cell}
rows = {rows}
columns = {columns}
stay = 0.6"""
LEARNED = 'file = "model.json"              # learned from the file that was opened'
STORED = 'file = "model.json"              # the map that was opened'


class Ground(NamedTuple):
    """The `[[model]]` of a spec and its files, how many places it has, and the data in words."""

    model: str
    files: dict[str, str]
    data: str
    size: int
    about: str
    cell_km: float


def map_with_free_walk(params: Mapping[str, Any]) -> Ground:
    """Return a map of so many cells with a free random walk."""
    rows, columns = int(number(params, "rows", 12)), int(number(params, "columns", 14))
    if not (rows >= 2 and columns >= 2 and rows * columns <= MOST_CELLS_DRAWN):
        raise InputError(
            f"the map has {rows} × {columns} cells; the studio shows 2 × 2 to "
            f"{MOST_CELLS_DRAWN} in all"
        )
    cell = number(params, "cell_km", 0.5)
    model = WALK.format(cell=repr(cell), rows=rows, columns=columns)
    return Ground(model, {}, "", rows * columns, "", cell)


def map_of_stored_model(params: Mapping[str, Any]) -> Ground:
    """The map of a stored model; a file of positions is then a track on it."""
    file = Path(text(params, "model"))
    document = read_text(file, "model")
    chain = parse_stored(document, file, "model")
    if not isinstance(chain, SparseChain):
        raise InputError(
            f"{file.name!r} holds a {type(chain).__name__}; the Places room opens a map, as "
            "`shoal fit --grid` stores it"
        )
    if not isinstance(chain.grid, SquareGrid):
        raise InputError(
            f"the map in {file.name!r} has no square cells; the studio draws square cells: fit it "
            "with a width in km, such as --grid 0.5"
        )
    if chain.size > MOST_CELLS_STORED:
        raise InputError(
            f"the map in {file.name!r} has {chain.size:,} cells; the studio shows "
            f"{MOST_CELLS_STORED:,}: fit it with wider cells (--grid)"
        )
    width = float(chain.grid.cell_m) / 1000
    about = f"{chain.size:,} cells of {width:g} km, as they were stored"
    data = _data(params) if params.get("file") else ""
    return Ground(STORED, {"model.json": document}, data, chain.size, about, width)


def map_from_file(params: Mapping[str, Any]) -> Ground:
    """The map of the places that occur in a file, and how its people move from one to another."""
    table = readings(params)
    step = step_of(table)
    tracks = list(tracks_of(table, track_columns(step)))
    fitting = (km for km in WIDTHS_KM if _grid(table, km).size <= GOOD_CELLS)
    cell = params.get("own_cell_km") or next(fitting, WIDTHS_KM[-1])
    grid = _grid(table, float(cell))
    paths = [_cells_of_track(grid, track) for track in tracks]
    fitted = fit_grid(grid, paths, smoothing=1)
    if fitted.chain.size > MOST_CELLS_DRAWN:
        raise InputError(
            f"{fitted.chain.size:,} cells of {cell:g} km occur; the studio shows "
            f"{MOST_CELLS_DRAWN}: "
            "choose wider cells"
        )
    missing = sum(place is None for track in tracks for place in track.readings)
    about = [
        f"{table.height:,} positions of {count_noun(table['user'].n_unique(), 'person', 'people')}",
        f"{fitted.chain.size} cells of {cell:g} km",
    ]
    if step is not None:
        about.append(f"steps of {step:g} s, {missing:,} of them without a position")
    if fitted.outside - missing > 0:
        about.append(f"{fitted.outside - missing:,} positions lie beyond the map")
    files = {"model.json": dumps(fitted.chain)}
    return Ground(LEARNED, files, _data(params), fitted.chain.size, "; ".join(about), float(cell))


def commands(params: Mapping[str, Any]) -> list[str]:
    """Command lines about the person's own file."""
    file, step = Path(text(params, "file")), step_of(readings(params))
    every = "" if step is None else f" --every {step:g}s"
    return [
        "shoal plan shoal.toml",
        f"shoal attack shoal.toml {shlex.quote(file.name)}{every}",
        f"shoal release shoal.toml {shlex.quote(file.name)}{every} -o released.geojson",
    ]


def _data(params: Mapping[str, Any]) -> str:
    """The lines of [data]: the columns that were chosen; a GPX file has none."""
    if is_track(text(params, "file")):
        return ""
    keys = {"latitude": "lat", "longitude": "lon", "series": "series", "time": "time"}
    named = chosen(params, "places")
    lines = [f"{keys[role]} = {json.dumps(name)}" for role, name in named.items()]
    return "\n".join(lines)


def readings(params: Mapping[str, Any]) -> pl.DataFrame:
    """The positions of a file: user, lat, lon, and seconds where there are times."""
    import polars as pl

    file = Path(text(params, "file"))
    if is_track(file):
        table = read_track(file)
        timed = table["time"].null_count() == 0
        seconds = pl.col("time").dt.epoch("us").cast(pl.Float64) / 1e6
        table = table.with_columns(seconds.alias("seconds")) if timed else table.drop("time")
    else:
        named = chosen(params, "places")
        table = positions(file, **named)
    if table.height > MOST_READINGS:
        raise InputError(
            f"the file holds {table.height:,} positions; the studio takes {MOST_READINGS:,}: fit "
            "the model with `shoal fit --grid`"
        )
    if table.drop_nulls(["lat", "lon"]).height < 2:
        raise DataError("the file holds fewer than 2 positions; check the columns of degrees")
    return table


def step_of(table: pl.DataFrame) -> float | None:
    """Seconds of a step: the usual time between two readings, rounded up; None without times."""
    if "seconds" not in table.columns:
        return None
    wanted = usual_step(table, "user", "seconds")
    return float(next((step for step in STEPS_S if step >= wanted), STEPS_S[-1]))


def track_columns(step: float | None) -> TrackColumns:
    """Return the columns of the track's table, with steps of this length in seconds."""
    timed = None if step is None else "seconds"
    pause = None if step is None else PAUSE_STEPS * step
    return TrackColumns(
        user="user", time=timed, latitude="lat", longitude="lon", every=step, gap=pause
    )


def own_track(params: Mapping[str, Any], most: int) -> list[Any]:
    """The longest stretch of one person, at most so many steps; None where a reading is missing."""
    table = readings(params)
    wanted = params.get("person")
    tracks = [
        track
        for track in tracks_of(table, track_columns(step_of(table)))
        if wanted is None or track.user == wanted
    ]
    if not tracks:
        raise InputError(f"nobody in the file is called {wanted!r}; choose a person of the file")
    longest = max(tracks, key=lambda track: sum(place is not None for place in track.readings))
    return list(longest.readings[:most])


def state_of(chain: SparseChain, place: Any) -> int | None:
    """The number of a state by its name or by degrees; None where it is no place of the chain."""
    if place is None:
        return None
    if isinstance(place, str):
        return chain.states.index(place) if place in chain.states else None
    if chain.grid is None or chain.cells is None:
        return None
    cell = int(chain.grid.cell_of(*place))
    at = int(np.searchsorted(chain.cells, cell))
    return at if at < len(chain.cells) and int(chain.cells[at]) == cell else None


def people(params: Mapping[str, Any], most: int = 200) -> list[str]:
    """The people of a file, those with most readings first."""
    counts = readings(params)["user"].value_counts(sort=True)
    return [str(name) for name in counts["user"].to_list()[:most]]


def _cells_of_track(grid: SquareGrid, track: Track) -> Any:
    """The cells of a track; below 0 where there is none."""
    places = [(np.nan, np.nan) if one is None else one for one in track.readings]
    return grid.cell_of(*np.array(places, dtype=np.float64).T)


def _grid(table: pl.DataFrame, cell_km: float) -> SquareGrid:
    """The grid around all but the rarest readings."""
    places = table.drop_nulls(["lat", "lon"]).select("lat", "lon").to_numpy()
    few = len(places) * RARE < 1
    low, high = (places.min(0), places.max(0)) if few else np.quantile(places, [RARE, 1 - RARE], 0)
    rim = 0.6 * cell_km / 111.2  # degrees: readings at the edge lie inside
    shrink = max(0.01, float(np.cos(np.radians(low[0]))))
    return SquareGrid.covering(
        south=round(float(low[0]) - rim, 5),
        west=round(float(low[1]) - rim / shrink, 5),
        north=round(float(high[0]) + rim, 5),
        east=round(float(high[1]) + rim / shrink, 5),
        cell_km=repr(cell_km),
    )


def backdrop(params: Mapping[str, Any], chain: SparseChain) -> list[list[list[float]]]:
    """Return lines to draw below the cells, in kilometres, such as coasts and streets."""
    file = params.get("backdrop")
    if not file:
        return []
    if chain.grid is None:
        raise InputError("the model has no map to draw lines on")
    places = chain.grid.lattice_of(np.asarray(chain.cells)) * float(chain.grid.step_km)
    low, high = places.min(0) - 2, places.max(0) + 2
    corner = chain.grid.to_degrees(np.zeros(2))
    scale = chain.grid.to_degrees(np.ones(2)) - corner  # degrees of one kilometre
    kept: list[list[list[float]]] = []
    for line in _lines_of_shape(geojson(Path(str(file)))):
        drawn = ((line[:, ::-1] - corner) / scale)[:, ::-1]
        if len(drawn) > 1 and (drawn.min(0) <= high).all() and (drawn.max(0) >= low).all():
            kept.append(np.round(drawn, 4).tolist())
    if not kept:
        raise InputError("no line of the backdrop crosses this map; is it of another place?")
    count = sum(map(len, kept))
    if count > MOST_POINTS_DRAWN:
        raise InputError(
            f"the backdrop has {count:,} points here; the studio draws "
            f"{MOST_POINTS_DRAWN:,}: simplify it"
        )
    return kept


def _lines_of_shape(shape: Any) -> list[Any]:
    """Every line and every edge of an area in a GeoJSON object: arrays of (longitude, latitude)."""
    if not isinstance(shape, dict):
        return []
    inner = shape.get("features") or shape.get("geometries") or ()
    parts = [line for one in inner for line in _lines_of_shape(one)] + _lines_of_shape(
        shape.get("geometry")
    )
    deep = {"LineString": 0, "MultiLineString": 1, "Polygon": 1, "MultiPolygon": 2}
    lines: list[Any] = [shape.get("coordinates")]
    if shape.get("type") not in deep:
        return parts
    try:
        for _ in range(deep[shape["type"]]):
            lines = [line for many in lines for line in many]
        own = [np.array([point[:2] for point in line], dtype=np.float64) for line in lines]
    except (TypeError, ValueError, IndexError):
        raise InputError("the backdrop holds a line that is no list of places") from None
    return parts + [line for line in own if line.ndim == 2 and line.shape[1] == 2]
