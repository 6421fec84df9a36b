"""Figure 3.8 of the thesis: nearest points of interest asked from where one is said to be.

Precision |R ∩ R'| / k' and recall |R ∩ R'| / k, R the k nearest to the true position, R' the k'
nearest to the released one. Points of interest are Gowalla's venues in New York and the most
visited cells elsewhere, named by their cell.
"""

from __future__ import annotations

import numpy as np

from shoal.core.codec import Floats, Ints
from studies.location_study import Trails, follow, standard_runs
from studies.location_traces import Town, towns
from studies.report import Cell, Report, Table

SAME = (1, 3, 5, 10, 20)
FIXED, WIDER = 5, (5, 10, 15, 20, 25)
SHOWN = (0, 1, 2, 3)  # PIM and Laplace on the complete graph, G_util on the δ-set and the support


def run() -> Report:
    """Two tables per town."""
    tables: list[Table] = []
    for town in towns():
        runs = [standard_runs(town)[place] for place in SHOWN]
        trails = {one.title: follow(town, one, town.tracks) for one in runs}
        tables += [_same(town, trails), _wider(town, trails)]
    return Report(
        name="location-knn",
        source="Xiao 2017, Section 3.5.4, Figure 3.8; ε = 1, δ = .01.",
        tables=tuple(tables),
    )


def nearest(places: Floats, points: Floats, k: int) -> Ints:
    """The k places nearest to each point (n, 2), ties by index: (n, k)."""
    squares = ((points[:, None, :] - places[None, :, :]) ** 2).sum(axis=2)
    return np.argsort(squares, axis=1, kind="stable")[:, :k]


def shared(places: Floats, truth: Floats, shown: Floats, k: int, returned: int) -> float:
    """The mean of |R ∩ R'|."""
    right = nearest(places, truth, k)
    found = nearest(places, shown, returned)
    return float((right[:, :, None] == found[:, None, :]).any(axis=2).sum(axis=1).mean())


def _points(trail: Trails) -> tuple[Floats, Floats, Floats]:
    """True, released and estimated points of all tracks and steps."""
    truth, shown, guessed = trail.truth, trail.shown, trail.guessed
    return truth.reshape(-1, 2), shown.reshape(-1, 2), guessed.reshape(-1, 2)


def _same(town: Town, trails: dict[str, Trails]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for title, trail in trails.items():
        truth, shown, guessed = _points(trail)
        for which, points in (("released", shown), ("estimate", guessed)):
            values = [100 * shared(town.places, truth, points, k, k) / k for k in SAME]
            rows.append((title, which, *values))
    return Table(
        title=f"{town.name}, {len(town.places)} places: precision = recall in %, k' = k",
        columns=("release", "asked from", *(f"k = {k}" for k in SAME)),
        rows=tuple(rows),
        notes=(
            "the thesis: both grow with k, and PIM is better than Laplace",
            "places are venues in Gowalla, the most visited cells elsewhere",
        ),
    )


def _wider(town: Town, trails: dict[str, Trails]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for title, trail in trails.items():
        truth, shown, guessed = _points(trail)
        for which, points in (("released", shown), ("estimate", guessed)):
            values = [shared(town.places, truth, points, FIXED, many) for many in WIDER]
            cells = [
                f"{100 * value / many:.1f} / {100 * value / FIXED:.1f}"
                for value, many in zip(values, WIDER, strict=True)
            ]
            rows.append((title, which, *cells))
    return Table(
        title=f"{town.name}: precision / recall in %, k = {FIXED}",
        columns=("release", "asked from", *(f"k' = {many}" for many in WIDER)),
        rows=tuple(rows),
        notes=("the thesis: precision falls and recall rises with k'",),
    )
