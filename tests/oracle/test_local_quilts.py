"""Rings around a variable of a network: their influence by listing every outcome, and plans."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import shoal
from shoal.core.errors import Refused
from shoal.core.task import Task
from shoal.mechanisms.table import calibrated, row_named, verify_promise
from shoal.networks import quilts
from shoal.networks.bayesnet import BayesNet
from shoal.networks.graph import moral
from shoal.networks.quilts import (
    local_candidates,
    network_quilts,
    quilt_sigma,
    ring_influence,
    strategy_for,
)
from tests.networks import joint_of, lattice, literature, random_network


def influence(law: np.ndarray, node: int, quilt: tuple[int, ...]) -> float:
    """max over x, x', q of log P(q | x)/P(q | x'), from the joint law."""
    kept = (node, *quilt)
    summed = tuple(v for v in range(law.ndim) if v not in kept)
    rows = law.sum(axis=summed).transpose(np.argsort(np.argsort(kept)))
    rows = rows.reshape(law.shape[node], -1)
    rows = rows[rows.sum(axis=1) > 0]
    given = rows / rows.sum(axis=1, keepdims=True)
    given = given[:, given.sum(axis=0) > 0]
    with np.errstate(divide="ignore"):
        logs = np.log(given)
    return float((logs.max(axis=0) - logs.min(axis=0)).max()) if len(given) > 1 else 0.0


@pytest.mark.parametrize("seed", range(12))
def test_no_ring_has_more_influence_than_is_said(seed: int) -> None:
    zeros = 0.15 * (seed % 3 == 2)
    net = random_network(seed, 7, values=2 + seed % 2, zeros=zeros, density=0.35)
    law, graph = joint_of(net), moral(net.above)
    rings = 0
    for node in range(7):
        for quilt, near, said in local_candidates(net, graph, node):
            truth = influence(law, node, quilt) if quilt else 0.0
            assert said >= truth - 1e-12
            assert near >= 1
            if not zeros:
                assert said == pytest.approx(truth, abs=1e-9)
            rings += bool(quilt)
    assert rings > 7


@pytest.mark.parametrize("seed", range(4))
def test_without_the_prior_the_bound_is_larger(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = random_network(seed, 6, density=0.4)
    law, graph = joint_of(net), moral(net.above)
    monkeypatch.setattr(quilts, "_prior", lambda net, node: None)
    for node in range(6):
        for quilt, _, said in local_candidates(net, graph, node):
            assert influence(law, node, quilt) <= said + 1e-12 if quilt else said == 0.0


def test_a_ring_that_does_not_hold_is_not_believed() -> None:
    net = lattice(3, 0.1)
    with pytest.raises(ValueError, match="a table reaches beyond"):
        ring_influence(net, 4, (1,), {4})


def told(net: BayesNet, scale: float) -> float:
    """The true loss of a count of ones with Laplace noise, about single variables."""
    law = joint_of(net)
    total = np.indices(law.shape).sum(axis=0)
    worst = 0.0
    for node in range(law.ndim):
        rows = []
        for value in range(2):
            own = np.take(law, value, axis=node).ravel()
            counts = np.bincount(np.take(total, value, axis=node).ravel(), own, law.ndim + 1)
            spread = np.exp(
                -np.abs(np.subtract.outer(range(law.ndim + 1), range(law.ndim + 1))) / scale
            )
            rows.append(spread @ counts / own.sum())
        worst = max(worst, float(np.abs(np.log(rows[0] / rows[1])).max()))
    return worst


@pytest.mark.parametrize("strength", [0.02, 0.1, 0.3])
def test_noise_by_rings_keeps_its_promise(strength: float) -> None:
    net = lattice(3, strength)
    for epsilon in (0.5, 2.0):
        sigma, _ = quilt_sigma(network_quilts(net, "local"), epsilon)
        assert told(net, sigma) <= epsilon
        assert sigma <= 9 / epsilon * (1 + 1e-9)


def test_a_square_too_large_for_any_joint_law() -> None:
    """Weak ties fade: quilts are a hundredth of group noise where nothing was searched before."""
    net = lattice(12, 0.05)
    assert strategy_for(net) == "local"
    query = shoal.count("01", "1")
    task = Task(query=query, secrets=shoal.EachEntry(), family=(net,))
    plan = calibrated(row_named("markov-quilt"), task, Fraction(1))
    assert plan.scale == pytest.approx(1.699, abs=1e-3)
    assert verify_promise(plan) <= 1


def test_more_variables_than_can_be_searched_are_refused_at_once() -> None:
    tables = {"v0": [0.5, 0.5]} | {f"v{v}": [[0.6, 0.4], [0.4, 0.6]] for v in range(1, 2002)}
    net = BayesNet.of(tables, parents={f"v{v}": [f"v{v - 1}"] for v in range(1, 2002)})
    with pytest.raises(Refused, match="at most 2000 tied variables, not 2002"):
        network_quilts(net, "local")


@pytest.mark.parametrize(("name", "most"), [("andes", 200), ("pigs", 225), ("munin1", 169)])
def test_networks_of_the_literature_have_quilts(name: str, most: float) -> None:
    """What d-separation alone leaves apart: less than group noise, with no influence at all."""
    net = literature(name)
    sigma, costs = quilt_sigma(network_quilts(net, "local"), 1.0)
    assert sigma <= most * (1 + 1e-9) < len(net.variables)
    assert all(math.isfinite(cost.cost) for cost in costs)
