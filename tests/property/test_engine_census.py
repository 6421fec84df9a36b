"""The census of a shard against the reader of single files, on any table of rows."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
from hypothesis import given, strategies as st

from shoal.core.errors import DataError
from shoal.data.table import from_table
from shoal.jobs.census import TWICE, take_census
from shoal.jobs.inputs import Layout
from shoal.jobs.tidy import NO_STATE, UNKNOWN, coded, shard_of, state_codes, tidy

STATES = ("a", "b", "c")
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["x", "y", "zz", "ü"]),
        st.integers(0, 30),
        st.sampled_from(STATES),
    ),
    min_size=2,
    max_size=40,
)


@given(rows=ROWS, gap=st.sampled_from([None, 1, 3]))
def test_chains_and_counts_are_those_of_the_reader(
    rows: list[tuple[str, int, str]], gap: int | None
) -> None:
    frame = pl.DataFrame(rows, schema=["who", "at", "what"], orient="row")
    pause = None if gap is None else timedelta(seconds=gap)
    layout = Layout(by="who", state="what", time="at", gap=pause)
    part, unowned, _, _ = tidy(frame, layout, STATES, "the table")
    census = take_census(part, layout, len(STATES))
    assert unowned == 0
    assert census.rows.sum() == len(rows)
    for unit, subject in enumerate(census.subjects):
        own = frame.filter(pl.col("who") == subject)
        if own.height < 2:
            continue
        try:
            wanted = from_table(own, state="what", time="at", gap=pause).on(STATES)
        except DataError:
            assert census.problems[unit] == TWICE
            continue
        assert unit not in census.problems
        found = census.sequences(unit, STATES)
        assert [c.tolist() for c in found.chains] == [c.tolist() for c in wanted.chains[0]]
        assert census.counts[unit].tolist() == found.counts().tolist()


@given(names=st.lists(st.text(max_size=5), min_size=1, max_size=30), shards=st.integers(1, 9))
def test_a_subject_has_one_shard_whatever_stands_beside_it(names: list[str], shards: int) -> None:
    together = shard_of(pl.Series(names, dtype=pl.String), shards)
    alone = [int(shard_of(pl.Series([name]), shards)[0]) for name in names]
    assert together.tolist() == alone
    assert np.all((together >= 0) & (together < shards))


@given(names=st.lists(st.text(max_size=4), max_size=60), repeats=st.sampled_from([1, 9]))
def test_texts_are_numbered_in_their_order(names: list[str], repeats: int) -> None:
    column = pl.Series(names * repeats, dtype=pl.String)
    codes, distinct = coded(column)
    assert distinct == sorted(set(names), key=str.encode)
    assert [distinct[code] for code in codes] == column.to_list()


@given(names=st.lists(st.sampled_from([*STATES, "ab", "", None]), max_size=30))
def test_a_state_is_its_place_unknown_or_missing(names: list[str | None]) -> None:
    found = state_codes(pl.Series(names, dtype=pl.String), STATES).to_list()
    wanted = [
        NO_STATE if name is None else STATES.index(name) if name in STATES else UNKNOWN
        for name in names
    ]
    assert found == wanted
