"""Jobs and live streams on Spark: the session, checks before it starts, and both kinds of run."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.errors import DataError, InputError
from shoal.core.plan import Plan
from shoal.data.frames import PIECE
from shoal.jobs.inputs import BadFile, InputFile, Layout, frames
from shoal.jobs.job import Job
from shoal.jobs.journal import Journal
from shoal.jobs.live import Live, LiveReading, LiveRow, key_of, new_key, stream_key
from shoal.jobs.local import attempt, carried_on, charging_of, stored_job, undone_if_empty
from shoal.jobs.report import JobReport
from shoal.jobs.rows import OnDisk, Scan, check_kinds, read_file, refused_file, together

if TYPE_CHECKING:
    import pandas as pd

# starting Python on a busy machine takes longer than the 15 seconds Spark waits by default
PATIENT = {
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.network.timeout": "600s",
    "spark.executor.heartbeatInterval": "60s",
}


def session_of(session: Any = None, **settings: str) -> Any:
    """Return the given session, the active one, or a new one with `settings`.

    Workers run the Python of this program: PYSPARK_PYTHON is set unless it is set already.
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
    """Refuse to start Spark where there is no Java."""
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
# Rows never pass through Java. A task of the first stage reads a file and writes its rows by shard
# into the job's notes, which every worker can reach. A task of the second stage reads all rows of
# one shard, charges, draws, and writes its files into its own hidden folder. Its result is the
# name of that folder. Spark gives the driver the result of exactly one attempt of every task, and
# the driver commits that attempt in the job's journal. Other attempts (retried, speculative, lost)
# leave a folder that is never published. With a ledger all attempts have the same values, because
# a repeated key returns the stored ones.


TASKS_PER_CORE = 2  # least number of shards, so that no core waits long for another
FAULT = Callable[[int], None]
ROWS = "rows"  # the folder of the notes that holds what the first stage read


def run(job: Job, session: Any = None, *, after_sampling: FAULT | None = None) -> JobReport:
    """Run a new job on Spark and return its report; every worker must reach the job's folder.

    `session` defaults to the active one, or a new one. `after_sampling(shard)` is called in the
    task once the shard's values are charged and drawn, for tests that make tasks fail there.
    """
    spark = session_of(session)
    check_reach(spark, job)
    cores = spark.sparkContext.defaultParallelism
    wider = replace(job, shards=max(job.shards, TASKS_PER_CORE * cores), engine="spark")
    wider.store()
    with undone_if_empty(wider):
        return resume(wider, spark, after_sampling=after_sampling)


def resume(job: Job, session: Any = None, *, after_sampling: FAULT | None = None) -> JobReport:
    """Release the remaining shards of a stored job on Spark and return its report."""
    spark = session_of(session)
    return carried_on(job, lambda journal, done: _finish(job, spark, journal, done, after_sampling))


def _finish(
    job: Job, spark: Any, journal: Journal, done: set[int], after_sampling: FAULT | None
) -> None:
    """Read all files and release every shard that is not in `done`, in tasks of the cluster.

    The driver commits each shard to the journal. The intermediate rows are deleted at the end.
    """
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


class FileNote(NamedTuple):
    """The result of reading one file: its counts, the kinds of its columns, and any fault."""

    scan: Scan
    kinds: list[dict[str, str]]
    reason: str | None


def _read_file(
    where: tuple[str, str | None], numbered: tuple[int, InputFile]
) -> tuple[int, FileNote]:
    """Read a file into the notes; return its number, and its counts or what is wrong with it."""
    number, file = numbered
    job = stored_job(Path(where[0]), where[1])
    note, reason = FileNote(Scan(), [], None), None
    laid = job.notes / ROWS / f"{number:06d}.{secrets.token_hex(6)}"
    laid.mkdir(mode=0o700)
    store, pieces = OnDisk(laid, job.shards), frames(file, job.layout, PIECE)
    try:
        read_file(job, file, pieces, store, job.maps(), note.scan, note.kinds.append)
    except DataError as error:
        reason = str(error).removeprefix(f"{file.path!r}: ")
    store.close()
    try:
        os.replace(laid, job.notes / ROWS / f"{number:06d}")
    except OSError:  # another attempt at this file was first and wrote the same rows
        shutil.rmtree(laid, ignore_errors=True)
    return number, note._replace(reason=reason)


def _scan(job: Job, notes: dict[int, FileNote], journal: Journal) -> list[int]:
    """Record what was read and return the numbers of the bad files; raises if none is allowed."""
    bad: dict[int, BadFile] = {}
    kinds: dict[str, str] = {}
    whole = Scan()
    for number, file in enumerate(job.inputs):
        note = notes[number]
        try:
            if note.reason is not None:
                raise DataError(note.reason)
            for found in note.kinds:
                check_kinds(found, kinds)
        except DataError as error:
            bad[number] = refused_file(job, file, error)
            continue
        whole.add(note.scan)
    whole.bad, whole.shard_rows = list(bad.values()), []  # shards are read from the disk
    whole.write_notes(job, journal)
    if job.ledger is not None:
        journal.write("charging")  # from here on the name of the job must not be lost
    return list(bad)


