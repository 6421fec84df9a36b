"""The tables of the gateway, beside those of its ledger in one database.

Every table has a space in its key. Times are UTC seconds. What can tell more than the outputs is
only in `streams.sealed`. Ids that a caller sees count within one stream; nothing counts across
people.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

METADATA = MetaData()


def _table(name: str, keys: tuple[str, ...], *columns: Column[Any]) -> Table:
    own = {column.name for column in columns}
    named = [Column(key, Text, primary_key=True) for key in ("space", *keys) if key not in own]
    return Table(f"gateway_{name}", METADATA, *named, *columns)


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def _time(name: str, *, nullable: bool = False) -> Column[float]:
    return Column(name, Float(53), nullable=nullable)


SPACES = _table("spaces", (), _time("made"))

PEOPLE = _table("people", ("person",), _time("made"))

# holder: the person or application; person: whose readings a device may push; hash: of the secret
KEYS = _table(
    "keys",
    ("key",),
    _text("kind"),
    _text("holder"),
    _text("hash"),
    _text("label"),
    _time("made"),
    _time("expires", nullable=True),
    _time("used", nullable=True),
    _time("revoked", nullable=True),
)

PLANS = _table("plans", ("plan",), _text("kind"), _text("document"), _text("told"), _time("made"))

# state: waiting, working, done, failed; told: progress, then the plan or the problem, as JSON
JOBS = _table(
    "jobs",
    ("job",),
    _text("spec"),
    _text("state"),
    _text("told"),
    _time("made"),
    _time("seen"),
)

# closed: the ordinal that closes next, at `closes`; pauses and swap as JSON; forgotten: a tombstone
STREAMS = _table(
    "streams",
    ("person", "stream"),
    _text("uid"),
    _text("kind"),
    _text("plan"),
    _text("clock"),
    _text("silence"),
    Column("apart", Boolean, nullable=False),
    Column("closed", BigInteger, nullable=False),
    _time("closes"),
    _text("key"),
    Column("sealed", LargeBinary, nullable=False),
    _text("pauses"),
    _text("swap", nullable=True),
    _time("made"),
    _time("forgotten", nullable=True),
)
Index("gateway_streams_uid", STREAMS.c.uid, unique=True)
Index("gateway_streams_closes", STREAMS.c.closes)

OUTPUTS = _table(
    "outputs",
    ("uid",),
    Column("ordinal", BigInteger, primary_key=True),
    _time("opens"),
    _text("body"),
)

# streams: JSON list, null for all; every: one slot in so many; since, until: when slots open
GRANTS = _table(
    "grants",
    ("person", "application"),
    _text("streams", nullable=True),
    Column("every", BigInteger, nullable=False),
    _time("since", nullable=True),
    _time("until", nullable=True),
    _time("made"),
)

# who saw what: from the first to the last ordinal an application was given, and when
SEEN = _table(
    "seen",
    ("uid", "application"),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("times", BigInteger, nullable=False),
    _time("at"),
)

# readings that were refused: their place in the order and a reason, never their content
DEAD = _table(
    "dead",
    ("uid",),
    Column("place", BigInteger, primary_key=True),
    Column("ordinal", BigInteger, nullable=True),
    _text("reason"),
)

# answers to POSTs that made something, under the caller's own Idempotency-Key
ANSWERS = _table(
    "answers",
    ("key", "name"),
    _text("request"),
    Column("status", BigInteger, nullable=False),
    _text("body"),
    _time("made"),
)

SPACED = (SPACES, PEOPLE, KEYS, PLANS, JOBS, STREAMS, OUTPUTS, GRANTS, SEEN, DEAD, ANSWERS)
