"""The influence matrix of a network, against its definition and against all mechanisms."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.networks.bayesnet import BayesNet
from shoal.networks.influence import network_matrix, network_matrix_scale
from tests.networks.models import joint_of, random_network
from tests.networks.test_lift import worst_mechanism


def by_hand(law: np.ndarray) -> np.ndarray:
    """½ max log-ratio of P(X_j | all others) when only X_i changes, outcome by outcome."""
    count = law.ndim
    found = np.zeros((count, count))
    for j in range(count):
        logs = np.log(law / law.sum(axis=j, keepdims=True))
        for i in set(range(count)) - {j}:
            found[i, j] = 0.5 * float(np.ptp(logs, axis=i).max())
    return found


def weak(seed: int, count: int) -> BayesNet:
    """A random network pulled towards independence, so that the norm is below 1."""
    net = random_network(seed, count, density=0.5)
    tables = tuple(0.9 * 0.5 + 0.1 * table for table in net.tables)
    return BayesNet(
        variables=net.variables, domains=net.domains, parents=net.parents, tables=tables
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_matrix_is_its_definition(seed: int) -> None:
    net = random_network(seed, 4, values=2, density=0.6)
    assert network_matrix(net) == pytest.approx(by_hand(joint_of(net)), abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_no_mechanism_breaks_the_published_rule_or_half_of_it(seed: int) -> None:
    net = weak(seed, 4)
    found = network_matrix_scale(net, 1.0)
    assert found.refusal is None
    for eta in (0.1, 1.0):
        truth = worst_mechanism(joint_of(net), eta)
        assert truth <= eta * found.row_sum * (1 + 1e-6)


def test_what_is_refused() -> None:
    copy = BayesNet.of({"a": [0.5, 0.5], "b": [[1.0, 0.0], [0.0, 1.0]]}, parents={"b": ["a"]})
    assert "impossible given its parents" in str(network_matrix_scale(copy, 1.0).refusal)
    strong = [[0.95, 0.05], [0.05, 0.95]]
    tied = BayesNet.of(
        {"a": [0.5, 0.5]} | dict.fromkeys("bc", strong), parents={"b": ["a"], "c": ["b"]}
    )
    assert "it must be below 1" in str(network_matrix_scale(tied, 1.0).refusal)
    many = {f"r{i}": [0.5, 0.5] for i in range(21)}
    wide = np.full((2,) * 22, 0.5)
    big = BayesNet.of({**many, "c": wide}, parents={"c": list(many)})
    assert "1048576 at most" in str(network_matrix_scale(big, 1.0).refusal)
