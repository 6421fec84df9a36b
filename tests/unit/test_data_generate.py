"""Made-up data: repeatable, plausible, and the same through a file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.chains.fit import fit_chain
from shoal.core.errors import InputError
from shoal.data.generate import (
    ACTIVITIES,
    CONTEXTS,
    activity_days,
    activity_table,
    contact_network,
    household_power,
    map_walk,
    phone_contexts,
    phone_table,
    power_table,
    write_table,
)
from shoal.data.read import read
from shoal.data.table import Dataset

DATASETS: list[Callable[[int], Dataset]] = [
    lambda seed: activity_days(2, 2, seed),
    lambda seed: household_power(2, seed, houses=2),
    lambda seed: phone_contexts(5, seed),
    lambda seed: map_walk(1, seed).dataset(),
]


def same(one: Dataset, other: Dataset) -> bool:
    chains = [[c.tolist() for series in data.chains for c in series] for data in (one, other)]
    return (one.states, one.names) == (other.states, other.names) and chains[0] == chains[1]


@pytest.mark.parametrize("make", DATASETS)
def test_equal_seeds_give_equal_data_and_others_do_not(make: Callable[[int], Dataset]) -> None:
    assert same(make(3), make(3))
    assert not same(make(3), make(4))


def test_activity_has_nights_gaps_and_long_stays() -> None:
    data = activity_days()
    assert data.states == ACTIVITIES
    assert len(data.names) == 8
    records = data.sequences()
    shares = dict(zip(records.states, records.counts() / records.total, strict=True))
    assert 0.25 < shares["lie"] < 0.5
    assert 0.3 < shares["sit"] < 0.6
    assert all(share > 0.001 for share in shares.values())
    assert all(len(chains) > 1 for chains in data.chains)
    assert (np.diag(fit_chain(records).transition) > 0.6).all()
    table = activity_table()
    night = table.filter(table["time"].dt.hour() == 3)["state"]
    assert (night == "lie").mean() > 0.7  # type: ignore[operator]


def test_a_person_is_the_same_whoever_else_is_recorded() -> None:
    alone, together = activity_table(1, 3), activity_table(4, 3)
    assert together.filter(together["series"] == "person-1").equals(alone)
    second = together.filter(together["series"] == "person-2")
    assert not second["state"].head(2000).equals(alone["state"].head(2000))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_tables_read_back_as_the_same_data(tmp_path: Path, suffix: str) -> None:
    file = write_table(tmp_path / f"days{suffix}", activity_table(2, 2))
    again = read(file, state="state", series="series", time="time", gap=timedelta(minutes=10))
    assert same(again.on(ACTIVITIES), activity_days(2, 2))


def test_power_is_binned_in_order() -> None:
    data = household_power(7, houses=2)
    edges = [int(state) for state in data.states]
    assert edges == sorted(edges)
    assert all(edge % 200 == 0 for edge in edges)
    assert edges[0] == 0
    assert 2000 <= edges[-1] <= 10_000
    assert [len(chains) for chains in data.chains] == [1, 1]
    assert data.longest == 7 * 1440
    watts = power_table(1)
    assert ((watts["watts"] // 200 * 200) == watts["state"].cast(float)).all()
    assert 150 < watts["watts"].to_numpy().mean() < 700


def test_every_phone_day_is_a_chain() -> None:
    data = phone_contexts(28, people=2, slot_minutes=10)
    assert data.states == CONTEXTS
    assert [len(chains) for chains in data.chains] == [28, 28]
    assert {len(chain) for chains in data.chains for chain in chains} == {108}
    assert all(chain[0] == CONTEXTS.index("home") for chains in data.chains for chain in chains)
    whole = phone_contexts()
    seen = whole.sequences().counts()
    assert (seen > 0).all()
    assert seen[CONTEXTS.index("hospital")] < 0.02 * whole.total
    assert phone_table(1).height == 72


def test_the_walk_stays_on_its_map_and_moves_to_near_cells() -> None:
    walk = map_walk(2, rows=10, columns=8, cell_m=200.0)
    assert len(walk.cells) == 2 * 1440
    rows, columns = np.divmod(walk.cells, 8)
    assert rows.max() < 10
    assert np.abs(np.diff(rows)).max() <= 1
    assert np.abs(np.diff(columns)).max() <= 1
    # the cell is the one the coordinates fall in, up to the rounding of degrees
    metres = (walk.latitude - walk.south) * 111_320.0
    assert np.abs(metres / 200.0 - rows - 0.5).max() < 0.5001
    assert walk.label(int(walk.cells[0])) == walk.table()["state"][0]
    assert not walk.latitude.flags.writeable
    assert walk.dataset().sequences().total == 2 * 1440


def test_contacts_tie_households_and_friends() -> None:
    network = contact_network(80)
    pairs = {tuple(pair) for pair in network.edges.tolist()}
    assert len(pairs) == len(network.edges) == len(network.kinds)
    assert all(a < b for a, b in pairs)
    home = network.household
    alike = {(a, b) for a in range(80) for b in range(a + 1, 80) if home[a] == home[b]}
    tied = {
        tuple(p)
        for p, kind in zip(network.edges.tolist(), network.kinds, strict=True)
        if kind == "household"
    }
    assert tied == alike
    assert np.bincount(home).max() <= 5
    friends = network.kinds.count("friend")
    assert 80 <= friends <= 240
    assert network.table().height == len(pairs)
    assert np.array_equal(contact_network(80).edges, network.edges)
    assert not np.array_equal(contact_network(80, 2).edges, network.edges)
    assert contact_network(1).table().height == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: activity_table(0), "people is 0; it must be a whole number of at least 1"),
        (lambda: household_power(0), "days is 0"),
        (lambda: phone_table(slot_minutes=7), "slot_minutes is 7; it must be 5, 10 or 15"),
        (lambda: map_walk(cell_m=0), "cell_m is 0; a cell must be wider"),
        (lambda: contact_network(-1), "people is -1"),
    ],
)
def test_impossible_sizes_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
