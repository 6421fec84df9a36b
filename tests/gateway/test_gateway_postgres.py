"""On PostgreSQL: several workers, one clock, row-level security, outputs across workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text

from shoal.gateway.keys import first_key
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import Address
from shoal.gateway.tables import KEYS, OUTPUTS, SPACED, STREAMS
from tests.gateway.gateway_house import House, fill, running, settings_in, wait_until
from tests.gateway.gateway_nursery import Nursery, free_ports
from tests.ledger_servers import fresh_schema, shared_server

pytestmark = pytest.mark.postgres

EVERY = 1000.0
PATH = "/v1/people/ada/streams/s"


@pytest.fixture
def url() -> str:
    return fresh_schema(shared_server())


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Store]:
    found = Store(settings_in(tmp_path, database=url))
    found.migrate()
    found.migrate()
    yield found
    found.close()


def begun(house: House, plan: str = "walk") -> None:
    for person in ("ada", "ben"):
        house.ask("PUT", f"/v1/people/{person}", "one/operator").raise_for_status()
        path = f"/v1/people/{person}/streams/s"
        body = {"plan": plan, "clock": {"every": EVERY}}
        house.ask("PUT", path, f"one/{person}", body).raise_for_status()
    house.pass_time(EVERY)


def test_readings_are_drawn_once_and_shown_when_the_clock_says(url: str, tmp_path: Path) -> None:
    with running(tmp_path, database=url) as house:
        begun(house)
        for _ in range(3):
            answer = house.ask("POST", f"{PATH}/readings", "one/ada-phone", [{"state": "0,0"}] * 3)
            assert answer.json() == {"taken": 3, "dead": []}
            house.pass_time(EVERY)
        found = house.outputs(PATH, "one/ada")
        assert [each["status"] for each in found[-3:]] == ["shown"] * 3
        charges = house.gateway.store.ledger.charges()
        assert [each.subject for each in charges] == [Address("one", "ada", "s").subject] * 3
        assert house.gateway.store.ledger.verify().intact


def test_a_transaction_sees_its_own_space_only(store: Store) -> None:
    for space in ("one", "two"):
        store.write(space, lambda c, s=space: first_key(c, s))  # type: ignore[misc]
    everything = select(KEYS.c.space)
    for space in ("one", "two"):
        seen = store.read(space, lambda c: c.execute(everything).scalars().all())
        assert set(seen) == {space}
    assert store.read("three", lambda c: c.execute(everything).all()) == []
    with pytest.raises(Exception, match="cannot be used"):
        store.write("one", lambda c: first_key(c, "three"))  # the policy checks what is written


def test_every_table_is_forced_to_its_space_for_a_role_that_owns_none(store: Store) -> None:
    wanted = text(
        "SELECT relname, relrowsecurity, relforcerowsecurity, pg_get_userbyid(relowner) "
        "FROM pg_class WHERE relname LIKE 'gateway\\_%' AND relkind = 'r' "
        "AND relnamespace = current_schema()::regnamespace"
    )
    with store.engine.connect() as connection:
        rows = {row[0]: row[1:] for row in connection.execute(wanted)}
    for table in SPACED:
        secured, forced, owner = rows[table.name]
        assert secured
        assert forced
        assert owner != "shoal_gateway"
    role = store.read(ALL, lambda c: c.execute(text("SELECT current_user")).scalar())
    assert role == "shoal_gateway"


class Workers:
    """Two processes over one database, with people who have a stream each."""

    def __init__(self, url: str, folder: Path, every: float) -> None:
        self.settings = settings_in(folder, database=url)
        store = Store(self.settings)
        store.migrate()
        self.tokens = store.write(ALL, lambda c: fill(c, ("one",)))["one"]
        self.store, self.nursery = store, Nursery()
        self.ports = free_ports(2)
        for port in self.ports:
            self.start(port)
            self.nursery.wait(port)
        self.ask(0, "PUT", "/v1/people/ada", "operator").raise_for_status()
        body = {"plan": "walk", "clock": {"every": every}}
        self.ask(0, "PUT", PATH, "ada", body).raise_for_status()

    def start(self, port: int) -> None:
        given = self.settings.model_dump(mode="json", exclude={"port"})
        self.nursery.start(port, given)

    def ask(
        self, worker: int, method: str, path: str, key: str, body: Any = None
    ) -> httpx.Response:
        base = f"http://127.0.0.1:{self.ports[worker]}"
        headers = {"Authorization": f"Bearer {self.tokens[key]}"}
        return httpx.request(method, base + path, json=body, headers=headers, timeout=60)

    def closed(self) -> int:
        wanted = select(STREAMS.c.closed)
        return int(self.store.read(ALL, lambda c: c.execute(wanted).scalar_one()))

    def close(self) -> None:
        self.nursery.stop()
        self.store.close()


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(url, tmp_path, every=0.25)
    yield found
    found.close()


def test_events_reach_every_worker_and_the_clock_is_taken_over(workers: Workers) -> None:
    heard: dict[int, list[int]] = {0: [], 1: []}
    for turn in range(2):
        listen(workers, turn, heard[turn], 4)
        assert heard[turn] == list(range(heard[turn][0], heard[turn][0] + 4))
    for _ in range(2):  # whoever holds the clock is killed, then the other one
        port = workers.ports[0]
        workers.nursery.kill(port)
        before = workers.closed()
        wait_until(lambda before=before: workers.closed() > before + 2)  # type: ignore[misc]
        workers.start(port)
        workers.nursery.wait(port)
        workers.ports.reverse()
    wanted = select(OUTPUTS.c.ordinal).order_by(OUTPUTS.c.ordinal)
    found = workers.store.read(ALL, lambda c: c.execute(wanted).scalars().all())
    assert list(found) == list(range(found[0], found[0] + len(found)))


def listen(workers: Workers, worker: int, heard: list[int], count: int) -> None:
    """The ids of the next outputs, as one worker's event stream gives them."""
    base = f"http://127.0.0.1:{workers.ports[worker]}"
    headers = {"Authorization": f"Bearer {workers.tokens['ada']}"}
    with httpx.stream("GET", f"{base}{PATH}/events", headers=headers, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                heard.append(json.loads(line[6:])["id"])
            if len(heard) >= count:
                return
