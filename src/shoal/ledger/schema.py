"""The tables of a ledger, the hashes that chain their rows, and the way from older versions.

Two sorts of chains hold everything. The *house* chain goes through versions, limits, signers and
checkpoints, one after the other. Every subject has a chain of its own through the charges about
it, so that charges of different people never wait for each other; a checkpoint in the house chain
holds the root of a tree over the ends of all of them. A row is added once and never changed, which
triggers enforce and `verify` checks. Plans are stored under the fingerprint of their content and
need no chain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text, inspect, text

from shoal.core.errors import LedgerError

NEWEST = 3  # the version of the tables below
METADATA = MetaData()


def _text(name: str, *, nullable: bool = False, key: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable, primary_key=key)


def _number(name: str, *, key: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=False, primary_key=key, autoincrement=False)


# the version of the schema, and the program that brought the ledger to it; as in version 1, so
# that every program finds it
VERSIONS = Table(
    "shoal_versions",
    METADATA,
    _number("seq", key=True),
    *map(_text, ("at", "version", "program", "previous", "hash")),
)

# kind is "limit", "signer", "signature" or "checkpoint"; document is JSON
HOUSE = Table(
    "shoal_house",
    METADATA,
    _number("seq", key=True),
    *map(_text, ("at", "kind", "name", "document", "changed_by", "previous", "hash")),
)

# each plan once, under its fingerprint
DOCUMENTS = Table("shoal_documents", METADATA, _text("plan", key=True), _text("document"))

# `place` counts the charges about a subject from 1; `part` is "" for all of the data; `eta` is an
# exact rational "p/q"; `value` is what was released, nothing where an aggregate charges a member;
# `members` says who is in an aggregate; `house` is the link of the house it was decided under
ENTRIES = Table(
    "shoal_entries",
    METADATA,
    _text("subject", key=True),
    _number("place", key=True),
    *map(_text, ("at", "plan", "period", "part", "requester")),
    _text("key", nullable=True),
    _text("eta", nullable=True),
    _text("value", nullable=True),
    _text("members", nullable=True),
    _number("house"),
    _text("hash"),
)

TABLES = (VERSIONS, HOUSE, DOCUMENTS, ENTRIES)
OLD_TABLES = ("shoal_plans", "shoal_limits", "shoal_charges")  # of versions 1 and 2


class Head(NamedTuple):
    """The end of a chain: its place, counted from 1, and its hash; (0, "") before the first."""

    seq: int
    hash: str


NO_LINK = Head(0, "")


class Words(NamedTuple):
    """How an engine says what differs.

    `protect` maps each trigger of a table to the statements that make it, given the columns of
    which no two rows agree; `frozen` does so for tables that take no more rows. `triggers` is the
    query for the triggers in force: the name of each, what it does, as `protect` has it in the end,
    and its table.
    `old` holds off programs of version 2 until the transaction ends.
    """

    protect: Callable[[str, Sequence[tuple[str, ...]]], dict[str, tuple[str, ...]]]
    frozen: Callable[[str], dict[str, tuple[str, ...]]]
    triggers: str
    clustered: str
    old: str | None = None


def link_hash(table: str, row: Mapping[str, Any]) -> str:
    """The hash of one row of the house chain, over every column but `hash` itself.

    SHA-256 of the canonical JSON of [table, columns]. `times` of version 2 repeats what earlier
    rows say and is not hashed.
    """
    content = {key: value for key, value in row.items() if key not in ("hash", "times")}
    # repr: a value that is not text can only come from outside, and must not stop a verification
    canonical = json.dumps([table, content], sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(canonical.encode()).hexdigest()


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode


def entry_hash(previous: str, fields: Sequence[Any]) -> str:
    """The hash of a charge: over the hash before it and every column but its own hash, in order."""
    content = _encode([previous, *fields])
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def now() -> str:
    """The time of a row, by this machine's clock."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def house_head(connection: Connection) -> Head:
    """The end of the house chain, whichever table holds it."""
    return _last(connection, "shoal_house", "shoal_versions")


