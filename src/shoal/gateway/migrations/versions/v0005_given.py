"""Which outputs an application was given, so that one that is read again counts once."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; rows of before have their first and last output, and what lies between."""
    op.add_column("gateway_seen", Column("given", Text(), nullable=True))
