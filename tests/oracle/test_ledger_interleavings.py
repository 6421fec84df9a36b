"""Two writers of one ledger, batches, callers' transactions and rollbacks against a plain list.

What each writer remembers is its own; the reference is a list of committed charges and exact sums.
Every outcome must be what the list says: drawn, refused, or what was drawn under that key before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection

from shoal.core.charge import EVERYBODY, Charge, PerStep
from shoal.core.errors import BudgetError, InputError
from shoal.core.plan import Plan, Release
from shoal.ledger import SqlLedger, open_ledger
from tests.ledger_plans import DATA, carrying, conversions, laplace
from tests.ledger_servers import KINDS, fresh_ledger


def step(epsilon: str) -> Plan:
    amount = Fraction(epsilon)
    return carrying(PerStep(amount), promise="pufferfish", amount=amount)


STEPS = {step(e): Fraction(e) for e in ("1/3", "1/5", "1/7")}  # told by steps: in epsilon
WHOLES = {laplace(e): Fraction(e) for e in ("1/3", "1/5", "1/10")}  # in eta
PEOPLE = ("ann", "bob", "!eve", "'zoe'")


@dataclass
class PlainBook:
    """The committed charges, in order, and what a limit on each subject says about the next."""

    costs: dict[Plan, Fraction]
    limit: Fraction
    charged: list[tuple[Charge, Release]] = field(default_factory=list)

    def copy(self) -> PlainBook:
        return PlainBook(self.costs, self.limit, list(self.charged))

    def names(self) -> set[str]:
        return {name for charge, _ in self.charged for name in (charge.subject, *charge.members)}

    def spent(self, subject: str) -> Fraction:
        """Every release that reads the subject's data, once: it may be named, or be everybody."""
        about = {subject, "*"}
        return sum(
            (
                self.costs[charge.plan]
                for charge, _ in self.charged
                if about & {charge.subject, *charge.members}
            ),
            Fraction(0),
        )

    def stored(self, charge: Charge) -> Release | None:
        found = (one for told, one in self.charged if charge.key and told.key == charge.key)
        return next(found, None)

    def allows(self, charge: Charge) -> bool:
        everybody = charge.members == EVERYBODY
        about = self.names() | {"nobody yet"} if everybody else {charge.subject, *charge.members}
        about |= {charge.subject}
        return all(
            self.spent(name) + self.costs[charge.plan] <= self.limit for name in about - {"*"}
        )


class Writers:
    """Two ledgers on one database, and the book that says what must come of each act."""

    def __init__(self, url: str, seed: int, costs: dict[Plan, Fraction], unit: str) -> None:
        self.random, self.plans = Random(seed), list(costs)
        self.ledgers = [open_ledger(url, conversions=conversions()) for _ in range(2)]
        self.unit = unit
        self.book = PlainBook(costs, Fraction(2))
        self.ledgers[0].limit(self.book.limit, unit=unit)

    def act(self) -> None:
        choice = self.random.random()
        ledger = self.random.choice(self.ledgers)
        if choice < 0.05:
            self.book.limit = Fraction(self.random.randint(6, 40), 7)
            ledger.limit(self.book.limit, unit=self.unit)
        elif choice < 0.5:
            self.settle(ledger, self.charges(self.random.choice((1, 1, 2, 4))), self.book)
        else:
            self.transaction(ledger)

    def transaction(self, ledger: SqlLedger) -> None:
        """Several batches in a caller's transaction; some undone, or all of it."""
        own = self.book.copy()
        options = ledger.database.dialect.writing.options
        with ledger.database.engine.execution_options(**options).connect() as connection:
            whole = connection.begin()
            for _ in range(self.random.randint(1, 3)):
                undo = self.random.random() < 0.3
                part = connection.begin_nested() if undo else None
                after = own.copy()
                self.settle(ledger, self.charges(self.random.choice((1, 2, 3))), after, connection)
                if part is None:
                    own = after
                else:
                    part.rollback()
            if self.random.random() < 0.5:
                whole.rollback()
            else:
                whole.commit()
                self.book = own

    def charges(self, count: int) -> list[Charge]:
        return [self.charge() for _ in range(count)]

    def charge(self) -> Charge:
        draw = self.random
        plan = draw.choice(self.plans)
        key = f"k{draw.randint(0, 30)}" if draw.random() < 0.4 else None
        if key is not None:  # one key, one thing that is asked for
            of_key = Random(key)
            return Charge(plan=of_key.choice(self.plans), subject=of_key.choice(PEOPLE), key=key)
        if draw.random() < 0.1:
            return Charge(plan=plan, subject="city", members=EVERYBODY)
        if draw.random() < 0.15:
            members = tuple(draw.sample(PEOPLE, 2))
            return Charge(plan=plan, subject="couple", members=members)
        return Charge(plan=plan, subject=draw.choice(PEOPLE))

    def settle(
        self,
        ledger: SqlLedger,
        charges: list[Charge],
        book: PlainBook,
        connection: Connection | None = None,
    ) -> None:
        def sample(places: list[int]) -> Sequence[Release]:
            return [charges[place].plan.release(DATA) for place in places]

        outcomes = ledger.settle_all(charges, sample, connection)
        for charge, outcome in zip(charges, outcomes, strict=True):
            known = book.stored(charge)
            if known is not None:
                assert outcome == known
            elif book.allows(charge):
                assert isinstance(outcome, Release), (charge.subject, str(outcome))
                book.charged.append((charge, outcome))
            else:
                assert isinstance(outcome, BudgetError), (
                    charge.subject,
                    book.spent(charge.subject),
                )

    def check(self) -> None:
        for ledger in self.ledgers:
            for name in sorted(self.book.names() - {"*"}):
                total = ledger.spent(name)
                said = getattr(total, "eta" if self.unit == "eta" else "amount")
                assert said == self.book.spent(name), name
        assert self.ledgers[0].verify().intact


