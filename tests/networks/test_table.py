"""Any finite law, against enumeration of its outcomes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import EachEntry, calibrate, open_ledger, variable_sum
from shoal.core.errors import DataError, InputError
from shoal.core.records import sequences
from shoal.networks.table import JointTable
from tests.oracle.enumeration import conditional, table_law

LAW = np.random.default_rng(4).dirichlet(np.ones(12)).reshape(2, 3, 2)
LAW[0, 1, 0] = 0.0
LAW /= LAW.sum()
TABLE = JointTable.of(
    LAW,
    variables=["flu", "age", "work"],
    domains=[["well", "ill"], [20, 40, 60], ["home", "office"]],
)


@pytest.mark.parametrize(
    "where",
    [
        {"flu": "ill"},
        {"age": ["20", "60"]},
        {"age": [20, 60]},
        {"age": 40},
        {"flu": "ill", "work": "home"},
        {"flu": ["well", "ill"]},
        {},
    ],
)
def test_conditioning_agrees_with_enumeration(where: dict[str, Any]) -> None:
    wanted = {
        name: {str(v) for v in ([values] if isinstance(values, str | int) else values)}
        for name, values in where.items()
    }

    def holds(outcome: tuple[int, ...]) -> bool:
        named = dict(zip(TABLE.variables, outcome, strict=True))
        return all(
            TABLE.domains[TABLE.variables.index(name)][named[name]] in values
            for name, values in wanted.items()
        )

    given = conditional(table_law(TABLE), holds)
    found = TABLE.given(where)
    for outcome in product(*(range(n) for n in LAW.shape)):
        assert found[outcome] == pytest.approx(given.get(outcome, 0.0), abs=1e-15)
        assert bool(TABLE.event(where)[outcome]) == holds(outcome)


def test_marginals_agree_with_enumeration_in_any_order_of_names() -> None:
    found = TABLE.marginal("work", "flu")
    assert found.shape == (2, 2)
    for work, flu in product(range(2), repeat=2):
        expected = sum(p for o, p in table_law(TABLE).items() if (o[2], o[0]) == (work, flu))
        assert found[work, flu] == pytest.approx(expected, abs=1e-15)
    turned = TABLE.marginal("work", "flu", "age")
    assert turned.shape == (2, 2, 3)
    assert turned[1, 0, 2] == LAW[0, 2, 1]
    assert TABLE.marginal("age") == pytest.approx(LAW.sum(axis=(0, 2)), abs=1e-15)
    assert float(TABLE.marginal()) == pytest.approx(1.0)


def test_defaults_name_variables_and_values() -> None:
    table = JointTable.of([[0.5, 0.0], [0.0, 0.5]])
    assert table.variables == ("X1", "X2")
    assert table.domains == (("0", "1"), ("0", "1"))
    assert table.states == ("0", "1")
    assert table.tied == 2
    assert table.describe() == "a given joint law of 2 variables"
    assert TABLE.states is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probability": [0.5, 0.6]}, "probability sums to 1.1"),
        ({"probability": [1.5, -0.5]}, "probability holds -0.5; probabilities must not be negati"),
        ({"probability": [np.nan, 1]}, "probability holds a number that is not finite"),
        ({"probability": [[0.5], [0.25, 0.25]]}, "probability must be a rectangular table of num"),
        (
            {"probability": [0.5, 0.5], "domains": [["a", "b", "c"]]},
            r"probability has shape \(2,\); the domains need \(3,\)",
        ),
        (
            {"probability": [0.5, 0.5], "variables": ["X", "Y"]},
            "2 variables need as many domains, not 1",
        ),
        (
            {"probability": [0.5, 0.5], "domains": [["a", "a"]]},
            "a domain names 'a' twice",
        ),
        (
            {"probability": [[0.5, 0.5]], "variables": ["X", "X"]},
            "variables names 'X' twice",
        ),
    ],
)
def test_bad_tables_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        JointTable.of(**arguments)


def test_too_many_outcomes_are_refused_before_memory_is() -> None:
    names = tuple(f"X{i}" for i in range(25))
    with pytest.raises(InputError, match="the table has 33554432 outcomes; at most 16777216 are"):
        JointTable(variables=names, domains=(("0", "1"),) * 25, probability=np.ones(1))


def test_unknown_names_and_values_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"variable 'height' is not one of \['flu', 'age', 'work'"):
        TABLE.given({"height": "tall"})
    with pytest.raises(InputError, match="variable 'height' is not one of"):
        TABLE.marginal("height")
    with pytest.raises(InputError, match=r"variable 'flu' has no value 'maybe'; its values are \["):
        TABLE.event({"flu": ["ill", "maybe"]})


def test_an_impossible_event_cannot_be_given() -> None:
    with pytest.raises(InputError, match=r"the event .* has probability 0"):
        TABLE.given({"flu": "well", "age": "40", "work": "home"})


def test_data_must_hold_one_value_per_variable() -> None:
    table = JointTable.of([[0.5, 0.0], [0.0, 0.5]])
    table.admit(sequences([0, 1], "01"))
    for data in ([0, 1, 1], [[0, 1], [0, 1]]):
        with pytest.raises(DataError, match="the table is about 2 variables; the data must hold"):
            table.admit(sequences(data, "01"))


def test_a_value_of_another_variable_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    table = JointTable.of([[0.2, 0.3], [0.1, 0.4]], variables=["a", "b"], domains=["xy", "pq"])
    query = variable_sum(table, {"a": {"y": 1}, "b": {"q": 2}})
    plan = calibrate(query, EachEntry(), table, epsilon=1)
    with open_ledger(tmp_path / "budget.db") as ledger:
        with pytest.raises(DataError, match="the data gives 'a' a value that is not one of its"):
            plan.release({"a": "p", "b": "q"}, ledger=ledger, subject="ann")
        assert list(ledger.charges()) == []
        plan.release({"a": "x", "b": "q"}, ledger=ledger, subject="ann")
        assert len(list(ledger.charges())) == 1
