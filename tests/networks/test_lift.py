"""The lift on networks and crowds against the worst of all entry-level mechanisms."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from shoal.core.errors import Refused
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.entry_lift import ContagionLift, TableLift
from shoal.networks.graph import moral_graph
from shoal.networks.lift import BagLift, NetworkLift, bag_forest, block_forest, hamming_metrics
from shoal.networks.quilts import network_quilts, quilt_loss
from tests.networks.models import literature

SHAPES = {
    "chain": [[], [0], [1], [2]],
    "fork": [[], [0], [0], [0]],
    "collider": [[], [], [0, 1]],
    "collider-with-child": [[], [], [0, 1], [2]],
    "diamond": [[], [0], [0], [1, 2]],
    "two-colliders": [[], [], [], [0, 1], [1, 2]],
    "two-parts": [[], [0], [], [2]],
}


def random_net(parents: list[list[int]], seed: int, *, zeros: bool = False) -> BayesNet:
    """Binary variables with random tables, some entries 0 when asked."""
    rng = np.random.default_rng(seed)
    tables: dict[str, Any] = {}
    for v, own in enumerate(parents):
        p = rng.uniform(0.05, 0.95, size=(2,) * len(own))
        if zeros:
            p = np.where(rng.uniform(size=p.shape) < 0.3, np.round(p), p)
        tables[f"v{v}"] = np.stack([1 - p, p], axis=-1)
    above = {f"v{v}": [f"v{p}" for p in own] for v, own in enumerate(parents)}
    return BayesNet.of(tables, parents=above)


def worst_mechanism(law: np.ndarray, eta: float) -> float:
    """The largest loss of any eta-DP mechanism, over variables and values: a linear program.

    max Σ p(z) h(z) subject to Σ p'(z) h(z) = 1 and h(z) ≤ e^eta h(z') for neighbours z, z'.
    """
    cells = list(itertools.product(*(range(n) for n in law.shape)))
    place = {cell: i for i, cell in enumerate(cells)}
    rows = []
    for cell in cells:
        for axis, size in enumerate(law.shape):
            for value in range(size):
                other = (*cell[:axis], value, *cell[axis + 1 :])
                if other != cell:
                    row = np.zeros(len(cells))
                    row[place[cell]], row[place[other]] = 1.0, -math.exp(eta)
                    rows.append(row)
    flat, worst = law.ravel(), 0.0
    for axis, size in enumerate(law.shape):
        given = [
            np.array([flat[place[c]] if c[axis] == x else 0.0 for c in cells]) for x in range(size)
        ]
        for one, two in itertools.permutations(given, 2):
            if one.sum() <= 0 or two.sum() <= 0:
                continue
            found = linprog(
                -one / one.sum(),
                A_ub=np.array(rows),
                b_ub=np.zeros(len(rows)),
                A_eq=(two / two.sum())[None],
                b_eq=[1.0],
            )
            worst = max(worst, math.log(-found.fun))
    return worst


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("zeros", [False, True], ids=["positive", "zeros"])
def test_no_mechanism_tells_more_than_the_block_lift(shape: str, seed: int, zeros: bool) -> None:
    net = random_net(SHAPES[shape], seed, zeros=zeros)
    lifted = NetworkLift(net, hamming_metrics(net))
    for eta in (0.2, 1.0):
        truth = worst_mechanism(net.as_table().probability, eta)
        for rule in ("largest", "caps", "cone"):
            bound = lifted.loss(eta, rule).value
            assert bound >= truth - 2e-6 * max(1.0, truth), (rule, eta)
        assert lifted.loss(eta).value <= 1.6 * truth + 1e-9
        table = TableLift(net.as_table(), hamming_metrics(net)).loss(eta).value
        assert table == pytest.approx(truth, rel=1e-5)  # one block: the program itself
        assert quilt_loss(network_quilts(net, "all"), eta) >= truth - 2e-6


LOOPS = {
    **SHAPES,
    "square": [[], [0], [0], [1, 2], [3]],
    "ladder": [[], [0], [0], [1, 2], [2], [3, 4]],
}


@pytest.mark.parametrize("shape", ["square", "ladder"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("zeros", [False, True], ids=["positive", "zeros"])
def test_no_mechanism_tells_more_than_the_block_lift_of_loops(
    shape: str, seed: int, zeros: bool
) -> None:
    net = random_net(LOOPS[shape], seed, zeros=zeros)
    lifted = NetworkLift(net, hamming_metrics(net))
    for eta in (0.2, 1.0):
        truth = worst_mechanism(net.as_table().probability, eta)
        for rule in ("largest", "caps", "cone"):
            bound = lifted.loss(eta, rule).value
            assert bound >= truth - 2e-6 * max(1.0, truth), (rule, eta)


def test_messages_that_omit_the_other_blocks_are_unsound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without other blocks' messages the bound falls below what a mechanism tells."""
    net = random_net(LOOPS["ladder"], 0)
    truth = worst_mechanism(net.as_table().probability, 1.0)
    monkeypatch.setattr(
        NetworkLift,
        "_block_growth",
        lambda self, block, _, eta, __: eta * self._block_metric(block, ()),
    )
    assert NetworkLift(net, hamming_metrics(net)).loss(1.0).value < truth - 1e-3


