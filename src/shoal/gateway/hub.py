"""Outputs on their way to open connections: one short memory for all, one cursor a connection.

A slow connection delays no other: it has no queue, only a cursor, and reads what it missed from the
store. Each connection that is woken reads the new outputs itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from shoal.gateway.advance import Output
from shoal.gateway.problems import Problem, missing
from shoal.gateway.rounds import Closing
from shoal.gateway.seen import Seen
from shoal.gateway.sight import Sight, newer, page
from shoal.gateway.store import ALL, Store
from shoal.gateway.telemetry import log

OUTPUTS_KEPT = 64  # outputs of a stream in memory: what a connection may lag behind without a query
STALE_CALLS = 3  # deadlines of a call without news after which event streams end
PIECE = 100  # outputs per batch to a connection that catches up

Recheck = Callable[[], Any]  # an awaitable that gives the sight again, or raises Problem


class Listened:
    """A stream with listeners: its last outputs and an event for the next one."""

    def __init__(self) -> None:
        self.recent: deque[Output] = deque(maxlen=OUTPUTS_KEPT)
        self.moved = asyncio.Event()
        self.reading = asyncio.Lock()
        self.readers = 0

    def add(self, outputs: Sequence[Output]) -> None:
        """Remember outputs, each once and in order, without gaps: some come from two sides."""
        for output in outputs:
            last = self.recent[-1].ordinal if self.recent else output.ordinal - 1
            if output.ordinal > last + 1:
                self.recent.clear()
            if output.ordinal > last:
                self.recent.append(output)

    def wake(self) -> None:
        """Wake the current waiters; later ones wait for the next call."""
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()


class Hub:
    """The streams with listeners in this process."""

    def __init__(
        self,
        store: Store,
        seen: Seen,
        *,
        heartbeat: float,
        most: int,
        database_seconds: float = 5.0,
    ) -> None:
        """Set up without connections.

        `heartbeat` and `database_seconds`, the deadline of a call, are in seconds; a key may have
        `most` connections.
        """
        self._store = store
        self._seen = seen
        self._heartbeat = heartbeat
        self._most = most
        self._stale_after = STALE_CALLS * database_seconds
        self._heard = time.monotonic()
        self._watched: dict[str, Listened] = {}
        self._open: dict[str, int] = {}
        self.closing = False

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return sum(self._open.values())

    @property
    def stale(self) -> bool:
        """Whether this worker has not heard of the database for so long that outputs may lack."""
        return time.monotonic() - self._heard > self._stale_after

    def refresh(self) -> None:
        """Note that this worker hears of every slot that closes."""
        self._heard = time.monotonic()

    async def run(self) -> None:
        """End the event streams of a worker that has become stale, so that clients reconnect."""
        while True:
            await asyncio.sleep(self._stale_after / STALE_CALLS)
            if self.stale and self._watched:
                log.error("event streams end: the database is away", streams=len(self._watched))
                self._wake_all()

    def publish(self, closings: list[Closing]) -> None:
        """Pass the outputs of slots closed in this process to their listeners."""
        for closing in closings:
            watched = self._watched.get(closing.uid)
            if watched is not None:
                watched.add(closing.outputs)
                watched.wake()

    async def catch_up(self) -> None:
        """Read the outputs of other processes, once for all listeners in this one."""
        known = {
            uid: watched.recent[-1].ordinal
            for uid, watched in list(self._watched.items())
            if watched.recent
        }
        found = await self._store.reading(ALL, lambda connection: newer(connection, known))
        for uid, watched in list(self._watched.items()):
            fresh = found.get(uid, ())
            watched.add(fresh)
            if fresh or uid not in known:
                watched.wake()

    def stop(self) -> None:
        """End every connection, so that the process can."""
        self.closing = True
        self._wake_all()

    def _wake_all(self) -> None:
        for watched in self._watched.values():
            watched.wake()

    def admit(self, key: str) -> None:
        """Count a connection of a key; too many are refused."""
        if self._open.get(key, 0) >= self._most:
            raise Problem(
                429, f"more than the limit connections = {self._most} allows", limit="connections"
            )
        self._open[key] = self._open.get(key, 0) + 1

    def leave(self, key: str) -> None:
        """Stop counting one connection of a key."""
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]

    async def follow(
        self, sight: Sight, after: int, key: str, recheck: Recheck
    ) -> AsyncIterator[bytes]:
        """Frames of every output after an ordinal, and comments in between; without end.

        The right to see is looked at again once a heartbeat, however much there is to send.
        """
        watched = self._watched.setdefault(sight.uid, Listened())
        watched.readers += 1
        look = time.monotonic() + self._heartbeat
        try:
            yield b"retry: 1000\n\n"
            while not self.closing:
                if self.stale:
                    raise Problem(503, "this worker cannot reach the database; connect again")
                moved = watched.moved
                if time.monotonic() >= look:
                    again, look = await recheck(), time.monotonic() + self._heartbeat
                    if again.uid != sight.uid:  # deleted, and a new stream has its name
                        raise missing()
                    sight = again
                outputs = await self._since(watched, sight, after)
                if outputs:
                    after = outputs[-1].ordinal
                    mine = [output for output in outputs if sight.shows(output)]
                    self._seen.note(sight, mine)
                    if mine:
                        yield b"".join(map(frame, mine))
                    continue
                try:
                    await asyncio.wait_for(moved.wait(), max(0.0, look - time.monotonic()))
                except TimeoutError:
                    yield b": still here\n\n"
        except Problem as problem:
            yield b"event: end\ndata: " + problem.text() + b"\n\n"
        finally:
            self.leave(key)
            watched.readers -= 1
            if not watched.readers:
                self._watched.pop(sight.uid, None)

    async def _since(self, watched: Listened, sight: Sight, after: int) -> list[Output]:
        """Return outputs after an ordinal, from memory if it reaches so far, else the store."""
        recent = watched.recent
        if not (recent and recent[0].ordinal <= after + 1):
            async with watched.reading:  # one query serves all at the same cursor
                if not (recent and recent[0].ordinal <= after + 1):
                    return await self._stored_outputs(watched, sight, after)
        return [output for output in recent if output.ordinal > after]

    async def _stored_outputs(self, watched: Listened, sight: Sight, after: int) -> list[Output]:
        """Return at most PIECE outputs after an ordinal from the store, in order.

        They are also kept in memory when it is empty and they reach up to the newest.
        """
        whole = sight._replace(every=1, since=None, until=None)
        found = await self._store.reading(
            sight.space, lambda connection: page(connection, whole, after, PIECE)
        )
        if found and not watched.recent and len(found) < PIECE:
            watched.add(found)
        return found


def frame(output: Output) -> bytes:
    """An output as a server-sent event."""
    return f"id: {output.ordinal}\nevent: output\ndata: {output.body}\n\n".encode()
