"""A database a ledger rests in: writing alone, reading steadily, and saying what went wrong."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, TimeoutError as NoConnection

from shoal.core.errors import LedgerError
from shoal.ledger.schema import NEWEST, Words, bring_up_to_date, version

T = TypeVar("T")

WRITE_ATTEMPTS = 12  # of a write that another writer's commit forced to start again
LONGEST_PAUSE = 0.2  # seconds between two attempts
BROKE = "broke during the commit"

SECRET = ("pass", "pwd", "secret", "token")  # in the name of a URL's option: its value is one
# what libpq would read as an address, and a file would be named after, password and all
ADDRESS = re.compile(r"\s*postgres(ql)?:|.*\b(password|host|dbname|service)\s*=", re.IGNORECASE)

_ABANDONED: list[Any] = []  # pools of a parent process, kept so that nothing closes them


class Manner(NamedTuple):
    """How a transaction is made: options of the connection, and a statement before all others."""

    options: dict[str, Any]
    first: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one kind of database needs said differently.

    `writing`, `migrating` and `reading` say how each sort of transaction is made. `error` is the
    driver's; `explain` is a sentence about one; `passing` is whether the same transaction, begun
    again, may succeed; `lost` is whether the connection broke, so that nobody knows how a commit
    ended. `user` asks the server who is connected.
    """

    words: Words
    writing: Manner
    migrating: Manner
    reading: Manner
    error: type[Exception]
    explain: Callable[[Exception], str]
    passing: Callable[[Exception], bool]
    lost: Callable[[Exception], bool]
    user: str | None = None


class Database:
    """An engine and its dialect; `name` is how messages call it, without passwords.

    `secrets` are what no message may hold: the passwords that open it.
    """

    def __init__(
        self, name: str, engine: Engine, dialect: Dialect, secrets: Sequence[str] = ()
    ) -> None:
        """Keep the engine with one set of options each for writing, migrating and reading.

        `secrets` are texts that no error message may show.
        """
        self.name = name
        self._secrets = secrets
        self.dialect = dialect
        self.engine = engine  # the engines made from it by options share its connections
        self._writer = engine.execution_options(**dialect.writing.options)
        self._migrator = engine.execution_options(**dialect.migrating.options)
        self._reader = engine.execution_options(**dialect.reading.options)
        self._pid = os.getpid()

    def write(
        self,
        work: Callable[[Connection], T],
        is_committed: Callable[[Connection], bool] | None = None,
    ) -> T:
        """Return the result of `work`, committed; begun again while others interfere.

        When `work` raises, nothing has changed. It may run several times: only the run that
        commits counts. When the connection breaks during the commit, `is_committed` looks on a new
        connection whether the last run was committed; without it that is an error.
        """
        return self._transact(self._writer, work, self.dialect.writing, is_committed)

    def migrate(self, work: Callable[[Connection], T]) -> T:
        """The same, before the tables exist."""
        return self._transact(self._migrator, work, self.dialect.migrating)

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, which sees one moment of the database and changes nothing."""
        return self._transact(self._reader, work, self.dialect.reading)

    def unknown(self) -> LedgerError:
        """What to say when nobody knows whether a commit happened."""
        return LedgerError(
            f"the connection to {self.name} {BROKE}, so it is unknown whether "
            "the charge was taken; repeat the release with the same key"
        )

    def unusable(self, error: Exception) -> LedgerError:
        """What to say when nothing was changed, and why."""
        told = f"the ledger {self.name} {self.dialect.explain(error)}"
        for secret in self._secrets:
            told = told.replace(secret, "***")
        return LedgerError(told)

    def close(self) -> None:
        """Give all connections back."""
        self._leave_parent()
        self.engine.dispose()

    def _transact(
        self,
        engine: Engine,
        work: Callable[[Connection], T],
        manner: Manner,
        is_committed: Callable[[Connection], bool] | None = None,
    ) -> T:
        """Return the result of a transaction, begun again while others interfere."""
        self._leave_parent()
        attempt = 0
        while True:
            result: list[T] = []
            try:
                with engine.connect() as connection, connection.begin():
                    if manner.first is not None:
                        connection.exec_driver_sql(manner.first)
                    result.append(work(connection))
                return result[0]
            except (DBAPIError, self.dialect.error) as error:
                attempt += 1
                cause = _cause(error)
                if result and self.dialect.lost(cause):
                    if is_committed is None or attempt >= WRITE_ATTEMPTS:
                        raise self.unknown() from error
                    if self._look(engine, is_committed, error):
                        return result[0]
                elif attempt >= WRITE_ATTEMPTS or not self.dialect.passing(cause):
                    raise self.unusable(cause) from error
                time.sleep(random.uniform(0, min(LONGEST_PAUSE, 0.002 * 2**attempt)))
            except NoConnection as error:
                raise LedgerError(
                    f"the ledger {self.name} is used by more threads of this program than it has "
                    "connections, and none came free; let it finish, then repeat"
                ) from error

    def _look(
        self, engine: Engine, is_committed: Callable[[Connection], bool], broken: Exception
    ) -> bool:
        """Return whether a transaction was committed whose commit was not answered."""
        try:
            with engine.connect() as connection, connection.begin():
                return is_committed(connection)
        except (DBAPIError, self.dialect.error, NoConnection):
            raise self.unknown() from broken

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


def connect(
    where: str | Path,
    *,
    timeout: float,
    read_only: bool,
    shared: bool,
    call_seconds: float | None = None,
) -> tuple[Database, str | None]:
    """The database, and why it may not be changed (None when it may).

    `call_seconds` is the deadline of each call to PostgreSQL; None for no deadline.
    """
    from shoal.ledger.engines import open_postgres, open_sqlite, writable

    obstacle = "it was asked for so" if read_only else None
    url = _url(where)
    if url is not None and url.get_backend_name() == "postgresql":
        return open_postgres(url, timeout=timeout, call_seconds=call_seconds), obstacle
    path = Path(where if url is None else url.database or "")
    _check_name(path)
    if path.exists() and not writable(path):
        obstacle = obstacle or "this user may not write to the file"
    read_only = obstacle is not None
    return open_sqlite(path, timeout=timeout, read_only=read_only, shared=shared), obstacle


def _check_name(path: Path) -> None:
    """Refuse a name that no file can have: too long, with a NUL in it, a link to itself."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # made, or said so, by whoever opens it
    except (OSError, ValueError):
        raise LedgerError("the ledger's name is none that a file can have; name another") from None


