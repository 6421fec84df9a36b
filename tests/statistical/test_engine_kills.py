"""Jobs killed with -9 at random moments, again and again: each subject is released exactly once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from shoal.jobs import local
from shoal.jobs.job import load_job
from shoal.ledger import open_ledger
from tests.engine_jobs import days, job, released, spread

USERS = 60
JOBS = 3
RESUME = """
import sys, time
from shoal.jobs.job import load_job
from shoal.jobs import local
made = load_job(sys.argv[1])
print("ready", flush=True)
begin = time.monotonic()
local.resume(made)
print(time.monotonic() - begin)
"""


def killed(out: Path, after: float, *, once_shown: bool) -> bool:
    """Whether a run that goes on with the job was killed `after` seconds of work.

    With `once_shown` the seconds count from the first file the run shows: shards are so quick
    that few moments drawn over the whole run would fall among them.
    """
    already = len(list(out.glob("*.parquet")))
    with subprocess.Popen(
        [sys.executable, "-c", RESUME, str(out)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while once_shown and process.poll() is None and len(list(out.glob("*.parquet"))) <= already:
            time.sleep(0.0002)
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return process.returncode == -signal.SIGKILL


def shown(out: Path) -> dict[str, object]:
    """Subject to its visible values; fails when one is there twice or a file is torn."""
    files = sorted(out.glob("*.parquet"))
    if not files:
        return {}
    table = pl.concat([pl.read_parquet(file) for file in files])
    assert table["subject"].is_unique().all()
    return {row["subject"]: row["multiples"] for row in table.to_dicts()}


def seconds_of(out: Path) -> float:
    """How long the whole job takes here and now, so that kills fall into all of it."""
    done = subprocess.run(
        [sys.executable, "-c", RESUME, str(out)], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def endure(out: Path, kills: int, longest: float, *, seed: int) -> int:
    """Kill the job until it survives or `kills` are used up; how many runs got somewhere."""
    draw = random.Random(seed)
    before: dict[str, object] = {}
    moments = 0
    for number in range(kills):
        among = number % 2 == 1
        if not killed(out, draw.uniform(0.0, 0.02 if among else longest), once_shown=among):
            break
        after = shown(out)
        # what was visible once stays as it was
        assert {name: after[name] for name in before} == before
        moments += len(before) < len(after) < USERS
        before = after
    report = local.resume(load_job(out))
    assert report.finished
    assert report.adds_up
    assert report.releases == USERS
    final = shown(out)
    assert {name: final[name] for name in before} == before
    assert len(final) == USERS
    return moments


@pytest.mark.parametrize(
    ("kills", "ledger"),
    [
        pytest.param(3, False, id="a-few"),
        pytest.param(12, False, id="many", marks=pytest.mark.slow),
        pytest.param(12, True, id="many-charged", marks=pytest.mark.slow),
    ],
)
def test_each_subject_is_released_once_however_often_the_job_is_killed(
    kills: int, ledger: bool, tmp_path: Path
) -> None:
    data = spread(days(users=USERS), tmp_path / "in", 3)
    where = str(tmp_path / "budget.db") if ledger else None
    moments = 0
    spare = job(data, tmp_path / "spare", memory=12_000)
    spare.store()
    longest = seconds_of(tmp_path / "spare")
    for number in range(1 if kills < 10 else JOBS):
        out = tmp_path / f"out{number}"
        made = job(data, out, memory=12_000, ledger=where, name=f"job-{number}")
        assert made.shards > 10
        made.store()
        moments += endure(out, kills, longest, seed=number)
    if kills >= 10:
        assert moments > 0  # some kills came between the first and the last release
    if where is not None:
        with open_ledger(where) as found:
            assert found.verify().intact
            assert found.verify().charges == JOBS * USERS
            last = {
                entry.subject: list(found.release(entry).answer.multiples)
                for entry in found.charges()[-USERS:]
            }
        table = released(tmp_path / f"out{JOBS - 1}")
        assert {row["subject"]: list(row["multiples"].values()) for row in table.to_dicts()} == last
