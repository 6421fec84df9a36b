"""Several writers: each judges by what the others have committed, and waits for who is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from shoal.core.charge import Charge
from shoal.core.errors import CannotCompose, LedgerError, OverBudget
from shoal.core.plan import Release
from shoal.core.stream import ALLOWED
from shoal.ledger import SqlLedger, open_ledger
from shoal.ledger.accounts import SPARE, USUAL
from shoal.ledger.queries import LOCK_LEDGER, fetch
from tests.ledger_plans import DATA, alone, conversions, laplace
from tests.ledger_servers import KINDS, fresh_ledger

TENTH, FIFTH = laplace("0.1"), laplace("0.2")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_ledger(request.param, tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    """A ledger that has seen its limits and the subject."""
    with open_ledger(url, conversions=conversions()) as opened:
        opened.limit("100")
        spend(opened)
        yield opened


@pytest.fixture
def other(url: str, ledger: SqlLedger) -> Iterator[SqlLedger]:
    """The same ledger in another writer's hands."""
    with open_ledger(url, conversions=conversions()) as opened:
        yield opened


def spend(ledger: SqlLedger, plan: Any = TENTH, subject: str = "u", **others: Any) -> Release:
    released: Release = plan.release(DATA, ledger=ledger, subject=subject, **others)
    return released


def sampled(ledger: SqlLedger, meanwhile: Callable[[], object], **others: Any) -> int:
    """How often a release about u was drawn, during the first draw of which something happens."""
    draws: list[Release] = []

    def sample() -> Release:
        draws.append(TENTH.release(DATA))
        if len(draws) == 1:
            meanwhile()
        return draws[-1]

    assert ledger.settle(Charge(plan=TENTH, subject="u", **others), sample) == draws[-1]
    return len(draws)


@pytest.mark.parametrize("name", ["u", "a'; DROP TABLE shoal_entries; --", "\\'", "é☃𝄞", "%s :x"])
def test_any_subject_and_key_are_found_again(ledger: SqlLedger, name: str) -> None:
    released = [spend(ledger, subject=name, key=key) for key in (None, name, None)]
    kept = [entry for entry in ledger.charges() if entry.subject == name][-3:]
    assert [entry.key for entry in kept] == [None, name, None]
    assert spend(ledger, subject=name, key=name) == released[1]
    assert ledger.verify(kept[0].hash).since == 2
    assert ledger.verify().intact


def test_what_adds_to_nothing_is_charged_once(url: str) -> None:
    with open_ledger(url, conversions=conversions()) as ledger:
        spend(ledger, alone())
        before = ledger.head("u")
        with pytest.raises(CannotCompose):
            spend(ledger, alone())
        assert ledger.head("u") == before