def _last(connection: Connection, *tables: str) -> Head:
    """The last row of a chain that goes through several tables."""
    ends = " UNION ALL ".join(
        f"SELECT * FROM (SELECT seq, hash FROM {name} ORDER BY seq DESC LIMIT 1) AS {name}_end"
        for name in tables
    )
    rows = connection.execute(text(ends)).all()
    if not all(type(seq) is int and type(digest) is str for seq, digest in rows):
        raise LedgerError("the ledger's rules were changed by hand; run ledger verify")
    return max((Head(seq, digest) for seq, digest in rows), default=NO_LINK)


def append(connection: Connection, table: Table, last: Head, **fields: str) -> Head:
    """Add a row to the house chain after `last`; the new end."""
    row: dict[str, Any] = {
        "seq": last.seq + 1,
        "at": now(),
        **fields,
        "previous": last.hash,
    }
    row["hash"] = link_hash(table.name, row)
    connection.execute(table.insert(), row)
    return Head(row["seq"], row["hash"])


def decree(
    connection: Connection, last: Head, kind: str, name: str, document: Mapping[str, Any], by: str
) -> Head:
    """Add a rule, or a checkpoint, to the house chain after `last`; the new end."""
    said = json.dumps(document, ensure_ascii=False)
    return append(connection, HOUSE, last, kind=kind, name=name, document=said, changed_by=by)


def merkle_root(ends: Mapping[str, Head]) -> str:
    """The root of the tree over the ends of all chains, in the order of their subjects' names.

    A leaf is SHA-256 of 0 and the JSON of [subject, place, hash], a node of 1 and its two
    children; an odd one is handed up as it is.
    """
    level = [
        hashlib.sha256(b"\0" + _encode([name, *ends[name]]).encode()).digest()
        for name in sorted(ends, key=str)
    ]
    while len(level) > 1:
        pairs = [
            hashlib.sha256(b"\1" + one + other).digest()
            for one, other in zip(level[::2], level[1::2], strict=False)
        ]
        level = pairs + level[len(pairs) * 2 :]
    return level[0].hex() if level else ""


def lay_checkpoint(
    connection: Connection, last: Head, by: str, sign: Callable[[str], str] | None = None
) -> Head:
    """A checkpoint over all charges after the end of the house chain; nobody charges meanwhile."""
    rows = connection.execute(_ENDS)
    ends = {subject: Head(place, digest) for subject, place, digest in rows}
    root, charges = merkle_root(ends), sum(end.seq for end in ends.values())
    said = checkpoint_text(last.hash, root, len(ends), charges)
    document = {"subjects": len(ends), "charges": charges, "signature": sign and sign(said)}
    return decree(connection, last, "checkpoint", root, document, by)


def checkpoint_text(previous: str, root: str, subjects: int, charges: int) -> str:
    """What the signature of a checkpoint is of."""
    return f"shoal checkpoint 1 {previous} {root} {subjects} {charges}"


_ENDS = text(
    "SELECT e.subject, e.place, e.hash FROM shoal_entries AS e JOIN (SELECT subject, max(place) "
    "AS place FROM shoal_entries GROUP BY subject) AS ends "
    "ON ends.subject = e.subject AND ends.place = e.place"
)


def version(connection: Connection) -> int:
    """The version of the schema; 0 when there are no tables yet."""
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    newest = text("SELECT version FROM shoal_versions ORDER BY seq DESC LIMIT 1")
    found = connection.execute(newest).scalar()
    if found is None:
        return 0
    if not str(found).isdecimal() or len(str(found)) > 9:
        shown = str(found)[:20]
        raise LedgerError(f"the ledger says its version is {shown!r}; was it changed by hand?")
    return int(found)


