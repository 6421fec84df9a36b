"""Live context and location streams on Spark Structured Streaming, one state per subject.

The filter's state lives in Spark's state store and is checkpointed with the query; the key from
which steps draw lies beside the checkpoint. A query that is restarted takes up every stream where
it stood, and a batch that runs again shows what it showed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.jobs.inputs import Layout
from shoal.jobs.live import Live, LiveReading, LiveRow
from shoal.jobs.replayable_rng import key_of, new_key, stream_key

if TYPE_CHECKING:
    import pandas as pd

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
    """The streaming frame of what may be shown, one row for each row of the streaming `frame`.

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
    grouped = _selected(frame, layout).groupBy("subject")
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
    """The key beside a query's checkpoint, made when absent, wherever the checkpoint lies.

    A folder of this computer is written as any other file; s3a://, hdfs:// and others go through
    Hadoop's file system, as the checkpoint itself does, and are refused where it has none.
    """
    scheme, mark, rest = checkpoint.partition(":")
    if not mark or len(scheme) == 1:  # one letter is a drive
        return stream_key(Path(checkpoint) / KEY)
    if scheme == "file":
        return stream_key(Path("/" + rest.lstrip("/")) / KEY)
    try:
        return _hadoop_key(spark, f"{checkpoint.rstrip('/')}/{KEY}")
    except _java_errors() as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        told = next((line for line in reason if "Exception" in line), reason[0])
        raise InputError(
            f"checkpoint is {checkpoint!r}, which Spark cannot reach ({told.strip()[:200]}); the "
            "key of the stream lies beside it: give Spark the file system of that scheme, or name "
            "another folder"
        ) from None


def _java_errors() -> tuple[type[Exception], ...]:
    """What a call into Java raises."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException


def _hadoop_key(spark: Any, where: str) -> bytes:
    """The key in a file of Hadoop's; the first of several writers wins."""
    hadoop = spark._jvm.org.apache.hadoop.fs
    path = hadoop.Path(where)
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(path):
        files.mkdirs(path.getParent())
        made = hadoop.Path(f"{where}.{secrets.token_hex(6)}")
        out = files.create(made)
        try:  # nobody else's before anything is in it
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
    """The newer interface where protobuf and the RocksDB state store are there, else the older."""
    from importlib.util import find_spec

    try:
        protobuf = find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        protobuf = False
    rocks = spark.conf.get(PROVIDER, "") == ROCKS
    return "transformWithStateInPandas" if protobuf and rocks else "applyInPandasWithState"


def _selected(frame: Any, layout: Layout) -> Any:
    """The columns of the stream under names of our own."""
    from pyspark.sql import functions as F  # noqa: N812 - its own documentation calls it so

    day = F.lit("") if layout.period is None else F.col(layout.period).cast("string")
    if layout.latitude is None:
        places = [F.col(str(layout.state)).cast("string").alias("state")]
    else:  # text that is no number is nothing, where a plain cast would end the query
        places = [
            F.col(str(name)).try_cast("double").alias(role)
            for role, name in (("lat", layout.latitude), ("lon", layout.longitude))
        ]
    return frame.select(
        # nobody's rows are answered too: as bad ones, under a subject without a name
        F.coalesce(F.col(layout.by).cast("string"), F.lit("")).alias("subject"),
        day.alias("day"),
        F.col(str(layout.time)).try_cast("long").alias("at"),
        *places,
    )


def _columns(live: Live) -> dict[str, str]:
    """Name to type of the columns shown."""
    common = {"subject": "string", "day": "string", "at": "long", "late": "boolean"}
    return {**common, "error": "string", **live.kind.columns(live.plan)}


def _schema(live: Live) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _columns(live).items())


def _stepper(live: Live) -> Callable[..., Iterator[pd.DataFrame]]:
    """What `applyInPandasWithState` calls for each subject with rows in a batch."""

    def step(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any) -> Any:
        stored = state.get[0] if state.exists else None
        document, table = advanced(live, str(key[0]), stored, frames)
        if document:
            state.update((document,))
        yield table

    return step


def _processor(live: Live) -> Any:
    """The same as a processor of `transformWithStateInPandas`."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Stepper(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._stored = handle.getValueState("stream", STATE)

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:  # noqa: N802
            before = self._stored.get()
            stored = None if before is None else before[0]
            document, table = advanced(live, str(key[0]), stored, rows)
            if document:
                self._stored.update((document,))
            yield table

        def close(self) -> None:
            pass

    return Stepper()


def advanced(
    live: Live, subject: str, stored: str | None, frames: Iterable[pd.DataFrame]
) -> tuple[str, pd.DataFrame]:
    """The next state of a subject, and the rows to show."""
    rows = [reading for frame in frames for reading in _readings(live, frame)]
    document, told = live.advance(subject, stored, rows)
    return document, _table(live, subject, told)


def _readings(live: Live, frame: pd.DataFrame) -> Iterator[LiveReading]:
    import pandas as pd

    if "lat" in frame.columns:
        pair = (frame[name].to_numpy(np.float64, na_value=np.nan) for name in ("lat", "lon"))
        states = live.kind.states_at(live.plan, *pair)
    else:
        states = [None if pd.isna(state) else str(state) for state in frame["state"].tolist()]
    for day, at, state in zip(frame["day"].tolist(), frame["at"].tolist(), states, strict=True):
        yield LiveReading(None if pd.isna(day) else day, None if pd.isna(at) else int(at), state)


def _table(live: Live, subject: str, told: Sequence[LiveRow]) -> pd.DataFrame:
    """The rows to show; a frame of objects, which pandas makes in a tenth of the time."""
    import pandas as pd

    names = tuple(_columns(live))
    own = tuple(live.kind.columns(live.plan))
    cells = np.empty((len(told), len(names)), dtype=object)
    for place, row in enumerate(told):
        shown = map(row.cells.get, own)
        for column, value in enumerate((subject, row.day, row.at, row.late, row.error, *shown)):
            cells[place, column] = list(value) if isinstance(value, tuple) else value
    return pd.DataFrame(cells, columns=_index(names), dtype=object, copy=False)


@lru_cache(maxsize=8)
def _index(names: tuple[str, ...]) -> pd.Index[str]:
    """The names of columns, made once: pandas spends a third of a small frame's time on them."""
    import pandas as pd

    return pd.Index(names)
