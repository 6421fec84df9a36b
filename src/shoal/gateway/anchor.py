"""A note outside the database of how far it had come, so that an older copy is noticed.

A gateway that goes on from an older copy would forget what was spent since, and follow days that
applications have seen more of than it knows. So a checkpoint over all charges is laid now and then,
its hash is kept in a file elsewhere, and a database that does not hold it is refused at the start.
"""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import Connection, select, update

from shoal.core.errors import LedgerError
from shoal.gateway.store import Store
from shoal.gateway.streams import Address, House, loaded
from shoal.gateway.tables import STREAMS
from shoal.ledger.schema import HOUSE


def check_anchor(store: Store, path: Path) -> None:
    """Refuse a database that does not hold the checkpoint noted in `path`."""
    if not path.exists():
        return
    noted = path.read_text().strip()
    known = select(HOUSE.c.seq).where(HOUSE.c.hash == noted)
    if store.ledger.database.read(lambda c: c.execute(known).first()) is None:
        raise LedgerError(
            f"the database does not hold the checkpoint noted in {path}: it is an older copy, or "
            "another one; bring the newest back, or go on with `shoal serve --restored`, which "
            "keeps streams with days still until their day is over"
        )


def lay_anchor(store: Store, path: Path) -> None:
    """Lay a checkpoint over all charges and note its hash, whole or not at all."""
    head = store.ledger.checkpoint(by="gateway")
    beside = path.with_name(path.name + ".new")
    beside.write_text(f"{head.hash}\n")
    beside.replace(path)


def hold_still(house: House, connection: Connection, now: float) -> int:
    """How many streams pause until their day or step is over, because it is known in part.

    Those without days promise every slot by itself: what was lost of them is a slot without news.
    """
    rows = connection.execute(select(STREAMS).where(STREAMS.c.forgotten.is_(None))).all()
    found = [(row, loaded(house, connection, row)) for row in rows]
    found = [(row, stream) for row, stream in found if stream.clock.slots]
    for row, stream in found:
        first = max(row.closed, stream.standing.decided)
        last = max(stream.clock.day_ends(first), stream.clock.after(now))
        until = stream.clock.day_ends(last) if not stream.clock.first_of_day(last) else last
        pauses = [*json.loads(row.pauses), [first, until]]
        address = Address(row.space, row.person, row.stream)
        own = [STREAMS.c[name] == value for name, value in address._asdict().items()]
        connection.execute(update(STREAMS).where(*own).values(pauses=json.dumps(pauses)))
    return len(found)
