"""Chains with a longer memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.chains.families import OrderChain
from shoal.core.errors import DataError, InputError
from shoal.core.records import sequences
from tests.oracle.enumeration import chain_law, order_law

ROWS = np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.0, 1.0]])
FIRST = np.array([0.4, 0.1, 0.5, 0.0])


def second(**changes: Any) -> OrderChain:
    arguments: dict[str, Any] = {
        "states": ("a", "b"),
        "order": 2,
        "conditional": ROWS,
        "initial": FIRST,
        "length": 5,
    }
    return OrderChain(**{**arguments, **changes})


def test_the_chain_on_tuples_has_the_same_law() -> None:
    chain = second()
    tuples = [tuple(row) for row in chain.tuples().tolist()]
    assert tuples == [(0, 0), (0, 1), (1, 0), (1, 1)]
    lifted = chain.on_tuples()
    assert lifted.length == 4
    assert lifted.states == ("a|a", "a|b", "b|a", "b|b")
    found = {}
    for path, chance in chain_law(lifted, 4).items():
        entries = tuples[path[0]] + tuple(tuples[t][-1] for t in path[1:])
        found[entries] = chance
    assert found == pytest.approx(order_law(chain, 5), abs=1e-15)


def test_order_one_is_an_ordinary_chain() -> None:
    chain = second(order=1, conditional=ROWS[:2], initial=[0.8, 0.2])
    lifted = chain.on_tuples()
    assert lifted.transition.tolist() == ROWS[:2].tolist()
    assert (lifted.length, lifted.states) == (5, ("a", "b"))


def test_three_states_and_order_three_shift_the_right_way() -> None:
    size, order = 3, 3
    rows = np.random.default_rng(2).dirichlet(np.ones(size), size**order)
    chain = second(
        states=tuple("abc"), order=order, conditional=rows, initial=np.full(27, 1 / 27), length=None
    )
    lifted = chain.on_tuples()
    assert lifted.length is None
    tuples = chain.tuples()
    for a in range(27):
        for b in range(27):
            follows = (tuples[a][1:] == tuples[b][:-1]).all()
            expected = rows[a, tuples[b][-1]] if follows else 0.0
            assert lifted.transition[a, b] == expected
    assert chain.entry.tolist() == tuples[:, -1].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": 0}, "order is 0; it must be a whole number of at least 1"),
        ({"order": 1.5}, "order is 1.5; it must be a whole number of at least 1"),
        ({"order": 13}, "order 13 on 2 states has 8192 tuples; at most 4096 are handled: lower"),
        ({"conditional": ROWS[:2]}, r"conditional has shape \(2, 2\); it must have shape \(4, 2\)"),
        ({"conditional": ROWS * 1.1}, "conditional row . sums to 1.1"),
        ({"initial": [0.5, 0.5]}, r"initial has shape \(2,\); it must have shape \(4,\)"),
        ({"initial": [0.5, 0.5, 0.5, 0]}, "initial sums to 1.5"),
        ({"length": 1}, "length is 1; it must be at least order 2"),
        ({"length": 0}, "length is 0; it must be a whole number of at least 1"),
        ({"states": ("a", "a")}, "states names 'a' twice"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        second(**changes)


def test_it_admits_data_up_to_its_length_and_describes_itself() -> None:
    second().admit(sequences(list("ababa"), "ab"))
    with pytest.raises(DataError, match="exceeds length 5"):
        second().admit(sequences(list("ababab"), "ab"))
    assert second().describe() == "a Markov chain of order 2 of at most 5 entries on 2 states"
    assert second(length=None).tied is None
