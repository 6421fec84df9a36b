"""Linear queries: constants against brute force, answers against counting by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number
from shoal.mechanisms.queries import LinearQuery, count, histogram, mean, weighted_sum

ABC = ("a", "b", "c")
WEIGHTS: dict[str, Number] = {"a": "1/2", "b": -0.25, "c": 3}
QUERIES = {
    "count": count(ABC, "b"),
    "count of several": count(ABC, ["a", "c"]),
    "sum": weighted_sum(ABC, WEIGHTS),
    "sum with a state left out": weighted_sum(ABC, {"a": 2}),
    "mean": mean(ABC, WEIGHTS, length=6),
    "histogram": histogram(ABC),
    "relative histogram": histogram(ABC, relative=True, length=7),
    "two columns": LinearQuery(
        name="pair",
        states=ABC,
        labels=("x", "y"),
        weights=(
            (Fraction(1), Fraction(0)),
            (Fraction(0), Fraction(-1, 3)),
            (Fraction(2), Fraction(1)),
        ),
        unit="units",
    ),
}
EVERY = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)


def answer(query: LinearQuery, sequence: tuple[str, ...]) -> tuple[Fraction, ...]:
    """Σ of the weights, added up one entry at a time."""
    rows = [query.weights[query.states.index(state)] for state in sequence]
    return tuple(sum((row[i] for row in rows), Fraction(0)) for i in range(len(query.labels)))


@EVERY
def test_answers_are_exact_multiples_of_the_lattice(query: LinearQuery) -> None:
    for sequence in product(ABC, repeat=4):
        multiples = query.evaluate(query.read(list(sequence)))
        assert all(type(m) is int for m in multiples)
        assert tuple(m * query.lattice for m in multiples) == answer(query, sequence)


@EVERY
def test_the_lipschitz_constant_is_the_largest_move_over_all_sequences(query: LinearQuery) -> None:
    largest = Fraction(0)
    for sequence in product(ABC, repeat=3):
        before = answer(query, sequence)
        for place, state in product(range(3), ABC):
            changed = (*sequence[:place], state, *sequence[place + 1 :])
            after = answer(query, changed)
            move = [abs(a - b) for a, b in zip(before, after, strict=True)]
            largest = max(largest, sum(move, Fraction(0)))
    assert query.lipschitz == largest


@EVERY
def test_the_lattice_is_the_largest_that_holds_every_weight(query: LinearQuery) -> None:
    weights = [weight for row in query.weights for weight in row]
    assert all((weight / query.lattice).denominator == 1 for weight in weights)
    for factor in range(2, 8):
        assert any((weight / (query.lattice * factor)).denominator != 1 for weight in weights)
    assert [[m * query.lattice for m in row] for row in query.multiples()] == [
        list(row) for row in query.weights
    ]


@EVERY
def test_several_chains_add_up(query: LinearQuery) -> None:
    chains = [["a", "b"], ["c"], ["b", "b", "a"]]
    together = query.evaluate(query.read(chains))
    assert together == query.evaluate(query.read([entry for chain in chains for entry in chain]))


@EVERY
def test_every_container_gives_the_same_answer(query: LinearQuery) -> None:
    data = ["a", "c", "c", "b", "a"]
    answers = {
        query.evaluate(query.read(form))
        for form in (data, tuple(data), np.array(data), pd.Series(data), pl.Series(data), [data])
    }
    assert len(answers) == 1


def test_large_counts_stay_exact() -> None:
    query = weighted_sum("ab", {"a": "1/3", "b": 10**15})
    records = query.read(np.tile(["a", "b", "b"], 10_000))
    value = query.evaluate(records)[0] * query.lattice
    assert value == Fraction(10_000, 3) + 20_000 * 10**15


def test_labels_units_and_names() -> None:
    assert QUERIES["count of several"].labels == ("a or c",)
    assert count("ab", "b", unit="minutes").unit == "minutes"
    assert count([0, 1], 1) == count(["0", "1"], "1") == count(["0", "1"], {1})
    assert histogram("ab").unit == "entries"
    assert histogram("ab", relative=True, length=3).unit == "share of entries"
    assert histogram("ab", unit="days").unit == "days"
    assert QUERIES["mean"].length == 6


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("count", "how many entries are 'b' (in entries; one entry moves it by at most 1)"),
        ("count of several", "how many entries are 'a' or 'c' (in entries; one entry moves it by"),
        ("sum", "the sum of a weight per entry (in units; one entry moves it by at most 13/4)"),
        ("mean", "the mean of a weight per entry, over 6 entries (in units; one entry moves it"),
        ("histogram", "how often each of 3 states occurs (in entries; one entry moves it by at mo"),
        ("relative histogram", "how often each of 3 states occurs, as a share of 7 entries (in sh"),
        ("two columns", "pair, a sum of one contribution per entry (in units"),
    ],
)
def test_queries_describe_themselves(name: str, words: str) -> None:
    assert QUERIES[name].describe().startswith(words)


REFUSED: dict[str, tuple[Any, str]] = {
    "unknown state": (lambda: count(ABC, "d"), r"the query names state 'd'; the states are \['a'"),
    "no state": (lambda: count(ABC, []), "the query names no state; name at least one"),
    "all states": (lambda: count(ABC, ABC), "all states have the same weight, so the answer does"),
    "one state": (lambda: histogram("a"), "all states have the same weight"),
    "no states": (lambda: histogram([]), "states is empty; name at least one"),
    "a state twice": (lambda: histogram("aba"), "states names 'a' twice"),
    "unknown weight": (lambda: weighted_sum(ABC, {"d": 1}), "the query names state 'd'"),
    "no weights": (lambda: weighted_sum(ABC, {}), "the query names no state"),
    "weight nan": (
        lambda: weighted_sum(ABC, {"a": float("nan")}),
        "weight of 'a' is nan; it must be a finite number",
    ),
    "weight infinite": (
        lambda: weighted_sum(ABC, {"a": float("inf")}),
        "weight of 'a' is inf; it must be a finite number",
    ),
    "weight text": (lambda: weighted_sum(ABC, {"a": "x"}), "weight of 'a' is 'x'; it must be a"),
    "mean length 0": (lambda: mean(ABC, {"a": 1}, length=0), "length is 0; it must be a whole"),
    "mean length 2.5": (lambda: mean(ABC, {"a": 1}, length=2.5), "length is 2.5; it must be a who"),  # type: ignore[arg-type]
    "relative without length": (
        lambda: histogram(ABC, relative=True),
        "a relative histogram needs length, the public number of entries",
    ),
    "length without relative": (
        lambda: histogram(ABC, length=5),
        "length is given, but the histogram is not relative; set relative=True",
    ),
    "relative length 0": (lambda: histogram(ABC, relative=True, length=0), "length is 0; it must"),
    "rows": (
        lambda: _query(weights=((Fraction(1),),)),
        "weights has 1 rows for 2 states; give each state its row",
    ),
    "columns": (
        lambda: _query(weights=((Fraction(1), Fraction(2)), (Fraction(1), Fraction(2)))),
        "each row of weights needs 1 numbers, one per label",
    ),
    "float weights": (
        lambda: _query(weights=((0.5,), (0.25,))),
        "weights must be exact rationals; pass floats through weighted_sum",
    ),
    "weights in place of the states": (
        lambda: weighted_sum({"1": 5, "2": 7}),  # type: ignore[arg-type]
        "states is {'1': 5, '2': 7}; it must be the states in their order",
    ),
}


def _query(**changes: Any) -> LinearQuery:
    arguments = {"name": "sum", "states": ("a", "b"), "labels": ("x",), "unit": "units"}
    return LinearQuery(**{**arguments, **changes})


@pytest.mark.parametrize(("build", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_queries_are_refused_in_a_sentence(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize("name", ["mean", "relative histogram"])
def test_data_longer_than_the_public_length_is_refused(name: str) -> None:
    query = QUERIES[name]
    assert query.length is not None
    assert query.read(["a"] * query.length).total == query.length
    assert query.read(["a"] * 3).total == 3  # shorter is fine: the divisor is public
    with pytest.raises(DataError, match=f"the data holds more entries than length {query.length}"):
        query.read(["a"] * (query.length + 1))
    with pytest.raises(DataError, match="raise length or release a part"):
        query.read([["a"] * query.length, ["a"]])
