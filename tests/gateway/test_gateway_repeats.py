"""One reading, sent twice: charged once and shown once, whatever was lost on the way.

The oracle counts rows: charges in the ledger and outputs that are `shown`, against the number of
readings that a device meant to send.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import select

from shoal.gateway import client as client_module
from shoal.gateway.client import AsyncClient, Client
from shoal.gateway.doors.messages import hand_on, stamped_message
from shoal.gateway.keys import DEVICE, PERSON, make_key
from shoal.gateway.store import ALL, Store
from shoal.gateway.tables import STREAMS, TAKEN
from shoal.gateway.vault import Vault
from tests.gateway.gateway_house import House, fill, running, settings_in, wait_until
from tests.gateway.gateway_nursery import Nursery, free_ports
from tests.ledger_servers import KINDS, fresh_schema, shared_server

EVERY = 1000.0
PATH = "/v1/people/ada/streams/s"
PUSH = f"{PATH}/readings"


def database(kind: str, folder: Path) -> str:
    return str(folder / "gateway.db") if kind == "sqlite" else fresh_schema(shared_server())


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A gateway in which ada walks, on each kind of database."""
    folder = tmp_path_factory.mktemp("repeats")
    with running(folder, database=database(request.param, folder)) as house:
        for person in ("ada", "ben"):
            house.ask("PUT", f"/v1/people/{person}", "one/operator").raise_for_status()
        yield house


@pytest.fixture
def house(place: House) -> House:
    """The gateway at the beginning of a slot, and the stream of somebody new, called ada."""
    who = f"ada{uuid4().hex[:8]}"
    place.ask("PUT", f"/v1/people/{who}", "one/operator").raise_for_status()
    for name, kind in (("ada", PERSON), ("ada-phone", DEVICE)):
        made = place.gateway.store.write(ALL, partial(make_key, space="one", kind=kind, holder=who))
        place.tokens["one"][name] = made.token
    place.who = who
    place.path = f"/v1/people/{who}/streams/s"
    body = {"plan": "walk", "clock": {"every": EVERY}}
    place.ask("PUT", place.path, "one/ada", body).raise_for_status()
    place.pass_time(EVERY)
    return place


def push(house: House, key: str, body: Any, who: str = "one/ada-phone") -> httpx.Response:
    headers = {"Idempotency-Key": key}
    return house.ask("POST", f"{house.path}/readings", who, body, **headers)


def counted(house: House) -> tuple[int, int]:
    """How many charges a stream has, and how many of its closed slots show something."""
    subject = "/".join(["one", house.who, "s"])
    house.pass_time(EVERY)
    shown = [each["status"] for each in house.outputs(house.path, "one/ada")]
    return len(house.gateway.store.ledger.charges(subject)), shown.count("shown")


def test_a_repeat_in_a_later_slot_is_the_same_reading(house: House) -> None:
    key = uuid4().hex
    first = push(house, key, {"state": "1,1"})
    house.pass_time(EVERY)
    again = push(house, key, [{"state": "1,1"}])  # a list of one says the same
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert first.json() == {"taken": 1, "dead": []}
    assert counted(house) == (1, 1)
    push(house, uuid4().hex, {"state": "1,1"})  # another key is another reading
    assert counted(house) == (2, 2)


def test_a_refused_reading_stays_refused_and_is_counted_once(house: House) -> None:
    key, old = uuid4().hex, datetime.fromtimestamp(house.clock() - 9 * EVERY, UTC).isoformat()
    body = [{"state": "1,1", "at": old}, {"state": "no place"}]
    first, again = push(house, key, body), push(house, key, body)
    assert [each["place"] for each in first.json()["dead"]] == [0, 1]
    assert first.json() == again.json()
    listed = house.ask("GET", f"{house.path}/refused", "one/ada").json()["refused"]
    assert len(listed) == 2
    assert counted(house) == (0, 0)


def test_other_readings_under_a_key_are_refused_in_a_sentence(house: House) -> None:
    key, at = uuid4().hex, datetime.fromtimestamp(house.clock(), UTC).isoformat()
    assert push(house, key, {"state": "1,1"}).status_code == 202
    for other in ({"state": "0,0"}, {"state": "1,1", "at": at}, [{"state": "1,1"}] * 2):
        refused = push(house, key, other)
        assert refused.status_code == 422
        assert "Idempotency-Key was used for other readings" in refused.json()["detail"]
        assert "1,1" not in refused.text
    assert counted(house) == (1, 1)


