"""A charge that cannot be read blocks its subject, in every period, and nobody else.

The rows are added as a newer program would: in the chain, under right hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from shoal.core import codec
from shoal.core.charge import Charge
from shoal.core.errors import BudgetError
from shoal.core.plan import Release
from shoal.core.registry import dumps
from shoal.ledger import SqlLedger, open_ledger
from shoal.ledger.accounts import UnreadableCharge
from shoal.ledger.schema import ENTRIES, entry_hash
from tests.ledger_plans import DATA, laplace
from tests.ledger_servers import KINDS, fresh_ledger

PLAN = laplace("0.1")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_ledger(request.param, tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    with open_ledger(url) as opened:
        release(opened, "ann")
        release(opened, "bob")
        yield opened


def release(ledger: SqlLedger, subject: str, **names: Any) -> Release:
    return PLAN.release(DATA, ledger=ledger, subject=subject, **names)


def foreign_document(change: str) -> tuple[str, str]:
    """The fingerprint and document of a plan that a newer program made."""
    document = json.loads(dumps(PLAN))
    value = document["value"]
    match change:
        case "mechanism":
            value["body"]["kind"] = "later-body"
        case "rule":
            value["composition"] = [{"kind": "later-rule", "amount": 1}]
        case "field":
            value["later_field"] = 1
        case "model":
            value["task"]["family"][0]["kind"] = "later-model"
    document["fingerprint"] = codec.digest(value)
    return document["fingerprint"], json.dumps(document)


def add_row(ledger: SqlLedger, subject: str, **changes: Any) -> None:
    """Add the next row of a subject's chain, a copy of ann's first but for `changes`."""
    (first, *_) = ledger.charges("ann")
    head = ledger.head(subject)
    row = {**first._asdict(), "subject": subject, "place": head.seq + 1, "key": None, **changes}
    del row["hash"]
    row["hash"] = entry_hash(head.hash, list(row.values()))
    ledger.database.write(lambda connection: connection.execute(ENTRIES.insert(), row))


def add_plan(ledger: SqlLedger, change: str) -> str:
    name, document = foreign_document(change)
    asked = text("INSERT INTO shoal_documents (plan, document) VALUES (:plan, :document)")
    row = {"plan": name, "document": document}
    ledger.database.write(lambda connection: connection.execute(asked, row))
    return name


def check_blocked(ledger: SqlLedger, url: str, subject: str, **names: Any) -> None:
    """Nothing is released or stored about a subject, by this process or another."""
    before = ledger.charges(subject)
    with open_ledger(url) as other:
        for opened in (ledger, other):
            with pytest.raises(UnreadableCharge, match="cannot be read"):
                opened.settle(Charge(plan=PLAN, subject=subject, **names), drawn_in_vain)
    assert ledger.charges(subject) == before


def drawn_in_vain() -> Release:
    """A draw that no charge pays for: its value is dropped when the charge is refused."""
    return PLAN.released(PLAN.release(DATA).answer, secure=True)


@pytest.mark.parametrize("change", ["mechanism", "rule", "field", "model"])
@pytest.mark.parametrize("period", ["", "another"])
def test_a_plan_of_an_unknown_kind_blocks_its_subject(
    ledger: SqlLedger, url: str, change: str, period: str
) -> None:
    add_row(ledger, "ann", plan=add_plan(ledger, change), period=period)
    check_blocked(ledger, url, "ann")
    check_blocked(ledger, url, "ann", key="a key")
    check_blocked(ledger, url, "ann", period="a new one")
    release(ledger, "bob")


def test_a_plan_that_is_not_stored_blocks_its_subject(ledger: SqlLedger, url: str) -> None:
    add_row(ledger, "ann", plan="0" * 64, period="another")
    check_blocked(ledger, url, "ann")
    release(ledger, "bob")


def test_a_part_that_cannot_be_read_blocks_its_subject(ledger: SqlLedger, url: str) -> None:
    add_row(ledger, "ann", part="rows 1 to 5", period="another")
    check_blocked(ledger, url, "ann")
    release(ledger, "bob")


def test_a_charge_about_everybody_blocks_everybody(ledger: SqlLedger, url: str) -> None:
    add_row(ledger, "*", plan=add_plan(ledger, "mechanism"), value=None, members="of 0")
    check_blocked(ledger, url, "ann")
    check_blocked(ledger, url, "somebody new")


def test_an_aggregate_is_blocked_by_a_member(ledger: SqlLedger) -> None:
    add_row(ledger, "ann", plan=add_plan(ledger, "mechanism"), period="another")
    for members in (("ann", "bob"), ("*",)):
        with pytest.raises(UnreadableCharge):
            ledger.settle(Charge(plan=PLAN, subject="ward", members=members), drawn_in_vain)
    assert not ledger.charges("ward")


def test_one_subject_blocks_no_other_in_a_batch(ledger: SqlLedger) -> None:
    add_row(ledger, "ann", plan=add_plan(ledger, "mechanism"))
    charges = [Charge(plan=PLAN, subject=name) for name in ("bob", "ann", "carl")]
    drawn: list[int] = []

    def sample(places: list[int]) -> list[Release]:
        drawn.extend(places)
        answer = PLAN.release(DATA).answer
        return [PLAN.released(answer, secure=True) for _ in places]

    bob, ann, carl = ledger.settle_all(charges, sample)
    assert isinstance(bob, Release)
    assert isinstance(ann, BudgetError)
    assert isinstance(carl, Release)
    assert 1 not in drawn


def test_a_stream_known_in_memory_is_blocked_by_what_comes_after(
    ledger: SqlLedger, url: str
) -> None:
    for _ in range(10):  # then there is room for more charges of this kind, judged beforehand
        release(ledger, "ann")
    add_row(ledger, "ann", plan=add_plan(ledger, "mechanism"), period="another")
    check_blocked(ledger, url, "ann")


def test_verify_tells_of_charges_it_cannot_read(ledger: SqlLedger) -> None:
    add_row(ledger, "ann", plan=add_plan(ledger, "mechanism"))
    (problem, *_) = ledger.verify().problems
    assert "charge 2 about 'ann' charges a plan that is not stored, or was changed" in problem
