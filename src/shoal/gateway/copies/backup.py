"""One backup of a gateway, and one restore of it: a SQLite file for either database.

Rows are read in one transaction that sees one moment, so a service may run meanwhile. On
PostgreSQL the owner of the tables says the space of everybody, as the service does; forced
row-level security shows nothing to a dump that does not, not even to the owner.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Table, insert, inspect, select, text

from shoal.core.errors import InputError, LedgerError
from shoal.gateway.store import upgrade_schema
from shoal.gateway.tables import METADATA
from shoal.ledger.database import Database, connect, shown
from shoal.ledger.schema import (
    METADATA as LEDGER,
    NEWEST,
    OLD_TABLES,
    creation,
    version,
)

TIMEOUT = 30.0  # seconds to wait for another writer
ROWS_AT_ONCE = 2000
REVISIONS = "gateway_versions"  # where Alembic notes how far the schema has come


def back_up(database: str, file: Path) -> int:
    """Write all rows of a gateway's database into a new file; return how many.

    The file appears whole or not at all, and only its owner may read it.
    """
    source, _ = connect(database, timeout=TIMEOUT, read_only=True, shared=False)
    try:
        return _into_file(file, lambda target: _copy(source, target))
    finally:
        source.close()


def restore_backup(file: Path, database: str) -> int:
    """Make a gateway's database of a backup; return how many rows it has.

    Refused where there is one: no data is overwritten. The head file is not touched, so that
    the service refuses a backup that is older than what was noted.
    """
    if not file.is_file():
        raise InputError(f"backup {file} does not exist; name a file of `shoal serve backup`")
    source, _ = connect(file, timeout=TIMEOUT, read_only=True, shared=False)
    try:
        if "://" not in database:
            return _into_file(Path(database), lambda target: _copy(source, target))
        target, _ = connect(database, timeout=TIMEOUT, read_only=False, shared=False)
        try:
            return _copy(source, target)
        finally:
            target.close()
    finally:
        source.close()


def _into_file(file: Path, work: Callable[[Database], int]) -> int:
    """Return the result of `work` on a new SQLite file that then gets its name."""
    if file.exists():
        raise InputError(f"{file} exists, and nothing is written over; name another file")
    beside = file.with_name(file.name + ".new")
    _remove(beside)
    try:
        target, _ = connect(beside, timeout=TIMEOUT, read_only=False, shared=False)
        try:
            count = work(target)
        finally:
            target.close()
        _sync(beside)
        beside.replace(file)
        _sync(file.absolute().parent)
    finally:
        _remove(beside)
    return count


def _copy(source: Database, target: Database) -> int:
    """Return how many rows were copied, in one transaction on either side."""
    name = source.name

    def read(reading: Connection) -> int:
        _read_all_spaces(reading)
        revision = _revision(reading, name)
        return target.migrate(lambda writing: _fill(reading, writing, target, revision))

    return source.read(read)


def _revision(connection: Connection, name: str) -> str:
    """Return how far the gateway's schema has come; refuse what is none of this version."""
    tables = set(inspect(connection).get_table_names())
    if REVISIONS not in tables:
        raise InputError(f"{shown(name)} is no database of a gateway; name one")
    if version(connection) != NEWEST or tables & set(OLD_TABLES):
        raise LedgerError(
            f"the ledger of {shown(name)} is of another version, or was brought up from one, and "
            "cannot be copied row by row; use the backup of the database system"
        )
    found = connection.execute(text(f"SELECT version_num FROM {REVISIONS}")).scalar_one()
    return str(found)


def _fill(reading: Connection, writing: Connection, target: Database, revision: str) -> int:
    """Return how many rows were copied into tables that are made here."""
    if set(inspect(writing).get_table_names()) & {REVISIONS, "shoal_versions"}:
        raise InputError(f"{shown(target.name)} holds a gateway already; name an empty database")
    for statement in creation(target.dialect.words, fresh=True):
        writing.exec_driver_sql(statement)
    upgrade_schema(writing, revision)
    _read_all_spaces(writing)
    there = set(inspect(reading).get_table_names())
    tables = [*LEDGER.sorted_tables, *METADATA.sorted_tables]
    return sum(_copy_rows(reading, writing, table) for table in tables if table.name in there)


def _copy_rows(reading: Connection, writing: Connection, table: Table) -> int:
    """Return how many rows of a table were copied, a few at a time."""
    names = [column["name"] for column in inspect(reading).get_columns(table.name)]
    wanted, count = select(*(table.c[name] for name in names)), 0
    found = reading.execute(wanted, execution_options={"yield_per": ROWS_AT_ONCE})
    for rows in found.partitions():
        writing.execute(insert(table), [dict(row._mapping) for row in rows])
        count += len(rows)
    return count


def _read_all_spaces(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT set_config('shoal.space', '*', true)"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    for tail in ("", "-wal", "-shm"):
        path.with_name(path.name + tail).unlink(missing_ok=True)
