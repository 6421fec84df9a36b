"""From a path or URL to a database that holds the tables this program knows."""

from __future__ import annotations

from importlib.metadata import version as installed
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from shoal.core.errors import LedgerError
from shoal.ledger import links, reading
from shoal.ledger.database import Database
from shoal.ledger.schema import VERSIONS, Migration


def connect(where: str | Path, *, timeout: float, read_only: bool) -> tuple[Database, str | None]:
    """The database, and why it may not be changed (None when it may)."""
    url = _url(where)
    if url is not None and url.get_backend_name() == "postgresql":
        from shoal.ledger.postgres import open_postgres

        return open_postgres(url, timeout=timeout), "it was asked for so" if read_only else None
    from shoal.ledger.sqlite import open_sqlite, writable

    path = Path(where if url is None else url.database or "")
    obstacle = "it was asked for so" if read_only else None
    if path.exists() and not writable(path):
        obstacle = obstacle or "this user may not write to the file"
    return open_sqlite(path, timeout=timeout, read_only=obstacle is not None), obstacle


def prepare(
    database: Database, obstacle: str | None, migrations: tuple[Migration, ...]
) -> str | None:
    """Bring an older database up to date; say why the ledger may not be changed, or None."""
    found = database.read(reading.version)
    known = len(migrations)
    if found > known:
        return newer(found, known)
    if found == known:
        return obstacle
    if obstacle is None:
        database.migrate(lambda connection: _migrate(connection, database, migrations))
        return None
    if found == 0:
        raise LedgerError(f"the ledger {database.name} is empty and read-only: {obstacle}")
    if found == 1:
        database.read_through(database.dialect.words.as_counted)
    return f"it has version {found}, older than {known}, and cannot be brought up to date here"


def newer(found: int, known: int) -> str:
    """Why a ledger of a later version is not written to."""
    return (
        f"it has version {found} and this program knows version {known}; "
        "update the program to write to it"
    )


def _url(where: str | Path) -> URL | None:
    """The URL in `where`; None when it is a path. Only SQLite and PostgreSQL are taken."""
    text = str(where)
    if text in ("", ":memory:"):
        raise LedgerError("a ledger in memory would forget what was spent; name a file")
    if isinstance(where, Path) or "://" not in text:
        return None
    try:
        url = make_url(text)
    except ArgumentError:
        raise LedgerError(
            "the ledger's URL cannot be read; write postgresql://USER@HOST/DATABASE or a file name"
        ) from None
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise LedgerError(
            f"the ledger's URL is for {url.get_backend_name()}; use PostgreSQL or a SQLite file"
        )
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise LedgerError("a ledger in memory would forget what was spent; name a file")
    return url


def _migrate(connection: Connection, database: Database, migrations: tuple[Migration, ...]) -> None:
    """Take every step that is still missing; somebody else may have taken some meanwhile."""
    for step in range(reading.version(connection), len(migrations)):
        migrations[step](connection, database.dialect.words)
        links.append(
            connection,
            VERSIONS,
            links.head(connection),
            version=str(step + 1),
            program=installed("shoal"),
        )
