"""Copies of the database: backup and restore, and how an older one is noticed and gone on from."""
