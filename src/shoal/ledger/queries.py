"""SQL of the ledger, and how several statements reach the database in one round trip.

Statements go to the driver itself: SQLAlchemy's part would take longer than the database's. Their
errors are SQLAlchemy's all the same, so that a caller's transaction handles them as its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from shoal.ledger.schema import ENTRIES

EACH = "*"
POSTGRES = "postgresql"
Rows = list[Any]


class LedgerQuery(NamedTuple):
    """One statement as SQLite and as PostgreSQL take it; names of values stand as `:name`."""

    sqlite: str
    postgres: str

    @classmethod
    def of(cls, template: str) -> LedgerQuery:
        """Return the statement of a template; `{among:name}` stands for "is in the list `name`"."""
        found = re.compile(r"\{among:(\w+)\}")
        postgres = found.sub(r"= ANY(:\1)", template).replace("%", "%%")
        return cls(
            found.sub(r"IN (SELECT value FROM json_each(:\1))", template),
            re.sub(r"(?<!:):(\w+)", r"%(\1)s", postgres),
        )


Asked = tuple[LedgerQuery, Mapping[str, Any]]


def fetch(connection: Connection, *asked: Asked) -> list[Rows]:
    """Return the rows of each statement, in order; PostgreSQL is asked once for all of them.

    Each statement sees what was committed before it begins, so one that reads may follow one that
    waits for a lock.
    """
    driver: Any = connection.connection.driver_connection
    try:
        if connection.dialect.name != POSTGRES:
            return [driver.execute(one.sqlite, _plain(names)).fetchall() for one, names in asked]
        if len(asked) == 1:
            return [driver.execute(asked[0][0].postgres, asked[0][1]).fetchall()]
        with driver.pipeline():
            cursors = [driver.execute(one.postgres, names) for one, names in asked]
            return [cursor.fetchall() for cursor in cursors]
    except _errors(connection) as error:
        raise _wrapped(connection, error) from error


def write(connection: Connection, *asked: tuple[LedgerQuery, Sequence[Mapping[str, Any]]]) -> int:
    """Execute each statement for all of its rows; return how many rows the last one changed.

    PostgreSQL is asked once for all of them.
    """
    driver: Any = connection.connection.driver_connection
    try:
        if connection.dialect.name != POSTGRES:
            counts = [driver.executemany(one.sqlite, rows).rowcount for one, rows in asked]
            return int(counts[-1])
        with driver.pipeline():
            cursors = [driver.cursor() for _ in asked]
            for cursor, (one, rows) in zip(cursors, asked, strict=True):
                cursor.executemany(one.postgres, rows)
        return int(cursors[-1].rowcount)  # known once the pipeline has ended
    except _errors(connection) as error:
        raise _wrapped(connection, error) from error


def _plain(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that SQLite takes: a list as JSON."""
    return {
        name: json.dumps(value) if isinstance(value, list) else value
        for name, value in names.items()
    }


def _errors(connection: Connection) -> type[Exception]:
    errors: type[Exception] = connection.dialect.loaded_dbapi.Error
    return errors


def _wrapped(connection: Connection, error: Exception) -> DBAPIError:
    """Return a driver's error as SQLAlchemy's, and give up a connection that broke."""
    wrapped = OperationalError("", None, error)
    if connection.dialect.is_disconnect(error, None, None):  # type: ignore[arg-type]
        connection.invalidate(error)
    return wrapped


COLUMNS = tuple(column.name for column in ENTRIES.columns)
KIND = "period, requester, plan, part"
# how often a line counts: that of the subject which names a charge about everybody not at all,
# since the line of everybody counts for every subject
TIMES = f"CASE WHEN members = '{EACH}' THEN 0 ELSE 1 END"
COUNTED = f"{KIND}, sum({TIMES})"
_HOUSE_END = (
    "(SELECT max(seq) FROM (SELECT max(seq) AS seq FROM shoal_house UNION ALL "
    "SELECT max(seq) FROM shoal_versions) AS ends)"
)
_EVERYBODY_END = (
    "coalesce((SELECT hash FROM shoal_entries WHERE subject = '*' ORDER BY place DESC LIMIT 1), '')"
)
_READ_COMMITTED = "current_setting('transaction_isolation') = 'read committed'"

