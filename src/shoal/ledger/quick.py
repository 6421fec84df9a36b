"""A charge to PostgreSQL in two messages: looked up without the lock, written under it.

The chain has one end, so charges go one after the other. A writer that holds the lock while
messages travel makes all others wait for them; here the lock is taken and given back inside one
message. What the decision rests on is looked up before, by a statement that waits for nobody. The
server then adds the row only if that still holds: the same limits and version, no charge under
the same key (which the table itself refuses), and about the same subject and period nothing new
but a few charges of the same plan, for which there was room as well. Otherwise it changes nothing,
and the charge is settled under the lock as any other. The one statement that reads and writes
begins after the lock was taken and ends before it is given back, so charges are as if made one by
one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy.exc import DBAPIError

from shoal.core.ledger import Charge
from shoal.core.release import Release
from shoal.ledger.charging import checked_release, fields
from shoal.ledger.database import Database
from shoal.ledger.links import NO_LINK, hashed_around
from shoal.ledger.reading import STATE, State, names_of, state_of
from shoal.ledger.schema import CHARGES, LIMITS, TABLES, VERSIONS

WINDOW = 256  # links that may be added between looking and writing
LOCKED, UNPREPARED = "55P03", "26000"  # how PostgreSQL calls these errors

# how many further charges of the same plan there is room for; None when it is not a plain yes
Decide = Callable[[State], int | None]

_HEAD = " UNION ALL ".join(
    f"(SELECT seq, hash FROM {table.name} ORDER BY seq DESC LIMIT 1)" for table in TABLES
)
_GIVEN = ("at", "plan", "subject", "period", "requester", "key", "notion", "amount", "eta")
_PARAMETERS = (
    *("seen", "version", "limits", "spare"),
    *(*_GIVEN, "release", "first", "second", "third"),
)
_WRITE = f"""
WITH head AS MATERIALIZED (
    SELECT seq + 1 AS seq, hash AS previous FROM ({_HEAD}) AS ends ORDER BY seq DESC LIMIT 1
), since AS MATERIALIZED (
    SELECT subject, period, plan FROM shoal_charges WHERE seq > :seen ORDER BY seq LIMIT {WINDOW}
)
INSERT INTO shoal_charges ({", ".join(_GIVEN)}, release, seq, previous, hash, times)
SELECT {", ".join(f":{name}" for name in _GIVEN)}, :release, seq, previous,
    encode(sha256(convert_to(:first || previous || :second || seq || :third, 'UTF8')), 'hex'),
    coalesce((SELECT times FROM shoal_charges WHERE subject = :subject AND period = :period
        AND requester = :requester AND plan = :plan ORDER BY times DESC LIMIT 1), 0) + 1
FROM head
WHERE seq - 1 - :seen <= {WINDOW}
    AND (SELECT max(seq) FROM shoal_versions) = :version
    AND coalesce((SELECT max(seq) FROM shoal_limits), 0) = :limits
    AND (SELECT count(*) + count(*) FILTER (WHERE plan <> :plan) * (:spare + 1) FROM since
        WHERE subject = :subject AND period = :period) <= :spare
"""


def settle_quickly(
    database: Database,
    charge: Charge,
    sample: Callable[[], Release],
    decide: Decide,
    messages: tuple[str, str],
) -> Release | None:
    """The release, charged and on the disk; None when it has to be settled under the lock.

    `messages` go before and after the charge: a transaction with the lock, and its commit.
    """
    looking = True
    try:
        with database.lent() as connection:
            line: Any = connection.driver_connection
            cursor = line.cursor()
            state = _look(line, cursor, charge)
            spare = decide(state)
            if spare is None:
                return None
            release = checked_release(sample(), charge.plan)
            looking = False
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            row = {"at": now, **fields(charge, release)}
            return (
                release if _written(database, line, cursor, state, spare, row, messages) else None
            )
    except (DBAPIError, database.dialect.error) as error:
        if looking:
            return None  # nothing was written; under the lock it is tried again, or explained
        raise database.unknown() from error


def _look(line: Any, cursor: Any, charge: Charge) -> State:
    """All that the charge depends on, at one moment."""
    names = names_of(charge)
    values = _literals(line, [names[name] for name in _looked_up()[1]])
    look = b"EXECUTE shoal_look (" + values + b")"
    try:
        cursor.execute(look, prepare=False)
    except Exception as error:
        if getattr(error, "sqlstate", None) != UNPREPARED:
            raise
        for statement in _preparations():  # a new connection, or one that was rolled back
            cursor.execute(statement, prepare=False)
        cursor.execute(look, prepare=False)
    return state_of(cursor.fetchall())


def _written(
    database: Database,
    line: Any,
    cursor: Any,
    state: State,
    spare: int,
    row: dict[str, str | None],
    messages: tuple[str, str],
) -> bool:
    """Whether the row was added and is on the disk; if not, nothing has changed."""
    from psycopg.pq import TransactionStatus

    limits = state.heads.get(LIMITS.name, NO_LINK)
    places = {
        "seen": state.head.seq,
        "version": state.heads[VERSIONS.name].seq,
        "limits": limits.seq,
        "spare": spare,
    }
    around = dict(zip(("first", "second", "third"), hashed_around(CHARGES.name, row), strict=True))
    given: dict[str, Any] = {**places, **row, **around}
    values = _literals(line, [given[name] for name in _PARAMETERS])
    before, after = (message.encode() for message in messages)
    try:
        cursor.execute(before + b"EXECUTE shoal_write (" + values + b");" + after, prepare=False)
    except database.dialect.error as error:
        if line.pgconn.transaction_status != TransactionStatus.INERROR:
            raise  # perhaps after the commit
        line.rollback()
        if getattr(error, "sqlstate", None) == LOCKED:
            raise database.unusable(error) from error
        return False
    while cursor.statusmessage is None or not cursor.statusmessage.startswith("INSERT"):
        if not cursor.nextset():
            return False
    return bool(cursor.rowcount == 1)


def _literals(line: Any, values: list[Any]) -> bytes:
    """The values as PostgreSQL writes them in a statement, quoted by its own library."""
    from psycopg.pq import Escaping

    escape, encoding = Escaping(line.pgconn).escape_literal, line.info.encoding
    return b",".join(
        b"NULL"
        if value is None
        else b"%d" % value
        if isinstance(value, int)
        else bytes(escape(value.encode(encoding)))
        for value in values
    )


@cache
def _preparations() -> tuple[str, ...]:
    """The two statements, planned once per connection."""
    look, names = _looked_up()
    write = _WRITE
    for number, name in sorted(enumerate(_PARAMETERS, 1), key=lambda pair: -len(pair[1])):
        write = write.replace(f":{name}", f"${number}")
    numbers = ("seen", "version", "limits", "spare")
    types = ", ".join("bigint" if name in numbers else "text" for name in _PARAMETERS)
    return (
        f"PREPARE shoal_look ({', '.join('text' for _ in names)}) AS {look}",
        f"PREPARE shoal_write ({types}) AS {write}",
    )


@cache
def _looked_up() -> tuple[str, list[str]]:
    """The statement behind `reading.state` as PostgreSQL numbers it, and its parameters."""
    from sqlalchemy.dialects import postgresql

    compiled = STATE.compile(dialect=postgresql.dialect(paramstyle="numeric_dollar"))  # type: ignore[no-untyped-call]
    return compiled.string, list(compiled.positiontup or ())
