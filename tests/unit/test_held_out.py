"""A model held against data that had no part in it: right verdicts, in words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.chains.fit import fit_chain, fit_order
from shoal.chains.held_out import check_held_out
from shoal.chains.model import MarkovChain
from shoal.core.records import Sequences
from shoal.noise.primitives import SeededRng

TRUE = MarkovChain.of([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]], states="abc")


def drawn(chain: MarkovChain, steps: int = 4000, seed: int = 1) -> Sequences:
    paths = tuple(chain.sample(steps // 2, SeededRng(seed + half)) for half in range(2))
    return Sequences(chain.states, paths)


def test_the_true_chain_is_fair_and_as_likely_as_its_entropy() -> None:
    found = check_held_out(drawn(TRUE), TRUE)
    law, P = TRUE.stationary_law(), TRUE.transition
    entropy = -sum(law[x] * P[x, y] * math.log2(P[x, y]) for x, y in np.argwhere(P > 0))
    assert found.bits == pytest.approx(entropy, abs=0.04)
    assert found.fair
    assert found.orders[1] < found.orders[0] - 0.3
    assert found.p_value > 0.001
    assert found.distance < 0.05
    assert "as well as a chain of its own would" in found.describe()
    assert "transitions have the chances the model says" in found.describe()


def test_another_chain_is_told_with_the_transitions_it_gets_wrong() -> None:
    other = MarkovChain.of([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]], states="abc")
    found = check_held_out(drawn(TRUE), other)
    assert not found.fair
    assert found.worst[0].before == "a"
    assert "predicts noticeably better" in found.describe()
    assert "'a' to 'a': 0.6 said, 0.9" in found.describe()
    assert found.distance > 0.1


def test_what_the_model_calls_impossible_is_infinitely_surprising() -> None:
    found = check_held_out(drawn(MarkovChain.of(np.full((3, 3), 1 / 3), states="abc")), TRUE)
    assert math.isinf(found.bits)
    assert "calls impossible what happened here, such as 'a' to 'c'" in found.describe()


def test_memory_of_two_entries_is_noticed() -> None:
    rows = np.array([[0.95, 0.05], [0.5, 0.5], [0.5, 0.5], [0.05, 0.95]])
    rng = np.random.default_rng(3)
    path = [0, 1]
    for _ in range(6000):
        path.append(int(rng.random() < rows[2 * path[-2] + path[-1], 1]))
    data = Sequences(("a", "b"), (np.array(path),))
    found = check_held_out(data, fit_chain(data, smoothing=1))
    assert found.orders[2] < found.orders[1] - 0.02
    assert "order 2" in found.describe().splitlines()[1]
    assert fit_order(data, 2, smoothing=1).order == 2


def test_a_drift_is_told() -> None:
    late = MarkovChain.of([[0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.3, 0.3, 0.4]], states="abc")
    both = Sequences(TRUE.states, (*drawn(TRUE).chains, *drawn(late, seed=9).chains))
    text = check_held_out(both, TRUE).describe()
    assert "Drift: the transitions of the first and second half of all data differ" in text
