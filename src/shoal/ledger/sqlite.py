"""A ledger in one SQLite file: every commit on the disk before it counts, one writer at a time."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from shoal.core.errors import LedgerError
from shoal.ledger.database import LONGEST_PAUSE, Database, Dialect, Manner
from shoal.ledger.schema import COUNTED, Words

SENTENCES = {  # by the beginning of the driver's name for the error
    "SQLITE_BUSY": "is locked by another program that does not let go; let it finish, then repeat",
    "SQLITE_LOCKED": "is locked by another connection of this program; let it finish, then repeat",
    "SQLITE_CORRUPT": "is damaged; restore it from a copy and check that with `shoal ledger "
    "verify --head`",
    "SQLITE_NOTADB": "is not a ledger: the file is not a SQLite database, or it is damaged",
    "SQLITE_READONLY": "is read-only here; give write permission to the file and its folder",
    "SQLITE_PERM": "may not be opened; give this user permission to the file and its folder",
    "SQLITE_FULL": "cannot grow because the disk is full; free some space and repeat",
    "SQLITE_CANTOPEN": "cannot be opened; its folder must exist and be writable",
    "SQLITE_IOERR": "cannot be read or written: the disk reports an error",
    "SQLITE_CONSTRAINT": "refused a row that breaks its rules; was it changed by hand?",
}

TRIGGERS = "SELECT name FROM sqlite_master WHERE type = 'trigger'"

AS_COUNTED = (
    f"CREATE TEMP VIEW IF NOT EXISTS shoal_charges AS SELECT *, {COUNTED} AS times "
    "FROM main.shoal_charges"
)


def open_sqlite(path: Path, *, timeout: float, read_only: bool) -> Database:
    """The database in `path`, made when absent; refused when it holds something else."""
    if path.is_dir():
        raise LedgerError(f"the ledger {path} is a folder; name a file")
    if read_only and not path.exists():
        raise LedgerError(f"the ledger {path} does not exist; `shoal ledger limit` makes one")
    engine = _engine(path, timeout, read_only=read_only)
    dialect = Dialect(
        words=Words("INTEGER", _protect, TRIGGERS, _count(), AS_COUNTED),
        writing=Manner({"shoal_begin": "BEGIN IMMEDIATE"}),  # the only writer from the start
        migrating=Manner({"shoal_begin": "BEGIN IMMEDIATE"}),
        reading=Manner({"shoal_begin": "BEGIN"}),
        error=sqlite3.Error,
        explain=_explain,
        passing=lambda error: False,  # waiting is SQLite's own: the busy timeout
        lost=lambda error: False,
    )
    database = Database(str(path), engine, dialect)
    if not read_only:
        database.read(_check_ours)
        _write_ahead(path, timeout)
    return database


def writable(path: Path) -> bool:
    """Whether this user may change the file, or make it when it does not exist."""
    return os.access(path if path.exists() else path.parent, os.W_OK)


def _engine(path: Path, timeout: float, *, read_only: bool) -> Engine:
    query = {"timeout": str(timeout), "check_same_thread": "false"}
    database = str(path.absolute())
    if read_only:
        # a file in a folder nobody can write to has no log beside it and cannot get one
        alone = not path.with_name(path.name + "-wal").exists()
        immutable = alone and not os.access(path.parent, os.W_OK)
        query |= {"mode": "ro", "uri": "true"} | ({"immutable": "1"} if immutable else {})
        database = path.absolute().as_uri()
    engine = create_engine(URL.create("sqlite", database=database, query=query))
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, record: Any) -> None:
    """Transactions begin as we say, not as the driver guesses, and end on the disk."""
    connection.isolation_level = None
    for pragma in ("synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options()["shoal_begin"])


def _check_ours(connection: Connection) -> None:
    """Refuse another program's database instead of adding tables to it."""
    rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = {row[0] for row in rows}
    if tables and "shoal_versions" not in tables:
        raise LedgerError(
            f"the file holds another program's tables ({min(tables)}, …); name another file"
        )


def _write_ahead(path: Path, timeout: float) -> None:
    """Keep a write-ahead log, so that readers never wait; the file remembers the mode."""
    try:
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None)
        try:
            mode = _switch_mode(connection, time.monotonic() + timeout)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {path} {_explain(error)}") from error
    if mode != "wal":
        raise LedgerError(
            f"the ledger {path} is on a file system without shared memory (journal mode {mode}); "
            "put it on a local disk, or use PostgreSQL"
        )


def _switch_mode(connection: sqlite3.Connection, deadline: float) -> str:
    """The mode after asking for a write-ahead log, asked again until `deadline` (monotonic).

    The busy timeout does not cover this statement: it reads before it wants to write, and while
    another connection is about to write SQLite refuses it at once, because two that wait like
    that wait for ever. Programs that open a new file together meet there.
    """
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not busy or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0, LONGEST_PAUSE / 10))  # not all at one moment again


def _protect(table: str) -> dict[str, tuple[str, ...]]:
    return {
        f"{table}_no_{change.lower()}": (
            f"CREATE TRIGGER {table}_no_{change.lower()} BEFORE {change} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END",
        )
        for change in ("UPDATE", "DELETE")
    }


def _count() -> tuple[str, ...]:
    """A new table in place of the old: SQLite cannot add a column that must be given."""
    names = (
        "seq, at, plan, subject, period, requester, key, notion, amount, eta, release, previous, "
        "hash"
    )
    return (
        "CREATE TABLE shoal_counted (seq INTEGER PRIMARY KEY, at TEXT NOT NULL, "
        "plan TEXT NOT NULL REFERENCES shoal_plans (plan), subject TEXT NOT NULL, "
        "period TEXT NOT NULL, requester TEXT NOT NULL, key TEXT, notion TEXT NOT NULL, "
        "amount TEXT NOT NULL, eta TEXT, release TEXT NOT NULL, previous TEXT NOT NULL, "
        "hash TEXT NOT NULL, times INTEGER NOT NULL, UNIQUE (requester, key))",
        f"INSERT INTO shoal_counted SELECT {names}, {COUNTED} FROM shoal_charges ORDER BY seq",
        "DROP TABLE shoal_charges",
        "ALTER TABLE shoal_counted RENAME TO shoal_charges",
        *(making for each in _protect("shoal_charges").values() for making in each),
    )


def _explain(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, sentence in SENTENCES.items():
        if name.startswith(prefix):
            return sentence
    return f"cannot be used: {error}"
