"""Ledgers of versions 1 and 2 open, keep their chain, and are continued subject by subject."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from shoal.core.charge import Charge
from shoal.core.errors import LedgerError, OverBudget
from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.ledger import SqlLedger, open_ledger
from shoal.ledger.database import connect
from shoal.ledger.schema import link_hash
from shoal.ledger.totals import entry_eta
from tests.ledger_plans import DATA, conversions, group, laplace
from tests.ledger_servers import KINDS, fresh_ledger

TENTH, HALF = laplace("0.1"), group("0.5")
MADE = [  # plan, subject, period, requester, key
    (TENTH, "u", "", "", "1"),
    (TENTH, "u", "", "", "2"),
    (HALF, "u", "", "", None),
    (TENTH, "u", "w2", "", None),
    (TENTH, "u", "", "ann", "1"),
    (TENTH, "v", "", "", None),
    (TENTH, "u", "", "", "3"),
]
TIMES = [1, 2, 1, 1, 1, 1, 3]
LINK, HASHES = "seq BIGINT PRIMARY KEY, at TEXT NOT NULL", "previous TEXT NOT NULL, hash TEXT"
VERSION_1 = (  # as those programs made them
    f"CREATE TABLE shoal_versions ({LINK}, version TEXT, program TEXT, {HASHES})",
    f"CREATE TABLE shoal_plans ({LINK}, plan TEXT NOT NULL UNIQUE, document TEXT, {HASHES})",
    f"CREATE TABLE shoal_limits ({LINK}, unit TEXT, amount TEXT, subject TEXT, period TEXT, "
    f"requester TEXT, {HASHES})",
    f"CREATE TABLE shoal_charges ({LINK}, plan TEXT REFERENCES shoal_plans (plan), subject TEXT, "
    "period TEXT, requester TEXT, key TEXT, notion TEXT, amount TEXT, eta TEXT, release TEXT, "
    f"{HASHES}, UNIQUE (requester, key))",
)
VERSION_2 = "ALTER TABLE shoal_charges ADD COLUMN times BIGINT"


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_ledger(request.param, tmp_path)


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def insert(connection: Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"), row)


def written(url: str, version: int) -> str:
    """A ledger as a program of that version wrote it; the hash of its end."""
    database, _ = connect(url, timeout=5, read_only=False, shared=False)

    def work(connection: Connection) -> str:
        for statement in (*VERSION_1, *([VERSION_2] if version > 1 else [])):
            connection.exec_driver_sql(statement)
        previous, times = "", iter(TIMES)
        for seq, (table, row) in enumerate(old_rows(version), 1):
            whole = {"seq": seq, "at": f"2024-01-01T00:00:{seq:02}+00:00", **row}
            whole["previous"] = previous
            previous = whole["hash"] = link_hash(table, whole)
            if version > 1 and table == "shoal_charges":
                whole["times"] = next(times)
            insert(connection, table, whole)
        return previous

    try:
        return database.migrate(work)
    finally:
        database.close()


def old_rows(version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "shoal_versions", {"version": str(version), "program": "0.1.0"}
    names = {"unit": "eta", "amount": "9/10", "subject": "*", "period": "*", "requester": None}
    yield "shoal_limits", names
    for plan in (TENTH, HALF):
        yield "shoal_plans", {"plan": plan.fingerprint, "document": dumps(plan, indent=None)}
    for plan, subject, period, requester, key in MADE:
        yield (
            "shoal_charges",
            {
                "plan": plan.fingerprint,
                "subject": subject,
                "period": period,
                "requester": requester,
                "key": key,
                "notion": plan.guarantee.notion,
                "amount": str(plan.guarantee.amount),
                "eta": str(entry_eta(plan)),
                "release": dumps(plan.release(DATA), indent=None),
            },
        )


def opened(url: str, **options: Any) -> SqlLedger:
    return open_ledger(url, conversions=conversions(), **options)


def test_the_hash_of_a_link_is_what_it_was_in_version_1() -> None:
    row = {"seq": 7, "at": "then", "plan": "p", "key": None, "previous": "é", "hash": "x"}
    assert link_hash("shoal_charges", row) == (
        "b160de8f91634fef8ffc363315e0107250baaa1990d846b487f6702d162484c4"
    )
    assert link_hash("shoal_charges", {**row, "times": 3}) == link_hash("shoal_charges", row)


def test_an_old_ledger_keeps_its_chain_and_its_values(url: str, version: int) -> None:
    head = written(url, version)
    with opened(url) as ledger:
        verdict = ledger.verify(head)
        assert verdict.problems == ()
        assert (verdict.since, verdict.charges, verdict.uncovered) == (3, len(MADE), 0)
        kept = [(e.plan, e.subject, e.period, e.requester, e.key) for e in ledger.charges()]
        assert kept == [(plan.fingerprint, *names) for plan, *names in MADE]
        assert [ledger.head(name).seq for name in "uv"] == [6, 1]
        first = ledger.release(ledger.charges()[0])
        again = Charge(plan=TENTH, subject="u", key="1")
        assert ledger.settle(again, lambda: pytest.fail("sampled again")) == first
        (change, checkpoint) = ledger.changes()
        assert (change.document["amount"], checkpoint.kind) == ("9/10", "checkpoint")


def test_what_an_old_ledger_spent_still_counts(url: str, version: int) -> None:
    written(url, version)
    eta = 5 * ETAS[TENTH] + ETAS[HALF]  # what has no period counts with the one that is named
    with opened(url) as ledger:
        total = ledger.spent("u")
        assert total is not None
        assert (total.eta, total.charges) == (eta, 6)
        room = int((ledger.limits()[0].amount - eta) / ETAS[TENTH])
        for _ in range(room):
            TENTH.release(DATA, ledger=ledger, subject="u")
        with pytest.raises(OverBudget):
            TENTH.release(DATA, ledger=ledger, subject="u")
        assert ledger.verify().intact
    with opened(url) as ledger:
        assert ledger.head("u").seq == 6 + room


def test_an_old_program_that_is_still_open_can_charge_no_more(url: str, version: int) -> None:
    written(url, version)
    with opened(url) as ledger:
        row = dict(list(old_rows(version))[-1][1])
        whole = {"seq": 100, "at": "now", **row, "key": "new", "previous": "", "hash": "0" * 64}
        with pytest.raises(LedgerError, match=r"append-only|breaks its rules"):
            ledger.database.write(lambda c: insert(c, "shoal_charges", whole))
        assert ledger.verify().intact
        newest = text("SELECT version FROM shoal_versions ORDER BY seq DESC LIMIT 1")
        assert ledger.database.read(lambda c: c.execute(newest).scalar()) == "3"


def test_an_old_ledger_that_may_not_be_written_is_read_all_the_same(url: str, version: int) -> None:
    head = written(url, version)
    before = Path(url).read_bytes() if "://" not in url else b""
    with opened(url, read_only=True) as ledger:
        for _ in range(2):
            assert len(ledger.charges()) == len(MADE)
        total = ledger.spent("u")
        assert total is not None
        assert total.charges == 6
        assert ledger.verify(head).problems == ()
        with pytest.raises(LedgerError, match=f"version {version}, older than 3"):
            TENTH.release(DATA, ledger=ledger, subject="u")
    if before:
        assert Path(url).read_bytes() == before
    with opened(url) as ledger:
        assert ledger.verify(head).since == 3


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE shoal_charges SET eta = '1/1000' WHERE seq = 6",
        "UPDATE shoal_charges SET release = '{}' WHERE seq = 6",
        "UPDATE shoal_limits SET amount = '99'",
        "DELETE FROM shoal_charges WHERE seq = 11",
        "UPDATE shoal_entries SET eta = '1/1000' WHERE subject = 'u' AND place = 1",
    ],
)
def test_a_change_to_the_old_tables_is_still_found(tmp_path: Path, change: str) -> None:
    import sqlite3
    from contextlib import closing

    file = tmp_path / "budget.db"
    written(str(file), 2)
    opened(str(file)).close()
    with closing(sqlite3.connect(file)) as connection:
        made = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = made.fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(change)
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()
    with opened(str(file), read_only=True) as ledger:
        assert not ledger.verify().intact


def _eta(plan: Plan) -> Any:
    return entry_eta(plan)


ETAS = {plan: _eta(plan) for plan in (TENTH, HALF)}
