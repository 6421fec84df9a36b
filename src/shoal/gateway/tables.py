"""The tables of the gateway, beside those of its ledger in one database.

Every table has a space in its key. Times are UTC seconds. What can tell more than the outputs is
only in `streams.seal_stream`. Ids that a caller sees count within one stream; no id counts across
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
TYPES: dict[str, Any] = {
    "": Text(),
    "time": Float(53),
    "number": BigInteger(),
    "flag": Boolean(),
    "bytes": LargeBinary(),
}


def make_table(metadata: MetaData, name: str, keys: str, columns: str) -> Table:
    """Return a table by its keys after the space and its other columns, each NAME or NAME:TYPE.

    Without a type it is text; one that ends in ? may be empty. Migrations describe the tables of
    their time with it, so it must not change what a description means.
    """
    made = [_column(each, primary_key=True) for each in ("space", *keys.split())]
    return Table(f"gateway_{name}", metadata, *made, *map(_column, columns.split()))


def _make_table(name: str, keys: str, columns: str) -> Table:
    return make_table(METADATA, name, keys, columns)


def _column(said: str, **more: Any) -> Column[Any]:
    name, _, kind = said.removesuffix("?").partition(":")
    return Column(name, TYPES[kind], nullable=said.endswith("?"), **more)


SPACES = _make_table("spaces", "", "made:time")
PEOPLE = _make_table("people", "person", "made:time")
# holder: the person or application; hash: of the secret
KEYS = _make_table(
    "keys", "key", "kind holder hash label made:time expires:time? used:time? revoked:time?"
)
PLANS = _make_table("plans", "plan", "kind document told made:time")
# state: waiting, working, done, failed; told: progress, then the plan or the problem, as JSON
JOBS = _make_table("jobs", "job", "spec state told made:time seen:time")
# closed: the ordinal that closes next, at `closes`; pauses and swap as JSON; forgotten: a tombstone
STREAMS = _make_table(
    "streams",
    "person stream",
    "uid kind plan clock silence apart:flag closed:number closes:time key sealed:bytes pauses "
    "swap? made:time forgotten:time?",
)
Index("gateway_streams_uid", STREAMS.c.uid, unique=True)
Index("gateway_streams_closes", STREAMS.c.closes)
OUTPUTS = _make_table("outputs", "uid ordinal:number", "opens:time body")
# streams: JSON list, null for all; every: one slot in so many; since, until: when slots open
GRANTS = _make_table(
    "grants", "person application", "streams? every:number since:time? until:time? made:time"
)
# who saw what: first and last ordinal an application was given, how many, and when; given: spans
# of ordinals between which it was given all that it may see, as JSON
SEEN = _make_table(
    "seen", "uid application", "first:number last:number times:number at:time given?"
)
# readings that were refused: their place in the order and a reason, never their content
DEAD = _make_table("dead", "uid place:number", "ordinal:number? reason")
# answers to POSTs that made something, under the caller's own Idempotency-Key
ANSWERS = _make_table("answers", "key name", "request status:number body made:time")
# what became of requests with readings, by stream, device key and hashed Idempotency-Key; request:
# a fingerprint under the state key that `sealer` names; reasons: JSON
TAKEN = _make_table("taken", "uid key name", "sealer request reasons made:time")
# the head of the database, one row in space "*"; see copies/head.py
HEADS = _make_table("heads", "", "database seq:number token previous restored:time?")

# every table that has rows of a space; row-level security binds all of them
SPACED = (
    *(SPACES, PEOPLE, KEYS, PLANS, JOBS, STREAMS, OUTPUTS, GRANTS, SEEN, DEAD, ANSWERS),
    *(TAKEN, HEADS),
)
