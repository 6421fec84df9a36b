"""How Alembic runs here: on a connection that the store passes in, never on its own."""

from __future__ import annotations

from alembic import context

from shoal.gateway.tables import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA, version_table="gateway_versions")
with context.begin_transaction():
    context.run_migrations()
