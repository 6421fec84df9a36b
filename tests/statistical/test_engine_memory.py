"""A job of 10^6 rows in a process of its own stays below a gigabyte, in one shard or in many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine_jobs import days, spread

LIMIT_MB = 1000
RUN = """
import resource, sys
from datetime import timedelta
from pathlib import Path
from tests.engine_jobs import job, plan
from shoal.jobs import local
data, out, memory = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
report = local.run(job(data, out, plan(length=1000), memory=memory))
assert report.rows == 1_000_000 and report.adds_up, report
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, report.shards)
"""


@pytest.mark.slow
@pytest.mark.parametrize("memory", [2**30, 2**23], ids=["one-shard", "many-shards"])
def test_a_million_rows_take_less_than_a_gigabyte(memory: int, tmp_path: Path) -> None:
    data = spread(days(users=1000, minutes=1000), tmp_path / "in", 4)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(data), str(tmp_path / "out"), str(memory)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    megabytes, shards = map(int, done.stdout.split())
    assert megabytes < LIMIT_MB
    assert (shards > 1) == (memory == 2**23)
