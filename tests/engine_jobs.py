"""Small lakes of data for the tests of the engines, and plans that are cheap to calibrate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.chains.model import MarkovChain
from shoal.core.plan import Plan
from shoal.core.task import EachEntry
from shoal.jobs.inputs import Layout
from shoal.jobs.job import Job
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import histogram

STATES = ("sit", "stand", "walk")
MATRIX = [[0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]]
LAYOUT = Layout(by="user", state="activity", time="minute", gap=timedelta(minutes=10))


def plan(
    epsilon: str = "1",
    *,
    length: int = 60,
    mechanism: str = "group",
    states: Sequence[str] = STATES,
) -> Plan:
    """A histogram of three activities."""
    chain = MarkovChain.of(MATRIX, states=states, length=length)
    query = histogram(chain.states)
    return calibrate(query, EachEntry(), chain, epsilon=epsilon, mechanism=mechanism)


def days(users: int = 20, minutes: int = 30, *, seed: int = 0) -> pl.DataFrame:
    """`minutes` rows for each user, ordered by time, so that every user is all over the table."""
    rng = np.random.default_rng(seed)
    total = users * minutes
    who = np.tile(np.arange(users), minutes)
    minute = np.repeat(np.arange(minutes), users)
    start = np.datetime64("2024-05-01T08:00:00", "us")
    return pl.DataFrame(
        {
            "user": pl.Series([f"u{number:04d}" for number in who]),
            "minute": pl.Series(start + minute.astype("timedelta64[m]").astype("timedelta64[us]")),
            "activity": pl.Series([STATES[code] for code in rng.integers(0, 3, total)]),
            "shift": pl.Series(["day" if number % 2 else "night" for number in who]),
        }
    )


def spread(frame: pl.DataFrame, folder: Path, files: int, suffix: str = "parquet") -> Path:
    """The rows in `files` files, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-frame.height // files)
    for number in range(files):
        write(frame[number * size : (number + 1) * size], folder / f"f{number:02d}.{suffix}")
    return folder


def write(frame: pl.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".parquet":
            frame.write_parquet(path)
        case ".csv":
            frame.write_csv(path)
        case _:
            frame.with_columns(pl.col("minute").dt.to_string("iso")).write_ndjson(path)
    return path


def job(data: Path | str, out: Path, made: Any = None, **rest: Any) -> Job:
    """A job over `data` with the layout of `days`."""
    rest.setdefault("layout", LAYOUT)
    return Job.of(plan() if made is None else made, data, out=out, **rest)


def released(out: Path) -> pl.DataFrame:
    """All releases of a job, ordered."""
    return pl.read_parquet(out / "**" / "*.parquet", hive_partitioning=True).sort(
        "subject", "period"
    )


def refused(out: Path) -> dict[str, str]:
    """Subject to reason."""
    files = sorted((out / "_shoal" / "refused").glob("*.jsonl"))
    tables = [pl.read_ndjson(file) for file in files]
    return {row["subject"]: row["reason"] for table in tables for row in table.to_dicts()}


def truths(frame: pl.DataFrame, states: Iterable[str] = STATES) -> dict[str, list[int]]:
    """The true histogram of every user, counted in plain Python."""
    found: dict[str, list[int]] = {}
    names = list(states)
    for user, activity in frame.select("user", "activity").iter_rows():
        found.setdefault(user, [0] * len(names))[names.index(activity)] += 1
    return found
