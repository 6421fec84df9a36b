"""Structured Streaming: state that survives restarts, and batches that run again show the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.jobs.live import Live, LiveReading, stream_key
from shoal.jobs.spark import KEY, PROVIDER, ROCKS, checkpoint_key, live_stream
from shoal.ledger import open_ledger
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from tests.engine_spark import GROUP, spark_session  # noqa: F401
from tests.locations import running_task, town_task

pytestmark = [GROUP, pytest.mark.engines]

CONTEXTS = ("home", "work", "clinic")
SLOTS = 8
PROTOBUF = find_spec("google") is not None and find_spec("google.protobuf") is not None
INTERFACES = [
    "applyInPandasWithState",
    pytest.param(
        "transformWithStateInPandas",
        marks=pytest.mark.skipif(not PROTOBUF, reason="the package protobuf is not installed"),
    ),
]


@pytest.fixture(scope="module")
def masked() -> Plan:
    matrix = [[0.8, 0.15, 0.05], [0.3, 0.65, 0.05], [0.45, 0.05, 0.5]]
    day = DayChain.of(matrix, initial=[0.9, 0.1, 0.0], states=CONTEXTS, slots=SLOTS)
    secrets = SensitiveContexts.of("clinic")
    return mask(day, secrets, delta="0.3", check="mask-probabilistic")


def put(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """A file that appears whole, as a streaming source needs it."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / name)


def slots(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"user": f"u{user}", "day": "2024-03-01", "slot": slot, "what": CONTEXTS[(slot + user) % 3]}
        for slot in range(first, last)
        for user in range(3)
    ]


class Crash(Exception):
    pass


class Sink:
    """What a batch showed, also when it crashes afterwards."""

    def __init__(self, *, crash_at: int | None = None) -> None:
        self.seen: list[dict[tuple[str, int], Any]] = []
        self._crash_at = crash_at

    def __call__(self, frame: Any, batch: int) -> None:
        rows = frame.collect()
        value = "shown" if "shown" in frame.columns else "multiples"
        self.seen.append({(row.subject, row.at): row[value] for row in rows})
        if batch == self._crash_at:
            raise Crash("after the values were seen")


UNHEARD = "Python worker failed to connect back"  # Spark waits ten seconds for one, whatever is set


def run(spark: Any, folder: Path, shown: Any, sink: Callable[[Any, int], None]) -> None:
    """All batches there are; an error of the sink ends the query, a busy machine does not."""
    from pyspark.errors import StreamingQueryException

    writer = shown.writeStream.foreachBatch(sink).trigger(availableNow=True)
    for left in reversed(range(10)):
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if UNHEARD not in str(error) or not left:
                raise
        else:
            return


def contexts(spark: Any, folder: Path, plan: Plan, **rest: Any) -> Any:
    source = spark.readStream.schema("user string, day string, slot long, what string")
    frame = source.json(str(folder / "in"))
    return live_stream(
        frame,
        plan,
        by="user",
        state="what",
        at="slot",
        day="day",
        checkpoint=folder / "checkpoint",
        **rest,
    )


def test_a_key_goes_through_hadoops_own_file_systems(spark: Any, tmp_path: Path) -> None:
    """viewfs is one that Spark brings along; the classes of s3a it does not."""
    where = tmp_path / "elsewhere"
    where.mkdir()
    settings = spark._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.lake.link./data", where.as_uri())
    key = checkpoint_key(spark, "viewfs://lake/data/query")
    assert stream_key(where / "query" / KEY) == key
    assert (where / "query" / KEY).stat().st_mode & 0o777 == 0o600
    assert checkpoint_key(spark, "viewfs://lake/data/query/") == key
    assert [path.name for path in (where / "query").iterdir() if path.suffix != ".crc"] == [KEY]
    with pytest.raises(InputError, match="which Spark cannot reach"):
        checkpoint_key(spark, "s3a://bucket/query")


PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def partitions(spark: Any, request: pytest.FixtureRequest) -> Iterator[int]:
    """Over how many partitions the states of people are spread."""
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, str(request.param))
    yield request.param
    spark.conf.set(PARTITIONS, before)


