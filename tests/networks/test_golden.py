"""The paper's networks and cliques, and 22 random networks searched by brute force."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.chains.closeness import max_divergence
from shoal.core.task import EachEntry, Task
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.bayesnet import BayesNet
from shoal.networks.closeness import closeness
from shoal.networks.contagion import Contagion, exponential_law
from shoal.networks.influence import network_influence
from shoal.networks.quilts import family_quilts, nearby, network_quilts, quilt_loss, quilt_sigma
from shoal.networks.table import JointTable
from tests.networks.models import entry_facts, joint_of, true_loss

DATA = Path(__file__).parents[1] / "golden" / "data" / "networks.json"
CASES = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[1] / "golden" / "data" / "networks.json").read_text()
    )
}
NETWORKS = [name for name in CASES if name.startswith("rnd.bn")]
ILL = ("well", "ill")


def network(parents: list[list[int]], rows: list[dict[str, float]]) -> BayesNet:
    """Binary variables from P(X_i = 1 | values of its parents), the key listing those values."""
    tables: dict[str, Any] = {}
    for v, (own, cells) in enumerate(zip(parents, rows, strict=True)):
        table = np.zeros((2,) * len(own) + (2,))
        for key, chance in cells.items():
            table[tuple(int(digit) for digit in key)] = [1 - chance, chance]
        tables[str(v)] = table
    above = {str(v): [str(p) for p in own] for v, own in enumerate(parents)}
    return BayesNet.of(tables, parents=above)


def colliders() -> BayesNet:
    """i → c_j ← r_j for j = 1..4, c_j = i xor r_j flipped with probability .2."""
    parents = CASES["001.graphcut"]["inputs"]["parents"]
    root = {"": 0.5}
    flip = {"00": 0.2, "01": 0.8, "10": 0.8, "11": 0.2}
    return network(parents, [flip if own else root for own in parents])


def plan_scale(name: str, model: Contagion, epsilon: int = 1) -> float:
    task = Task(query=count(ILL, "ill"), secrets=EachEntry(), family=(model,))
    plan = calibrate_and_check(MECHANISMS[name], task, Fraction(epsilon))
    return float(plan.body.noise.scale)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_least_quilts_of_a_random_network(name: str) -> None:
    case = CASES[name]
    given, expected = case["inputs"], case["expected"]
    nets = [network(given["parents"], rows) for rows in given["cpts"]]
    sigma, costs = quilt_sigma(family_quilts(nets, "all"), given["eps"])
    assert [cost.cost for cost in costs] == pytest.approx(expected["sigma_i_strict"], abs=1e-7)
    assert sigma == pytest.approx(expected["sigma_max_strict"], abs=1e-7)
    alone = max(quilt_sigma(network_quilts(net, "all"), given["eps"])[0] for net in nets)
    nearer = max(quilt_sigma(network_quilts(net, "distance"), given["eps"])[0] for net in nets)
    assert alone <= sigma * (1 + 1e-12)  # one member at a time never needs more
    assert nearer >= alone * (1 - 1e-12)  # fewer candidates never need less


@pytest.mark.parametrize("name", NETWORKS)
def test_the_true_loss_at_that_noise(name: str) -> None:
    case = CASES[name]
    given, expected = case["inputs"], case["expected"]
    worst = 0.0
    for rows in given["cpts"]:
        law = joint_of(network(given["parents"], rows))
        answers = np.indices(law.shape).reshape(law.ndim, -1).sum(axis=0)[:, None]
        scale = expected["sigma_max_indep"]
        worst = max(worst, true_loss(law, answers, scale, entry_facts(law.shape)))
    assert worst == pytest.approx(expected["exact_loss_sum_with_indep"], abs=1e-7)
    assert worst <= given["eps"]


def test_a_vertex_cut_through_colliders_is_no_quilt() -> None:
    case = CASES["001.graphcut"]
    expected, epsilon = case["expected"], case["inputs"]["eps"]
    net = colliders()
    cut = [5, 6, 7, 8]
    assert network_influence(net, 0, cut) == pytest.approx(expected["influence"], abs=1e-9)
    assert set(nearby(net, 0, cut)) == {0, 1, 2, 3, 4}  # the r_j are not separated
    assert not net.d_separated(["0"], ["1", "2", "3", "4"], [str(c) for c in cut])
    accepted = expected["sigma_if_cut_accepted"]
    assert quilt_loss(network_quilts(net, "all"), 1 / accepted) > epsilon
    sigma, costs = quilt_sigma(network_quilts(net, "all"), epsilon)
    assert sigma == pytest.approx(1.25)  # i and the four c_j
    assert costs[0].quilt.quilt == ()


def test_what_the_cut_would_have_cost() -> None:
    expected = CASES["001.graphcut"]["expected"]
    law = joint_of(colliders())
    answers = np.array(
        [
            sum(x[4 + j] ^ x[j] for j in range(1, 5))
            for x in itertools.product((0, 1), repeat=law.ndim)
        ]
    )[:, None]
    facts = entry_facts(law.shape)[:1]
    loss = true_loss(law, answers, expected["sigma_if_cut_accepted"], facts)
    assert loss == pytest.approx(expected["exact_loss"], abs=1e-9)


def test_the_flu_clique_of_section_3_1() -> None:
    case = CASES["001.flu"]
    model = Contagion.cliques([4], case["inputs"]["P_N"])
    from shoal.networks.parts import independent_parts

    part = independent_parts(model, count(ILL, "ill"), EachEntry()).parts[0]
    assert part.laws.laws[0] == pytest.approx(case["expected"]["cond0"], abs=1e-12)
    assert part.laws.laws[1] == pytest.approx(case["expected"]["cond1"], abs=1e-12)
    assert plan_scale("wasserstein", model) == case["expected"]["W"]
    assert plan_scale("group", model) == case["expected"]["group"]
    assert plan_scale("exact", model) == pytest.approx(1.154526559, abs=1e-8)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("001.flu_exp")])
def test_cliques_with_an_exponential_law(name: str) -> None:
    case = CASES[name]
    size = case["inputs"]["clique_size"]
    model = Contagion.cliques([size], exponential_law(2))
    assert plan_scale("wasserstein", model) == pytest.approx(case["expected"]["W"], abs=1e-9)


def test_the_quilts_of_section_4_3() -> None:
    """The chain of three entries as a network: all four quilts of its middle entry."""
    case = CASES["001.comp"]
    given, expected = case["inputs"], case["expected"]
    chain = BayesNet.of(
        {"1": given["q"], "2": given["P"], "3": given["P"]}, parents={"2": ["1"], "3": ["2"]}
    )
    for quilt, influence, score in zip(
        expected["quilts"], expected["influences"], expected["scores"], strict=True
    ):
        members = [node - 1 for node in quilt]
        found = network_influence(chain, given["node"] - 1, members)
        near = len(nearby(chain, given["node"] - 1, members))
        assert found == pytest.approx(influence, abs=1e-9)
        assert near / (given["eps"] - found) == pytest.approx(score, abs=1e-9)


def test_the_adversary_outside_the_family() -> None:
    """Theorem 2.4: the paper prints log 91.0962, from rounded numbers; exact is log 90.9474."""
    case = CASES["001.thm24"]
    one, two = (
        JointTable.of(case["inputs"][key], variables=["X"]) for key in ("theta", "theta_tilde")
    )
    low = Event.of("low", {"X": [str(v) for v in case["inputs"]["cond_support"]]})
    any_value = Event.of("any", {"X": ["0", "1", "2"]})
    given = closeness(one, two, secrets=SecretPairs.of([(low, low)]))
    always = closeness(one, two, secrets=SecretPairs.of([(any_value, any_value)]))
    assert math.exp(given.value) == pytest.approx(case["expected"]["cond_ratio_exact"], abs=1e-8)
    assert math.exp(always.value) == pytest.approx(case["expected"]["uncond_ratio"], abs=1e-8)


def test_max_divergence() -> None:
    case = CASES["001.maxdiv"]
    one, two = ([float(Fraction(p)) for p in case["inputs"][key]] for key in ("p", "q"))
    assert max_divergence(one, two) == pytest.approx(case["expected"]["D_inf"], abs=1e-12)
