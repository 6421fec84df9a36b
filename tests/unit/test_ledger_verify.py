"""A change to any stored field is detected, a missing end by its head, and no tool is fooled."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shoal.core.errors import LedgerError
from shoal.ledger import open_ledger
from shoal.ledger.links import link_hash
from shoal.ledger.schema import TABLES
from shoal.ledger.verify import Verdict
from tests.ledger_plans import DATA, conversions, group, laplace
from tests.ledger_servers import KINDS, fresh_ledger

FIELDS = [  # the version decides how a ledger is opened, and has a test of its own
    (table.name, column.name)
    for table in TABLES
    for column in table.columns
    if column.name != "version"
]
NUMBERS = ("seq", "times")


def fill(url: str) -> str:
    """A ledger with every kind of row, and NULLs where they may be; the hash of its end."""
    with open_ledger(url, conversions=conversions()) as ledger:
        ledger.limit("5")
        ledger.limit("9", unit="epsilon", subject="u", period="w1", requester="ann")
        laplace("0.1").release(DATA, ledger=ledger, subject="u", period="w1", key="k")
        group("0.5").release(DATA, ledger=ledger, subject="u", requester="ann")
        laplace("0.1").release(DATA, ledger=ledger, subject="v", key="l")
        return ledger.head().hash


def judged(url: str, head: str | None = None) -> Verdict:
    with open_ledger(url, read_only=True) as ledger:
        return ledger.verify(head)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("ledger") / "budget.db"
    fill(str(file))
    return file


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(written, tmp_path))


def changed(file: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """Change a ledger as somebody with the file and some patience would: triggers put back."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement, values in statements:
            connection.execute(statement, values)
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()


