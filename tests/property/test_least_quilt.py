"""The cheapest quilt of one node: never above the survey of all nodes, and near it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shoal
from shoal.chains.quilt.least import least_quilt_loss
from shoal.chains.quilt.row import any_initial_quilts, chain_quilts
from shoal.core.errors import InputError

LENGTHS = (1, 2, 3, 5, 9, 40, 300, None)


@pytest.mark.parametrize("seed", range(120))
def test_one_node_bounds_the_survey_from_below(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length = int(rng.integers(2, 6)), LENGTHS[seed % len(LENGTHS)]
    transition = rng.dirichlet(np.full(size, (0.3, 1.0, 5.0)[seed % 3]), size=size)
    if seed % 4 == 0:
        transition = 0.95 * np.eye(size) + 0.05 * transition
    if seed % 5 == 0 and size > 2:
        transition[0, 1] = 0.0
        transition /= transition.sum(axis=1, keepdims=True)
    initial = "stationary" if seed % 2 else rng.dirichlet(np.ones(size))
    eta = math.exp(rng.uniform(-4.0, 0.5))
    try:
        chain = shoal.MarkovChain.of(transition, length=length, initial=initial)
    except InputError:  # several stationary laws
        return
    survey = chain_quilts(chain, None).loss(eta)
    bound = least_quilt_loss(chain.initial, transition, length, eta, 2.0 * min(survey, 100.0))
    assert 0.0 <= bound <= survey * (1 + 1e-9)
    if length is not None and length <= 2:
        assert bound == pytest.approx(survey, rel=1e-9)
    family = shoal.AnyInitialLaw(states=chain.states, transition=transition, length=length)
    survey = any_initial_quilts(family, None).loss(eta)
    uniform = np.full(size, 1.0 / size)
    bound = least_quilt_loss(uniform, transition, length, eta, 2.0 * min(survey, 100.0))
    assert bound <= survey * (1 + 1e-9)


def test_a_node_with_long_memory_is_left_to_the_survey() -> None:
    slow = 0.999999 * np.eye(40) + 1e-6 / 40
    assert least_quilt_loss(np.full(40, 1 / 40), slow, None, 1e-5, 1.0) == 0.0


@pytest.mark.parametrize("length", [20, 1440, None])
@pytest.mark.parametrize("stay", [0.6, 0.9, 0.99])
def test_the_lift_has_no_more_noise_than_quilts(length: int | None, stay: float) -> None:
    """By construction: its search ends with the survey where one node does not show it loses."""
    chain = shoal.MarkovChain.of([[stay, 1 - stay], [0.2, 0.8]], states="ab", length=length)
    query = shoal.histogram("ab")
    lift, quilt = (
        shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism=name)
        for name in ("lift", "markov-quilt")
    )
    assert lift.additive is not None
    assert quilt.additive is not None
    assert lift.additive.noise.scale <= quilt.additive.noise.scale * (1 + 10**-9)
