"""Charges sent to PostgreSQL as one message: taken when nothing changed, given up when it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from sqlalchemy import Connection

from shoal.core.errors import CannotCompose, LedgerError, OverBudget
from shoal.core.plan import Charge, Release
from shoal.ledger import SqlLedger, links, open_ledger, postgres, store
from shoal.ledger.batch import settle_many
from shoal.ledger.schema import VERSIONS
from tests.ledger_plans import DATA, alone, conversions, laplace
from tests.ledger_servers import fresh_ledger

TENTH, FIFTH = laplace("0.1"), laplace("0.2")
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
awkward = st.sampled_from(['"previous":', '","seq":', "\\", "'; --", '\\"previous":"', "é☃𝄞"])


@given(st.lists(names | awkward, min_size=4, max_size=4), names, st.integers(1, 10**12))
def test_the_pieces_put_together_are_what_is_hashed(
    texts: list[str], digest: str, seq: int
) -> None:
    given = dict(zip(("at", "period", "release", "subject"), texts, strict=True))
    row = {**given, "key": None, "eta": "1/10", "plan": digest}
    previous = sha256(digest.encode()).hexdigest()
    first, second, third = links.hashed_around("shoal_charges", row)
    together = f"{first}{previous}{second}{seq}{third}"
    whole = {**row, "previous": previous, "seq": seq, "times": 3, "hash": "x"}
    assert sha256(together.encode()).hexdigest() == links.link_hash("shoal_charges", whole)


pytestmark = pytest.mark.postgres


@pytest.fixture
def url(tmp_path: Path) -> str:
    return fresh_ledger("postgres", tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    """A ledger that has seen its limits, its version and the plan."""
    with open_ledger(url, conversions=conversions()) as opened:
        opened.limit("100")
        spend(opened, subject="first")
        spend(opened, subject="first")
        yield opened


@pytest.fixture
def other(url: str, ledger: SqlLedger) -> Iterator[SqlLedger]:
    """The same ledger in another writer's hands."""
    with open_ledger(url, conversions=conversions()) as opened:
        yield opened


def spend(ledger: SqlLedger, plan: Any = TENTH, subject: str = "u", **others: Any) -> Release:
    released: Release = plan.release(DATA, ledger=ledger, subject=subject, **others)
    return released


def never_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        pytest.fail("settled under the lock")

    monkeypatch.setattr(SqlLedger, "_settle", fail)


def sampled(
    ledger: SqlLedger, meanwhile: Callable[[], object], **others: Any
) -> tuple[Release, int]:
    """A release about u during which something happens, and how often it was drawn."""
    draws: list[Release] = []

    def sample() -> Release:
        if not draws:  # after the look, before the message; a second draw is under the lock
            meanwhile()
        draws.append(TENTH.release(DATA))
        return draws[-1]

    release = ledger.settle(Charge(plan=TENTH, subject="u", **others), sample)
    assert release == draws[-1]
    return release, len(draws)