def _release(
    where: tuple[str, str | None], bad: frozenset[int], after_sampling: FAULT | None, shard: int
) -> tuple[int, str, dict[str, Any]]:
    """Release a shard into a new hidden folder; return the shard, the folder's name, the counts."""
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


# Live context and location streams on Spark Structured Streaming, one state per subject.
#
# The filter's state lives in Spark's state store and is checkpointed with the query; the key from
# which steps draw lies beside the checkpoint. A restarted query continues every stream from its
# stored state, and a batch that runs again gives the same output.


KEY = "shoal-key"
STATE = "document string"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def live_stream(
    frame: Any,
    plan: Plan,
    *,
    by: str,
    state: str | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    at: str,
    day: str | None = None,
    checkpoint: str | Path,
    job: str = "",
    ledger: str | None = None,
    requester: str = "",
    interface: str | None = None,
) -> Any:
    """Return the streaming frame of released outputs, one row per row of the streaming `frame`.

    `by`, `state` and `at` name the columns of the subject, of what is observed and of its order:
    the slot of a context, the time of a location as a whole number; `day` names the day of a
    context, written so that days sort as text (2024-03-01). On a map `latitude` and `longitude`
    may stand in for `state`; a row where one of them is missing, or no number of degrees, is a
    step at which nothing is released. Give the query the same `checkpoint` folder. A row that comes
    after a later one of its subject was answered is marked `late` and shows nothing; one that
    cannot be used has an `error`, which says why and not what it holds, and the stream goes on.
    The source must be replayable.

    `interface` is "transformWithStateInPandas", which needs the package protobuf, or
    "applyInPandasWithState", which does not; the first where it can be had.
    """
    key = checkpoint_key(frame.sparkSession, str(checkpoint))
    live = Live.of(plan, key, job=job, ledger=ledger, requester=requester)
    if (day is not None) != live.kind.days:
        raise InputError("contexts need the column of the day, and locations take none")
    # the columns of a job, so that they are named by the same rules
    layout = Layout(by=by, state=state, latitude=latitude, longitude=longitude, time=at, period=day)
    if latitude is not None:
        live.kind.check_map(plan)
    chosen = interface or usable_interface(frame.sparkSession)
    grouped = _select_columns(frame, layout).groupBy("subject")
    if chosen == "transformWithStateInPandas":
        return grouped.transformWithStateInPandas(
            statefulProcessor=_processor(live),
            outputStructType=_schema(live),
            outputMode="Append",
            timeMode="None",
        )
    if chosen == "applyInPandasWithState":
        return grouped.applyInPandasWithState(
            _stepper(live), _schema(live), STATE, "append", "NoTimeout"
        )
    raise InputError(
        f"interface is {interface!r}; it must be 'transformWithStateInPandas' or "
        "'applyInPandasWithState'"
    )


def checkpoint_key(spark: Any, checkpoint: str) -> bytes:
    """Return the key beside a query's checkpoint, which is created when absent.

    A local folder is written directly. Addresses such as s3a:// and hdfs:// go through Hadoop's
    file system, as the checkpoint does, and are refused where Hadoop does not support them.
    """
    scheme, mark, rest = checkpoint.partition(":")
    if not mark or len(scheme) == 1:  # a scheme of one letter is a drive of Windows
        return stream_key(Path(checkpoint) / KEY)
    if scheme == "file":
        return stream_key(Path("/" + rest.lstrip("/")) / KEY)
    try:
        return _hadoop_key(spark, f"{checkpoint.rstrip('/')}/{KEY}")
    except _java_errors() as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        cause = next((line for line in reason if "Exception" in line), reason[0])
        raise InputError(
            f"checkpoint is {checkpoint!r}, which Spark cannot reach ({cause.strip()[:200]}); the "
            "key of the stream lies beside it: give Spark the file system of that scheme, or name "
            "another folder"
        ) from None


