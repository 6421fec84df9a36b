"""Live context and location streams on Spark Structured Streaming, one state per subject.

The filter's state lives in Spark's state store and is checkpointed with the query; the key from
which steps draw lies beside the checkpoint. A query that is restarted takes up every stream where
it stood, and a batch that runs again shows what it showed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.engines.keyed import stream_key
from shoal.engines.live import Live, Reading

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
    state: str,
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
    context, written so that days sort as text (2024-03-01). Give the query the same `checkpoint`
    folder. A row that comes after a later one of its subject was answered is marked `late` and
    shows nothing. The source must be replayable.

    `interface` is "transformWithStateInPandas", which needs the package protobuf, or
    "applyInPandasWithState", which does not; the first where it can be had.
    """
    key = stream_key(Path(checkpoint) / KEY)
    live = Live.of(plan, key, job=job, ledger=ledger, requester=requester)
    if (day is None) != bool(live.labels):
        raise InputError("contexts need the column of the day, and locations take none")
    columns = {"by": by, "state": state, "at": at, "day": day}
    chosen = interface or usable_interface(frame.sparkSession)
    grouped = _selected(frame, columns).groupBy("subject")
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


def usable_interface(spark: Any) -> str:
    """The newer interface where protobuf and the RocksDB state store are there, else the older."""
    from importlib.util import find_spec

    try:
        protobuf = find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        protobuf = False
    rocks = spark.conf.get(PROVIDER, "") == ROCKS
    return "transformWithStateInPandas" if protobuf and rocks else "applyInPandasWithState"


def _selected(frame: Any, columns: dict[str, str | None]) -> Any:
    """The columns of the stream under names of our own."""
    from pyspark.sql import functions as F  # noqa: N812 - its own documentation calls it so

    day = F.lit("") if columns["day"] is None else F.col(str(columns["day"])).cast("string")
    return frame.select(
        F.col(str(columns["by"])).cast("string").alias("subject"),
        day.alias("day"),
        F.col(str(columns["at"])).cast("long").alias("at"),
        F.col(str(columns["state"])).cast("string").alias("state"),
    ).where("subject IS NOT NULL AND at IS NOT NULL")


def _schema(live: Live) -> str:
    common = "subject string, day string, at long, late boolean, "
    if not live.labels:
        return common + "shown string"
    return common + "multiples array<long>, estimate array<double>"


def _stepper(live: Live) -> Callable[..., Iterator[pd.DataFrame]]:
    """What `applyInPandasWithState` calls for each subject with rows in a batch."""

    def step(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any) -> Any:
        stored = state.get[0] if state.exists else None
        document, table = _advanced(live, str(key[0]), stored, frames)
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
            document, table = _advanced(live, str(key[0]), stored, rows)
            self._stored.update((document,))
            yield table

        def close(self) -> None:
            pass

    return Stepper()


def _advanced(
    live: Live, subject: str, stored: str | None, frames: Iterable[pd.DataFrame]
) -> tuple[str, pd.DataFrame]:
    """The next state of a subject, and the rows to show."""
    import pandas as pd

    rows = [
        Reading(day, int(at), None if pd.isna(state) else str(state))
        for frame in frames
        for day, at, state in zip(frame["day"], frame["at"], frame["state"], strict=True)
    ]
    document, told = live.advance(subject, stored, rows)
    columns: dict[str, Any] = {
        "subject": [subject] * len(told),
        "day": [row.day for row in told],
        "at": [row.at for row in told],
        "late": [row.late for row in told],
    }
    if live.labels:
        columns["multiples"] = [
            None if row.multiples is None else list(row.multiples) for row in told
        ]
        columns["estimate"] = [None if row.estimate is None else list(row.estimate) for row in told]
    else:
        columns["shown"] = pd.Series([row.shown for row in told], dtype=object)
    return document, pd.DataFrame(columns)