# What one transaction reads before it judges.

# Advisory locks of PostgreSQL; SQLite has one writer anyway. A writer that charges shares the lock
# of the whole ledger and holds those of its subjects; one that sets a limit or charges everybody
# holds the first alone. The numbers are arbitrary and never change.
LEDGER_LOCK = 7309940822140973
SUBJECT_SLOTS = 1024  # locks for all subjects together: a server holds some thousands at once
LOCK_LEDGER = LedgerQuery("SELECT 1", f"SELECT pg_advisory_xact_lock({LEDGER_LOCK})")
SHARE_LEDGER = LedgerQuery("SELECT 1", f"SELECT pg_advisory_xact_lock_shared({LEDGER_LOCK})")
LOCK_SUBJECTS = LedgerQuery(
    "SELECT 1",
    "SELECT pg_advisory_xact_lock(822140972, slot) FROM unnest(%(slots)s::int[]) AS slot",
)
# the end of the house chain, the hash of the last charge about everybody, and whether a statement
# sees all that was committed before it
ENDS = LedgerQuery(
    f"SELECT {_HOUSE_END}, {_EVERYBODY_END}, 1",
    f"SELECT {_HOUSE_END}, {_EVERYBODY_END}, {_READ_COMMITTED}",
)
# of each subject the charge at a place and those after it; the subjects one by one, by the index
_SINCE = f"e.subject, e.place, e.hash, {KIND}, {TIMES}"
SINCE = LedgerQuery(
    f"SELECT {_SINCE} FROM json_each(:subjects) AS known CROSS JOIN shoal_entries AS e "
    "ON e.subject = known.value AND e.place >= "
    "json_extract(:places, '$[' || known.key || ']') ORDER BY e.subject, e.place",
    f"SELECT {_SINCE.replace('e.', '')} FROM unnest(%(subjects)s::text[], %(places)s::bigint[]) "
    "AS known(named, first), LATERAL (SELECT * FROM shoal_entries WHERE subject = named "
    "AND place >= first ORDER BY place OFFSET 0) AS e ORDER BY subject, place",
)
COUNTS = LedgerQuery.of(
    f"SELECT subject, {COUNTED} FROM shoal_entries WHERE subject {{among:subjects}} "
    f"GROUP BY subject, {KIND}"
)
HEADS = LedgerQuery.of(
    "SELECT e.subject, e.place, e.hash FROM shoal_entries AS e JOIN (SELECT subject, max(place) "
    "AS place FROM shoal_entries WHERE subject {among:subjects} GROUP BY subject) AS ends "
    "ON ends.subject = e.subject AND ends.place = e.place"
)
ALL_COUNTS = LedgerQuery.of(
    f"SELECT subject, {COUNTED} FROM shoal_entries GROUP BY subject, {KIND}"
)
KEYS = LedgerQuery.of(
    f"SELECT {', '.join(COLUMNS)} FROM shoal_entries "
    "WHERE requester = :requester AND key {among:keys}"
)
PLAN = LedgerQuery.of("SELECT document FROM shoal_documents WHERE plan = :plan")
VERSION = LedgerQuery.of("SELECT version FROM shoal_versions ORDER BY seq DESC LIMIT 1")
HASH = LedgerQuery.of("SELECT hash FROM shoal_entries WHERE subject = :subject AND place = :place")
CHANGES = LedgerQuery.of("SELECT seq, at, kind, changed_by, document FROM shoal_house ORDER BY seq")
OF_KIND = LedgerQuery.of("SELECT document FROM shoal_house WHERE kind = :kind ORDER BY seq")

# What it writes.

ADD_PLAN = LedgerQuery.of(
    "INSERT INTO shoal_documents (plan, document) SELECT CAST(:plan AS TEXT), "
    "CAST(:document AS TEXT) WHERE NOT EXISTS (SELECT 1 FROM shoal_documents WHERE plan = :plan) "
    "ON CONFLICT DO NOTHING"
)
ADD = LedgerQuery.of(
    f"INSERT INTO shoal_entries ({', '.join(COLUMNS)}) "
    f"VALUES ({', '.join(f':{name}' for name in COLUMNS)}) ON CONFLICT DO NOTHING"
)