def bring_up_to_date(connection: Connection, words: Words, program: str) -> None:
    """The tables of this version: made, or filled from those of version 1 or 2.

    Old rows, hashes and heads stay as they are, in tables that take no more. Their charges are
    copied into the chains of their subjects, and a checkpoint over these is the first new link
    after the version. Somebody else may have done it meanwhile.
    """
    found = version(connection)
    if found >= NEWEST:
        return
    if found and words.old is not None:
        connection.exec_driver_sql(words.old)
    for statement in creation(words, fresh=not found):
        connection.exec_driver_sql(statement)
    last = _last(connection, "shoal_versions", *OLD_TABLES) if found else NO_LINK
    last = append(connection, VERSIONS, last, version=str(NEWEST), program=program)
    if found:
        _copy(connection, last)
        for table in OLD_TABLES:
            for making in words.frozen(table).values():
                for statement in making:
                    connection.exec_driver_sql(statement)


def creation(words: Words, *, fresh: bool) -> Iterator[str]:
    """Version 3, written out so that later changes to the tables above cannot alter it."""
    link = "seq BIGINT NOT NULL PRIMARY KEY, at TEXT NOT NULL"
    hashes = "previous TEXT NOT NULL, hash TEXT NOT NULL"
    if fresh:
        yield (
            f"CREATE TABLE shoal_versions ({link}, version TEXT NOT NULL, program TEXT NOT NULL, "
            f"{hashes})"
        )
    yield (
        f"CREATE TABLE shoal_house ({link}, kind TEXT NOT NULL, name TEXT NOT NULL, "
        f"document TEXT NOT NULL, changed_by TEXT NOT NULL, {hashes})"
    )
    yield "CREATE TABLE shoal_documents (plan TEXT NOT NULL PRIMARY KEY, document TEXT NOT NULL)"
    yield (
        "CREATE TABLE shoal_entries (subject TEXT NOT NULL, place BIGINT NOT NULL, "
        "at TEXT NOT NULL, plan TEXT NOT NULL, period TEXT NOT NULL, part TEXT NOT NULL, "
        "requester TEXT NOT NULL, key TEXT, eta TEXT, value TEXT, members TEXT, "
        "house BIGINT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (subject, place), "
        f"UNIQUE (requester, key)){words.clustered}"
    )
    for table, keys in UNIQUE.items():
        for making in words.protect(table, keys).values():
            yield from making


# for each table the columns of which no two rows may agree (where none of them is missing)
UNIQUE: dict[str, tuple[tuple[str, ...], ...]] = {
    "shoal_versions": (("seq",),),
    "shoal_house": (("seq",),),
    "shoal_documents": (("plan",),),
    "shoal_entries": (("subject", "place"), ("requester", "key")),
}


# Versions 1 and 2: one chain through four tables.


def _copy(connection: Connection, last: Head) -> None:
    """What the old tables say, in the new ones: plans, limits in force, and charges by subject."""
    connection.exec_driver_sql(
        "INSERT INTO shoal_documents (plan, document) SELECT plan, document FROM shoal_plans"
    )
    house = last.seq
    for row in connection.execute(text("SELECT * FROM shoal_limits ORDER BY seq")).mappings():
        names = ("unit", "amount", "subject", "period", "requester")
        document = {name: row[name] for name in names}
        unknown = f"unknown, before version {NEWEST}"
        last = decree(connection, last, "limit", row["subject"], document, unknown)
        house = last.seq
    old = connection.execute(text("SELECT * FROM shoal_charges ORDER BY seq")).mappings()
    ends: dict[str, Head] = {}
    while rows := old.fetchmany(2000):
        connection.execute(ENTRIES.insert(), [copied(dict(row), ends, house) for row in rows])
    lay_checkpoint(connection, last, f"version {NEWEST}")


def copied(row: Mapping[str, Any], ends: dict[str, Head], house: int) -> dict[str, Any]:
    """A charge of version 1 or 2 as the next of its subject; `ends` are those of the chains."""
    last = ends.get(row["subject"], NO_LINK)
    entry = {
        "subject": row["subject"],
        "place": last.seq + 1,
        "at": row["at"],
        "plan": row["plan"],
        "period": row["period"],
        "part": "",
        "requester": row["requester"],
        "key": row["key"],
        "eta": row["eta"],
        "value": row["release"],
        "members": None,
        "house": house,
    }
    entry["hash"] = entry_hash(last.hash, list(entry.values()))
    ends[row["subject"]] = Head(last.seq + 1, entry["hash"])
    return entry
