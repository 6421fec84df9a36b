"""The hash chain through every row of a ledger: what a link's hash is, and how one is added.

hash = SHA-256 of the canonical JSON of [table, {every column but hash and those worked out from
earlier rows}]. `previous` is the hash of the link before, so a change to any field of any row
breaks the chain from there on. Cutting off the end leaves a shorter chain that is whole: only a
head kept elsewhere shows that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Select,
    Table,
    Text,
    literal_column,
    null,
    select,
    text,
    union_all,
)

from shoal.ledger.schema import DERIVED, TABLES

ONE: ColumnElement[int] = literal_column("1")  # known when a statement is planned
NOT_HASHED = DERIVED | {"hash"}
TIMES = (  # worked out by the database while the row is added
    "(SELECT coalesce(max(times), 0) + 1 FROM shoal_charges WHERE subject = :subject "
    "AND period = :period AND requester = :requester AND plan = :plan)"
)


class Head(NamedTuple):
    """The last link: its place, counted from 1, and its hash; (0, "") before the first."""

    seq: int
    hash: str


def link_hash(table: str, row: Mapping[str, Any]) -> str:
    """The hash of one row, over every column but `hash` itself and what earlier rows say."""
    content = {key: value for key, value in row.items() if key not in NOT_HASHED}
    return hashlib.sha256(_canonical([table, content]).encode()).hexdigest()


def hashed_around(table: str, row: Mapping[str, Any]) -> tuple[str, str, str]:
    """What is hashed for a row without a place yet: around `previous`, between it and `seq`, after.

    link_hash = SHA-256 of  first + previous + second + seq + third,  so that a database can link
    the row itself once it knows where the chain ends. Keys are in order, as JSON has them.
    """
    kept = {key: value for key, value in row.items() if key not in NOT_HASHED}
    before = _members({key: kept[key] for key in kept if key < "previous"})
    between = _members({key: kept[key] for key in kept if "previous" < key < "seq"})
    after = _members({key: kept[key] for key in kept if key > "seq"})
    first = f"[{_canonical(table)},{{{before}{',' if before else ''}"
    second = f"{',' if between else ''}{between}"
    third = f"{',' if after else ''}{after}}}]"
    return f'{first}"previous":"', f'"{second},"seq":', third


def _members(content: dict[str, Any]) -> str:
    """What stands between the braces."""
    return _canonical(content)[1:-1]


def _canonical(value: object) -> str:
    # repr: a value that is not text can only come from outside, and must not stop a verification
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)


NO_LINK = Head(0, "")


def head(connection: Connection) -> Head:
    """The last link of the chain, whichever table holds it."""
    rows = connection.execute(_heads())
    return max((Head(seq, digest) for _, seq, digest, _ in rows), default=NO_LINK)


def last_link(table: Table) -> Select[Any]:
    """The last row of a table as (table, seq, hash, blank)."""
    columns = (literal_column(f"'{table.name}'", Text).label("what"), table.c.seq, table.c.hash)
    return select(*columns, null().label("blank")).order_by(table.c.seq.desc()).limit(ONE)


def append(connection: Connection, table: Table, last: Head, **fields: str | None) -> Head:
    """Add a row after `last` and return it as the new head. The caller holds the write lock."""
    row: dict[str, Any] = {
        "seq": last.seq + 1,
        "at": datetime.now(UTC).isoformat(timespec="microseconds"),
        **fields,
        "previous": last.hash,
    }
    row["hash"] = link_hash(table.name, row)
    connection.execute(insertion(table), row)
    return Head(row["seq"], row["hash"])


@cache
def _heads() -> Any:
    """The last row of every table, in one statement."""
    return union_all(*(select(last_link(table).subquery()) for table in TABLES))


@cache
def insertion(table: Table) -> Executable:
    """The statement that adds a row, or many, given every column that is not derived."""
    names = [column.name for column in table.columns]
    values = [TIMES if name in DERIVED else f":{name}" for name in names]
    return text(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join(values)})")
