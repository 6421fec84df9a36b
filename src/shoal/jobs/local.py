"""Jobs on one machine: read once, shard by subject, release by shard, resume after a crash."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number
from shoal.core.plan import Plan
from shoal.data.times import parse_duration
from shoal.data.write import atomic_write, write_table
from shoal.jobs.drawing import Charging
from shoal.jobs.inputs import Layout, first_changed_file
from shoal.jobs.job import MEMORY, NOTES, Job, calendar, load_job
from shoal.jobs.journal import Journal, alone
from shoal.jobs.report import (
    JobReport,
    part_name,
    release_shard,
    report_of,
)
from shoal.jobs.rows import Notify, RowStore, Scan, read_all, store_for
from shoal.jobs.tidy import tidy_schema

if TYPE_CHECKING:
    import polars as pl

Attempt = tuple[int, str, dict[str, Any]]  # shard, folder of its files, counts


def run(job: Job, *, notify: Notify = lambda stage, done, total: None) -> JobReport:
    """Run a new job to its end and return its report; its folder must be absent or empty."""
    job.store()
    with undone_if_empty(job):
        return resume(job, notify=notify)


def resume(job: Job, *, notify: Notify = lambda stage, done, total: None) -> JobReport:
    """Release the remaining shards of a stored job and return its report.

    Finished shards are not done again. With a ledger, subjects of an unfinished shard that were
    charged before the crash get their stored values. Without one, nothing of that shard was
    visible, so drawing it again releases nothing twice.
    """
    return carried_on(job, lambda journal, done: _finish(job, journal, done, notify))


def carried_on(job: Job, finish: Callable[[Journal, set[int]], None]) -> JobReport:
    """Call `finish` with the journal and the finished shards, and return the report of the job."""
    with alone(job.notes):
        journal = Journal(job.notes)
        done = journal.recover()
        if not any(event["event"] == "finished" for event in journal.events()):
            if len(done) < job.shards:
                check_unchanged(job)
                finish(journal, set(done))
            journal.close()
            store_for(job).clear()
        report = _report_of_journal(job, journal)
        text = json.dumps(report.as_dict(), indent=2, ensure_ascii=False) + "\n"
        atomic_write(job.notes / "report.json", text, durable=False)  # the journal records it again
        return report


def status(job: Job) -> JobReport:
    """Return the report of a stored job so far, from its journal alone."""
    return _report_of_journal(job, Journal(job.notes))


@contextmanager
def undone_if_empty(job: Job) -> Iterator[None]:
    """Delete a job's notes when bad input stopped it before it released or charged anything.

    A job that may have charged is kept, since its name is needed to get the charged values.
    """
    try:
        yield
    except InputError as error:
        if {event["event"] for event in Journal(job.notes).events()} <= {"scanned"}:
            shutil.rmtree(job.notes)
            raise
        raise type(error)(
            f"{error}; what was charged is kept: mend that, and go on with "
            f"`shoal job resume {job.out}`"
        ) from None


def _finish(job: Job, journal: Journal, done: set[int], notify: Notify) -> None:
    """Release every shard that is not in `done`, and commit each one to the journal.

    Rows are read again unless an earlier scan is complete. `notify` receives rows, not shards.
    """
    store = store_for(job)
    scan = _stored_scan(journal, store, job.shards) if done and job.shards > 1 else None
    if scan is None:
        scan = read_all(job, store, notify).write_notes(job, journal)
    if job.ledger is not None:
        journal.write("charging")  # from here on the name of the job must not be lost
    left = [shard for shard in range(job.shards) if shard not in done]
    finished = sum(scan.shard_rows) - sum(scan.shard_rows[shard] for shard in left)
    total = sum(scan.shard_rows)
    for shard, name, event in _attempts(job, journal, store, left):
        journal.commit(shard, name, **event)
        finished += scan.shard_rows[shard]
        notify("releasing", finished, total)


def _attempts(job: Job, journal: Journal, store: RowStore, left: list[int]) -> Iterator[Attempt]:
    """Yield the result of each shard as it is ready; several threads release shards at once.

    Most work is in numpy and polars, which release the interpreter lock. Processes were slower:
    each has to load the compiled kernels and build the plan's tables again.
    """
    workers = max(1, min(len(left), os.cpu_count() or 1))
    with charging_of(job) as charging, ThreadPoolExecutor(workers) as threads:

        def one(shard: int) -> Attempt:
            return attempt(job, journal, shard, store.shard(shard), charging)

        if len(left) == 1:  # a new thread would allocate all its memory again
            yield one(left[0])
            return
        tasks = [threads.submit(one, shard) for shard in left]
        try:
            yield from (task.result() for task in as_completed(tasks))
        finally:
            threads.shutdown(cancel_futures=True)


@lru_cache(maxsize=4)
def stored_job(out: Path, ledger: str | None) -> Job:
    """Return the stored job with its plans, built once per worker."""
    return load_job(out, ledger=ledger)


def attempt(
    job: Job, journal: Journal, shard: int, rows: pl.DataFrame, charging: Charging | None
) -> Attempt:
    """Release a shard into a new hidden folder; return the folder's name and the counts."""
    if not rows.height:
        import polars as pl

        rows = pl.DataFrame(schema=tidy_schema(job.layout))
    outcome = release_shard(rows, job, charging)
    folder = journal.attempt(shard)  # hidden until it is committed, with the layout of the output
    parts = ((part_name(shard, job.layout.group, own), t) for own, t in outcome.releases.items())
    tables = dict(parts)
    if outcome.refused.height:  # no Parquet, which a pattern for releases would find
        tables[f"{NOTES}/refused/{shard:05d}.jsonl"] = outcome.refused
    for name, table in tables.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_table(folder / name, table)
    return shard, folder.name, outcome.event


