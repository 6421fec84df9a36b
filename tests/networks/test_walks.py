"""Walks of influence in networks: against the worst of all mechanisms, and on a large network."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.audit.exact import audit
from shoal.core.errors import Refused
from shoal.core.plan import Additive
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.lift import leakage
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import verify_promise
from shoal.mechanisms.variables import variable_sum
from shoal.networks import entry_lift
from shoal.networks.bayesnet import BayesNet
from shoal.networks.influence import contractions, reaches
from shoal.networks.lift import NetworkLift
from tests.networks.models import joint_of, lattice, random_network
from tests.networks.test_lift import worst_mechanism


def softened(net: BayesNet, share: float) -> BayesNet:
    """The tables pulled towards even ones, `share` of them left."""
    tables = tuple((1 - share) / table.shape[-1] + share * table for table in net.tables)
    return BayesNet(
        variables=net.variables, domains=net.domains, parents=net.parents, tables=tables
    )


def by_hand(law: np.ndarray) -> np.ndarray:
    """tanh of a quarter of the largest cross-ratio of P(X_j | all others), outcome by outcome."""
    found = np.zeros((law.ndim,) * 2)
    for i, j in itertools.permutations(range(law.ndim), 2):
        logs = np.log(np.moveaxis(law, (i, j), (0, -1)))
        widest = max(
            float(np.ptp(logs[u] - logs[v], axis=-1).max())
            for u, v in itertools.combinations(range(len(logs)), 2)
        )
        found[i, j] = math.tanh(widest / 4)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_contractions_are_their_definition(seed: int) -> None:
    net = softened(random_network(seed, 4, values=2 + seed % 2, density=0.7), 0.8)
    found = contractions(net)
    assert found == pytest.approx(by_hand(joint_of(net)), abs=1e-9)
    assert (found >= by_hand(joint_of(net)) - 1e-15).all()


def test_no_mechanism_tells_more_than_the_walks() -> None:
    """Colliders, three values, weak and strong ties: the linear program over all mechanisms."""
    shares, finite = [], 0
    for seed in range(36):
        values = 3 if seed % 6 == 0 else 2
        net = softened(
            random_network(seed, 4 if values == 2 else 3, values=values, density=0.8),
            (0.05, 0.2, 0.4, 0.7)[seed % 4],
        )
        reach = float(reaches(net, np.ones(len(net.variables))).max())
        if reach == math.inf:
            continue
        finite += 1
        for eta in (0.05, 1.0):
            truth = worst_mechanism(joint_of(net), eta)
            assert truth <= eta * reach * (1 + 1e-6), (seed, eta)
            shares.append(truth / (eta * reach))
    assert finite >= 25
    assert max(shares) > 0.99  # tight for small eta on a weak tie


def test_half_of_every_contraction_would_be_caught() -> None:
    """A control: the program finds a mechanism that tells more than walks of half the weight."""
    net = lattice(2, 0.2)
    half = contractions(net) / 2
    sums = np.linalg.solve(np.eye(4) - half, np.ones(4))
    assert worst_mechanism(joint_of(net), 0.05) > 0.05 * sums.max()


def test_walks_count_what_each_variable_moves() -> None:
    """A variable the query does not ask about only passes on what others tell."""
    net = softened(random_network(1, 4, density=0.8), 0.3)
    everything = reaches(net, np.ones(4))
    some = reaches(net, np.array([1.0, 0.0, 0.0, 0.0]))
    assert (some <= everything * (1 + 1e-8)).all()
    assert some[1] < 0.7
    assert some[0] >= 1
    query = variable_sum(net, {"v0": {"1": 1}})
    ordinary = calibrate(query, EachEntry(), net, epsilon=1, mechanism="laplace")
    assert audit(ordinary).upper <= float(some.max()) * (1 + 1e-9)


def test_zeros_and_strong_ties_have_no_bound() -> None:
    copy = BayesNet.of({"a": [0.5, 0.5], "b": [[1.0, 0.0], [0.0, 1.0]]}, parents={"b": ["a"]})
    assert np.isinf(reaches(copy, np.ones(2))).all()
    assert np.isinf(reaches(lattice(6, 0.45), np.ones(36))).all()
    wide = {f"r{i}": [0.5, 0.5] for i in range(21)}
    big = BayesNet.of({**wide, "c": np.full((2,) * 22, 0.5)}, parents={"c": list(wide)})
    with pytest.raises(Refused, match="and the variables it is tied to"):
        reaches(big, np.ones(22))


def test_a_large_network_without_small_blocks_is_lifted() -> None:
    """196 variables of treewidth 14: no blocks and no quilts, and yet near the noise of one."""
    net = lattice(14, 0.1)
    query = count("01", "1")
    plan = calibrate(query, EachEntry(), net, epsilon=1, mechanism="lift")
    assert isinstance(plan.body, Additive)
    assert plan.certificate.models[0].rule == entry_lift.WALKS  # type: ignore[attr-defined]
    assert 1 < float(plan.body.noise.scale) < 2
    assert verify_promise(plan) <= 1
    assert leakage(net, 1).value == pytest.approx(float(plan.body.noise.scale), rel=1e-6)


def test_a_large_network_whose_walks_never_fade_is_refused() -> None:
    task = (count("01", "1"), EachEntry(), lattice(14, 0.45))
    with pytest.raises(Refused, match="has none of them; use exact, wasserstein or group"):
        calibrate(*task, epsilon=1, mechanism="lift")
    with pytest.raises(Refused, match="at most 128 tied variables, not 196"):
        calibrate(*task, epsilon=1, mechanism="markov-quilt")


@pytest.mark.parametrize("strength", [0.05, 0.15])
def test_walks_cover_the_exact_loss_of_a_small_lattice(strength: float) -> None:
    net = lattice(3, strength)
    bound = float(reaches(net, np.ones(9)).max())
    ordinary = calibrate(count("01", "1"), EachEntry(), net, epsilon=1, mechanism="laplace")
    assert audit(ordinary).upper <= bound * (1 + 1e-9)
    small = calibrate(
        count("01", "1"), EachEntry(), net, epsilon=Fraction(1, 20), mechanism="laplace"
    )
    assert audit(small).lower > 0.8 * bound / 20


def test_walks_serve_where_blocks_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 512 values, and all quilts of 81 variables, take a minute and tell more."""

    def dear(*_: object, **__: object) -> float:
        raise AssertionError("blocks or quilts were looked at")

    monkeypatch.setattr(NetworkLift, "loss", dear)
    monkeypatch.setattr(entry_lift, "network_quilts", dear)
    net = lattice(9, 0.05)
    plan = calibrate(count("01", "1"), EachEntry(), net, epsilon=1, mechanism="lift")
    assert plan.scale == pytest.approx(float(reaches(net, np.ones(81)).max()), rel=1e-6)
    assert plan.scale is not None
    assert plan.scale < 1.3


def test_walks_are_compared_with_small_blocks() -> None:
    net = lattice(6, 0.05)
    plan = calibrate(count("01", "1"), EachEntry(), net, epsilon=1, mechanism="lift")
    blocks = NetworkLift(net, (1 - np.eye(2),) * 36).largest_eta(1.0)
    assert blocks is not None
    assert plan.scale is not None
    assert plan.scale * blocks.eta < 0.95
    assert plan.scale <= float(reaches(net, np.ones(36)).max()) * (1 + 1e-6)
