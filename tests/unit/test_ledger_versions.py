"""Ledgers of version 1 open, keep their chain, and count what they hold from then on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text

from shoal.core.errors import LedgerError, OverBudget
from shoal.core.plan import Charge, Plan
from shoal.core.registry import dumps
from shoal.ledger import SqlLedger, open_ledger
from shoal.ledger.charging import fields, stored_release
from shoal.ledger.database import connect
from shoal.ledger.links import link_hash
from shoal.ledger.schema import MIGRATIONS
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


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_ledger(request.param, tmp_path)


def insert(connection: Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"), row)


def written_by_version_1(url: str) -> str:
    """A ledger as the program of version 1 wrote it; the hash of its end."""
    database, _ = connect(url, timeout=5, read_only=False)

    def work(connection: Connection) -> str:
        MIGRATIONS[0](connection, database.dialect.words)
        previous = ""
        for seq, (table, row) in enumerate(rows_of_version_1(), 1):
            whole = {"seq": seq, "at": f"2024-01-01T00:00:{seq:02}+00:00", **row}
            whole["previous"] = previous
            previous = whole["hash"] = link_hash(table, whole)
            insert(connection, table, whole)
        return previous

    try:
        return database.migrate(work)
    finally:
        database.close()


def rows_of_version_1() -> Iterator[tuple[str, dict[str, str | None]]]:
    yield "shoal_versions", {"version": "1", "program": "0.1.0"}
    names = {"unit": "eta", "amount": "9/10", "subject": "*", "period": "*", "requester": None}
    yield "shoal_limits", names
    for plan in (TENTH, HALF):
        yield (
            "shoal_plans",
            {"plan": plan.fingerprint, "document": dumps(plan, indent=None)},
        )
    for plan, subject, period, requester, key in MADE:
        charge = Charge(plan=plan, subject=subject, period=period, requester=requester, key=key)
        yield "shoal_charges", fields(charge, plan.release(DATA))


def opened(url: str, **options: Any) -> SqlLedger:
    return open_ledger(url, conversions=conversions(), **options)


def test_the_hash_of_a_link_is_what_it_was_in_version_1() -> None:
    row = {"seq": 7, "at": "then", "plan": "p", "key": None, "previous": "é", "hash": "x"}
    assert link_hash("shoal_charges", row) == (
        "b160de8f91634fef8ffc363315e0107250baaa1990d846b487f6702d162484c4"
    )
    assert link_hash("shoal_charges", {**row, "times": 3}) == link_hash("shoal_charges", row)


def test_an_old_ledger_keeps_its_chain_and_is_counted(url: str) -> None:
    head = written_by_version_1(url)
    with opened(url) as ledger:
        verdict = ledger.verify(head)
        assert verdict.problems == ()
        assert (verdict.since, verdict.charges) == (1, len(MADE))
        charges = ledger.charges()
        assert [entry.times for entry in charges] == TIMES
        assert charges[-1].hash == head
        kept = stored_release(charges[0])
        again = Charge(plan=TENTH, subject="u", key="1")
        assert ledger.settle(again, lambda: pytest.fail("sampled again")) == kept


def test_what_an_old_ledger_spent_still_counts(url: str) -> None:
    written_by_version_1(url)
    eta = 4 * TENTH_ETA + ETA_OF_HALF
    with opened(url) as ledger:
        total = ledger.spent("u")
        assert total is not None
        assert (total.eta, total.charges) == (eta, 5)
        room = int((ledger.limits()[0].amount - eta) / TENTH_ETA)
        for _ in range(room):
            TENTH.release(DATA, ledger=ledger, subject="u")
        with pytest.raises(OverBudget):
            TENTH.release(DATA, ledger=ledger, subject="u")
        assert ledger.verify().intact
    with opened(url) as ledger:
        counted = Counter((e.subject, e.period, e.requester, e.plan) for e in ledger.charges())
        last = {(e.subject, e.period, e.requester, e.plan): e.times for e in ledger.charges()}
        assert last == dict(counted)


def test_a_program_of_version_1_that_is_still_open_can_charge_no_more(url: str) -> None:
    """It does not know that charges are counted."""
    written_by_version_1(url)
    with opened(url) as ledger:
        before = ledger.head()
        charge = Charge(plan=TENTH, subject="u")
        row = {"seq": 100, "at": "now", **fields(charge, TENTH.release(DATA))}
        whole = {**row, "previous": before.hash, "hash": "0" * 64}
        with pytest.raises(LedgerError):
            ledger.database.write(lambda c: insert(c, "shoal_charges", whole))
        assert ledger.head() == before


def test_an_old_ledger_that_may_not_be_written_is_read_as_it_is(url: str) -> None:
    head = written_by_version_1(url)
    before = Path(url).read_bytes() if "://" not in url else b""
    with opened(url, read_only=True) as ledger:
        for _ in range(2):
            assert [entry.times for entry in ledger.charges()] == TIMES
        total = ledger.spent("u")
        assert total is not None
        assert total.charges == 5
        assert ledger.verify(head).problems == ()
        assert ledger.head().hash == head
        with pytest.raises(LedgerError, match="version 1, older than 2"):
            TENTH.release(DATA, ledger=ledger, subject="u")
    if before:
        assert Path(url).read_bytes() == before
    with opened(url) as ledger:
        assert ledger.verify(head).since == 1


def test_triggers_and_rules_are_those_of_a_new_ledger(url: str, tmp_path: Path) -> None:
    written_by_version_1(url)
    kind = "postgres" if "://" in url else "sqlite"
    new = fresh_ledger(kind, tmp_path)

    def shape(ledger: SqlLedger) -> Any:
        def work(connection: Connection) -> Any:
            found = inspect(connection)
            return (
                sorted(index["name"] or "" for index in found.get_indexes("shoal_charges")),
                [(c["name"], c["nullable"]) for c in found.get_columns("shoal_charges")],
                found.get_foreign_keys("shoal_charges")[0]["referred_columns"],
                found.get_unique_constraints("shoal_charges")[0]["column_names"],
            )

        return ledger.database.read(work)

    with opened(url) as old, opened(new) as fresh:
        assert shape(old) == shape(fresh)
        with pytest.raises(LedgerError, match=r"append-only|breaks its rules"):
            old.database.write(lambda c: c.execute(text("UPDATE shoal_charges SET times = 1")))
        with pytest.raises(LedgerError, match=r"append-only|breaks its rules"):
            old.database.write(lambda c: c.execute(text("DELETE FROM shoal_charges")))


def _eta(plan: Plan) -> Any:
    from shoal.ledger.totals import entry_eta

    return entry_eta(plan)


TENTH_ETA, ETA_OF_HALF = _eta(TENTH), _eta(HALF)
