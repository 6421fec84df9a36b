"""From what was observed to a state of the model: names, or coordinates on the map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.core.errors import InputError
from shoal.core.records import label
from shoal.core.task import Model
from shoal.core.value import Ints
from shoal.models.grid_chain import SparseChain

Reading = Any  # a state's name, (latitude, longitude), a mapping of either, or None


class Atlas:
    """The states of a model, found by name or, on a map, by coordinates."""

    def __init__(self, chain: Model) -> None:
        self._chain = chain
        self._index = {name: place for place, name in enumerate(chain.states or ())}
        self._of_cell: dict[int, int] = {}
        if isinstance(chain, SparseChain) and chain.cells is not None:
            self._of_cell = {int(cell): place for place, cell in enumerate(chain.cells)}
        self._points: Ints | None = None

    def state_of(self, observed: Reading) -> int:
        """The index of a state: by name, or by latitude and longitude.

        A mapping holds "state", or "lat" and "lon". Coordinates need a model with a grid; where
        no state covers them, the nearest state counts (in the map's plane, ties by index).
        """
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

    def _on_map(self, observed: Any) -> int:
        chain = self._chain
        if not isinstance(chain, SparseChain) or chain.grid is None:
            raise InputError(
                "the reading holds coordinates, but the model has no grid; name a state"
            )
        try:
            latitude, longitude = (float(value) for value in observed)
        except (TypeError, ValueError):
            raise InputError("the reading must hold two numbers: latitude and longitude") from None
        if not (math.isfinite(latitude) and math.isfinite(longitude)):
            raise InputError("the reading holds a coordinate that is not finite; skip the step")
        cell = int(chain.grid.cell_of(latitude, longitude))
        if cell in self._of_cell:
            return self._of_cell[cell]
        if self._points is None:
            self._points = chain.grid.lattice_of(chain.cells)
        offsets = self._points - chain.grid.lattice_near(latitude, longitude)
        return int((offsets**2).sum(axis=1).argmin())


def _inside(observed: Mapping[str, Any]) -> Any:
    """The reading in a mapping."""
    if "lat" in observed and "lon" in observed:
        return (observed["lat"], observed["lon"])
    if "state" in observed:
        return observed["state"]
    raise InputError("the reading has neither state nor lat and lon; give one of them")
