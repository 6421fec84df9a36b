"""Fresh databases for ledger tests: SQLite files, and schemas of a throw-away PostgreSQL server.

The server is SHOAL_TEST_POSTGRES when that is set, else a cluster made by `initdb` for this run.
Without either, tests that need it are skipped and say so.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

import pytest

KINDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))

_names = count()


def fresh_ledger(kind: str, folder: Path) -> str:
    """The path or URL of a ledger that does not exist yet."""
    if kind == "sqlite":
        return str(folder / f"budget-{next(_names)}.db")
    return fresh_schema(shared_server())


def fresh_schema(server: str) -> str:
    """The URL of a new, empty schema on a server."""
    import psycopg

    name = f"t{os.getpid()}_{next(_names)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{name}"


@cache
def shared_server() -> str:
    """The URL of the server of this run; skips the test when there is none."""
    given = os.environ.get("SHOAL_TEST_POSTGRES")
    if given:
        return given
    if programs() is None:
        pytest.skip("PostgreSQL is not installed, and SHOAL_TEST_POSTGRES names no server")
    cluster = Cluster()
    cluster.start()
    owner = os.getpid()
    atexit.register(lambda: cluster.remove() if os.getpid() == owner else None)
    return cluster.url


class Cluster:
    """A PostgreSQL server of our own, reached through a socket in its folder."""

    def __init__(self) -> None:
        found = programs()
        if found is None:
            raise RuntimeError("PostgreSQL is not installed")
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-pg-"))
        # PostgreSQL refuses to run as root
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._run("initdb", "-A", "trust", "-U", "shoal", "-E", "UTF8", "--no-sync")
        self.url = f"postgresql://shoal@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = f"-c listen_addresses='' -c max_connections=200 -k {self.folder}"
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", settings, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; mode "immediate" is a crash."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def remove(self) -> None:
        """Stop the server and delete all it had."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), "-D", str(self.folder / "data"), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            user=self._user,
        )


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, the newest version; None when there is none."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in found:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None