def _stored_scan(journal: Journal, store: RowStore, shards: int) -> Scan | None:
    """Return the scan of an earlier run if all its rows are still on the disk, else None."""
    events = [event for event in journal.events() if event["event"] == "scanned"]
    if not events:
        return None
    last = events[-1]
    done = journal.recover()
    if len(last["shard_rows"]) != shards:  # scanned on Spark, which records no counts per shard
        return None
    for shard, rows in enumerate(last["shard_rows"]):
        if shard not in done and store.shard(shard).height != rows:
            return None
    return Scan(shard_rows=last["shard_rows"])


@contextmanager
def charging_of(job: Job) -> Iterator[Charging | None]:
    """Open the ledger of the job while inside; None for a job without one."""
    if job.ledger is None:
        yield None
        return
    from shoal.ledger.store import ledger_or_nothing

    with ledger_or_nothing(job.ledger) as ledger:
        yield Charging(ledger=ledger, job=job.name, period=job.period, requester=job.requester)


def check_unchanged(job: Job) -> None:
    """Refuse to go on with a job when one of its input files changed since it began."""
    path = first_changed_file(job.inputs)
    if path is not None:
        raise DataError(
            f"{path!r} changed since the job began, so it is other data now; start a new job in "
            "another folder"
        )


def _report_of_journal(job: Job, journal: Journal) -> JobReport:
    """Return the report of what the journal of this job holds so far."""
    return report_of(
        journal.events(),
        job.plans.values(),
        shards=job.shards,
        files=len(job.inputs),
        parts=job.layout.periods == "parts",
    )


RAW = ("missing", "bins", "unit", "tz", "where", "sep")  # as in `shoal.read`


