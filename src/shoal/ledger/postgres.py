"""A ledger in PostgreSQL: serialisable transactions, begun again when another writer was first."""

from __future__ import annotations

from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL

from shoal.core.errors import LedgerError
from shoal.ledger.database import Database, Dialect, Manner
from shoal.ledger.schema import COUNTED, Words

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
