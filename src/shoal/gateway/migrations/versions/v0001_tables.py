"""The tables, and on PostgreSQL row-level security for a role that owns none of them."""

from __future__ import annotations

from alembic import op

from shoal.gateway.tables import METADATA

revision = "0001"
down_revision = None

ROLE = "shoal_gateway"
NAMES = (
    *("spaces", "people", "keys", "plans", "jobs", "streams", "outputs", "grants", "seen"),
    *("dead", "answers"),
)


def upgrade() -> None:
    """Create the tables as of version 1; later migrations alter them explicitly."""
    tables = [METADATA.tables[f"gateway_{name}"] for name in NAMES]
    METADATA.create_all(op.get_bind(), tables=tables)
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
