"""The database of the gateway and its ledger: one transaction does all that belongs together.

SQLite has one writer thread: what waits is committed together, each piece of work in a savepoint of
its own. PostgreSQL has as many writers as threads; a transaction says its space first, and
row-level security shows it nothing else.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, TextClause, create_engine, event, func, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from shoal.core.errors import CannotCompose, InputError, LedgerError, OverBudget
from shoal.core.plan import Plan
from shoal.gateway.copies.head import HeadFile
from shoal.gateway.problems import RETRY, Problem, not_understood, over_limit
from shoal.gateway.settings import Settings
from shoal.gateway.tables import METADATA
from shoal.ledger.accounts import EACH, Limit, check
from shoal.ledger.rules import standard_conversions
from shoal.ledger.store import SqlLedger, Within, open_ledger
from shoal.ledger.totals import Tally, more

T = TypeVar("T")
Work = Callable[[Connection], T]

ALL = "*"  # the space of what belongs to no caller: the clock, and looking a key up
GROUP = 64  # pieces of work committed together, so that a batch waits for the disk once
COMMIT_ATTEMPTS = 8
PATIENT_SECONDS = 600.0  # of a call that may wait for another worker, or read all charges
AGAIN = ("40001", "40P01", "55P03")  # serialisation failure, deadlock, lock not got: no effect
LOCK_SHARE = 0.8  # of a call's deadline: a lock that is not got fails before the call does
ROLE = "shoal_gateway"


class Store:
    """One database: `write` and `read` for threads, `writing` and `reading` for the loop."""

    def __init__(self, settings: Settings) -> None:
        """Open the ledger and its database, with a pool of threads; SQLite gets a single writer."""
        self.settings = settings
        seconds = settings.database_seconds if "://" in settings.database else None
        self.ledger: SqlLedger = open_ledger(settings.database, call_seconds=seconds)
        self.postgres = self.ledger.database.engine.dialect.name == "postgresql"
        self.engine = _engine(settings) if self.postgres else self.ledger.database.engine
        threads = settings.threads if self.postgres else 4
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="store")
        self._writer = None if self.postgres else Writer(self.ledger)
        self._waiting = 0
        self.head = HeadFile(settings.head_file)
        self.failing = False  # whether a write failed, and none has succeeded for sure since
        self.restored: float | None = None  # when an older copy was taken, as `check_head` found
        self.plans: dict[tuple[str, str], Plan] = {}  # built once: a stored plan never changes

    def migrate(self) -> None:
        """Bring the schema to its newest version; safe from many processes at once."""
        if self.postgres:
            with self.patience():
                self._transact(upgrade_schema, space=None)
        else:
            self.ledger.database.migrate(upgrade_schema)

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Let calls inside take minutes: a migration, or a checkpoint over all charges."""
        if not self.postgres:
            yield
            return
        from shoal.ledger.deadlines import allow_seconds

        with allow_seconds(PATIENT_SECONDS):
            yield

    def write(self, space: str, work: Work[T]) -> T:
        """The result of `work`, committed; when it raises, nothing has changed."""
        if self._writer is not None:
            return self._writer.submit(work).result()
        return self._transact(work, space)

    def read(self, space: str, work: Work[T]) -> T:
        """The result of `work`, which changes nothing."""
        if self._writer is not None:
            return self.ledger.database.read(work)
        return self._transact(work, space)

    async def writing(self, space: str, work: Work[T]) -> T:
        """`write` for the event loop; turned away when too many wait already."""
        if self._waiting >= self.settings.waiting:
            raise Problem(503, f"{self._waiting} writes wait; try again", headers=RETRY)
        self._waiting += 1
        try:
            with self._noticing():
                if self._writer is not None:
                    return await asyncio.wrap_future(self._writer.submit(work))
                return await self._in_thread(lambda: self._transact(work, space))
        finally:
            self._waiting -= 1

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Note that the database cannot be written, as when its disk is full."""
        try:
            yield
        except LedgerError:
            self.failing = True
            raise
        except Problem as problem:
            self.failing = self.failing or problem.status == 503
            raise

    async def reading(self, space: str, work: Work[T]) -> T:
        """`read` for the event loop."""
        return await self._in_thread(lambda: self.read(space, work))

    def glance(self, statement: TextClause, **given: str) -> Sequence[Any]:
        """The rows of one small statement, in this thread: for SQLite, whose readers never wait."""
        return self.ledger.database.read(lambda c: c.execute(statement, given).all())

    async def limit(
        self, subject: str, plan: Plan, amount: float, unit: str, *, ever: bool = False
    ) -> None:
        """Set the most that may be spent on a subject in each of its periods, or in all.

        Refused where charges of its plan have no total in that unit: all would be.
        """
        period = None if ever else EACH
        limit = Limit(unit=unit, amount=Fraction(amount), subject=subject, period=period)
        first, rules = more(Tally(), plan), standard_conversions()
        try:
            await self._in_thread(lambda: check(limit, Tally(), first, rules))
        except CannotCompose:
            raise not_understood(
                f"unit is {unit}, and what this stream's plan promises ({plan.guarantee.notion}) "
                "has no total in it: every reading would be refused; name the other unit, or pause "
                "the stream"
            ) from None
        except OverBudget:
            pass  # a limit below the first charge ends a stream, as it says
        set_it = partial(self.ledger.limit, amount, unit=unit, subject=subject, period=period)
        await self.alone(set_it)

    async def alone(self, work: Callable[[], T]) -> T:
        """The result of `work`, which makes a transaction of the ledger's own.

        On SQLite in the writer's thread, between two groups: another writer would wait for a
        moment without a writer, and may never find one.
        """
        with self._noticing():
            if self._writer is None:
                return await self._in_thread(work)
            return await asyncio.wrap_future(self._writer.submit(work, alone=True))

    def commit_now(self, work: Work[T]) -> T:
        """Return the result of `work`, committed in this thread: for what runs `alone`."""
        if self._writer is None:
            return self._transact(work, ALL)
        return self.ledger.database.write(work)

    async def ask_ledger(self, question: Callable[[SqlLedger], T]) -> T:
        """What the ledger answers, for the event loop."""
        return await self._in_thread(lambda: question(self.ledger))

    def charging(self, connection: Connection) -> Within:
        """The ledger inside a transaction of this store."""
        return self.ledger.within(connection)

    def close(self) -> None:
        """Finish what was begun and give the connections back."""
        if self._writer is not None:
            self._writer.stop()
        self._pool.shutdown(wait=True)
        self.engine.dispose()
        self.ledger.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _transact(self, work: Work[T], space: str | None) -> T:
        """Return what the work returns, in a transaction; conflicts are retried after random
        pauses.
        """
        for attempt in range(1, COMMIT_ATTEMPTS + 1):
            try:
                with self.engine.connect() as connection, connection.begin():
                    if self.postgres and space is not None:
                        connection.execute(_SPACE, {"role": ROLE, "space": space})
                    return work(connection)
            except DBAPIError as error:
                state = getattr(error.orig, "sqlstate", None)
                if state not in AGAIN or attempt == COMMIT_ATTEMPTS:
                    raise unusable(error) from error
                time.sleep(random.uniform(0, 0.01 * 2**attempt))
        raise AssertionError("unreachable")


@contextmanager
def open_store(settings: Settings) -> Iterator[Store]:
    """A store with the newest schema, for a command; what it cannot do is the user's to mend."""
    store = Store(settings)
    try:
        store.migrate()
        yield store
    except Problem as problem:
        raise InputError(problem.detail) from None
    finally:
        store.close()


