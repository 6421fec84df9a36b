"""Queries, secrets and models handed over in another order are told apart in a sentence."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

import shoal

CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.2, 0.8]], states=["sit", "walk"], length=10)
RIGHT = (shoal.count(CHAIN.states, "walk"), shoal.EachEntry(), CHAIN)


@pytest.mark.parametrize("order", [p for p in permutations(range(3)) if p != (0, 1, 2)])
def test_another_order_is_told(order: tuple[int, ...]) -> None:
    given: list[Any] = [RIGHT[place] for place in order]
    with pytest.raises(shoal.InputError, match="in this order") as told:
        shoal.calibrate(*given, epsilon=1)
    names = ("query", "secrets", "family")
    for place, name in enumerate(names):
        said = f"{name} is of type {type(given[place]).__name__}" in str(told.value)
        assert said == (order[place] != place)


def test_the_right_order_with_one_model_or_several() -> None:
    query, secrets, model = RIGHT
    one = shoal.calibrate(query, secrets, model, epsilon=1)
    assert shoal.calibrate(query, secrets, [model], epsilon=1) == one
    wrong: Any = secrets
    with pytest.raises(shoal.InputError, match="query is of type EachEntry"):
        shoal.epsilon_for(wrong, secrets, model, error=3)
