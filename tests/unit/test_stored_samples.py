"""What version 0.2 stored still says the same: documents, totals, hash chains, streams' states.

The samples were written once (tests/stored_samples.py). Renamed classes, fields, tables or columns
that change what is stored fail here. Amounts are compared as they were, up to the last digits of
floating point on another machine.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import sqlite3
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from shoal.core.codec import Value, decode, encode, kind_of
from shoal.core.plan import Plan
from shoal.core.registry import KINDS, dumps, loads
from shoal.gateway.machines import STREAM_KINDS
from shoal.gateway.vault import Vault
from shoal.ledger import SqlLedger, open_ledger
from shoal.mechanisms.table import verify_promise
from tests.stored_samples import (
    advance_stream,
    begun_streams,
    composed,
    judged_totals,
    read_text,
    released,
)

FOLDER = Path(__file__).parents[1] / "data" / "stored-0.2"
OLDER = FOLDER.parent / "stored-0.1.jsonl"
ROUNDED_UP = 1e-14  # absolute: by how much a re-check of a mask may round up a rise of 0
CLOSE = 1e-12  # relative: the same sum on another processor


def lines(name: str) -> list[Any]:
    return [json.loads(line) for line in read_text(FOLDER / f"{name}.jsonl.gz").splitlines()]


VALUES, PLANS, STREAMS, STATES = map(lines, ("values", "plans", "streams", "gateway"))
RIDES = [json.loads(line) for line in (FOLDER.parent / "stored-rides.jsonl").open()]
SERIES = [json.loads(line) for line in (FOLDER.parent / "stored-series.jsonl").open()]
SCHEMAS = [json.loads(line) for line in (FOLDER.parent / "stored-schemas.jsonl").open()]
LEDGER = json.loads(read_text(FOLDER / "ledger.json.gz"))


def named(one: dict[str, Any]) -> str:
    return str(one["name"])


@functools.cache
def plan_with(fingerprint: str) -> Plan:
    (stored,) = (one for one in PLANS if one["fingerprint"] == fingerprint)
    plan = loads(json.dumps(stored["document"]))
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize(
    "document", [*VALUES, *RIDES, *SERIES, *SCHEMAS], ids=lambda one: one["value"]["kind"]
)
def test_a_value_comes_back_with_its_fingerprint(document: dict[str, Any]) -> None:
    value = loads(json.dumps(document))
    assert isinstance(value, Value)
    assert kind_of(type(value)) == document["value"]["kind"]
    assert value.fingerprint == document["fingerprint"]
    assert json.loads(dumps(value)) == document


def test_every_kind_was_stored() -> None:
    older = (json.loads(line)["value"] for line in OLDER.read_text().splitlines())
    stored = [one["value"] for one in VALUES] + [one["document"]["value"] for one in PLANS]
    rides = [one["value"] for one in [*RIDES, *SERIES, *SCHEMAS]]
    found = set(kinds_in([*older, *stored, *rides]))
    assert found >= {*KINDS}, "add a folder of samples with the kinds that are new"


def kinds_in(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        if "kind" in data:
            yield str(data["kind"])
        for item in data.values():
            yield from kinds_in(item)
    elif isinstance(data, list):
        for item in data:
            yield from kinds_in(item)


@pytest.mark.parametrize("stored", PLANS, ids=named)
def test_a_plan_says_what_it_said(stored: dict[str, Any]) -> None:
    plan = plan_with(stored["fingerprint"])
    assert plan.fingerprint == stored["fingerprint"]
    assert plan.mechanism == stored["mechanism"]
    assert encode(plan.guarantee) == stored["guarantee"]


@pytest.mark.parametrize("stored", PLANS, ids=named)
def test_a_plan_is_checked_and_added_as_it_was(stored: dict[str, Any]) -> None:
    plan = plan_with(stored["fingerprint"])
    assert verify_promise(plan) == pytest.approx(
        float(stored["recheck"]), rel=CLOSE, abs=ROUNDED_UP
    )
    for count, name in ((1, "once"), (2, "twice")):
        check_total(composed([plan] * count), stored[name])


def check_total(found: dict[str, Any] | None, stored: dict[str, Any] | None) -> None:
    if found is None or stored is None:
        assert found is stored
        return
    mine, theirs = dict(found), dict(stored)
    amounts = [Fraction(one.pop("amount_exact", 0)) for one in (mine, theirs)]
    assert mine == theirs
    assert math.isclose(*map(float, amounts), rel_tol=CLOSE)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    path = tmp_path / "budget.db"
    connection = sqlite3.connect(path)
    connection.executescript(read_text(FOLDER / "ledger.sql.gz"))
    connection.close()
    with open_ledger(path) as opened:
        yield opened


def test_a_ledger_verifies_as_it_did(ledger: SqlLedger) -> None:
    verdict = ledger.verify(LEDGER["head"], signer=LEDGER["signer"])
    assert verdict.problems == ()
    assert (verdict.links, verdict.charges) == (LEDGER["links"], LEDGER["charges"])
    assert (ledger.head().hash, verdict.since) == (LEDGER["head"], 1)  # one charge
    assert [repr(limit) for limit in ledger.limits()] == LEDGER["limits"]
    assert {e.hash: released(ledger, e) for e in ledger.each_charge()} == LEDGER["releases"]


def test_a_ledger_adds_up_as_it_did(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Period by period, as if each were independent of the others, which version 0.2 believed."""
    monkeypatch.setattr(
        "shoal.ledger.store.together_with", lambda counts, plan, one: frozenset([one])
    )
    found = judged_totals(ledger)
    assert len(found) == len(LEDGER["totals"])
    for mine, theirs in zip(found, LEDGER["totals"], strict=True):
        check_total(mine, theirs)


