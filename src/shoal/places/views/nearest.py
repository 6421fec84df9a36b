"""Places in `shoal nearest`: what a service finds near released positions instead of true ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cli.nearest import NearestReport
from shoal.cli.sources import NamedColumns, load_plan
from shoal.core.codec import Bools, Floats
from shoal.core.errors import DataError, InputError
from shoal.data.entries import read_table
from shoal.data.formats import format_of
from shoal.data.json_items import json_items
from shoal.data.points import read_points
from shoal.data.read import matching
from shoal.places.nearest import (
    OTHER_ESTIMATE_KM,
    PlaneMap,
    beliefs,
    k_nearest,
    lattice_points,
    nearest_sets,
    recall,
)
from shoal.places.tracks import tracks_of
from shoal.places.views.fit import track_positions

if TYPE_CHECKING:
    import polars as pl

    from shoal.cli.nearest import NearestOptions
    from shoal.core.plan import Plan

DEGREES = ("z_lat", "z_lon", "estimate_lat", "estimate_lon")
KEYS = ("user", "part", "step")


def report_nearest(options: NearestOptions) -> NearestReport:
    """Compare the points of interest near a release with those that are near the true track."""
    rows, table = read_release(options.release), read_points(options.places)
    if options.category is not None:
        table = _of_category(table, options.category)
    places = table.select("lat", "lon").to_numpy()
    names = _names(table)
    plane = PlaneMap.around(places)
    near = plane.km(places)
    estimates = plane.km(rows.select("estimate_lat", "estimate_lon").to_numpy())
    (order,) = k_nearest(near, estimates[-1:], options.k)
    away = np.sqrt(((near[order] - estimates[-1]) ** 2).sum(axis=1))
    found: dict[str, Any] = {
        "steps": rows.height,
        "streams": rows.select("user", "part").n_unique(),
        "places": len(places),
        "last": tuple((names[k], float(km)) for k, km in zip(order, away, strict=True)),
    }
    if options.spec is None:
        return NearestReport(**found)
    plan, columns = load_plan(options.spec, NamedColumns())
    sets = _sets(plan, rows, places, options.confidence)
    found |= {"set_size": float(sets.sum(axis=1).mean())}
    found |= {"last_set": tuple(names[k] for k in np.flatnonzero(sets[-1]))}
    if not options.truth:
        return NearestReport(**found)
    truth = plane.km(_true_positions(plan, rows, options.truth, columns))
    points = plane.km(rows.select("z_lat", "z_lon").to_numpy())
    known = np.isfinite(truth).all(axis=1)
    if not known.any():
        raise DataError(
            "no step of the release has a true position; name with --truth the data that was "
            "released"
        )
    shown = known & np.isfinite(points).all(axis=1)
    (first,) = k_nearest(near, truth[known], 1).T
    return NearestReport(
        **found,
        compared=int(known.sum()),
        recall_point=recall(near, truth[shown], points[shown], options.k) if shown.any() else None,
        recall_estimate=recall(near, truth[known], estimates[known], options.k),
        covered=float(sets[known][np.arange(len(first)), first].mean()),
    )


def read_release(path: Path) -> pl.DataFrame:
    """Return a row for each step of a release of tracks: KEYS and DEGREES, sorted by KEYS."""
    import polars as pl

    (file,) = matching(path)[:1]
    if format_of(file).name == "GPX":
        raise InputError(
            f"{str(path)!r} is GPX, which holds estimates alone; release to .geojson, .csv, "
            ".parquet or .jsonl"
        )
    if format_of(file).name == "GeoJSON":
        table = pl.DataFrame(list(_steps_of(file)), infer_schema_length=None)
    else:
        table = read_table(file)
    missing = next((name for name in (*KEYS, *DEGREES) if name not in table.columns), None)
    if missing is not None:
        raise InputError(
            f"{str(path)!r} has no {missing!r}; name a file that `shoal release` wrote of a track "
            "on a map"
        )
    kinds: dict[str, Any] = {"user": pl.String, "part": pl.Int64, "step": pl.Int64}
    kinds |= dict.fromkeys(DEGREES, pl.Float64)
    return table.select([pl.col(name).cast(kind) for name, kind in kinds.items()]).sort(KEYS)


def _steps_of(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a released GeoJSON."""
    for item in json_items(file):
        if item.key == "features" and (item.value.get("properties") or {}).get("kind") == "step":
            longitude, latitude = item.value["geometry"]["coordinates"]
            own = item.value["properties"]
            yield {**own, "time": None, "estimate_lat": latitude, "estimate_lon": longitude}