class Waiting(NamedTuple):
    """Work that waits for the writer, who waits for it, and whether it is done by itself."""

    work: Callable[..., Any]
    future: Future[Any]
    alone: bool


class Writer:
    """The one thread that writes to a SQLite file; what waits meanwhile is committed together."""

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[..., T], *, alone: bool = False) -> Future[T]:
        """The result of `work`, once it is on the disk; `alone` it makes its own transaction."""
        future: Future[T] = Future()
        self._queue.put(Waiting(work, future, alone))
        return future

    def stop(self) -> None:
        """Finish what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    def _loop(self) -> None:
        """Commit the work in the queue in groups until None arrives; cancelled work is left out."""
        going = True
        while going:
            taken = [self._queue.get()]
            while len(taken) < GROUP and not self._queue.empty():
                taken.append(self._queue.get())
            going = None not in taken
            # cancelled work is left out; from here on it cannot be cancelled
            wanted = [each for each in taken if each and each.future.set_running_or_notify_cancel()]
            group = [each for each in wanted if not each.alone]
            if group:
                self._commit(group)
            for each in (one for one in wanted if one.alone):
                try:
                    each.future.set_result(each.work())
                except BaseException as error:  # noqa: BLE001 - the waiting caller gets it
                    each.future.set_exception(error)

    def _commit(self, group: list[Waiting]) -> None:
        """Do a group of work in one transaction, and give each caller its result or its error."""
        results: list[tuple[Any, BaseException | None]]
        try:
            results = self._ledger.database.write(
                lambda connection: [_attempt(connection, each.work) for each in group]
            )
        except BaseException as error:  # noqa: BLE001 - the waiting caller gets it
            results = [(None, error)] * len(group)
        for each, (result, failure) in zip(group, results, strict=True):
            if failure is None:
                each.future.set_result(result)
            else:
                each.future.set_exception(failure)


def _attempt(connection: Connection, work: Work[Any]) -> tuple[Any, Exception | None]:
    """The result of `work`, or its error with everything it did undone."""
    try:
        with connection.begin_nested():
            return work(connection), None
    except DBAPIError:
        raise
    except Exception as error:  # noqa: BLE001 - it is handed to the caller
        return None, error


def check_count(
    connection: Connection, settings: Settings, name: str, *rules: Any, **alike: Any
) -> None:
    """Refuse one more row of a table where a setting of its name allows no more of those alike."""
    most, table = getattr(settings, name), METADATA.tables[f"gateway_{name}"]
    count = select(func.count()).select_from(table).filter_by(**alike).where(*rules)
    if connection.execute(count).scalar_one() >= most:
        raise over_limit(name, most, status=409)


def unusable(error: DBAPIError) -> Problem:
    """What to say when the database failed: nothing was committed, or it is unknown."""
    return Problem(
        503,
        "the database cannot be used just now; send the same again, a reading with its "
        "Idempotency-Key or its time: it is drawn once",
        headers=RETRY,
    )


_SPACE = text("SELECT set_config('role', :role, true), set_config('shoal.space', :space, true)")


def _engine(settings: Settings) -> Engine:
    """Return the PostgreSQL engine, with bounds on calls and on waiting for locks."""
    url = make_url(settings.database).set(drivername="postgresql+psycopg")
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",
        pool_size=settings.threads,
        max_overflow=4,
        pool_pre_ping=True,
    )
    from shoal.ledger.deadlines import bound_calls

    bound_calls(engine, settings.database_seconds)
    milliseconds = round(1000 * settings.database_seconds)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: Any) -> None:
        """Let the server end what this client has given up: it waits for locks a little less."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {round(LOCK_SHARE * milliseconds)}")
        connection.commit()

    return engine


def upgrade_schema(connection: Connection, revision: str = "head") -> None:
    """Bring the gateway's tables to a revision, on this connection and alone."""
    from alembic import command
    from alembic.config import Config

    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7309940822140974)")
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_LEDGER_GRANTS)


# the ledger's tables are its own: the role may read them and charge, and set no limit
_LEDGER_GRANTS = (
    f"GRANT SELECT ON shoal_versions, shoal_house, shoal_documents, shoal_entries TO {ROLE}; "
    f"GRANT INSERT ON shoal_documents, shoal_entries TO {ROLE}"
)
