"""Who may see which outputs of a stream: the person all of them, an application what it was
granted.

A grant can be narrower in time or rarer in slots: a part of the outputs, never another draw.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, delete, func, insert, or_, select

from shoal.gateway.advance import REASONS, Output
from shoal.gateway.copies.head import HeadFile, row_mark
from shoal.gateway.keys import APPLICATION, PERSON, Caller
from shoal.gateway.problems import missing
from shoal.gateway.streams import Address, row_of
from shoal.gateway.tables import DEAD, GRANTS, KEYS, OUTPUTS, PEOPLE, SEEN, STREAMS

STREAMS_LOOKED_UP = 100  # streams looked up in one statement
LATE = 1.0  # seconds after which a slot that is not closed is overdue


class Sight(NamedTuple):
    """A stream as one caller sees it: every so many slots, that open since and until."""

    space: str
    uid: str
    reader: str
    every: int = 1
    since: float | None = None
    until: float | None = None

    def shows(self, output: Output) -> bool:
        """Whether an output is part of what was granted."""
        return (
            output.ordinal % self.every == 0
            and (self.since is None or output.opens >= self.since)
            and (self.until is None or output.opens < self.until)
        )


def sight_of(connection: Connection, caller: Caller, address: Address) -> Sight:
    """Return what a caller may see of a stream; a missing stream and no grant fail alike."""
    caller.must_be(PERSON, APPLICATION)
    if caller.space != address.space:
        raise missing()
    if caller.kind == PERSON:
        if not caller.owns(address.person):
            raise missing()
        return Sight(address.space, row_of(connection, address).uid, "")
    grant = connection.execute(select(GRANTS).filter_by(**_of(address, caller.holder))).first()
    if grant is None:
        raise missing()
    if grant.streams is not None and address.stream not in json.loads(grant.streams):
        raise missing()
    uid = row_of(connection, address).uid
    return Sight(address.space, uid, caller.holder, grant.every, grant.since, grant.until)


def sight_like(connection: Connection, address: Address, application: str) -> Sight:
    """Return what an application sees of a stream, for the person to look at; nobody is noted."""
    own = connection.execute(select(GRANTS).filter_by(**_of(address, application))).first()
    if own is None or (own.streams is not None and address.stream not in json.loads(own.streams)):
        raise missing()
    uid = row_of(connection, address).uid
    return Sight(address.space, uid, "", own.every, own.since, own.until)


def page(
    connection: Connection, sight: Sight, after: int, most: int, day: str | None = None
) -> list[Output]:
    """The outputs after an ordinal that this caller sees, oldest first; of one day, if named."""
    wanted = select(OUTPUTS.c.ordinal, OUTPUTS.c.opens, OUTPUTS.c.body).where(
        *_seen_by(sight), OUTPUTS.c.ordinal > after
    )
    if day is not None:  # names of days are dates, or times, without characters that JSON escapes
        wanted = wanted.where(OUTPUTS.c.body.contains(f'"day":"{day}"', autoescape=True))
    rows = connection.execute(wanted.order_by(OUTPUTS.c.ordinal).limit(most))
    return [Output(*row) for row in rows]


def latest(connection: Connection, sight: Sight) -> Output | None:
    """The output of the last closed slot that this caller sees; None before the first."""
    wanted = select(OUTPUTS.c.ordinal, OUTPUTS.c.opens, OUTPUTS.c.body).where(*_seen_by(sight))
    row = connection.execute(wanted.order_by(OUTPUTS.c.ordinal.desc()).limit(1)).first()
    return None if row is None else Output(*row)


def newer(connection: Connection, known: dict[str, int]) -> dict[str, list[Output]]:
    """The outputs of each stream after the ordinal that is known of it."""
    rules = [
        and_(OUTPUTS.c.uid == uid, OUTPUTS.c.ordinal > ordinal) for uid, ordinal in known.items()
    ]
    found: dict[str, list[Output]] = {}
    for first in range(0, len(rules), STREAMS_LOOKED_UP):
        wanted = select(OUTPUTS).where(or_(*rules[first : first + STREAMS_LOOKED_UP]))
        for row in connection.execute(wanted.order_by(OUTPUTS.c.ordinal)):
            found.setdefault(row.uid, []).append(Output(row.ordinal, row.opens, row.body))
    return found


def grant(
    connection: Connection,
    head: HeadFile,
    address: Address,
    application: str,
    asked: dict[str, Any],
) -> None:
    """What an application may see from now on, in place of what it might before."""
    known = select(KEYS).filter_by(space=address.space, kind=APPLICATION, holder=application)
    if connection.execute(known).first() is None:
        raise missing()
    now, streams, since = time.time(), asked.get("streams"), asked.get("since")
    withdraw(connection, head, address, application)
    values = {
        "streams": None if streams is None else json.dumps(sorted(streams)),
        "every": asked.get("every") or 1,
        "since": now if since is None else since,
        "until": asked.get("until"),
        "made": now,
    }
    connection.execute(insert(GRANTS), _of(address, application) | values)


def withdraw(connection: Connection, head: HeadFile, address: Address, application: str) -> bool:
    """Whether there was a grant that is no more."""
    found = connection.execute(select(GRANTS).filter_by(**_of(address, application))).first()
    if found is None:
        return False
    head.note_withdrawn([grant_mark(found)])
    connection.execute(delete(GRANTS).filter_by(**_of(address, application)))
    return True


def grant_mark(row: Any) -> str:
    """Return the line by which a grant is known on the list of what was taken back."""
    return row_mark("grant", row.space, row.person, row.application, row.made)


def _of(address: Address, application: str) -> dict[str, Any]:
    return {"space": address.space, "person": address.person, "application": application}


def grants(connection: Connection, space: str, person: str) -> list[dict[str, Any]]:
    """All that a person granted."""
    rows = connection.execute(select(GRANTS).filter_by(space=space, person=person))
    return [
        {**row._mapping, "streams": None if row.streams is None else json.loads(row.streams)}
        for row in rows
    ]


def overview(
    connection: Connection, space: str, people: Sequence[str], *, by: str
) -> dict[str, list[dict[str, Any]]]:
    """Return the state of each person's streams and what was refused; for a person, who saw it."""
    wanted = select(STREAMS).filter_by(space=space).where(STREAMS.c.person.in_(people))
    rows = connection.execute(wanted).all()
    uids = [row.uid for row in rows]
    seen: dict[str, list[Any]] = {}
    if by == PERSON:
        saw = select(SEEN).filter_by(space=space).where(SEEN.c.uid.in_(uids))
        for row in connection.execute(saw):
            seen.setdefault(row.uid, []).append({**row._mapping, "outputs": row.times})
    dead = select(DEAD.c.uid, DEAD.c.reason, func.count()).filter_by(space=space)
    dead = dead.where(DEAD.c.uid.in_(uids)).group_by(DEAD.c.uid, DEAD.c.reason)
    reasons: dict[str, dict[str, int]] = {}
    for uid, reason, count in connection.execute(dead):
        reasons.setdefault(uid, {})[reason] = int(count)
    found: dict[str, list[dict[str, Any]]] = {person: [] for person in people}
    for row in rows:
        fields = _stream_object(row, reasons.get(row.uid, {}))
        fields["seen"] = seen.get(row.uid, []) if by == PERSON else None
        found[row.person].append(fields)
    return found


