"""The slot clock: one worker at a time closes what has ended, and tells the others to look.

On PostgreSQL the one is the worker that holds an advisory lock on a connection of its own. The
server ends that connection, and gives the lock back, when the worker dies or says nothing for two
deadlines of a call: then another worker takes over. Two clocks at once do no harm, because streams
are locked. Every worker sees for itself how late the oldest slot is.

At least once a minute it notes outside the database how far that has come (copies/head.py). While
that fails, no slot is closed: a database that was exchanged under a running gateway shows nothing
more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

from shoal.core.errors import ShoalError
from shoal.gateway import telemetry
from shoal.gateway.copies.head import advance_head, note_checkpoint
from shoal.gateway.hub import Hub
from shoal.gateway.jumps import JumpWatch
from shoal.gateway.keys import Remembered, write_uses
from shoal.gateway.problems import Problem
from shoal.gateway.rounds import BatchAborted, Closed, close_due, next_close
from shoal.gateway.seen import Seen, write_seen
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import House, now_seconds
from shoal.gateway.telemetry import log

# the advisory lock of the clock: any number, always the same, one in each schema
LEASE = "SELECT pg_try_advisory_lock(822140975, hashtext(current_schema()))"
CHANNEL = "shoal_moved"
SHORTEST = 0.002  # seconds between two looks: a stream that is locked just now is no spin
STREAMS_TOGETHER = 200  # streams closed in one transaction
BROKEN = 60.0  # seconds after which a stream that could not be closed is tried again
WRITE_SEEN = 1.0  # seconds between two notes of who saw what
LEASE_CALLS = 2  # deadlines of a call without a word after which another worker runs the clock
RECONNECT = 0.5  # seconds before the listener connects again
LOOK = 1.0  # seconds between two looks of a worker that does not close slots


class Ticker:
    """Closes slots in the background of a worker."""

    def __init__(
        self, house: House, hub: Hub, seen: Seen, remembered: Remembered, watch: JumpWatch
    ) -> None:
        """Prepare the loop that closes slots; nothing runs before it is started."""
        self._house, self._hub, self._seen = house, hub, seen
        self._watch = watch
        self._remembered = remembered
        self._store: Store = house.store
        self._lease: Lease | None = Lease(house.store) if house.store.postgres else None
        self._broken: dict[str, float] = {}  # streams that cannot be closed, and until when to pass
        self.behind = 0.0  # seconds that the oldest slot to close is overdue
        self.alive = time.monotonic()
        self._head_due = time.monotonic()
        self._checkpoint_due: float | None = None  # not known before the first look at the file
        self.unnoted = False  # whether the head could not be noted, so that no slot closes
        self._checkpoint: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Tick until cancelled; a failure is logged and tried again."""
        noted = time.monotonic()
        while True:
            pause = self._store.settings.tick
            try:
                if self._store.failing:  # written until it works: nothing else may be due
                    await self.write_head()
                    self._store.failing = False
                if self._lease is None or await self._lease.acquire():
                    await self._note_head()
                    pause = await self._tick_unless_jumped()
                    await self._lay_checkpoint()
                elif time.monotonic() - self.alive > LOOK:
                    await self._store.reading(ALL, self._look)
                else:
                    await asyncio.sleep(pause)
                    continue
                self.alive = time.monotonic()
                if self._lease is None:  # elsewhere the listener says what it hears
                    self._hub.refresh()
                if time.monotonic() - noted > WRITE_SEEN:
                    noted = time.monotonic()
                    await self.write_seen()
            except (ShoalError, Problem, OSError) as error:
                log.warning("the clock failed", error=type(error).__name__)
                pause = 1.0
            await asyncio.sleep(pause)

    async def _note_head(self) -> None:
        """Note how far the database has come, when it is time."""
        if time.monotonic() >= self._head_due:
            try:
                await self.write_head()
            except BaseException:
                self.unnoted = True
                raise
            self.unnoted = False
            self._head_due = time.monotonic() + self._store.settings.head_seconds

    async def _lay_checkpoint(self) -> None:
        """Lay a checkpoint over all charges when it is time; at once where there is none."""
        now, wait = time.monotonic(), self._store.settings.checkpoint_hours * 3600
        if self._checkpoint_due is None:
            noted = await asyncio.to_thread(self._store.head.read)
            self._checkpoint_due = now + (wait if noted and noted.checkpoint else 0.0)
        if now >= self._checkpoint_due:
            self._checkpoint_due = now + wait
            self._checkpoint = asyncio.create_task(self._write_checkpoint())

    async def _write_checkpoint(self) -> None:
        """Write a checkpoint, beside the clock: over many charges it may take a while."""
        try:
            await self._store.alone(lambda: note_checkpoint(self._store))
        except (ShoalError, Problem, OSError) as error:
            log.warning("the checkpoint failed", error=type(error).__name__)
            self._checkpoint_due = time.monotonic() + BROKEN

    async def stop(self) -> None:
        """Wait for a checkpoint that was begun."""
        if self._checkpoint is not None:
            await self._checkpoint

    def _look(self, connection: Connection) -> None:
        """Note how late the oldest slot is, in a worker that does not close slots."""
        upcoming = next_close(connection)
        self.behind = 0.0 if upcoming is None else max(0.0, now_seconds() - upcoming)
        telemetry.BEHIND.set(self.behind)

    async def write_head(self) -> None:
        """Note how far the database has come."""
        await self._store.alone(lambda: advance_head(self._store, self._watch.time))

    async def write_seen(self) -> None:
        """Write down who saw what, and which keys were used, since the last time."""
        noted, used = self._seen.take_notes(), self._remembered.take_uses()
        if noted:
            await self._store.writing(ALL, lambda connection: write_seen(connection, noted))
        if used:
            await self._store.writing(ALL, lambda connection: write_uses(connection, used))

    async def _tick_unless_jumped(self) -> float:
        """Close all that is due, if the clock may be believed; seconds until the next look."""
        jump = self._watch.jump()
        telemetry.JUMP.set(jump)
        return self._store.settings.tick if jump else await self._tick()

    async def _tick(self) -> float:
        """Close all that is due; seconds until it is worth looking again."""
        self._broken = {uid: at for uid, at in self._broken.items() if at > time.monotonic()}
        while True:
            try:
                closed, upcoming = await self._store.writing(ALL, self._close)
            except BatchAborted as aborted:
                self._pass_by(aborted.places)
                continue
            self._hub.publish(closed.shown)
            telemetry.SLOTS.inc(sum(len(closing.outputs) for closing in closed.shown))
            self._pass_by(closed.broken)
            if not closed.more:
                break
        wait = self._store.settings.tick if upcoming is None else upcoming - now_seconds()
        self.behind = max(0.0, -wait)
        telemetry.BEHIND.set(self.behind)
        return min(self._store.settings.tick, max(SHORTEST, wait))

    def _close(self, connection: Connection) -> tuple[Closed, float | None]:
        """What closed now, and when the next slot does."""
        passed = list(self._broken)
        closed = close_due(self._house, connection, now_seconds(), STREAMS_TOGETHER, passed)
        if closed.shown and self._store.postgres:
            connection.exec_driver_sql(f"NOTIFY {CHANNEL}")
        return closed, next_close(connection, passed)

    def _pass_by(self, uids: Sequence[str]) -> None:
        """Leave streams alone for a while that cannot be closed: the others must go on."""
        for uid in uids:
            log.error("a stream cannot be closed", error="StoredError")
            self._broken[uid] = time.monotonic() + BROKEN


