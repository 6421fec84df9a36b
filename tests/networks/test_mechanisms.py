"""Every plan on random networks and crowds, held to the loss over all outcomes written out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.audit.exact import audit
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Task
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.choice import choose
from shoal.mechanisms.queries import LinearQuery, count, histogram, weighted_sum
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.mechanisms.variables import variable_sum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.exact import end_loss, least_parts_scale, parts_loss, secret_loss
from shoal.networks.parts import independent_parts
from tests.contract.network_tasks import crowd, household
from tests.networks.models import entry_facts, joint_of, random_network, true_loss

ROWS = ("exact", "wasserstein", "lift", "markov-quilt", "group")
LEAST = {"exact", "wasserstein", "group"}  # rows that take every network and secret here
ILL = ("well", "ill")


def answers_of(query: LinearQuery, shape: tuple[int, ...]) -> np.ndarray:
    """The query's answer for every outcome, in its own units."""
    weights = np.array([[float(w) for w in row] for row in query.weights])
    places = np.indices(shape).reshape(len(shape), -1)
    return np.asarray(weights[places].sum(axis=0))


def plans_of(task: Task, epsilon: Fraction) -> list[Plan]:
    found = []
    for name in ROWS:
        row = MECHANISMS[name]
        if row.refuse(task) is None:
            try:
                found.append(calibrate_and_check(row, task, epsilon))
            except Refused:
                continue
    return found


def check(
    task: Task,
    law: np.ndarray,
    answers: np.ndarray,
    facts: list[tuple[np.ndarray, np.ndarray]],
    epsilon: Fraction,
) -> set[str]:
    """True loss ≤ ε for every plan; the exact plan reaches it; the audit finds it.

    Returns the rows that were looked at.
    """
    plans = plans_of(task, epsilon)
    for plan in plans:
        scale = float(plan.body.noise.scale)  # type: ignore[union-attr]
        zero_sum = type(plan.body.noise).__name__ == "ZeroSumLaplace"  # type: ignore[union-attr]
        truth = true_loss(law, answers, scale, facts)
        found = audit(plan)
        assert found.lower <= found.upper
        if zero_sum:  # its outputs are fewer than those tried here
            assert found.upper <= float(epsilon) * (1 + 1e-9)
            continue
        assert truth <= float(epsilon) * (1 + 1e-9), plan.mechanism
        assert found.lower - 1e-9 <= truth <= found.upper + 1e-9, plan.mechanism
        if plan.mechanism == "exact" and scale > 0.02:
            assert truth == pytest.approx(float(epsilon), rel=1e-6)
    return {plan.mechanism for plan in plans}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("zeros", [0.0, 0.25], ids=["positive", "zeros"])
def test_counts_on_random_networks(seed: int, zeros: float) -> None:
    net = random_network(seed, 3 + seed % 3, zeros=zeros, density=0.6)
    query = count(["0", "1"], "1")
    task = Task(query=query, secrets=EachEntry(), family=(net,))
    law = joint_of(net)
    for epsilon in (Fraction(1, 2), Fraction(3)):
        assert (
            check(task, law, answers_of(query, law.shape), entry_facts(law.shape), epsilon) >= LEAST
        )


@pytest.mark.parametrize("seed", range(5))
def test_three_values_weights_and_several_numbers(seed: int) -> None:
    net = random_network(seed, 3, values=3, density=0.8)
    law = joint_of(net)
    for query in (
        weighted_sum(["0", "1", "2"], {"1": "1/2", "2": 2}),
        histogram(["0", "1", "2"]),
    ):
        task = Task(query=query, secrets=EachEntry(), family=(net,))
        assert (
            check(task, law, answers_of(query, law.shape), entry_facts(law.shape), Fraction(1))
            >= LEAST
        )


@pytest.mark.parametrize("seed", range(6))
def test_parts_that_do_not_depend_on_each_other(seed: int) -> None:
    """Two independent halves: the rest of the sum may hide what one half tells."""
    one, two = random_network(seed, 3, zeros=0.3), random_network(seed + 50, 2, zeros=0.3)
    both = BayesNet(
        variables=(*one.variables, *(f"w{v}" for v in range(2))),
        domains=(*one.domains, *two.domains),
        parents=(*one.parents, *(tuple("w" + p[1:] for p in own) for own in two.parents)),
        tables=(*one.tables, *two.tables),
    )
    assert len(both.parts) >= 2
    query = count(["0", "1"], "1")
    law = joint_of(both)
    task = Task(query=query, secrets=EachEntry(), family=(both,))
    assert (
        check(task, law, answers_of(query, law.shape), entry_facts(law.shape), Fraction(2)) >= LEAST
    )


