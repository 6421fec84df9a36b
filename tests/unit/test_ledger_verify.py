"""A change to any stored field is detected, a missing end by its head, and no tool is fooled."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from shoal.core.errors import BudgetError, InputError, LedgerError
from shoal.ledger import EVERYBODY, Signer, open_ledger
from shoal.ledger.entries import Entry
from shoal.ledger.schema import TABLES, entry_hash, link_hash
from shoal.ledger.verify import WEAK, Verdict
from tests.ledger_plans import DATA, conversions, group, laplace
from tests.ledger_servers import KINDS, fresh_ledger

FIELDS = [  # the version decides how a ledger is opened, and has a test of its own
    (table.name, column.name)
    for table in TABLES
    for column in table.columns
    if column.name != "version"
]
NUMBERS = ("seq", "place", "house")
KEYS = {table.name: [column.name for column in table.primary_key] for table in TABLES}
CHAINED = ("shoal_versions", "shoal_house")


def fill(url: str) -> str:
    """A ledger with every kind of row, and NULLs where they may be; the hash of its end."""
    with open_ledger(url, conversions=conversions()) as ledger:
        ledger.limit("5")
        ledger.limit("9", unit="epsilon", subject="u", period="w1", requester="ann")
        laplace("0.1").release(DATA, ledger=ledger, subject="u", period="w1", key="k")
        group("0.5").release(DATA, ledger=ledger, subject="u", requester="ann")
        laplace("0.1").release(DATA, ledger=ledger, subject="v", key="l", part=(0, 10))
        laplace("0.1").release(DATA, ledger=ledger, subject="w", members=("u",))
        return ledger.checkpoint().hash


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
        order = ", ".join(KEYS[table])
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY {order}")]


def here(table: str, row: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """What finds one row."""
    names = KEYS[table]
    return " AND ".join(f"{name} = ?" for name in names), tuple(row[name] for name in names)


def forgeries(field: str, value: Any) -> Iterator[Any]:
    """Other values for a field, plausible ones among them."""
    if field in NUMBERS:
        yield value + 1000
        return
    yield from ((value or "") + "x", " " + (value or ""), b"bytes", "")
    if field == "eta":
        yield "1/1000"
    if field in ("key", "eta", "value", "members"):
        yield "x" if value is None else None


def test_an_untouched_ledger_is_intact(written: Path) -> None:
    verdict = judged(str(written))
    assert verdict.intact
    assert (verdict.links, verdict.charges, verdict.uncovered) == (1 + 3 + 5, 5, 0)


@pytest.mark.parametrize(("table", "field"), FIELDS)
def test_a_change_to_any_field_of_any_row_is_detected(
    copy: Path, tmp_path: Path, table: str, field: str
) -> None:
    for row in rows(copy, table):
        for forged in forgeries(field, row[field]):
            if forged == row[field]:
                continue
            file = Path(shutil.copy(copy, tmp_path / "forged.db"))
            where, names = here(table, row)
            try:
                changed(file, (f"UPDATE {table} SET {field} = ? WHERE {where}", (forged, *names)))
            except sqlite3.IntegrityError:
                continue  # the database itself would not have it
            verdict = judged(str(file))
            assert not verdict.intact, (here(table, row), forged)


@pytest.mark.parametrize("version", ["4", "2", "1", "0", "1x", ""])
def test_a_changed_version_is_detected_or_refused(copy: Path, version: str) -> None:
    changed(copy, ("UPDATE shoal_versions SET version = ?", (version,)))
    try:
        verdict = judged(str(copy))
    except LedgerError:
        return
    assert not verdict.intact


@pytest.mark.parametrize("table", [table.name for table in TABLES[1:]])
def test_a_deleted_row_is_detected(copy: Path, tmp_path: Path, table: str) -> None:
    head = judged(str(copy)).head
    for row in rows(copy, table):
        file = Path(shutil.copy(copy, tmp_path / "forged.db"))
        where, names = here(table, row)
        changed(file, (f"DELETE FROM {table} WHERE {where}", names))
        assert not judged(str(file), head.hash).intact
        assert judged(str(file)).intact is (row.get("seq") == head.seq)  # only the end goes unseen


def test_without_a_checkpoint_the_end_of_a_subject_shows_by_its_own_head(tmp_path: Path) -> None:
    file = tmp_path / "budget.db"
    with open_ledger(file, conversions=conversions()) as ledger:
        for _ in range(3):
            laplace("0.1").release(DATA, ledger=ledger, subject="u")
        head = ledger.head("u").hash
        laplace("0.1").release(DATA, ledger=ledger, subject="u")
    assert judged(str(file), head).since == 1
    changed(file, ("DELETE FROM shoal_entries WHERE place > 2", ()))
    assert judged(str(file)).intact
    assert not judged(str(file), head).intact


def test_an_added_row_is_detected_even_with_a_hash_of_its_own(copy: Path) -> None:
    row = rows(copy, "shoal_entries")[0]
    row |= {"place": 100, "key": "forged"}
    row["hash"] = entry_hash("", list(row.values())[:-1])
    marks = ", ".join("?" for _ in row)
    insert = f"INSERT INTO shoal_entries ({', '.join(row)}) VALUES ({marks})"
    changed(copy, (insert, tuple(row.values())))
    problems = judged(str(copy)).problems
    assert any("missing or was added" in problem for problem in problems)
    assert any("does not continue" in problem for problem in problems)


def test_two_rows_that_change_places_are_detected(copy: Path) -> None:
    update = "UPDATE shoal_entries SET place = ? WHERE subject = 'u' AND place = ?"
    changed(copy, (update, (-1, 1)), (update, (1, 2)), (update, (2, -1)))
    assert not judged(str(copy)).intact


def test_a_limit_with_its_hash_made_again_breaks_the_next_link(copy: Path) -> None:
    row = rows(copy, "shoal_house")[0]
    row["document"] = row["document"].replace('"5"', '"500"')
    row["hash"] = link_hash("shoal_house", row)
    update = "UPDATE shoal_house SET document = ?, hash = ? WHERE seq = ?"
    changed(copy, (update, (row["document"], row["hash"], row["seq"])))
    problems = judged(str(copy)).problems
    assert problems == ("link 3 (shoal_house) does not continue the chain before it",)


def remade(file: Path, place: tuple[str, int], **fields: Any) -> None:
    """Change a charge and make every hash of its chain again, as the program itself would."""
    previous, statements = "", []
    for row in rows(file, "shoal_entries"):
        if row["subject"] != place[0]:
            continue
        if row["place"] == place[1]:
            row.update(fields)
        row["hash"] = previous = entry_hash(previous, [row[name] for name in Entry._fields[:-1]])
        names = ", ".join(f"{key} = ?" for key in row)
        where, values = here("shoal_entries", row)
        update = f"UPDATE shoal_entries SET {names} WHERE {where}"
        statements.append((update, (*row.values(), *values)))
    changed(file, *statements)


def test_a_chain_made_again_shows_against_a_checkpoint_or_a_head(copy: Path) -> None:
    with open_ledger(copy, read_only=True) as ledger:
        head = ledger.head("u").hash
    remade(copy, ("u", 1), value="[7]")
    (problem,) = judged(str(copy)).problems
    assert "is not over the charges before it" in problem
    assert len(judged(str(copy), head).problems) == 2


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"eta": "1/1000"}, "does not charge what its plan costs"),
        ({"plan": "0" * 64}, "charges a plan that is not stored"),
        ({"value": "{}"}, "does not hold a release of its plan"),
        ({"value": "[1.5]"}, "does not hold a release of its plan"),
        ({"value": None}, "does not hold a release of its plan"),
        ({"house": 9}, "was not decided under the rules of its time"),
    ],
)
def test_a_chain_made_again_around_nonsense_is_detected(
    copy: Path, fields: dict[str, Any], told: str
) -> None:
    remade(copy, ("u", 1), **fields)
    assert any(told in problem for problem in judged(str(copy)).problems)


def test_a_missing_or_hollow_trigger_or_a_missing_table_is_detected(
    copy: Path, tmp_path: Path
) -> None:
    for table in TABLES:
        for change in ("update", "delete", "insert"):
            name = f"{table.name}_no_{change}"
            hollow = f"CREATE TRIGGER {name} BEFORE {change} ON {table.name} BEGIN SELECT 1; END"
            for more, told in ((None, "is missing"), (hollow, "was changed or switched off")):
                file = Path(shutil.copy(copy, tmp_path / "forged.db"))
                with closing(sqlite3.connect(file)) as connection:
                    connection.execute(f"DROP TRIGGER {name}")
                    if more is not None:
                        connection.execute(more)
                (problem,) = judged(str(file)).problems
                assert problem == f"trigger {name} {told}: {table.name} can be changed"
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("DROP TABLE shoal_house")
    assert "table shoal_house is missing" in judged(str(copy)).problems


def test_a_trigger_of_somebody_elses_is_detected(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(
            "CREATE TRIGGER quiet BEFORE INSERT ON shoal_entries BEGIN SELECT RAISE(IGNORE); END"
        )
        connection.execute("CREATE TABLE mine (n)")
        connection.execute("CREATE TRIGGER own AFTER INSERT ON mine BEGIN SELECT 1; END")
    (problem,) = judged(str(copy)).problems
    assert (
        problem
        == "trigger or rule 'quiet' is none of this library's: it may change what is written"
    )


def test_no_row_is_put_in_place_of_another(copy: Path) -> None:
    """INSERT OR REPLACE deletes without asking the triggers against deletion."""
    with closing(sqlite3.connect(copy)) as connection:
        for table in KEYS:
            row = rows(copy, table)[0]
            marks = ", ".join("?" for _ in row)
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(
                    f"INSERT OR REPLACE INTO {table} VALUES ({marks})", tuple(row.values())
                )
        row = {**rows(copy, "shoal_entries")[0], "subject": "z", "place": 1}
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):  # by its key
            connection.execute(
                f"REPLACE INTO shoal_entries VALUES ({', '.join('?' for _ in row)})",
                tuple(row.values()),
            )


def test_a_checkpoint_is_signed_and_a_false_signature_is_found(tmp_path: Path) -> None:
    file, pem = tmp_path / "budget.db", tmp_path / "key.pem"
    signer, other = Signer.make(pem), Signer.make(tmp_path / "other.pem")
    with open_ledger(file, conversions=conversions()) as ledger:
        laplace("0.1").release(DATA, ledger=ledger, subject="town", members=EVERYBODY)
        ledger.checkpoint(Signer.load(pem))
        assert ledger.verify(signer=signer.public).intact
        (problem,) = ledger.verify(signer=other.public).problems
        assert problem == "the last checkpoint is not signed by the signer asked for"
        (made,) = ledger.changes()
    row = rows(file, "shoal_house")[0]
    row["document"] = row["document"].replace(made.document["signature"], other.sign("x"))
    row["hash"] = link_hash("shoal_house", row)
    update = "UPDATE shoal_house SET document = ?, hash = ? WHERE seq = ?"
    changed(file, (update, (row["document"], row["hash"], row["seq"])))
    assert judged(str(file)).problems == ("the signature of checkpoint 2 is false",)


def test_a_signature_of_a_plan_that_does_not_hold_lets_nothing_in(tmp_path: Path) -> None:
    """Whoever may write rules could write that a plan is signed: the signature itself decides."""
    file, plan = tmp_path / "budget.db", laplace("0.1")
    signer, other = Signer.make(tmp_path / "key.pem"), Signer.make(tmp_path / "other.pem")
    with open_ledger(file, conversions=conversions()) as ledger:
        ledger.trust(signer.public)
        false = other.sign(plan.fingerprint).rpartition(":")[2]
        document = {"plan": plan.fingerprint, "key": signer.public, "signature": false}
        ledger._decree("signature", plan.fingerprint, document, None)
        with pytest.raises(BudgetError, match="is not signed"):
            plan.release(DATA, ledger=ledger, subject="u")
        (problem,) = ledger.verify().problems
        assert problem == "the signature of a plan in link 3 is false"
        ledger.admit(plan, signer.public, signer.sign(plan.fingerprint))
        plan.release(DATA, ledger=ledger, subject="u")


@pytest.mark.parametrize("weak", sorted(WEAK), ids=lambda raw: raw.hex()[:8])
def test_keys_that_anybody_can_sign_for_are_refused(weak: bytes) -> None:
    """A key of small order takes S = 0 with one of few R: eight tries forge any text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    def forged(key: bytes, number: int) -> bytes | None:
        for point in (*WEAK, *(raw[:-1] + bytes([raw[-1] | 0x80]) for raw in WEAK)):
            with suppress(InvalidSignature, ValueError):
                signature = point + bytes(32)
                Ed25519PublicKey.from_public_bytes(key).verify(signature, f"{number}".encode())
                return signature
        return None

    for key in (weak, weak[:-1] + bytes([weak[-1] | 0x80])):
        told, signature = next((n, made) for n in range(999) if (made := forged(key, n)))
        assert not Signer.holds(key.hex(), signature.hex(), f"{told}")
        with pytest.raises(InputError, match="anybody can sign for"):
            Signer.checked(key.hex())


