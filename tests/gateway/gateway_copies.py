"""A gateway whose database is copied and put back, as a real worker that is killed and started."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx

from shoal.gateway.copies.head import begin_head, check_head
from shoal.gateway.copies.restore import Restored, accept_older_copy
from shoal.gateway.rounds import next_close
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import House
from shoal.gateway.vault import Vault, read_keys
from tests.gateway.gateway_house import fill, settings_in, wait_until
from tests.gateway.gateway_nursery import Nursery, free_ports

EVERY = 1000.0  # seconds of a slot, by a clock that the test moves


class Site:
    """Workers over one database: SQLite has one, PostgreSQL two."""

    def __init__(self, url: str, folder: Path, **more: Any) -> None:
        self.folder = folder
        given: dict[str, Any] = {"database": url, "tick": 0.01, "head_seconds": 0.05}
        self.settings = settings_in(folder, **{**given, **more})
        self.postgres = "://" in url
        with self.store() as store:
            store.migrate()
            self.tokens = store.write(ALL, lambda c: fill(c, ("one",)))["one"]
        self.nursery, self.ports = Nursery(), free_ports(2 if self.postgres else 1)
        self._clock = folder / "clock"
        self.now = time.time()
        self.pass_time(0, wait=False)

    def store(self) -> OpenStore:
        return OpenStore(self.settings)

    def begin(self, *people: str) -> None:
        """People who have no streams yet."""
        for person in people:
            self.ask("PUT", f"/v1/people/{person}", "operator").raise_for_status()

    def start(self) -> None:
        given = self.settings.model_dump(mode="json", exclude={"port"})
        for port in self.ports:
            self.nursery.start(port, {**given, "clock": str(self._clock)})
        for port in self.ports:
            self.nursery.wait(port)

    def kill(self) -> None:
        for port in list(self.nursery.pids):
            self.nursery.kill(port)

    def stop(self) -> None:
        """Stop all workers as a service manager does, and wait until they have ended."""
        pids = list(self.nursery.pids.values())
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(map(_runs, pids)))
        self.nursery.pids.clear()

    def pass_time(self, seconds: float, *, wait: bool = True) -> None:
        """Move the clock, and wait until every slot that ended is closed."""
        self.now += seconds
        beside = self._clock.with_suffix(".new")
        beside.write_text(repr(self.now))
        beside.replace(self._clock)
        if wait:
            with self.store() as store:
                wait_until(lambda: (store.read(ALL, next_close) or self.now + 1) > self.now)

    def ask(
        self, method: str, path: str, key: str, body: Any = None, worker: int = 0
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[key]}"}
        url = f"http://127.0.0.1:{self.ports[worker]}{path}"
        return httpx.request(method, url, json=body, headers=headers, timeout=60)

    def slot(self, path: str, key: str, reading: dict[str, str]) -> str | None:
        """One reading and the close of its slot; why the reading was dead."""
        answer = self.ask("POST", f"{path}/readings", key, reading)
        assert answer.status_code == 202, answer.text
        dead = answer.json()["dead"]
        self.pass_time(EVERY)
        return dead[0]["reason"] if dead else None

    def outputs(self, path: str, key: str) -> list[dict[str, Any]]:
        answer = self.ask("GET", f"{path}/outputs?limit=999", key)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["outputs"]
        return found

    def copy(self, name: str) -> None:
        """A copy of the database, which may be in use."""
        if self.postgres:
            self._in_postgres(f"CREATE SCHEMA {self._schema}_{name}")
            for table in self._tables():
                self._in_postgres(
                    f"CREATE TABLE {self._schema}_{name}.{table} AS TABLE {self._schema}.{table}"
                )
            return
        with (
            sqlite3.connect(self.settings.database) as one,
            sqlite3.connect(self.folder / name) as two,
        ):
            one.backup(two)
        two.close()
        one.close()

    def put_back(self, name: str) -> None:
        """The copy in place of the database."""
        if self.postgres:
            for table in self._tables():
                own, other = f"{self._schema}.{table}", f"{self._schema}_{name}.{table}"
                self._in_postgres(f"DELETE FROM {own}; INSERT INTO {own} SELECT * FROM {other}")
            return
        for left in self.folder.glob("gateway.db*"):
            left.unlink()
        shutil.copy(self.folder / name, self.settings.database)

    def check(self) -> None:
        """What `shoal serve` does before it serves; LedgerError when it refuses."""
        with self.store() as store:
            check_head(store)

    def accept(self) -> Restored:
        """What `shoal serve --restored` does before it serves."""
        with self.store() as store:
            house = House(store, Vault(read_keys("", self.settings.state_key_file)))
            done = accept_older_copy(house, self.now)
            check_head(store)
        return done

    def begin_head(self) -> None:
        """What `shoal serve --new-head` does before it serves."""
        with self.store() as store:
            begin_head(store)
            check_head(store)

    @property
    def _schema(self) -> str:
        return self.settings.database.rpartition("%3D")[2]

    def _tables(self) -> list[str]:
        rows = self._in_postgres(
            "SELECT tablename FROM pg_tables "
            f"WHERE schemaname = '{self._schema}' AND tablename != 'alembic_version'"
        )
        return [name for (name,) in rows]

    def _in_postgres(self, statement: str) -> list[Any]:
        """As a superuser, whom no policy and no trigger binds."""
        import psycopg

        with psycopg.connect(self.settings.database, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []


class OpenStore:
    """A store for the time of a block."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings

    def __enter__(self) -> Store:
        self._store = Store(self._settings)
        return self._store

    def __exit__(self, *failure: object) -> None:
        self._store.close()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
