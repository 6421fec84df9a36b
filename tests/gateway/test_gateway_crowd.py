"""Readings that come together: one transaction, and each keeps its promise by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import select, update

from shoal.core.charge import SystemRng
from shoal.core.errors import InputError, LedgerError, StoredError
from shoal.core.stream import Slot, Step, run_batch
from shoal.gateway import app
from shoal.gateway.advance import Output, Reading, Work
from shoal.gateway.hub import Hub
from shoal.gateway.machines import stream_kind, whole_of
from shoal.gateway.problems import Problem
from shoal.gateway.rounds import (
    Asked,
    BatchAborted,
    Closing,
    RequestBatcher,
    close_due,
    next_close,
    run_together,
    take_all,
    warm_up,
)
from shoal.gateway.seen import Seen
from shoal.gateway.sight import Sight
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import Address, House, open_stream
from shoal.gateway.tables import OUTPUTS, STREAMS
from shoal.gateway.town import plan_of_spec
from shoal.gateway.vault import Vault, read_keys
from shoal.ledger.engines import UNREACHABLE
from shoal.noise.primitives import SeededRng
from shoal.places.stream import LocationStream
from tests.gateway.gateway_house import SPECS, fill, plan, settings_in
from tests.settling import Settling

NOW = 1_000_000.0
EVERY = 10.0
PEOPLE = ("ada", "ben", "cleo", "dora")


class Rooms:
    """Four people with a stream of places each, in a database of their own."""

    def __init__(self, folder: Path) -> None:
        settings = settings_in(folder)
        self.store = Store(settings)
        self.store.migrate()
        self.house = House(self.store, Vault(read_keys("", settings.state_key_file)))
        self.store.write(ALL, lambda c: fill(c, ("one",)))
        asked = {"plan": "walk", "clock": {"every": EVERY}}
        self.store.write(
            ALL,
            lambda c: [
                open_stream(self.house, c, self.where(p), asked, NOW - EVERY) for p in PEOPLE
            ],
        )

    def where(self, person: str) -> Address:
        return Address("one", person, "s")

    def asked(self, person: str, *states: str) -> Asked:
        return Asked(self.where(person), [Reading(NOW + 1, {"state": s}) for s in states], NOW + 1)

    def take(self, *asked: Asked) -> list[Any]:
        return self.store.write(ALL, lambda c: take_all(self.house, c, asked))

    def spoil(self, person: str) -> None:
        """Change a byte of a stored state."""
        own = STREAMS.c.person == person
        rotten = update(STREAMS).where(own).values(sealed=b"rotten" * 20)
        self.store.write(ALL, lambda c: c.execute(rotten))

    def subjects(self) -> list[str]:
        return sorted(charge.subject for charge in self.store.ledger.charges())


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    found = Rooms(tmp_path)
    yield found
    found.store.close()


def test_requests_that_come_together_are_charged_once_each(rooms: Rooms) -> None:
    asked = [rooms.asked(person, "0,0", "1,1") for person in PEOPLE]
    assert rooms.take(*asked, rooms.asked("ada", "2,2")) == [[None, None]] * 4 + [[None]]
    assert rooms.subjects() == [rooms.where(person).subject for person in PEOPLE]
    assert rooms.store.ledger.verify().intact


def test_what_is_missing_unreadable_or_rotten_is_nobody_elses_trouble(rooms: Rooms) -> None:
    rooms.spoil("ben")
    told = rooms.take(
        rooms.asked("ada", "0,0"),
        rooms.asked("ben", "0,0"),
        rooms.asked("nobody", "0,0"),
        rooms.asked("cleo", "nowhere"),
    )
    assert told[0] == [None]
    assert isinstance(told[1], StoredError)
    assert isinstance(told[2], Problem)
    assert told[3] == ["unreadable"]
    assert rooms.subjects() == [rooms.where("ada").subject]


def test_a_stream_that_cannot_be_closed_holds_nobody_up(rooms: Rooms) -> None:
    rooms.spoil("ben")
    later = NOW + 2 * EVERY
    closed = rooms.store.write(ALL, lambda c: close_due(rooms.house, c, later, 10))
    assert len(closed.shown) == 3
    uid = select(STREAMS.c.uid).where(STREAMS.c.person == "ben")
    assert closed.broken == [rooms.store.read(ALL, lambda c: c.execute(uid).scalar_one())]
    upcoming = rooms.store.read(ALL, lambda c: next_close(c, closed.broken))
    assert upcoming is not None
    assert upcoming > later
    count = len(rooms.store.read(ALL, lambda c: c.execute(select(OUTPUTS)).all()))
    assert count == sum(len(each.outputs) for each in closed.shown) > 0


def test_who_fails_after_a_charge_takes_the_transaction_along(rooms: Rooms) -> None:
    """A charge whose state is not stored must not be committed, with whomever it came."""
    built = plan("walk")

    def charged(subject: str) -> Work[str]:
        yield Step(LocationStream.begin(built), Slot(subject=subject, key=subject), 0)
        return subject

    def failing() -> Work[str]:
        yield from charged("failing")
        raise InputError("no")

    def together(connection: Any) -> list[Any]:
        works = [charged("good"), failing()]
        return list(run_together(works, rooms.store.charging(connection)))

    with pytest.raises(BatchAborted) as spoiled:
        rooms.store.write(ALL, together)
    assert list(spoiled.value.places) == [1]
    assert isinstance(spoiled.value.error, InputError)
    assert rooms.subjects() == []


class Noting(Settling):
    """A ledger that allows everything and notes for which plan."""

    def __init__(self) -> None:
        self.charged: list[Any] = []

    def settle(self, charge: Any, sample: Any) -> Any:
        self.charged.append(charge.plan)
        return sample()


@pytest.mark.parametrize(("name", "seen"), [("walk", "0,0"), ("day", "work")])
def test_a_state_that_remembers_goes_on_as_the_same_bytes_do(
    name: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, ledger = plan(name), Noting()
    kind = stream_kind(built)
    reading = kind.parse_reading(built, {"state": seen, "context": seen})

    def follow(as_kept: Any) -> list[Any]:
        coins = SeededRng(7)
        monkeypatch.setattr(SystemRng, "words", lambda _, count: coins.words(count))
        state, found = kind.begin(built), []
        for observed in (seen, None, seen, seen):
            given = as_kept(state)
            if observed is None:
                state, shown = kind.skip(built, given, status="silent")
            else:
                names = Slot(subject="ada", period="day", key="key")
                step = kind.step(built, given, reading, names, 0)
                (result,) = run_batch([step], ledger)
                state, shown = kind.after(built, result, status="shown")
            found.append((bytes(state), shown))
        return found

    assert follow(lambda state: state) == follow(bytes)
    state = kind.begin(built)
    assert whole_of(state) is not None
    assert whole_of(state) is None  # and the bytes are enough from then on
    assert bytes(kind.skip(built, state, status="silent")[0]) == bytes(
        kind.skip(built, bytes(state), status="silent")[0]
    )


def test_what_a_state_remembers_is_no_other_plans() -> None:
    built, other = plan("walk"), plan_of_spec(SPECS["walk"].replace("1.0", "0.5"))
    kind = stream_kind(built)
    carried = kind.carry_state(built, kind.begin(built), other)
    ledger = Noting()
    run_batch([kind.step(other, carried, 0, Slot(subject="ada", key="key"), 0)], ledger)
    assert ledger.charged == [other]


def test_a_worker_is_warm_before_its_first_slot_and_charges_nobody_for_it(rooms: Rooms) -> None:
    assert warm_up(rooms.house) == 1
    assert rooms.subjects() == []


def test_a_part_that_fails_begins_again_and_a_database_that_is_away_is_waited_for(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "RESTART", 0.001)
    runs: list[int] = []

    async def part() -> None:
        runs.append(1)
        raise RuntimeError("broken")

    async def run() -> None:
        task = asyncio.create_task(app.kept_going(part))
        while len(runs) < 3:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(run())

    broken = rooms.store.ledger.database.unknown()  # a crash in the middle of the first look

    def away() -> int:
        runs.append(1)
        if len(runs) < 8:
            raise LedgerError(f"the ledger x {UNREACHABLE}") if len(runs) % 2 else broken
        return len(runs)

    assert app.patiently(away) == 8
    with pytest.raises(LedgerError, match="other"):
        app.patiently(lambda: raised(LedgerError("other")))


def raised(error: Exception) -> None:
    raise error


def test_a_crowd_gathers_while_others_are_under_way_and_is_bounded() -> None:
    groups: list[int] = []

    async def work(items: list[int]) -> list[int | Exception]:
        groups.append(len(items))
        await asyncio.sleep(0.01)
        return [InputError("odd") if item % 2 else item for item in items]

    async def run() -> list[Any]:
        crowd: RequestBatcher[int, int] = RequestBatcher(work, waiting=8)
        asked = [asyncio.create_task(crowd.ask(n)) for n in range(10)]
        return await asyncio.gather(*asked, return_exceptions=True)

    told = asyncio.run(run())
    assert groups == [1, 8]
    assert [each for each in told if isinstance(each, int)] == [0, 2, 4, 6, 8]
    assert isinstance(told[9], Problem)  # one too many waited
    assert [type(told[n]) for n in (1, 3, 5, 7)] == [InputError] * 4


def test_an_output_that_comes_from_two_sides_is_sent_once() -> None:
    """Read from the store just before this worker is told that it closed the slot itself."""
    outputs = [Output(n, float(n), f'{{"id":{n}}}') for n in range(7)]
    where, stored = Address("one", "ada", "s"), outputs[:4]

    class Stored:
        async def reading(self, space: str, work: Any) -> list[Output]:
            return list(stored)

    async def heard() -> list[bytes]:
        hub = Hub(Stored(), Seen(), heartbeat=60.0, most=1)  # type: ignore[arg-type]
        hub.admit("key")
        frames = hub.follow(Sight("one", "uid", "viewer"), 2, "key", lambda: None)
        told = [await anext(frames)]
        stored[:] = outputs[3:4]
        told.append(await anext(frames))
        hub.publish([Closing(where, "uid", outputs[3:4])])
        hub.publish([Closing(where, "uid", outputs[3:5])])
        told.append(await anext(frames))
        hub.publish([Closing(where, "uid", outputs[6:7])])  # 5 was closed elsewhere
        stored[:] = outputs[5:7]
        told.append(await anext(frames))
        await frames.aclose()  # type: ignore[attr-defined]
        return told[1:]

    found = [
        [line for line in each.split(b"\n") if b"id:" in line] for each in asyncio.run(heard())
    ]
    assert found[1:] == [[b"id: 4"], [b"id: 5", b"id: 6"]]


class Empty:
    """A store in which there is nothing to read."""

    async def reading(self, space: str, work: Any) -> list[Any]:
        return []


def test_a_connection_ends_when_its_stream_was_begun_anew() -> None:
    hub = Hub(cast(Store, Empty()), Seen(), heartbeat=0.01, most=1)
    hub.admit("key")

    async def recheck() -> Sight:
        return Sight("one", "new", "")

    async def frames() -> bytes:
        old = Sight("one", "old", "")
        return b"".join([each async for each in hub.follow(old, -1, "key", recheck)])

    assert b"event: end" in asyncio.run(asyncio.wait_for(frames(), 60))
    assert hub.connections == 0
