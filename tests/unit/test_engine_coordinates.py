"""Jobs that read latitudes and longitudes: the same steps as the cells they lie in, by name."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shoal.core.errors import DataError, InputError
from shoal.core.plan import Plan
from shoal.jobs import local
from shoal.jobs.drawing import seeded_source
from shoal.jobs.inputs import Layout
from shoal.jobs.job import Job, load_job
from shoal.jobs.local import release_files
from shoal.jobs.report import JobReport
from shoal.ledger import open_ledger
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.places.jobs import degrees, names_at
from shoal.places.machine import grid_in_km
from shoal.places.map import HexGrid, SquareGrid
from shoal.places.runtime import StateLocator
from shoal.places.stream import LocationStream
from shoal.places.walk import SparseChain
from tests.engine_jobs import plan as histogram_plan, refused, released
from tests.locations import running_task, town, town_task

BY_NAME = Layout(by="user", state="place", time="at")
BY_DEGREES = Layout(by="user", latitude="lat", longitude="lon", time="at")


def chain_on(grid: SquareGrid | HexGrid, cells: list[int]) -> SparseChain:
    """Any cell after any cell."""
    size = len(cells)
    return SparseChain.of(
        np.full((size, size), 1 / size),
        initial=np.full(size, 1 / size),
        states=[grid.name_of(cell) for cell in cells],
        grid=grid,
        cells=np.array(cells),
    )


def town_plan(rows: int = 5, columns: int = 5) -> Plan:
    return calibrate_and_check(MECHANISMS["location-knorm"], town_task(rows, columns), Fraction(1))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return town_plan()


def points(plan: Plan, users: int = 5, steps: int = 8, *, seed: int = 2) -> pl.DataFrame:
    """Random points on the map, some of them beyond its edge, with the state each stands for."""
    rng = np.random.default_rng(seed)
    total = users * steps
    lat, lon = 39 + rng.uniform(-0.01, 0.03, total), 116 + rng.uniform(-0.01, 0.04, total)
    return pl.DataFrame(
        {
            "user": [f"u{number // steps}" for number in range(total)],
            "at": [60 * (number % steps) for number in range(total)],
            "lat": lat,
            "lon": lon,
            "place": names_at(plan, lat, lon),
        }
    )


def run(made: Plan | dict[str, Plan], frame: pl.DataFrame, at: Path, layout: Layout) -> JobReport:
    frame.write_parquet(at.with_suffix(".parquet"))
    report = local.run(Job.of(made, at.with_suffix(".parquet"), out=at, layout=layout, seed=8))
    assert report.adds_up
    return report


def nearest_by_hand(chain: SparseChain, latitude: float, longitude: float) -> int:
    """The state whose cell holds the point, else the least squared distance in whole cells."""
    grid = chain.grid
    assert isinstance(grid, SquareGrid)
    assert chain.cells is not None
    radians = np.pi / 180
    height = float(grid.rows * grid.cell_m) / 6_371_008.8
    shrink = np.cos(float(grid.south) * radians + height / 2)
    per_degree = 6_371_008.8 * radians / float(grid.cell_m)
    row = int(np.floor((latitude - float(grid.south)) * per_degree))
    column = int(np.floor((longitude - float(grid.west)) * per_degree * shrink))
    far = [
        (int(cell) // grid.columns - row) ** 2 + (int(cell) % grid.columns - column) ** 2
        for cell in chain.cells
    ]
    return far.index(min(far))


def test_a_point_is_its_cell_or_the_nearest_state() -> None:
    whole = town(6, 7)
    assert isinstance(whole.grid, SquareGrid)
    rng = np.random.default_rng(1)
    for cells in (list(range(42)), sorted(rng.choice(42, 9, replace=False).tolist())):
        chain = chain_on(whole.grid, cells)
        lat, lon = 39 + rng.uniform(-0.02, 0.05, 400), 116 + rng.uniform(-0.02, 0.06, 400)
        states, off = StateLocator(chain).states_of(lat, lon)
        wanted = [nearest_by_hand(chain, *point) for point in zip(lat, lon, strict=True)]
        assert states.tolist() == wanted
        assert [
            StateLocator(chain).state_of(point) for point in zip(lat, lon, strict=True)
        ] == wanted
        assert off.tolist() == (~np.isin(whole.grid.cell_of(lat, lon), cells)).tolist()


def test_the_ends_of_the_earth_have_a_nearest_state_too() -> None:
    chain = town(3, 3)
    lat, lon = np.array([90.0, -90, 90, 39, 1e300]), np.array([180.0, -180, -180, 180, -1e300])
    states, off = StateLocator(chain).states_of(lat, lon)
    assert states.tolist() == [8, 0, 6, 2, 6]
    assert off.all()


def test_hexagons_are_found_by_coordinates() -> None:
    pytest.importorskip("h3")
    grid = HexGrid.covering(south=39.0, west=116.0, north=39.04, east=116.05, resolution=8)
    chain = chain_on(grid, list(range(0, grid.size, 2)))
    rng = np.random.default_rng(3)
    lat, lon = 39 + rng.uniform(0, 0.05, 40), 116 + rng.uniform(0, 0.06, 40)
    states, off = StateLocator(chain).states_of(lat, lon)
    assert 0 < off.sum() < 40
    near = grid.lattice_of(np.arange(0, grid.size, 2))
    for place, state in enumerate(states.tolist()):
        cell = int(grid.cell_of(lat[place], lon[place]))
        if off[place]:
            distances = ((near - grid.lattice_near(lat[place], lon[place])) ** 2).sum(axis=1)
            assert (cell % 2 or cell < 0, state) == (True, int(distances.argmin()))
        else:
            assert state == cell // 2


def test_coordinates_give_what_the_cells_give_by_name(plan: Plan, tmp_path: Path) -> None:
    frame = points(plan)
    by_name = run(plan, frame, tmp_path / "name", BY_NAME)
    by_degrees = run(plan, frame, tmp_path / "degrees", BY_DEGREES)
    assert released(tmp_path / "degrees").equals(released(tmp_path / "name"))
    assert 0 < by_degrees.rows_off_map < frame.height
    assert by_name.rows_off_map == 0
    assert by_degrees.releases == by_name.releases == 5


def test_a_trace_is_what_a_stream_of_coordinates_shows(plan: Plan, tmp_path: Path) -> None:
    frame = points(plan).with_columns(
        pl.when(pl.col("at") == 120).then(None).otherwise("lat").alias("lat"),
        pl.when(pl.col("at") == 240).then(float("nan")).otherwise("lon").alias("lon"),
    )
    run(plan, frame, tmp_path / "out", BY_DEGREES)
    table = released(tmp_path / "out")
    grid = grid_in_km(plan)
    assert grid is not None
    for (subject,), part in table.group_by("subject"):
        own = frame.filter(pl.col("user") == subject)
        stream = LocationStream.begin(plan)
        rng = seeded_source(8, plan, str(subject), "/0")
        for row, lat, lon in zip(part.to_dicts(), own["lat"], own["lon"], strict=True):
            known = lat is not None and not np.isnan(lon)
            stream, release = stream.read((lat, lon) if known else None, rng=rng)
            found = tuple(row["multiples"].values())
            assert (None if found[0] is None else found) == release.z
            assert (release.z is None) == (not known)
            estimate = tuple(row["estimate"].values())
            assert np.allclose(estimate, release.estimate, atol=1e-5)
            place = tuple(row["estimate_degrees"].values())
            assert np.allclose(place, grid.to_degrees(estimate), rtol=0, atol=1e-12)
            if release.point is None:
                assert row["value_degrees"] == {"lat": None, "lon": None}
            else:
                shown = tuple(row["value_degrees"].values())
                assert np.allclose(shown, grid.to_degrees(release.point), rtol=0, atol=1e-12)
            assert (row["possible"], row["step"]) == (release.possible, release.time - 1)


def test_a_row_without_a_name_is_a_skipped_step_too(plan: Plan, tmp_path: Path) -> None:
    gaps = pl.when(pl.col("at") == 180).then(None)
    frame = points(plan).with_columns(
        gaps.otherwise("place").alias("place"), gaps.otherwise("lat").alias("lat")
    )
    run(plan, frame, tmp_path / "name", BY_NAME)
    run(plan, frame, tmp_path / "degrees", BY_DEGREES)
    table = released(tmp_path / "name")
    assert table.equals(released(tmp_path / "degrees"))
    silent = table.filter(pl.col("multiples").struct.field("east").is_null())
    assert silent["step"].to_list() == [3] * 5


def test_skipped_steps_cost_nothing(plan: Plan, tmp_path: Path) -> None:
    frame = points(plan, users=2).with_columns(
        pl.when(pl.col("at") < 180).then(None).otherwise("lat").alias("lat")
    )
    frame.write_parquet(tmp_path / "in.parquet")
    where = str(tmp_path / "budget.db")
    rest: dict[str, Any] = {"layout": BY_DEGREES, "ledger": where, "name": "monday"}
    for out in ("o1", "o2"):
        local.run(Job.of(plan, tmp_path / "in.parquet", out=tmp_path / out, **rest))
    assert released(tmp_path / "o1").equals(released(tmp_path / "o2"))
    with open_ledger(where) as ledger:
        assert ledger.verify().charges == 2 * 5
        spent = ledger.spent("u0")
        assert spent is not None
        assert spent.amount == 5


@pytest.mark.parametrize("column", ["lat", "lon"])
@pytest.mark.parametrize("value", [181.0, -180.5, float("inf"), "north"], ids=str)
def test_what_is_no_degree_refuses_the_person_before_anything_is_drawn(
    value: float | str, column: str, plan: Plan, tmp_path: Path
) -> None:
    frame = points(plan)
    wrong = (pl.col("user") == "u1") & (pl.col("at") == 60)
    kept = pl.col(column).cast(pl.String) if isinstance(value, str) else pl.col(column)
    frame = frame.with_columns(pl.when(wrong).then(pl.lit(value)).otherwise(kept).alias(column))
    report = run(plan, frame, tmp_path / "out", BY_DEGREES)
    assert refused(tmp_path / "out") == {"u1": "a latitude or longitude that is not in degrees"}
    assert (report.releases, report.rows_refused) == (4, 8)


def test_ninety_degrees_are_the_most_of_a_latitude_and_half_of_a_longitude(
    plan: Plan, tmp_path: Path
) -> None:
    lat = pl.when(pl.col("user") == "u1").then(-91.0).otherwise(90.0).alias("lat")
    run(plan, points(plan).with_columns(lat, lon=pl.lit(-180.0)), tmp_path / "out", BY_DEGREES)
    assert set(refused(tmp_path / "out")) == {"u1"}


def test_an_unknown_name_refuses_the_person(plan: Plan, tmp_path: Path) -> None:
    frame = points(plan).with_columns(
        pl.when(pl.col("user") == "u2").then(pl.lit("moon")).otherwise("place").alias("place")
    )
    run(plan, frame, tmp_path / "out", BY_NAME)
    assert refused(tmp_path / "out") == {"u2": "a state the model does not know"}


def test_text_files_hold_coordinates_too(plan: Plan, tmp_path: Path) -> None:
    frame = points(plan).with_columns(
        pl.when(pl.col("at") == 60).then(None).otherwise("lon").alias("lon")
    )
    run(plan, frame, tmp_path / "parquet", BY_DEGREES)
    padded = frame.with_columns(pl.concat_str(pl.lit(" "), "lat").alias("lat"))
    padded.write_csv(tmp_path / "in.csv")
    local.run(Job.of(plan, tmp_path / "in.csv", out=tmp_path / "csv", layout=BY_DEGREES, seed=8))
    assert released(tmp_path / "csv").equals(released(tmp_path / "parquet"))


def test_each_group_has_a_map_of_its_own(tmp_path: Path) -> None:
    plans = {"small": town_plan(4, 4), "large": town_plan(5, 6)}
    frame = points(plans["large"], users=6).drop("place")
    named = frame.with_columns(
        pl.when(pl.col("user") < "u3").then(pl.lit("small")).otherwise(pl.lit("large")).alias("map")
    )
    parts = [
        part.with_columns(
            pl.Series(
                "place", names_at(plans[group], part["lat"].to_numpy(), part["lon"].to_numpy())
            )
        )
        for group in plans
        for part in [named.filter(pl.col("map") == group)]
    ]
    lost = parts[0].head(8).with_columns(pl.lit("x").alias("user"), pl.lit("?").alias("map"))
    both = pl.concat([*parts, lost])
    for name, layout in (("name", BY_NAME), ("degrees", BY_DEGREES)):
        fields = {**layout.as_dict(), "group": "map"}
        run(
            plans, both.sample(fraction=1, shuffle=True, seed=3), tmp_path / name, Layout.of(fields)
        )
    assert released(tmp_path / "name").equals(released(tmp_path / "degrees"))
    assert refused(tmp_path / "degrees") == {"x": "a group without a plan"}


def test_many_shards_and_a_stored_job_keep_the_coordinates(plan: Plan, tmp_path: Path) -> None:
    frame = points(plan, users=12)
    run(plan, frame, tmp_path / "one", BY_DEGREES)
    report = release_files(
        plan,
        tmp_path / "one.parquet",
        out=tmp_path / "many",
        by="user",
        latitude="lat",
        longitude="lon",
        time="at",
        memory=4000,
        seed=8,
    )
    assert report.shards > 1
    assert report.rows_off_map > 0
    # estimates of streams stepped in other company may differ in their last bits
    order = ["subject", "chain", "step", "multiples", "value_degrees", "possible"]
    one, many = (released(tmp_path / out).select(order).sort(order[:3]) for out in ("one", "many"))
    assert many.equals(one)
    assert load_job(tmp_path / "many").layout == BY_DEGREES


def test_models_without_a_map_have_no_coordinates(plan: Plan, tmp_path: Path) -> None:
    points(plan).write_parquet(tmp_path / "in.parquet")
    unmapped = calibrate_and_check(MECHANISMS["location-knorm"], running_task(), Fraction(1))
    for made in (unmapped, histogram_plan()):
        with pytest.raises(InputError, match="has no map; name the column of the states"):
            Job.of(made, tmp_path / "in.parquet", out=tmp_path / "out", layout=BY_DEGREES)


def test_only_km_on_a_map_have_degrees(plan: Plan) -> None:
    assert grid_in_km(plan) is not None
    unmapped = calibrate_and_check(MECHANISMS["location-knorm"], running_task(), Fraction(1))
    assert grid_in_km(unmapped) is None
    assert grid_in_km(histogram_plan()) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"latitude": "lat"}, "go together"),
        ({"latitude": "lat", "longitude": "lon", "state": "place"}, "not more than one"),
        ({"latitude": "lat", "longitude": "lat"}, "named for two purposes"),
        ({}, "name the column of the state"),
    ],
    ids=["half", "both", "twice", "none"],
)
def test_columns_are_named_in_one_way(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Layout(by="user", **fields)  # type: ignore[arg-type]


def test_columns_of_other_things_are_no_coordinates() -> None:
    with pytest.raises(DataError, match="holds Boolean values, not degrees"):
        degrees(pl.Series("lat", [True]), "the table", 90)
    values, wrong = degrees(pl.Series("lat", [" 1.5", "", None, "x", "NaN", "-91"]), "a", 90)
    assert np.isnan(values).tolist() == [False, True, True, True, True, False]
    assert wrong.tolist() == [False, False, False, True, False, True]


def test_points_on_and_off_the_map_take_the_same_work() -> None:
    """The same functions in the same order, so that how long a step takes tells neither."""
    locator = StateLocator(town_task(4, 4).family[0])
    grid = town_task(4, 4).family[0].grid  # type: ignore[attr-defined]
    inside = tuple(grid.centre_of(5).tolist())
    called: list[str] = []

    def watch(frame: Any, event: str, arg: Any) -> None:
        called.append(f"{event} {getattr(arg, '__name__', frame.f_code.co_name)}")

    walks, before = [], sys.getprofile()
    for point in (inside, inside, (inside[0] + 40, inside[1]), (-inside[0], 0.0)):
        called.clear()
        sys.setprofile(watch)
        try:
            locator.state_of(point)
        finally:
            sys.setprofile(before)
        walks.append(list(called))
    assert walks[1] == walks[2] == walks[3]
    assert locator.state_of(inside) == 5
