"""Members that stand for many laws, and tuples of members."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.chains.families import AnyInitialLaw, MixingSummary
from shoal.chains.model import MarkovChain
from shoal.core.errors import DataError, InputError
from shoal.core.records import sequences
from shoal.core.task import as_family

TWO = [[0.9, 0.1], [0.4, 0.6]]


def test_all_initial_laws_of_one_matrix() -> None:
    anyhow = AnyInitialLaw.of(TWO, states="ab", length=7)
    assert (anyhow.tied, AnyInitialLaw.of(TWO).tied) == (7, None)
    assert anyhow.describe() == (
        "a Markov chain of at most 7 entries on 2 states, with any initial law"
    )
    assert "of any length" in AnyInitialLaw.of(TWO).describe()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transition": [[0.9, 0.2], [0.4, 0.6]]}, r"transition row 0 sums to 1\.1"),
        ({"transition": [TWO]}, "transition holds one matrix per step; all initial laws needs one"),
        ({"transition": TWO, "length": 0}, "length is 0; it must be a whole number of at least 1"),
        ({"transition": TWO, "length": 1.5}, "length is 1.5; it must be a whole number"),
        ({"transition": TWO, "states": "abc"}, "transition has shape"),
        ({"transition": TWO, "states": "aa"}, "states names 'a' twice"),
        ({"transition": "x"}, "transition must be a rectangular table of numbers"),
    ],
)
def test_bad_families_of_initial_laws_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AnyInitialLaw.of(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pi_min": 0, "gap": 1}, r"pi_min is 0; it must be in \(0, 1\]"),
        ({"pi_min": 1.5, "gap": 1}, r"pi_min is 1.5; it must be in \(0, 1\]"),
        ({"pi_min": float("nan"), "gap": 1}, "pi_min is nan"),
        ({"pi_min": 0.2, "gap": 0}, r"gap is 0; it must be in \(0, 2\] \(a gap of 0 never mixes\)"),
        ({"pi_min": 0.2, "gap": 2.1}, r"gap is 2.1; it must be in \(0, 2\]"),
        ({"pi_min": 0.2, "gap": float("nan")}, "gap is nan"),
        ({"pi_min": 0.2, "gap": 1, "length": -1}, "length is -1; it must be a whole number of at"),
    ],
)
def test_bad_summaries_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MixingSummary(**arguments)


def test_a_summary_names_no_states_and_describes_itself() -> None:
    summary = MixingSummary(pi_min=0.2, gap=0.75)
    assert summary.states is None
    assert summary.tied is None
    assert summary.describe() == (
        "any Markov chain with stationary probabilities of at least 0.2 and a gap of at least 0.75"
    )


@pytest.mark.parametrize(
    "model", [AnyInitialLaw.of(TWO, length=3), MixingSummary(pi_min=0.2, gap=1, length=3)]
)
def test_members_refuse_data_longer_than_they_cover(model: Any) -> None:
    model.admit(sequences([[0, 1, 1], [0, 0, 0]], "01"))
    with pytest.raises(DataError, match="exceeds length 3 of the model"):
        model.admit(sequences([0, 1, 1, 0], "01"))


def test_a_family_is_a_tuple_of_members_given_one_by_one_or_listed() -> None:
    a, b = MarkovChain.of(TWO), AnyInitialLaw.of(TWO)
    assert as_family(a) == (a,)
    assert as_family(a, b) == as_family([a, b]) == as_family((a,), b) == (a, b)
    with pytest.raises(InputError, match="the family holds no model; give at least one"):
        as_family([])
