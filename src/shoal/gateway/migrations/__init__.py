"""Steps of the gateway's schema, taken by Alembic."""
