"""Networks at the edge: underflow, sizes, chains written as networks, totals of a ledger."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from shoal.chains.model import MarkovChain
from shoal.core.charge import AsEntryDP
from shoal.core.errors import Refused
from shoal.core.task import EachEntry, Task
from shoal.ledger.rules import compose
from shoal.mechanisms.choice import choose
from shoal.mechanisms.lift import leakage
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.entry_lift import ContagionLift
from shoal.networks.influence import (
    contractions,
    joint_law,
    network_influence,
    network_matrix_scale,
)
from shoal.networks.lift import NetworkLift, hamming_metrics
from shoal.networks.parts import independent_parts
from shoal.networks.quilts import network_quilts
from shoal.networks.table import JointTable
from tests.networks.models import random_network

BITS = ("0", "1")


def chain_network(initial: list[float], matrices: list[list[list[float]]]) -> BayesNet:
    tables = {"x0": initial} | {f"x{t + 1}": m for t, m in enumerate(matrices)}
    return BayesNet.of(tables, parents={f"x{t + 1}": [f"x{t}"] for t in range(len(matrices))})


def scale(name: str, model: object) -> float:
    task = Task(query=count(BITS, "1"), secrets=EachEntry(), family=(model,))  # type: ignore[arg-type]
    return float(calibrate_and_check(MECHANISMS[name], task, Fraction(1)).body.noise.scale)  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_and_the_same_chain_as_a_network(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrices = rng.dirichlet(np.ones(2) * 2, size=(11, 2)).tolist()
    net = chain_network([0.4, 0.6], matrices)
    chain = MarkovChain.of(matrices, states=BITS, initial=[0.4, 0.6], length=12)
    for name in ("exact", "wasserstein", "markov-quilt", "group"):
        assert scale(name, net) == pytest.approx(scale(name, chain), rel=1e-8), name
    assert scale("lift", net) == pytest.approx(scale("lift", chain), rel=1e-5)


def unlikely(steps: int) -> BayesNet:
    """A sequence that falls to 1 with probability 1e-30 at each step, given that it has before."""
    rare = [[1 - 1e-30, 1e-30], [1 - 1e-30, 1e-30]]
    down = [[1.0, 0.0], [1 - 1e-30, 1e-30]]
    return chain_network([1 - 1e-30, 1e-30], [rare] + [down] * (steps - 2))


def test_a_secret_that_underflows_is_followed_not_dropped() -> None:
    """The last bit is 1 with probability 1e-330: possible, and 0 as a double."""
    net = unlikely(12)
    law = joint_law(net, (11,))
    assert law.values.doubles()[1] == 0.0
    assert law.possible.tolist() == [True, True]
    (part,) = (
        p
        for p in independent_parts(net, count(BITS, "1"), EachEntry()).parts
        if len(p.laws.names) > 2
    )
    assert part.laws.names[-1].endswith(" = 1")
    assert part.laws.laws[-1][-2] == pytest.approx(1.0)  # all but the first bit are 1
    assert network_influence(net, 11, [10]) == math.inf
    lifted = NetworkLift(net, hamming_metrics(net))
    # the last bit decides all but the first, which stands alone
    assert lifted.loss(0.1).value == pytest.approx(11 * 0.1)
    plan = choose(
        Task(query=count(BITS, "1"), secrets=EachEntry(), family=(net,)), Fraction(1)
    ).plan
    assert float(plan.body.noise.scale) >= 11  # type: ignore[union-attr]


def test_a_state_of_a_crowd_too_rare_for_a_double_is_still_a_secret() -> None:
    """Ill with 1e-320/3: given that, exactly one person is."""
    law = np.array([1.0, 1e-320, 0.0, 0.0])
    model = Contagion.cliques([3], law)
    laws = independent_parts(model, count(model.states, "ill"), EachEntry()).parts[0].laws
    assert laws.laws[1].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert laws.lossy  # somebody else is ill with 1e-320, given that one is well
    assert ContagionLift(model).loss(0.1).value == pytest.approx(0.1)


def test_tables_whose_products_are_lost_to_underflow_have_no_small_influence() -> None:
    tied = [[1 - 3e-160, 3e-160], [1 - 1e-160, 1e-160]]  # P(b, c | a) has few digits left
    tables: dict[str, npt.ArrayLike] = {"a": [0.5, 0.5], "b": tied, "c": tied}
    net = BayesNet.of(tables, parents={"b": ["a"], "c": ["a"]})
    assert contractions(net)[1:, 0].tolist() == [1.0, 1.0]
    assert network_matrix_scale(net, 1.0).refusal == (
        "products of its tables are too small for a double"
    )


def test_the_lift_of_far_apart_probabilities_keeps_its_promise_whatever_was_asked_before() -> None:
    tables: dict[str, npt.ArrayLike] = {
        "a": [1.0, 5e-19],
        "b": [[1 - 5e-8, 5e-8], [1 - 5e-10, 5e-10]],
        "c": [[[5e-19, 1.0], [5e-20, 1.0]], [[5e-11, 1 - 5e-11], [5e-18, 1.0]]],
    }
    net = BayesNet.of(tables, parents={"b": ["a"], "c": ["a", "b"]})
    lifted = NetworkLift(net, hamming_metrics(net))
    found = lifted.largest_eta(1.0)
    assert found is not None
    assert found.value <= 1.0
    for other in (found.eta / 3, 2.0, found.eta):
        lifted.loss(other)
        again = lifted.loss(found.eta * (1 - 2.0**-40)).value
        assert again == NetworkLift(net, hamming_metrics(net)).loss(found.eta).value <= 1.0
    assert scale("lift", net) <= 3.0  # calibrated, and its own check agrees


def test_states_that_are_certain_are_no_secrets() -> None:
    model = Contagion.cliques([3], [1.0, 0.0, 0.0, 0.0])
    assert ContagionLift(model).loss(1.0).value == 0.0
    sure = BayesNet.of({"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.1, 0.9]]}, parents={"b": ["a"]})
    assert leakage(sure, 1).value == pytest.approx(1.0)  # b alone; a is known anyway


def test_large_networks_are_refused_in_words_and_group_still_works() -> None:
    """150 variables in one component, each with the two before it as parents."""
    rng = np.random.default_rng(1)
    tables = {}
    parents = {}
    for v in range(150):
        own = [f"v{p}" for p in range(max(0, v - 2), v)]
        tables[f"v{v}"] = rng.dirichlet(np.ones(2), size=(2,) * len(own))
        parents[f"v{v}"] = own
    net = BayesNet.of(tables, parents=parents)
    with pytest.raises(Refused, match="at most 128 tied variables, not 150"):
        network_quilts(net, "distance")
    assert scale("group", net) == 150
    assert scale("exact", net) < 150
    assert leakage(net, Fraction(1, 10)).value <= 15


def test_the_ledger_adds_quilt_plans_of_one_network() -> None:
    net = random_network(2, 5, density=0.4)
    task = Task(query=count(BITS, "1"), secrets=EachEntry(), family=(net,))
    plans = [calibrate_and_check(MECHANISMS["markov-quilt"], task, Fraction(e)) for e in (1, 2)]
    total = compose(plans)
    assert total.amount <= 4  # Theorem 4.4: K times the largest
    etas = [rule.eta for plan in plans for rule in plan.composition if isinstance(rule, AsEntryDP)]
    # at most what the lift of the network says; less where both release one number
    assert float(total.amount) <= leakage(net, sum(etas)).value * (1 + 1e-9)
    mixed = compose([plans[0], calibrate_and_check(MECHANISMS["exact"], task, Fraction(1))])
    assert mixed.rule in ("lift", "group", "same answer")


def test_a_table_and_its_network_leak_alike() -> None:
    net = random_network(6, 4)
    table = JointTable.of(net.as_table().probability, variables=net.variables)
    assert leakage(table, 1).value <= leakage(net, 1).value * (1 + 1e-9)
    assert leakage(table, 1).value < 4
