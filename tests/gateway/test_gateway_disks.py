"""A disk that is full: the service says so at once, and goes on when there is space again."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from tests.gateway.gateway_house import House, running, wait_until
from tests.ledger_servers import KINDS, fresh_ledger

EVERY = 1000.0
PATH = "/v1/people/ada/streams/s"
Fill = Callable[[], Callable[[], None]]  # fills the disk, and returns what frees it


def ready(house: House) -> tuple[int, str]:
    answer = house.ask("GET", "/health/ready")
    return answer.status_code, answer.text


def push(house: House) -> int:
    return house.ask("POST", f"{PATH}/readings", "one/ada-phone", {"state": "0,0"}).status_code


def check_full_disk(house: House, fill: Fill) -> None:
    """A reading that is refused makes the worker not ready, until a write has worked."""
    house.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
    body = {"plan": "walk", "clock": {"every": EVERY}}
    house.ask("PUT", PATH, "one/ada", body).raise_for_status()
    house.pass_time(EVERY)
    assert push(house) == 202
    assert ready(house)[0] == 200
    free = fill()
    house.clock.ahead += EVERY
    wait_until(lambda: push(house) == 503)
    assert "is its disk full?" in ready(house)[1]
    assert ready(house)[0] == 503
    assert house.ask("GET", "/health/live").status_code == 200
    free()
    wait_until(lambda: ready(house)[0] == 200)
    assert push(house) == 202
    house.pass_time(EVERY)
    found = house.outputs(PATH, "one/ada")
    assert [each["id"] for each in found] == list(range(found[0]["id"], found[-1]["id"] + 1))
    assert found[-1]["status"] == "shown"


def disk_full(kind: str) -> Exception:
    """What the driver raises when the disk is full."""
    if kind == "sqlite":
        full: Exception = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorname = "SQLITE_FULL"  # type: ignore[attr-defined]
    else:
        full = psycopg.errors.DiskFull("could not extend file")
    return OperationalError("", None, full)


@pytest.mark.parametrize("kind", KINDS)
def test_a_database_that_cannot_grow(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, database=fresh_ledger(kind, tmp_path)) as house:
        full = [False]

        @event.listens_for(house.gateway.store.engine, "before_cursor_execute")
        def begin(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
            if full[0] and statement.startswith(("INSERT", "UPDATE")):
                raise disk_full(kind)

        def fill() -> Callable[[], None]:
            full[0] = True
            return lambda: full.__setitem__(0, False)

        check_full_disk(house, fill)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own in memory; skips the test where none may be made."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        done = None
    if done is None or done.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_small_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 6) as disk, running(disk) as house:

        def fill() -> Callable[[], None]:
            filling = disk / "filling"
            done = subprocess.run(
                ["dd", "if=/dev/zero", f"of={filling}"], capture_output=True, check=False
            )
            assert b"No space left" in done.stderr
            return filling.unlink

        check_full_disk(house, fill)