def test_periods_that_count_together_tell_no_less_than_each_did(ledger: SqlLedger) -> None:
    more = 0
    for mine, theirs in zip(judged_totals(ledger), LEDGER["totals"], strict=True):
        alone = ledger.together(mine["subject"], mine["period"]) == {mine["period"]}
        if alone:
            check_total(mine, theirs)
        elif "amount_exact" in mine:
            before = Fraction(theirs["amount_exact"]) * (1 - Fraction(CLOSE))
            assert mine["charges"] > theirs["charges"]
            assert Fraction(mine["amount_exact"]) >= before or mine["rule"] != theirs["rule"]
            more += 1
    assert more > 0


def test_a_stored_ledger_is_continued(ledger: SqlLedger) -> None:
    plan = next(one for one in PLANS if one["name"].startswith("laplace on count"))
    plan_with(plan["fingerprint"]).release(["a", "b"], ledger=ledger, subject="after the signer")
    verdict = ledger.verify(LEDGER["head"], signer=LEDGER["signer"])
    assert verdict.intact
    assert verdict.charges == LEDGER["charges"] + 1


@pytest.mark.parametrize("stored", STREAMS, ids=named)
def test_a_stream_goes_on_from_its_stored_state(stored: dict[str, Any]) -> None:
    plan = plan_with(stored["plan"])
    (kind,) = (
        type(begun) for begun in begun_streams(plan) if kind_of(type(begun)) == stored["stream"]
    )
    stream = kind.from_bytes(plan, base64.b64decode(stored["bytes"]))
    assert stream.fingerprint == stored["fingerprint"]
    assert encode(advance_stream(stream, 3)[1]) == stored["next"]
    assert decode(stored["next"], KINDS) == advance_stream(stream, 3)[1]


@pytest.mark.parametrize("stored", STATES, ids=named)
def test_a_state_of_the_gateway_goes_on(stored: dict[str, Any]) -> None:
    vault = Vault([("first", base64.b64decode(stored["key"]))])
    state = vault.open("first", base64.b64decode(stored["sealed"]), stored["place"])
    assert state == base64.b64decode(stored["state"])
    plan, kind = plan_with(stored["plan"]), STREAM_KINDS[stored["kind"]]
    after, told = kind.skip(plan, state, status="paused")
    assert [told.status, told.value] == stored["told"]
    expected = base64.b64decode(stored["after"])
    assert bytes(after) == expected
    again = kind.skip(plan, bytes(after), status="paused")
    same = kind.skip(plan, expected, status="paused")
    assert (bytes(again[0]), again[1]) == (bytes(same[0]), same[1])
