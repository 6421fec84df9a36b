"""The census of a shard against the reader of single files, on any table of rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, strategies as st

from shoal.core.errors import DataError
from shoal.data.rows import encode_texts
from shoal.data.table import from_table
from shoal.jobs.census import TWICE, take_census
from shoal.jobs.inputs import Layout
from shoal.jobs.tidy import NO_STATE, UNKNOWN, shard_of, state_codes, tidy

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
    part, unowned, *_ = tidy(frame, layout, STATES, "the table")
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


RAW = st.lists(
    st.tuples(
        st.sampled_from(["x", "y"]),
        st.integers(0, 200_000),
        st.sampled_from([*STATES, None, "NaN"]),
        st.booleans(),
    ),
    min_size=2,
    max_size=40,
    unique_by=lambda row: row[:2],
)


@given(
    rows=RAW,
    missing=st.sampled_from(["drop", "gap", "state"]),
    every=st.sampled_from([None, "hour", "day"]),
    where=st.sampled_from([None, "good = true"]),
)
def test_raw_rows_become_the_chains_and_parts_of_the_reader(
    rows: list[tuple[str, int, str | None, bool]],
    missing: str,
    every: str | None,
    where: str | None,
) -> None:
    frame = pl.DataFrame(rows, schema=["who", "at", "what", "good"], orient="row")
    raw: dict[str, Any] = {"missing": missing, "every": every, "where": where, "unit": "s"}
    states = (*STATES, "missing")
    layout = Layout(by="who", state="what", time="at", gap=timedelta(hours=2), **raw)
    found = tidy(frame, layout, states, "the table")
    census = take_census(found.rows, layout, len(states))
    assert int(census.read.sum()) + found.left_out == len(rows)
    try:
        wanted = from_table(frame, state="what", series="who", time="at", gap="2h", **raw)
    except DataError:
        return
    chains = dict(zip(wanted.names, wanted.on(states).chains, strict=True))
    for unit, subject in enumerate(census.subjects):
        name = subject if every is None else f"{subject} {census.periods[unit]}"
        if unit in census.problems:  # nothing but rows without a state
            assert not chains[name]
            continue
        own = [c.tolist() for c in chains[name]]
        if sum(map(len, own)) >= 2:
            assert [c.tolist() for c in census.sequences(unit, states).chains] == own
        if every is not None:
            (first, last), seen = census.part(unit).span, wanted.parts[name].span
            assert seen[0] <= first < last <= seen[1]  # the reader counts rows without a state too


@given(names=st.lists(st.text(max_size=5), min_size=1, max_size=30), shards=st.integers(1, 9))
def test_a_subject_has_one_shard_whatever_stands_beside_it(names: list[str], shards: int) -> None:
    together = shard_of(pl.Series(names, dtype=pl.String), shards)
    alone = [int(shard_of(pl.Series([name]), shards)[0]) for name in names]
    assert together.tolist() == alone
    assert np.all((together >= 0) & (together < shards))


@given(names=st.lists(st.text(max_size=4), max_size=60), repeats=st.sampled_from([1, 9]))
def test_texts_are_numbered_in_their_order(names: list[str], repeats: int) -> None:
    column = pl.Series(names * repeats, dtype=pl.String)
    codes, distinct = encode_texts(column)
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