def _java_errors() -> tuple[type[Exception], ...]:
    """Return the exception classes that a call into Java raises."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException


def _hadoop_key(spark: Any, where: str) -> bytes:
    """Read or create the key in a file of Hadoop; the first of several writers wins."""
    hadoop = spark._jvm.org.apache.hadoop.fs
    path = hadoop.Path(where)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(path):
        files.mkdirs(path.getParent())
        made = hadoop.Path(f"{where}.{secrets.token_hex(6)}")
        out = files.create(made)
        try:  # make it private before anything is written to it
            files.setPermission(made, hadoop.permission.FsPermission("600"))
            out.write(bytearray(new_key().encode()))
        finally:
            out.close()
        if files.exists(path) or not files.rename(made, path):
            files.delete(made, False)
    opened = files.open(path)
    try:
        text = bytes(byte % 256 for byte in opened.readAllBytes())
    finally:
        opened.close()
    return key_of(text.decode("ascii", "replace"), where)


def usable_interface(spark: Any) -> str:
    """Return the newer interface if protobuf and the RocksDB state store exist, else the older."""
    from importlib.util import find_spec

    try:
        protobuf = find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        protobuf = False
    rocks = spark.conf.get(PROVIDER, "") == ROCKS
    return "transformWithStateInPandas" if protobuf and rocks else "applyInPandasWithState"


def _select_columns(frame: Any, layout: Layout) -> Any:
    """Select the columns of the stream under fixed names."""
    from pyspark.sql import functions as F  # noqa: N812 - its own documentation calls it so

    day = F.lit("") if layout.period is None else F.col(layout.period).cast("string")
    if layout.latitude is None:
        places = [F.col(str(layout.state)).cast("string").alias("state")]
    else:  # text that is no number becomes null; a plain cast would end the query
        places = [
            F.col(str(name)).try_cast("double").alias(role)
            for role, name in (("lat", layout.latitude), ("lon", layout.longitude))
        ]
    return frame.select(
        # rows without a subject are answered too, as bad rows of the subject ""
        F.coalesce(F.col(layout.by).cast("string"), F.lit("")).alias("subject"),
        day.alias("day"),
        F.col(str(layout.time)).try_cast("long").alias("at"),
        *places,
    )


def _columns(live: Live) -> dict[str, str]:
    """Return the Spark type of each output column by name."""
    common = {"subject": "string", "day": "string", "at": "long", "late": "boolean"}
    return {**common, "error": "string", **live.kind.columns(live.plan)}


def _schema(live: Live) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _columns(live).items())


def _stepper(live: Live) -> Callable[..., Iterator[pd.DataFrame]]:
    """Return the function that `applyInPandasWithState` calls for each subject in a batch."""

    def step(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any) -> Any:
        stored = state.get[0] if state.exists else None
        document, table = advance_subject(live, str(key[0]), stored, frames)
        if document:
            state.update((document,))
        yield table

    return step


def _processor(live: Live) -> Any:
    """Return the processor that `transformWithStateInPandas` calls for each subject in a batch."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Stepper(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._stored_outputs = handle.getValueState("stream", STATE)

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:  # noqa: N802
            """Yield the answers to one subject's rows, and store its next state if it has one."""
            before = self._stored_outputs.get()
            stored = None if before is None else before[0]
            document, table = advance_subject(live, str(key[0]), stored, rows)
            if document:
                self._stored_outputs.update((document,))
            yield table

        def close(self) -> None:
            pass

    return Stepper()


def advance_subject(
    live: Live, subject: str, stored: str | None, frames: Iterable[pd.DataFrame]
) -> tuple[str, pd.DataFrame]:
    """Return the next state of a subject and its output rows."""
    rows = [reading for frame in frames for reading in _readings(live, frame)]
    document, rows_out = live.advance(subject, stored, rows)
    return document, _object_frame(live, subject, rows_out)


def _readings(live: Live, frame: pd.DataFrame) -> Iterator[LiveReading]:
    """Yield one reading per row of the frame; missing values become None.

    Coordinates are replaced by the state they lie in, None where there is none.
    """
    import pandas as pd

    if "lat" in frame.columns:
        pair = (frame[name].to_numpy(np.float64, na_value=np.nan) for name in ("lat", "lon"))
        states = live.kind.states_at(live.plan, *pair)
    else:
        states = [None if pd.isna(state) else str(state) for state in frame["state"].tolist()]
    for day, at, state in zip(frame["day"].tolist(), frame["at"].tolist(), states, strict=True):
        yield LiveReading(None if pd.isna(day) else day, None if pd.isna(at) else int(at), state)


def _object_frame(live: Live, subject: str, rows_out: Sequence[LiveRow]) -> pd.DataFrame:
    """Return the output rows as a frame of objects, which pandas builds ten times as fast."""
    import pandas as pd

    names = tuple(_columns(live))
    own = tuple(live.kind.columns(live.plan))
    cells = np.empty((len(rows_out), len(names)), dtype=object)
    for place, row in enumerate(rows_out):
        shown = map(row.cells.get, own)
        for column, value in enumerate((subject, row.day, row.at, row.late, row.error, *shown)):
            cells[place, column] = list(value) if isinstance(value, tuple) else value
    return pd.DataFrame(cells, columns=_index(names), dtype=object, copy=False)


@lru_cache(maxsize=8)
def _index(names: tuple[str, ...]) -> pd.Index[str]:
    """Return the index of columns, cached: it takes a third of the time of a small frame."""
    import pandas as pd

    return pd.Index(names)