def prepare(database: Database, obstacle: str | None) -> tuple[Database, str | None]:
    """The database with this version's tables, and why the ledger may not be changed, or None.

    An older one that may not be changed is copied into memory and brought up to date there.
    """
    found = database.read(version)
    if found > NEWEST:
        return database, newer(found)
    if found == NEWEST:
        return database, obstacle
    program = installed("shoal")
    if obstacle is None:
        words = database.dialect.words
        database.migrate(lambda connection: bring_up_to_date(connection, words, program))
        return database, None
    if found == 0:
        raise LedgerError(f"the ledger {database.name} is empty and read-only: {obstacle}")
    from shoal.ledger.engines import copied_to_memory

    memory = database.read(lambda connection: copied_to_memory(connection, database.name))
    words = memory.dialect.words
    memory.migrate(lambda connection: bring_up_to_date(connection, words, program))
    database.close()
    return (
        memory,
        f"it has version {found}, older than {NEWEST}, and cannot be brought up to date here",
    )


def newer(found: int) -> str:
    """Why a ledger of a later version is not written to."""
    return (
        f"it has version {found} and this program knows version {NEWEST}; "
        "update the program to write to it"
    )


def shown(where: str | Path) -> str:
    """A path or URL as files, messages and logs may hold it: without any password in it."""
    text = str(where)
    if isinstance(where, Path) or "://" not in text:
        return text
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return f"{text.partition('://')[0]}://…"
    query = {key: value for key, value in url.query.items() if not _is_secret(key)}
    bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, query)
    return bare.render_as_string()


def secrets_of(url: URL) -> tuple[str, ...]:
    """The passwords in a URL, wherever they stand."""
    asked = (value for key, value in url.query.items() if _is_secret(key))
    return tuple(str(value) for value in (url.password, *asked) if value)


def _is_secret(key: str) -> bool:
    return any(word in key.lower() for word in SECRET)


UNREADABLE = (
    "the ledger's URL cannot be read; write postgresql://USER@HOST:PORT/DATABASE or a file name"
)


def _url(where: str | Path) -> URL | None:
    """The URL in `where`; None when it is a path. Only SQLite and PostgreSQL are taken."""
    text = str(where)
    if text in ("", ":memory:"):
        raise LedgerError("a ledger in memory would forget what was spent; name a file")
    if isinstance(where, Path):
        return None
    try:
        url = make_url(text) if "://" in text else None
    except (ArgumentError, ValueError):
        raise LedgerError(UNREADABLE) from None
    if url is None and ADDRESS.match(text):
        raise LedgerError(UNREADABLE)
    if url is None:
        return None
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise LedgerError(
            f"the ledger's URL is for {url.get_backend_name()}; use PostgreSQL or a SQLite file"
        )
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise LedgerError("a ledger in memory would forget what was spent; name a file")
    return url
