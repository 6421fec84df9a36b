"""The head of the database."""

from __future__ import annotations

from alembic import op

from shoal.gateway.migrations.versions.v0001_tables import secured
from shoal.gateway.tables import METADATA

revision = "0003"
down_revision = "0002"

NAME = "gateway_heads"


def upgrade() -> None:
    """Make the table; on PostgreSQL secure it as the others are."""
    METADATA.create_all(op.get_bind(), tables=[METADATA.tables[NAME]])
    if op.get_bind().dialect.name == "postgresql":
        for statement in secured(NAME):
            op.execute(statement)
