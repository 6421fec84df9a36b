"""Repeated requests with readings: the same Idempotency-Key is the same request, drawn once.

What became of a request is stored in the transaction that charges, draws and stores the stream.
The row belongs to one stream and one device key, so that no device learns what became of
another's request. It holds a keyed fingerprint of the request, never a reading.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from shoal.gateway.problems import Problem, not_understood
from shoal.gateway.tables import TAKEN
from shoal.gateway.vault import Vault

SHORTEST_KEY, LONGEST_KEY = 16, 128  # characters; a UUID without hyphens has 32

Reasons = list[str | None]  # why each reading of a request was dead; None for those taken


class RequestKey(NamedTuple):
    """An Idempotency-Key as it is compared: who sent it, its hash, and what it was sent with.

    `content` is the canonical form of the readings. It is never stored.
    """

    device: str
    name: str
    content: bytes


class StoredAnswer(NamedTuple):
    """What became of a request: the sealing key's name, the fingerprint, the reasons as JSON."""

    sealer: str
    request: str
    reasons: str


Answers = dict[tuple[str, str, str], StoredAnswer]  # by uid, device key, hashed key


def request_key(device: str, given: str | None, readings: Sequence[Any]) -> RequestKey | None:
    """Return the key a device gave a request, or None when it gave none; refuse a short one.

    A guessable key would let a thief of the device key test what was sent under it.
    """
    if given is None:
        return None
    printable = given.isascii() and given.isprintable() and " " not in given
    if not printable or not SHORTEST_KEY <= len(given) <= LONGEST_KEY:
        raise not_understood(
            f"Idempotency-Key has {len(given)} characters; send {SHORTEST_KEY} to {LONGEST_KEY} "
            "printable ones without spaces, such as a random UUID"
        )
    content = json.dumps(readings, sort_keys=True, separators=(",", ":")).encode()
    return RequestKey(device, hashlib.sha256(given.encode()).hexdigest(), content)


def read_answers(
    connection: Connection, asked: Iterable[tuple[Row[Any], RequestKey | None]]
) -> Answers:
    """Return what became of the requests that were answered before, of these streams and keys.

    The streams must be locked: a concurrent repeat waits there, and then finds the answer.
    """
    wanted = [(row.space, row.uid, key.device, key.name) for row, key in asked if key is not None]
    if not wanted:
        return {}
    spaces, uids, devices, names = (sorted(set(each)) for each in zip(*wanted, strict=True))
    given = {"spaces": spaces, "uids": uids, "devices": devices, "names": names}
    return {
        (uid, device, name): StoredAnswer(*stored)
        for uid, device, name, *stored in connection.execute(_ANSWERS, given)
    }


def repeated_answer(
    vault: Vault, uid: str, key: RequestKey, stored: StoredAnswer
) -> Reasons | Problem:
    """Return the stored answer of a repeated request; a problem when its readings differ."""
    fingerprint = vault.fingerprint(key.content, _associated_data(uid, key), stored.sealer)
    if fingerprint != stored.request:
        return Problem(422, "Idempotency-Key was used for other readings; use a new one")
    reasons: Reasons = json.loads(stored.reasons)
    return reasons


def new_answer(vault: Vault, uid: str, key: RequestKey, reasons: Reasons) -> StoredAnswer:
    """Return what is stored of a request that was just taken."""
    sealer = vault.newest
    return StoredAnswer(
        sealer,
        vault.fingerprint(key.content, _associated_data(uid, key), sealer),
        json.dumps(reasons),
    )


def write_answers(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Store what became of requests."""
    if rows:
        connection.execute(insert(TAKEN), list(rows))


def drop_old_answers(connection: Connection, space: str, uid: str, before: float) -> None:
    """Delete a stream's answers made before a time (UTC seconds)."""
    old = delete(TAKEN).filter_by(space=space, uid=uid).where(TAKEN.c.made < before)
    connection.execute(old)


def _associated_data(uid: str, key: RequestKey) -> str:
    return f"{uid}|{key.device}|{key.name}"


# made once: building a statement takes longer than running it
_ANSWERS = select(
    *(TAKEN.c[name] for name in ("uid", "key", "name", *StoredAnswer._fields)),
).where(
    TAKEN.c.space.in_(bindparam("spaces", expanding=True)),
    TAKEN.c.uid.in_(bindparam("uids", expanding=True)),
    TAKEN.c.key.in_(bindparam("devices", expanding=True)),
    TAKEN.c.name.in_(bindparam("names", expanding=True)),
)
