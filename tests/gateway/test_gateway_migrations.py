"""Migrations: each makes the tables of its time, and the last one those of the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Text, inspect, text

from shoal.gateway.store import Store, upgrade_schema
from shoal.gateway.tables import METADATA, OUTPUTS, SPACED
from tests.gateway.gateway_house import running, settings_in
from tests.ledger_servers import KINDS, fresh_ledger


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    database = fresh_ledger(request.param, tmp_path)
    found = Store(settings_in(tmp_path, database=database))
    yield found
    found.close()


def columns(store: Store) -> dict[str, set[tuple[str, bool]]]:
    """Names of the columns of every table of the gateway, and whether each may be empty."""

    def look(connection: Connection) -> dict[str, set[tuple[str, bool]]]:
        found = inspect(connection)
        names = [name for name in found.get_table_names() if name.startswith("gateway_")]
        return {
            name: {(each["name"], bool(each["nullable"])) for each in found.get_columns(name)}
            for name in names
            if name != "gateway_versions"
        }

    return store.ledger.database.read(look)


def test_the_last_migration_makes_the_tables_of_the_code(store: Store) -> None:
    store.migrate()
    wanted = {
        table.name: {(each.name, bool(each.nullable)) for each in table.columns}
        for table in METADATA.sorted_tables
    }
    assert columns(store) == wanted
    assert set(wanted) == {table.name for table in SPACED}


def test_a_column_that_is_added_later_is_not_in_the_first_tables(
    store: Store,
) -> None:
    """Before, the first migration made the tables of today, and a later one failed on them."""
    later: Column[str] = Column("later", Text())
    OUTPUTS.append_column(later)
    try:
        store.ledger.database.migrate(lambda c: upgrade_schema(c, "0001"))
        assert "later" not in {name for name, _ in columns(store)["gateway_outputs"]}
        add = text("ALTER TABLE gateway_outputs ADD COLUMN later TEXT")
        store.ledger.database.migrate(lambda c: c.execute(add))
    finally:
        OUTPUTS._columns.remove(later)


def test_every_version_is_brought_up_to_date(store: Store) -> None:
    for revision in ("0001", "0002", "0003", "head", "head"):
        store.ledger.database.migrate(lambda c, to=revision: upgrade_schema(c, to))  # type: ignore[misc]
    assert set(columns(store)) == {table.name for table in SPACED}


def test_outputs_are_kept_for_days(tmp_path: Path) -> None:
    path, every = "/v1/people/ada/streams/s", 3600.0
    with running(tmp_path, history_days=1.0) as house:
        house.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
        body = {"plan": "walk", "clock": {"every": every}}
        house.ask("PUT", path, "one/ada", body).raise_for_status()
        house.pass_time(100 * every)
        found = house.outputs(path, "one/ada")
        assert 22 <= len(found) < 24 + 30  # a few slots at a time, some of a day at once
        house.pass_time(40 * every)
        later = house.outputs(path, "one/ada")
        assert later[0]["id"] > found[0]["id"]
        assert len(later) < 24 + 30
