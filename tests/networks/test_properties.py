"""What must be true of any network: parts, relabelling, order of the rows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import get_args

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.core.task import EachEntry, Task
from shoal.mechanisms.queries import count, weighted_sum
from shoal.mechanisms.quilt import composed_loss
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.graph import d_connected
from shoal.networks.lift import NetworkLift, hamming_metrics
from shoal.networks.quilts import Strategy, nearby, network_quilts, quilt_loss, quilt_sigma
from tests.networks.models import joint_of, random_network

SEEDS = st.integers(0, 10_000)
ROWS = ("exact", "wasserstein", "lift", "markov-quilt", "group")


def scale(name: str, model: BayesNet | Contagion, query: object, epsilon: int = 1) -> float:
    task = Task(query=query, secrets=EachEntry(), family=(model,))  # type: ignore[arg-type]
    plan = calibrate_and_check(MECHANISMS[name], task, Fraction(epsilon))
    return float(plan.body.noise.scale)  # type: ignore[union-attr]


def with_stranger(net: BayesNet) -> BayesNet:
    """The network and one more variable nothing depends on."""
    size = len(net.domains[0])
    return BayesNet(
        variables=(*net.variables, "stranger"),
        domains=(*net.domains, net.domains[0]),
        parents=(*net.parents, ()),
        tables=(*net.tables, np.full(size, 1 / size)),
    )


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_an_isolated_variable_changes_nothing(seed: int) -> None:
    net = random_network(seed, 3)
    query = count(["0", "1"], "1")
    more = with_stranger(net)
    for name in ("lift", "markov-quilt", "group", "wasserstein"):
        assert scale(name, more, query) == pytest.approx(scale(name, net, query), rel=1e-7)
    # the exact loss may fall, where the stranger hides what an odd sum would tell; and the
    # stranger is a secret, too, who needs a scale of 1
    assert scale("exact", more, query) <= max(scale("exact", net, query), 1.0) * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_splitting_a_value_in_two_alike_changes_nothing(seed: int) -> None:
    """A third value that behaves and weighs like the second."""
    net = random_network(seed, 3)
    three = tuple(("0", "1", "2") for _ in net.variables)
    tables = []
    for table in net.tables:
        wide = np.concatenate([table[..., :1], table[..., 1:] / 2, table[..., 1:] / 2], axis=-1)
        for axis in range(table.ndim - 1):
            wide = np.concatenate([wide, np.take(wide, [1], axis=axis)], axis=axis)
        tables.append(wide)
    split = replace(net, domains=three, tables=tuple(tables))
    one, two = count(["0", "1"], "1"), weighted_sum(["0", "1", "2"], {"1": 1, "2": 1})
    for name in ("exact", "wasserstein", "group"):
        assert scale(name, split, two) == pytest.approx(scale(name, net, one), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, zeros=st.sampled_from([0.0, 0.3]))
def test_the_order_of_the_rows(seed: int, zeros: float) -> None:
    """exact ≤ Wasserstein ≤ group, lift ≤ quilt ≤ group, exact ≤ lift."""
    net = random_network(seed, 4, zeros=zeros)
    found = {name: scale(name, net, count(["0", "1"], "1")) for name in ROWS}
    slack = 1 + 1e-6
    assert found["exact"] <= found["wasserstein"] * slack
    assert found["wasserstein"] <= found["group"] * slack
    assert found["lift"] <= found["markov-quilt"] * slack
    assert found["markov-quilt"] <= found["group"] * slack
    assert found["exact"] <= found["lift"] * slack


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, node=st.integers(0, 5), bits=st.integers(0, 63))
def test_what_is_not_nearby_is_independent(seed: int, node: int, bits: int) -> None:
    """d-separation against networkx, and against the joint law itself."""
    net = random_network(seed, 6, density=0.4)
    quilt = [v for v in range(6) if bits >> v & 1 and v != node]
    near = nearby(net, node, quilt)
    graph = nx.DiGraph([(p, v) for v, own in enumerate(net.above) for p in own])
    graph.add_nodes_from(range(6))
    for v in set(range(6)) - {node, *quilt}:
        assert (v not in near) == nx.is_d_separator(graph, {node}, {v}, set(quilt))
    far = sorted(set(range(6)) - near - set(quilt))
    if not far:
        return
    law = joint_of(net).transpose([node, *quilt, *far, *sorted(near - {node})])
    table = law.sum(axis=tuple(range(1 + len(quilt) + len(far), 6)))
    table = table.reshape(2, 2 ** len(quilt), 2 ** len(far))
    both = table.sum(axis=2, keepdims=True) * table.sum(axis=0, keepdims=True)
    assert table * table.sum(axis=(0, 2), keepdims=True) == pytest.approx(both, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, eta=st.floats(0.01, 2))
def test_every_bound_grows_with_eta_and_never_passes_group(seed: int, eta: float) -> None:
    net = random_network(seed, 4)
    lifted = NetworkLift(net, hamming_metrics(net))
    quilts = network_quilts(net, "all")
    for now, more in (
        (lifted.loss(eta).value, lifted.loss(eta * 1.1).value),
        (quilt_loss(quilts, eta), quilt_loss(quilts, eta * 1.1)),
    ):
        assert now <= more * (1 + 1e-9)
        assert now <= eta * (net.tied or 0) * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_quilt_plans_from_one_network_add_up(seed: int) -> None:
    """Theorem 4.4: K plans cost at most K times the largest, and no less than each."""
    net = random_network(seed, 4)
    task = Task(query=count(["0", "1"], "1"), secrets=EachEntry(), family=(net,))
    plans = [calibrate_and_check(MECHANISMS["markov-quilt"], task, Fraction(e)) for e in (1, 2)]
    together = composed_loss(plans)
    assert 2 * (1 - 1e-9) <= together <= 4 * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_sigma_meets_its_own_loss(seed: int) -> None:
    net = random_network(seed, 5, zeros=0.2)
    for strategy in get_args(Strategy):
        quilts = network_quilts(net, strategy)
        sigma, _ = quilt_sigma(quilts, 1.5)
        assert quilt_loss(quilts, 1 / sigma) <= 1.5 * (1 + 1e-9)


def test_a_given_collider_opens_the_path() -> None:
    parents = [[], [], [0, 1], [2]]
    assert d_connected(parents, 0, []) == {0, 2, 3}
    assert d_connected(parents, 0, [2]) == {0, 1}
    assert d_connected(parents, 0, [3]) == {0, 1, 2}  # below a collider is enough
