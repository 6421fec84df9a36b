"""The tables of a ledger, and the steps that bring an older ledger to them.

Every row of every table is a link of one hash chain (`links`): a row is added once and never
changed, which triggers enforce and `verify` checks. A column that only repeats what earlier rows
say (`DERIVED`) is not hashed: `verify` works it out again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text

METADATA = MetaData()


def _linked(name: str, *columns: Column[str], derived: tuple[Column[Any], ...] = ()) -> Table:
    """A table whose rows are links: place in the chain, time, own columns, two hashes."""
    return Table(
        name,
        METADATA,
        Column("seq", BigInteger, primary_key=True),
        Column("at", Text, nullable=False),
        *columns,
        Column("previous", Text, nullable=False),
        Column("hash", Text, nullable=False),
        *derived,
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

# notion and amount are the plan's guarantee; amounts are exact rationals "p/q"; times is how often
# this requester was charged for this plan about this subject in this period, up to this row: what
# was spent is read off the last row of each kind, however many there are
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
    derived=(Column("times", BigInteger, nullable=False),),
)

TABLES = (VERSIONS, PLANS, LIMITS, CHARGES)
DERIVED = frozenset({"times"})


class Words(NamedTuple):
    """How an engine says what differs: the type of `seq`, and what makes a table append-only.

    `protect` maps each trigger of a table to the statements that make it; `triggers` is the query
    for the names of the triggers in force; `counting` are the statements that give every charge
    its `times` (`COUNTED`) and refuse charges without it from then on; `as_counted` lets a
    connection see the charges of version 1 as if they had been given it.
    """

    seq: str
    protect: Callable[[str], dict[str, tuple[str, ...]]]
    triggers: str
    counting: tuple[str, ...]
    as_counted: str


# how often each kind of charge had been made, counted from the rows themselves
COUNTED = "row_number() OVER (PARTITION BY subject, period, requester, plan ORDER BY seq)"


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


def count_charges(connection: Connection, words: Words) -> None:
    """Version 2: every charge says how many of its kind there are, so that nobody counts them.

    The first of each kind is in an index of its own, which finds the kinds of one account; it
    holds `times`, always 1, so that SQLite takes it rather than the larger one.
    """
    for statement in (
        *words.counting,
        "DROP INDEX IF EXISTS shoal_charges_data",
        "CREATE UNIQUE INDEX shoal_charges_times ON shoal_charges "
        "(subject, period, requester, plan, times)",
        "CREATE INDEX shoal_charges_first ON shoal_charges "
        "(subject, period, times, requester, plan) WHERE times = 1",
    ):
        connection.exec_driver_sql(statement)


Migration = Callable[[Connection, Words], None]

# MIGRATIONS[n] brings a ledger from version n to n + 1; version 0 is an empty database
MIGRATIONS: tuple[Migration, ...] = (create, count_charges)
