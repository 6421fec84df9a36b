"""Streams in the store: a reading is one transaction, and so is the closing of a slot.

What every function here does, it does inside a transaction that the caller began. A stream is
locked before it is looked at, so that no slot is drawn twice however many workers there are.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, Row, Select, bindparam, delete, func, insert, select, update

from shoal.core.plan import Plan
from shoal.gateway.advance import (
    AccountOf,
    LiveStream,
    Output,
    Reading,
    Standing,
    advance,
    begun,
    close,
)
from shoal.gateway.clock import Clock, checked_zone, day_clock, steady_clock
from shoal.gateway.machines import KINDS, Account, day_of, kind_of, plan_of
from shoal.gateway.problems import Problem, missing, not_understood, over_limit
from shoal.gateway.store import Store
from shoal.gateway.tables import DEAD, OUTPUTS, PLANS, SEEN, STREAMS
from shoal.gateway.vault import Vault

AT_ONCE = 200  # slots of one stream closed in one transaction, when a server was away
PUBLISH, HIDE = "publish", "hide"
DAY = 86400.0
MOST_PLANS = 256  # kept built
CLOCK = time.time


class Address(NamedTuple):
    """Which stream: space, person, name."""

    space: str
    person: str
    stream: str

    @property
    def subject(self) -> str:
        """How the ledger calls it: streams of one person are apart only when they said so."""
        return "/".join(self)


class House(NamedTuple):
    """What every function here works with."""

    store: Store
    vault: Vault


class Closing(NamedTuple):
    """A stream with slots that just closed."""

    address: Address
    uid: str
    outputs: list[Output]


def take(
    house: House, connection: Connection, address: Address, readings: Sequence[Reading], now: float
) -> list[str | None]:
    """Why each reading was dead, None for those that were taken; all of it in this transaction."""
    row = _row(connection, address, lock=True)
    before = stream = loaded(house, connection, row)
    account = _account(house, connection, address, row.uid)
    early = house.store.settings.early
    dead: list[tuple[str, int | None]] = []
    told: list[str | None] = []
    for reading in readings:
        taken = advance(stream, reading, now, account, early=early)
        stream = taken.stream
        if taken.dead is not None:
            dead.append((taken.dead, taken.ordinal))
        told.append(taken.dead)
    if stream is not before:
        _save(house, connection, address, row, stream)
    if dead:
        _bury(house, connection, address.space, row.uid, dead)
    return told


def due(connection: Connection, now: float, most: int, *, skip_locked: bool) -> list[Row[Any]]:
    """Streams with a slot to close, the longest overdue first, locked."""
    wanted = (
        select(STREAMS)
        .where(STREAMS.c.closes <= now, STREAMS.c.forgotten.is_(None))
        .order_by(STREAMS.c.closes)
        .limit(most)
    )
    if skip_locked:
        wanted = wanted.with_for_update(skip_locked=True)
    return list(connection.execute(wanted))


def close_due(house: House, connection: Connection, now: float, most: int) -> list[Closing]:
    """Every slot that has ended is shown, of up to `most` streams; what they show now."""
    closings = []
    for row in due(connection, now, most, skip_locked=house.store.postgres):
        address = Address(row.space, row.person, row.stream)
        before = loaded(house, connection, row)
        account = _account(house, connection, address, row.uid)
        stream, outputs = close(before, now, account, AT_ONCE)
        _save(house, connection, address, row, stream)
        rows = [_output_row(address.space, row.uid, output) for output in outputs]
        connection.execute(insert(OUTPUTS), rows)
        _forget_old(house, connection, address.space, row.uid, stream.closed)
        closings.append(Closing(address, row.uid, outputs))
    return closings


def next_close(connection: Connection) -> float | None:
    """When the next slot of any stream closes."""
    wanted = select(func.min(STREAMS.c.closes)).where(STREAMS.c.forgotten.is_(None))
    found = connection.execute(wanted).scalar()
    return None if found is None else float(found)


def open_stream(
    house: House, connection: Connection, address: Address, asked: dict[str, Any], now: float
) -> bool:
    """A new stream, begun with the next slot; True. An old one with another plan: see `change`."""
    row = _row(connection, address, lock=True, forgotten=True, optional=True)
    if row is not None and row.forgotten is None:
        change(house, connection, address, row, asked, now)
        return False
    after = 0
    if row is not None:
        if row.closes > now:
            raise Problem(
                409,
                "the stream was forgotten, and stays closed until its day is over: applications "
                "remember what they saw of it",
                until=_text(row.closes),
            )
        after = row.closed
        connection.execute(delete(STREAMS).where(*_is(address)))
    plan = _stored_plan(house, connection, address.space, asked["plan"])
    _check_alone(house, connection, address, apart=bool(asked.get("independent")))
    clock = clock_of(plan, asked.get("clock") or {}, asked.get("timezone") or "UTC", now, after)
    stream = begun(_new(asked["plan"], plan, clock, asked, now, address.stream))
    _insert(house, connection, address, stream, apart=bool(asked.get("independent")), now=now)
    return True


def change(
    house: House,
    connection: Connection,
    address: Address,
    row: Row[Any],
    asked: dict[str, Any],
    now: float,
) -> None:
    """Another plan for a stream, from the end of its day or step on; what is the same stays."""
    stream = loaded(house, connection, row)
    if asked.get("silence", stream.silence) != stream.silence:
        raise Problem(409, "silence is part of the promise; begin a stream of another name")
    if asked["plan"] == stream.plan_id and not asked.get("clock"):
        connection.execute(update(STREAMS).where(*_is(address)).values(swap=None))
        return
    plan = _stored_plan(house, connection, address.space, asked["plan"])
    if kind_of(plan) is not stream.kind:
        raise not_understood("plan is for another kind of stream; begin a stream of another name")
    stream.kind.carried(stream.plan, stream.standing.state, plan)
    first = max(
        stream.clock.day_ends(stream.closed), stream.clock.day_ends(stream.standing.decided - 1)
    )
    begins = stream.clock.slot(first).opens
    zone = asked.get("timezone") or stream.clock.zone
    clock = clock_of(plan, asked.get("clock") or {}, zone, begins - 1e-6, first, like=stream.clock)
    swap = json.dumps([asked["plan"], clock.stored()])
    connection.execute(update(STREAMS).where(*_is(address)).values(swap=swap))


def pause(
    house: House, connection: Connection, address: Address, now: float, *, resume: bool
) -> int:
    """The ordinal from which a pause, or the stream again, takes effect: the next slot to open."""
    row = _row(connection, address, lock=True)
    clock, pauses = _clock(row), json.loads(row.pauses)
    standing = loaded(house, connection, row).standing
    first = max(clock.after(now), row.closed, standing.decided)
    running = not pauses or pauses[-1][1] is not None
    if resume and not running:
        pauses[-1][1] = max(first, pauses[-1][0])
    elif not resume and running:
        pauses.append([first, None])
    kept = [each for each in pauses if each[1] is None or each[1] > row.closed]
    connection.execute(update(STREAMS).where(*_is(address)).values(pauses=json.dumps(kept)))
    return int(pauses[-1][1] if resume and pauses else first)


def forget(house: House, connection: Connection, address: Address, now: float) -> float:
    """When the tombstone of a stream ends whose outputs and state are gone now (UTC seconds)."""
    row = _row(connection, address, lock=True)
    clock = _clock(row)
    ends = clock.slot(clock.day_ends(row.closed) - 1).ends if clock.slots else now + DAY
    for table in (OUTPUTS, SEEN, DEAD):
        connection.execute(
            delete(table).where(table.c.space == address.space, table.c.uid == row.uid)
        )
    last = clock.after(max(ends, now))
    connection.execute(
        update(STREAMS)
        .where(*_is(address))
        .values(sealed=b"", key="", forgotten=now, closes=max(ends, now), closed=last, swap=None)
    )
    return float(max(ends, now))


def loaded(house: House, connection: Connection, row: Row[Any]) -> LiveStream:
    """The stream of a row, its state opened."""
    sealed = house.vault.open(row.key, row.sealed, _place(row.space, row.uid, row.closed))
    swap = None
    if row.swap is not None:
        name, clock = json.loads(row.swap)
        swap = (name, _stored_plan(house, connection, row.space, name), Clock(**clock))
    return LiveStream(
        uid=row.uid,
        name=row.stream,
        plan_id=row.plan,
        plan=_stored_plan(house, connection, row.space, row.plan),
        kind=KINDS[row.kind],
        clock=_clock(row),
        silence=row.silence,
        closed=row.closed,
        standing=Standing.unpacked(sealed),
        pauses=tuple((a, b) for a, b in json.loads(row.pauses)),
        swap=swap,
    )


def clock_of(
    plan: Plan, asked: dict[str, Any], zone: str, now: float, after: int, like: Clock | None = None
) -> Clock:
    """The clock a person asked for: of equal slots, or by the wall clock of the plan's model.

    `after` is the ordinal its first slot has; `like` is the clock it replaces.
    """
    kind = kind_of(plan)
    assert kind is not None
    slots = day_of(plan).slots if kind.name == "contexts" else 0
    every, grace = asked.get("every"), float(asked.get("grace") or (like.grace if like else 0.0))
    if every is None and like is not None and like.kind == "every":
        every = like.seconds
    if every is None and not slots:
        raise not_understood("clock.every is missing; say how many seconds a step of places takes")
    if every is not None:
        begins = now + 1e-6 if like else (now // every + 1) * every
        clock = steady_clock(seconds=every, slots=slots, begins=begins, zone=zone, grace=grace)
    else:
        model = day_of(plan)
        local = datetime.fromtimestamp(now, ZoneInfo(checked_zone(zone))).date()
        begins_on = date.fromisoformat(asked["begins"]) if asked.get("begins") else local
        clock = day_clock(
            slots=model.slots,
            minutes=model.slot_minutes,
            start=model.start_minute,
            zone=zone,
            begins=begins_on,
            grace=grace,
        )
    return replace(clock, first=after)


def _new(
    plan_id: str, plan: Plan, clock: Clock, asked: dict[str, Any], now: float, name: str
) -> LiveStream:
    kind = kind_of(plan)
    assert kind is not None
    return LiveStream(
        uid=secrets.token_hex(12),
        name=name,
        plan_id=plan_id,
        plan=plan,
        kind=kind,
        clock=clock,
        silence=asked.get("silence") or PUBLISH,
        closed=clock.after(now),
        standing=Standing(0, b""),
    )


def _insert(
    house: House,
    connection: Connection,
    address: Address,
    stream: LiveStream,
    *,
    apart: bool,
    now: float,
) -> None:
    key, sealed = _sealed(house, address.space, stream)
    values = {
        **address._asdict(),
        "uid": stream.uid,
        "kind": stream.kind.name,
        "plan": stream.plan_id,
        "clock": json.dumps(stream.clock.stored()),
        "silence": stream.silence,
        "apart": apart,
        "closed": stream.closed,
        "closes": stream.clock.closes(stream.closed),
        "key": key,
        "sealed": sealed,
        "pauses": "[]",
        "made": now,
    }
    connection.execute(insert(STREAMS), values)


def _save(
    house: House, connection: Connection, address: Address, row: Row[Any], stream: LiveStream
) -> None:
    """The stream as it stands now, sealed anew; columns that did not change are left alone."""
    key, sealed = _sealed(house, address.space, stream)
    own = {f"own_{name}": value for name, value in address._asdict().items()}
    connection.execute(_SEALED, {**own, "new_key": key, "new_sealed": sealed})
    values: dict[str, Any] = {}
    if stream.closed != row.closed:
        values |= {"closed": stream.closed, "closes": stream.clock.closes(stream.closed)}
    if stream.plan_id != row.plan or (row.swap is not None and stream.swap is None):
        clock = json.dumps(stream.clock.stored())
        values |= {"plan": stream.plan_id, "clock": clock, "swap": None}
    if values:
        connection.execute(update(STREAMS).where(*_is(address)).values(values))


def _sealed(house: House, space: str, stream: LiveStream) -> tuple[str, bytes]:
    room = 3 * stream.kind.room(stream.plan) + 2048  # in base64, with one slot that waits
    place = _place(space, stream.uid, stream.closed)
    return house.vault.seal(stream.standing.packed(), place, room)


def _place(space: str, uid: str, closed: int) -> str:
    return f"{space}|{uid}|{closed}"


def _account(house: House, connection: Connection, address: Address, uid: str) -> AccountOf:
    ledger = house.store.charging(connection)
    return lambda period, ordinal: Account(ledger, address.subject, period, f"{uid}/{ordinal}")


def _stored_plan(house: House, connection: Connection, space: str, name: str) -> Plan:
    known = house.store.plans.get((space, name))
    if known is not None:
        return known
    found = connection.execute(
        select(PLANS.c.document).where(PLANS.c.space == space, PLANS.c.plan == name)
    ).scalar()
    if found is None:
        raise not_understood("plan names none of this space; POST /v1/plans first")
    plan = plan_of(found)
    if kind_of(plan) is None:
        raise not_understood("plan makes single releases; POST /v1/releases is for those")
    if len(house.store.plans) >= MOST_PLANS:
        house.store.plans.clear()
    house.store.plans[space, name] = plan
    return plan


def _check_alone(house: House, connection: Connection, address: Address, *, apart: bool) -> None:
    """A second stream about one person is refused unless they say that it is independent."""
    others = connection.execute(
        select(STREAMS.c.stream, STREAMS.c.apart).where(
            STREAMS.c.space == address.space,
            STREAMS.c.person == address.person,
            STREAMS.c.stream != address.stream,
        )
    ).all()
    if len(others) >= house.store.settings.streams:
        raise over_limit("streams", house.store.settings.streams, status=409)
    if others and not apart:
        raise Problem(
            409,
            "this person has another stream, and two streams of the same life tell more than "
            "either may; join their wishes in one plan, or say independent = true if neither "
            "tells of the other",
        )


def _bury(
    house: House,
    connection: Connection,
    space: str,
    uid: str,
    dead: Sequence[tuple[str, int | None]],
) -> None:
    """Remember that readings were refused, and why; the oldest give way."""
    last = connection.execute(
        select(func.max(DEAD.c.place)).where(DEAD.c.space == space, DEAD.c.uid == uid)
    ).scalar()
    place = int(last or 0)
    rows = [
        {"space": space, "uid": uid, "place": place + n, "ordinal": ordinal, "reason": reason}
        for n, (reason, ordinal) in enumerate(dead, 1)
    ]
    connection.execute(insert(DEAD), rows)
    oldest = place + len(rows) - house.store.settings.dead
    if oldest > 0:
        connection.execute(
            delete(DEAD).where(DEAD.c.space == space, DEAD.c.uid == uid, DEAD.c.place <= oldest)
        )


def _forget_old(house: House, connection: Connection, space: str, uid: str, closed: int) -> None:
    """Outputs beyond the length of history go, a few at a time."""
    history = house.store.settings.history
    if closed % 10 == 0:
        connection.execute(
            delete(OUTPUTS).where(
                OUTPUTS.c.space == space,
                OUTPUTS.c.uid == uid,
                OUTPUTS.c.ordinal < closed - history,
            )
        )


def _output_row(space: str, uid: str, output: Output) -> dict[str, Any]:
    return {"space": space, "uid": uid, **output._asdict()}


def row_of(connection: Connection, address: Address) -> Any:
    """The stream's row; what is not there, or forgotten, is missing."""
    return _row(connection, address)


