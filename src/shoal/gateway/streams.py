"""Streams in the store: begun, changed, paused, forgotten, and loaded for the caller that advances
them.

What every function here does, it does inside a transaction that the caller began. A stream is
locked before it is looked at, so that no slot is drawn twice however many workers there are.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Row,
    Select,
    Update,
    bindparam,
    delete,
    insert,
    select,
    text,
    update,
)

from shoal.core.plan import Plan
from shoal.gateway.advance import LiveStream, Standing, start_stream
from shoal.gateway.clock import Clock
from shoal.gateway.copies.head import pause_mark, row_mark
from shoal.gateway.machines import (
    PLACES,
    STREAM_KINDS,
    hides_silence,
    kind_of,
    plan_of,
    stream_kind,
)
from shoal.gateway.planning.changes import check_confirmed
from shoal.gateway.problems import Problem, missing, not_understood
from shoal.gateway.store import Store, check_count
from shoal.gateway.tables import DEAD, OUTPUTS, PLANS, SEEN, STREAMS, TAKEN
from shoal.gateway.vault import Vault
from shoal.gateway.windows import SAME_MOMENT, Covered, clock_of, next_clock

PUBLISH, HIDE = "publish", "hide"
DAY = 86400.0
LAST = 32_503_680_000.0  # the year 3000: calendars end, and a slot after the last one must not
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


def open_stream(
    house: House, connection: Connection, address: Address, asked: dict[str, Any], now: float
) -> bool:
    """A new stream, begun with the next slot; True. An old one with another plan: see `change`."""
    row = connection.execute(_LOCKED, address._asdict()).first()
    if row is not None and row.forgotten is None:
        change(house, connection, address, row, asked, now)
        return False
    after, covered = 0, None
    if row is not None:
        if row.closes > now:
            raise Problem(
                409,
                "the stream was forgotten, and stays closed until its day, or what its events are "
                "about, is over: applications remember what they saw of it",
                until=datetime.fromtimestamp(row.closes, UTC).isoformat(timespec="seconds"),
            )
        after, covered = row.closed, _covered_by(row)
        connection.execute(delete(STREAMS).filter_by(**address._asdict()))
    plan = stored_plan(house, connection, address.space, asked["plan"])
    apart = bool(asked.get("independent"))
    _check_alone(house, connection, address, apart=apart)
    _check_forgotten(row, plan, apart=apart)
    _check_endless(plan)
    _check_silence(plan, asked.get("silence") or PUBLISH)
    zone = asked.get("timezone") or "UTC"
    clock = clock_of(plan, asked.get("clock") or {}, zone, now, after, covered=covered)
    stream = start_stream(
        LiveStream(
            uid=secrets.token_hex(12),
            name=address.stream,
            plan_id=asked["plan"],
            plan=plan,
            kind=stream_kind(plan),
            clock=clock,
            silence=asked.get("silence") or PUBLISH,
            closed=clock.after(now),
            standing=Standing(0, b""),
        )
    )
    if stream.silence == HIDE and not stream.kind.hides(plan, stream.standing.state):
        raise not_understood(
            "silence is 'hide', and this plan's outputs can rule places out, which a made-up one "
            "must not; publish silence, or join the parts of the policy"
        )
    key, content = seal_stream(house, address.space, stream)
    values = {
        **address._asdict(),
        "uid": stream.uid,
        "kind": stream.kind.name,
        "plan": stream.plan_id,
        "clock": stream.clock.as_text(),
        "silence": stream.silence,
        "apart": apart,
        "closed": stream.closed,
        "closes": stream.clock.closes(stream.closed),
        "key": key,
        "sealed": content,
        "pauses": json.dumps(held_at_beginning(clock, stream.closed, house.store.restored)),
        "made": now,
    }
    connection.execute(insert(STREAMS), values)
    return True


def held_at_beginning(clock: Clock, closed: int, restored: float | None) -> list[list[int]]:
    """Return the pause of a new stream after a restore: until a day that began after it.

    The copy may have lost a stream of this name, whose day applications have seen in part. Days of
    equal slots begin at any moment, so there the lost day may go on for one length of a day.
    """
    if restored is None or not clock.slots:
        return []
    over = restored + (clock.slots * clock.seconds if clock.kind == "every" else 0.0)
    begins = clock.day_ends(closed) - clock.slots
    while clock.slot(begins).opens < over:
        begins += clock.slots
    return [] if begins <= closed else [[closed, begins]]


def change(
    house: House,
    connection: Connection,
    address: Address,
    row: Row[Any],
    asked: dict[str, Any],
    now: float,
) -> None:
    """Give a stream another plan, slots or zone from the end of its day or step on.

    `windows.next_clock` says when. What the outputs of the old plan tell of the new promise:
    `StreamKind.carry_state`.
    """
    stream = load_stream(house, connection, row)
    if asked.get("silence", stream.silence) != stream.silence:
        raise Problem(409, "silence is part of the promise; begin a stream of another name")
    zone = asked.get("timezone") or stream.clock.zone
    same = asked["plan"] == stream.plan_id and zone == stream.clock.zone
    if same and not asked.get("clock"):
        connection.execute(update_stream(address, swap=None))
        return
    plan = stored_plan(house, connection, address.space, asked["plan"])
    if kind_of(plan) is not stream.kind:
        raise not_understood("plan is for another kind of stream; begin a stream of another name")
    stream.kind.carry_state(stream.plan, stream.standing.state, plan)
    _check_endless(plan)
    _check_silence(plan, stream.silence)
    first = max(
        stream.clock.day_ends(stream.closed), stream.clock.day_ends(stream.standing.decided - 1)
    )
    clock = next_clock(plan, asked.get("clock") or {}, zone, stream.clock, first)
    confirmed = bool(asked.get("confirm"))
    check_confirmed(stream.plan, plan, stream.clock, clock, confirmed=confirmed)
    swap = json.dumps([asked["plan"], clock.as_dict()])
    connection.execute(update_stream(address, swap=swap))


def pause(
    house: House, connection: Connection, address: Address, now: float, *, resume: bool
) -> int:
    """The ordinal from which a pause, or the stream again, takes effect: the next slot to open."""
    row = row_of(connection, address, lock=True)
    clock, pauses = _clock(row.clock), json.loads(row.pauses)
    standing = load_stream(house, connection, row).standing
    first = max(clock.after(now), row.closed, standing.decided)
    running = not pauses or pauses[-1][1] is not None
    if resume and not running:
        pauses[-1][1] = max(first, pauses[-1][0])
    elif not resume and running:
        house.store.head.note_withdrawn([pause_mark(row.uid, first)])
        pauses.append([first, None])
    kept = [each for each in pauses if each[1] is None or each[1] > row.closed]
    connection.execute(update_stream(address, pauses=json.dumps(kept)))
    return _read_from(kept, first) if resume else first


def _read_from(pauses: Sequence[Sequence[int | None]], first: int) -> int:
    """Return the first ordinal, from `first` on, that no pause covers; all pauses must end."""
    for begins, ends in sorted(pauses, key=lambda each: each[0] or 0):
        if ends is not None and (begins or 0) <= first < ends:
            first = ends
    return first


def forget(house: House, connection: Connection, address: Address, now: float) -> float:
    """When the tombstone of a stream ends whose outputs and state are gone now (UTC seconds)."""
    row = row_of(connection, address, lock=True)
    clock = _clock(row.clock)
    ends = clock.slot(clock.day_ends(row.closed) - 1).ends if clock.slots else now + DAY
    house.store.head.note_withdrawn([row_mark("stream", address.space, row.uid)])
    for table in (OUTPUTS, SEEN, DEAD, TAKEN):
        connection.execute(delete(table).filter_by(space=address.space, uid=row.uid))
    ends = max(ends, now)
    gone = {"sealed": b"", "key": "", "forgotten": now, "swap": None}
    connection.execute(update_stream(address, **gone, closes=ends, closed=clock.after(ends)))
    return float(ends)


def load_stream(house: House, connection: Connection, row: Row[Any]) -> LiveStream:
    """The stream of a row, its state opened."""
    opened = house.vault.open(row.key, row.sealed, _associated_data(row.space, row.uid, row.closed))
    swap = None
    if row.swap is not None:
        name, clock = json.loads(row.swap)
        swap = (name, stored_plan(house, connection, row.space, name), Clock(**clock))
    return LiveStream(
        uid=row.uid,
        name=row.stream,
        plan_id=row.plan,
        plan=stored_plan(house, connection, row.space, row.plan),
        kind=STREAM_KINDS[row.kind],
        clock=_clock(row.clock),
        silence=row.silence,
        closed=row.closed,
        standing=Standing.from_bytes(opened),
        pauses=tuple((a, b) for a, b in json.loads(row.pauses)),
        swap=swap,
    )


def seal_stream(house: House, space: str, stream: LiveStream) -> tuple[str, bytes]:
    """The name of the key and the state of a stream, always of the same length."""
    room = 3 * stream.kind.room(stream.plan) + 2048  # in base64, with one slot that waits
    place = _associated_data(space, stream.uid, stream.closed)
    return house.vault.seal(stream.standing.to_bytes(), place, room)


def _associated_data(space: str, uid: str, closed: int) -> str:
    return f"{space}|{uid}|{closed}"


def stored_plan(house: House, connection: Connection, space: str, name: str) -> Plan:
    """A plan of a space, for streams; built once in a process."""
    known = house.store.plans.get((space, name))
    if known is not None:
        return known
    wanted = select(PLANS.c.document).filter_by(space=space, plan=name)
    found = connection.execute(wanted).scalar()
    if found is None:
        raise not_understood("plan names none of this space; POST /v1/plans first")
    plan = plan_of(found)
    if kind_of(plan) is None:
        raise not_understood("plan makes single releases; POST /v1/releases is for those")
    if len(house.store.plans) >= MOST_PLANS:
        house.store.plans.clear()
    house.store.plans[space, name] = plan
    return plan


def _check_silence(plan: Plan, silence: str) -> None:
    """Refuses to hide silence where nothing is proved of it."""
    if silence == HIDE and not hides_silence(plan):
        raise not_understood(
            'silence is "hide", and the plan watches events, whose filter takes what is shown for '
            'drawn from a place; leave it at "publish"'
        )


def _check_endless(plan: Plan) -> None:
    """Refuse a plan of places without days on a model with an end, beyond which no slot closes."""
    if kind_of(plan) is not PLACES or PLACES.slots(plan):
        return
    length = getattr(plan.task.family[0], "length", None)
    if length is not None:
        raise not_understood(
            f"the model of the plan has length {length}, and a stream of places has no end; leave "
            "length out of the model"
        )


def _check_alone(house: House, connection: Connection, address: Address, *, apart: bool) -> None:
    """A second stream about one person is refused unless they say that it is independent."""
    own = {"space": address.space, "person": address.person}
    others = select(STREAMS.c.uid).filter_by(**own).where(STREAMS.c.stream != address.stream)
    check_count(connection, house.store.settings, "streams", **own)
    if connection.execute(others).first() is not None and not apart:
        raise Problem(
            409,
            "this person has another stream, and two streams of the same life tell more than "
            "either may; join their wishes in one plan, or say independent = true if neither "
            "tells of the other",
        )
    released = {"subject": release_subject(address.space, address.person)}
    if not apart and connection.execute(_CHARGED, released).first() is not None:
        raise Problem(
            409,
            "single releases were made about this person (POST /v1/releases), and the stream has "
            "an account of its own; say independent = true if neither tells of the other",
        )


_CHARGED = text("SELECT 1 FROM shoal_entries WHERE subject = :subject LIMIT 1")


def release_subject(space: str, person: str) -> str:
    """Return how the ledger calls somebody about whom single releases are made."""
    return f"{space}/releases/{person}"


def check_no_stream(connection: Connection, space: str, person: str) -> None:
    """Refuse a single release about somebody who has a stream, which has another account."""
    own = select(STREAMS.c.uid).filter_by(space=space, person=person)
    if connection.execute(own).first() is not None:
        raise Problem(
            409,
            "this person has a stream, whose account is another one, so nothing would add what "
            "both tell; say independent = true if neither tells of the other",
        )


def _check_forgotten(row: Row[Any] | None, plan: Plan, *, apart: bool) -> None:
    """Refuse a plan under the name of a forgotten stream of places if only one watches events.

    What one shows tells of the events, and no day parts the two in the model.
    """
    if row is None or apart or row.kind != PLACES.name or kind_of(plan) is not PLACES:
        return
    if bool(_clock(row.clock).slots) != bool(PLACES.slots(plan)):
        raise Problem(
            409,
            "of this plan and that of the forgotten stream of this name one watches events and "
            "the other does not, and what one shows may tell of the events; say independent = true "
            "if it does not",
        )


def _covered_by(row: Row[Any]) -> Covered:
    """Return what the slots of a forgotten stream covered; its day is over."""
    clock = _clock(row.clock)
    last = clock.slot(max(clock.first, clock.after(row.closes - SAME_MOMENT) - 1))
    return Covered(row.closes, max(clock.lived, last.day) if clock.kind == "day" else clock.lived)


def row_of(connection: Connection, address: Address, *, lock: bool = False) -> Any:
    """The stream's row; what is not there, or forgotten, is missing."""
    row = connection.execute(_LOCKED if lock else _UNLOCKED, address._asdict()).first()
    if row is None or row.forgotten is not None:
        raise missing()
    return row


# made once: building a statement takes longer than running it
_UNLOCKED: Select[Any] = select(STREAMS).filter_by(**{n: bindparam(n) for n in Address._fields})
_LOCKED = _UNLOCKED.with_for_update()


def update_stream(address: Address, **values: Any) -> Update:
    """The statement that changes something about a stream."""
    return update(STREAMS).filter_by(**address._asdict()).values(values)


@lru_cache(maxsize=65536)
def _clock(stored: str) -> Clock:
    return Clock(**json.loads(stored))


def instant(text: str) -> float:
    """UTC seconds of an RFC 3339 time; refused when it has no zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise not_understood("a time is not RFC 3339, such as 2026-03-04T08:30:00Z") from None
    if found.tzinfo is None:
        raise not_understood("a time has no zone; end it with Z or an offset such as +01:00")
    seconds = found.timestamp()
    if not 0 <= seconds < LAST:
        raise not_understood("a time is before 1970 or after 2999; is the device's clock set?")
    return seconds


def now_seconds() -> float:
    """The server's clock; one function, so that tests can move it."""
    return CLOCK()
