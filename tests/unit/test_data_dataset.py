"""A data set: several series, cut into chains."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.core.errors import DataError, InputError
from shoal.data.table import Dataset

TWO = Dataset.of({"ann": [["sit", "walk"], ["sit"]], "bob": [["run", "sit", "sit"]]})


def test_labels_become_sorted_indices() -> None:
    assert TWO.states == ("run", "sit", "walk")
    assert TWO.names == ("ann", "bob")
    assert [[chain.tolist() for chain in series] for series in TWO.chains] == [
        [[1, 2], [1]],
        [[0, 1, 1]],
    ]
    assert (TWO.total, TWO.longest) == (6, 3)
    assert TWO.describe().startswith("2 series, 6 entries in 3 chains (the longest has 3), 3 st")


def test_all_series_together_or_one() -> None:
    assert [c.tolist() for c in TWO.sequences().chains] == [[1, 2], [1], [0, 1, 1]]
    assert [c.tolist() for c in TWO.sequences(series="ann").chains] == [[1, 2], [1]]
    with pytest.raises(InputError, match="series is 'cid'; it must be one of ann, bob"):
        TWO.sequences(series="cid")


def test_another_order_of_states_recodes() -> None:
    states = ("walk", "lie", "sit", "run")
    assert [c.tolist() for c in TWO.sequences(states).chains] == [[2, 0], [2], [3, 2, 2]]
    assert TWO.on(states).sequences().states == states
    assert [c.tolist() for c in TWO.on(states).chains[1]] == [[3, 2, 2]]


def test_an_unknown_state_is_refused_only_where_it_occurs() -> None:
    assert TWO.sequences(("sit", "walk"), series="ann").total == 3
    with pytest.raises(DataError, match="the data holds the state 'run', which is not one of"):
        TWO.sequences(("sit", "walk"))
    with pytest.raises(DataError, match="the data holds the state 'run'"):
        TWO.on(("sit", "walk"))
    with pytest.raises(DataError, match="the data holds the state 'x'"):
        Dataset.of({"ann": [["x", "y"]]}, states=["y"])


def test_one_entry_is_refused_by_name() -> None:
    short = Dataset.of({"ann": [["sit"]], "bob": [["sit", "sit"]]})
    with pytest.raises(DataError, match="series 'ann' holds 1 entries; at least 2 are needed"):
        short.sequences(series="ann")
    assert short.sequences().total == 3


def test_nobody_can_write_to_the_chains() -> None:
    mine = np.array([0, 1, 1])
    view = mine[:]
    view.setflags(write=False)  # locked itself, but its owner is not
    made = Dataset(("a", "b"), ("x", "y"), ((mine,), (view,)))
    mine[0] = 1
    for chain in (made.chains[0][0], made.chains[1][0], made.sequences(("b", "a")).chains[0]):
        assert not chain.flags.writeable
    assert made.chains[0][0].tolist() == [0, 1, 1]
    assert made.chains[1][0].tolist() == [0, 1, 1]


def test_bad_parts_are_refused() -> None:
    chain = np.array([0, 1])
    with pytest.raises(InputError, match="each series needs a name of its own"):
        Dataset(("a", "b"), ("x", "x"), ((chain,), (chain,)))
    with pytest.raises(InputError, match="each series needs a name"):
        Dataset(("a", "b"), ("x",), ())
    with pytest.raises(InputError, match="an index outside 0 … 0"):
        Dataset(("a",), ("x",), ((chain,),))
    with pytest.raises(InputError, match="an index outside"):
        Dataset(("a", "b"), ("x",), ((chain - 1,),))
    with pytest.raises(InputError, match="each state needs its own name"):
        Dataset(("a", "a"), ("x",), ((chain,),))