CHANGES: dict[str, Callable[[SqlLedger], object]] = {
    "another plan": lambda other: spend(other, FIFTH),
    "the same plan": spend,
    "a limit": lambda other: other.limit("50"),
    "a checkpoint": lambda other: other.checkpoint(),
    "everybody": lambda other: spend(other, subject="town", members=("*",)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_another_writer_changed_is_seen_before_anything_is_charged(
    ledger: SqlLedger, other: SqlLedger, change: str
) -> None:
    CHANGES[change](other)
    spend(ledger)
    assert ledger.head("u") == other.head("u")
    assert ledger.verify().intact


def test_a_writer_waits_while_another_charges_the_same_subject(url: str) -> None:
    with open_ledger(url) as one, open_ledger(url, timeout=0.2) as two:
        spend(two)

        def meanwhile() -> None:
            with pytest.raises(LedgerError, match="is locked by another program"):
                spend(two)

        assert sampled(one, meanwhile) == 1
        spend(two)
        assert one.head("u").seq == 3
        assert one.verify().intact


def test_a_key_that_another_writer_used_returns_what_was_released_under_it(
    ledger: SqlLedger, other: SqlLedger
) -> None:
    first = spend(other, key="k")
    charge = Charge(plan=TENTH, subject="u", key="k")
    assert ledger.settle(charge, lambda: pytest.fail("sampled again")) == first
    assert [entry.key for entry in ledger.charges()].count("k") == 1


def test_a_limit_that_another_writer_reached_refuses_and_changes_nothing(
    ledger: SqlLedger, other: SqlLedger
) -> None:
    other.limit("0.2", subject="u")
    spend(other)
    with pytest.raises(OverBudget):
        spend(ledger)
    assert ledger.head("u").seq == 2


def test_a_transaction_that_was_undone_is_forgotten(ledger: SqlLedger) -> None:
    """What the process remembers of a charge that was never committed is not used."""

    def undone(connection: Connection) -> None:
        charge = Charge(plan=TENTH, subject="u", key="lost")
        ledger.settle_all([charge], lambda _: [TENTH.release(DATA)], connection)
        raise OSError("the caller gave up")

    with pytest.raises(OSError, match="gave up"):
        ledger.database.write(undone)
    spend(ledger, key="lost")
    assert ledger.head("u").seq == 2
    assert ledger.verify().intact


def test_a_charge_whose_draw_failed_stays_and_harms_no_other(ledger: SqlLedger) -> None:
    charges = [Charge(plan=TENTH, subject=name, key=name) for name in ("u", "v")]

    def work(connection: Connection) -> None:
        transaction = ledger.transaction(connection)
        assert transaction.charge(charges) == [ALLOWED, ALLOWED]
        transaction.store({1: TENTH.release(DATA)})

    ledger.database.write(work)
    assert [ledger.head(name).seq for name in ("u", "v")] == [2, 1]
    assert ledger.verify().intact
    with pytest.raises(LedgerError, match="has no output"):
        spend(ledger, key="u")
    spend(ledger, subject="v", key="v")
    assert ledger.head("v").seq == 1


@pytest.mark.parametrize("room", [1, USUAL, SPARE, SPARE + USUAL + 1, SPARE + USUAL + 2])
def test_a_budget_is_used_up_to_the_last(url: str, room: int) -> None:
    with open_ledger(url, conversions=conversions()) as ledger:
        ledger.limit(Fraction(room, 10), subject="u")
        for _ in range(room):
            spend(ledger)
        before = ledger.head("u")
        with pytest.raises(OverBudget) as caught:
            spend(ledger)
        assert caught.value.spent == str(Fraction(room, 10))
        assert ledger.head("u") == before


def test_room_that_was_found_is_lost_with_a_new_limit(ledger: SqlLedger, other: SqlLedger) -> None:
    for _ in range(USUAL + 2):
        spend(ledger)
    other.limit("0.7", subject="u")
    assert ledger.head("u").seq == 7
    with pytest.raises(OverBudget):
        spend(ledger)
    other.limit("0.8", subject="u")
    spend(ledger)


def test_a_ledger_put_back_to_an_older_state_is_read_again(tmp_path: Path) -> None:
    import shutil

    file, copy = tmp_path / "budget.db", tmp_path / "copy.db"
    with open_ledger(file, conversions=conversions()) as ledger:
        spend(ledger)
    shutil.copy(file, copy)
    with open_ledger(file, conversions=conversions()) as ledger:
        spend(ledger)
        ledger.close()
        shutil.copy(copy, file)
        spend(ledger)
        assert ledger.head("u").seq == 2
        assert ledger.verify().intact


def test_threads_share_a_ledger_and_a_limit_exactly(url: str) -> None:
    with open_ledger(url, conversions=conversions(), timeout=120) as ledger:
        ledger.limit("3", subject="u")
        taken: list[Release] = []

        def work() -> None:
            for number in range(8):
                spend(ledger, subject=f"own {threading.get_ident()} {number % 2}")
                try:
                    taken.append(spend(ledger))
                except OverBudget:
                    return

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 30
        assert ledger.head("u").seq == 30
        assert ledger.verify().intact


def test_every_thread_hears_that_the_ledger_is_stalled(url: str) -> None:
    """More threads than there are connections, and a writer that does not let go."""
    told: list[str] = []

    def work(ledger: SqlLedger, number: int) -> None:
        try:
            spend(ledger, subject=f"own {number % 2}")
        except LedgerError as error:
            told.append(str(error))

    with open_ledger(url, timeout=0.5) as ledger, open_ledger(url) as other:

        def stall(connection: Connection) -> None:
            fetch(connection, (LOCK_LEDGER, {}))
            threads = [threading.Thread(target=work, args=(ledger, n)) for n in range(24)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        other.database.write(stall)
        assert len(told) == 24
        assert {sentence.count("let it finish, then repeat") for sentence in told} == {1}
        spend(ledger)
        assert ledger.verify().intact


# PostgreSQL: connections that break, and roles.


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


@pytest.fixture
def server(tmp_path: Path) -> str:
    return fresh_ledger("postgres", tmp_path)


@pytest.mark.postgres
@pytest.mark.parametrize("key", [None, "k"])
def test_a_connection_that_broke_is_replaced_and_nothing_is_charged_twice(
    server: str, key: str | None
) -> None:
    with open_ledger(server, conversions=conversions()) as ledger, open_ledger(server) as other:
        spend(ledger)
        hang_up(line(ledger), other)  # while it was idle
        spend(ledger, key=key)
        own = line(ledger)
        assert sampled(ledger, lambda: hang_up(own, other)) == 2  # with the charge under way
        assert ledger.head("u").seq == 3
        assert ledger.verify().intact


@pytest.mark.postgres
@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_without_an_answer_is_looked_up(
    server: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """A charge that was committed keeps its output; one that was not is made again."""
    import psycopg

    with open_ledger(server, conversions=conversions()) as ledger:
        spend(ledger)
        dialect: Any = ledger.database.engine.dialect
        real, broken, draws = dialect.do_commit, [True], []

        def unheard(connection: Any) -> None:
            lost = bool(broken)
            broken.clear()
            if committed or not lost:
                real(connection)
            else:
                dialect.do_rollback(connection)
            if not lost:
                return
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        def sample() -> Release:
            draws.append(TENTH.release(DATA))
            return draws[-1]

        monkeypatch.setattr(dialect, "do_commit", unheard)
        release = ledger.settle(Charge(plan=TENTH, subject="u"), sample)
        monkeypatch.undo()
        assert release is draws[-1]
        assert len(draws) == (1 if committed else 2)
        assert ledger.release(ledger.charges()[-1]) == release
        assert ledger.head("u").seq == 2
        spend(ledger)
        assert ledger.verify().intact


def granted(url: str, *grants: str) -> str:
    """The URL of a new user who was granted that much, and nothing else."""
    import psycopg

    schema = url.rpartition("%3D")[2]
    user = f"user_{schema}"
    with psycopg.connect(url, autocommit=True) as owner:
        for statement in (
            f"CREATE ROLE {user} LOGIN",
            f"GRANT USAGE ON SCHEMA {schema} TO {user}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {user}",
            *(f"GRANT {grant} TO {user}" for grant in grants),
        ):
            owner.execute(statement.encode())
    return url.replace("shoal@", f"{user}@")


@pytest.mark.postgres
def test_a_role_may_charge_and_not_raise_its_limits(server: str) -> None:
    with open_ledger(server) as owner:
        owner.limit("0.4")
        own = granted(server, "INSERT ON shoal_entries, shoal_documents")
        with open_ledger(own) as charging:
            for _ in range(3):
                spend(charging)
            charge = Charge(plan=TENTH, subject="v")
            charging.settle_all([charge] * 2, lambda at: [TENTH.release(DATA)] * len(at))
            for change in (
                lambda: charging.limit("99"),
                charging.checkpoint,
                lambda: charging.trust("ab" * 32),
            ):
                with pytest.raises(LedgerError, match="may not be changed by this user"):
                    change()
            spend(charging)
            with pytest.raises(OverBudget):
                spend(charging)
        assert owner.verify().charges == 6
        assert owner.verify().intact
        (limit,) = owner.changes()
        assert limit.changed_by == "shoal"


@pytest.mark.postgres
def test_people_do_not_wait_for_each_other(server: str) -> None:
    """Somebody holds a charge about ann in an open transaction; bob's goes through."""
    with open_ledger(server) as one, open_ledger(server, timeout=1) as two:
        spend(two, subject="bob")

        def work(connection: Any) -> None:
            charge = Charge(plan=TENTH, subject="ann")
            one.settle_all([charge], lambda _: [TENTH.release(DATA)], connection)
            spend(two, subject="bob")
            with pytest.raises(LedgerError, match="is locked by another program"):
                spend(two, subject="ann")

        one.database.write(work)
        assert [two.head(name).seq for name in ("ann", "bob")] == [1, 2]


@pytest.mark.postgres
def test_reading_goes_by_the_indexes(server: str) -> None:
    """Whatever the tables hold: no plan made once reads a table that has grown since."""
    from shoal.ledger import queries

    names: dict[queries.LedgerQuery, dict[str, Any]] = {
        queries.ENDS: {},
        queries.SINCE: {"subjects": ["x"], "places": [1]},
        queries.KEYS: {"requester": "", "keys": ["x"]},
        queries.HASH: {"subject": "x", "place": 1},
        queries.PLAN: {"plan": "x"},
    }
    with open_ledger(server) as ledger:
        for query, values in names.items():
            explain = query._replace(postgres=f"EXPLAIN {query.postgres}")
            rows = ledger.database.read(lambda c: fetch(c, (explain, values))[0])  # noqa: B023
            assert "Seq Scan on shoal_entries" not in "\n".join(row[0] for row in rows)
            assert "Index" in str(rows)