@contextmanager
def writers(url: str, seed: int, unit: str) -> Iterator[Writers]:
    with ExitStack() as stack:
        both = Writers(url, seed, WHOLES if unit == "eta" else STEPS, unit)
        for ledger in both.ledgers:
            stack.enter_context(ledger)
        yield both


def attack(url: str, seed: int, unit: str, acts: int) -> None:
    with writers(url, seed, unit) as both:
        for _ in range(acts):
            both.act()
        both.check()


@pytest.mark.parametrize("unit", ["eta", "epsilon"])
@pytest.mark.parametrize("kind", KINDS)
def test_writers_agree_with_a_plain_list(kind: str, unit: str, tmp_path: Path) -> None:
    attack(fresh_ledger(kind, tmp_path), 7, unit, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("kind", KINDS)
def test_writers_agree_with_a_plain_list_often(kind: str, seed: int, tmp_path: Path) -> None:
    for unit in ("eta", "epsilon"):
        attack(fresh_ledger(kind, tmp_path), seed, unit, 100)


# The two ways in which a limit was passed, alone.


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SqlLedger, SqlLedger]]:
    url = fresh_ledger(request.param, tmp_path)
    with (
        open_ledger(url, conversions=conversions()) as one,
        open_ledger(url, conversions=conversions()) as two,
    ):
        one.limit("1")
        yield one, two


def charged(ledger: SqlLedger, plan: Plan, *connection: Any, **names: Any) -> Any:
    (outcome,) = ledger.settle_all(
        [Charge(plan=plan, **names)], lambda _: [plan.release(DATA)], *connection
    )
    return outcome


def test_what_was_rolled_back_about_everybody_is_forgotten(
    pair: tuple[SqlLedger, SqlLedger],
) -> None:
    """A tenth about everybody, undone; then nine tenths in its place, by another writer."""
    one, two = pair
    assert isinstance(charged(one, laplace("0.1"), subject="ann"), Release)
    options = one.database.dialect.writing.options
    with one.database.engine.execution_options(**options).connect() as connection:
        whole = connection.begin()
        charged(one, laplace("0.1"), connection, subject="town", members=EVERYBODY)
        whole.rollback()
    assert isinstance(charged(two, laplace("0.9"), subject="town", members=EVERYBODY), Release)
    assert isinstance(charged(one, laplace("0.5"), subject="ann"), BudgetError)
    total = two.spent("ann")
    assert total is not None
    assert total.eta == 1


@pytest.mark.postgres
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_sees_one_moment_charges_nothing(level: str, tmp_path: Path) -> None:
    """It would not see what is charged about everybody while it lasts."""
    url = fresh_ledger("postgres", tmp_path)
    steps = step("1/3")
    with (
        open_ledger(url, conversions=conversions()) as one,
        open_ledger(url, conversions=conversions()) as two,
    ):
        one.limit("1", unit="epsilon")
        charged(one, steps, subject="ann")
        with one.database.engine.execution_options(isolation_level=level).connect() as connection:
            whole = connection.begin()
            connection.exec_driver_sql("SELECT 1 FROM shoal_entries").all()
            for _ in range(2):
                assert isinstance(charged(two, steps, subject="town", members=EVERYBODY), Release)
            with pytest.raises(InputError, match="READ COMMITTED"):
                charged(one, steps, connection, subject="ann")
            whole.rollback()
        assert two.spent("ann").amount == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_all_steps_count_between_any_two_sequences(kind: str, tmp_path: Path) -> None:
    """About the subject and about everybody, in one period or in all of them."""
    steps, eta = step("1/3"), Fraction(1, 4)
    with open_ledger(fresh_ledger(kind, tmp_path), conversions=conversions()) as ledger:
        charged(ledger, steps, subject="ann", eta=eta, period="week 1")
        charged(ledger, steps, subject="ann", eta=eta, period="week 2")
        charged(ledger, steps, subject="town", members=EVERYBODY, eta=eta, period="week 1")
        for period, times in (("week 1", 2), ("week 2", 1), (None, 3)):
            total = ledger.spent("ann", period)
            assert total is not None
            assert total.explanation.endswith(f"differ by at most {float(times * eta):g}")
        charged(ledger, steps, subject="ann", eta=eta)  # of no period: counts with them all
        everything = ledger.spent("ann", "week 2")
        assert everything is not None
        assert everything.explanation.endswith("differ by at most 1")