def refusals(
    connection: Connection, space: str, uid: str, after: int, most: int
) -> list[dict[str, Any]]:
    """Readings of a stream that were refused, after a place in their order."""
    wanted = select(DEAD).filter_by(space=space, uid=uid).where(DEAD.c.place > after)
    return [
        {"place": row.place, "id": row.ordinal, "reason": row.reason, "detail": REASONS[row.reason]}
        for row in connection.execute(wanted.order_by(DEAD.c.place).limit(most))
    ]


def totals(connection: Connection, space: str, now: float) -> dict[str, Any]:
    """Numbers of a whole space: people, streams, those overdue, refused readings by reason."""
    people = select(func.count()).select_from(PEOPLE).filter_by(space=space)
    streams = select(func.count()).select_from(STREAMS).filter_by(space=space, forgotten=None)
    late = streams.where(STREAMS.c.closes < now - LATE)
    refused = select(DEAD.c.reason, func.count()).filter_by(space=space).group_by(DEAD.c.reason)
    return {
        "people": connection.execute(people).scalar_one(),
        "streams": connection.execute(streams).scalar_one(),
        "overdue": connection.execute(late).scalar_one(),
        "refused": {reason: int(count) for reason, count in connection.execute(refused)},
    }


def _stream_object(row: Any, refused: dict[str, int]) -> dict[str, Any]:
    """Return the JSON fields of a stream from its row, with the numbers of refused readings."""
    return {
        **{name: row._mapping[name] for name in ("stream", "kind", "plan", "silence", "closes")},
        "next_plan": None if row.swap is None else json.loads(row.swap)[0],
        "timezone": json.loads(row.clock)["zone"],
        "independent": row.apart,
        "paused": [] if row.forgotten is not None else json.loads(row.pauses),
        "next": row.closed,
        "forgotten": row.forgotten is not None,
        "refused": refused,
    }


def _seen_by(sight: Sight) -> list[Any]:
    """Return the SQL conditions that select the outputs within `sight`; its end is exclusive."""
    rules: list[Any] = [OUTPUTS.c.space == sight.space, OUTPUTS.c.uid == sight.uid]
    if sight.every > 1:
        rules.append(OUTPUTS.c.ordinal % sight.every == 0)
    if sight.since is not None:
        rules.append(OUTPUTS.c.opens >= sight.since)
    if sight.until is not None:
        rules.append(OUTPUTS.c.opens < sight.until)
    return rules
