"""Markov chains: every bad input is refused in words, every law agrees with enumeration."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal import EachEntry, calibrate, count
from shoal.chains.model import MarkovChain
from shoal.core.codec import encode
from shoal.core.errors import DataError, InputError
from shoal.core.records import sequences
from tests.oracle.enumeration import Law, chain_law

TWO = [[0.9, 0.1], [0.4, 0.6]]
THREE = [[0.5, 0.5, 0.0], [0.0, 0.4, 0.6], [0.7, 0.0, 0.3]]
PER_STEP = [THREE, [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], THREE]

CHAINS = {
    "two": MarkovChain.of(TWO, initial=[0.8, 0.2], length=5),
    "certain start": MarkovChain.of(TWO, initial=[1, 0], length=5),
    "zeros": MarkovChain.of(THREE, initial=[0.0, 1.0, 0.0], length=5),
    "one matrix per step": MarkovChain.of(PER_STEP, initial=[0.2, 0.3, 0.5], length=4),
    "one state": MarkovChain.of([[1.0]], length=3),
}
BRUTE = pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)


def marginal(law: Law, t: int, size: int) -> list[float]:
    return [sum(p for path, p in law.items() if path[t] == x) for x in range(size)]


@BRUTE
def test_marginals_are_those_of_the_joint_law(chain: MarkovChain) -> None:
    length = chain.length or 0
    law = chain_law(chain, length)
    rows = chain.marginals(length)
    for t in range(length):
        expected = marginal(law, t, chain.size)
        assert rows[t] == pytest.approx(expected, abs=1e-14)
        assert chain.marginal(t) == pytest.approx(expected, abs=1e-14)
        assert chain.support(t).tolist() == [p > 0 for p in expected]


def test_an_exact_length_is_that_of_the_data() -> None:
    chain = MarkovChain.of(TWO, length=4, exactly=True)
    assert chain.fixed_length
    assert chain.walk().fixed
    assert not MarkovChain.of(TWO, length=4).fixed_length
    assert "of exactly 4 entries" in chain.describe()
    chain.admit(sequences([["0", "1", "1", "0"]] * 2, "01"))
    for data in (["0"] * 3, [["0"] * 4, ["0"] * 3], ["0"] * 5):
        with pytest.raises(DataError, match="length 4 of the model"):
            chain.admit(sequences(data, "01"))
    with pytest.raises(InputError, match="exactly is True, but there is no length; give the"):
        MarkovChain.of(TWO, exactly=True)
    with pytest.raises(InputError, match="exactly is 1; it must be True or False"):
        MarkovChain.of(TWO, length=4, exactly=1)  # type: ignore[arg-type]


def test_an_exact_length_is_stored_only_where_it_is_stated() -> None:
    plain, exact = MarkovChain.of(TWO, length=4), MarkovChain.of(TWO, length=4, exactly=True)
    assert "exactly" not in encode(plain)
    assert encode(exact)["exactly"] is True
    assert plain.fingerprint != exact.fingerprint


@pytest.mark.parametrize("length", [2, 7])
@pytest.mark.parametrize("epsilon", [0.2, 1])
def test_an_exact_length_tells_what_the_same_matrix_at_every_step_tells(
    length: int, epsilon: float
) -> None:
    """Whose length was always exact, and whose losses have oracles of their own."""
    uneven = [[0.1, 0.9], [0.6, 0.4]]
    plans = [
        calibrate(count("01", "1"), EachEntry(), model, epsilon=epsilon, mechanism="exact")
        for model in (
            MarkovChain.of(uneven, initial=[0.4, 0.6], length=length, exactly=True),
            MarkovChain.of([uneven] * (length - 1), initial=[0.4, 0.6], length=length),
            MarkovChain.of(uneven, initial=[0.4, 0.6], length=length),
        )
    ]
    exact, per_step, at_most = (plan.cost for plan in plans)
    assert exact == pytest.approx(per_step, rel=1e-9)
    assert exact <= at_most * (1 + 1e-9)


def test_powers_are_laws_several_steps_later() -> None:
    chain = CHAINS["zeros"]
    for steps in range(4):
        expected = np.linalg.multi_dot([np.eye(3), np.eye(3), *[np.array(THREE)] * steps])
        assert chain.power(steps) == pytest.approx(expected, abs=1e-15)
    with pytest.raises(InputError, match="steps is -1; it must be a whole number of at least 0"):
        chain.power(-1)


def test_supports_survive_underflow() -> None:
    # after 2,000 steps the mass of the first state is about 1e-600, yet it is possible
    chain = MarkovChain.of([[0.5, 0.5], [0.0, 1.0]], initial=[1, 0])
    assert chain.marginal(2000)[0] == 0.0
    assert chain.support(2000).tolist() == [True, True]


def test_a_chain_may_be_stationary_or_not() -> None:
    assert MarkovChain.of(TWO).stationary
    assert MarkovChain.of(TWO).initial == pytest.approx([0.8, 0.2], abs=1e-15)
    assert not MarkovChain.of(TWO, initial=[0.8 + 1e-10, 0.2 - 1e-10]).stationary
    assert not CHAINS["one matrix per step"].stationary


def test_states_are_named_0_1_by_default_and_by_their_text() -> None:
    assert MarkovChain.of(TWO).states == ("0", "1")
    assert MarkovChain.of(TWO, states=[5, 7.0]).states == ("5", "7")
    assert MarkovChain.of(TWO).size == 2


def test_weights_are_normalised_row_by_row() -> None:
    chain = MarkovChain.normalised([[9, 1], [2, 3]], states="ab", length=4)
    assert chain.transition.tolist() == TWO
    assert chain.length == 4


@pytest.mark.parametrize("weights", [[[0, 0], [1, 1]], [[-1, 2], [1, 1]], [[np.inf, 1], [1, 1]]])
def test_weights_without_a_positive_sum_are_refused(weights: Any) -> None:
    with pytest.raises(InputError, match="weights must be finite and non-negative with a positive"):
        MarkovChain.normalised(weights)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "row sums to 1.2": (
        {"transition": [[0.9, 0.1], [0.6, 0.6]]},
        r"transition row 1 sums to 1\.2; each row must be non-negative and sum to 1 "
        r"\(rescale with MarkovChain\.normalised\)",
    ),
    "row off by 1e-8": (
        {"transition": [[0.9, 0.1 + 1e-8], [0.4, 0.6]]},
        r"transition row 0 sums to 1\.00000001; ",
    ),
    "row of a later step": (
        {"transition": [TWO, [[0.5, 0.6], [0.5, 0.5]]], "initial": [1, 0], "length": 3},
        r"transition row 1, 0 sums to 1\.1; ",
    ),
    "negative": ({"transition": [[1.1, -0.1], [0.4, 0.6]]}, "transition holds -0.1; probabilities"),
    "nan": (
        {"transition": [[np.nan, 0.1], [0.4, 0.6]]},
        "transition holds a number that is not fi",
    ),
    "infinite": ({"transition": [[np.inf, 0.1], [0.4, 0.6]]}, "transition holds a number that is"),
    "ragged": (
        {"transition": [[0.9, 0.1], [0.4]]},
        "transition must be a rectangular table of num",
    ),
    "text": ({"transition": [["a", "b"], ["c", "d"]]}, "transition must be a rectangular table"),
    "not square": (
        {"transition": [[0.9, 0.1]]},
        r"transition has shape \(1, 2\); 2 states need \(2, 2\), or \(length - 1, 2, 2\)",
    ),
    "a vector": ({"transition": [0.9, 0.1]}, r"transition has shape \(2,\); 2 states need"),
    "a number": ({"transition": 1.0, "states": "a"}, r"transition has shape \(\); 1 states need"),
    "too few states": ({"transition": TWO, "states": "a"}, r"transition has shape \(2, 2\); 1 sta"),
    "no states": (
        {"transition": np.zeros((0, 0)), "initial": []},
        "states is empty; name at least",
    ),
    "a state twice": ({"transition": TWO, "states": "aa"}, "states names 'a' twice; each one"),
    "a state twice as text": ({"transition": TWO, "states": [1, "1"]}, "states names '1' twice"),
    "initial shape": (
        {"transition": TWO, "initial": [1]},
        r"initial has shape \(1,\); it must have",
    ),
    "initial sum": ({"transition": TWO, "initial": [0.5, 0.4]}, "initial sums to 0.9; each row"),
    "initial negative": ({"transition": TWO, "initial": [1.5, -0.5]}, "initial holds -0.5"),
    "initial nan": ({"transition": TWO, "initial": [np.nan, 1]}, "initial holds a number that is"),
    "initial word": (
        {"transition": TWO, "initial": "uniform"},
        "initial is 'uniform'; it must be a",
    ),
    "initial stationary per step": (
        {"transition": PER_STEP, "length": 4},
        "initial is 'stationary', but there is one matrix per step",
    ),
    "length 0": ({"transition": TWO, "length": 0}, "length is 0; it must be a whole number of at"),
    "length True": ({"transition": TWO, "length": True}, "length is True; it must be a whole"),
    "length 2.5": ({"transition": TWO, "length": 2.5}, "length is 2.5; it must be a whole number"),
    "length per step": (
        {"transition": PER_STEP, "initial": [1, 0, 0], "length": 9},
        "transition holds 3 matrices and length is 9; one matrix per step needs length 4",
    ),
    "no length per step": (
        {"transition": PER_STEP, "initial": [1, 0, 0]},
        "transition holds 3 matrices and length is None",
    ),
    "two classes": (
        {"transition": [[1, 0], [0, 1]]},
        "the chain has 2 separate recurrent classes, so its stationary law is not unique; give the",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_in_a_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        MarkovChain.of(**arguments)
    assert "\n" not in str(caught.value)


def test_rows_within_1e_9_are_rescaled_and_within_1e_12_kept() -> None:
    near = MarkovChain.of([[0.9, 0.1 + 5e-10], [0.4, 0.6]])
    assert near.transition.sum(axis=1) == pytest.approx([1, 1], abs=1e-15)
    exact = MarkovChain.of([[0.9, 0.1 + 1e-13], [0.4, 0.6]])
    assert exact.transition[0, 1] == 0.1 + 1e-13


@pytest.mark.parametrize("asked", ["gap", "stationary_law", "communicating_classes", "power"])
def test_what_needs_one_matrix_refuses_one_per_step(asked: str) -> None:
    chain = CHAINS["one matrix per step"]
    call = operator.attrgetter(asked) if asked == "gap" else operator.methodcaller(asked)
    if asked == "power":
        call = operator.methodcaller(asked, 1)
    with pytest.raises(InputError, match=f"{asked} needs one matrix for all steps"):
        call(chain)


def test_an_entry_before_the_first_has_no_law() -> None:
    with pytest.raises(InputError, match="t is -1; it must be a whole number of at least 0"):
        CHAINS["two"].marginal(-1)


def test_data_longer_than_the_law_covers_is_refused() -> None:
    CHAINS["two"].admit(sequences([0, 1, 1, 0, 0], "01"))
    CHAINS["two"].admit(sequences([[0, 1, 1, 0, 0], [1]], "01"))
    with pytest.raises(
        DataError, match="the longest chain of the data exceeds length 5 of the mod"
    ):
        CHAINS["two"].admit(sequences([[0, 1, 1, 0, 0, 0], [1]], "01"))
    MarkovChain.of(TWO).admit(sequences([0] * 10_000, "01"))


def test_one_matrix_per_step_fixes_the_length() -> None:
    chain = CHAINS["one matrix per step"]
    chain.admit(sequences([[0, 1, 2, 0], [1, 1, 1, 1]], "012"))
    with pytest.raises(DataError, match="a chain of the data is shorter than length 4 of the mod"):
        chain.admit(sequences([[0, 1, 2, 0], [1, 1, 1]], "012"))


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (MarkovChain.of(TWO), "a Markov chain of any length on 2 states (stationary)"),
        (
            CHAINS["certain start"],
            "a Markov chain of at most 5 entries on 2 states (given initial law)",
        ),
        (
            CHAINS["one matrix per step"],
            "a Markov chain of at most 4 entries on 3 states (given initial law, one matrix per "
            "step)",
        ),
    ],
)
def test_a_chain_describes_itself(chain: MarkovChain, words: str) -> None:
    assert chain.describe() == words


def test_the_model_says_how_many_entries_it_ties() -> None:
    assert CHAINS["two"].tied == 5
    assert MarkovChain.of(TWO).tied is None


def test_a_labelled_matrix_is_put_in_the_order_of_the_states() -> None:
    table = pd.DataFrame([[0.9, 0.1], [0.4, 0.6]], index=["sit", "walk"], columns=["sit", "walk"])
    plain = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit", "walk"])
    assert MarkovChain.of(table) == plain
    assert MarkovChain.of(table[["walk", "sit"]]) == plain  # columns in another order
    turned = MarkovChain.of(table, states=["walk", "sit"])
    assert turned.transition.tolist() == [[0.6, 0.4], [0.1, 0.9]]
    assert MarkovChain.normalised(10 * table, states=["walk", "sit"]) == turned
    unlabelled = pd.DataFrame([[0.9, 0.1], [0.4, 0.6]])
    assert MarkovChain.of(unlabelled, states=["sit", "walk"]) == plain


def test_a_matrix_labelled_otherwise_than_the_states_is_refused() -> None:
    table = pd.DataFrame([[0.9, 0.1], [0.4, 0.6]], index=["sit", "run"], columns=["sit", "run"])
    with pytest.raises(InputError, match=r"rows labelled \['sit', 'run'\], the states are \['sit'"):
        MarkovChain.of(table, states=["sit", "walk"])
    table.columns = ["sit", "walk"]
    with pytest.raises(InputError, match=r"columns labelled \['sit', 'walk'\], the states are"):
        MarkovChain.of(table)
