"""Data: however it is handed over, the same chains come out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from shoal.core.errors import DataError
from shoal.core.records import Sequences, label, sequences

STATES = ("a", "b", "c")
CHAIN = ["a", "b", "b", "c", "a"]


@pytest.mark.parametrize(
    "data",
    [
        CHAIN,
        tuple(CHAIN),
        iter(CHAIN),
        np.array(CHAIN),
        np.array(CHAIN, dtype=object),
        pd.Series(CHAIN),
        pd.Series(CHAIN, index=[9, 8, 7, 6, 5]),
        pd.Series(CHAIN, dtype="category"),
        pl.Series(CHAIN),
        pl.Series(CHAIN, dtype=pl.Categorical),
        pl.Series(CHAIN, dtype=pl.Enum(["c", "b", "a"])),
        [CHAIN],
        (item for item in CHAIN),
    ],
    ids=lambda data: type(data).__name__,
)
def test_one_chain_may_come_in_any_container(data: Any) -> None:
    records = sequences(data, STATES)
    assert [chain.tolist() for chain in records.chains] == [[0, 1, 1, 2, 0]]
    assert records.states == STATES


@pytest.mark.parametrize(
    "data",
    [
        [["a", "b"], ["c", "c"]],
        (("a", "b"), ("c", "c")),
        np.array([["a", "b"], ["c", "c"]]),
        [np.array(["a", "b"]), np.array(["c", "c"])],
        [pd.Series(["a", "b"]), pd.Series(["c", "c"])],
        [pl.Series(["a", "b"]), pl.Series(["c", "c"])],
        pl.Series([["a", "b"], ["c", "c"]]),
        pd.Series([["a", "b"], ["c", "c"]]),
        [pd.Series(["a", "b"]), ["c", "c"]],
    ],
    ids=lambda data: type(data).__name__,
)
def test_several_chains_may_come_in_any_container(data: Any) -> None:
    records = sequences(data, STATES)
    assert [chain.tolist() for chain in records.chains] == [[0, 1], [2, 2]]


@pytest.mark.parametrize(
    "data",
    [
        [0, 1, 1],
        ["0", "1", "1"],
        [0.0, 1.0, 1.0],
        np.array([0, 1, 1], dtype=np.uint8),
        np.array([0, 1, 1], dtype=np.float32),
        pd.Series([0, 1, 1]),
        pl.Series([0, 1, 1]),
    ],
    ids=lambda data: type(data).__name__,
)
def test_numbers_and_their_texts_are_one_state(data: Any) -> None:
    (chain,) = sequences(data, ("0", "1")).chains
    assert chain.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (1.0, "1"), (np.float64(2), "2"), (1.5, "1.5"), ("x", "x"), (True, "True")],
)
def test_a_state_is_known_by_its_text(value: Any, text: str) -> None:
    assert label(value) == text


def test_the_longest_chain_and_the_total_are_told_apart() -> None:
    records = sequences([["a"], ["a", "b", "c"], ["b", "b"]], STATES)
    assert (records.longest, records.total) == (3, 6)
    assert records.counts().tolist() == [2, 3, 1]


def test_chains_are_locked() -> None:
    (chain,) = sequences(CHAIN, STATES).chains
    with pytest.raises(ValueError, match="read-only"):
        chain[0] = 1


def test_encoded_data_passes_through_when_the_states_agree() -> None:
    records = sequences(CHAIN, STATES)
    assert sequences(records, STATES) is records
    with pytest.raises(DataError, match=r"the data has states \['a', 'b', 'c'\], the model"):
        sequences(records, ("a", "b"))


@pytest.mark.parametrize(
    ("data", "entries"), [([], 0), (["a"], 1), ([[]], 0), ([["a"], []], 1), (pl.Series([]), 0)]
)
def test_empty_and_one_row_data_is_refused(data: Any, entries: int) -> None:
    with pytest.raises(DataError, match=f"the data holds {entries} entries; a release needs at le"):
        sequences(data, STATES)


def test_an_unknown_state_is_named_with_the_way_out() -> None:
    with pytest.raises(DataError, match=r"the data holds the state 'd'.*\(a, b, c\); add it to"):
        sequences(["a", "d"], STATES)


def test_a_long_list_of_states_is_cut_in_the_message() -> None:
    with pytest.raises(DataError, match=r"\(0, 1, 2, 3, 4, 5, 6, 7, …\)"):
        sequences([99, 1], [str(i) for i in range(20)])


@pytest.mark.parametrize("data", [5, None, "ab", b"ab", 2.5])
def test_what_is_no_sequence_is_refused(data: Any) -> None:
    with pytest.raises(DataError, match=r"the data is a .*; hand over a sequence of states"):
        sequences(data, STATES)


@pytest.mark.parametrize(
    "hole", [None, float("nan"), np.nan, pd.NaT, pd.NA, np.datetime64("NaT")], ids=str
)
def test_missing_values_are_not_a_state(hole: Any) -> None:
    """Also where a state happens to be called like one."""
    with pytest.raises(DataError, match=r"entry 2 of the data is missing \(.*; drop such entries"):
        sequences(["a", hole], (*STATES, "nan", "None", "NaT", "<NA>"))


@pytest.mark.parametrize(
    "data",
    [{"a": 900, "b": 3}, Counter("aab"), pd.Series(["a", "a", "b"]).value_counts()],
    ids=["dict", "Counter", "value_counts"],
)
def test_counts_are_not_taken_for_entries(data: Any) -> None:
    with pytest.raises(DataError, match="a table of states and numbers, where the entries themsel"):
        sequences(data, STATES)


def test_sequences_can_be_built_directly() -> None:
    records = Sequences(STATES, (np.array([0, 1]), np.array([2])))
    assert records.counts().tolist() == [1, 1, 1]
