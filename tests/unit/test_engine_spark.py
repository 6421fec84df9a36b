"""Jobs on Spark: the releases of the local engine, and one value per subject whatever fails."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.errors import DataError, InputError
from shoal.core.task import EachEntry
from shoal.jobs import local, spark as engine
from shoal.jobs.inputs import Layout
from shoal.jobs.job import load_job
from shoal.jobs.spark import check_java, check_reach
from shoal.ledger import open_ledger
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.records.kmeans import centroids
from shoal.records.pairwise import RecordGroups
from tests.engine_jobs import LAYOUT, days, job, plan, refused, released, spread, write
from tests.engine_spark import GROUP, spark_session  # noqa: F401
from tests.ledger_servers import KINDS, fresh_ledger
from tests.locations import town_task

pytestmark = [GROUP, pytest.mark.engines]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rows of twenty people over three files, some of which nobody can release."""
    frame = days().with_columns(
        pl.when(pl.col("user") == "u0003")
        .then(pl.lit("fly"))
        .otherwise("activity")
        .alias("activity")
    )
    return spread(frame, tmp_path / "in", 3)


def test_seeded_releases_are_those_of_the_local_engine(
    spark: Any,
    data: Path,
    tmp_path: Path,
) -> None:
    here = local.run(job(data, tmp_path / "here", seed=9))
    there = engine.run(job(data, tmp_path / "there", seed=9), spark)
    assert released(tmp_path / "there").equals(released(tmp_path / "here"))
    assert refused(tmp_path / "there") == refused(tmp_path / "here")
    assert there.adds_up
    assert there.finished
    assert there.shards >= 4
    for name in ("rows", "rows_released", "rows_refused", "subjects", "releases", "refusals"):
        assert getattr(there, name) == getattr(here, name), name
    assert there.spend == here.spend


@pytest.mark.slow
def test_groups_periods_and_folders_are_those_of_the_local_engine(
    spark: Any,
    tmp_path: Path,
) -> None:
    frame = days(users=6, minutes=20).with_columns(
        pl.when(pl.col("minute").dt.minute() < 10).then(1).otherwise(2).alias("week")
    )
    for shift in ("day", "night"):
        part = frame.filter(pl.col("shift") == shift).drop("shift")
        write(part, tmp_path / "in" / f"shift={shift}" / "part.csv")
    layout = replace(LAYOUT, group="shift", period="week", periods="independent")
    plans = {"day": plan(), "night": plan("2")}
    for name, run in (("here", local.run), ("there", lambda made: engine.run(made, spark))):
        run(job(tmp_path / "in", tmp_path / name, plans, layout=layout, seed=2))
    here, there = released(tmp_path / "here"), released(tmp_path / "there")
    assert here.height == 12
    assert there.equals(here)


@pytest.mark.slow
def test_context_days_are_those_of_the_local_engine(spark: Any, tmp_path: Path) -> None:
    matrix = [[0.8, 0.15, 0.05], [0.3, 0.65, 0.05], [0.45, 0.05, 0.5]]
    day = DayChain.of(
        matrix,
        initial=[0.9, 0.1, 0.0],
        states=("sit", "stand", "walk"),
        slots=6,
        slot_minutes=10,
        start_minute=480,
    )
    made = mask(day, SensitiveContexts.of("walk"), delta="0.3", check="mask-probabilistic")
    write(days(users=4, minutes=50), tmp_path / "in.parquet")
    layout = Layout(by="user", state="activity", time="minute", daily=True)
    for name, run in (("here", local.run), ("there", lambda one: engine.run(one, spark))):
        run(job(tmp_path / "in.parquet", tmp_path / name, made, layout=layout, seed=2))
    here, there = released(tmp_path / "here"), released(tmp_path / "there")
    assert here["period"].unique().to_list() == ["2024-05-01"]
    assert there.equals(here)


@pytest.mark.slow
def test_places_by_coordinates_are_those_of_the_local_engine(spark: Any, tmp_path: Path) -> None:
    made = calibrate_and_check(MECHANISMS["location-knorm"], town_task(4, 4), Fraction(1))
    rows = [
        (f"u{n % 3}", n, 38.998 + n * 7 % 20 / 1000, None if n == 9 else 116 + n * 3 % 25 / 1000)
        for n in range(24)
    ]
    rows.append(("u2", 99, 200.0, 116.0))
    frame = pl.DataFrame(rows, schema=["user", "at", "lat", "lon"], orient="row")
    spread(frame, tmp_path / "in", 2)
    layout = Layout(by="user", latitude="lat", longitude="lon", time="at")
    here_at, there_at = tmp_path / "here", tmp_path / "there"
    at_home = local.run(job(tmp_path / "in", here_at, made, layout=layout, seed=2))
    abroad = engine.run(job(tmp_path / "in", there_at, made, layout=layout, seed=2), spark)
    columns = ["subject", "step", "time", "multiples", "value_degrees", "possible"]
    here, there = (released(out).select(columns) for out in (here_at, there_at))
    assert here.height == 16
    assert here["multiples"].struct.field("east").null_count() == 1
    assert there.sort(columns[:2]).equals(here.sort(columns[:2]))
    assert refused(there_at) == {"u2": "a latitude or longitude that is not in degrees"}
    assert abroad.rows_off_map == at_home.rows_off_map > 0


