"""Spark workers killed after sampling: the Python process of a task, and a whole executor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.jobs import spark as engine
from shoal.jobs.spark import check_java
from shoal.ledger import open_ledger
from tests.engine_jobs import days, job, released, spread
from tests.engine_spark import GROUP, spark_session  # noqa: F401

pytestmark = [GROUP, pytest.mark.slow]


def check(out: Path, where: str) -> None:
    """Everybody once, and what is shown is what the ledger stored."""
    with open_ledger(where) as ledger:
        assert ledger.verify().intact
        stored = {e.subject: ledger.release(e).answer.multiples for e in ledger.charges()}
        assert ledger.verify().charges == len(stored) == 20
    table = released(out)
    assert table["subject"].to_list() == sorted(stored)
    for row in table.to_dicts():
        assert stored[row["subject"]] == tuple(row["multiples"].values())


def test_python_workers_killed_after_sampling(spark: Any, tmp_path: Path) -> None:
    data = spread(days(), tmp_path / "in", 2)
    where = str(tmp_path / "budget.db")
    marks = tmp_path / "marks"
    marks.mkdir()

    def die_twice(shard: int) -> None:
        for mark in (marks / "first", marks / "second"):
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    report = engine.run(job(data, tmp_path / "out", ledger=where), spark, after_sampling=die_twice)
    assert report.adds_up
    assert (marks / "second").exists()
    check(tmp_path / "out", where)


EXECUTORS = """
import json, os, signal, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from shoal.jobs import spark as engine
from shoal.jobs.job import load_job

out, marks = sys.argv[1], Path(sys.argv[2])
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key, value in {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "4",
    "spark.task.maxFailures": "8",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()


def kill_executor(shard):
    # the Python worker's parent is Spark's daemon, and the daemon's parent the executor
    try:
        (marks / "killed").touch(exist_ok=False)
    except FileExistsError:
        return
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(executor, signal.SIGKILL)
    time.sleep(30)


report = engine.resume(load_job(out), spark, after_sampling=kill_executor)
print(json.dumps(report.as_dict()))
"""


def test_an_executor_killed_after_sampling(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    check_java()
    data = spread(days(), tmp_path / "in", 2)
    where = str(tmp_path / "budget.db")
    made = job(data, tmp_path / "out", ledger=where, memory=30_000)
    made.store()
    done = subprocess.run(
        [sys.executable, "-c", EXECUTORS, str(made.out), str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "killed").exists()
    assert json.loads(done.stdout.splitlines()[-1])["finished"]
    check(tmp_path / "out", where)


SUBMITTED = """
import sys
import shoal
from tests.engine_jobs import plan

report = shoal.release_files(
    plan(), sys.argv[1], out=sys.argv[2], by="user", state="activity", time="minute",
    gap="10min", engine="spark", seed=9,
)
assert report.adds_up and report.releases == 20, report
"""


def test_a_script_under_spark_submit(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    check_java()
    data = spread(days(), tmp_path / "in", 2)
    script = tmp_path / "script.py"
    script.write_text(SUBMITTED)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
            *(str(script), str(data), str(tmp_path / "out")),
        ],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert released(tmp_path / "out").height == 20
