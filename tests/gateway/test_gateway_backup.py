"""One backup and one restore, on both kinds of database, by a user without superuser rights."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

from shoal.cli.app import app
from shoal.core.errors import InputError, LedgerError
from shoal.gateway.copies.backup import back_up, restore_backup
from tests.gateway.gateway_copies import EVERY, Site
from tests.ledger_servers import KINDS, Cluster, programs

WALK = "/v1/people/ada/streams/walk"
OWNER = "keeper"  # who owns the tables, as the documentation says: CREATEROLE and nothing more


class Server:
    """A PostgreSQL server whose databases belong to somebody without superuser rights."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.start()
        self.run(f"CREATE ROLE {OWNER} LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS")
        self._count_characters = 0

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        import psycopg

        url = self.cluster.url.replace("/postgres?", f"/{database}?")
        with psycopg.connect(url, autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    def fresh(self) -> str:
        """The URL of an empty database, for its owner."""
        self._count_characters += 1
        self.run(f"CREATE DATABASE d{self._count_characters} OWNER {OWNER}")
        return f"postgresql://{OWNER}@/d{self._count_characters}?host={self.cluster.folder}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    found = Server()
    yield found
    found.cluster.remove()


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A running gateway with an hour of readings in it."""
    url = str(tmp_path / "gateway.db")
    if request.param != "sqlite":
        url = request.getfixturevalue("server").fresh()
    site = Site(url, tmp_path)
    site.start()
    site.begin("ada", "ben")
    site.ask("PUT", WALK, "ada", {"plan": "walk", "clock": {"every": EVERY}}).raise_for_status()
    site.ask("PUT", "/v1/people/ada/grants/viewer", "ada", {"since": "2020-01-01T00:00:00Z"})
    site.pass_time(EVERY)
    for _ in range(3):
        assert site.slot(WALK, "ada-phone", {"state": "1,1"}) is None
    yield site
    site.nursery.stop()


def rows_of(database: str, server: Server | None = None) -> dict[str, list[Any]]:
    """Every row of every table, read by the driver alone, as a superuser; flags as 0 and 1."""
    if "://" not in database:
        with sqlite3.connect(database) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            found = {
                name: connection.execute(f"SELECT * FROM {name}").fetchall()
                for (name,) in names.fetchall()
            }
        connection.close()
    else:
        assert server is not None
        name = str(make_url(database).database)
        tables = server.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name)
        found = {table: server.run(f"SELECT * FROM {table}", name) for (table,) in tables}
    return {name: sorted(map(repr, map(_plain, rows))) for name, rows in found.items()}


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(int(each) if isinstance(each, bool) else each for each in row)


@pytest.mark.parametrize("target", KINDS)
def test_a_backup_of_a_running_service_restores_to_the_same_rows(
    source: Site, target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    copy = tmp_path / "copy.db"
    done = CliRunner().invoke(
        app, ["serve", "backup", str(copy), "--database", source.settings.database]
    )
    assert done.exit_code == 0, done.output
    assert copy.stat().st_mode & 0o077 == 0
    assert not list(tmp_path.glob("copy.db?*")), "one file is left, and nothing beside it"
    shown = source.outputs(WALK, "ada")
    source.stop()
    postgres = target != "sqlite" or "://" in source.settings.database
    server = request.getfixturevalue("server") if postgres else None
    where = server.fresh() if target != "sqlite" and server else str(tmp_path / "other.db")
    done = CliRunner().invoke(app, ["serve", "restore", str(copy), "--database", where])
    assert done.exit_code == 0, done.output
    before, after = rows_of(str(copy)), rows_of(where, server)
    assert after == before
    assert {len(before[name]) > 0 for name in ("gateway_outputs", "shoal_entries")} == {True}
    original = rows_of(source.settings.database, server)
    still = ("shoal_entries", "gateway_outputs", "gateway_grants", "gateway_plans")
    assert {name: original[name] for name in still} == {name: before[name] for name in still}
    goes_on(source, where, shown)


def goes_on(source: Site, where: str, shown: list[Any]) -> None:
    """The restored database is refused as older, then goes on, and its ledger is whole."""
    source.settings = source.settings.model_copy(update={"database": where})
    with pytest.raises(LedgerError, match="is behind"):
        source.check()
    source.accept()
    with source.store() as store:
        assert store.ledger.verify().intact
    source.start()
    assert source.outputs(WALK, "viewer") == shown
    assert source.slot(WALK, "ada-phone", {"state": "1,1"}) is None
    assert source.outputs(WALK, "ada")[-1]["status"] == "shown"


@pytest.mark.postgres
def test_a_dump_by_the_owner_has_no_rows_and_the_backup_has_all(
    server: Server, tmp_path: Path
) -> None:
    """The control: why there is a command of its own."""
    site = Site(server.fresh(), tmp_path)
    found = programs()
    assert found is not None
    dump = subprocess.run(
        [found / "pg_dump", "--enable-row-security", site.settings.database],
        capture_output=True,
        text=True,
        check=True,
    )
    token = site.tokens["operator"].split("_")[2]
    assert token not in dump.stdout
    assert "COPY public.gateway_keys" in dump.stdout
    back_up(site.settings.database, tmp_path / "copy.db")
    assert any(token in row for row in rows_of(str(tmp_path / "copy.db"))["gateway_keys"])


def test_nothing_is_written_over_and_what_is_no_backup_is_refused(
    source: Site, tmp_path: Path
) -> None:
    copy, database = tmp_path / "copy.db", source.settings.database
    copy.write_text("mine")
    with pytest.raises(InputError, match="exists"):
        back_up(database, copy)
    assert copy.read_text() == "mine"
    with pytest.raises(LedgerError, match="is not a ledger"):
        restore_backup(copy, str(tmp_path / "new.db"))
    with pytest.raises(InputError, match="does not exist"):
        restore_backup(tmp_path / "none.db", str(tmp_path / "new.db"))
    assert not list(tmp_path.glob("new.db*"))
    copy.unlink()
    back_up(database, copy)
    with pytest.raises(InputError, match=r"exists|holds a gateway already"):
        restore_backup(copy, database)
    with sqlite3.connect(tmp_path / "strange.db") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises((InputError, LedgerError), match="no database of a gateway"):
        back_up(str(tmp_path / "strange.db"), tmp_path / "new.db")
    assert not list(tmp_path.glob("new.db*"))
