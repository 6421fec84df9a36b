"""A Spark session to work in, and sentences for what stands in its way."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError, InputError
from shoal.jobs.inputs import BadFile, InputFile, frames
from shoal.jobs.job import Job
from shoal.jobs.journal import Journal, alone
from shoal.jobs.local import (
    attempt,
    charging_of,
    check_unchanged,
    outcome_of,
    reported,
    stored_job,
    undone_if_empty,
    write_bad_rows,
)
from shoal.jobs.report import JobReport
from shoal.jobs.rows import PIECE, BadRow, Faults, check_kinds, refused_file
from shoal.jobs.tidy import kinds_of, shard_of, tidy, tidy_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.jobs.inputs import Layout
    from shoal.jobs.tidy import Locator


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
# Each shard of subjects is one group of `applyInArrow`. A task charges, draws, and writes its
# files into a hidden folder of its own; its result is the name of that folder. Spark hands the
# driver the result of exactly one attempt of every task, and the driver commits that one through
# the job's journal. An attempt that was retried, speculated or lost leaves a folder nobody shows;
# with a ledger every attempt has the same values anyway, because its keys bring the stored ones
# back.


TASKS_PER_CORE = 2  # shards at least, so that no core waits long for another
FAULT = Callable[[int], None]


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
    rows = _tidy_rows(job, spark).persist()
    try:
        bad = _scan(job, rows, journal)
        kept = rows.where("note IS NULL")
        if bad:
            kept = kept.where(~rows.file.isin(bad))
        task = _task(job, spark, sorted(done), after_sampling)
        # a number given by hand is kept: Spark would put small shards into one task
        parted = kept.repartition(job.shards, "shard").groupBy("shard")
        result = parted.applyInArrow(task, "shard int, folder string, event string")
        found = {row.shard: row for row in result.collect()}
    finally:
        rows.unpersist()
    for shard in range(job.shards):
        if shard in found:
            journal.commit(shard, found[shard].folder, **json.loads(found[shard].event))
        elif shard not in done:
            journal.commit(shard, None, **outcome_of(job, None, None).event)


def _tidy_rows(job: Job, spark: Any) -> Any:
    """The rows of all files in the columns of a job, with their shard, and a note per file."""
    import polars as pl

    files = [(number, *file) for number, file in enumerate(job.inputs)]
    schema = "number int, path string, size long, modified long"
    listed = spark.createDataFrame(files, schema).repartition(len(files))
    layout, states, shards = job.layout, job.states, job.shards
    stored = str(job.out.absolute()), job.ledger

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        maps = None if layout.latitude is None else stored_job(Path(stored[0]), stored[1]).maps()
        for batch in batches:
            for row in batch.to_pylist():
                file = InputFile(row["path"], row["size"], row["modified"])
                yield from _read_file(row["number"], file, layout, states, shards, maps)

    words = {pl.String: "string", pl.Int64: "long", pl.Int32: "int", pl.Float64: "double"}
    columns = [f"`{name}` {words[kind]}" for name, kind in tidy_schema(layout).items()]
    columns += ["shard int", "file int", "note string"]
    return listed.mapInArrow(read, ", ".join(columns))


def _read_file(
    number: int,
    file: InputFile,
    layout: Layout,
    states: tuple[str, ...],
    shards: int,
    maps: Locator | None,
) -> Iterator[pa.RecordBatch]:
    """The tidy rows of one file, then a row that says what was read or what is wrong."""
    import polars as pl

    note: dict[str, Any] = {"rows": 0, "unowned": 0, "off_map": 0, "kinds": [], "reason": None}
    faults = Faults()
    try:
        for frame in frames(file, layout, PIECE):
            if frame.height:
                note["kinds"].append(kinds_of(frame, layout))
            part = tidy(frame, layout, states, repr(file.path), maps)
            faults.add(file.path, note["rows"], part.bad)
            note["rows"] += frame.height
            note["unowned"] += part.unowned
            note["off_map"] += part.off_map
            placed = part.rows.with_columns(
                pl.Series("shard", shard_of(part.rows["subject"], shards), dtype=pl.Int32),
                pl.lit(number, dtype=pl.Int32).alias("file"),
                pl.lit(None, dtype=pl.String).alias("note"),
            )
            yield from placed.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()
    except DataError as error:
        note["reason"] = str(error).removeprefix(f"{file.path!r}: ")
    note |= {"faults": faults.counts, "bad_rows": faults.rows}
    schema = tidy_schema(layout)
    said: dict[str, list[Any]] = {name: [None] for name in schema}
    told = pl.DataFrame(said, schema=schema).with_columns(
        pl.lit(None, dtype=pl.Int32).alias("shard"),
        pl.lit(number, dtype=pl.Int32).alias("file"),
        pl.lit(json.dumps(note)).alias("note"),
    )
    yield from told.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()


def _scan(job: Job, rows: Any, journal: Journal) -> list[int]:
    """The numbers of the bad files, after noting what was read; stops when they must not be."""
    notes = {
        row.file: json.loads(row.note)
        for row in rows.where("note IS NOT NULL").select("file", "note").collect()
    }
    bad: dict[int, BadFile] = {}
    kinds: dict[str, str] = {}
    counts: dict[str, Any] = dict.fromkeys(("rows", "unowned", "off_map"), 0)
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


def _task(job: Job, spark: Any, done: Sequence[int], after_sampling: FAULT | None) -> Any:
    """What a worker does with the rows of one shard. The job and its plans are broadcast."""
    recipe = spark.sparkContext.broadcast((str(job.out.absolute()), job.ledger, frozenset(done)))

    def task(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        import pyarrow as pa

        out, ledger, finished = recipe.value
        shard = key[0].as_py()
        if shard in finished:
            return pa.table({"shard": [], "folder": [], "event": []}, schema=_result())
        folder, event = _release(out, ledger, shard, table)
        if after_sampling is not None:
            after_sampling(shard)
        columns = {"shard": [shard], "folder": [folder], "event": [json.dumps(event)]}
        return pa.table(columns, schema=_result())

    return task


def _release(
    out: str, ledger: str | None, shard: int, table: pa.Table
) -> tuple[str, dict[str, Any]]:
    """Release a shard into a folder of this attempt's own; the folder's name, and the counts."""
    import polars as pl

    job = stored_job(Path(out), ledger)
    rows = pl.from_arrow(table)
    assert isinstance(rows, pl.DataFrame)
    ordered = rows.drop("shard", "note").sort("file", maintain_order=True).drop("file")
    with charging_of(job) as charging:
        _, name, event = attempt(job, Journal(job.notes), shard, ordered, charging)
    return name, event


def _result() -> Any:
    import pyarrow as pa

    return pa.schema([("shard", pa.int32()), ("folder", pa.string()), ("event", pa.string())])
