"""Connections of a worker: how many may be open, and how long a request may take to arrive.

A connection that sends no whole request head in time is closed. When all connections are in use,
the one that has waited longest without a request gives way to a new one. So half-open connections
cost a worker neither its descriptors nor its answers.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from shoal.gateway.settings import Settings

RESERVED_FILES = 100  # descriptors kept for the database, logs, and files of Python itself


class Connections:
    """The open connections of a process, and their limits."""

    def __init__(self, most: int, head_seconds: float) -> None:
        self.most, self.head_seconds = most, head_seconds
        self.open: set[BoundedProtocol] = set()
        # those without a request, the longest waiting first
        self.waiting: dict[BoundedProtocol, asyncio.TimerHandle] = {}

    def admit(self, protocol: BoundedProtocol) -> bool:
        """Count a new connection; return False when none may be closed in its place."""
        if len(self.open) >= self.most:
            oldest = next(iter(self.waiting), None)
            if oldest is None:
                return False
            oldest.abort()
        self.open.add(protocol)
        return True

    def remove(self, protocol: BoundedProtocol) -> None:
        """Stop counting a connection."""
        self.open.discard(protocol)
        self.expect_nothing(protocol)

    def expect_head(self, protocol: BoundedProtocol) -> None:
        """Close a connection unless a whole request head comes in time."""
        if protocol not in self.waiting:
            loop = asyncio.get_running_loop()
            self.waiting[protocol] = loop.call_later(self.head_seconds, protocol.abort)

    def expect_nothing(self, protocol: BoundedProtocol) -> None:
        """Let a connection be: it has a request, or is gone."""
        timer = self.waiting.pop(protocol, None)
        if timer is not None:
            timer.cancel()


class BoundedProtocol(asyncio.Protocol):
    """Uvicorn's protocol of one connection, within the limits of `connections`."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        self._connections = connections
        self._inner: Any = AutoHTTPProtocol(**given)
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection on if there is room for it, and abort it otherwise."""
        self._transport = transport
        if not self._connections.admit(self):
            self.abort()
            return
        self._inner.connection_made(transport)
        self._connections.expect_head(self)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and see whether they ended or began a request head."""
        if self not in self._connections.open:
            return
        self._inner.data_received(data)
        cycle = self._inner.cycle
        if cycle is not None and not cycle.response_complete:
            self._connections.expect_nothing(self)
        else:
            self._connections.expect_head(self)

    def eof_received(self) -> bool | None:
        found: bool | None = self._inner.eof_received()
        return found

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._connections.open:
            self._connections.remove(self)
            self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def abort(self) -> None:
        """Close the connection at once; its descriptor is free in the next round of the loop."""
        if self in self._connections.open:
            self._connections.remove(self)
            self._inner.connection_lost(None)
        self._transport.abort()


def bounded_protocol(settings: Settings) -> Callable[..., asyncio.Protocol]:
    """Return what uvicorn calls for each connection."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(1, min(settings.sockets, soft - RESERVED_FILES))
    return partial(BoundedProtocol, Connections(most, settings.request_head_seconds))


def raise_file_limit() -> None:
    """Let this process and its children open as many files as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
