"""The ledger's transaction: charged once, refused without a trace, exact to the last digit."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlalchemy import select

from shoal.core import registry
from shoal.core.charge import Charge, PerStep
from shoal.core.errors import (
    CannotCompose,
    InputError,
    LedgerError,
    OverBudget,
    PromiseBroken,
    Refused,
    StoredError,
)
from shoal.core.plan import Plan, Release
from shoal.core.task import Model
from shoal.ledger import EVERYBODY, Limit, Part, Session, SqlLedger, open_ledger
from shoal.ledger.schema import TABLES
from shoal.ledger.totals import RETRIES, Conversions
from shoal.noise.primitives import SeededRng
from tests.ledger_plans import (
    DATA,
    ENDLESS,
    alone,
    conversions,
    group,
    laplace,
    with_eta,
)
from tests.ledger_servers import KINDS, fresh_ledger

TENTH = laplace("0.1")
FIFTH = laplace("0.2")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_ledger(request.param, tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    with open_ledger(url, conversions=conversions()) as opened:
        yield opened


def content(ledger: SqlLedger) -> list[list[Any]]:
    """Every row of every table."""
    return ledger.database.read(
        lambda connection: [
            [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
            for table in TABLES
        ]
    )


def spend(ledger: SqlLedger, plan: Plan = TENTH, subject: str = "u", **names: Any) -> Release:
    part = names.get("part")
    data = DATA[: part[1] - part[0]] if isinstance(part, tuple) else DATA  # no longer than its part
    return plan.release(data, ledger=ledger, subject=subject, **names)


def always(release: Release) -> Callable[[], Release]:
    return lambda: release


def test_a_release_is_charged_with_all_that_was_asked_for(ledger: SqlLedger) -> None:
    release = spend(ledger, subject="user-17", period="w1", requester="ann", key="k")
    (entry,) = ledger.charges()
    assert entry.plan == TENTH.fingerprint
    assert (entry.subject, entry.period, entry.requester, entry.key) == (
        "user-17",
        "w1",
        "ann",
        "k",
    )
    assert (entry.place, entry.eta, entry.part) == (1, "1/10", "")
    assert ledger.release(entry) == release
    assert ledger.plan(entry.plan) == TENTH
    assert release.plan == TENTH.fingerprint
    assert ledger.verify().intact


def test_plans_are_stored_once(ledger: SqlLedger) -> None:
    for subject in ("a", "b", "a"):
        spend(ledger, subject=subject)
    assert [len(rows) for rows in content(ledger)] == [1, 0, 1, 3]


def test_the_same_key_gives_the_same_value_and_one_charge(ledger: SqlLedger) -> None:
    ledger.limit("0.1")
    first = spend(ledger, key="k")
    before = content(ledger)
    assert [spend(ledger, key="k") for _ in range(3)] == [first] * 3
    assert content(ledger) == before


def test_a_stored_value_is_returned_after_the_ledger_was_opened_again(url: str) -> None:
    with open_ledger(url) as one:
        first = spend(one, key="k")
    with open_ledger(url) as two:
        assert spend(two, key="k") == first


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({"plan": FIFTH}, "another plan"),
        ({"subject": "other"}, "another subject"),
        ({"period": "later"}, "another period"),
        ({"plan": FIFTH, "subject": "other"}, "another plan and subject"),
    ],
)
def test_a_key_used_for_something_else_is_refused(
    ledger: SqlLedger, names: dict[str, Any], told: str
) -> None:
    spend(ledger, key="k")
    before = content(ledger)
    with pytest.raises(InputError, match=told):
        spend(ledger, **{"key": "k", **names})
    assert content(ledger) == before


def test_each_requester_has_keys_of_its_own(ledger: SqlLedger) -> None:
    spend(ledger, requester="ann", key="1")
    spend(ledger, requester="bob", key="1")
    assert len(ledger.charges()) == 2


def test_releases_without_a_key_are_charged_each(ledger: SqlLedger) -> None:
    spend(ledger)
    spend(ledger)
    assert [entry.key for entry in ledger.charges()] == [None, None]


def test_amounts_are_added_and_compared_exactly(ledger: SqlLedger) -> None:
    ledger.limit("0.3")
    spend(ledger, TENTH)
    spend(ledger, FIFTH)
    total = ledger.spent("u")
    assert total is not None
    assert total.eta == Fraction(3, 10)
    assert 0.1 + 0.2 > 0.3  # what floating point would have said


def test_one_part_in_ten_to_the_17_too_much_is_refused(ledger: SqlLedger) -> None:
    sliver = Fraction(1, 10**18)
    ledger.limit("0.3")
    spend(ledger, TENTH)
    with pytest.raises(OverBudget) as caught:
        spend(ledger, with_eta(Fraction(1, 5) + sliver))
    assert caught.value.spent == "1/10"
    assert caught.value.requested == str(Fraction(1, 5) + sliver)
    assert caught.value.limit == "3/10"
    ledger.limit(Fraction(3, 10) + sliver)
    spend(ledger, with_eta(Fraction(1, 5) + sliver))
    with pytest.raises(OverBudget):
        spend(ledger, with_eta(sliver / 1000))


def test_an_over_budget_error_separates_spent_requested_and_limit(ledger: SqlLedger) -> None:
    ledger.limit("0.25", subject="u")
    spend(ledger, FIFTH)
    before = content(ledger)
    with pytest.raises(OverBudget, match=r"is 0\.25; 0\.2 is spent and 0\.1 more is") as caught:
        spend(ledger, TENTH)
    assert (caught.value.spent, caught.value.requested, caught.value.limit) == (
        "1/5",
        "1/10",
        "1/4",
    )
    assert content(ledger) == before


def test_a_refused_charge_is_never_sampled(ledger: SqlLedger) -> None:
    ledger.limit("0.05")
    with pytest.raises(OverBudget):
        ledger.settle(Charge(plan=TENTH, subject="u"), lambda: pytest.fail("sampled"))


def test_a_limit_on_epsilon_counts_after_conversion(ledger: SqlLedger) -> None:
    ledger.limit("0.5", unit="epsilon")
    spend(ledger, TENTH)  # lifted: 0.2
    spend(ledger, TENTH)  # 0.4
    before = content(ledger)
    with pytest.raises(OverBudget) as caught:
        spend(ledger, TENTH)
    assert Fraction(caught.value.spent) == Fraction(0.4)
    assert Fraction(caught.value.spent) + Fraction(caught.value.requested) == Fraction(2 * 0.3)
    assert content(ledger) == before


def test_a_limit_on_epsilon_refuses_what_the_lift_cannot_bound(url: str) -> None:
    with open_ledger(url, conversions=conversions(float("inf"))) as ledger:
        ledger.limit("5", unit="epsilon", subject="limited")
        before = content(ledger)
        with pytest.raises(CannotCompose, match="a total in entry-dp only"):
            spend(ledger, laplace("0.1", ENDLESS), subject="limited")
        assert content(ledger) == before
        spend(ledger, laplace("0.1", ENDLESS), subject="free")


def test_a_limit_on_eta_refuses_what_has_none(ledger: SqlLedger) -> None:
    ledger.limit("5")
    with pytest.raises(CannotCompose, match="has no eta to add"):
        spend(ledger, alone())


def test_charges_that_do_not_add_are_refused_even_without_a_limit(ledger: SqlLedger) -> None:
    spend(ledger, alone())
    before = content(ledger)
    with pytest.raises(CannotCompose, match="no theorem adds"):
        spend(ledger, TENTH)
    assert content(ledger) == before
    with pytest.raises(CannotCompose, match="name a period in every act"):
        spend(ledger, TENTH, period="independent of one without a name")
    spend(ledger, TENTH, subject="somebody else")
    spend(ledger, alone(), subject="somebody", period="one")
    spend(ledger, TENTH, subject="somebody", period="another")


def test_a_conversion_is_computed_once_and_not_under_the_lock(url: str) -> None:
    calls: list[Fraction] = []

    def leakage(family: tuple[Model, ...], eta: Fraction) -> float:
        calls.append(eta)
        other.limit("9", subject=f"written meanwhile {eta}")  # fails when the ledger is locked
        return float(eta)

    slow = Conversions(leakage, lambda plans: 0.0)
    with open_ledger(url, timeout=0.2) as other, open_ledger(url, conversions=slow) as ledger:
        ledger.limit("5", unit="epsilon")
        for _ in range(2):
            spend(ledger)
        assert calls == [Fraction(1, 10), Fraction(2, 10)]


def test_a_conversion_that_others_keep_outrunning_is_done_under_the_lock(url: str) -> None:
    calls: list[Fraction] = []

    def leakage(family: tuple[Model, ...], eta: Fraction) -> float:
        calls.append(eta)
        if len(calls) <= RETRIES:
            spend(other)  # so that the number just computed is of no use
        return float(eta)

    slow = Conversions(leakage, lambda plans: 0.0)
    with open_ledger(url, conversions=conversions()) as other:
        with open_ledger(url, conversions=slow) as ledger:
            ledger.limit("5", unit="epsilon")
            spend(ledger)
        assert calls == [Fraction(n, 10) for n in range(1, RETRIES + 2)]


def test_a_family_the_lift_refuses_is_a_reason_not_a_crash(url: str) -> None:
    def leakage(family: tuple[Model, ...], eta: Fraction) -> float:
        raise Refused("two numbers are not a transition matrix")

    with open_ledger(url, conversions=Conversions(leakage, lambda plans: 0.0)) as ledger:
        spend(ledger, laplace("0.1", ENDLESS))
        with pytest.raises(CannotCompose, match="not a transition matrix"):
            spend(ledger, laplace("0.1", ENDLESS))


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [
        (Limit(unit="eta", amount=Fraction(1, 10)), {"v": True, "w2": True, "bob": False}),
        (
            Limit(unit="eta", amount=Fraction(1, 10), subject="u", period="w1"),
            {"v": True, "w2": True, "bob": False},
        ),
        (
            Limit(unit="eta", amount=Fraction(1, 10), requester="*"),
            {"v": True, "w2": True, "bob": True},
        ),
        (
            Limit(unit="eta", amount=Fraction(1, 10), requester="bob"),
            {"v": True, "w2": True, "bob": True},
        ),
        (Limit(unit="eta", amount=Fraction(0), subject="v"), {"v": False, "w2": True, "bob": True}),
        (Limit(unit="eta", amount=Fraction(0), period="w2"), {"v": True, "w2": False, "bob": True}),
    ],
    ids=lambda value: value.describe() if isinstance(value, Limit) else "",
)
def test_a_limit_covers_its_subject_period_and_requester(
    ledger: SqlLedger, limit: Limit, allowed: dict[str, bool]
) -> None:
    spend(ledger, subject="u", period="w1", requester="ann")
    ledger.limit(
        limit.amount,
        unit=limit.unit,
        subject=limit.subject,
        period=limit.period,
        requester=limit.requester,
    )
    asked: dict[str, dict[str, Any]] = {
        "v": {"subject": "v", "period": "w1", "requester": "ann"},
        "w2": {"subject": "u", "period": "w2", "requester": "ann"},
        "bob": {"subject": "u", "period": "w1", "requester": "bob"},
    }
    for name, names in asked.items():
        if allowed[name]:
            spend(ledger, **names)
        else:
            with pytest.raises(OverBudget):
                spend(ledger, **names)


def test_a_later_limit_replaces_the_one_on_the_same_scope(ledger: SqlLedger) -> None:
    ledger.limit("0.1")
    ledger.limit("1", requester="*")
    ledger.limit("0.2")
    assert {limit.requester: limit.amount for limit in ledger.limits()} == {
        None: Fraction(1, 5),
        "*": Fraction(1),
    }
    spend(ledger)
    spend(ledger)
    with pytest.raises(OverBudget):
        spend(ledger)


def test_periods_are_independent_and_keep_the_largest(ledger: SqlLedger) -> None:
    for period in ("w1", "w2", "w2"):
        spend(ledger, period=period)
    total = ledger.spent("u", "*")
    assert total is not None
    assert (total.eta, total.rule, total.charges) == (Fraction(1, 5), "parallel", 3)
    assert ledger.spent("nobody") is None
    assert ledger.spent("u", "w3") is None
    assert ledger.accounts() == [("u", "w1"), ("u", "w2")]


def test_what_one_requester_was_told_is_told_apart(ledger: SqlLedger) -> None:
    spend(ledger, TENTH, requester="ann")
    spend(ledger, FIFTH, requester="bob")
    ann = ledger.spent("u", requester="ann")
    assert ann is not None
    assert ann.eta == Fraction(1, 10)
    assert ledger.spent("u", requester="eve") is None


@pytest.mark.parametrize("plans", [(group("0.5"), TENTH), (TENTH, laplace("0.1", ENDLESS))])
def test_different_mechanisms_and_families_add(ledger: SqlLedger, plans: tuple[Plan, Plan]) -> None:
    for plan in plans:
        spend(ledger, plan)
    total = ledger.spent("u")
    assert total is not None
    assert total.charges == 2


def test_a_sampler_that_fails_is_not_charged(ledger: SqlLedger) -> None:
    before = content(ledger)

    def fail() -> Release:
        raise OSError("no randomness")

    with pytest.raises(OSError, match="no randomness"):
        ledger.settle(Charge(plan=TENTH, subject="u", key="k"), fail)
    assert content(ledger) == before


def test_seeded_and_foreign_releases_are_refused(ledger: SqlLedger) -> None:
    before = content(ledger)
    seeded = TENTH.release(DATA, rng=SeededRng(1))
    with pytest.raises(InputError, match="seeded"):
        spend(ledger, rng=SeededRng(1))
    for release, told in ((seeded, "seeded"), (FIFTH.release(DATA), "another plan")):
        with pytest.raises(InputError, match=told):
            ledger.settle(Charge(plan=TENTH, subject="u"), always(release))
    assert content(ledger) == before


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({"subject": ""}, "nothing says whose data it is"),
        ({"subject": "*"}, "stands for each one"),
        ({"requester": "*"}, "stands for each one"),
        ({"period": "a\0b"}, "NUL"),
        ({"subject": "\ud800"}, "half a character"),
        ({"key": ""}, "key is empty"),
        ({"subject": "é" * 251}, "subject has 502 bytes; it must have at most 500"),
        ({"key": "k" * 2001}, "key has 2,001 bytes"),
        ({"subject": 17}, "must be text"),
    ],
)
def test_names_that_cannot_be_kept_are_refused(
    ledger: SqlLedger, names: dict[str, Any], told: str
) -> None:
    before = content(ledger)
    with pytest.raises(InputError, match=told):
        spend(ledger, **names)
    assert content(ledger) == before


def test_names_as_long_as_may_be_are_kept(ledger: SqlLedger) -> None:
    rng = random.Random(8)  # what repeats would be packed by PostgreSQL, and fit anyway
    name, key = (bytes(rng.choices(range(33, 127), k=k)).decode() for k in (500, 2000))
    release = spend(ledger, subject=name, period=name, requester=name, key=key)
    assert spend(ledger, subject=name, period=name, requester=name, key=key) == release


@pytest.mark.parametrize("name", ["Zoë ☃ 𝄞", "a'; DROP TABLE shoal_entries; --", " ", "%s :x {}"])
def test_any_other_name_is_kept_as_it_is(ledger: SqlLedger, name: str) -> None:
    release = spend(ledger, subject=name, period=name, requester=name, key=name)
    assert spend(ledger, subject=name, period=name, requester=name, key=name) == release
    assert ledger.charges()[0].subject == name
    assert ledger.verify().intact


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"amount": "-1"}, "0 or more"),
        ({"amount": "much"}, "finite number"),
        ({"amount": "1", "unit": "delta"}, "must be one of"),
        ({"amount": "1", "subject": ""}, "subject is empty"),
    ],
)
def test_limits_that_make_no_sense_are_refused(
    ledger: SqlLedger, arguments: dict[str, Any], told: str
) -> None:
    before = content(ledger)
    with pytest.raises(InputError, match=told):
        ledger.limit(**arguments)
    assert content(ledger) == before


def test_a_plan_that_could_not_be_loaded_again_is_refused(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(registry.KINDS, "laplace-certificate")
    before = content(ledger)
    with pytest.raises(StoredError, match="laplace-certificate"):
        spend(ledger)
    assert content(ledger) == before


def test_a_forked_child_charges_through_connections_of_its_own(ledger: SqlLedger) -> None:
    spend(ledger, key="parent")
    parents = ledger.database.engine.pool
    child = os.fork()
    if child == 0:
        status = 1
        try:
            spend(ledger, key="child")
            status = 2 if ledger.database.engine.pool is parents else 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    spend(ledger, key="parent again")
    assert sorted(entry.key or "" for entry in ledger.charges()) == [
        "child",
        "parent",
        "parent again",
    ]
    assert ledger.verify().intact


def test_a_session_fills_in_the_names(url: str) -> None:
    with Session(url, subject="user-17", period="w1", requester="ann") as session:
        assert session.spent() is None
        first = session.release(TENTH, DATA, key="k")
        assert session.release(TENTH, DATA, key="k") == first
        total = session.spent()
    assert total is not None
    assert total.charges == 1
    with open_ledger(url) as ledger:
        (entry,) = ledger.charges()
        assert (entry.subject, entry.period, entry.requester) == ("user-17", "w1", "ann")
        with Session(ledger, subject="user-18") as other:
            other.release(TENTH, DATA)
        assert len(ledger.charges()) == 2  # still open


def test_an_order_of_magnitude_of_charges_keeps_one_chain(ledger: SqlLedger) -> None:
    for number in range(30):
        spend(ledger, subject=f"s{number % 3}", key=str(number))
    verdict = ledger.verify()
    assert (verdict.charges, verdict.intact) == (30, True)
    assert verdict.head == ledger.head()
    assert [ledger.head(f"s{number}").seq for number in range(3)] == [10, 10, 10]


@pytest.mark.parametrize("where", ["", ":memory:", "sqlite://", "sqlite:///:memory:"])
def test_a_ledger_in_memory_is_refused(where: str) -> None:
    with pytest.raises(LedgerError, match="forget"):
        open_ledger(where)


def test_other_databases_are_refused() -> None:
    with pytest.raises(LedgerError, match="for mysql"):
        open_ledger("mysql://somewhere/budget")
    with pytest.raises(LedgerError, match="cannot be read"):
        open_ledger("://")


def test_parts_of_one_series_are_charged_entry_by_entry(ledger: SqlLedger) -> None:
    ledger.limit("0.2")
    for day in range(5):
        spend(ledger, part=(10 * day, 10 * day + 10))
        spend(ledger, part=(10 * day, 10 * day + 5))
    total = ledger.spent("u")
    assert total is not None
    assert (total.eta, total.charges, total.rule) == (Fraction(1, 5), 10, "lift")
    with pytest.raises(OverBudget):
        spend(ledger, part=(7, 13))  # meets both first halves' neighbours: 7..10 and 10..13
    spend(ledger, part=(5, 10))
    with pytest.raises(OverBudget):
        spend(ledger)  # reads everything
    assert [entry.part for entry in ledger.charges()][:2] == ["0..10", "0..5"]
    assert ledger.verify().intact


def test_named_parts_share_no_entry_and_a_key_belongs_to_its_part(ledger: SqlLedger) -> None:
    ledger.limit("0.1")
    first = spend(ledger, part="2024-W07", key="k")
    spend(ledger, part=Part(name="2024-W08"))
    assert spend(ledger, part="2024-W07", key="k") == first
    with pytest.raises(InputError, match="another part"):
        spend(ledger, part="2024-W08", key="k")
    with pytest.raises(OverBudget):
        spend(ledger, part="2024-W07")


def test_a_key_of_a_day_stored_without_its_unit_still_brings_the_release_back(
    ledger: SqlLedger,
) -> None:
    """Earlier versions stored the seconds of a day as if they were numbers of entries."""
    day = (1709510400, 1709596800)
    first = spend(ledger, part=Part(span=day), key="k")
    assert spend(ledger, part=Part(span=day, seconds=True), key="k") == first
    assert len(ledger.charges()) == 1
    assert spend(ledger, part=Part(span=(day[0], day[1] + 1), seconds=True), key="k") == first
    with pytest.raises(InputError, match="another part"):
        spend(ledger, part=Part(span=(day[1], day[1] + 86_400), seconds=True), key="k")
    spend(ledger, part=Part(span=day, seconds=True), key="new")
    total = ledger.spent("u")
    assert total is not None
    assert total.eta == Fraction(1, 5)  # whether they meet nobody knows


def test_a_lifetime_limit_adds_up_periods_that_call_themselves_independent(
    ledger: SqlLedger,
) -> None:
    ledger.limit("0.2", period=None)
    ledger.limit("0.1")
    spend(ledger, period="w1")
    with pytest.raises(OverBudget, match="in each period"):
        spend(ledger, period="w1")
    spend(ledger, period="w2")
    with pytest.raises(OverBudget, match="in all periods together"):
        spend(ledger, period="w3")
    together, apart = ledger.spent("u", None), ledger.spent("u", "*")
    assert together is not None
    assert apart is not None
    assert (together.eta, apart.eta) == (Fraction(1, 5), Fraction(1, 10))
    with open_ledger(ledger.database.engine.url.render_as_string(hide_password=False)) as again:
        assert {limit.period for limit in again.limits()} == {None, "*"}


def test_an_aggregate_charges_its_members(ledger: SqlLedger) -> None:
    ledger.limit("0.2", subject="bob")
    spend(ledger, subject="bob")
    release = spend(ledger, subject="all of us", members=("ann", "bob"), key="k")
    again = spend(ledger, subject="all of us", members=("ann", "bob"), key="k")
    assert again == release
    before = content(ledger)
    with pytest.raises(OverBudget, match="subject 'bob'"):
        spend(ledger, subject="all of us", members=("ann", "bob"))
    with pytest.raises(OverBudget):
        spend(ledger, subject="bob")
    assert content(ledger) == before
    assert {e.subject: ledger.head(e.subject).seq for e in ledger.charges()} == {
        "ann": 1,
        "bob": 2,
        "all of us": 1,
    }
    (own,) = [entry for entry in ledger.charges() if entry.subject == "all of us"]
    assert own.members is not None
    assert own.members.startswith("2 ")
    assert "ann" not in own.members  # a hash of the names, not the names
    for wrong in (("ann", "ann"), ("", "ann"), ("all of us",), ("*", "ann")):
        with pytest.raises(InputError, match="members"):
            spend(ledger, subject="all of us", members=wrong)
    assert ledger.verify().intact


def test_what_is_about_everybody_counts_for_each(ledger: SqlLedger) -> None:
    ledger.limit("0.2")
    spend(ledger, subject="ann")
    spend(ledger, subject="town", members=EVERYBODY)
    for name in ("ann", "somebody new"):
        total = ledger.spent(name)
        assert total is not None
        assert total.eta == (Fraction(1, 5) if name == "ann" else Fraction(1, 10))
    with pytest.raises(OverBudget):
        spend(ledger, subject="ann")
    spend(ledger, subject="somebody new")
    town = ledger.spent("town")
    assert town is not None
    assert (town.eta, town.charges) == (Fraction(1, 10), 1)  # one release, read once
    assert [(name, total) for name, _, total in ledger.totals("town")] == [("town", town)]
    before = content(ledger)
    with pytest.raises(OverBudget):
        spend(ledger, subject="town", members=EVERYBODY)  # ann has no room
    assert content(ledger) == before
    assert ledger.verify().intact


def test_charges_can_be_settled_in_a_transaction_of_the_callers_own(ledger: SqlLedger) -> None:
    """Beside what belongs to them: both are there, or neither."""
    ledger.database.migrate(
        lambda connection: connection.exec_driver_sql("CREATE TABLE outputs (shown TEXT)")
    )
    charge = Charge(plan=TENTH, subject="u", key="slot 7")

    def work(connection: Any) -> Any:
        (outcome,) = ledger.settle_all([charge], lambda _: [TENTH.release(DATA)], connection)
        connection.exec_driver_sql("INSERT INTO outputs VALUES ('x')")
        return outcome

    def fails(connection: Any) -> Any:
        work(connection)
        raise OSError("the device went away")

    with pytest.raises(OSError, match="device"):
        ledger.database.write(fails)
    assert ledger.charges() == []
    first = ledger.database.write(work)
    assert ledger.database.write(work) == first  # the reading is its own key
    assert len(ledger.charges()) == 1
    ledger.limit("0.1")
    (refused,) = ledger.database.write(
        lambda c: ledger.settle_all([Charge(plan=TENTH, subject="u")], lambda _: [], c)
    )
    assert isinstance(refused, OverBudget)
    assert ledger.verify().intact


def test_a_plan_that_says_what_is_not_so_is_not_charged(url: str) -> None:
    forged = replace(TENTH, guarantee=replace(TENTH.guarantee, amount=Fraction(1, 1000)))
    cheap = replace(TENTH, composition=(PerStep(Fraction(1, 1000)),))
    with open_ledger(url) as ledger:
        before = content(ledger)
        for plan in (forged, cheap):
            with pytest.raises(PromiseBroken, match="it was changed; calibrate it again"):
                spend(ledger, plan)
        assert content(ledger) == before
        spend(ledger, TENTH)


def test_all_series_in_one_release_are_its_members(ledger: SqlLedger) -> None:
    """Whoever releases many together charges each of them, and may say otherwise."""
    table = pl.DataFrame({"user": ["ann"] * 4 + ["bob"] * 4, "state": ["0", "1"] * 4})
    plan = laplace("0.1")
    named: dict[str, Any] = {"state": "state", "series": "user", "together": True, "ledger": ledger}
    plan.release(table, subject="town", **named)
    assert ledger.accounts() == [("ann", ""), ("bob", ""), ("town", "")]
    plan.release(table, subject="ann", **named)  # one of them: charged once
    plan.release(table, subject="county", members=[], **named)
    plan.release(table, subject="land", members="everybody", **named)
    counts = [len(ledger.charges(name)) for name in ("ann", "bob", "county")]
    assert counts == [2, 2, 1]
    assert ledger.charges("land")[0].members == "*"
    with pytest.raises(InputError, match="members is 'ann'; give a list of names"):
        plan.release(table, subject="town", members="ann", **named)