def _row(
    connection: Connection,
    address: Address,
    *,
    lock: bool = False,
    forgotten: bool = False,
    optional: bool = False,
) -> Any:
    row = connection.execute(_LOCKED if lock else _UNLOCKED, address._asdict()).first()
    if row is None and optional:
        return None
    if row is None or (row.forgotten is not None and not forgotten):
        raise missing()
    return row


# made once: building a statement takes longer than running it
_UNLOCKED: Select[Any] = select(STREAMS).where(
    *(STREAMS.c[name] == bindparam(name) for name in Address._fields)
)
_LOCKED = _UNLOCKED.with_for_update()
_SEALED = (
    update(STREAMS)
    .where(*(STREAMS.c[name] == bindparam(f"own_{name}") for name in Address._fields))
    .values(key=bindparam("new_key"), sealed=bindparam("new_sealed"))
)


def _is(address: Address) -> tuple[Any, ...]:
    return (
        STREAMS.c.space == address.space,
        STREAMS.c.person == address.person,
        STREAMS.c.stream == address.stream,
    )


def _clock(row: Row[Any]) -> Clock:
    return Clock(**json.loads(row.clock))


def _text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="seconds")


def instant(text: str) -> float:
    """UTC seconds of an RFC 3339 time; refused when it has no zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise not_understood("a time is not RFC 3339, such as 2026-03-04T08:30:00Z") from None
    if found.tzinfo is None:
        raise not_understood("a time has no zone; end it with Z or an offset such as +01:00")
    return found.timestamp()


def now_seconds() -> float:
    """The server's clock; one function, so that tests can move it."""
    return CLOCK()
