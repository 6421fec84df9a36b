"""A walk through a small made-up town: streets on a grid, places that are visited again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.errors import InputError
from shoal.core.value import Floats, Ints, locked
from shoal.data.dataset import Dataset, cut
from shoal.data.synthetic.rhythm import MONDAY, at_least_one, generator

if TYPE_CHECKING:
    import polars as pl

SOUTH, WEST = 50.0, 10.0  # the corner of the town; nobody lives in it
METRES_PER_DEGREE = 111_320.0
STRIDE_M = 75.0  # metres walked in a minute
JITTER_M = 6.0  # what a receiver is off by


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MapWalk:
    """One position a minute: degrees, and the cell of a `rows` × `columns` grid it falls in.

    Cell r * columns + c is row r from the south and column c from the west, `cell_m` metres wide.
    """

    latitude: Floats
    longitude: Floats
    cells: Ints
    rows: int
    columns: int
    cell_m: float
    south: float = SOUTH
    west: float = WEST

    def __post_init__(self) -> None:
        object.__setattr__(self, "latitude", locked(self.latitude))
        object.__setattr__(self, "longitude", locked(self.longitude))
        object.__setattr__(self, "cells", locked(self.cells, np.int64))

    def label(self, cell: int) -> str:
        """The name of a cell as a state: "r3c11"."""
        return f"r{cell // self.columns}c{cell % self.columns}"

    def dataset(self) -> Dataset:
        """The cells as one chain; the states are all cells of the grid, in order."""
        states = tuple(self.label(cell) for cell in range(self.rows * self.columns))
        return Dataset(states, ("walk",), (cut(self.cells, np.empty(0, np.int64)),))

    def table(self) -> pl.DataFrame:
        """Columns series, time, latitude, longitude and state (the cell)."""
        import polars as pl

        count = len(self.cells)
        end = MONDAY + timedelta(minutes=count - 1)
        return pl.DataFrame(
            {
                "series": ["walk"] * count,
                "time": pl.datetime_range(MONDAY, end, "1m", eager=True),
                "latitude": self.latitude,
                "longitude": self.longitude,
                "state": [self.label(int(cell)) for cell in self.cells],
            }
        )


def map_walk(
    days: int = 3, seed: int = 1, *, rows: int = 12, columns: int = 12, cell_m: float = 150.0
) -> MapWalk:
    """A person's positions, minute by minute: stays at home, work and other places, and the ways.

    Ways follow the streets, first along one direction, then the other; positions carry a
    receiver's error and never leave the map.
    """
    at_least_one(days=days, rows=rows, columns=columns)
    if not cell_m > 0:
        raise InputError(f"cell_m is {cell_m}; a cell must be wider than 0 metres")
    draw = generator(seed, 0)
    extent = np.array([rows, columns]) * cell_m
    places = draw.uniform(0.05, 0.95, (6, 2)) * extent
    path = np.concatenate([_day(places, draw) for _ in range(days)])
    path = np.clip(path + draw.normal(0, JITTER_M, path.shape), 0, np.nextafter(extent, 0))
    cells = np.minimum((path // cell_m).astype(np.int64), np.array([rows, columns]) - 1)
    narrow = np.cos(np.radians(SOUTH))
    return MapWalk(
        latitude=SOUTH + path[:, 0] / METRES_PER_DEGREE,
        longitude=WEST + path[:, 1] / (METRES_PER_DEGREE * narrow),
        cells=cells[:, 0] * columns + cells[:, 1],
        rows=rows,
        columns=columns,
        cell_m=cell_m,
    )


def _day(places: Floats, draw: np.random.Generator) -> Floats:
    """1,440 positions in metres from the corner: home, work, an errand or two, home."""
    errands = [int(i) for i in draw.integers(2, len(places), size=2)]
    stops = [(0, 8 * 60.0), (1, 4 * 60.0), (errands[0], 40.0), (1, 4 * 60.0), (errands[1], 60.0)]
    parts: list[Floats] = []
    here = places[0]
    for place, minutes in [*stops, (0, 1440.0)]:
        parts.append(_way(here, places[place], draw))
        here = places[place]
        stay = max(1, round(draw.normal(minutes, minutes / 10)))
        parts.append(np.repeat(here[None, :], stay, axis=0))
    return np.concatenate(parts)[:1440]


def _way(start: Floats, end: Floats, draw: np.random.Generator) -> Floats:
    """Positions a minute apart along two straight streets."""
    corner = np.array([start[0], end[1]] if draw.random() < 0.5 else [end[0], start[1]])
    legs = [(start, corner), (corner, end)]
    return np.concatenate(
        [
            np.linspace(a, b, int(np.abs(b - a).sum() // STRIDE_M) + 1, endpoint=False)
            for a, b in legs
        ]
    )