def release_files(
    plans: Plan | Mapping[str, Plan],
    data: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    by: str,
    state: str | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    numbers: tuple[str, ...] = (),
    series: str | None = None,
    time: str | None = None,
    gap: str | timedelta | None = None,
    group: str | None = None,
    period_column: str | None = None,
    every: str | None = None,
    periods: str | None = None,
    engine: str = "local",
    ledger: str | os.PathLike[str] | None = None,
    name: str | None = None,
    period: str = "",
    requester: str = "",
    members: str | None = None,
    skip_bad: bool = False,
    memory: int = MEMORY,
    seed: int | None = None,
    epsilon: Number | None = None,
    **rows: Any,
) -> JobReport:
    """Release every subject of many files into the new folder `out`, and return the report.

    `data` is a file, a folder or a pattern such as "in/**/*.parquet" of Parquet, CSV or JSON Lines
    files; columns may also come from hive folders such as day=2024-05-01. `by` names the column of
    the subject, `state` that of the state (on a map perhaps `latitude` and `longitude`; for K-means
    `numbers`, those of each record), `series` the chain inside a subject, `time` the order of a
    chain, `group` and `period_column` the group and period of a row; a pause longer than
    `gap` starts a new chain. `plans` is one plan, or one per value of `group`. A subject's rows may
    be in any number of files. Streams are answered row by row (locations) or day by day (contexts;
    week by week where the model is of a week, and so are locations that watch events by the clock);
    a location row without a state or coordinates is a step at which nothing is released. `every`
    makes a release per subject and day, week, …, each charged as a part of the subject's series.
    For the periods of a column, `periods` must be "parts" (of one series) or "independent".
    The total of the parts of a series is in the report's `spend`. It is refused above `epsilon`,
    by default above what the plan promises for one part. `rows` are the RAW of `shoal.read`.

    With a ledger each release is charged before it is drawn, under the key (name, subject, period,
    plan); a repeated key returns the stored values. `members` of an aggregate are charged too: its
    "series", or "everybody". A bad file stops the job, or with `skip_bad` is named in the report.
    `shoal job resume OUT` continues a job that was stopped.
    """
    pause = parse_duration(gap) if isinstance(gap, str) else gap
    layout = Layout(
        by=by, state=state, latitude=latitude, longitude=longitude, numbers=numbers,
        series=series, time=time, gap=pause, group=group, period=period_column, every=every,
        periods=periods, members=members, **calendar(plans, time, period_column), **_known(rows),
    )  # fmt: skip
    where = None if ledger is None else os.fspath(ledger)
    charged: dict[str, Any] = {"ledger": where, "period": period, "requester": requester}
    rest = {"name": name, "memory": memory, "skip_bad": skip_bad, "seed": seed, **charged}
    return _run_new_job(Job.of(plans, data, out=out, layout=layout, **rest), engine, epsilon)


def _check_parts(job: Job, epsilon: Number | None) -> None:
    """Refuse plans whose total over all parts of a series is above `epsilon`."""
    if job.layout.periods != "parts":
        if epsilon is not None:
            raise InputError(
                "epsilon is for releases about parts of one series; drop it, or give every=…"
            )
        return
    from shoal.ledger.budget import check_parts

    for plan in job.plans.values():
        check_parts(plan, epsilon)


def _known(rows: dict[str, Any]) -> dict[str, Any]:
    """Return the options for raw rows; refuses unknown keywords."""
    unknown = [name for name in rows if name not in RAW]
    if unknown:
        raise InputError(f"{unknown[0]!r} is no keyword of a job; for rows: {', '.join(RAW)}")
    bins = rows.get("bins")
    if bins is not None and not isinstance(bins, str | int):
        rows = {**rows, "bins": ",".join(map(str, bins))}
    return rows


def _run_new_job(job: Job, engine: str, epsilon: Number | None) -> JobReport:
    """Run a new job on the engine "local" or "spark" and return its report.

    Refuses any other engine, and plans that together exceed `epsilon`.
    """
    _check_parts(job, epsilon)
    if engine == "spark":
        from shoal.jobs.spark import run as run_on_spark

        return run_on_spark(job)
    if engine != "local":
        raise InputError(f"engine is {engine!r}; it must be 'local' or 'spark'")
    return run(job)
