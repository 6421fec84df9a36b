"""The tables, and on PostgreSQL row-level security for a role that owns none of them."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Index, MetaData

from shoal.gateway.tables import make_table

revision = "0001"
down_revision = None

ROLE = "shoal_gateway"
# keys and columns as they were at version 1; later ones are added by later migrations
FIRST_TABLES = {
    "spaces": ("", "made:time"),
    "people": ("person", "made:time"),
    "keys": ("key", "kind holder hash label made:time expires:time? used:time? revoked:time?"),
    "plans": ("plan", "kind document told made:time"),
    "jobs": ("job", "spec state told made:time seen:time"),
    "streams": (
        "person stream",
        "uid kind plan clock silence apart:flag closed:number closes:time key sealed:bytes pauses "
        "swap? made:time forgotten:time?",
    ),
    "outputs": ("uid ordinal:number", "opens:time body"),
    "grants": ("person application", "streams? every:number since:time? until:time? made:time"),
    "seen": ("uid application", "first:number last:number times:number at:time"),
    "dead": ("uid place:number", "ordinal:number? reason"),
    "answers": ("key name", "request status:number body made:time"),
}
NAMES = tuple(FIRST_TABLES)


def upgrade() -> None:
    """Create the tables as of version 1; later migrations alter them explicitly."""
    metadata = MetaData()
    made = {name: make_table(metadata, name, *said) for name, said in FIRST_TABLES.items()}
    Index("gateway_streams_uid", made["streams"].c.uid, unique=True)
    Index("gateway_streams_closes", made["streams"].c.closes)
    metadata.create_all(op.get_bind())
    if op.get_bind().dialect.name == "postgresql":
        for statement in _security():
            op.execute(statement)


def _security() -> list[str]:
    """A row is seen and written only by a transaction that said its space; '*' is the clock's."""
    made = [
        f"DO $$ BEGIN CREATE ROLE {ROLE} NOLOGIN; EXCEPTION WHEN duplicate_object OR "
        "unique_violation THEN NULL; END $$",
        "DO $$ BEGIN EXECUTE format("
        f"'GRANT USAGE ON SCHEMA %I TO {ROLE}', current_schema()); END $$",
        f"GRANT {ROLE} TO CURRENT_USER",
    ]
    for name in NAMES:
        made += secured(f"gateway_{name}")
    return made


def secured(table: str) -> list[str]:
    """Return the statements that bind a table's rows to the space a transaction said."""
    return [
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY space ON {table} USING (current_setting('shoal.space', true) "
        "IN (space, '*'))",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {ROLE}",
    ]
