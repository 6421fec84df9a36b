"""A database a ledger rests in: writing alone, reading steadily, and saying what went wrong."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, PoolProxiedConnection
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from shoal.core.errors import LedgerError
from shoal.ledger import links, reading
from shoal.ledger.schema import VERSIONS, Migration, Words

T = TypeVar("T")

ATTEMPTS = 12  # of a write that another writer's commit forced to start again
LONGEST_PAUSE = 0.2  # seconds between two attempts

WORKING, COMMITTING, CONFIRMING = range(3)  # how far a transaction got

_ABANDONED: list[Any] = []  # pools of a parent process, kept so that nothing closes them


class Manner(NamedTuple):
    """How a transaction is made: options of the connection, a statement before all others, and
    one after the commit without which the commit may be forgotten in a crash.
    """

    options: dict[str, Any]
    first: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one kind of database needs said differently.

    `writing`, `migrating` and `reading` say how each sort of transaction is made. `error` is the
    driver's; `explain` is a sentence about one; `passing` is whether the same transaction, begun
    again, may succeed; `lost` is whether the connection broke, so that nobody knows how a commit
    ended. `batch` is what goes before and after a charge that is sent as one message; None when
    the database is in this process, so that messages cost nothing.
    """

    words: Words
    writing: Manner
    migrating: Manner
    reading: Manner
    error: type[Exception]
    explain: Callable[[Exception], str]
    passing: Callable[[Exception], bool]
    lost: Callable[[Exception], bool]
    batch: tuple[str, str] | None = None


class Database:
    """An engine and its dialect; `name` is how messages call it, without passwords."""

    def __init__(self, name: str, engine: Engine, dialect: Dialect) -> None:
        self.name = name
        self.dialect = dialect
        self.engine = engine  # the engines made from it by options share its connections
        self._writer = engine.execution_options(**dialect.writing.options)
        self._migrator = engine.execution_options(**dialect.migrating.options)
        self._reader = engine.execution_options(**dialect.reading.options)
        self._reading = dialect.reading
        self._pid = os.getpid()

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, done alone and committed; begun again while others interfere.

        When `work` raises, nothing has changed. It may run several times: only the run that
        commits counts.
        """
        return self._transact(self._writer, work, self.dialect.writing)

    def migrate(self, work: Callable[[Connection], T]) -> T:
        """The same, before the tables exist."""
        return self._transact(self._migrator, work, self.dialect.migrating)

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, which sees one moment of the database and changes nothing."""
        return self._transact(self._reader, work, self._reading)

    def read_through(self, statement: str) -> None:
        """Begin every reading with `statement` from now on: an old version seen as a new one."""
        self._reading = self._reading._replace(first=statement)

    @contextmanager
    def lent(self) -> Iterator[PoolProxiedConnection]:
        """A connection of the driver's own, outside any transaction; closed when work fails."""
        self._leave_parent()
        connection = self._writer.raw_connection()
        driver: Any = connection.driver_connection
        try:
            driver.autocommit = True
            yield connection
            driver.autocommit = False
        except BaseException:
            connection.invalidate()
            raise
        finally:
            connection.close()

    def unknown(self) -> LedgerError:
        """What to say when nobody knows whether a commit happened."""
        return LedgerError(
            f"the connection to {self.name} broke during the commit, so it is unknown whether "
            "the charge was taken; repeat the release with the same key"
        )

    def unusable(self, error: Exception) -> LedgerError:
        """What to say when nothing was changed, and why."""
        return LedgerError(f"the ledger {self.name} {self.dialect.explain(error)}")

    def close(self) -> None:
        """Give all connections back."""
        self._leave_parent()
        self.engine.dispose()

    def _transact(self, engine: Engine, work: Callable[[Connection], T], manner: Manner) -> T:
        self._leave_parent()
        attempt = 0
        while True:
            stage = WORKING
            try:
                with engine.connect() as connection:
                    with connection.begin():
                        if manner.first is not None:
                            connection.exec_driver_sql(manner.first)
                        result = work(connection)
                        stage = COMMITTING
                    stage = CONFIRMING
                    if manner.after is not None:
                        # on the same connection, which a crash since the commit would have broken
                        with connection.begin():
                            connection.exec_driver_sql(manner.after)
                return result
            except (DBAPIError, self.dialect.error) as error:
                attempt += 1
                self._give_up(_cause(error), stage, attempt)
                time.sleep(random.uniform(0, min(LONGEST_PAUSE, 0.002 * 2**attempt)))

    def _give_up(self, error: Exception, stage: int, attempt: int) -> None:
        """Raise unless the transaction surely had no effect and may succeed when begun again."""
        if stage == CONFIRMING or (stage == COMMITTING and self.dialect.lost(error)):
            raise self.unknown() from error
        if attempt >= ATTEMPTS or not self.dialect.passing(error):
            raise self.unusable(error) from error

    def _leave_parent(self) -> None:
        """In a forked child: forget the parent's connections without closing them."""
        if self._pid == os.getpid():
            return
        _ABANDONED.append(self.engine.pool)
        self.engine.dispose(close=False)
        self._pid = os.getpid()


def _cause(error: Exception) -> Exception:
    """The driver's own error."""
    orig = error.orig if isinstance(error, DBAPIError) else None
    return orig if isinstance(orig, Exception) else error


# From a path or URL to a database that holds the tables this program knows.


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
