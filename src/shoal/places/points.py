"""Policies on points of interest: hide which restaurant one is at, and show the area."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive
from shoal.core.task import Model
from shoal.data import points as files
from shoal.places.formats import centres_of, on_map
from shoal.places.map import EARTH_RADIUS_M
from shoal.places.policy import NO_EDGES, PolicyGraph, Repair, edges_within

if TYPE_CHECKING:
    import polars as pl

    from shoal.places.walk import SparseChain

MAX_PAIRS = 20_000_000  # of states of one category without a distance: 320 MB
MOST_NAMES = 8  # that an error lists


def policy_of_points(
    model: Model,
    points: pl.DataFrame | str | Path,
    *,
    same: str | None = None,
    within: Number | None = None,
    only: Sequence[str] | None = None,
    repair: Repair = "nearest",
) -> PolicyGraph:
    """Return the policy that joins the states of two points of interest that look alike.

    Two states of a map are joined when one holds a point and the other another one of the same
    text in column `same` (None: any two points) at most `within` km away (None: anywhere; decided
    on whole metres). `only` keeps the points with one of these texts. Points off the map do not
    count. States without a point are joined to nobody.
    """
    chain = on_map(model)
    table = points if not isinstance(points, str | Path) else read_points(points)
    kinds = _kinds(table, same, only)
    cells = cells_of(chain, table)
    on = np.array([cell >= 0 and kind is not None for cell, kind in zip(cells, kinds, strict=True)])
    if not on.any():
        raise InputError(
            "none of the points of interest lies on the model's map; check latitude and longitude, "
            "or the file"
        )
    metres, edges = metres_of(chain, table["lat"], table["lon"]), [NO_EDGES]
    for kind in sorted({kind for kind, kept in zip(kinds, on, strict=True) if kept and kind}):
        chosen = on & np.array([each == kind for each in kinds])
        edges.append(edges_of_points(cells[chosen], metres[chosen], within))
    found = np.concatenate(edges)
    lonely = len(np.setdiff1d(np.unique(cells[on]), found))
    graph = PolicyGraph.of(chain.states, [], repair=repair)
    return PolicyGraph(
        states=graph.states,
        edges=found,
        groups=graph.groups,
        title=_title(same, within, only, (int(on.sum()), len(np.unique(cells[on])), lonely)),
        repair=repair,
    )


def read_points(path: str | Path) -> pl.DataFrame:
    """Return points of interest: lat, lon and their properties as text, such as name and category.

    From OpenStreetMap (.osm, Overpass JSON), GeoJSON, or a table with latitude and longitude.
    """
    return files.read_points(path)


def cells_of(chain: SparseChain, table: pl.DataFrame) -> Ints:
    """Return the number of the state that covers each point; -1 where none does."""
    assert chain.grid is not None
    assert chain.cells is not None
    found = chain.grid.cell_of(table["lat"].to_numpy(), table["lon"].to_numpy())
    order = np.argsort(chain.cells)
    place = np.searchsorted(chain.cells[order], found).clip(max=chain.size - 1)
    states = order[place]
    known: Any = chain.cells[states] == found
    return np.where(known, states, -1)


def places_by_name(chain: SparseChain, table: pl.DataFrame) -> dict[str, Any]:
    """Return each name and each category of points on the map, as a GeoJSON MultiPoint.

    A name that is a category too stands for the category.
    """
    on = table.filter(cells_of(chain, table) >= 0)
    found: dict[str, Any] = {}
    for column in ("name", "category"):
        if column in on.columns:
            for (text,), own in on.drop_nulls(column).group_by([column], maintain_order=True):
                points = own.select("lon", "lat").rows()
                found[str(text)] = {"type": "MultiPoint", "coordinates": [*map(list, points)]}
    return found


def _kinds(table: pl.DataFrame, same: str | None, only: Sequence[str] | None) -> list[str | None]:
    """Return per point the text of the column `same`; without `same`, "any". None does not count.

    `only` names the texts that count. Refuses a missing column, and a text that no point has.
    """
    column = same if same is not None else "category"
    if column not in table.columns and (same is not None or only is not None):
        raise InputError(
            f"the points of interest have no column {column!r}; they have "
            f"{', '.join(table.columns[:MOST_NAMES])}: name one of these with same"
        )
    if column not in table.columns:
        return ["any"] * table.height
    texts = table[column].to_list()
    unknown = [name for name in only or () if name not in texts]
    if unknown:
        there = ", ".join(map(repr, sorted({text for text in texts if text})[:MOST_NAMES]))
        raise InputError(
            f"only names {unknown[0]!r}, which no point of interest has in {column!r}; there are "
            f"{there}, …"
        )
    kept = [text if only is None or text in only else None for text in texts]
    return kept if same is not None else [None if only and not text else "any" for text in kept]


def metres_of(chain: SparseChain, latitude: Any, longitude: Any) -> Ints:
    """Return points as whole metres east and north of the first state, on a plane map."""
    degrees = np.stack(
        [np.asarray(longitude, np.float64), np.asarray(latitude, np.float64)], axis=1
    )
    origin = centres_of(chain)[0]
    moved = (degrees - origin[::-1]) * (EARTH_RADIUS_M * math.pi / 180)
    moved[:, 0] *= math.cos(math.radians(float(centres_of(chain)[:, 0].mean())))
    metres: Ints = np.rint(moved).astype(np.int64)
    return metres


def edges_of_points(cells: Ints, metres: Ints, within: Number | None) -> Ints:
    """Return the pairs of states that hold two points at most `within` km apart (None: any two)."""
    if within is None:
        own = np.unique(cells)
        if len(own) * (len(own) - 1) // 2 > MAX_PAIRS:
            raise InputError(
                f"{len(own):,} states hold points that look alike, and every two of them would be "
                'joined; say how near, such as within = "1 km"'
            )
        return own[np.stack(np.triu_indices(len(own), 1), axis=1)]
    pairs = cells[edges_within(metres, (1000 * positive(within, "within")) ** 2)]
    return np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)


def _title(
    same: str | None,
    within: Number | None,
    only: Sequence[str] | None,
    counts: tuple[int, int, int],
) -> str:
    """Return the policy in words, with how many points and states it is about."""
    count, cells, lonely = counts
    what = "points of interest" if only is None else f"points of interest ({', '.join(only)})"
    alike = "" if same is None else f" of the same {same}"
    near = "" if within is None else f" within {float(positive(within, 'within')):g} km"
    alone = f", {lonely} of them with no other this near" if lonely and within is not None else ""
    alone = f", {lonely} of them with no other" if lonely and within is None else alone
    return f"{what}{alike}{near} of each other ({count} points in {cells} states{alone})"
