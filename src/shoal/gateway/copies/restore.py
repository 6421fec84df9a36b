"""Continue from an older copy of the database: what is paused, and what stays withdrawn.

Outputs and charges since the copy are lost, and applications know those outputs. So streams with
days pause until the day that is partly lost is over. Withdrawals since the copy are in the list
beside the head file, and are repeated.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select, update

from shoal.gateway.copies.head import Withdrawals, renew_head, row_hash
from shoal.gateway.streams import Address, House, forget, load_stream, update_stream
from shoal.gateway.tables import GRANTS, KEYS, PEOPLE, STREAMS


class Restored(NamedTuple):
    """How many streams are held, paused, or deleted again; how many grants, keys and people go.

    `known` is False where there was no list, so that all keys and grants were withdrawn.
    """

    held: int
    paused: int
    streams: int
    grants: int
    keys: int
    people: int
    known: bool


def accept_older_copy(house: House, now: float) -> Restored:
    """Make an older copy safe to continue from, and write a head above all earlier ones.

    Without a head file the withdrawals are unknown: every grant and key is withdrawn, and every
    stream is paused until its person resumes it.
    """
    store, file = house.store, house.store.head
    with file.lock():
        noted = file.read()
        known = None if noted is None or not noted.database else file.read_withdrawn(noted)

        def work(connection: Connection) -> tuple[Restored, Any]:
            done = _apply(house, connection, known, now)
            return done, renew_head(connection, noted, now)

        done, head = store.commit_now(work)
        file.write(head)
    return done


def hold_still(house: House, connection: Connection, now: float) -> int:
    """Return how many streams pause until their day or step is over: it is known in part.

    Those without days promise every slot by itself: what was lost of them is a slot without news.
    A pause of the person's own stays the last, so that `resume` still ends it.
    """
    rows = connection.execute(select(STREAMS).filter_by(forgotten=None)).all()
    found = [(row, load_stream(house, connection, row)) for row in rows]
    found = [(row, stream) for row, stream in found if stream.clock.slots]
    for row, stream in found:
        first = max(row.closed, stream.standing.decided)
        last = max(stream.clock.day_ends(first), stream.clock.after(now))
        until = stream.clock.day_ends(last) if not stream.clock.first_of_day(last) else last
        pauses = json.loads(row.pauses)
        own = 1 if pauses and pauses[-1][1] is None else 0
        pauses.insert(len(pauses) - own, [first, until])
        connection.execute(update_stream(_address(row), pauses=json.dumps(pauses)))
    return len(found)


def _apply(house: House, connection: Connection, known: Withdrawals | None, now: float) -> Restored:
    """Repeat all withdrawals after the copy in `connection`, and return how many of each kind.

    `known` is None without a list: then every key and grant is withdrawn and every stream paused.
    """
    keys = _take_keys_back(connection, known, now)
    grants = _take_grants_back(connection, known)
    streams, people = 0, 0
    if known is not None:
        streams = _forget_again(house, connection, known, now)
        people = _forget_people(connection, known)
    held = hold_still(house, connection, now)
    paused = _pause_again(house, connection, known)
    return Restored(held, paused, streams, grants, keys, people, known is not None)


def _take_keys_back(connection: Connection, known: Withdrawals | None, now: float) -> int:
    """Revoke the keys on the list, or all keys without a list; return how many."""
    rows = connection.execute(select(KEYS).filter_by(revoked=None)).all()
    gone = [row for row in rows if known is None or _is_withdrawn(known, "key", row.space, row.key)]
    for row in gone:
        statement = update(KEYS).filter_by(space=row.space, key=row.key).values(revoked=now)
        connection.execute(statement)
    return len(gone)


def _take_grants_back(connection: Connection, known: Withdrawals | None) -> int:
    """Delete the grants on the list, or all grants without a list; return how many."""
    gone = []
    for row in connection.execute(select(GRANTS)).all():
        named = (row.space, row.person, row.application, row.made)
        if known is None or _is_withdrawn(known, "grant", *named):
            gone.append(row)
    for row in gone:
        own = {"space": row.space, "person": row.person, "application": row.application}
        connection.execute(delete(GRANTS).filter_by(**own))
    return len(gone)


def _forget_again(house: House, connection: Connection, known: Withdrawals, now: float) -> int:
    rows = connection.execute(select(STREAMS).filter_by(forgotten=None)).all()
    gone = [row for row in rows if _is_withdrawn(known, "stream", row.space, row.uid)]
    for row in gone:
        forget(house, connection, _address(row), now)
    return len(gone)


def _forget_people(connection: Connection, known: Withdrawals) -> int:
    rows = connection.execute(select(PEOPLE)).all()
    gone = [row for row in rows if _is_withdrawn(known, "person", row.space, row.person, row.made)]
    for row in gone:
        connection.execute(delete(PEOPLE).filter_by(space=row.space, person=row.person))
    return len(gone)


def _pause_again(house: House, connection: Connection, known: Withdrawals | None) -> int:
    """Pause streams again that a person paused after the copy; without a list all of them.

    A pause is one that the copy does not know when it begins at a slot the copy had not closed.
    Whether it was ended since is not known, so the person ends it once more.
    """
    count = 0
    for row in connection.execute(select(STREAMS).filter_by(forgotten=None)).all():
        pauses = json.loads(row.pauses)
        mine = {first for first, _ in pauses}
        unknown = known is None or any(
            uid == row.uid and first >= row.closed and first not in mine
            for uid, first in known.pauses
        )
        if unknown and not (pauses and pauses[-1][1] is None):
            pauses.append([load_stream(house, connection, row).standing.decided, None])
            connection.execute(update_stream(_address(row), pauses=json.dumps(pauses)))
            count += 1
    return count


def _is_withdrawn(known: Withdrawals, kind: str, *parts: object) -> bool:
    return row_hash(kind, *parts) in known.rows


def _address(row: Any) -> Address:
    return Address(row.space, row.person, row.stream)
