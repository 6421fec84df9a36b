"""Closeness of two chains against the two joint laws written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.chains.closeness import max_divergence
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.networks.closeness import closeness

LENGTH = 4


def law_of(chain: MarkovChain, length: int) -> dict[tuple[int, ...], float]:
    law = {}
    for path in itertools.product(range(chain.size), repeat=length):
        p = float(chain.initial[path[0]])
        for t in range(length - 1):
            p *= float(chain.matrix(t)[path[t], path[t + 1]])
        law[path] = p
    return law


def by_enumeration(chain: MarkovChain, other: MarkovChain, length: int) -> float:
    laws = law_of(chain, length), law_of(other, length)
    worst = 0.0
    for node, state in itertools.product(range(length), range(chain.size)):
        for one, two in (laws, laws[::-1]):
            own = sum(p for path, p in one.items() if path[node] == state)
            theirs = sum(p for path, p in two.items() if path[node] == state)
            for path, p in one.items():
                if path[node] != state or p == 0:
                    continue
                if two[path] == 0:
                    return math.inf
                worst = max(worst, math.log(p / own) - math.log(two[path] / theirs))
    return worst


def random_chain(seed: int, size: int, zeros: float) -> MarkovChain:
    rng = np.random.default_rng(seed)
    weights = rng.gamma(1.0, size=(size, size)) + 1e-3
    weights[rng.random((size, size)) < zeros] = 0.0
    weights[np.arange(size), rng.integers(size, size=size)] += 0.5
    return MarkovChain.normalised(weights, initial=rng.dirichlet(np.ones(size)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 3), st.sampled_from([0.0, 0.4]))
def test_equals_enumeration(seed: int, size: int, zeros: float) -> None:
    one, two = random_chain(seed, size, zeros), random_chain(seed + 1, size, zeros)
    expected = by_enumeration(one, two, LENGTH)
    found = closeness(one, two, LENGTH).value
    if math.isinf(expected):
        assert math.isinf(found)
    else:
        assert expected <= found <= expected + 1e-9


def test_one_matrix_per_step_equals_enumeration() -> None:
    rng = np.random.default_rng(3)
    stacks = [rng.dirichlet(np.ones(2), size=(LENGTH - 1, 2)) for _ in range(2)]
    one, two = (MarkovChain.of(stack, initial=[0.3, 0.7], length=LENGTH) for stack in stacks)
    assert closeness(one, two).value == pytest.approx(by_enumeration(one, two, LENGTH), abs=1e-9)


def test_grows_with_the_length_and_says_so() -> None:
    one = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]])
    two = MarkovChain.of([[0.8, 0.2], [0.4, 0.6]])
    assert closeness(one, two, 50).value > 2 * closeness(one, two, 10).value
    assert "grows with the length" in closeness(one, two, 10).describe()
    assert closeness(one, one, 10).value < 1e-9


def test_max_divergence_of_the_papers_example() -> None:
    """Song, Wang & Chaudhuri 2017, Section 2.3: log 2."""
    assert max_divergence([1 / 3, 1 / 2, 1 / 6], [1 / 2, 1 / 4, 1 / 4]) == pytest.approx(
        math.log(2), abs=1e-12
    )


def test_bad_input_is_named() -> None:
    one = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]])
    with pytest.raises(InputError, match="give length"):
        closeness(one, one)
    with pytest.raises(InputError, match="must be the same"):
        closeness(one, MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["a", "b"]), 5)
