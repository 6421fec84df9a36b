"""Ledgers that are locked, damaged, read-only, full, newer or older: one clear sentence each."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect
from sqlalchemy.engine import make_url

from shoal.core.charge import Charge
from shoal.core.errors import LedgerError
from shoal.ledger import SqlLedger, database, open_ledger
from shoal.ledger.export import as_json
from shoal.ledger.schema import TABLES, VERSIONS, append, house_head
from tests.ledger_plans import DATA, conversions, laplace
from tests.ledger_servers import KINDS, fresh_ledger, shared_server

PLAN = laplace("0.1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with one charge."""
    file = tmp_path / "budget.db"
    with open_ledger(file, conversions=conversions()) as ledger:
        ledger.limit("5")
        PLAN.release(DATA, ledger=ledger, subject="u", key="k")
    return file


def spend(ledger: SqlLedger) -> None:
    PLAN.release(DATA, ledger=ledger, subject="u")


def test_every_commit_is_on_the_disk_and_readers_do_not_wait(path: Path) -> None:
    with open_ledger(path) as ledger:
        pragmas = ledger.database.read(
            lambda connection: {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("synchronous", "journal_mode")
            }
        )
    assert pragmas == {"synchronous": 2, "journal_mode": "wal"}


@pytest.mark.parametrize(("shared", "mode"), [(False, 0o600), (True, 0o644)])
def test_a_new_file_is_its_owners_alone_from_the_first_byte(
    tmp_path: Path, shared: bool, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    before, file = os.umask(0o022), tmp_path / "budget.db"
    real = sqlite3.connect

    def noted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        seen.append(file.stat().st_mode)
        made: sqlite3.Connection = real(*arguments, **options)
        return made

    monkeypatch.setattr(sqlite3, "connect", noted)
    try:
        with open_ledger(file, shared=shared) as ledger:
            spend(ledger)
            names = [f for f in tmp_path.iterdir() if f.name.startswith("budget")]
            assert {f.stat().st_mode & 0o777 for f in names} == {mode}
    finally:
        os.umask(before)
    assert len(names) == 3  # the file, its log and its index
    assert {found & 0o777 for found in seen} == {mode}


def test_a_locked_file_is_said_to_be_locked_and_can_still_be_read(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with open_ledger(path, timeout=0.05) as ledger:
            with pytest.raises(LedgerError, match="is locked by another program"):
                spend(ledger)
            assert len(ledger.charges()) == 1
        other.execute("ROLLBACK")
    with open_ledger(path) as ledger:
        spend(ledger)


def test_opening_waits_for_a_writer_of_a_file_that_has_no_log_yet(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="is locked by another program"):
            open_ledger(path, timeout=0.05)
        letting_go = threading.Timer(0.2, other.execute, ["ROLLBACK"])
        letting_go.start()
        with open_ledger(path, timeout=60) as ledger:
            assert len(ledger.charges()) == 1
        letting_go.join()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "budget.db"
    file.write_bytes(b"not a database at all, but long enough to look at" * 40)
    with pytest.raises(LedgerError, match="not a SQLite database, or it is damaged"):
        open_ledger(file)


def test_a_damaged_file_is_said_to_be_damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="is damaged"), open_ledger(path) as ledger:
        spend(ledger)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    before = file.read_bytes()
    with pytest.raises(LedgerError, match="another program's tables"):
        open_ledger(file)
    assert file.read_bytes() == before


def test_a_folder_or_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="is a folder"):
        open_ledger(tmp_path)
    with pytest.raises(LedgerError, match="its folder must exist"):
        open_ledger(tmp_path / "nowhere" / "budget.db")


def test_a_full_disk_refuses_the_charge_and_keeps_the_rest(path: Path) -> None:
    with open_ledger(path) as ledger:

        def fill(connection: Connection) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

        ledger.database.read(fill)
        before = ledger.head()
        charges = [Charge(plan=PLAN, subject=f"{number:0500}") for number in range(200)]
        with pytest.raises(LedgerError, match="the disk is full"):
            ledger.settle_all(charges, lambda places: [PLAN.release(DATA) for _ in places])
        kept = ledger.verify(before.hash)
    assert kept.intact
    with open_ledger(path) as ledger:
        spend(ledger)
        assert ledger.verify().intact


