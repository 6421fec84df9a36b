"""The tree of errors is the one its docstring draws."""

from __future__ import annotations

import inspect
import re

import pytest

from shoal.core import errors
from shoal.core.errors import CannotCompose, InputError, OverBudget, ShoalError


def drawn() -> dict[str, str]:
    """Child to parent, as the docstring draws them: four columns a level."""
    found, path = {}, ["ShoalError"]
    for line in str(errors.__doc__).splitlines():
        match = re.match(r"    ((?:│   |    )*)(?:├── |└── )(\w+)", line)
        if match:
            depth = len(match[1]) // 4 + 1
            path[depth:] = [match[2]]
            found[match[2]] = path[depth - 1]
    return found


def test_the_docstring_draws_the_tree() -> None:
    classes = {
        name: cls
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, ShoalError) and cls is not ShoalError
    }
    assert drawn() == {name: cls.__bases__[0].__name__ for name, cls in classes.items()}
    assert len(classes) >= 9


def test_bad_input_is_a_value_error_too() -> None:
    assert issubclass(InputError, ValueError)


def test_over_budget_tells_its_numbers_apart() -> None:
    error = OverBudget("no", spent="1/2", requested="1", limit="1")
    assert (str(error), error.spent, error.requested, error.limit) == ("no", "1/2", "1", "1")


def test_cannot_compose_lists_the_ways_out() -> None:
    error = CannotCompose("no rule is shared", ("release one vector", "start a new period"))
    assert error.reason == "no rule is shared"
    assert error.ways_out == ("release one vector", "start a new period")
    with pytest.raises(ShoalError, match="no rule is shared; ways out: release one vector; start"):
        raise error