def test_a_key_is_its_owners_alone_and_never_replaced(tmp_path: Path) -> None:
    pem = tmp_path / "key.pem"
    made = Signer.make(pem)
    assert pem.stat().st_mode & 0o777 == 0o600
    assert Signer.load(pem).public == made.public
    with pytest.raises(InputError, match="never replaced"):
        Signer.make(pem)
    (tmp_path / "not.pem").write_text("a key, honestly")
    for wrong in ("not.pem", "nowhere.pem"):
        with pytest.raises(InputError, match="holds no Ed25519 key"):
            Signer.load(tmp_path / wrong)


def test_the_problems_listed_are_few_but_counted(copy: Path) -> None:
    with open_ledger(copy) as ledger:
        for _ in range(30):
            laplace("0.1").release(DATA, ledger=ledger, subject="many")
    changed(copy, ("UPDATE shoal_entries SET at = 'then'", ()))
    problems = judged(str(copy)).problems
    assert len(problems) == 21
    assert problems[-1] == "15 more problems"


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
    assert judged(url).uncovered == 1
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
            keys = ", ".join(KEYS[table])
            last = f"SELECT {keys} FROM {table} ORDER BY {keys} DESC LIMIT 1"
            found = connection.execute(last.encode()).fetchone() or ()
            where = "WHERE " + " AND ".join(
                f"{key} = '{value}'" for key, value in zip(KEYS[table], found, strict=True)
            )
            kept = connection.execute(f"SELECT {field} FROM {table} {where}".encode()).fetchone()
            for value, intact in (
                ("1000" if field in NUMBERS else "x", False),
                (*(kept or ()), True),
            ):
                back = where
                if not intact and field in KEYS[table]:
                    continue  # the row would not be found again; the next test moves it
                connection.execute(f"UPDATE {table} SET {field} = %s {back}".encode(), [value])
                assert judged(url).intact is intact, (table, field)


