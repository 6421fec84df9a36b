"""The head of the database."""

from __future__ import annotations

from alembic import op
from sqlalchemy import MetaData

from shoal.gateway.migrations.versions.v0001_tables import secured
from shoal.gateway.tables import make_table

revision = "0003"
down_revision = "0002"

COLUMNS = (
    "",
    "database seq:number token previous restored:time?",
)  # keys, and others, as at this version


def upgrade() -> None:
    """Make the table; on PostgreSQL secure it as the others are."""
    made = make_table(MetaData(), "heads", *COLUMNS)
    made.create(op.get_bind())
    if op.get_bind().dialect.name == "postgresql":
        for statement in secured(made.name):
            op.execute(statement)
