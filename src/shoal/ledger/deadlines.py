"""Deadlines for calls to PostgreSQL: a connection that stalls is closed, and its work fails.

A network may keep a connection open and forward nothing. Then no packet is ever missing, so neither
TCP nor the server's timeouts tell the client, which would wait without end. So the client limits
every call itself. The server limits what a session whose client is gone may hold: the locks of a
transaction in which nothing happens, and statements.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import Engine, event

IDLE_CALLS = 2  # the server ends a transaction in which nothing happened for so many deadlines
MIN_CONNECT_SECONDS = 2  # the least that libpq takes for a connect_timeout

_allowed: ContextVar[float | None] = ContextVar("allowed", default=None)


class BoundedConnection(psycopg.Connection[Any]):
    """A connection each of whose calls ends within `call_seconds`, or closes the connection."""

    call_seconds = 60.0

    def wait(self, gen: Generator[Any, Any, Any], *given: Any, **named: Any) -> Any:
        """Run one exchange with the server, as psycopg does, within the deadline."""
        return super().wait(self._until(gen), *given, **named)

    def _until(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Pass an exchange on; psycopg resumes it at least every tenth of a second."""
        seconds = _allowed.get() or self.call_seconds
        deadline = time.monotonic() + seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer of the server for {seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


@contextmanager
def allow_seconds(seconds: float) -> Iterator[None]:
    """Let each call inside take longer: migrations, and checkpoints over all charges."""
    token = _allowed.set(seconds)
    try:
        yield
    finally:
        _allowed.reset(token)


def bound_calls(engine: Engine, seconds: float) -> None:
    """Give every call of the engine's connections at most `seconds`, connecting included."""
    event.listen(engine, "do_connect", partial(_connect, seconds))
    event.listen(engine, "connect", partial(_prepare, round(1000 * seconds)))


def connect_seconds(seconds: float) -> int:
    """Return the deadline for connecting, in the whole seconds that libpq takes."""
    return max(MIN_CONNECT_SECONDS, round(seconds))


def _connect(seconds: float, dialect: Any, record: Any, given: Any, named: Any) -> Any:
    timeout = {"connect_timeout": connect_seconds(seconds)}
    made = BoundedConnection.connect(*given, **{**timeout, **named})
    made.call_seconds = seconds
    return made


def _prepare(milliseconds: int, connection: Any, record: Any) -> None:
    """Let the server give back what a session holds whose client is gone."""
    settings = {
        "idle_in_transaction_session_timeout": IDLE_CALLS * milliseconds,
        "tcp_user_timeout": IDLE_CALLS * milliseconds,
        "client_connection_check_interval": milliseconds,
    }
    with connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(f"SET {name} = {value}")
    connection.commit()
