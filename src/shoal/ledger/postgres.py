"""A ledger in PostgreSQL: serialisable transactions, begun again when another writer was first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from shoal.core.errors import LedgerError
from shoal.core.plan import Charge, Release
from shoal.ledger.charging import checked_release, fields
from shoal.ledger.database import Database, Dialect, Manner
from shoal.ledger.links import NO_LINK, hashed_around
from shoal.ledger.reading import STATE, State, names_of, state_of
from shoal.ledger.schema import CHARGES, COUNTED, LIMITS, TABLES, VERSIONS, Words

# Taken before anything is read: the chain has one end, so writers go one after the other, and a
# transaction that waited here still sees all that was committed before it got the lock.
LOCK = "LOCK TABLE shoal_versions IN SHARE ROW EXCLUSIVE MODE"
MIGRATION_LOCK = "SELECT pg_advisory_xact_lock(7309940822140973)"  # any number, always the same

# A commit gives the lock to the next writer before it is on the disk; FLUSH, a commit of its own
# that does wait for the disk, comes after it in the log and so takes it along, and the waits of
# many writers are one. Until it is through, nobody is told a value.
QUICK = (
    "SELECT set_config('shoal.durable', CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false), "
    "set_config('synchronous_commit', 'off', false)"
)
FLUSH = (
    "SELECT set_config('synchronous_commit', current_setting('shoal.durable'), true), "
    "pg_logical_emit_message(true, 'shoal', '')"
)

AGAIN = ("40001", "40P01")  # serialization failure, deadlock: the transaction had no effect

# One message: nothing but the charge between the lock and its end. Each statement sees what was
# committed before it, so this one sees all that was written before the lock was got.
BATCH = (f"BEGIN ISOLATION LEVEL READ COMMITTED; {LOCK}; ", f" COMMIT; {FLUSH}")

SENTENCES = {
    "55P03": "is locked by another program that does not let go; let it finish, then repeat",
    "40001": "has too many writers at once; repeat the release with the same key",
    "40P01": "has too many writers at once; repeat the release with the same key",
    "25006": "is read-only here; connect to the primary server",
    "42501": "may not be changed by this user; grant SELECT and INSERT on the shoal tables, and "
    "UPDATE on shoal_versions, which writers lock",
    "53100": "cannot grow because the disk of the server is full; free some space and repeat",
    "XX001": "is damaged; restore it from a copy and check that with `shoal ledger verify --head`",
    "XX002": "is damaged; restore it from a copy and check that with `shoal ledger verify --head`",
}

TRIGGERS = (
    "SELECT tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE NOT tgisinternal "
    "AND tgenabled <> 'D' AND nspname = ANY (current_schemas(false))"
)

# the table stays, with all that was granted on it
COUNT = (
    "ALTER TABLE shoal_charges ADD COLUMN times BIGINT",
    "ALTER TABLE shoal_charges DISABLE TRIGGER shoal_charges_append_only",
    f"UPDATE shoal_charges SET times = made.times FROM (SELECT seq, {COUNTED} AS times "
    "FROM shoal_charges) AS made WHERE made.seq = shoal_charges.seq",
    "ALTER TABLE shoal_charges ENABLE TRIGGER shoal_charges_append_only",
    "ALTER TABLE shoal_charges ALTER COLUMN times SET NOT NULL",
)
AS_COUNTED = (
    "DO $$ BEGIN IF to_regclass('pg_temp.shoal_charges') IS NULL THEN CREATE TEMP VIEW "
    f"shoal_charges AS SELECT *, {COUNTED} AS times FROM shoal_charges; END IF; END $$"
)


def open_postgres(url: URL, *, timeout: float) -> Database:
    """The database behind `url`, through psycopg."""
    try:
        import psycopg
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs psycopg; install it with: pip install 'shoal[postgres]'"
        ) from None
    engine = create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="SERIALIZABLE")
    milliseconds = max(1, round(timeout * 1000))
    event.listen(engine, "connect", lambda connection, _: _prepare(connection, milliseconds))
    dialect = Dialect(
        words=Words("BIGINT", _protect, TRIGGERS, COUNT, AS_COUNTED),
        writing=Manner({}, LOCK, FLUSH),
        # each statement sees what was committed before it, so tables made by another are seen
        migrating=Manner({"isolation_level": "READ COMMITTED"}, MIGRATION_LOCK, FLUSH),
        reading=Manner({"isolation_level": "REPEATABLE READ"}),
        error=psycopg.Error,
        explain=_explain,
        passing=lambda error: _state(error) in AGAIN or lost(error),
        lost=lost,
        batch=BATCH,
    )
    return Database(url.render_as_string(hide_password=True), engine, dialect)


def lost(error: Exception) -> bool:
    """Whether the connection is gone: the server says so, or says nothing any more."""
    import psycopg

    state = _state(error)
    return isinstance(error, psycopg.OperationalError) and (
        state == "" or state.startswith("08") or state in ("57P01", "57P02", "57P03")
    )


def _prepare(connection: Any, milliseconds: int) -> None:
    """No wait is endless, and a commit waits for the disk only in FLUSH.

    Statements are planned once, perhaps while a table is still empty: always by its indexes.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {milliseconds}")
        cursor.execute("SET enable_seqscan = off")
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        cursor.execute(QUICK)
    connection.commit()


def _protect(table: str) -> dict[str, tuple[str, ...]]:
    return {
        f"{table}_append_only": (
            "CREATE OR REPLACE FUNCTION shoal_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION USING MESSAGE = TG_TABLE_NAME || ' is append-only'; END $$",
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION shoal_append_only()",
        )
    }


def _state(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or ""


def _explain(error: Exception) -> str:
    if lost(error):
        return "cannot be reached; check the address, the user and that the server runs"
    state = _state(error)
    return SENTENCES.get(state, f"cannot be used: {str(error).strip().splitlines()[0]}")


# A charge to PostgreSQL in two messages: looked up without the lock, written under it.
#
# The chain has one end, so charges go one after the other. A writer that holds the lock while
# messages travel makes all others wait for them; here the lock is taken and given back inside one
# message. What the decision rests on is looked up before, by a statement that waits for nobody.
# The server then adds the row only if that still holds: the same limits and version, no charge
# under the same key (which the table itself refuses), and about the same subject and period
# nothing new but a few charges of the same plan, for which there was room as well. Otherwise it
# changes nothing, and the charge is settled under the lock as any other. The one statement that
# reads and writes begins after the lock was taken and ends before it is given back, so charges are
# as if made one by one.


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
