"""Workers and database killed at random: nothing uncharged, lost, drawn twice or shown twice."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from shoal.gateway.store import ALL, Store
from shoal.gateway.tables import OUTPUTS, STREAMS
from tests.gateway.gateway_house import fill, settings_in, wait_until
from tests.gateway.gateway_nursery import Nursery, free_ports
from tests.ledger_servers import Cluster, fresh_schema, programs

EVERY = 1000.0  # seconds of a slot, by a clock that the test moves
PATH = "/v1/people/ada/streams/s"


class Scene:
    """A device that pushes and an application that listens, while workers die and come back."""

    def __init__(self, database: str, folder: Path, workers: int) -> None:
        self.settings = settings_in(folder, database=database, tick=0.01, heartbeat=1.0)
        store = Store(self.settings)
        store.migrate()
        self.tokens = store.write(ALL, lambda c: fill(c, ("one",)))["one"]
        store.close()
        self._clock = folder / "clock"
        self.set_time(time.time())
        self.nursery, self.ports = Nursery(), free_ports(workers)
        for port in self.ports:
            self.start(port)
        self.nursery.wait(self.ports[0])
        self._ask("PUT", "/v1/people/ada", "operator")
        self._ask("PUT", PATH, "ada", {"plan": "walk", "clock": {"every": EVERY}})
        self._ask("PUT", "/v1/people/ada/grants/viewer", "ada", {})
        self.set_time(self.now + EVERY)
        self.heard: list[dict[str, Any]] = []
        self.acknowledged: list[float] = []
        self._going = True
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def set_time(self, now: float) -> None:
        """Move the clock of all workers, whole or not at all."""
        self.now = now
        beside = self._clock.with_suffix(".new")
        beside.write_text(repr(now))
        beside.replace(self._clock)

    def start(self, port: int) -> None:
        given = self.settings.model_dump(mode="json", exclude={"port"})
        self.nursery.start(port, {**given, "clock": str(self._clock)})

    def turn(self, order: random.Random, crash: Callable[[], None]) -> None:
        """A slot with a kill in the middle of its reading, and one while it closes."""
        pushing = threading.Thread(target=self._push, args=(self.now,), daemon=True)
        pushing.start()
        self._kill(order)
        crash()
        pushing.join(120)
        self.set_time(self.now + EVERY)
        self._kill(order)

    def finish(self) -> Store:
        """Let the listener hear the rest; the store as it was left."""
        store = Store(self.settings)
        due = select(STREAMS.c.closes)
        wait_until(lambda: store.read(ALL, lambda c: c.execute(due).scalar_one()) > self.now)
        newest = select(OUTPUTS.c.ordinal).order_by(OUTPUTS.c.ordinal.desc()).limit(1)
        last = store.read(ALL, lambda c: c.execute(newest).scalar_one())
        wait_until(lambda: bool(self.heard) and self.heard[-1]["id"] >= last)
        self._going = False
        self.nursery.stop()
        self._listener.join(60)
        return store

    def _kill(self, order: random.Random) -> None:
        port = order.choice(self.ports)
        time.sleep(order.uniform(0, 0.1))
        self.nursery.kill(port)
        self.start(port)

    def _ask(self, method: str, path: str, key: str, body: Any = None) -> None:
        url = f"http://127.0.0.1:{self.ports[0]}{path}"
        headers = {"Authorization": f"Bearer {self.tokens[key]}"}
        httpx.request(method, url, json=body, headers=headers, timeout=60).raise_for_status()

    def _push(self, now: float) -> None:
        """A reading that is sent again until somebody takes it."""
        headers = {"Authorization": f"Bearer {self.tokens['ada-phone']}"}
        body = {"state": "1,1", "at": datetime.fromtimestamp(now, UTC).isoformat()}
        while self._going:
            url = f"http://127.0.0.1:{random.choice(self.ports)}{PATH}/readings"
            try:
                answer = httpx.post(url, json=body, headers=headers, timeout=20)
            except httpx.HTTPError:
                time.sleep(0.02)
                continue
            if answer.status_code == 202:
                assert answer.json()["taken"] == 1, answer.text
                self.acknowledged.append(now)
                return

    def _listen(self) -> None:
        """Event streams one after the other, each from the last id on."""
        while self._going:
            headers = {"Authorization": f"Bearer {self.tokens['viewer']}"}
            headers["Last-Event-ID"] = str(self.heard[-1]["id"]) if self.heard else ""
            url = f"http://127.0.0.1:{random.choice(self.ports)}{PATH}/events?after=-1"
            try:
                with httpx.stream("GET", url, headers=headers, timeout=5) as answer:
                    for line in answer.iter_lines():
                        if line.startswith("data: ") and '"id"' in line:
                            self.heard.append(json.loads(line[6:]))
            except httpx.HTTPError:
                time.sleep(0.02)


def check(scene: Scene, store: Store) -> None:
    """What was promised, of what is stored, charged, acknowledged and heard."""
    rows = store.read(ALL, lambda c: c.execute(select(OUTPUTS).order_by(OUTPUTS.c.ordinal)).all())
    stream = store.read(ALL, lambda c: c.execute(select(STREAMS)).one())
    bodies = [json.loads(row.body) for row in rows]
    ids = [row.ordinal for row in rows]
    assert ids == list(range(ids[0], stream.closed)), "an output is missing"
    shown = {body["id"] for body in bodies if body["status"] == "shown"}
    charges = store.ledger.charges()
    keys = [charge.key for charge in charges]
    assert len(set(keys)) == len(keys), "a slot was charged twice"
    charged = {int(str(key).rpartition("/")[2]) for key in keys}
    assert shown <= charged, "an output was not charged"
    assert {each for each in charged if each < stream.closed} == shown, "an output was lost"
    heard = [each["id"] for each in scene.heard]
    assert heard == list(range(heard[0], heard[0] + len(heard))), "an event was missed or repeated"
    by_id = {body["id"]: body for body in bodies}
    assert all(by_id[each["id"]] == each for each in scene.heard), "an output changed"
    for instant in scene.acknowledged:
        at = datetime.fromtimestamp(instant, UTC)
        slot = [b for b in bodies if moment(b["opens"]) <= at < moment(b["ends"])]
        assert slot[0]["status"] == "shown", "a reading that was taken is gone"
    assert len(shown) == len(scene.acknowledged) > 0
    assert store.ledger.verify().intact


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    found = Cluster()
    found.start()
    yield found
    found.remove()


def run(scene: Scene, turns: int, crash: Callable[[], None], every: int) -> None:
    """Two kills a turn, and the database's now and then; then all is checked."""
    order = random.Random(5)
    for turn in range(turns):
        scene.turn(order, crash if turn % every == every - 1 else lambda: None)
    store = scene.finish()
    check(scene, store)
    store.close()


def run_postgres(cluster: Cluster, folder: Path, turns: int, every: int) -> None:
    def crash() -> None:
        cluster.stop("immediate")
        cluster.start()

    run(Scene(fresh_schema(cluster.url), folder, workers=2), turns, crash, every)


def run_sqlite(folder: Path, turns: int) -> None:
    run(Scene(str(folder / "gateway.db"), folder, workers=1), turns, lambda: None, turns)


def test_a_worker_on_sqlite_is_killed(tmp_path: Path) -> None:
    run_sqlite(tmp_path, 9)


@pytest.mark.postgres
def test_workers_and_postgres_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    run_postgres(cluster, tmp_path, 15, every=8)


@pytest.mark.slow
def test_a_worker_on_sqlite_is_killed_many_times(tmp_path: Path) -> None:
    run_sqlite(tmp_path, 150)


@pytest.mark.slow
@pytest.mark.postgres
def test_workers_and_postgres_are_killed_many_times(cluster: Cluster, tmp_path: Path) -> None:
    run_postgres(cluster, tmp_path, 330, every=8)
