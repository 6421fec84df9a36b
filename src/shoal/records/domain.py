"""The values of a record: points of a grid, or cells of an interval or a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import numbers
from shoal.core.codec import Floats, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.core.records import checked_states, label

MAX_DOMAIN_CELLS = 4096  # cells of a domain; a pair law has as many numbers squared


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordDomain(Value):
    """Cells low[c] ≤ value ≤ high[c], one row per cell and one column per coordinate.

    A finite grid has low = high, a point per cell, and may name them in `states`. An interval or a
    box is cut into cells: a law then says how likely each cell is and nothing about where in it,
    so that where a record lies in its cell may tell anything about the others. **Promises that
    rest on laws of cells are about cells**: which one a record lies in, not where in it. Only with
    `own_places`, which declares that given its cell the place of a record in it depends on nothing
    else, are they about values (records/dependent_means.md, "Cells"). Distances are l1, taken
    between the points of two cells that are farthest apart.
    """

    kind = "record-domain"

    low: Floats
    high: Floats
    states: tuple[str, ...] | None = None
    own_places: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        """Check cells and names, and store them locked."""
        low, high = numbers(self.low, "low"), numbers(self.high, "high")
        if low.ndim != 2 or low.shape != high.shape or low.size == 0:
            raise InputError(
                f"low has shape {low.shape} and high {high.shape}; both need a row per cell and a "
                "column per coordinate"
            )
        if len(low) > MAX_DOMAIN_CELLS:
            raise InputError(
                f"the domain has {len(low)} cells; at most {MAX_DOMAIN_CELLS} are handled"
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise InputError("the domain holds a number that is not finite; give it bounds")
        if (low > high).any():
            raise InputError("a cell of the domain has low above high; swap them")
        if self.states is not None:
            states = checked_states(self.states)
            if len(states) != len(low):
                raise InputError(f"{len(states)} states name {len(low)} values; give each its own")
            if (low != high).any():
                raise InputError(
                    "states names a cell that is wider than a point; name points, or leave the "
                    "names out"
                )
            object.__setattr__(self, "states", states)
        object.__setattr__(self, "low", as_read_only(low + 0.0))
        object.__setattr__(self, "high", as_read_only(high + 0.0))

    @classmethod
    def points(cls, values: npt.ArrayLike, *, states: Sequence[Any] | None = None) -> Self:
        """Return a finite grid: one number, or one vector, per value.

        Single numbers are their own labels unless `states` names them; vectors have none then.
        """
        array = numbers(values, "values")
        if array.ndim == 1:
            names = [label(v) for v in array.tolist()] if states is None else states
            return cls(low=array[:, None], high=array[:, None], states=_labels(names))
        return cls(low=array, high=array, states=None if states is None else _labels(states))

    @classmethod
    def named(cls, states: Sequence[Any]) -> Self:
        """Return labels as points: at their own numbers when all are numbers, else at 0, 1, 2, …"""
        names = _labels(states)
        try:
            places = [float(name) for name in names]
        except ValueError:
            places = [float(place) for place in range(len(names))]
        return cls.points(places, states=names)

    @classmethod
    def interval(cls, low: float, high: float, *, cells: int, own_places: bool = False) -> Self:
        """Return [low, high], cut into cells of equal width."""
        return cls.box([low], [high], cells=cells, own_places=own_places)

    @classmethod
    def box(
        cls, low: Sequence[float], high: Sequence[float], *, cells: int, own_places: bool = False
    ) -> Self:
        """Return a box, every axis cut into `cells` equal parts; the last axis varies fastest."""
        count = whole(cells, "cells")
        starts, ends = numbers(low, "low"), numbers(high, "high")
        if starts.ndim != 1 or starts.shape != ends.shape or not (starts < ends).all():
            raise InputError("low and high must be as many numbers, each low below its high")
        if count ** len(starts) > MAX_DOMAIN_CELLS:
            raise InputError(
                f"{count} cells on each of {len(starts)} axes are more than {MAX_DOMAIN_CELLS}; "
                "take fewer cells"
            )
        edges = [np.linspace(a, b, count + 1) for a, b in zip(starts, ends, strict=True)]
        below = np.meshgrid(*[edge[:-1] for edge in edges], indexing="ij")
        above = np.meshgrid(*[edge[1:] for edge in edges], indexing="ij")
        stack = (np.stack([side.ravel() for side in sides], axis=1) for sides in (below, above))
        return cls(low=next(stack), high=next(stack), own_places=own_places)

    @property
    def size(self) -> int:
        """How many values, or cells."""
        return len(self.low)

    @property
    def centres(self) -> Floats:
        return np.asarray((self.low + self.high) / 2)

    @property
    def width(self) -> float:
        """The largest l1 distance within one cell; 0 for a grid of points, and only then."""
        return float((self.high - self.low).sum(axis=1).max())

    @property
    def known_inside(self) -> bool:
        """Whether laws of cells are laws of values: they are points, or their places are own."""
        return self.own_places or self.width == 0

    def distances(self) -> Floats:
        """Return the largest l1 distance between a value of cell x and one of cell y, (size,
        size).
        """
        forth = self.high[:, None, :] - self.low[None, :, :]
        back = self.high[None, :, :] - self.low[:, None, :]
        return np.asarray(np.maximum(forth, back).sum(axis=2))

    @property
    def diameter(self) -> float:
        """ΔD: how far apart two values of a record can be."""
        return float(self.distances().max())

    def cell_of(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the cell of each value, (count,) from numbers or (count, coordinates) from
        vectors.

        A value on an edge goes to the first cell that holds it; one outside of all is refused.
        """
        array = numbers(values, "values")
        rows = array[:, None] if array.ndim == 1 else array
        if rows.ndim != 2 or rows.shape[1] != self.low.shape[1]:
            raise InputError(
                f"values has shape {array.shape}; the domain has {self.low.shape[1]} coordinates"
            )
        found = np.empty(len(rows), dtype=np.int64)
        for start in range(0, len(rows), 4096):
            part = rows[start : start + 4096, None, :]
            inside = np.asarray(((self.low <= part) & (part <= self.high)).all(axis=2))
            if not inside.any(axis=1).all():
                raise InputError("a value lies outside the domain; widen it or clip the values")
            found[start : start + 4096] = inside.argmax(axis=1)
        return found

    def describe(self) -> str:
        if self.width == 0:
            return f"{self.size} values"
        return f"{self.size} cells up to {self.width:.3g} wide"


def _labels(states: Sequence[Any]) -> tuple[str, ...]:
    return tuple(label(state) for state in states)