def rows(file: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY seq")]


def forgeries(field: str, value: Any) -> Iterator[Any]:
    """Other values for a field, plausible ones among them."""
    if field in NUMBERS:
        yield value + 1000
        return
    yield from ((value or "") + "x", " " + (value or ""), b"bytes", "")
    if field in ("eta", "amount"):
        yield "1/1000"
    if field in ("key", "eta", "requester"):
        yield "x" if value is None else None


def test_an_untouched_ledger_is_intact(written: Path) -> None:
    verdict = judged(str(written))
    assert verdict.intact
    assert (verdict.links, verdict.charges) == (9, 3)


@pytest.mark.parametrize(("table", "field"), FIELDS)
def test_a_change_to_any_field_of_any_row_is_detected(
    copy: Path, tmp_path: Path, table: str, field: str
) -> None:
    for row in rows(copy, table):
        for forged in forgeries(field, row[field]):
            if forged == row[field]:
                continue
            file = Path(shutil.copy(copy, tmp_path / "forged.db"))
            statement = f"UPDATE {table} SET {field} = ? WHERE seq = ?"
            try:
                changed(file, (statement, (forged, row["seq"])))
            except sqlite3.IntegrityError:
                continue  # the database itself would not have it
            verdict = judged(str(file))
            assert not verdict.intact, (row["seq"], forged)


@pytest.mark.parametrize("forged", [0, 2, 7, "one", b"1", 1.5])
def test_a_charge_that_counts_its_kind_wrongly_is_detected(copy: Path, forged: object) -> None:
    """`times` is not hashed: it is counted again."""
    row = rows(copy, "shoal_charges")[0]
    assert row["times"] == 1
    changed(copy, ("UPDATE shoal_charges SET times = ? WHERE seq = ?", (forged, row["seq"])))
    (problem,) = judged(str(copy)).problems
    assert "of its kind, and it is charge 1" in problem


@pytest.mark.parametrize("version", ["3", "1", "0", "1x", ""])
def test_a_changed_version_is_detected_or_refused(copy: Path, version: str) -> None:
    changed(copy, ("UPDATE shoal_versions SET version = ?", (version,)))
    try:
        verdict = judged(str(copy))
    except LedgerError:
        return
    assert not verdict.intact


@pytest.mark.parametrize("table", [table.name for table in TABLES])
def test_a_deleted_row_is_detected(copy: Path, tmp_path: Path, table: str) -> None:
    head = judged(str(copy)).head
    for row in rows(copy, table):
        if table == "shoal_versions":
            continue  # then it is no ledger any more
        file = Path(shutil.copy(copy, tmp_path / "forged.db"))
        changed(file, (f"DELETE FROM {table} WHERE seq = ?", (row["seq"],)))
        assert not judged(str(file), head.hash).intact
        assert judged(str(file)).intact is (row["seq"] == head.seq)  # only the end goes unseen


def test_an_added_row_is_detected_even_with_a_hash_of_its_own(copy: Path) -> None:
    row = rows(copy, "shoal_charges")[0]
    row |= {"seq": 100, "key": "forged", "times": 2}
    row["hash"] = link_hash("shoal_charges", row)
    marks = ", ".join("?" for _ in row)
    insert = f"INSERT INTO shoal_charges ({', '.join(row)}) VALUES ({marks})"
    changed(copy, (insert, tuple(row.values())))
    verdict = judged(str(copy))
    assert any("missing or was added" in problem for problem in verdict.problems)
    assert any("does not continue" in problem for problem in verdict.problems)


def test_two_rows_that_change_places_are_detected(copy: Path) -> None:
    first, second, *_ = rows(copy, "shoal_charges")
    update = "UPDATE shoal_charges SET seq = ? WHERE seq = ?"
    changed(copy, (update, (-1, first["seq"])), (update, (first["seq"], second["seq"])))
    changed(copy, (update, (second["seq"], -1)))
    assert not judged(str(copy)).intact


def test_a_value_with_its_hash_made_again_breaks_the_next_link(copy: Path) -> None:
    row = rows(copy, "shoal_limits")[0]
    row["amount"] = "500"
    row["hash"] = link_hash("shoal_limits", row)
    update = "UPDATE shoal_limits SET amount = ?, hash = ? WHERE seq = ?"
    changed(copy, (update, (row["amount"], row["hash"], row["seq"])))
    problems = judged(str(copy)).problems
    assert problems == ("link 4 (shoal_limits) does not continue the chain before it",)


def remade(file: Path, table: str, seq: int, **fields: str) -> None:
    """Change a row and make every hash after it again, as the program itself would."""
    links = sorted((row["seq"], t.name, row) for t in TABLES for row in rows(file, t.name))
    previous, statements = "", []
    for number, name, row in links:
        if (number, name) == (seq, table):
            row.update(fields)
        row["previous"] = previous
        previous = row["hash"] = link_hash(name, row)
        names = ", ".join(f"{key} = ?" for key in row)
        statements.append((f"UPDATE {name} SET {names} WHERE seq = ?", (*row.values(), number)))
    changed(file, *statements)


def test_a_chain_made_again_shows_against_the_head_alone(copy: Path) -> None:
    head = judged(str(copy)).head.hash
    remade(copy, "shoal_limits", 3, amount="500")
    assert judged(str(copy)).intact
    assert not judged(str(copy), head).intact


@pytest.mark.parametrize(
    ("table", "seq", "fields", "told"),
    [
        ("shoal_charges", 6, {"eta": "1/1000"}, "does not charge what its plan costs"),
        ("shoal_charges", 6, {"amount": "1/1000"}, "does not charge what its plan costs"),
        ("shoal_charges", 6, {"plan": "0" * 64}, "not stored before it"),
        ("shoal_charges", 6, {"release": "{}"}, "does not hold a release of its plan"),
        ("shoal_plans", 5, {"document": "{}"}, "does not hold the plan it names"),
    ],
)
def test_a_chain_made_again_around_nonsense_is_detected(
    copy: Path, table: str, seq: int, fields: dict[str, str], told: str
) -> None:
    remade(copy, table, seq, **fields)
    assert any(told in problem for problem in judged(str(copy)).problems)


def test_a_missing_trigger_or_table_is_detected(copy: Path, tmp_path: Path) -> None:
    for table in TABLES:
        for change in ("update", "delete"):
            file = Path(shutil.copy(copy, tmp_path / "forged.db"))
            with closing(sqlite3.connect(file)) as connection:
                connection.execute(f"DROP TRIGGER {table.name}_no_{change}")
            assert not judged(str(file)).intact
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("DROP TABLE shoal_limits")
    assert "table shoal_limits is missing" in judged(str(copy)).problems


def test_the_problems_listed_are_few_but_counted(copy: Path) -> None:
    with open_ledger(copy) as ledger:
        for _ in range(30):
            laplace("0.1").release(DATA, ledger=ledger, subject="many")
    changed(copy, ("UPDATE shoal_charges SET at = 'then'", ()))
    problems = judged(str(copy)).problems
    assert len(problems) == 21
    assert problems[-1] == "13 more problems"


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_kept_elsewhere_shows_what_was_added_and_what_was_cut(
    kind: str, tmp_path: Path
) -> None:
    url = fresh_ledger(kind, tmp_path)
    head = fill(url)
    assert judged(url, head).since == 0
    with open_ledger(url) as ledger:
        laplace("0.1").release(DATA, ledger=ledger, subject="w")
    assert judged(url, head).since == 1
    verdict = judged(url, "0" * 64)
    assert verdict.problems == (
        "the head 000000000000… is not in the chain: the end was cut off, or this is another "
        "ledger",
    )


@pytest.mark.postgres
def test_a_change_in_postgres_is_detected_too(tmp_path: Path) -> None:
    import psycopg

    url = fresh_ledger("postgres", tmp_path)
    fill(url)
    with psycopg.connect(url, autocommit=True) as connection:
        # a superuser's way around the triggers
        connection.execute("SET session_replication_role = replica")
        for table, field in FIELDS:
            where = f"WHERE seq = (SELECT max(seq) FROM {table})"
            kept = connection.execute(f"SELECT {field} FROM {table} {where}".encode()).fetchone()
            for value, intact in (
                ("1000" if field in NUMBERS else "x", False),
                (*(kept or ()), True),
            ):
                connection.execute(f"UPDATE {table} SET {field} = %s {where}".encode(), [value])
                assert judged(url).intact is intact, (table, field)


@pytest.mark.postgres
def test_a_switched_off_trigger_in_postgres_is_detected(tmp_path: Path) -> None:
    import psycopg

    url = fresh_ledger("postgres", tmp_path)
    fill(url)
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE shoal_charges DISABLE TRIGGER ALL")
    (problem,) = judged(url).problems
    assert "shoal_charges_append_only is missing" in problem