def test_a_key_belongs_to_one_device_and_one_stream(house: House) -> None:
    key = uuid4().hex
    other = house.gateway.store.write(ALL, lambda c: make_key(c, "one", DEVICE, house.who)).token
    house.tokens["one"]["watch"] = other
    push(house, key, [{"state": "1,1"}, {"state": "0,0", "at": "1999-01-01T00:00:00Z"}])
    # the other device may use the same text for other readings, and is told of its own alone
    told = push(house, key, {"state": "0,1"}, "one/watch")
    assert (told.status_code, told.json()) == (202, {"taken": 1, "dead": []})
    assert push(house, key, {"state": "0,1"}, "one/ben-phone").status_code == 404
    assert push(house, key, {"state": "0,1"}, "two/ada-phone").status_code == 404
    assert counted(house) == (1, 1)
    house.path = f"{house.path[:-1]}day"
    body = {"plan": "day", "clock": {"every": EVERY}, "independent": True}
    house.ask("PUT", house.path, "one/ada", body).raise_for_status()
    house.pass_time(EVERY)
    assert push(house, key, {"context": "home"}).json() == {"taken": 1, "dead": []}


@pytest.mark.parametrize("key", ["short", "x" * 15, "x" * 129, "with a space in the middle"])
def test_a_key_that_can_be_guessed_is_refused(house: House, key: str) -> None:
    refused = push(house, key, {"state": "1,1"})
    assert refused.status_code == 422
    assert "Idempotency-Key" in refused.json()["detail"]
    assert counted(house) == (0, 0)


def test_duplicates_at_once_are_one_reading(house: House) -> None:
    keys = [uuid4().hex for _ in range(3)]
    with ThreadPoolExecutor(12) as pool:
        for key in keys:
            told = list(pool.map(lambda _, key=key: push(house, key, {"state": "1,1"}), range(12)))
            assert {each.text for each in told} == {told[0].text}
            assert told[0].json() == {"taken": 1, "dead": []}
            house.pass_time(EVERY)
    assert counted(house) == (3, 3)


class LostAnswers(httpx.HTTPTransport):
    """The network: the first answer to every POST is lost, and a slot passes meanwhile."""

    def __init__(self, house: House, *, keep_key: bool) -> None:
        super().__init__()
        self._house, self._keep_key, self.lost = house, keep_key, 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._keep_key:
            del request.headers["idempotency-key"]
        answer = super().handle_request(request)
        if request.method == "POST" and not self.lost:
            answer.read()
            self.lost += 1
            self._house.pass_time(EVERY)
            raise httpx.ReadError("the answer was lost", request=request)
        return answer


class LostForLoops(httpx.AsyncBaseTransport):
    """The same for event loops."""

    def __init__(self, house: House, *, keep_key: bool) -> None:
        self._inner = LostAnswers(house, keep_key=keep_key)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        one = httpx.Request(request.method, request.url, headers=request.headers, content=body)
        answer = await asyncio.to_thread(self._inner.handle_request, one)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.read())


