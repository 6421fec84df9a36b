"""What a live service needs of streams: outcomes, lost outputs, bytes, charges of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.contexts.stream import ContextStream
from shoal.core.charge import Charge
from shoal.core.errors import StoredError
from shoal.core.plan import Fresh, Late, Plan, Release, Repeated, Stream
from shoal.core.registry import dumps, loads
from shoal.core.task import Task
from shoal.ledger import SqlLedger, charging, open_ledger
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.noise.primitives import SeededRng
from shoal.places.policy import LocationSet
from shoal.places.stream import LocationStream
from tests.locations import town_task
from tests.settling import Settling

STATES = ("home", "work", "clinic")
MATRIX = [[0.7, 0.25, 0.05], [0.1, 0.88, 0.02], [0.3, 0.2, 0.5]]
DAY = DayChain.of(MATRIX, initial=[0.8, 0.2, 0], states=STATES, slots=6, slot_minutes=60)
TASK = Task(query=CurrentState(STATES), secrets=SensitiveContexts.of("clinic"), family=(DAY,))
MASK = MECHANISMS["mask-adaptive"].calibrate(TASK, Fraction(1, 10))


@pytest.fixture(scope="module")
def town() -> Plan:
    return calibrate_and_check(MECHANISMS["location-knorm"], town_task(5, 5), Fraction(1))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    with open_ledger(tmp_path / "budget.db") as opened:
        yield opened


def names(step: int) -> dict[str, Any]:
    return {"subject": "ann", "key": f"step {step}"}


def test_a_place_is_taken_once_repeated_or_late(town: Plan) -> None:
    stream, first = LocationStream.begin(town).take("1,1", at=100)
    assert isinstance(first, Fresh)
    after, again = stream.take("4,4", at=100)
    assert again == Repeated(first.output)
    assert after is stream
    assert stream.take("1,1", at=99) == (stream, Late(100))
    stream, second = stream.take("1,2", at=160, rng=SeededRng(1))
    assert isinstance(second, Fresh)
    assert second.output.time == 2
    assert stream.take("1,1", at=100)[1] == Late(160)
    assert stream.skip()[0].take("1,1", at=161)[0].last == 161


def test_a_context_is_taken_once_repeated_or_late() -> None:
    stream, outcome = ContextStream.begin(MASK).take("home", slot=1, day="2024-03-04")
    assert isinstance(outcome, Fresh)
    assert stream.take("clinic", slot=1, day="2024-03-04") == (stream, Repeated(outcome.output))
    assert stream.take("work", slot=0)[1] == Repeated(None)  # it was not read, and stays so
    later, _ = stream.take("work", slot=0, day="2024-03-05")
    assert later.take("home", slot=1, day="2024-03-04") == (later, Late(("2024-03-05", 0)))
    forgetful = ContextStream(MASK, stream.state, stream.day, stream.shown)
    assert forgetful.take("home", slot=0)[1] == Late(("2024-03-04", 1))


@pytest.mark.parametrize("delta", [None, Fraction(1, 10)], ids=str)
def test_bytes_hold_the_whole_stream_but_the_plan(delta: Fraction | None) -> None:
    task = town_task(20, 20)
    if delta is not None:
        places = LocationSet(policy=task.secrets, delta=delta)  # type: ignore[arg-type]
        task = Task(query=task.query, secrets=places, family=task.family)
    plan = calibrate_and_check(MECHANISMS["location-knorm"], task, Fraction(1))
    stream = LocationStream.begin(plan)
    for step in range(6):
        stream, _ = stream.take("9,9", at=step, rng=SeededRng(step))
        stored = stream.to_bytes()
        assert LocationStream.from_bytes(plan, stored) == stream
    assert len(stored) < 2600
    assert loads(dumps(stream)) == stream
    one = LocationStream.from_bytes(plan, stored).read("9,9", rng=SeededRng(9))
    assert one == stream.read("9,9", rng=SeededRng(9))
    lost = LocationStream.from_bytes(plan, stored).shown
    assert lost == stream.shown  # an output that never arrived is still there


def test_bytes_of_contexts_hold_the_whole_stream_but_the_plan() -> None:
    stream = ContextStream.begin(MASK)
    for slot in range(5):
        stream, _ = stream.read("home", slot=slot, day="2024-03-04", rng=SeededRng(slot))
        assert ContextStream.from_bytes(MASK, stream.to_bytes()) == stream
    assert len(stream.to_bytes()) < 600 < len(dumps(stream))
    plain = Stream(MASK, stream.state)
    assert Stream.from_bytes(MASK, plain.to_bytes()) == plain


def test_foreign_and_damaged_bytes_are_told_apart(town: Plan) -> None:
    contexts = ContextStream.begin(MASK).to_bytes()
    damaged = contexts[:-1] + bytes([contexts[-1] ^ 1])
    with pytest.raises(StoredError, match="is damaged"):
        ContextStream.from_bytes(MASK, damaged)
    with pytest.raises(StoredError, match="no stored stream"):
        ContextStream.from_bytes(MASK, LocationStream.begin(town).to_bytes())
    with pytest.raises(StoredError, match="belongs to another plan"):
        ContextStream.from_bytes(town, contexts)
    small = calibrate_and_check(MECHANISMS["location-knorm"], town_task(3, 3), Fraction(1))
    with pytest.raises(StoredError, match="25 hidden states, and the plan's model 9"):
        LocationStream.from_bytes(small, LocationStream.begin(town).to_bytes())
    shown = LocationStream.begin(town).read("1,1")[0].to_bytes()
    with pytest.raises(StoredError, match="is damaged"):
        LocationStream.from_bytes(town, shown[:60] + shown[61:])


def test_a_step_that_was_charged_and_never_told_is_recovered(town: Plan, ledger: SqlLedger) -> None:
    stream, _ = LocationStream.begin(town).read("1,1", ledger=ledger, **names(0))
    assert stream.recovered(ledger, **names(1)) is None
    lost, release = stream.read("1,2", ledger=ledger, **names(1))
    again = stream.recovered(ledger, **names(1))
    assert again is not None
    assert again[1] == release
    assert again[0].state == lost.state
    assert len(ledger.charges()) == 2
    ledger.limit(2, unit="epsilon", subject="ann")
    assert stream.recovered(ledger, **names(7)) is None  # nothing is charged by asking


def test_a_step_reads_once_and_writes_once(
    town: Plan, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _ = LocationStream.begin(town).read("1,1", ledger=ledger, **names(0))
    trips: list[str] = []
    for name in ("fetch", "write"):
        real = getattr(charging, name)

        def counted(*asked: Any, name: str = name, real: Any = real) -> Any:
            trips.append(name)
            return real(*asked)

        monkeypatch.setattr(charging, name, counted)
    stream, release = stream.read("1,2", ledger=ledger, **names(1))
    assert trips == ["fetch", "write"]
    assert ledger.release(ledger.charges()[-1]).answer.multiples == release.z
    assert ledger.verify().intact


class OwnTransaction(Settling):
    """A service's ledger: charge, output and state in a transaction that the service began."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        add = "INSERT INTO charges VALUES (?, ?)"
        self._connection.execute(add, (charge.subject, str(charge.eta)))
        return sample()


