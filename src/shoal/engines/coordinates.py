"""Latitudes and longitudes to states: the map of each plan of a job, a whole column at a time.

A point is what it is in a single stream: the state whose cell holds it, off the map the nearest
state, and where a coordinate is missing a step at which nothing is observed. No point is an error
once a plan is drawing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.errors import DataError, InputError
from shoal.core.plan import Plan
from shoal.core.value import Floats, Ints
from shoal.engines.layout import Layout
from shoal.engines.tidy import NO_DEGREES, NO_STATE, coded, texts
from shoal.mechanisms.location_machine import LocationMachine
from shoal.mechanisms.location_place import Atlas
from shoal.models.filter import Truths
from shoal.models.grid import Grid
from shoal.models.grid_chain import SparseChain

if TYPE_CHECKING:
    import polars as pl

LATITUDES, LONGITUDES = 90, 180  # degrees on either side of zero


class Maps:
    """The maps of a job's plans, by group; a state is its index among `states`, those of all."""

    def __init__(self, plans: Mapping[str, Plan], states: Sequence[str]) -> None:
        index = {name: place for place, name in enumerate(states)}
        self._maps: dict[str, tuple[Atlas, Ints]] = {}
        for group, plan in plans.items():
            own = np.array([index[name] for name in plan.task.query.states], dtype=np.int64)
            self._maps[group] = atlas_of(plan), own

    def codes(self, frame: pl.DataFrame, layout: Layout, source: str) -> tuple[pl.Series, int]:
        """The state of each row, and how many points no state covers.

        NO_STATE where a coordinate is missing (and in a group without a plan), NO_DEGREES where
        one is no number of degrees.
        """
        import polars as pl

        assert layout.latitude is not None
        assert layout.longitude is not None
        latitudes, bad = degrees(frame[layout.latitude], source, LATITUDES)
        longitudes, worse = degrees(frame[layout.longitude], source, LONGITUDES)
        states = np.full(frame.height, NO_STATE, dtype=np.int32)
        off_map = 0
        usable = np.isfinite(latitudes) & np.isfinite(longitudes) & ~bad & ~worse
        for group, rows in self._parts(frame, layout, usable):
            atlas, own = self._maps[group]
            found, off = atlas.states_of(latitudes[rows], longitudes[rows])
            states[rows] = own[found]
            off_map += int(off.sum())
        states[bad | worse] = NO_DEGREES
        return pl.Series("state", states), off_map

    def _parts(
        self, frame: pl.DataFrame, layout: Layout, usable: Truths
    ) -> Iterator[tuple[str, Ints]]:
        """The usable rows of each group that has a map."""
        rows = np.flatnonzero(usable)
        if layout.group is None:
            yield from ((group, rows) for group in self._maps)
            return
        named = texts(frame[layout.group], "the group")[rows]
        rows, named = rows[named.is_not_null().to_numpy()], named.drop_nulls()
        codes, names = coded(named)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
        for place, group in enumerate(names):
            if group in self._maps:
                yield group, rows[order[bounds[place] : bounds[place + 1]]]


def names_at(plan: Plan, latitudes: Floats, longitudes: Floats) -> list[str | None]:
    """The name of the state at each point; None where a coordinate is missing or no degrees."""
    usable = (np.abs(latitudes) <= LATITUDES) & (np.abs(longitudes) <= LONGITUDES)
    found, _ = atlas_of(plan).states_of(latitudes[usable], longitudes[usable])
    names = np.full(len(latitudes), None, dtype=object)
    names[usable] = np.array(plan.task.query.states, dtype=object)[found]
    listed: list[str | None] = names.tolist()
    return listed


def atlas_of(plan: Plan) -> Atlas:
    """Where the states of a location plan lie; refused when its model has no map."""
    machine = plan.body
    if not isinstance(machine, LocationMachine) or _grid(machine) is None:
        raise InputError(
            f"latitude and longitude are given, but the model of {plan.mechanism} has no map; name "
            "the column of the states instead"
        )
    return machine.runtime.atlas


def grid_in_km(plan: Plan) -> Grid | None:
    """The map on which a plan's answers are points in km, so that they have degrees too."""
    machine = plan.body
    if not isinstance(machine, LocationMachine) or len(machine.query.labels) != 2:
        return None
    return _grid(machine) if machine.query.unit == "km" else None


def degrees(column: pl.Series, source: str, most: int) -> tuple[Floats, Truths]:
    """The numbers of a column, NaN where it is empty, and which values are no number of degrees."""
    import polars as pl

    if column.dtype == pl.String:
        text = column.str.strip_chars()
        column = text.set(text == "", None)
    elif not (column.dtype.is_numeric() or column.dtype == pl.Null):
        raise DataError(
            f"{source}: column {column.name!r} holds {column.dtype} values, not degrees"
        )
    numbers = column.cast(pl.Float64, strict=False)
    unread = (numbers.is_null() & column.is_not_null()).to_numpy()
    values = numbers.fill_null(np.nan).to_numpy()
    return values, unread | (np.abs(values) > most)


def _grid(machine: LocationMachine) -> Grid | None:
    chain = machine.chain
    return chain.grid if isinstance(chain, SparseChain) else None
