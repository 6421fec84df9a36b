"""Room for states that change at every slot: PostgreSQL gives old versions back early."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"

# every slot rewrites the sealed state of its stream, and the defaults wait for a fifth of all rows
OPTIONS = (
    "fillfactor = 70",
    *(
        f"{prefix}autovacuum_vacuum_{name}"
        for prefix in ("", "toast.")
        for name in ("scale_factor = 0.02", "threshold = 200", "cost_delay = 0")
    ),
)


def upgrade() -> None:
    """Set the table's options; a sealed state cannot be compressed, so none is tried."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE gateway_streams SET ({', '.join(OPTIONS)})")
        op.execute("ALTER TABLE gateway_streams ALTER COLUMN sealed SET STORAGE EXTERNAL")
