"""A database connection that stalls: another worker closes slots, and event streams end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import create_engine, select, text

from shoal.gateway.client import Client
from shoal.gateway.store import ALL, Store
from shoal.gateway.tables import OUTPUTS, STREAMS
from shoal.gateway.ticker import LEASE
from shoal.ledger.deadlines import allow_seconds, bound_calls
from tests.gateway.gateway_house import fill, settings_in, wait_until
from tests.gateway.gateway_nursery import Nursery, free_ports
from tests.gateway.gateway_proxy import StallingProxy
from tests.ledger_servers import fresh_schema, shared_server

pytestmark = pytest.mark.postgres

PATH = "/v1/people/ada/streams/s"
SECONDS = 1.0  # deadline of a call, short so that the tests are
EVERY = 0.5  # seconds of a slot


class Pair:
    """Two workers over one database, the first of them behind a proxy."""

    def __init__(self, folder: Path, *, first: int) -> None:
        """Start worker `first` and let it run the clock, then the other one."""
        server = shared_server()
        direct = fresh_schema(server)
        self.proxy = StallingProxy(server)
        behind = f"{self.proxy.url}?options={direct.partition('options=')[2]}"
        self.store = Store(settings_in(folder, database=direct))
        self.store.migrate()
        self.tokens = self.store.write(ALL, lambda c: fill(c, ("one",)))["one"]
        self.nursery, self.ports = Nursery(), free_ports(2)
        for turn, worker in enumerate((first, 1 - first)):
            url = behind if worker == 0 else direct
            given = settings_in(folder, database=url, database_seconds=SECONDS)
            port = self.ports[worker]
            self.nursery.start(port, given.model_dump(mode="json", exclude={"port"}))
            self.nursery.wait(port)
            if turn == 0:
                self.ask(worker, "PUT", "/v1/people/ada", "operator").raise_for_status()
                body = {"plan": "walk", "clock": {"every": EVERY}}
                self.ask(worker, "PUT", PATH, "ada", body).raise_for_status()
                self.wait_for_slots(1)

    def wait_for_slots(self, count: int) -> None:
        """Wait until so many more slots are closed."""
        before = self.closed()
        wait_until(lambda: self.closed() >= before + count)

    def ask(
        self, worker: int, method: str, path: str, key: str, body: Any = None
    ) -> httpx.Response:
        base = f"http://127.0.0.1:{self.ports[worker]}"
        headers = {"Authorization": f"Bearer {self.tokens[key]}"}
        return httpx.request(method, base + path, json=body, headers=headers, timeout=60)

    def health(self, worker: int) -> tuple[int, str]:
        answer = httpx.get(f"http://127.0.0.1:{self.ports[worker]}/health/ready", timeout=60)
        return answer.status_code, answer.text

    def closed(self) -> int:
        wanted = select(STREAMS.c.closed)
        return int(self.store.read(ALL, lambda c: c.execute(wanted).scalar_one()))

    def ids(self) -> list[int]:
        wanted = select(OUTPUTS.c.ordinal).order_by(OUTPUTS.c.ordinal)
        return list(self.store.read(ALL, lambda c: c.execute(wanted).scalars().all()))

    def close(self) -> None:
        self.proxy.close()
        self.nursery.stop()
        self.store.close()


@pytest.fixture
def stalled_clock(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path, first=0)
    yield pair
    pair.close()


@pytest.fixture
def stalled_other(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path, first=1)
    yield pair
    pair.close()


def test_another_worker_closes_slots_when_the_clocks_connection_stalls(
    stalled_clock: Pair,
) -> None:
    pair = stalled_clock
    pair.proxy.stall()
    began = time.monotonic()
    pair.wait_for_slots(3)
    print(f"slots close again after {time.monotonic() - began:.1f} s")
    assert pair.health(1)[0] == 200
    wait_until(lambda: pair.health(0)[0] == 503)
    answer = pair.ask(0, "POST", f"{PATH}/readings", "ada-phone", {"state": "0,0"})
    assert answer.status_code == 503
    assert "database cannot be used" in answer.json()["detail"]
    assert pair.ask(1, "POST", f"{PATH}/readings", "ada-phone", {"state": "0,0"}).is_success
    pair.proxy.resume()
    wait_until(lambda: pair.health(0)[0] == 200)
    found = pair.ids()
    assert found == list(range(found[0], found[0] + len(found)))


def test_event_streams_of_a_worker_that_stalls_end_and_go_on_elsewhere(
    stalled_other: Pair,
) -> None:
    pair, heard = stalled_other, []
    base = f"http://127.0.0.1:{pair.ports[0]}"
    headers = {"Authorization": f"Bearer {pair.tokens['ada']}"}
    ended: list[str] = []
    with httpx.stream("GET", f"{base}{PATH}/events", headers=headers, timeout=60) as answer:
        for line in answer.iter_lines():
            if line == "event: end" or ended:
                ended.append(line)
            elif line.startswith("data: "):
                heard.append(json.loads(line[6:]))
                if len(heard) == 2:
                    pair.proxy.stall()
    assert json.loads(ended[1].removeprefix("data: "))["status"] == 503
    last = heard[-1]["id"]
    with Client(f"http://127.0.0.1:{pair.ports[1]}", pair.tokens["ada"]) as elsewhere:
        following = elsewhere.follow("ada", "s", after=last)
        assert [next(following).id for _ in range(3)] == [last + 1, last + 2, last + 3]


def take_lease(idle: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> None:
    """Let `idle` have the lease of the clock: whoever holds it while it waits is cut off."""
    waiting = threading.Thread(target=lambda: idle.execute(LEASE.replace("try_", "").encode()))
    waiting.start()
    cut = b"SELECT pg_terminate_backend(holder) FROM unnest(pg_blocking_pids(%s)) AS holder"

    def taken() -> bool:
        other.execute(cut, [idle.info.backend_pid])
        return not waiting.is_alive()

    wait_until(taken)


def test_a_worker_without_the_clock_sees_how_late_slots_are(stalled_other: Pair) -> None:
    """Whoever has the clock does nothing; the workers say that slots are overdue."""
    pair = stalled_other
    where = pair.store.settings.database
    with (
        psycopg.connect(where, autocommit=True) as other,
        psycopg.connect(where, autocommit=True) as idle,
    ):
        idle.execute("SET lock_timeout = '60s'")
        take_lease(idle, other)
        wait_until(lambda: pair.health(0)[0] == 200)
        late = STREAMS.update().values(closes=time.time() - 3600)
        pair.store.write(ALL, lambda c: c.execute(late))
        wait_until(lambda: "slots are overdue" in pair.health(0)[1])
    wait_until(lambda: pair.health(0)[0] == 200)


def test_every_call_to_a_stalled_server_ends() -> None:
    proxy = StallingProxy(shared_server())
    engine = create_engine(proxy.url.replace("postgresql:", "postgresql+psycopg:"))
    bound_calls(engine, 0.5)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
        proxy.stall()
        with pytest.raises(Exception, match=r"no answer of the server for 0\.5 s"):
            connection.execute(text("SELECT 1"))
    with pytest.raises(Exception, match="timeout expired"):
        engine.connect()
    proxy.resume()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
        with pytest.raises(Exception, match="no answer of the server"):
            connection.execute(text("SELECT pg_sleep(20)"))
    with engine.connect() as connection, allow_seconds(30):
        connection.execute(text("SELECT pg_sleep(0.8)"))
    engine.dispose()
    proxy.close()


def test_the_server_gives_back_what_a_stalled_session_holds() -> None:
    """A row that a stalled transaction locked is free again, though its connection stays open."""
    server = shared_server()
    schema = fresh_schema(server)
    proxy = StallingProxy(server)
    behind = f"{proxy.url}?options={schema.partition('options=')[2]}"
    engine = create_engine(behind.replace("postgresql:", "postgresql+psycopg:"))
    bound_calls(engine, 0.5)
    with psycopg.connect(schema, autocommit=True) as direct:
        direct.execute("CREATE TABLE t (a int)")
        direct.execute("INSERT INTO t VALUES (1)")
        connection = engine.connect()
        connection.execute(text("SELECT a FROM t FOR UPDATE"))
        proxy.stall()
        done = threading.Event()

        def update() -> None:
            direct.execute("UPDATE t SET a = 2")
            done.set()

        thread = threading.Thread(target=update, daemon=True)
        thread.start()
        assert done.wait(60)
        thread.join()
    connection.invalidate()
    proxy.close()
