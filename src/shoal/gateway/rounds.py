"""What happens to streams again and again, many at once: readings are taken, slots are closed.

Requests that come while others are under way gather on the event loop (`RequestBatcher`), and
share a transaction (`run_together`): the next steps of all are charged and drawn together. Each
stream keeps the promise by itself: its charge, its state and its output are committed together, and
what is refused or fails is its own. A stream is locked before it is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, Row, and_, bindparam, delete, func, insert, or_, select, update

from shoal.core.errors import ShoalError
from shoal.core.stream import ChargingLedger, Slot, Step, StepResult, run_batch
from shoal.gateway.advance import LiveStream, Names, Output, Reading, Work, advance, close
from shoal.gateway.machines import PLACES, SILENT, plan_of, stream_kind
from shoal.gateway.problems import RETRY, Problem, missing
from shoal.gateway.repeats import (
    Answers,
    Reasons,
    RequestKey,
    drop_old_answers,
    new_answer,
    read_answers,
    repeated_answer,
    write_answers,
)
from shoal.gateway.store import ALL
from shoal.gateway.streams import DAY, Address, House, load_stream, now_seconds, seal_stream
from shoal.gateway.tables import DEAD, OUTPUTS, PLANS, STREAMS

Item = TypeVar("Item")
T = TypeVar("T")

MOST_REQUESTS = 64  # requests that share a transaction


class RequestBatcher(Generic[Item, T]):
    """`work` does a group of requests; while `groups` of them are under way, others gather.

    For each item it gives its result, or the error that is this item's alone.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[T | Exception]]],
        *,
        groups: int = 1,
        waiting: int,
    ) -> None:
        """Collect items for `work`, at most `groups` batches at once and `waiting` items in the
        queue.
        """
        self._work, self._groups, self._most = work, groups, waiting
        self._waiting: list[tuple[Item, asyncio.Future[T]]] = []
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item) -> T:
        """What became of an item; turned away when too many wait already."""
        if len(self._waiting) >= self._most:
            raise Problem(503, f"{len(self._waiting)} requests wait; try again", headers=RETRY)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._begin()
        return await future

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._groups:
            group, self._waiting = self._waiting[:MOST_REQUESTS], self._waiting[MOST_REQUESTS:]
            task = asyncio.create_task(self._run(group))
            self._running.add(task)
            task.add_done_callback(self._start_next)

    def _start_next(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._begin()

    async def _run(self, group: list[tuple[Item, asyncio.Future[T]]]) -> None:
        """Do one batch of work, and give each caller its result or its error."""
        try:
            results = await self._work([item for item, _ in group])
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            results = [error] * len(group)
        for (_, future), one in zip(group, results, strict=True):
            if future.done():
                continue  # the caller is gone
            if isinstance(one, Exception):
                future.set_exception(one)
            else:
                future.set_result(one)


class BatchAborted(Exception):
    """Those at `places` failed after a charge of theirs: nothing of the batch may be committed."""

    def __init__(self, places: Sequence[Any], error: ShoalError | Problem) -> None:
        super().__init__(str(error))
        self.places, self.error = places, error


def run_together(
    works: Sequence[Work[T]], ledger: ChargingLedger
) -> list[T | ShoalError | Problem]:
    """Return the results of `works`, in their order, or what each refused.

    Round after round the next step of each is charged, drawn and stored in the transaction of
    `ledger`. When one fails after a charge of its own, `BatchAborted` is raised: the caller
    rolls back and begins again without it.
    """
    results: dict[int, Any] = {}
    waiting: dict[int, Step[Any]] = {}
    charged: set[int] = set()

    def go_on(place: int, result: StepResult[Any] | None) -> None:
        """Send a result to one task; store what it returns, or its error.

        An error after a charge of its own raises BatchAborted.
        """
        try:
            waiting[place] = works[place].send(result)  # type: ignore[arg-type]  # None begins it
        except StopIteration as end:
            results[place] = end.value
        except (ShoalError, Problem) as error:
            if place in charged:
                raise BatchAborted([place], error) from error
            results[place] = error

    for place in range(len(works)):
        go_on(place, None)
    while waiting:
        steps, waiting = waiting, {}
        found = run_batch(list(steps.values()), ledger)
        for place, result in zip(steps, found, strict=True):
            if result.error is None or result.lost:
                charged.add(place)
            go_on(place, result)
    return [results[place] for place in range(len(works))]


AT_ONCE = 20  # slots of one stream closed in one transaction, so that it takes seconds at most
WARM = 16  # plans made ready when a worker starts
TIDY = 10  # closed slots between two looks for outputs beyond the length of history


class Asked(NamedTuple):
    """Readings of one request, when they came, and its Idempotency-Key if it has one."""

    address: Address
    readings: Sequence[Reading]
    now: float
    key: RequestKey | None = None


class Moved(NamedTuple):
    """A stream as it was found and as it is now; with reasons, dead readings and outputs on the
    way.

    `kept` are rows of answers that a repeated request will find.
    """

    row: Row[Any]
    stream: LiveStream
    changed: bool
    reasons: Sequence[Reasons | Problem] = ()
    dead: Sequence[tuple[str, int | None]] = ()
    outputs: Sequence[Output] = ()
    kept: Sequence[dict[str, Any]] = ()


class Closing(NamedTuple):
    """A stream with slots that just closed."""

    address: Address
    uid: str
    outputs: Sequence[Output]


class Closed(NamedTuple):
    """What closed; the uids of streams that cannot be closed; whether there may be more to do."""

    shown: list[Closing]
    broken: list[str]
    more: bool


def take_all(
    house: House, connection: Connection, asked: Sequence[Asked]
) -> list[Reasons | ShoalError | Problem]:
    """What became of the readings of each request, all of it in this transaction.

    Requests for one stream are taken one after the other. `BatchAborted` names those to leave out.
    """
    places: dict[Address, list[int]] = {}
    for place, each in enumerate(asked):
        places.setdefault(each.address, []).append(place)
    rows = _lock_streams(connection, places.keys())
    there = [address for address in places if address in rows]
    keyed = ((rows[each.address], each.key) for each in asked if each.address in rows)
    known = read_answers(connection, keyed)
    works = [
        _take_readings(
            house, connection, rows[address], [asked[at] for at in places[address]], known
        )
        for address in there
    ]
    try:
        found = run_together(works, house.store.charging(connection))
    except BatchAborted as aborted:
        raise BatchAborted(
            [at for n in aborted.places for at in places[there[n]]], aborted.error
        ) from None
    answers: dict[int, Any] = dict.fromkeys(range(len(asked)), missing())
    for address, result in zip(there, found, strict=True):
        if isinstance(result, Moved):
            answers.update(zip(places[address], result.reasons, strict=True))
        else:
            answers.update(dict.fromkeys(places[address], result))
    moved = [result for result in found if isinstance(result, Moved)]
    _save(house, connection, [each for each in moved if each.changed])
    _record_rejections(house, connection, [each for each in moved if each.dead])
    write_answers(connection, [row for each in moved for row in each.kept])
    return [answers[place] for place in range(len(asked))]


def close_due(
    house: House, connection: Connection, now: float, most: int, passed: Sequence[str] = ()
) -> Closed:
    """Every slot that has ended is shown, of up to `most` streams but those `passed` by (uids)."""
    rows = due(connection, now, most, passed, skip_locked=house.store.postgres)
    works = [_close_ended_slots(house, connection, row, now) for row in rows]
    try:
        found = run_together(works, house.store.charging(connection))
    except BatchAborted as aborted:
        raise BatchAborted([rows[at].uid for at in aborted.places], aborted.error) from None
    moved = [result for result in found if isinstance(result, Moved)]
    _save(house, connection, moved)
    shown = [
        {"space": each.row.space, "uid": each.row.uid, **output._asdict()}
        for each in moved
        for output in each.outputs
    ]
    if shown:
        connection.execute(insert(OUTPUTS), shown)
    _forget_old(house, connection, moved)
    closings = [Closing(_address(each.row), each.row.uid, each.outputs) for each in moved]
    broken = [
        row.uid for row, result in zip(rows, found, strict=True) if not isinstance(result, Moved)
    ]
    return Closed(closings, broken, len(rows) == most)


def due(
    connection: Connection, now: float, most: int, passed: Sequence[str], *, skip_locked: bool
) -> list[Row[Any]]:
    """Streams with a slot to close, the longest overdue first, locked."""
    wanted = select(STREAMS).where(STREAMS.c.closes <= now, *_others(passed))
    wanted = wanted.order_by(STREAMS.c.closes).limit(most)
    if skip_locked:
        wanted = wanted.with_for_update(skip_locked=True)
    return list(connection.execute(wanted))


def next_close(connection: Connection, passed: Sequence[str] = ()) -> float | None:
    """When the next slot of any stream closes, but those passed by."""
    wanted = select(func.min(STREAMS.c.closes)).where(*_others(passed))
    found = connection.execute(wanted).scalar()
    return None if found is None else float(found)


def _others(passed: Sequence[str]) -> list[Any]:
    """Streams that were not forgotten, but those passed by."""
    rules = [STREAMS.c.forgotten.is_(None)]
    return [*rules, STREAMS.c.uid.not_in(passed)] if passed else rules


def warm_up(house: House) -> int:
    """How many plans are ready: loaded, and stepped once on made-up readings that are not shown.

    What is compiled or built at a first step would delay all streams at the first slot; it may
    take a minute, so no transaction is open meanwhile.
    """
    kept = and_(PLANS.c.space == STREAMS.c.space, PLANS.c.plan == STREAMS.c.plan)
    wanted = select(PLANS.c.document).join(STREAMS, kept).where(STREAMS.c.forgotten.is_(None))
    rows = house.store.read(ALL, lambda c: c.execute(wanted.distinct().limit(WARM)).all())
    for (document,) in rows:
        plan = plan_of(document)
        house.store.ledger.keep(plan)
        kind = stream_kind(plan)
        state, anywhere = kind.begin(plan), 0 if kind is PLACES else plan.task.query.states[0]
        for slot in range(2):
            (result,) = run_batch([kind.step(plan, state, anywhere, Slot(), slot)])
            result.after()
            state, _ = kind.after(plan, result, status=SILENT)
        kind.skip(plan, kind.begin(plan), status=SILENT)
    return len(rows)


def _take_readings(
    house: House,
    connection: Connection,
    row: Row[Any],
    asked: Sequence[Asked],
    known: Answers,
) -> Work[Moved]:
    """Return a stream after the readings of requests, in their order.

    A request whose key is in `known`, or was used by one before it, gets that answer again.
    """
    before = stream = load_stream(house, connection, row)
    names, early = _charged_names(row), house.store.settings.early
    answers: list[Reasons | Problem] = []
    dead: list[tuple[str, int | None]] = []
    kept: list[dict[str, Any]] = []
    known = dict(known)
    for each in asked:
        place = None if each.key is None else (row.uid, each.key.device, each.key.name)
        if each.key is not None and place in known:
            answers.append(repeated_answer(house.vault, row.uid, each.key, known[place]))
            continue
        reasons: Reasons = []
        for reading in each.readings:
            taken = yield from advance(stream, reading, each.now, names, early=early, made=row.made)
            stream = taken.stream
            if taken.dead is not None:
                dead.append((taken.dead, taken.ordinal))
            reasons.append(taken.dead)
        answers.append(reasons)
        if each.key is not None and place is not None:
            known[place] = new_answer(house.vault, row.uid, each.key, reasons)
            own = {"space": row.space, "uid": row.uid, "key": place[1], "name": place[2]}
            kept.append(own | known[place]._asdict() | {"made": each.now})
    return Moved(row, stream, stream is not before, answers, dead, kept=kept)


def _close_ended_slots(
    house: House, connection: Connection, row: Row[Any], now: float
) -> Work[Moved]:
    """A stream after every slot that has ended, with what they show."""
    stream, outputs = yield from close(
        load_stream(house, connection, row), now, _charged_names(row), AT_ONCE
    )
    return Moved(row, stream, changed=True, outputs=outputs)


def _charged_names(row: Row[Any]) -> Names:
    """Return who is charged for each slot of a stream: under the stream's own keys."""
    subject, uid = _address(row).subject, row.uid
    return lambda period, ordinal: Slot(subject=subject, period=period, key=f"{uid}/{ordinal}")


def _address(row: Row[Any]) -> Address:
    return Address(row.space, row.person, row.stream)


def _lock_streams(
    connection: Connection, addresses: Collection[Address]
) -> dict[Address, Row[Any]]:
    """The rows of streams that are there, locked in the order of their names."""
    parts = zip(Address._fields, zip(*addresses, strict=True), strict=True)
    wanted = {name: sorted(set(values)) for name, values in parts}
    found = ((_address(row), row) for row in connection.execute(_ALL_LOCKED, wanted))
    return {at: row for at, row in found if row.forgotten is None and at in addresses}


def _save(house: House, connection: Connection, moved: Sequence[Moved]) -> None:
    """The streams as they stand now, sealed again."""
    if not moved:
        return
    rows = []
    for row, stream, *_ in moved:
        key, content = seal_stream(house, row.space, stream)
        values = {"key": key, "sealed": content, "closed": stream.closed, "closes": row.closes}
        values |= {"plan": row.plan, "clock": row.clock, "swap": row.swap}
        if stream.closed != row.closed:
            values["closes"] = stream.clock.closes(stream.closed)
        if stream.plan_id != row.plan or (row.swap is not None and stream.swap is None):
            values |= {"plan": stream.plan_id, "clock": stream.clock.as_text(), "swap": None}
        own = {f"own_{name}": value for name, value in _address(row)._asdict().items()}
        rows.append(own | {f"new_{name}": value for name, value in values.items()})
    connection.execute(_SAVE, rows)


def _record_rejections(house: House, connection: Connection, moved: Sequence[Moved]) -> None:
    """Remember that readings were refused, and why; the oldest give way."""
    if not moved:
        return
    own = (
        DEAD.c.space.in_([each.row.space for each in moved]),
        DEAD.c.uid.in_([each.row.uid for each in moved]),
    )
    newest = select(DEAD.c.uid, func.max(DEAD.c.place)).where(*own).group_by(DEAD.c.uid)
    last = {uid: int(place) for uid, place in connection.execute(newest)}
    for row, dead in ((each.row, each.dead) for each in moved):
        place = last.get(row.uid, 0)
        buried = [
            {"space": row.space, "uid": row.uid, "place": at, "ordinal": ordinal, "reason": reason}
            for at, (reason, ordinal) in enumerate(dead, place + 1)
        ]
        connection.execute(insert(DEAD), buried)
        oldest = place + len(buried) - house.store.settings.dead
        if oldest > 0:
            gone = delete(DEAD).filter_by(space=row.space, uid=row.uid)
            connection.execute(gone.where(DEAD.c.place <= oldest))


def _forget_old(house: House, connection: Connection, moved: Sequence[Moved]) -> None:
    """Drop outputs beyond the length or the age of history, and answers that are too old."""
    days = house.store.settings.history_days
    oldest = now_seconds() - DAY * days if days else 0.0
    rows = [
        {
            "own_space": each.row.space,
            "own_uid": each.row.uid,
            "before": each.stream.closed - house.store.settings.history,
            "oldest": oldest,
        }
        for each in moved
        if each.stream.closed // TIDY != each.row.closed // TIDY
    ]
    if rows:
        connection.execute(_FORGET, rows)
    kept_since = now_seconds() - house.store.settings.idempotent_hours * 3600
    for row in rows:
        drop_old_answers(connection, row["own_space"], row["own_uid"], kept_since)


# made once: building a statement takes longer than running it
_ALL_LOCKED = (
    select(STREAMS)
    .where(*(STREAMS.c[name].in_(bindparam(name, expanding=True)) for name in Address._fields))
    .order_by(STREAMS.c.space, STREAMS.c.person, STREAMS.c.stream)
    .with_for_update()
)
_SAVED = ("key", "sealed", "closed", "closes", "plan", "clock", "swap")
_SAVE = (
    update(STREAMS)
    .where(*(STREAMS.c[name] == bindparam(f"own_{name}") for name in Address._fields))
    .values({name: bindparam(f"new_{name}") for name in _SAVED})
)
_FORGET = delete(OUTPUTS).where(
    OUTPUTS.c.space == bindparam("own_space"),
    OUTPUTS.c.uid == bindparam("own_uid"),
    or_(OUTPUTS.c.ordinal < bindparam("before"), OUTPUTS.c.opens < bindparam("oldest")),
)