def test_the_rest_is_convolved_where_the_middle_tells_most() -> None:
    """Whether two bits differ shows in the middle of their sum, until a third bit is added."""
    differ = [[[0.5, 0.5], [0.05, 0.95]], [[0.05, 0.95], [0.5, 0.5]]]
    tables: dict[str, Any] = {"a": [0.5, 0.5], "b": [0.5, 0.5], "c": differ, "z": [0.9, 0.1]}
    net = BayesNet.of(tables, parents={"c": ["a", "b"]})
    query = variable_sum(net, {"a": {1: 1}, "b": {1: 1}, "z": {1: 1}})
    law = joint_of(net)
    places = np.indices(law.shape)
    answers = (places[0] + places[1] + places[3]).reshape(-1, 1)
    facts = [(places[2] == 0, places[2] == 1)]
    pair = (Event.of("alike", {"c": "0"}), Event.of("unlike", {"c": "1"}))
    secrets = SecretPairs.of([pair])
    task = independent_parts(net, query, secrets)
    for steps in (0.2, 0.3, 0.6):
        truth = true_loss(law, answers, steps, facts)
        assert parts_loss(task, steps) == pytest.approx(truth, rel=1e-8)
        assert secret_loss(task.parts[0].laws, steps) > 1.15 * truth
        assert end_loss(task.parts[0].laws, steps) < truth / 1.5
    least = least_parts_scale(task, 1.0, 1 / 64)
    assert true_loss(law, answers, least, facts) == pytest.approx(1.0, rel=1e-6)
    assert (
        check(Task(query=query, secrets=secrets, family=(net,)), law, answers, facts, Fraction(1))
        >= LEAST
    )


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)], ids=str)
def test_crowds(epsilon: Fraction) -> None:
    model = crowd()
    law = joint_of(model)
    for query in (count(ILL, "ill"), weighted_sum(ILL, {"ill": 3})):
        task = Task(query=query, secrets=EachEntry(), family=(model,))
        assert (
            check(task, law, answers_of(query, law.shape), entry_facts(law.shape), epsilon) >= LEAST
        )


def mask(model: BayesNet | Contagion, where: dict[str, str]) -> np.ndarray:
    shape = [len(domain) for domain in model.domains]
    holds = np.ones(shape, dtype=bool)
    places = np.indices(shape)
    for name, value in where.items():
        v = model.variables.index(name)
        holds &= places[v] == model.domains[v].index(value)
    return holds


@pytest.mark.parametrize("model", [household(), crowd()], ids=["network", "crowd"])
def test_pairs_of_events_within_and_across_parts(model: BayesNet | Contagion) -> None:
    first, second, third = model.variables[0], model.variables[1], model.variables[-1]
    wheres = [
        ({first: "ill"}, {first: "well"}),
        ({first: "ill", third: "ill"}, {first: "well", third: "well"}),
        ({first: "ill", second: "well"}, {third: "ill"}),
    ]
    pairs = [(Event.of(f"a{i}", a), Event.of(f"b{i}", b)) for i, (a, b) in enumerate(wheres)]
    query = count(ILL, "ill")
    task = Task(query=query, secrets=SecretPairs.of(pairs), family=(model,))
    law = joint_of(model)
    facts = [(mask(model, a), mask(model, b)) for a, b in wheres]
    assert check(task, law, answers_of(query, law.shape), facts, Fraction(1)) >= LEAST


def test_group_counts_every_part_a_pair_is_about() -> None:
    """Two strangers, both ill against both well, need noise for both although none is tied."""
    net = BayesNet.of({"a": [0.5, 0.5], "b": [0.5, 0.5]})
    both = Event.of("both", {"a": "1", "b": "1"})
    none = Event.of("none", {"a": "0", "b": "0"})
    query = count(["0", "1"], "1")
    task = Task(query=query, secrets=SecretPairs.of([(both, none)]), family=(net,))
    assert net.tied == 1
    assert task.tied == 2
    plan = calibrate_and_check(MECHANISMS["group"], task, Fraction(1))
    assert float(plan.body.noise.scale) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(4))
def test_unlike_variables(seed: int) -> None:
    net = random_network(seed, 3, values=3, density=0.9)
    names = BayesNet(
        variables=net.variables,
        domains=(("a", "b", "c"), ("0", "1", "2"), ("x", "y", "z")),
        parents=net.parents,
        tables=net.tables,
    )
    query = variable_sum(names, {"v0": {"b": 1, "c": 3}, "v2": {"y": "1/2", "z": 2}})
    task = Task(query=query, secrets=EachEntry(), family=(names,))
    law = joint_of(names)
    weights = [np.array([float(w) for w in row]) for row in query.weights]
    places = np.indices(law.shape).reshape(3, -1)
    answers = sum(weights[v][places[v]] for v in range(3))[:, None]
    assert check(task, law, answers, entry_facts(law.shape), Fraction(1)) >= LEAST


def test_the_choice_is_the_best_table() -> None:
    net = random_network(3, 4, density=0.3)
    found = choose(Task(query=count("01", "1"), secrets=EachEntry(), family=(net,)), Fraction(1))
    assert found.plan.mechanism == "optimal-table"
    noise = {name: plan.cost for name, plan in found.alternatives.items() if isinstance(plan, Plan)}
    del noise["optimal-table"], noise["laplace"]
    assert min(noise, key=lambda name: noise[name]) == "exact"