@pytest.mark.parametrize("shape", LOOPS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("zeros", [False, True], ids=["positive", "zeros"])
def test_no_mechanism_tells_more_than_the_bag_lift(shape: str, seed: int, zeros: bool) -> None:
    net = random_net(LOOPS[shape], seed, zeros=zeros)
    lifted = BagLift(net, hamming_metrics(net))
    for eta in (0.2, 1.0):
        truth = worst_mechanism(net.as_table().probability, eta)
        for rule in ("largest", "caps", "cone"):
            bound = lifted.loss(eta, rule).value
            assert bound >= truth - 2e-6 * max(1.0, truth), (rule, eta)
        assert lifted.loss(eta).value <= 1.6 * truth + 1e-9


@pytest.mark.parametrize("shape", LOOPS)
def test_bags_form_a_tree_decomposition(shape: str) -> None:
    net = random_net(LOOPS[shape], 1)
    forest = bag_forest(net)
    bags = [set(bag) for bag in forest.blocks]
    for v, above in enumerate(net.above):
        assert any({v, *above} <= bag for bag in bags)
        holding = {b for b, bag in enumerate(bags) if v in bag}
        tops = [b for b in holding if forest.parent[b] not in holding]
        assert len(tops) == 1  # connected: each other bag that holds v has a parent that holds it
    for b, above_b in enumerate(forest.parent):
        assert above_b is None or (above_b < b and not bags[b] <= bags[above_b])


@pytest.mark.slow
def test_bags_serve_where_blocks_are_too_large() -> None:
    """HEPAR2: less than half of the noise of quilts and walks of influence (67.15)."""
    net = literature("hepar2")
    with pytest.raises(Refused, match="at most 1024 values together"):
        NetworkLift(net, hamming_metrics(net))
    found = BagLift(net, hamming_metrics(net)).largest_eta(1.0)
    assert found is not None
    assert 1 / found.eta == pytest.approx(27.609, abs=1e-3)


def test_messages_that_omit_the_other_bags_are_unsound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without other bags' messages the bound falls below what a mechanism tells."""
    net = random_net(LOOPS["ladder"], 0)
    truth = worst_mechanism(net.as_table().probability, 1.0)
    monkeypatch.setattr(
        BagLift, "_block_growth", lambda self, bag, _, eta, __: self._block_metric(bag, ()) * eta
    )
    assert BagLift(net, hamming_metrics(net)).loss(1.0).value < truth - 1e-3


def test_blocks_too_large_for_the_lift_are_refused() -> None:
    """In a complete graph of twelve bits eleven form one block, of 2,048 values."""
    rng = np.random.default_rng(1)
    tables: dict[str, Any] = {}
    for v in range(12):
        p = rng.uniform(0.3, 0.7, size=(2,) * v)
        tables[f"v{v}"] = np.stack([1 - p, p], axis=-1)
    above = {f"v{v}": [f"v{p}" for p in range(v)] for v in range(12)}
    net = BayesNet.of(tables, parents=above)
    with pytest.raises(Refused, match="at most 1024 values together"):
        NetworkLift(net, hamming_metrics(net))


def test_messages_through_a_collider_are_not_repeated() -> None:
    """XOR of two fair bits: each pair is independent, yet everything is told by two changes."""
    flip = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]
    net = BayesNet.of({"a": [0.5, 0.5], "b": [0.5, 0.5], "c": flip}, parents={"c": ["a", "b"]})
    lifted = NetworkLift(net, hamming_metrics(net))
    assert len(lifted.forest.blocks[1]) == 2  # two parents, tied in the moral graph
    assert lifted.loss(0.5).value >= 2 * 0.5 - 1e-9  # along the skeleton it would be 0.5


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_form_a_forest_of_the_moral_graph(shape: str) -> None:
    net = random_net(SHAPES[shape], 1)
    forest = block_forest(net)
    home = forest.block_of_variables()
    assert sorted(home) == list(range(len(net.variables)))
    for v, near in enumerate(moral_graph(net.above)):
        for other in near:
            one, two = home[v], home[other]
            assert one == two or forest.parent[one] == two or forest.parent[two] == one


def test_a_tree_needs_no_larger_blocks_than_its_variables() -> None:
    assert all(len(block) == 1 for block in block_forest(random_net(SHAPES["fork"], 0)).blocks)


@pytest.mark.parametrize("law", [[0.1, 0.15, 0.5, 0.15, 0.1], [0.4, 0.0, 0.1, 0.5], [0.3, 0.7]])
@pytest.mark.parametrize("eta", [0.2, 1.0])
def test_no_mechanism_tells_more_than_the_lift_of_a_crowd(law: list[float], eta: float) -> None:
    size = len(law) - 1
    joint = np.zeros((2,) * size)
    for cell in itertools.product((0, 1), repeat=size):
        joint[cell] = law[sum(cell)] / math.comb(size, sum(cell))
    truth = worst_mechanism(joint, eta)
    alike = ContagionLift(Contagion.cliques([size], law)).loss(eta).value
    people = [str(i) for i in range(size)]
    edges = list(itertools.pairwise(people))
    listed = Contagion.from_edges(people, edges, law, tables={"0": joint})
    written = ContagionLift(listed).loss(eta).value
    assert alike >= truth - 2e-6
    assert written >= truth - 2e-6
    assert alike <= 1.3 * truth + 1e-9