@pytest.fixture
def on_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's clock goes with the server's."""
    now = lambda: datetime.fromtimestamp(house.clock(), UTC).isoformat()  # noqa: E731
    monkeypatch.setattr(client_module, "now_text", now)


@pytest.mark.parametrize("keep_key", [True, False])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.usefixtures("on_time")
def test_a_client_whose_answer_was_lost_pushes_once(
    house: House, keep_key: bool, many: bool
) -> None:
    """With its key the client learns what became of it; without one it is still drawn once."""
    transport = LostAnswers(house, keep_key=keep_key)
    http = httpx.Client(base_url=house.base, transport=transport, timeout=60)
    stream = "s"
    with Client(house.base, house.token("one/ada-phone"), http=http) as phone:
        reading = {"state": "1,1"}
        told = (
            phone.push_many(house.who, stream, [reading])
            if many
            else phone.push(house.who, stream, state="1,1")
        )
    assert transport.lost == 1
    assert (told.taken, told.dead) == ((1, ()) if keep_key else (0, ((0, "closed"),)))
    assert counted(house) == (1, 1)


@pytest.mark.parametrize("keep_key", [True, False])
@pytest.mark.usefixtures("on_time")
def test_a_client_in_a_loop_whose_answer_was_lost_pushes_once(house: House, keep_key: bool) -> None:
    async def run() -> int:
        transport = LostForLoops(house, keep_key=keep_key)
        http = httpx.AsyncClient(base_url=house.base, transport=transport, timeout=60)
        stream = "s"
        async with AsyncClient(house.base, house.token("one/ada-phone"), http=http) as phone:
            return (await phone.push(house.who, stream, state="1,1")).taken

    assert asyncio.run(run()) == int(keep_key)
    assert counted(house) == (1, 1)


@pytest.mark.parametrize("keep_key", [True, False])
def test_the_bridge_hands_a_message_on_once(house: House, keep_key: bool) -> None:
    stream, key = house.path.rpartition("/")[2], house.token("one/ada-phone")
    message = {"_type": "location", "lat": 52.503, "lon": 13.365}
    stamped = stamped_message(json.dumps(message).encode(), retained=False)
    assert stamped is not None
    assert abs(stamped["tst"] - time.time()) < 600
    stamped["tst"] = int(house.clock())

    async def run() -> None:
        transport = LostForLoops(house, keep_key=keep_key)
        async with httpx.AsyncClient(base_url=house.base, transport=transport, timeout=60) as http:
            await hand_on(http, stream, key, stamped)

    asyncio.run(run())
    assert counted(house) == (1, 1)


def test_what_the_bridge_hands_on_has_a_time() -> None:
    known = {"_type": "location", "lat": 1.0, "lon": 2.0, "tst": 5}
    for retained in (False, True):
        assert stamped_message(json.dumps(known).encode(), retained=retained) == known
    unknown = json.dumps({"_type": "location", "lat": 1.0, "lon": 2.0}).encode()
    assert stamped_message(unknown, retained=True) is None
    for odd in (b"no json", b"[1]", b"\xff"):
        assert stamped_message(odd, retained=False) is None


def test_nothing_of_a_reading_is_stored_that_can_be_tested_without_the_key(house: House) -> None:
    """A dump holds a fingerprint under a key that is not in it: no plain hash of a reading."""
    key = uuid4().hex
    push(house, key, {"state": "1,1"})
    rows = house.gateway.store.read(ALL, lambda c: c.execute(select(TAKEN)).all())
    (row,) = [each for each in rows if each.name == hashlib.sha256(key.encode()).hexdigest()]
    assert key not in str(row)
    content = {"context": None, "state": "1,1", "lat": None, "lon": None}
    canonical = json.dumps([[None, content]], sort_keys=True, separators=(",", ":")).encode()
    place = f"{row.uid}|{row.key}|{row.name}"
    vault = house.gateway.vault
    assert row.request == vault.fingerprint(canonical, place, row.sealer)
    assert row.request != hashlib.sha256(canonical).hexdigest()
    other = Vault([(row.sealer, b"k" * 32)])
    assert row.request != other.fingerprint(canonical, place, row.sealer)
    assert row.request != vault.fingerprint(canonical, place + "x", row.sealer)


def test_answers_go_with_their_stream_and_with_time(house: House) -> None:
    push(house, uuid4().hex, {"state": "1,1"})
    wanted_uid = select(STREAMS.c.uid).filter_by(person=house.who)
    uid = house.gateway.store.read(ALL, lambda c: c.execute(wanted_uid).scalar_one())

    def kept() -> int:
        wanted = select(TAKEN).filter_by(uid=uid)
        return len(house.gateway.store.read(ALL, lambda c: c.execute(wanted).all()))

    assert kept() == 1
    for _ in range(2):
        house.pass_time(60 * EVERY)  # more than a day of slots
        push(house, uuid4().hex, {"state": "1,1"})
    house.pass_time(12 * EVERY)
    assert kept() == 2
    house.ask("DELETE", house.path, "one/ada").raise_for_status()
    assert kept() == 0


class Killed:
    """A worker that is killed without warning, by a clock in a file."""

    def __init__(self, url: str, folder: Path) -> None:
        self.settings = settings_in(folder, database=url, tick=0.01)
        store = Store(self.settings)
        store.migrate()
        self.tokens = store.write(ALL, lambda c: fill(c, ("one",)))["one"]
        store.close()
        self._clock, self.now = folder / "clock", time.time()
        self.nursery, (self.port,) = Nursery(), free_ports(1)
        self.pass_time(0)
        self.start()
        self.ask("PUT", "/v1/people/ada", "operator").raise_for_status()
        body = {"plan": "walk", "clock": {"every": EVERY}}
        self.ask("PUT", PATH, "ada", body).raise_for_status()
        self.pass_time(EVERY)

    def start(self) -> None:
        given = self.settings.model_dump(mode="json", exclude={"port"})
        self.nursery.start(self.port, {**given, "clock": str(self._clock)})
        self.nursery.wait(self.port)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        beside = self._clock.with_suffix(".new")
        beside.write_text(repr(self.now))
        beside.replace(self._clock)

    def ask(
        self, method: str, path: str, key: str, body: Any = None, **more: str
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[key]}", **more}
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.request(method, url, json=body, headers=headers, timeout=60)


@pytest.fixture(params=KINDS)
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killed]:
    found = Killed(database(request.param, tmp_path), tmp_path)
    yield found
    found.nursery.stop()


def test_a_repeat_after_a_kill_is_the_same_reading(killed: Killed) -> None:
    more = {"Idempotency-Key": uuid4().hex}
    first = killed.ask("POST", PUSH, "ada-phone", {"state": "1,1"}, **more)
    killed.nursery.kill(killed.port)
    killed.start()
    killed.pass_time(EVERY)
    again = killed.ask("POST", PUSH, "ada-phone", {"state": "1,1"}, **more)
    assert first.json() == again.json() == {"taken": 1, "dead": []}
    killed.pass_time(EVERY)

    def shown() -> list[str]:
        told = killed.ask("GET", f"{PATH}/outputs?limit=99", "ada").json()["outputs"]
        return [each["status"] for each in told]

    wait_until(lambda: len(shown()) == 2)
    assert shown() == ["shown", "silent"]
    store = Store(killed.settings)
    assert len(store.ledger.charges("one/ada/s")) == 1
    store.close()