def _of_category(table: pl.DataFrame, category: str) -> pl.DataFrame:
    """Return the points of interest of one category."""
    import polars as pl

    if "category" not in table.columns:
        raise InputError("--category is given, but the points of interest have no such column")
    kept = table.filter(pl.col("category") == category)
    if not kept.height:
        there = ", ".join(map(repr, table["category"].drop_nulls().unique().sort()[:8]))
        raise InputError(f"--category is {category!r}, which no point has; there are {there}, …")
    return kept


def _names(table: pl.DataFrame) -> list[str]:
    """Return a name for each point: its own, else its category and place."""
    import polars as pl

    spot = pl.format("{}, {}", pl.col("lat").round(4), pl.col("lon").round(4))
    texts = [pl.col("name")] if "name" in table.columns else []
    if "category" in table.columns:
        texts.append(pl.format("{} at {}", pl.col("category"), spot))
    return list(table.select(pl.coalesce([*texts, spot])).to_series())


def _sets(plan: Plan, rows: pl.DataFrame, places: Floats, confidence: float) -> Bools:
    """Return for each row which places hold the nearest one; from the outputs of its stream."""
    parts = []
    for _, own in rows.group_by(["user", "part"], maintain_order=True):
        degrees = own.select("z_lat", "z_lon").to_numpy()
        shown = np.isfinite(degrees).all(axis=1)
        outputs: list[Any] = [None] * own.height
        for row, z in zip(
            np.flatnonzero(shown).tolist(), lattice_points(plan, degrees[shown]), strict=True
        ):
            outputs[row] = tuple(z.tolist())
        if own["step"].to_list() != list(range(own.height)):
            raise DataError("the release lacks steps of a stream; name the whole file")
        found = list(beliefs(plan, outputs))
        _refuse_other_estimates(plan, own, [release for _, release in found])
        believed = [belief for belief, _ in found]
        parts.append(nearest_sets(plan.task.family[0], believed, places, confidence=confidence))
    return np.concatenate(parts)


def _refuse_other_estimates(plan: Plan, own: pl.DataFrame, releases: list[Any]) -> None:
    """Refuse a release whose estimates do not follow from its points under this plan."""
    grid: Any = getattr(plan.task.family[0], "grid", None)
    made = [release.degrees(grid)[1] for release in releases]
    estimates = own.select("estimate_lat", "estimate_lon").to_numpy()
    plane = PlaneMap.around(estimates)
    away = np.sqrt(((plane.km(np.array(made)) - plane.km(estimates)) ** 2).sum(axis=1))
    if away.max() > OTHER_ESTIMATE_KM:
        raise DataError(
            "the estimates of the release do not follow from its points under this plan; give the "
            "spec or plan it was made with"
        )


def _true_positions(plan: Plan, rows: pl.DataFrame, truth: str, columns: NamedColumns) -> Floats:
    """Return the true latitude and longitude of each row; not a number where it is unknown."""
    named = columns.with_own([truth])
    table, where = track_positions(plan, [truth], named, None)
    if where.latitude is None:
        raise InputError(
            "--truth needs positions in degrees; name data with latitude and longitude"
        )
    known = {
        (track.user, track.part, step): reading
        for track in tracks_of(table, where)
        for step, reading in enumerate(track.readings)
        if reading is not None
    }
    keys = rows.select("user", "part", "step").rows()
    unknown = (float("nan"), float("nan"))
    return np.array([known.get(key, unknown) for key in keys])
