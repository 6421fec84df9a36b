"""A Spark session to work in, and sentences for what stands in its way."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shoal.core.errors import DataError, InputError
from shoal.data.parquet import PIECE
from shoal.jobs.inputs import BadFile, InputFile, frames
from shoal.jobs.job import Job
from shoal.jobs.journal import Journal, alone
from shoal.jobs.local import (
    attempt,
    charging_of,
    check_unchanged,
    reported,
    stored_job,
    undone_if_empty,
    write_bad_rows,
)
from shoal.jobs.report import JobReport
from shoal.jobs.rows import BadRow, Faults, OnDisk, check_kinds, refused_file, together
from shoal.jobs.tidy import kinds_of, tidy

# a busy machine takes longer to start a Python than the 15 seconds Spark waits by default
PATIENT = {
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.network.timeout": "600s",
    "spark.executor.heartbeatInterval": "60s",
}


def session_of(session: Any = None, **settings: str) -> Any:
    """The session given, the active one, or a new one with `settings`.

    Workers run the Python of this program: PYSPARK_PYTHON is set unless somebody set it.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError(
            "the Spark engine needs pyspark; install it with: pip install 'shoal[spark]'"
        ) from None
    if session is not None:
        return session
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    builder = SparkSession.builder.appName("shoal")
    for key, value in {**PATIENT, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_java() -> None:
    """Refuse, in a sentence, to start Spark where there is no Java."""
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None
    if not found:
        where = f"JAVA_HOME is {home!r}, which has none" if home else "none is on the path"
        raise InputError(
            f"Spark needs a Java runtime, version 17 or later, and {where}; install one (Debian: "
            "apt-get install openjdk-17-jre-headless), or use --engine local"
        )


def check_reach(spark: Any, job: Job) -> None:
    """Refuse a ledger that workers on other machines cannot reach."""
    local = str(spark.sparkContext.master).startswith("local")
    if job.ledger is not None and "://" not in job.ledger and not local:
        raise InputError(
            f"the ledger is the file {job.ledger!r}, which workers on other machines cannot reach; "
            "use a PostgreSQL ledger"
        )


# Jobs on Spark: the same shards, released by the same code, in the tasks of a cluster.
#
# Rows never pass through Java. A task of the first stage reads a file and lays its rows, shard by
# shard, into the job's notes, which every worker can reach; a task of the second takes all rows of
# one shard, charges, draws, and writes its files into a hidden folder of its own. Its result is the
# name of that folder. Spark hands the driver the result of exactly one attempt of every task, and
# the driver commits that one through the job's journal. An attempt that was retried, speculated or
# lost leaves a folder nobody shows; with a ledger every attempt has the same values anyway, because
# its keys bring the stored ones back.


TASKS_PER_CORE = 2  # shards at least, so that no core waits long for another
FAULT = Callable[[int], None]
COUNTED = ("rows", "unowned", "off_map", "left_out")
ROWS = "rows"  # the folder of the notes that holds what the first stage read


def run(job: Job, session: Any = None, *, after_sampling: FAULT | None = None) -> JobReport:
    """The report of a new job, done on Spark; a folder every worker can reach is needed.

    `session` is the active one, or a new one, when left out. `after_sampling(shard)` is called in
    the task once the shard's values are drawn and charged, for tests that make tasks fail there.
    """
    spark = session_of(session)
    check_reach(spark, job)
    cores = spark.sparkContext.defaultParallelism
    wider = replace(job, shards=max(job.shards, TASKS_PER_CORE * cores), engine="spark")
    wider.store()
    with undone_if_empty(wider):
        return resume(wider, spark, after_sampling=after_sampling)


def resume(job: Job, session: Any = None, *, after_sampling: FAULT | None = None) -> JobReport:
    """The report of a stored job after doing what is left of it on Spark."""
    spark = session_of(session)
    with alone(job.notes):
        journal = Journal(job.notes)
        done = journal.recover()
        if not any(event["event"] == "finished" for event in journal.events()):
            if len(done) < job.shards:
                check_unchanged(job)
                _finish(job, spark, journal, set(done), after_sampling)
            journal.close()
        return reported(job, journal)


def _finish(
    job: Job, spark: Any, journal: Journal, done: set[int], after_sampling: FAULT | None
) -> None:
    context = spark.sparkContext
    where = str(job.out.absolute()), job.ledger
    shutil.rmtree(job.notes / ROWS, ignore_errors=True)
    (job.notes / ROWS).mkdir(mode=0o700)
    files = context.parallelize(list(enumerate(job.inputs)), len(job.inputs))
    bad = frozenset(_scan(job, dict(files.map(partial(_read_file, where)).collect()), journal))
    left = [shard for shard in range(job.shards) if shard not in done]
    tasks = context.parallelize(left, len(left))
    for shard, folder, event in tasks.map(partial(_release, where, bad, after_sampling)).collect():
        journal.commit(shard, folder, **event)
    shutil.rmtree(job.notes / ROWS, ignore_errors=True)


def _read_file(
    where: tuple[str, str | None], numbered: tuple[int, InputFile]
) -> tuple[int, dict[str, Any]]:
    """The number of a file, and what was read of it or what is wrong; its rows lie in the notes."""
    number, file = numbered
    job = stored_job(Path(where[0]), where[1])
    note: dict[str, Any] = {**dict.fromkeys(COUNTED, 0), "kinds": [], "reason": None}
    faults = Faults()
    laid = job.notes / ROWS / f"{number:06d}.{secrets.token_hex(6)}"
    laid.mkdir(mode=0o700)
    store, maps = OnDisk(laid, job.shards), job.maps()
    try:
        for frame in frames(file, job.layout, PIECE):
            if frame.height:
                note["kinds"].append(kinds_of(frame, job.layout))
            part = tidy(frame, job.layout, job.states, repr(file.path), maps)
            faults.add(file.path, note["rows"] + note["left_out"], part.bad)
            note["rows"] += frame.height - part.left_out
            for name in COUNTED[1:]:
                note[name] += getattr(part, name)
            store.add(part.rows)
    except DataError as error:
        note["reason"] = str(error).removeprefix(f"{file.path!r}: ")
    store.close()
    try:
        os.replace(laid, job.notes / ROWS / f"{number:06d}")
    except OSError:  # another attempt at this file was first, and laid the same rows
        shutil.rmtree(laid, ignore_errors=True)
    return number, {**note, "faults": dict(faults.counts), "bad_rows": faults.rows}


def _scan(job: Job, notes: dict[int, dict[str, Any]], journal: Journal) -> list[int]:
    """The numbers of the bad files, after noting what was read; stops when they must not be."""
    bad: dict[int, BadFile] = {}
    kinds: dict[str, str] = {}
    counts: dict[str, Any] = dict.fromkeys(COUNTED, 0)
    faults: Counter[str] = Counter()
    listed: list[BadRow] = []
    for number, file in enumerate(job.inputs):
        try:
            if notes[number]["reason"] is not None:
                raise DataError(notes[number]["reason"])
            for found in notes[number]["kinds"]:
                check_kinds(found, kinds)
        except DataError as error:
            bad[number] = refused_file(job, file, error)
            continue
        for name in counts:
            counts[name] += notes[number][name]
        faults.update(notes[number]["faults"])
        listed += [BadRow(*row) for row in notes[number]["bad_rows"]]
    said: dict[str, Any] = {"bad": [list(file) for file in bad.values()], "faults": dict(faults)}
    journal.write("scanned", shard_rows=[], **said, **counts)
    write_bad_rows(job, listed)
    if job.ledger is not None:
        journal.write("charging")  # from here on the name of the job must not be lost
    return list(bad)


def _release(
    where: tuple[str, str | None], bad: frozenset[int], after_sampling: FAULT | None, shard: int
) -> tuple[int, str, dict[str, Any]]:
    """Release a shard into a folder of this attempt's own: shard, folder's name, and the counts."""
    job = stored_job(Path(where[0]), where[1])
    parts = [
        OnDisk(job.notes / ROWS / f"{number:06d}", job.shards).shard(shard)
        for number in range(len(job.inputs))
        if number not in bad
    ]
    rows = together([part for part in parts if part.height])
    with charging_of(job) as charging:
        made = attempt(job, Journal(job.notes), shard, rows, charging)
    if after_sampling is not None:
        after_sampling(shard)
    return made
