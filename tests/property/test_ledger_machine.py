"""The ledger against a plain model of it: a list of charges and a dictionary of limits."""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import select

from shoal.core.charge import Charge
from shoal.core.errors import InputError, OverBudget
from shoal.core.plan import Plan, Release
from shoal.ledger import open_ledger
from shoal.ledger.schema import TABLES
from shoal.ledger.totals import entry_eta
from tests.ledger_plans import DATA, conversions, group, laplace
from tests.ledger_servers import fresh_ledger

LIFT = 2.0
PLANS = (laplace("0.1"), laplace("0.2"), laplace("1/3"), group("2"))
ETAS = {plan: entry_eta(plan) or Fraction(0) for plan in PLANS}

plans = st.sampled_from(PLANS)
subjects = st.sampled_from(["u", "v"])
periods = st.sampled_from(["", "w2", "w2", "w3", "w3"])
requesters = st.sampled_from(["", "ann"])
keys = st.sampled_from([None, "1", "2", "3"])
amounts = st.fractions(min_value=0, max_value=1, max_denominator=60)


class Row(NamedTuple):
    plan: Plan
    subject: str
    period: str
    requester: str
    key: str | None
    release: Release


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # not for its durability: every step would wait for the disk
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.url = self.where()
        self.open()
        self.rows: list[Row] = []
        self.limits: dict[tuple[Any, ...], Fraction] = {}

    def where(self) -> str:
        return str(self.folder / "budget.db")

    def open(self) -> None:
        self.ledger = open_ledger(self.url, conversions=conversions(LIFT))

    def teardown(self) -> None:
        assert self.ledger.verify().intact
        self.ledger.close()
        shutil.rmtree(self.folder)

    def content(self) -> list[Any]:
        return self.ledger.database.read(
            lambda connection: [
                tuple(row)
                for table in TABLES
                for row in connection.execute(select(table).order_by(*table.primary_key))
            ]
        )

    def spent(self, unit: str, subject: str, period: str, requester: str | None) -> Fraction:
        """What a reader of the definitions would compute."""
        eta = self.eta(subject, period, requester)
        return eta if unit == "eta" else Fraction(LIFT * float(eta))

    def together(self, subject: str, period: str) -> set[str]:
        """What has no period counts with every period; two that are named are independent."""
        used = {row.period for row in self.rows if row.subject == subject} | {period}
        return used if "" in used else {period}

    def eta(
        self,
        subject: str,
        period: str,
        requester: str | None,
        more: Fraction = Fraction(0),
        *,
        all_of_them: bool = False,
    ) -> Fraction:
        """The charges without a period, and the most of any period that is named."""
        used = {row.period for row in self.rows if row.subject == subject} | {period}
        about = used if all_of_them else self.together(subject, period)
        sums = dict.fromkeys(about, Fraction(0))
        for row in self.rows:
            if row.subject == subject and row.period in sums and requester in (None, row.requester):
                sums[row.period] += ETAS[row.plan]
        sums[period] += more
        return sums.pop("", Fraction(0)) + max(sums.values(), default=Fraction(0))

    def too_much(self, plan: Plan, subject: str, period: str, requester: str) -> bool:
        for (unit, *scope), amount in self.limits.items():
            about = {*self.together(subject, period), "*", ""}  # without a name: of any period
            if (
                scope[0] not in ("*", subject)
                or scope[1] not in about
                or scope[2] not in (None, "*", requester)
            ):
                continue
            who = None if scope[2] is None else requester
            everything = scope[1] == ""
            eta = self.eta(subject, period, who, ETAS[plan], all_of_them=everything)
            after = eta if unit == "eta" else Fraction(LIFT * float(eta))
            if after > amount:
                return True
        return False

    @rule(plan=plans, subject=subjects, period=periods, requester=requesters, key=keys)
    def release(
        self, plan: Plan, subject: str, period: str, requester: str, key: str | None
    ) -> None:
        names: dict[str, Any] = {
            "subject": subject,
            "period": period,
            "requester": requester,
            "key": key,
        }
        before = self.content()
        used = [row for row in self.rows if key and (row.requester, row.key) == (requester, key)]
        if used:
            if used[0][:3] == (plan, subject, period):
                assert plan.release(DATA, ledger=self.ledger, **names) == used[0].release
            else:
                with pytest.raises(InputError, match="another"):
                    plan.release(DATA, ledger=self.ledger, **names)
            assert self.content() == before
        elif self.too_much(plan, subject, period, requester):
            with pytest.raises(OverBudget) as caught:
                plan.release(DATA, ledger=self.ledger, **names)
            error = caught.value
            assert Fraction(error.spent) + Fraction(error.requested) > Fraction(error.limit)
            assert self.content() == before
        else:
            release = plan.release(DATA, ledger=self.ledger, **names)
            self.rows.append(Row(plan, subject, period, requester, key, release))

    @rule(plan=plans, subject=subjects, key=keys)
    def crash(self, plan: Plan, subject: str, key: str | None) -> None:
        """A sampler that fails leaves no trace; a retry, a refusal or a bad key never samples."""
        before = self.content()

        def fail() -> Release:
            raise OSError("crashed")

        charge = Charge(plan=plan, subject=subject, key=key)
        try:
            released = self.ledger.settle(charge, fail)
        except (OSError, OverBudget, InputError):
            pass
        else:
            assert any(row.release == released and row.key == key for row in self.rows)
        assert self.content() == before

    @rule(
        amount=amounts,
        unit=st.sampled_from(["eta", "epsilon"]),
        subject=st.sampled_from(["*", "u"]),
        period=st.sampled_from(["*", "", "w2"]),
        requester=st.sampled_from([None, "*", "ann"]),
    )
    def limit(
        self, amount: Fraction, unit: str, subject: str, period: str, requester: str | None
    ) -> None:
        self.ledger.limit(amount, unit=unit, subject=subject, period=period, requester=requester)
        self.limits[unit, subject, period, requester] = amount

    @rule()
    def close_and_open(self) -> None:
        self.ledger.close()
        self.open()

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        charges = self.ledger.charges()
        assert [
            (entry.plan, entry.subject, entry.period, entry.requester, entry.key)
            for entry in charges
        ] == [(row.plan.fingerprint, *row[1:5]) for row in self.rows]
        for subject, period in {row[1:3] for row in self.rows}:
            total = self.ledger.spent(subject, period)
            assert total is not None
            assert total.eta == self.spent("eta", subject, period, None)
            assert total.amount == self.spent("epsilon", subject, period, None)


LedgerMachine.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLedgerMachine = LedgerMachine.TestCase


class PostgresMachine(LedgerMachine):
    """The same through the messages and locks of a server."""

    def where(self) -> str:
        return fresh_ledger("postgres", self.folder)


PostgresMachine.TestCase.settings = settings(LedgerMachine.TestCase.settings, max_examples=6)


TestPostgresMachine = pytest.mark.postgres(PostgresMachine.TestCase)