@pytest.mark.slow
def test_centroids_are_those_of_the_local_engine(spark: Any, tmp_path: Path) -> None:
    query = centroids("xy", low=0, high=1, clusters=2, rounds=2)
    made = calibrate(query, EachEntry(), RecordGroups(2), epsilon=1, mechanism="group")
    numbers = [(f"r{n % 3}", n * 7 % 10 / 10, n * 3 % 10 / 10) for n in range(60)]
    frame = pl.DataFrame(numbers, schema=["region", "x", "y"], orient="row")
    frame.write_parquet(tmp_path / "in.parquet")
    layout = Layout(by="region", numbers=("x", "y"))
    for name, run in (("here", local.run), ("there", lambda one: engine.run(one, spark))):
        run(job(tmp_path / "in.parquet", tmp_path / name, made, layout=layout, seed=2))
    assert released(tmp_path / "there").equals(released(tmp_path / "here"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_run_returns_the_stored_values(
    kind: str,
    spark: Any,
    data: Path,
    tmp_path: Path,
) -> None:
    where = fresh_ledger(kind, tmp_path)
    engine.run(job(data, tmp_path / "o1", name="monday", ledger=where), spark)
    local.run(job(data, tmp_path / "o2", name="monday", ledger=where))
    assert released(tmp_path / "o1").equals(released(tmp_path / "o2"))
    with open_ledger(where) as ledger:
        assert ledger.verify().intact
        assert ledger.verify().charges == 19


def test_tasks_that_fail_after_sampling_return_the_stored_values(
    spark: Any,
    data: Path,
    tmp_path: Path,
) -> None:
    where = str(tmp_path / "budget.db")
    marks = tmp_path / "marks"
    marks.mkdir()

    def fail_twice(shard: int) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        (marks / f"{shard}-{context.attemptNumber()}").touch()
        if shard == 1 and context.attemptNumber() < 2:  # each failure costs a Python of its own
            raise RuntimeError("lost after sampling")

    report = engine.run(
        job(data, tmp_path / "out", name="monday", ledger=where), spark, after_sampling=fail_twice
    )
    assert report.adds_up
    assert report.releases == 19
    assert {"0-0", "1-0", "1-1", "1-2"} <= {mark.name for mark in marks.iterdir()}
    with open_ledger(where) as ledger:
        assert ledger.verify().charges == 19
        stored = {e.subject: ledger.release(e).answer.multiples for e in ledger.charges()}
    for row in released(tmp_path / "out").to_dicts():
        assert stored[row["subject"]] == tuple(row["multiples"].values())
    assert not (tmp_path / "out" / "_shoal" / "staged").exists()


@pytest.mark.slow
def test_without_a_ledger_a_failed_attempt_leaves_nothing_to_see(
    spark: Any,
    data: Path,
    tmp_path: Path,
) -> None:
    def fail_once(shard: int) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < 1:
            raise RuntimeError("lost after sampling")

    report = engine.run(job(data, tmp_path / "out"), spark, after_sampling=fail_once)
    table = released(tmp_path / "out")
    assert report.releases == table.height == table["subject"].n_unique() == 19
    assert not (tmp_path / "out" / "_shoal" / "staged").exists()


@pytest.mark.slow
def test_a_job_that_spark_gave_up_goes_on_locally(
    spark: Any,
    data: Path,
    tmp_path: Path,
) -> None:
    where = str(tmp_path / "budget.db")

    def always(shard: int) -> None:
        raise RuntimeError("never")

    made = job(data, tmp_path / "out", name="monday", ledger=where)
    with pytest.raises(Exception, match="never"):
        engine.run(made, spark, after_sampling=always)
    with open_ledger(where) as ledger:
        charged = {entry.subject: entry.value for entry in ledger.charges()}
    report = local.resume(load_job(tmp_path / "out"))
    assert report.finished
    assert report.releases == 19
    with open_ledger(where) as ledger:
        assert ledger.verify().charges == 19
        after = {entry.subject: entry.value for entry in ledger.charges()}
    assert {name: after[name] for name in charged} == charged


@pytest.mark.slow
def test_bad_files_stop_or_are_skipped(
    spark: Any,
    data: Path,
    tmp_path: Path,
) -> None:
    file = data / "f01.parquet"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"f01\.parquet' cannot be used: it cannot be read"):
        engine.run(job(data, tmp_path / "out"), spark)
    report = engine.run(job(data, tmp_path / "out", skip_bad=True), spark)
    assert [Path(bad.path).name for bad in report.bad_files] == ["f01.parquet"]
    assert report.rows == 400
    assert report.adds_up


def test_a_ledger_file_is_refused_when_workers_are_elsewhere(data: Path, tmp_path: Path) -> None:
    class Context:
        master = "spark://elsewhere:7077"

    class Session:
        sparkContext = Context()  # noqa: N815

    with pytest.raises(InputError, match="use a PostgreSQL ledger"):
        check_reach(Session(), job(data, tmp_path / "out", ledger=str(tmp_path / "budget.db")))


def test_a_missing_java_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="Spark needs a Java runtime, version 17"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InputError, match="JAVA_HOME is"):
        check_java()


def test_importing_the_engine_does_not_import_spark() -> None:
    code = "import sys, shoal.jobs.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
