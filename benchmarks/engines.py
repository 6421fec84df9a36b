"""Jobs of many subjects as ratios in one run: against polars, a plain loop, a ledger, and Spark.

The reference is a polars job that reads the same files, checks for two rows of a person at one
time, groups and writes: the least anybody would do with the data. Aims: at most twice its time
without a ledger, and a twentieth of a plain loop over the interface; 20,000 location steps a
second at 400 cells on two cores. Work is the processor's time, which a busy machine stretches less
than the clock. `--scale` predicts a job of 10^6 users from one of 10^5.

    python -m benchmarks.engines [--rows 1000000] [--users 1000] [--rounds 3] [--spark] [--scale]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shoal
from benchmarks.engine_streams import live, medians, once, traces
from shoal.core.plan import Plan
from shoal.jobs import local
from shoal.jobs.inputs import Layout
from shoal.jobs.job import MEMORY, Job

STATES = ("lying", "sitting", "standing", "walking", "running", "cycling")
LAYOUT = Layout(by="user", state="activity", time="minute", gap=timedelta(minutes=10))


def plan(length: int) -> Plan:
    """A histogram of six activities under a chain that forgets in about ten minutes."""
    matrix = np.full((6, 6), 0.02) + 0.88 * np.eye(6)
    chain = shoal.MarkovChain.of(matrix.tolist(), states=STATES, length=length)
    query = shoal.histogram(chain.states)
    return shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism="markov-quilt")


def lake(folder: Path, rows: int, users: int, files: int = 8) -> Path:
    """`rows` minutes of `users` people, ordered by time, so that everybody is in every file."""
    rng = np.random.default_rng(0)
    each = rows // users
    folder.mkdir(parents=True)
    for number, minutes in enumerate(np.array_split(np.arange(each), files)):
        if not len(minutes):
            continue
        who = np.tile(np.arange(users), len(minutes))
        frame = pl.DataFrame(
            {
                "user": pl.Series(who).cast(pl.String).str.zfill(9),
                "minute": pl.Series(np.repeat(minutes, users) * 60_000_000).cast(pl.Datetime("us")),
                "activity": pl.Series(np.array(STATES)[rng.integers(0, 6, len(who))]),
            }
        )
        frame.write_parquet(folder / f"part-{number}.parquet")
    return folder


def polars_job(data: Path, out: Path) -> None:
    """The reference: read, check duplicates, group, write."""
    frame = pl.scan_parquet(data / "*.parquet").collect()
    if frame.select(pl.struct("user", "minute").is_duplicated().any()).item():
        raise SystemExit("two rows at one time")
    counts = frame.group_by("user", "activity").len()
    counts.pivot("activity", index="user", values="len").write_parquet(out)


def plain_loop(data: Path, out: Path, made: Plan) -> None:
    """The same in plain Python: a loop over the rows, then one over the people."""
    from shoal.data.write import write_releases

    people: dict[str, dict[Any, str]] = {}
    for file in sorted(data.glob("*.parquet")):
        for user, minute, activity in pl.read_parquet(file).iter_rows():
            if minute in people.setdefault(user, {}):
                raise SystemExit("two rows at one time")
            people[user][minute] = activity
    releases = {}
    for user, own in sorted(people.items()):
        chains: list[list[str]] = []
        last = None
        for minute in sorted(own):
            if last is None or minute - last > timedelta(minutes=10):
                chains.append([])
            chains[-1].append(own[minute])
            last = minute
        releases[user] = made.release(chains)
    write_releases(out, releases)


def reading_loop(data: Path, out: Path, made: Plan) -> None:
    """The same with `shoal.read` (polars and numpy inside) and a loop over the people."""
    from shoal.data.write import write_releases

    found = shoal.read(
        data / "*.parquet", state="activity", series="user", time="minute", gap=LAYOUT.gap
    )
    states = made.task.query.states
    releases = {name: made.release(found.sequences(states, series=name)) for name in found.names}
    write_releases(out, releases)


def engine_job(data: Path, out: Path, made: Plan, **rest: Any) -> None:
    """The job itself."""
    report = local.run(Job.of(made, data, out=out, layout=LAYOUT, **rest))
    if not report.adds_up:
        raise SystemExit(f"the report does not add up: {report}")


def histograms(rows: int, users: int, rounds: int, *, spark: bool) -> None:
    """One table row per way to do it."""
    made = plan(rows // users)
    with tempfile.TemporaryDirectory() as folder:
        data = lake(Path(folder) / "in", rows, users)
        works: dict[str, Callable[[Path], object]] = {
            "polars reference": lambda at: polars_job(data, at / "out.parquet"),
            "local engine": lambda at: engine_job(data, at / "out", made),
            "  on 16 shards": lambda at: engine_job(
                data, at / "out", made, memory=rows * 160 // 16 + 1
            ),
            "  with a SQLite ledger": lambda at: engine_job(
                data, at / "out", made, ledger=str(at / "budget.db")
            ),
            "plain Python loop": lambda at: plain_loop(data, at / "out.parquet", made),
            "shoal.read and a loop": lambda at: reading_loop(data, at / "out.parquet", made),
        }
        if spark:
            works["Spark, local[2], warm"] = _spark(data, made)
        for name, work in works.items():
            if name != "plain Python loop":
                once(work)  # warm: imports, compiled kernels, file cache
        found = dict(zip(works, medians(rounds, *works.values()), strict=True))
    print(f"\n{rows:,} rows of {users:,} users, seconds (median of {rounds})")
    loop = found["plain Python loop"]
    for name, taken in found.items():
        against = taken.clock / found["polars reference"].clock
        print(
            f"  {name:<24} {taken.clock:>8.3f} s  {against:>6.2f} of polars  "
            f"loop / this {loop.clock / taken.clock:>6.1f}  by work {loop.work / taken.work:>6.1f}"
        )
    charged = found["  with a SQLite ledger"].clock - found["local engine"].clock
    print(f"  a charge costs {1e6 * charged / users:.0f} µs (SQLite, {users:,} in one job)")


def _spark(data: Path, made: Plan) -> Callable[[Path], object]:
    from shoal.jobs import spark as engine
    from shoal.jobs.spark import session_of

    session = session_of(
        None,
        **{
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    return lambda at: engine.run(Job.of(made, data, out=at / "out", layout=LAYOUT), session)


def scale(small: int, large: int, each: int) -> None:
    """A large job predicted from two small ones by the cost model of docs/scale.md.

    The small jobs are given less memory, so that they are sharded through the disk like the large.
    """
    print(f"\n{each} rows per user; each job in a process of its own")
    memory = {small // 10: MEMORY // 20, small: MEMORY // 2, large: MEMORY}
    found = {users: _measured(users, each, most) for users, most in memory.items()}
    rest = found[small // 10], found[small]
    # work = fixed + users × slope, from the two smaller jobs; a busy machine stretches the clock
    slope = (rest[1]["work"] - rest[0]["work"]) / (small - small // 10)
    predicted = rest[1]["work"] + slope * (large - small)
    for users, one in found.items():
        print(
            f"  {users:>9,} users {one['work']:>8.2f} s of work  {one['seconds']:>8.2f} s  "
            f"{one['megabytes']:>6.0f} MB  {1e6 * one['work'] / users / each:>6.2f} µs/row  "
            f"{int(one['shards'])} shard(s)"
        )
    print(f"  predicted for {large:,}: {predicted:.1f} s of work", end="; ")
    print(f"measured / predicted = {found[large]['work'] / predicted:.2f} (aim: 0.7 to 1.3)")


def _measured(users: int, each: int, memory: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        data = lake(Path(folder) / "in", users * each, users)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.engines",
                "--one",
                str(data),
                str(each),
                str(memory),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def one(data: Path, each: int, memory: int) -> None:
    """What a fresh process needs for one job, as JSON."""
    made = plan(each)
    with tempfile.TemporaryDirectory() as folder:
        job = Job.of(made, data, out=Path(folder) / "out", layout=LAYOUT, memory=memory)
        begin, before = time.perf_counter(), time.process_time()
        local.run(job)
        taken, work = time.perf_counter() - begin, time.process_time() - before
    peak = _peak_megabytes()
    found = {"seconds": taken, "work": work, "megabytes": peak, "shards": job.shards}
    print(json.dumps(found))


def _peak_megabytes() -> float:
    """The most memory this program has held; getrusage would tell the parent's where it is more."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true", help="also on Spark, with two cores")
    parser.add_argument("--scale", action="store_true", help="also predict 10^6 users from 10^5")
    parser.add_argument(
        "--one", nargs=3, metavar=("DATA", "EACH", "MEMORY"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.one:
        one(Path(options.one[0]), int(options.one[1]), int(options.one[2]))
        return
    histograms(options.rows, options.users, options.rounds, spark=options.spark)
    traces(1_000, 200, options.rounds)
    live(300, options.rounds)
    if options.scale:
        scale(100_000, 1_000_000, 10)


if __name__ == "__main__":
    main()
