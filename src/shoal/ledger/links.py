"""The hash chain through every row of a ledger: what a link's hash is, and how one is added.

hash = SHA-256 of the canonical JSON of [table, {every column but hash}]. `previous` is the hash
of the link before, so a change to any field of any row breaks the chain from there on. Cutting
off the end leaves a shorter chain that is whole: only a head kept elsewhere shows that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Insert,
    Select,
    Table,
    Text,
    insert,
    literal,
    null,
    select,
    union_all,
)

from shoal.ledger.schema import TABLES


class Head(NamedTuple):
    """The last link: its place, counted from 1, and its hash; (0, "") before the first."""

    seq: int
    hash: str


def link_hash(table: str, row: Mapping[str, Any]) -> str:
    """The hash of one row, over every column but `hash` itself."""
    content = {key: value for key, value in row.items() if key != "hash"}
    # repr: a value that is not text can only come from outside, and must not stop a verification
    text = json.dumps([table, content], sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


NO_LINK = Head(0, "")


def head(connection: Connection) -> Head:
    """The last link of the chain, whichever table holds it."""
    rows = connection.execute(_heads())
    return max((Head(seq, digest) for _, seq, digest, _ in rows), default=NO_LINK)


def last_link(table: Table) -> Select[Any]:
    """The last row of a table as (table, seq, hash, blank)."""
    columns = (literal(table.name, Text).label("what"), table.c.seq, table.c.hash)
    return select(*columns, null().label("blank")).order_by(table.c.seq.desc()).limit(1)


def append(connection: Connection, table: Table, last: Head, **fields: str | None) -> Head:
    """Add a row after `last` and return it as the new head. The caller holds the write lock."""
    row: dict[str, Any] = {
        "seq": last.seq + 1,
        "at": datetime.now(UTC).isoformat(timespec="microseconds"),
        **fields,
        "previous": last.hash,
    }
    row["hash"] = link_hash(table.name, row)
    connection.execute(_insert(table), row)
    return Head(row["seq"], row["hash"])


@cache
def _heads() -> Any:
    """The last row of every table, in one statement."""
    return union_all(*(select(last_link(table).subquery()) for table in TABLES))


@cache
def _insert(table: Table) -> Insert:
    return insert(table)
