"""A database a ledger rests in: writing alone, reading steadily, and saying what went wrong."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from shoal.core.errors import LedgerError
from shoal.ledger.schema import Words

T = TypeVar("T")

ATTEMPTS = 12  # of a write that another writer's commit forced to start again
LONGEST_PAUSE = 0.2  # seconds between two attempts

_ABANDONED: list[Any] = []  # pools of a parent process, kept so that nothing closes them


class Beginning(NamedTuple):
    """How a transaction begins: options of the connection, then statements before all others."""

    options: dict[str, Any]
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one kind of database needs said differently.

    `writing`, `migrating` and `reading` say how each sort of transaction begins. `error` is the
    driver's; `explain` is a sentence about one; `passing` is whether the same transaction, begun
    again, may succeed; `lost` is whether the connection broke, so that nobody knows how a commit
    ended.
    """

    words: Words
    writing: Beginning
    migrating: Beginning
    reading: Beginning
    error: type[Exception]
    explain: Callable[[Exception], str]
    passing: Callable[[Exception], bool]
    lost: Callable[[Exception], bool]


class Database:
    """An engine and its dialect; `name` is how messages call it, without passwords."""

    def __init__(self, name: str, engine: Engine, dialect: Dialect) -> None:
        self.name = name
        self.dialect = dialect
        self._engine = engine  # the engines made from it by options share its connections
        self._writer = engine.execution_options(**dialect.writing.options)
        self._migrator = engine.execution_options(**dialect.migrating.options)
        self._reader = engine.execution_options(**dialect.reading.options)
        self._pid = os.getpid()

    def write(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, done alone and committed; begun again while others interfere.

        When `work` raises, nothing has changed. It may run several times: only the run that
        commits counts.
        """
        return self._transact(self._writer, work, self.dialect.writing.first)

    def migrate(self, work: Callable[[Connection], T]) -> T:
        """The same, before the tables exist."""
        return self._transact(self._migrator, work, self.dialect.migrating.first)

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, which sees one moment of the database and changes nothing."""
        return self._transact(self._reader, work, self.dialect.reading.first)

    def close(self) -> None:
        """Give all connections back."""
        self._leave_parent()
        self._engine.dispose()

    def _transact(
        self, engine: Engine, work: Callable[[Connection], T], first: tuple[str, ...]
    ) -> T:
        self._leave_parent()
        attempt = 0
        while True:
            committing = False
            try:
                with engine.connect() as connection, connection.begin():
                    for statement in first:
                        connection.exec_driver_sql(statement)
                    result = work(connection)
                    committing = True
                return result
            except (DBAPIError, self.dialect.error) as error:
                attempt += 1
                cause = error.orig if isinstance(error, DBAPIError) else error
                self._give_up(cause if isinstance(cause, Exception) else error, committing, attempt)
                time.sleep(random.uniform(0, min(LONGEST_PAUSE, 0.002 * 2**attempt)))

    def _give_up(self, error: Exception, committing: bool, attempt: int) -> None:
        """Raise unless the transaction surely had no effect and may succeed when begun again."""
        if self.dialect.lost(error) and committing:
            raise LedgerError(
                f"the connection to {self.name} broke during the commit, so it is unknown whether "
                "the charge was taken; repeat the release with the same key"
            ) from None
        if attempt >= ATTEMPTS or not self.dialect.passing(error):
            raise LedgerError(f"the ledger {self.name} {self.dialect.explain(error)}") from error

    def _leave_parent(self) -> None:
        """In a forked child: forget the parent's connections without closing them."""
        if self._pid == os.getpid():
            return
        _ABANDONED.append(self._engine.pool)
        self._engine.dispose(close=False)
        self._pid = os.getpid()