def test_a_ledger_opened_read_only_shows_but_takes_nothing(path: Path) -> None:
    with open_ledger(path, read_only=True, conversions=conversions()) as ledger:
        assert len(ledger.charges()) == 1
        assert ledger.spent("u") is not None
        assert ledger.verify().intact
        for change in (lambda: spend(ledger), lambda: ledger.limit("9")):
            with pytest.raises(LedgerError, match="read-only: it was asked for so"):
                change()


def test_a_read_only_ledger_must_exist(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="does not exist"):
        open_ledger(tmp_path / "budget.db", read_only=True)
    (tmp_path / "empty.db").touch()
    with pytest.raises(LedgerError, match="is empty and read-only"):
        open_ledger(tmp_path / "empty.db", read_only=True)


def test_the_database_itself_refuses_to_write_what_is_read_only(path: Path) -> None:
    with open_ledger(path, read_only=True) as ledger:
        ledger.obstacle = None
        with pytest.raises(LedgerError, match="give write permission"):
            spend(ledger)


def told_to_an_ordinary_user(file: Path) -> list[str]:
    """What a user without special rights is told who opens the ledger and tries to change it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:  # root may write whatever the permissions say
                os.setgid(65534)
                os.setuid(65534)
            with open_ledger(file) as ledger:
                told = [str(len(ledger.charges()))]
                with pytest.raises(LedgerError) as caught:
                    ledger.limit("1")
            os.write(writing, "\n".join([*told, str(caught.value)]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    return lines


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_file_without_write_permission_is_opened_read_only(path: Path, folder_mode: int) -> None:
    home = Path(tempfile.mkdtemp())  # other users cannot reach into tmp_path
    try:
        shutil.copy(path, home / "budget.db")
        (home / "budget.db").chmod(0o444)
        home.chmod(folder_mode)
        charges, refusal = told_to_an_ordinary_user(home / "budget.db")
    finally:
        home.chmod(0o700)
        shutil.rmtree(home)
    assert charges == "1"
    assert "is read-only: this user may not write to the file" in refusal


@pytest.mark.postgres
def test_a_server_that_does_not_answer_is_said_so_without_the_password() -> None:
    shared_server()
    with pytest.raises(LedgerError, match="cannot be reached") as caught:
        open_ledger("postgresql://ann:hunter2@127.0.0.1:1/budget")
    assert "hunter2" not in str(caught.value)


@pytest.mark.postgres
def test_a_locked_server_is_said_to_be_locked(tmp_path: Path) -> None:
    import psycopg

    url = fresh_ledger("postgres", tmp_path)
    with open_ledger(url) as ledger, psycopg.connect(url) as other:
        other.execute("LOCK TABLE shoal_entries IN SHARE ROW EXCLUSIVE MODE")
        with open_ledger(url, timeout=0.05) as hasty:
            with pytest.raises(LedgerError, match="is locked by another program"):
                spend(hasty)
            assert hasty.charges() == []
        other.rollback()
        spend(ledger)


@pytest.mark.postgres
def test_a_user_who_may_not_write_is_told_so(tmp_path: Path) -> None:
    import psycopg

    url = fresh_ledger("postgres", tmp_path)
    with open_ledger(url) as ledger:
        spend(ledger)
    schema = url.rpartition("%3D")[2]
    reader = f"reader_{schema}"
    with psycopg.connect(url, autocommit=True) as owner:
        for statement in (
            f"CREATE ROLE {reader} LOGIN",
            f"GRANT USAGE ON SCHEMA {schema} TO {reader}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader}",
        ):
            owner.execute(statement.encode())
    with open_ledger(url.replace("shoal@", f"{reader}@")) as ledger:
        assert len(ledger.charges()) == 1
        with pytest.raises(LedgerError, match="may not be changed by this user"):
            spend(ledger)


@pytest.mark.postgres
@pytest.mark.parametrize(("preferred", "used"), [("off", "on"), ("on", "on"), ("local", "local")])
def test_a_release_waits_for_the_disk_whatever_the_server_prefers(
    tmp_path: Path, preferred: str, used: str
) -> None:
    url = fresh_ledger("postgres", tmp_path) + f"%20-csynchronous_commit%3D{preferred}"
    with open_ledger(url) as ledger:
        spend(ledger)
        level = ledger.database.read(
            lambda connection: connection.exec_driver_sql("SHOW synchronous_commit").scalar()
        )
        assert level == used
        assert written_and_flushed(ledger, lambda: spend(ledger)) == (True, True)
        charge = Charge(plan=PLAN, subject="u")
        several = [charge, charge]
        made = written_and_flushed(
            ledger, lambda: ledger.settle_all(several, lambda _: [PLAN.release(DATA)] * 2)
        )
        assert made == (True, True)


SECRETS = (
    "postgresql://ann:hunter2@127.0.0.1:1/budget",
    "postgresql://ann@127.0.0.1:1/budget?password=hunter2",
    "postgresql://ann@127.0.0.1:1/budget?sslpassword=hunter2&sslmode=disable",
)


@pytest.mark.parametrize("url", SECRETS)
def test_a_password_is_in_no_name_of_a_ledger(url: str) -> None:
    assert "hunter2" not in database.shown(url)
    assert database.shown(url).startswith("postgresql://ann@127.0.0.1:1/budget")
    with pytest.raises(LedgerError, match="cannot be reached") as caught:
        open_ledger(url)
    assert "hunter2" not in str(caught.value)


def written_and_flushed(ledger: SqlLedger, write: Callable[[], object]) -> tuple[bool, bool]:
    """Whether a write makes the log longer, and is on the disk when it returns."""

    def place(function: str) -> object:
        return ledger.database.read(
            lambda connection: connection.exec_driver_sql(
                f"SELECT {function}() - '0/0'::pg_lsn"
            ).scalar()
        )

    before = place("pg_current_wal_insert_lsn")
    write()
    flushed, after = place("pg_current_wal_flush_lsn"), place("pg_current_wal_insert_lsn")
    assert isinstance(before, Decimal)
    assert isinstance(after, Decimal)
    assert isinstance(flushed, Decimal)
    return after > before, flushed > before


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_ledger(request.param, tmp_path)


def overtaken(url: str) -> None:
    """What a newer program leaves behind."""
    with open_ledger(url) as ledger:
        ledger.database.write(
            lambda c: append(c, VERSIONS, house_head(c), version="4", program="newer")
        )


def test_a_newer_ledger_is_opened_read_only(url: str) -> None:
    with open_ledger(url) as ledger:
        spend(ledger)
    overtaken(url)
    with open_ledger(url) as old:
        assert len(old.charges()) == 1
        assert old.verify().intact
        with pytest.raises(LedgerError, match="version 4 and this program knows version 3"):
            spend(old)


def test_a_program_that_was_overtaken_stops_writing(url: str) -> None:
    with open_ledger(url) as ledger:
        spend(ledger)
        overtaken(url)
        charge = Charge(plan=PLAN, subject="u")
        for write in (
            lambda: spend(ledger),
            lambda: ledger.limit("7"),
            lambda: ledger.settle_all([charge] * 2, lambda at: [PLAN.release(DATA)] * len(at)),
            ledger.checkpoint,
        ):
            ledger.obstacle = None
            with pytest.raises(LedgerError, match="version 4 and this program knows version 3"):
                write()
        assert ledger.verify().charges == 1


def test_a_migration_that_fails_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: Connection, words: object, program: str) -> None:
        connection.exec_driver_sql("CREATE TABLE shoal_notes (note TEXT)")
        connection.exec_driver_sql("CREATE TABLE shoal_notes (note TEXT)")

    monkeypatch.setattr(database, "bring_up_to_date", broken)
    with pytest.raises(LedgerError):
        open_ledger(url)
    monkeypatch.undo()
    with open_ledger(url) as ledger:
        tables = ledger.database.read(lambda connection: inspect(connection).get_table_names())
    assert "shoal_notes" not in tables


def test_the_tables_of_the_queries_are_those_of_the_migrations(url: str) -> None:
    with open_ledger(url) as ledger:

        def compare(connection: Connection) -> None:
            for table in TABLES:
                found = {
                    column["name"]: column["nullable"]
                    for column in inspect(connection).get_columns(table.name)
                }
                wanted = {column.name: column.nullable for column in table.columns}
                assert list(found) == list(wanted)
                assert found == wanted

        ledger.database.read(compare)


def saying(statement: str) -> Callable[[Connection], object]:
    return lambda connection: connection.exec_driver_sql(statement)


@pytest.mark.parametrize("statement", ["UPDATE {} SET {} = ''", "DELETE FROM {}"])
def test_the_database_refuses_to_change_or_delete_a_row(url: str, statement: str) -> None:
    with open_ledger(url) as ledger:
        ledger.limit("5")
        spend(ledger)
        for table in TABLES:
            with pytest.raises(LedgerError, match=r"append-only|breaks its rules"):
                ledger.database.write(
                    saying(statement.format(table.name, list(table.columns)[-1].name))
                )
        assert ledger.verify().intact


def test_a_closed_ledger_opens_again_by_itself(url: str) -> None:
    ledger = open_ledger(url)
    release = PLAN.release(DATA, ledger=ledger, subject="u", key="k")
    ledger.close()
    charge = Charge(plan=PLAN, subject="u", key="k")
    assert ledger.settle(charge, lambda: pytest.fail("sampled again")) == release
    ledger.close()
    spend(ledger)
    assert len(ledger.charges()) == 2
    ledger.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:geheim@127.0.0.1:port/db",
        "postgresql://u:geheim@[::1/db",
        "postgresql:u:geheim@h",
        "host=127.0.0.1 user=u password=geheim",
        " postgresql://u:geheim@h/db",
        "mysql://u:geheim@h/db",
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Nor is a file made of it, whose name would hold the password."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match="the ledger's URL") as raised:
        open_ledger(url)
    assert "geheim" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_no_password_of_a_url_is_shown_however_its_option_is_called() -> None:
    asked = "pwd=a1&sslpassword=b2&oauth_client_secret=c3&ACCESS_TOKEN=d4&sslmode=require"
    url = f"postgresql://u:e5@h:5/db?{asked}"
    assert database.shown(url) == "postgresql://u@h:5/db?sslmode=require"
    assert set(database.secrets_of(make_url(url))) == {"a1", "b2", "c3", "d4", "e5"}


@pytest.mark.parametrize("name", ["a\0b", "9" * 5000, "loop", "pipe"])
def test_names_no_ordinary_file_has(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for read_only in (False, True):  # a pipe without a writer would be waited for without end
        with pytest.raises(LedgerError, match=r"none that a file can have|a pipe or a device"):
            open_ledger(tmp_path / name, read_only=read_only)


@pytest.mark.parametrize("name", ["file::memory:?cache=shared", "a?mode=memory", "file:other.db"])
def test_a_name_is_no_address_of_sqlites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_ledger(name, conversions=conversions()) as ledger:
        spend(ledger)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with open_ledger(name, read_only=True) as ledger:
        assert len(ledger.charges()) == 1


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("shoal_versions", "seq", "first"),
        ("shoal_versions", "version", "9" * 5000),
        ("shoal_house", "document", "[]"),
        ("shoal_house", "document", '{"a":' * 3000),
        ("shoal_house", "seq", "second"),
        ("shoal_entries", "place", "last"),
        ("shoal_entries", "part", "0.."),
        ("shoal_entries", "hash", b"\xff"),
        ("shoal_entries", "house", "none"),
    ],
)
def test_rows_of_other_making_end_in_a_sentence(
    path: Path, table: str, column: str, value: Any
) -> None:
    """SQLite keeps whatever it is given; `verify` names it, and nothing else trips over it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    acts: list[Callable[[SqlLedger], Any]] = [
        spend,
        lambda ledger: list(ledger.totals()),
        lambda ledger: ledger.changes(),
        lambda ledger: list(as_json(ledger)),
    ]
    told = []
    for act in acts:
        try:
            with open_ledger(path, conversions=conversions()) as ledger:
                act(ledger)
        except LedgerError as error:
            told.append(str(error))
    if column != "version":
        with open_ledger(path) as ledger:
            assert not ledger.verify().intact
        assert told or column == "house"  # which is only looked at again by `verify`
    assert all("changed by hand" in words for words in told)
