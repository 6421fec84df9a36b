"""The two kinds of database: one SQLite file, or a PostgreSQL server.

SQLite has one writer at a time. PostgreSQL has many; those about the same subject wait for each
other.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import StaticPool

from shoal.core.errors import LedgerError
from shoal.ledger.database import LONGEST_PAUSE, Database, Dialect, Manner, secrets_of, shown
from shoal.ledger.queries import LOCK_LEDGER
from shoal.ledger.schema import OLD_TABLES, Words

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
    "55P03": "is locked by another program that does not let go; let it finish, then repeat",
    "40001": "has too many writers at once; repeat the release with the same key",
    "40P01": "has too many writers at once; repeat the release with the same key",
    "25006": "is read-only here; connect to the primary server",
    "42501": "may not be changed by this user; grant SELECT and INSERT on shoal_entries and "
    "shoal_documents to whoever charges, and on shoal_house to whoever sets limits",
    "53100": "cannot grow because the disk of the server is full; free some space and repeat",
    "XX001": "is damaged; restore it from a copy and check that with `shoal ledger verify --head`",
    "XX002": "is damaged; restore it from a copy and check that with `shoal ledger verify --head`",
}


def _explain(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or ""
    for prefix, sentence in SENTENCES.items():
        if name.startswith(prefix):
            return sentence
    return f"cannot be used: {str(error).strip().partition(chr(10))[0]}"


# SQLite.


def open_sqlite(path: Path, *, timeout: float, read_only: bool, shared: bool) -> Database:
    """The database in `path`, made when absent; refused when it holds something else.

    A new file is for its owner alone from the first byte, unless it is to be `shared`.
    """
    if path.is_dir():
        raise LedgerError(f"the ledger {path} is a folder; name a file")
    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise LedgerError(f"the ledger {path} is a pipe or a device; name an ordinary file")
    if read_only and not path.exists():
        raise LedgerError(f"the ledger {path} does not exist; `shoal ledger limit` makes one")
    if not read_only:
        _make(path, 0o666 if shared else 0o600)
    database = Database(str(path), _engine(path, timeout, read_only=read_only), _sqlite())
    if not read_only:
        database.read(_check_ours)
        _write_ahead(path, timeout)
    return database


def writable(path: Path) -> bool:
    """Whether this user may change the file, or make it when it does not exist."""
    return os.access(path if path.exists() else path.parent, os.W_OK)


def copied_to_memory(connection: Connection, name: str) -> Database:
    """The tables of version 1 or 2, in a database of this process: to be read in a newer form."""
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin)
    memory = Database(name, engine, _sqlite())

    def work(target: Connection) -> None:
        """Copy every table of an old version into the database `target`, 2,000 rows at a time."""
        for table in ("shoal_versions", *OLD_TABLES):
            rows = connection.execute(text(f"SELECT * FROM {table}"))
            names = list(rows.keys())
            target.exec_driver_sql(f"CREATE TABLE {table} ({', '.join(names)})")
            marks = ", ".join("?" * len(names))
            while some := rows.fetchmany(2000):
                statement = f"INSERT INTO {table} VALUES ({marks})"
                target.exec_driver_sql(statement, [tuple(row) for row in some])

    memory.migrate(work)
    return memory


def _sqlite() -> Dialect:
    """Return how SQLite is used: its statements, the start of transactions, and its errors."""
    alone = Manner({"shoal_begin": "BEGIN IMMEDIATE"})  # the only writer from the start
    return Dialect(
        words=Words(
            protect=_protect_sqlite,
            frozen=_frozen_sqlite,
            triggers="SELECT name, sql, tbl_name FROM sqlite_master WHERE type = 'trigger'",
            clustered=" WITHOUT ROWID",
        ),
        writing=alone,
        migrating=alone,
        reading=Manner({"shoal_begin": "BEGIN"}),
        error=sqlite3.Error,
        explain=_explain,
        passing=lambda error: False,  # waiting is SQLite's own: the busy timeout
        lost=lambda error: False,
    )


def _make(path: Path, mode: int) -> None:
    with suppress(OSError):  # it exists; or SQLite tries again and says why it cannot
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode))


def _engine(path: Path, timeout: float, *, read_only: bool) -> Engine:
    """Return an engine on a SQLite file that waits at most `timeout` seconds for locks.

    A read-only file without a log, in a folder that cannot be written, is opened as immutable.
    """
    query = {"timeout": str(timeout), "check_same_thread": "false"}
    database = str(path.absolute())
    if read_only:
        # a file in a folder nobody can write to has no log beside it and cannot get one
        alone = not path.with_name(path.name + "-wal").exists()
        immutable = alone and not os.access(path.parent, os.W_OK)
        query |= {"mode": "ro", "uri": "true"} | ({"immutable": "1"} if immutable else {})
        database = path.absolute().as_uri()
    where = URL.create("sqlite", database=database, query=query)
    engine = create_engine(where, pool_timeout=timeout)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare_sqlite(connection: Any, record: Any) -> None:
    """Transactions begin as we say, not as the driver guesses, and end on the disk."""
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = FULL")


def _begin(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection  # SQLAlchemy's part takes longer
    driver.execute(connection.get_execution_options()["shoal_begin"])


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
        # absolute: a name that begins with file: is an address to some builds of SQLite
        connection = sqlite3.connect(path.absolute(), timeout=timeout, isolation_level=None)
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


def _protect_sqlite(table: str, keys: Sequence[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """No change, no deletion, and no row in place of another (INSERT OR REPLACE deletes)."""
    taken = " OR ".join(
        f"EXISTS (SELECT 1 FROM {table} WHERE "
        + " AND ".join(f"{name} = NEW.{name}" for name in names)
        + ")"
        for names in keys
    )
    conditions = {"update": "", "delete": "", "insert": f" WHEN {taken}"}
    return _aborting(f"{table}_no", table, conditions, "append-only")


def _frozen_sqlite(table: str) -> dict[str, tuple[str, ...]]:
    changes = ("update", "delete", "insert")
    return _aborting(f"{table}_closed", table, dict.fromkeys(changes, ""), "append-only and closed")


def _aborting(
    name: str, table: str, conditions: dict[str, str], told: str
) -> dict[str, tuple[str, ...]]:
    """A trigger for each change, which ends it under its condition."""
    return {
        f"{name}_{change}": (
            f"CREATE TRIGGER {name}_{change} BEFORE {change.upper()} ON {table}{condition} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is {told}'); END",
        )
        for change, condition in conditions.items()
    }


# PostgreSQL.


AGAIN = ("40001", "40P01")  # serialization failure, deadlock: the transaction had no effect

# what a trigger does is more than its name: when it fires, on what, and what it then runs
TRIGGERS = (
    "SELECT tgname, tgtype || ' ' || tgenabled::text || ' ' || btrim(prosrc), relname "
    "FROM pg_trigger "
    "JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE NOT tgisinternal "
    "AND nspname = ANY (current_schemas(false)) "
    # rules rewrite what is written, and row security hides what was charged from whoever charges
    "UNION ALL SELECT rulename, definition, tablename FROM pg_rules "
    "WHERE schemaname = ANY (current_schemas(false)) "
    "UNION ALL SELECT 'row security', 'on', relname FROM pg_class JOIN pg_namespace "
    "ON pg_namespace.oid = relnamespace WHERE relrowsecurity "
    "AND nspname = ANY (current_schemas(false))"
)
REFUSAL = "BEGIN RAISE EXCEPTION USING MESSAGE = TG_TABLE_NAME || ' is append-only'; END"
BEFORE_CHANGES, BEFORE_ALL = 58, 62  # tgtype: BEFORE UPDATE, DELETE, TRUNCATE; and INSERT


def open_postgres(url: URL, *, timeout: float, call_seconds: float | None = None) -> Database:
    """The database behind `url`, through psycopg; each call takes at most `call_seconds`."""
    try:
        import psycopg
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs psycopg; install it with: pip install 'shoal[postgres]'"
        ) from None
    driver = url.set(drivername="postgresql+psycopg")
    engine = create_engine(driver, isolation_level="READ COMMITTED", pool_timeout=timeout)
    milliseconds = max(1, round(timeout * 1000))
    event.listen(engine, "connect", lambda connection, _: _prepare(connection, milliseconds))
    if call_seconds is not None:
        from shoal.ledger.deadlines import bound_calls

        bound_calls(engine, call_seconds)
    dialect = Dialect(
        words=Words(
            protect=_protect,
            frozen=_frozen,
            triggers=TRIGGERS,
            clustered="",
            old="LOCK TABLE shoal_versions IN SHARE ROW EXCLUSIVE MODE",
        ),
        # each statement sees what was committed before it
        writing=Manner({}),
        migrating=Manner({}, LOCK_LEDGER.postgres),
        reading=Manner({"isolation_level": "REPEATABLE READ"}),
        error=psycopg.Error,
        explain=lambda error: UNREACHABLE if lost(error) else _explain(error),
        passing=lambda error: _state(error) in AGAIN or lost(error),
        lost=lost,
        user="SELECT current_user",
    )
    return Database(shown(str(url)), engine, dialect, secrets_of(url))


UNREACHABLE = "cannot be reached; check the address, the user and that the server runs"


def lost(error: Exception) -> bool:
    """Whether the connection is gone: the server says so, or says nothing any more."""
    import psycopg

    state = _state(error)
    return isinstance(error, psycopg.OperationalError) and (
        state == "" or state.startswith("08") or state in ("57P01", "57P02", "57P03")
    )


def _prepare(connection: Any, milliseconds: int) -> None:
    """No wait is endless, and every commit waits for the disk, whatever the server prefers.

    Statements are planned once, perhaps while a table is still empty: always by its indexes.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {milliseconds}")
        cursor.execute("SET enable_seqscan = off")
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        cursor.execute(
            "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
            "WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"
        )
    connection.commit()


def _protect(table: str, keys: Sequence[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """No change and no deletion; a row in place of another would be one of these."""
    return _refusing(f"{table}_append_only", table, "UPDATE OR DELETE OR TRUNCATE")


def _frozen(table: str) -> dict[str, tuple[str, ...]]:
    return _refusing(f"{table}_closed", table, "INSERT OR UPDATE OR DELETE OR TRUNCATE")


def _refusing(name: str, table: str, changes: str) -> dict[str, tuple[str, ...]]:
    """Return the trigger's name and the statements that make these changes to a table fail."""
    return {
        name: (
            "CREATE OR REPLACE FUNCTION shoal_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ {REFUSAL} $$",
            f"CREATE TRIGGER {name} BEFORE {changes} ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION shoal_append_only()",
        )
    }


def trigger_says(name: str, made_by: str) -> str:
    """What the query for triggers tells about an untouched one."""
    if "EXECUTE FUNCTION" not in made_by:
        return made_by
    return f"{BEFORE_ALL if name.endswith('_closed') else BEFORE_CHANGES} O {REFUSAL}"


def _state(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or ""
