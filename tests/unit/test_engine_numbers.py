"""K-means as a job: all rounds of every group of records, in one release each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.task import EachEntry
from shoal.jobs import local
from shoal.jobs.drawing import seeded_source
from shoal.jobs.inputs import Layout
from shoal.jobs.job import Job
from shoal.ledger import open_ledger
from shoal.mechanisms.choice import calibrate
from shoal.records.kmeans import centroids
from shoal.records.pairwise import RecordGroups
from tests.engine_jobs import refused, released

LAYOUT = Layout(by="region", numbers=("x", "y"))


@pytest.fixture(scope="module")
def plan() -> Plan:
    query = centroids("xy", low=0, high=1, clusters=2, rounds=2)
    return calibrate(query, EachEntry(), RecordGroups(2), epsilon=1, mechanism="group")


def points(rows: int = 90) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    return pl.DataFrame(
        {"region": [f"r{n % 3}" for n in range(rows)], "x": rng.random(rows), "y": rng.random(rows)}
    )


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("memory", [2**29, 3000], ids=["one-shard", "many-shards"])
def test_the_rounds_are_those_of_the_plain_interface(
    plan: Plan, suffix: str, memory: int, tmp_path: Path
) -> None:
    frame = points()
    for number in range(2):
        part = frame[number * 45 : number * 45 + 45]
        path = tmp_path / f"{number}.{suffix}"
        part.write_csv(path) if suffix == "csv" else part.write_parquet(path)
    made = Job.of(
        plan,
        tmp_path / f"*.{suffix}",
        out=tmp_path / "out",
        layout=LAYOUT,
        seed=3,
        memory=memory,
    )
    report = local.run(made)
    assert report.adds_up
    assert report.releases == 3
    for row in released(tmp_path / "out").to_dicts():
        own = frame.filter(pl.col("region") == row["subject"]).select("x", "y").to_numpy()
        wanted = plan.release(own, rng=seeded_source(3, plan, row["subject"], ""))
        assert tuple(row["multiples"].values()) == wanted.answer.multiples


def test_rows_without_a_number_are_refused_and_values_come_back(plan: Plan, tmp_path: Path) -> None:
    frame = points().with_columns(
        pl.when((pl.col("region") == "r1") & (pl.col("x") > 0.9))
        .then(None)
        .otherwise("x")
        .alias("x")
    )
    frame.write_parquet(tmp_path / "in.parquet")
    rest: dict[str, Any] = {
        "layout": LAYOUT,
        "ledger": str(tmp_path / "budget.db"),
        "name": "monday",
    }
    for out in ("o1", "o2"):
        local.run(Job.of(plan, tmp_path / "in.parquet", out=tmp_path / out, **rest))
    assert refused(tmp_path / "o1") == {"r1": "a row without a number"}
    assert released(tmp_path / "o1").equals(released(tmp_path / "o2"))
    with open_ledger(tmp_path / "budget.db") as ledger:
        assert ledger.verify().charges == 2


def test_a_job_is_about_states_or_about_numbers() -> None:
    with pytest.raises(InputError, match="but not more than one"):
        Layout(by="region")
    with pytest.raises(InputError, match="but not more than one"):
        Layout(by="region", state="s", numbers=("x",))