@pytest.mark.postgres
def test_a_switched_off_trigger_in_postgres_is_detected(tmp_path: Path) -> None:
    import psycopg

    url = fresh_ledger("postgres", tmp_path)
    fill(url)
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE shoal_entries DISABLE TRIGGER ALL")
    (problem,) = judged(url).problems
    assert "shoal_entries_append_only was changed or switched off" in problem


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("CREATE RULE quiet AS ON INSERT TO shoal_entries DO INSTEAD NOTHING", "quiet"),
        ("ALTER TABLE shoal_entries ENABLE ROW LEVEL SECURITY", "row security"),
    ],
)
def test_rules_and_row_security_in_postgres_are_detected(
    tmp_path: Path, more: str, name: str
) -> None:
    import psycopg

    url = fresh_ledger("postgres", tmp_path)
    fill(url)
    with psycopg.connect(url) as connection:
        connection.execute(more.encode())
    (problem,) = judged(url).problems
    assert problem.startswith(f"trigger or rule {name!r} is none of this library's")


@pytest.mark.postgres
@pytest.mark.parametrize(
    "hollow",
    [
        "CREATE OR REPLACE FUNCTION shoal_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN NULL; END $$",
        "DROP TRIGGER shoal_entries_append_only ON shoal_entries; "
        "CREATE TRIGGER shoal_entries_append_only BEFORE TRUNCATE ON shoal_entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION shoal_append_only()",
    ],
)
def test_a_hollow_trigger_in_postgres_is_detected(tmp_path: Path, hollow: str) -> None:
    import psycopg

    url = fresh_ledger("postgres", tmp_path)
    fill(url)
    with psycopg.connect(url) as connection:
        connection.execute(hollow.encode())
    assert "shoal_entries_append_only was changed" in " ".join(judged(url).problems)
