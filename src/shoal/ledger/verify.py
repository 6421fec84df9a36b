"""Whether a ledger is still what was written: every link of its chain, and what the links say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from heapq import merge
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, inspect, select

from shoal.core.errors import BudgetError, StoredError
from shoal.core.plan import Plan, Release
from shoal.core.registry import loads
from shoal.ledger.database import Database
from shoal.ledger.links import Head, link_hash
from shoal.ledger.schema import CHARGES, PLANS, TABLES, Words
from shoal.ledger.totals import entry_eta, is_step

SHOWN = 20  # problems listed; one edit breaks every link after it

Link = tuple[int, str, dict[str, Any]]  # seq, table, row


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `verify` found: no problems, or the first of them.

    `since` is how many links were added after the head that was asked for, None when none was.
    """

    head: Head
    links: int
    charges: int
    since: int | None
    problems: tuple[str, ...]

    @property
    def intact(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(database: Database, head: str | None = None) -> Verdict:
    """Read the whole ledger again and check every hash, every link and every charge.

    A changed, missing or added row breaks the chain. A cut-off end leaves a whole chain: it shows
    only against `head`, a hash noted earlier and kept elsewhere, which must still be in it.
    """
    return database.read(lambda connection: _verify(connection, database.dialect.words, head))


def _verify(connection: Connection, words: Words, wanted: str | None) -> Verdict:
    inspector = inspect(connection)
    present = {*inspector.get_table_names(), *inspector.get_temp_view_names()}
    problems = [f"table {table.name} is missing" for table in TABLES if table.name not in present]
    problems.extend(_unprotected(connection, words))
    tables = [table for table in TABLES if table.name in present]
    last, count, charges, found = Head(0, ""), 0, 0, None
    plans: dict[str, Plan] = {}
    made: Counter[tuple[str, ...]] = Counter()
    for seq, table, row in _links(connection, tables):
        problems.extend(_broken(last, table, row))
        problems.extend(_wrong(table, row, plans))
        if table == CHARGES.name:
            problems.extend(_miscounted(row, made))
        last = Head(seq, row["hash"])
        count += 1
        charges += table == CHARGES.name
        if last.hash == wanted:
            found = count
    if wanted is not None and found is None:
        problems.append(
            f"the head {wanted[:12]}… is not in the chain: the end was cut off, or this is another "
            "ledger"
        )
    more = len(problems) - SHOWN
    shown = problems[:SHOWN] + ([f"{more} more problems"] if more > 0 else [])
    since = None if found is None else count - found
    return Verdict(head=last, links=count, charges=charges, since=since, problems=tuple(shown))


def _links(connection: Connection, tables: list[Table]) -> Iterator[Link]:
    """The rows of all tables, in the order of the chain."""
    return merge(*(_rows(connection, table) for table in tables), key=itemgetter(0))


def _rows(connection: Connection, table: Table) -> Iterator[Link]:
    statement = select(table).order_by(table.c.seq).execution_options(yield_per=1000)
    for row in connection.execute(statement).mappings():
        yield row["seq"], table.name, dict(row)


def _broken(last: Head, table: str, row: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the link itself."""
    where = f"link {row['seq']} ({table})"
    if row["seq"] != last.seq + 1:
        yield f"{where} follows link {last.seq}: a row is missing or was added"
    if row["previous"] != last.hash:
        yield f"{where} does not continue the chain before it"
    if row["hash"] != link_hash(table, row):
        yield f"{where} was changed: its hash does not match its content"


def _wrong(table: str, row: dict[str, Any], plans: dict[str, Plan]) -> Iterator[str]:
    """What is wrong with what the link says; `plans` holds those seen so far."""
    where = f"link {row['seq']} ({table})"
    if table == PLANS.name:
        plan = _loaded(row["document"])
        if not isinstance(plan, Plan) or plan.fingerprint != row["plan"]:
            yield f"{where} does not hold the plan it names"
        else:
            plans[row["plan"]] = plan
    if table == CHARGES.name:
        plan = plans.get(row["plan"])
        if plan is None:
            yield f"{where} charges a plan that is not stored before it"
            return
        amounts = (plan.guarantee.notion, str(plan.guarantee.amount))
        if (row["notion"], row["amount"]) != amounts or not _may_be_eta(row["eta"], plan):
            yield f"{where} does not charge what its plan costs"
        release = _loaded(row["release"])
        if not isinstance(release, Release) or release.plan != row["plan"]:
            yield f"{where} does not hold a release of its plan"


def _may_be_eta(eta: str | None, plan: Plan) -> bool:
    """Whether a charge of the plan can have this eta; each step of a stream has its own."""
    if is_step(plan):
        return eta is None or _is_amount(eta)
    own = entry_eta(plan)
    return eta == (own and str(own))


def _is_amount(text: str) -> bool:
    try:
        return Fraction(text) >= 0
    except (ValueError, ZeroDivisionError):
        return False


def _miscounted(row: dict[str, Any], made: Counter[tuple[str, ...]]) -> Iterator[str]:
    """Whether the charge says how many of its kind there are; `made` counts those before it."""
    kind = (row["subject"], row["period"], row["requester"], row["plan"])
    made[kind] += 1
    if row["times"] != made[kind]:
        yield (
            f"link {row['seq']} ({CHARGES.name}) says it is charge {row['times']} of its kind, and "
            f"it is charge {made[kind]}"
        )


def _loaded(document: str) -> object:
    try:
        return loads(document)
    except (StoredError, BudgetError, TypeError, ValueError):
        return None


def _unprotected(connection: Connection, words: Words) -> Iterator[str]:
    """Triggers against changes that were removed or switched off."""
    active = set(connection.exec_driver_sql(words.triggers).scalars())
    for table in TABLES:
        for trigger in words.protect(table.name):
            if trigger not in active:
                yield f"trigger {trigger} is missing: {table.name} can be changed"