@pytest.mark.parametrize("partitions", [1, pytest.param(3, marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize("interface", INTERFACES)
def test_context_streams_go_on_after_a_restart_and_replay_what_they_showed(
    interface: str, partitions: int, spark: Any, masked: Plan, tmp_path: Path
) -> None:
    spark.conf.set(PROVIDER, ROCKS)
    places = spark.sql(f"SELECT pmod(hash('u' || id), {partitions}) AS at FROM range(3)").collect()
    assert (len({row.at for row in places}) > 1) == (partitions > 1)  # people are apart
    where = str(tmp_path / "budget.db")
    rest = {"interface": interface, "ledger": where}
    put(tmp_path / "in", "a.json", slots(0, 3))
    first = Sink()
    run(spark, tmp_path, contexts(spark, tmp_path, masked, **rest), first)
    put(tmp_path / "in", "b.json", slots(3, 6))
    crashing = Sink(crash_at=1)
    with pytest.raises(Exception, match="after the values were seen"):
        run(spark, tmp_path, contexts(spark, tmp_path, masked, **rest), crashing)
    put(tmp_path / "in", "c.json", slots(6, SLOTS))
    again = Sink()
    run(spark, tmp_path, contexts(spark, tmp_path, masked, **rest), again)
    assert again.seen[:1] == crashing.seen  # the batch that crashed, and then the one after it
    assert len(again.seen) == 2
    together = {
        key: value for sink in (first, again) for seen in sink.seen for key, value in seen.items()
    }
    live = Live.of(masked, stream_key(tmp_path / "checkpoint" / KEY))
    for user in range(3):
        own = [row for row in slots(0, SLOTS) if row["user"] == f"u{user}"]
        rows = [LiveReading(row["day"], row["slot"], row["what"]) for row in own]
        _, told = live.advance(f"u{user}", None, rows)
        assert {row.at: row.cells.get("shown") for row in told} == {
            at: value for (name, at), value in together.items() if name == f"u{user}"
        }
    with open_ledger(where) as ledger:
        assert ledger.verify().charges == 3


@pytest.mark.slow
@pytest.mark.parametrize("interface", INTERFACES)
def test_location_streams_go_on_after_a_restart(interface: str, spark: Any, tmp_path: Path) -> None:
    spark.conf.set(PROVIDER, ROCKS)
    plan = calibrate_and_check(MECHANISMS["location-knorm"], running_task(), Fraction(1))
    rows: list[dict[str, Any]] = [
        {"user": f"u{user}", "t": 10 * step, "place": f"s{(step * 5 + user) % 6 + 1}"}
        for step in range(6)
        for user in range(2)
    ]
    put(tmp_path / "in", "a.json", rows[:5])
    sinks = [Sink(), Sink()]

    def shown() -> Any:
        source = spark.readStream.schema("user string, t long, place string")
        return live_stream(
            source.json(str(tmp_path / "in")),
            plan,
            by="user",
            state="place",
            at="t",
            checkpoint=tmp_path / "checkpoint",
            interface=interface,
        )

    run(spark, tmp_path, shown(), sinks[0])
    put(tmp_path / "in", "b.json", rows[5:])
    run(spark, tmp_path, shown(), sinks[1])
    together = {key: value for sink in sinks for seen in sink.seen for key, value in seen.items()}
    assert len(together) == 12
    live = Live.of(plan, stream_key(tmp_path / "checkpoint" / KEY))
    for user in range(2):
        own = [row for row in rows if row["user"] == f"u{user}"]
        _, told = live.advance(
            f"u{user}", None, [LiveReading("", row["t"], row["place"]) for row in own]
        )
        for row in told:
            found = together[f"u{user}", int(row.at or 0)]
            assert (None if found is None else tuple(found)) == row.cells.get("multiples")


@pytest.mark.slow
@pytest.mark.parametrize("interface", INTERFACES)
def test_coordinates_are_followed_live(interface: str, spark: Any, tmp_path: Path) -> None:
    spark.conf.set(PROVIDER, ROCKS)
    plan = calibrate_and_check(MECHANISMS["location-knorm"], town_task(4, 4), Fraction(1))
    rows: list[dict[str, Any]] = [
        {"user": "u0", "t": 1, "lat": "39.007", "lon": 116.010},
        {"user": "u0", "t": 2, "lat": "north", "lon": 116.010},
        {"user": "u0", "t": 3, "lat": "39.5", "lon": 117.0},
        {"user": "u0", "t": 4, "lat": "39.001", "lon": None},
        {"user": "u0", "t": 5, "lat": " 39.001", "lon": 116.001},
    ]
    put(tmp_path / "in", "a.json", rows[:2])
    seen: dict[int, Any] = {}

    def collect(frame: Any, batch: int) -> None:
        seen.update({row.at: row for row in frame.collect()})

    for name, more in (("b.json", rows[2:4]), ("c.json", rows[4:])):
        shown = live_stream(
            spark.readStream.schema("user string, t long, lat string, lon double").json(
                str(tmp_path / "in")
            ),
            plan,
            by="user",
            latitude="lat",
            longitude="lon",
            at="t",
            checkpoint=tmp_path / "checkpoint",
            interface=interface,
        )
        run(spark, tmp_path, shown, collect)
        put(tmp_path / "in", name, more)
    run(spark, tmp_path, shown, collect)
    live = Live.of(plan, stream_key(tmp_path / "checkpoint" / KEY))
    names = ["1,1", None, "3,3", None, "0,0"]
    _, told = live.advance("u0", None, [LiveReading("", at, n) for at, n in enumerate(names, 1)])
    for row in told:
        found = seen[int(row.at or 0)]
        assert (None if found.multiples is None else tuple(found.multiples)) == row.cells.get(
            "multiples"
        )
        assert (found.value_degrees is None) == (row.cells.get("multiples") is None)
        assert len(found.estimate_degrees) == 2


def test_wrong_columns_and_interfaces_are_refused(spark: Any, masked: Plan, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", slots(0, 1))
    with pytest.raises(InputError, match="interface is 'other'"):
        contexts(spark, tmp_path, masked, interface="other")
    plan = calibrate_and_check(MECHANISMS["location-knorm"], running_task(), Fraction(1))
    with pytest.raises(InputError, match="locations take none"):
        contexts(spark, tmp_path, plan)
    frame = spark.readStream.schema("user string, t long, x double, y double").json(
        str(tmp_path / "in")
    )
    rest: dict[str, Any] = {"by": "user", "at": "t", "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(InputError, match="has no map"):
        live_stream(frame, plan, latitude="x", longitude="y", **rest)
    with pytest.raises(InputError, match="name the column of the state"):
        live_stream(frame, plan, **rest)