@pytest.mark.parametrize("name", ["u", "a'; DROP TABLE shoal_charges; --", "\\'", "é☃𝄞", "%s :x"])
def test_charges_are_sent_as_one_message(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    never_locked(monkeypatch)
    released = [spend(ledger, subject=name, key=key) for key in (None, name, None)]
    kept = [entry for entry in ledger.charges() if entry.subject == name]
    assert [entry.times for entry in kept] == [1, 2, 3]
    assert [entry.key for entry in kept] == [None, name, None]
    monkeypatch.undo()
    assert spend(ledger, subject=name, key=name) == released[1]
    assert ledger.verify(kept[0].hash).since == 2
    assert ledger.verify().intact


def test_a_limit_on_epsilon_is_converted_before_the_message(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.limit("0.5", unit="epsilon")
    spend(ledger, subject="somebody")  # reads the new limit
    never_locked(monkeypatch)
    spend(ledger)
    spend(ledger)
    monkeypatch.undo()
    with pytest.raises(OverBudget):
        spend(ledger)


def test_what_adds_to_nothing_is_sent_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_ledger(url, conversions=conversions()) as ledger:
        spend(ledger, alone(), subject="v")
        never_locked(monkeypatch)
        spend(ledger, alone())
        monkeypatch.undo()
        before = ledger.head()
        with pytest.raises(CannotCompose):
            spend(ledger, alone())
        assert ledger.head() == before


@pytest.mark.parametrize("own", [True, False])
def test_charges_of_the_same_plan_in_between_do_no_harm(
    ledger: SqlLedger, other: SqlLedger, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    def meanwhile() -> None:
        for _ in range(5):
            spend(other, TENTH if own else FIFTH, subject="u" if own else "somebody else")

    _, draws = sampled(ledger, meanwhile, requester="ann")
    assert draws == 1
    assert ledger.verify().intact


CHANGES: dict[str, Callable[[SqlLedger], object]] = {
    "another plan": lambda other: spend(other, FIFTH),
    "a limit": lambda other: other.limit("50"),
    "a crowd": lambda other: [spend(other) for _ in range(store.CROWD + 1)],
    "many links": lambda other: settle_many(
        other,
        [Charge(plan=TENTH, subject=f"s{n}") for n in range(postgres.WINDOW + 1)],
        lambda places: [TENTH.release(DATA)] * len(places),
    ),
    "a version": lambda other: other.database.write(
        lambda c: links.append(c, VERSIONS, links.head(c), version="2", program="again")
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_between_sends_the_charge_back_to_the_lock(
    ledger: SqlLedger, other: SqlLedger, change: str
) -> None:
    before = len(ledger.charges())
    _, draws = sampled(ledger, lambda: CHANGES[change](other))
    assert draws == 2
    assert ledger.charges()[-1].subject == "u"
    assert len(ledger.charges()) > before
    assert ledger.verify().intact


def test_a_key_used_in_between_returns_what_was_released_under_it(
    ledger: SqlLedger, other: SqlLedger
) -> None:
    first: list[Release] = []

    def sample() -> Release:
        first.append(spend(other, key="k"))
        return TENTH.release(DATA)

    charge = Charge(plan=TENTH, subject="u", key="k")
    assert ledger.settle(charge, sample) == first[0]
    assert len(first) == 1
    assert [entry.key for entry in ledger.charges()].count("k") == 1


def test_a_limit_reached_in_between_refuses_and_changes_nothing(
    ledger: SqlLedger, other: SqlLedger
) -> None:
    other.limit("0.1", subject="u")
    spend(ledger, subject="v")  # reads the new limit
    heads: list[links.Head] = []

    def meanwhile() -> None:
        spend(other)
        heads.append(other.head())

    with pytest.raises(OverBudget):
        sampled(ledger, meanwhile)
    assert ledger.head() == heads[0]


@pytest.mark.parametrize("room", [1, store.CROWD, store.CROWD + 1, store.CROWD + 2])
def test_a_budget_is_used_up_to_the_last(ledger: SqlLedger, room: int) -> None:
    ledger.limit(Fraction(room, 10), subject="u")
    for _ in range(room):
        spend(ledger)
    before = ledger.head()
    with pytest.raises(OverBudget) as caught:
        spend(ledger)
    assert caught.value.spent == str(Fraction(room, 10))
    assert ledger.head() == before


def test_a_connection_that_broke_while_idle_is_replaced(
    ledger: SqlLedger, other: SqlLedger
) -> None:
    hang_up(line(ledger), other)
    spend(ledger)
    assert [entry.subject for entry in ledger.charges()].count("u") == 1


def test_a_connection_that_breaks_with_the_message_under_way_is_said_to(
    ledger: SqlLedger, other: SqlLedger
) -> None:
    own = line(ledger)
    with pytest.raises(LedgerError, match="unknown whether the charge was taken"):
        sampled(ledger, lambda: hang_up(own, other), key="k")
    release = spend(ledger, key="k")
    assert spend(other, key="k") == release
    assert [entry.key for entry in ledger.charges()].count("k") == 1


def line(ledger: SqlLedger) -> int:
    """The server's end of the only connection a ledger has."""
    told = ledger.database.read(
        lambda connection: connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    )
    return int(told)


def hang_up(pid: int, other: SqlLedger) -> None:
    """End a connection, as a restarted server would."""
    other.database.read(
        lambda connection: connection.exec_driver_sql(
            f"SELECT pg_terminate_backend({pid}, 5000)"
        ).all()
    )


FAILS = " SELECT 1 / 0; "


@pytest.mark.parametrize(("place", "charged"), [(0, False), (1, False), (2, True)])
def test_a_failure_in_the_message_is_judged_by_where_it_happened(
    ledger: SqlLedger, place: int, charged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit nothing happened, and the lock decides; after it nobody may be told."""
    before, after = ledger.database.dialect.batch or ("", "")
    batch = {
        0: (before + FAILS, after),
        1: (before, FAILS + after),
        2: (before, after.replace("COMMIT;", f"COMMIT; {FAILS}")),
    }[place]
    spoilt = replace(ledger.database.dialect, batch=batch)
    monkeypatch.setattr(ledger.database, "dialect", spoilt)
    if not charged:
        _, draws = sampled(ledger, lambda: None, key="k")
        assert draws == 2
    else:
        with pytest.raises(LedgerError, match="unknown whether"):
            sampled(ledger, lambda: None, key="k")
    monkeypatch.undo()
    assert [entry.key for entry in ledger.charges()].count("k") == 1
    assert ledger.verify().intact


def test_a_program_that_was_overtaken_stops_writing(ledger: SqlLedger, other: SqlLedger) -> None:
    other.database.write(
        lambda c: links.append(c, VERSIONS, links.head(c), version="3", program="newer")
    )
    writes: list[Callable[[], object]] = [
        lambda: spend(ledger),
        lambda: ledger.limit("7"),
        lambda: settle_many(
            ledger,
            [Charge(plan=TENTH, subject="u")],
            lambda places: [TENTH.release(DATA)],
        ),
    ]
    for write in writes:
        ledger.obstacle = None
        with pytest.raises(LedgerError, match="version 3 and this program knows version 2"):
            write()
    assert ledger.verify().intact
    assert "u" not in [entry.subject for entry in ledger.charges()]


def test_a_user_needs_no_right_but_those_that_are_named(url: str, ledger: SqlLedger) -> None:
    import psycopg

    schema = url.rpartition("%3D")[2]
    writer = f"writer_{schema}"
    with psycopg.connect(url, autocommit=True) as owner:
        for statement in (
            f"CREATE ROLE {writer} LOGIN",
            f"GRANT USAGE ON SCHEMA {schema} TO {writer}",
            f"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {schema} TO {writer}",
            f"GRANT UPDATE ON shoal_versions TO {writer}",
        ):
            owner.execute(statement.encode())
    with open_ledger(url.replace("shoal@", f"{writer}@")) as own:
        own.limit("99")
        for _ in range(3):
            spend(own)
    assert ledger.verify().charges == 5


def test_looking_and_writing_go_by_the_indexes(ledger: SqlLedger) -> None:
    """Whatever the tables hold: no plan made once reads a table that has grown since."""

    def plans(connection: Connection) -> str:
        look, write = (
            connection.exec_driver_sql(f"EXPLAIN EXECUTE {name} ({values})").scalars().all()
            for name, values in (
                ("shoal_look", ",".join(["NULL"] * 5)),
                ("shoal_write", ",".join(["NULL"] * len(postgres._PARAMETERS))),
            )
        )
        return "\n".join([*look, *write])

    told = ledger.database.read(plans)  # on the connection that charged before
    assert "shoal_charges_first" in told
    assert "shoal_charges_times" in told
    assert "Seq Scan" not in told