def test_charge_and_state_are_stored_in_a_transaction_given_from_outside(town: Plan) -> None:
    """Stepping is a function of state and reading: what is rolled back has never happened."""
    store = sqlite3.connect(":memory:", isolation_level=None)
    store.execute("CREATE TABLE charges (subject TEXT, eta TEXT)")
    store.execute("CREATE TABLE streams (stored BLOB)")
    begun = LocationStream.begin(town).to_bytes()
    store.execute("INSERT INTO streams VALUES (?)", (begun,))

    def take(place: str, *, killed: bool) -> None:
        store.execute("BEGIN")
        (stored,) = store.execute("SELECT stored FROM streams").fetchone()
        stream, _ = LocationStream.from_bytes(town, stored).read(
            place, ledger=OwnTransaction(store), subject="ann"
        )
        store.execute("UPDATE streams SET stored = ?", (stream.to_bytes(),))
        store.execute("ROLLBACK" if killed else "COMMIT")

    take("1,1", killed=True)
    assert store.execute("SELECT COUNT(*) FROM charges").fetchone() == (0,)
    assert store.execute("SELECT stored FROM streams").fetchone() == (begun,)
    take("1,1", killed=False)
    take("1,2", killed=False)
    (stored,) = store.execute("SELECT stored FROM streams").fetchone()
    assert LocationStream.from_bytes(town, stored).state.time == 2
    assert store.execute("SELECT COUNT(*) FROM charges").fetchone() == (2,)