class Lease:
    """The right to run the clock, held by a connection that does nothing else."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection: Connection | None = None
        # the server ends the connection, by its own clock, when it hears nothing for so long
        self._milliseconds = round(1000 * LEASE_CALLS * store.settings.database_seconds)

    async def acquire(self) -> bool:
        """Whether this worker has the right, or just got it."""
        return await asyncio.to_thread(self._try_acquire)

    def _try_acquire(self) -> bool:
        """Return whether this worker has the advisory lock; a broken connection gives it up."""
        try:
            if self._connection is None:
                connection = self._store.engine.connect()
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                if not connection.execute(text(LEASE)).scalar():
                    connection.close()
                    return False
                connection.exec_driver_sql(f"SET idle_session_timeout = {self._milliseconds}")
                self._connection = connection
            self._connection.exec_driver_sql("SELECT 1")
        except Exception:  # noqa: BLE001 - with the connection the lock is gone
            with contextlib.suppress(Exception):
                if self._connection is not None:
                    self._connection.invalidate()
            self._connection = None
            return False
        return True


class Listener:
    """Hears that slots closed in another worker, and lets the hub look.

    Asks the server now and then whether it still hears: a connection that stalls is silent too.
    """

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store, self._hub = store, hub
        self._seconds = store.settings.database_seconds

    async def run(self) -> None:
        """Listen until cancelled; after a broken connection everything is looked at once."""
        import psycopg

        from shoal.ledger.deadlines import connect_seconds

        url = self._store.engine.url.set(drivername="postgresql")
        where = url.render_as_string(hide_password=False)
        timeout = connect_seconds(self._seconds)
        while True:
            with contextlib.suppress(psycopg.Error, OSError, Problem, TimeoutError):
                connection = await psycopg.AsyncConnection.connect(
                    where, autocommit=True, connect_timeout=timeout
                )
                try:
                    await self._listen(connection)
                finally:
                    await connection.close()
            await asyncio.sleep(RECONNECT)

    async def _listen(self, connection: Any) -> None:
        """Pass on what is heard until the connection breaks or stalls."""
        await self._answered(connection, f"LISTEN {CHANNEL}")
        await self._hub.catch_up()
        while True:
            self._hub.refresh()
            async for _ in connection.notifies(timeout=self._seconds):
                await self._hub.catch_up()
                self._hub.refresh()
            await self._answered(connection, "SELECT 1")

    async def _answered(self, connection: Any, statement: str) -> None:
        """Run a statement within the deadline; close a connection that does not answer."""
        task = asyncio.ensure_future(connection.execute(statement.encode()))
        done, _ = await asyncio.wait([task], timeout=self._seconds)
        if not done:
            await connection.close()
            task.cancel()
            raise TimeoutError
        task.result()
