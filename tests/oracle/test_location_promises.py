"""Promises about places that were once false, each against a count written here, by hand."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.noise.bits import SeededRng

ROWS = ("location-knorm", "location-laplace", "location-staircase", "location-graph-exponential")


def line(size: int) -> Any:
    """Places 0, 1, … on a line, told by their number."""
    return shoal.measurement([str(k) for k in range(size)], [[k] for k in range(size)])


def plan_of(matrix: Any, initial: Any, query: Any, secrets: Any, epsilon: Any, row: str) -> Any:
    chain = shoal.MarkovChain.of(matrix, initial=initial, states=query.states)
    return shoal.calibrate(query, secrets, chain, epsilon=epsilon, mechanism=row)


def told_by_left_outputs(stay: float, steps: int, epsilon: float) -> list[float]:
    """log P(z | X_t = 0) - log P(z | X_t = 1) for outputs left of both places, step after step.

    State 0 is left for good with chance 1 - stay; every output favours it by e^epsilon. Joint and
    own law of both states, in logarithms, by the recursion of their definition.
    """
    go, found = math.log(1 - stay), []
    joint, own = [math.log(0.5) + epsilon, math.log(0.5)], [math.log(0.5)] * 2
    for _ in range(steps):
        found.append((joint[0] - own[0]) - (joint[1] - own[1]))
        joint = [
            joint[0] + math.log(stay) + epsilon,
            float(np.logaddexp(joint[0] + go, joint[1])),
        ]
        own = [own[0] + math.log(stay), float(np.logaddexp(own[0] + go, own[1]))]
    return found


def test_a_place_that_is_almost_surely_left_is_followed_for_ever() -> None:
    """Its probability is no float after 1,074 steps; what outputs tell about it grows on."""
    query = line(2)
    secrets = shoal.PolicyGraph.complete(query.states)
    plan = plan_of([[0.5, 0.5], [0, 1]], [0.5, 0.5], query, secrets, 1, "location-knorm")
    truth = told_by_left_outputs(0.5, 1100, 1.0)
    state = plan.body.init()
    for t in range(1100):
        state, release = plan.body.absorb(state, ((plan.body, (-3,)),))
        assert release.about_now >= truth[t] * (1 - 1e-12), t
    assert truth[-1] > 330
    assert release.about_now <= 1100


def test_whole_streams_follow_such_a_place_too() -> None:
    query = line(2)
    secrets = shoal.PolicyGraph.complete(query.states)
    matrix, initial = [[1e-30, 1 - 1e-30], [0, 1]], [0.5, 0.5]
    plan = plan_of(matrix, initial, query, secrets, 1, "location-knorm")
    found = shoal.sequence_leakage(plan, [(-3,)] * 14)
    truth = told_by_left_outputs(1e-30, 14, 1.0)
    assert found.learned_any_two[-1] == pytest.approx(truth[-1], rel=1e-9)
    for t in range(14):
        assert found.any_two[t] >= truth[t] * (1 - 1e-9)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("epsilon", ["1000", "1000000", "1/1000000"])
def test_extreme_epsilons_end(row: str, epsilon: str) -> None:
    points = [(1, 0), (2, 1), (3, 0), (0, 1), (4, 2), (1, 2)]
    query = shoal.measurement("abcdef", points)
    secrets = shoal.PolicyGraph.categories(query.states, [("a",), ("b", "c"), ("d", "e", "f")])
    matrix = np.full((6, 6), 1 / 6)
    plan_of(matrix, [1 / 6] * 6, query, secrets, 1, row)  # loops are compiled once
    begin = time.perf_counter()
    try:
        plan = plan_of(matrix, [1 / 6] * 6, query, secrets, Fraction(epsilon), row)
    except shoal.Refused as refusal:
        assert "too small for a graph-exponential law" in str(refusal)
    else:
        _, release = shoal.LocationStream.begin(plan).read("e", rng=SeededRng(3))
        if float(Fraction(epsilon)) > 1:
            assert release.z == (4, 2)
    assert time.perf_counter() - begin < 10  # on a busy computer; alone it is well below a second
