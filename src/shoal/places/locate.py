"""From what was observed to a state of the model: names, or coordinates on the map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.records import label
from shoal.core.task import Model
from shoal.places.map import Grid
from shoal.places.walk import SparseChain

COMPARED = 2**18  # points times states compared at once

Reading = Any  # a state's name, (latitude, longitude), a mapping of either, or None


class StateLocator:
    """The states of a model, found by name or, on a map, by coordinates."""

    def __init__(self, chain: Model) -> None:
        self._chain = chain
        self._index = {name: place for place, name in enumerate(chain.states or ())}
        self._of_cell: Ints | None = None
        self._points: Ints | None = None

    def state_of(self, observed: Reading) -> int:
        """The index of a state: by name, or by latitude and longitude.

        A mapping holds "state", or "lat" and "lon". Coordinates need a model with a grid; where
        no state covers them, the nearest state counts (in the map's plane, ties by index).
        """
        if isinstance(observed, str):
            place = self._index.get(observed)
            if place is not None:
                return place
        else:
            if isinstance(observed, Mapping):
                observed = _inside(observed)
            if isinstance(observed, Sequence | np.ndarray) and not isinstance(observed, str):
                return self._on_map(observed)
        place = self._index.get(label(observed))
        if place is None:
            raise InputError(
                "the reading names a state that is not one of the model's; give one of its names"
            )
        return place

    def states_of(self, latitudes: Floats, longitudes: Floats) -> tuple[Ints, Bools]:
        """The state of each point as `state_of` finds it, and which points no state covers.

        All coordinates must be finite, and the model must have a grid.
        """
        grid = self._grid()
        cells = grid.cell_of(latitudes, longitudes)
        states = self._by_cell()[cells]
        off = states < 0
        if off.any():
            states[off] = self._nearest(grid.lattice_near(latitudes[off], longitudes[off]))
        return states, off

    def _on_map(self, observed: Any) -> int:
        self._grid()
        try:
            latitude, longitude = (float(value) for value in observed)
        except (TypeError, ValueError):
            raise InputError("the reading must hold two numbers: latitude and longitude") from None
        if not (math.isfinite(latitude) and math.isfinite(longitude)):
            raise InputError("the reading holds a coordinate that is not finite; skip the step")
        # equal work on and off the map: how long a step takes must not tell which it was
        grid = self._grid()
        covering = int(self._by_cell()[int(grid.cell_of(latitude, longitude))])
        offsets = self._on_lattice() - grid.lattice_near(latitude, longitude)
        nearest = int((offsets * offsets).sum(axis=1).argmin())
        return (nearest, covering)[covering >= 0]

    def _grid(self) -> Grid:
        chain = self._chain
        if not isinstance(chain, SparseChain) or chain.grid is None:
            raise InputError(
                "the reading holds coordinates, but the model has no grid; name a state"
            )
        return chain.grid

    def _by_cell(self) -> Ints:
        """The state of each cell of the grid, -1 where none covers it, and last outside the map."""
        if self._of_cell is None:
            assert isinstance(self._chain, SparseChain)
            assert self._chain.cells is not None
            table = np.full(self._grid().size + 1, -1, dtype=np.int64)
            table[self._chain.cells] = np.arange(len(self._chain.cells))
            self._of_cell = table
        return self._of_cell

    def _on_lattice(self) -> Ints:
        """Where the states lie."""
        if self._points is None:
            assert isinstance(self._chain, SparseChain)
            self._points = self._grid().lattice_of(self._chain.cells)
        return self._points

    def _nearest(self, points: Ints) -> Ints:
        """The state nearest to each point of the lattice; equal points are looked up once."""
        own = self._on_lattice()
        # both coordinates in one number, which sorts faster than pairs do: each is below 2^31
        keys = points[:, 0] * 2**32 + points[:, 1]
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        distinct = points[first]
        found = np.empty(len(distinct), dtype=np.int64)
        together = max(1, COMPARED // len(own))
        for begin in range(0, len(distinct), together):
            some = slice(begin, begin + together)
            offsets = distinct[some, None, :] - own[None, :, :]
            found[some] = (offsets**2).sum(axis=2).argmin(axis=1)
        return np.asarray(found[which])


def _inside(observed: Mapping[str, Any]) -> Any:
    """The reading in a mapping."""
    if "lat" in observed and "lon" in observed:
        return (observed["lat"], observed["lon"])
    if "state" in observed:
        return observed["state"]
    raise InputError("the reading has neither state nor lat and lon; give one of them")
