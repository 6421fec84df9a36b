"""The tables of a ledger, and the steps that bring an older ledger to them.

Every row of every table is a link of one hash chain (`links`): a row is added once and never
changed, which triggers enforce and `verify` checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text

METADATA = MetaData()


def _linked(name: str, *columns: Column[str]) -> Table:
    """A table whose rows are links: place in the chain, time, own columns, two hashes."""
    return Table(
        name,
        METADATA,
        Column("seq", BigInteger, primary_key=True),
        Column("at", Text, nullable=False),
        *columns,
        Column("previous", Text, nullable=False),
        Column("hash", Text, nullable=False),
    )


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


# the version of the schema, and the program that brought the ledger to it
VERSIONS = _linked("shoal_versions", _text("version"), _text("program"))

# each plan once, under its fingerprint
PLANS = _linked("shoal_plans", _text("plan"), _text("document"))

# unit is "eta" or "epsilon"; "*" is each one separately; a missing requester is all together
LIMITS = _linked(
    "shoal_limits",
    _text("unit"),
    _text("amount"),
    _text("subject"),
    _text("period"),
    _text("requester", nullable=True),
)

# notion and amount are the plan's guarantee; amounts are exact rationals "p/q"
CHARGES = _linked(
    "shoal_charges",
    _text("plan"),
    _text("subject"),
    _text("period"),
    _text("requester"),
    _text("key", nullable=True),
    _text("notion"),
    _text("amount"),
    _text("eta", nullable=True),
    _text("release"),
)

TABLES = (VERSIONS, PLANS, LIMITS, CHARGES)


class Words(NamedTuple):
    """How an engine says what differs: the type of `seq`, and what makes a table append-only.

    `protect` maps each trigger of a table to the statements that make it; `triggers` is the query
    for the names of the triggers in force.
    """

    seq: str
    protect: Callable[[str], dict[str, tuple[str, ...]]]
    triggers: str


def create(connection: Connection, words: Words) -> None:
    """Version 1, written out so that later changes to the tables above cannot alter it."""
    link = f"seq {words.seq} PRIMARY KEY, at TEXT NOT NULL"
    hashes = "previous TEXT NOT NULL, hash TEXT NOT NULL"
    statements = [
        f"CREATE TABLE shoal_versions ({link}, version TEXT NOT NULL, program TEXT NOT NULL, "
        f"{hashes})",
        f"CREATE TABLE shoal_plans ({link}, plan TEXT NOT NULL UNIQUE, document TEXT NOT NULL, "
        f"{hashes})",
        f"CREATE TABLE shoal_limits ({link}, unit TEXT NOT NULL, amount TEXT NOT NULL, "
        f"subject TEXT NOT NULL, period TEXT NOT NULL, requester TEXT, {hashes})",
        f"CREATE TABLE shoal_charges ({link}, plan TEXT NOT NULL REFERENCES shoal_plans (plan), "
        "subject TEXT NOT NULL, period TEXT NOT NULL, requester TEXT NOT NULL, key TEXT, "
        f"notion TEXT NOT NULL, amount TEXT NOT NULL, eta TEXT, release TEXT NOT NULL, {hashes}, "
        "UNIQUE (requester, key))",
        "CREATE INDEX shoal_charges_data ON shoal_charges (subject, period, requester, plan)",
    ]
    for table in ("shoal_versions", "shoal_plans", "shoal_limits", "shoal_charges"):
        for making in words.protect(table).values():
            statements.extend(making)
    for statement in statements:
        connection.exec_driver_sql(statement)


Migration = Callable[[Connection, Words], None]

# MIGRATIONS[n] brings a ledger from version n to n + 1; version 0 is an empty database
MIGRATIONS: tuple[Migration, ...] = (create,)
