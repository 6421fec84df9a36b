"""The adversary on networks and crowds, against listing every outcome."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from shoal.attacks.beliefs import (
    EntriesSeen,
    Seen,
    VariablesSeen,
    attack,
    laplace_sum,
    laplace_variables,
    most_likely,
    released,
)
from shoal.audit.exact import audit
from shoal.audit.statistical import audit_black_box
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError, Refused
from shoal.core.numbers import Number
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import count, histogram
from shoal.mechanisms.variables import variable_sum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable
from shoal.noise.primitives import SeededRng
from tests.contract.network_tasks import ILL, clinic, crowd, household
from tests.networks.models import joint_of

SEEN: dict[str, Callable[[int, np.random.Generator], list[Seen]]] = {
    "count": lambda n, rng: [laplace_sum(count(ILL, "ill"), [3.3], 1.2)],
    "two-releases": lambda n, rng: [
        laplace_sum(count(ILL, "ill"), [2.0], 0.7),
        laplace_sum(histogram(ILL), [2.0, 3.0], 2.0),
    ],
    "entries": lambda n, rng: [EntriesSeen(rng.normal(size=(n, 2)))],
    "both": lambda n, rng: [
        laplace_sum(count(ILL, "ill"), [1.0], 1.0),
        EntriesSeen(rng.normal(size=(n, 2))),
    ],
    "nothing": lambda n, rng: [],
}


@pytest.mark.parametrize("model", [household(), crowd()], ids=["network", "crowd"])
@pytest.mark.parametrize("kind", SEEN)
def test_posteriors_are_those_of_the_written_out_law(
    model: BayesNet | Contagion, kind: str
) -> None:
    entries = len(model.variables)
    seen = SEEN[kind](entries, np.random.default_rng(1))
    table = JointTable.of(joint_of(model), domains=[ILL] * entries)
    found, expected = attack(model, seen, entries), attack(table, seen, entries)
    assert found.before == pytest.approx(expected.before, abs=1e-12)
    assert found.after == pytest.approx(expected.after, abs=1e-10)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)


WEIGHTS: dict[str, dict[str, Number]] = {
    "age": {"old": "1/2"},
    "smokes": {"yes": -1},
    "cough": {"some": 1, "bad": "5/2"},
}


def listed(seen: list[Seen]) -> tuple[np.ndarray, float]:
    """P(variable = value | seen) of the clinic, over every value of any variable, by outcome."""
    net = clinic()
    columns = ["young", "old", "no", "yes", "none", "some", "bad"]
    after = np.zeros((3, len(columns)))
    for outcome in itertools.product(*net.domains):
        weight = net.probability(dict(zip(net.variables, outcome, strict=True)))
        for one in seen:
            if isinstance(one, EntriesSeen):
                places = [columns.index(value) for value in outcome]
                weight *= math.exp(sum(one.log_likelihood[range(3), places]))
            else:
                assert isinstance(one, VariablesSeen)
                answer = sum(
                    one.weights[v][net.domains[v].index(value)] for v, value in enumerate(outcome)
                )
                weight *= math.exp(one.log_likelihood(np.array([answer]))[0])
        for v, value in enumerate(outcome):
            after[v, columns.index(value)] += weight
    evidence = math.log(after[0].sum())
    return after / after.sum(axis=1, keepdims=True), evidence


@pytest.mark.parametrize("kind", ["one", "two", "entries", "both"])
@pytest.mark.parametrize("as_table", [False, True], ids=["network", "table"])
def test_sums_over_unlike_variables_match_listing(kind: str, as_table: bool) -> None:
    net = clinic()
    first = laplace_variables(variable_sum(net, WEIGHTS), [1.3], 0.8)
    second = laplace_variables(variable_sum(net, {"cough": {"none": 3}}), [1.0], 2.0)
    rows = EntriesSeen(np.random.default_rng(2).normal(size=(3, 7)))
    sights: dict[str, list[Seen]] = {
        "one": [first],
        "two": [first, second],
        "entries": [rows],
        "both": [second, rows, first],
    }
    seen = sights[kind]
    found = attack(net.as_table() if as_table else net, seen, 3)
    expected, evidence = listed(seen)
    assert found.values == variable_sum(net, WEIGHTS).states
    assert found.after == pytest.approx(expected, abs=1e-10)
    assert found.before == pytest.approx(listed([])[0], abs=1e-12)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)


def test_a_release_of_a_variable_sum_is_attacked_within_its_promise() -> None:
    net = clinic()
    plan = calibrate(variable_sum(net, WEIGHTS), EachEntry(), net, epsilon=1)
    for seed in range(20):
        release = plan.release(["old", "yes", "bad"], rng=SeededRng(seed))
        found = attack(net, [released(plan, release)], 3)
        assert found.largest_change().log_odds <= 1 + 1e-9


def test_one_table_of_weights_and_weights_per_variable_agree() -> None:
    net = household()
    alike = variable_sum(net, {name: {"ill": 1} for name in net.variables})
    one = attack(net, [laplace_variables(alike, [2.2], 1.5)], 5)
    two = attack(net, [laplace_sum(count(ILL, "ill"), [2.2], 1.5)], 5)
    assert one.after == pytest.approx(two.after, abs=1e-12)


def test_sums_that_do_not_fit_the_model_are_refused() -> None:
    net = clinic()
    seen = laplace_variables(variable_sum(net, WEIGHTS), [1.3], 0.8)
    with pytest.raises(Refused, match="share as many values; release a variable_sum"):
        attack(net, [laplace_sum(count(ILL, "ill"), [1.0], 1.0)], 3)
    with pytest.raises(InputError, match="other variables or values"):
        attack(household(), [seen], 5)
    with pytest.raises(InputError, match="other variables or values"):
        attack(crowd(), [seen], 10)
    with pytest.raises(InputError, match="the chain has 3 entries with the values"):
        attack(MarkovChain.of([[0.5, 0.5], [0.5, 0.5]]), [seen], 3)
    with pytest.raises(InputError, match="has 2 columns; there is one for each of"):
        attack(net, [EntriesSeen(np.zeros((3, 2)))], 3)
    with pytest.raises(InputError, match="output has 2 numbers"):
        laplace_variables(variable_sum(net, WEIGHTS), [1.0, 2.0], 1.0)


def test_impossible_sights_are_refused() -> None:
    net = household()
    nothing = np.zeros((5, 2))
    nothing[2] = -np.inf
    with pytest.raises(InputError, match="impossible under the model"):
        attack(net, [EntriesSeen(nothing)], 5)
    with pytest.raises(InputError, match="a number of entries other than 5"):
        attack(net, [EntriesSeen(np.zeros((4, 2)))], 5)


def rare_net(count: int) -> BayesNet:
    """A line of people, ill with 1e-30 each time: all of them with 1e-30 to the power of count."""
    names = [f"v{i}" for i in range(count)]
    row = [1 - 1e-30, 1e-30]
    tables = {name: row if i == 0 else [row, row] for i, name in enumerate(names)}
    return BayesNet.of(
        tables,
        parents={b: [a] for a, b in itertools.pairwise(names)},
        domains=dict.fromkeys(names, ILL),
    )


def test_what_doubles_cannot_follow_is_refused_and_not_called_impossible() -> None:
    net = rare_net(30)
    usual = attack(net, [laplace_sum(count(ILL, "ill"), [1.0], 1.0)], 30)
    assert usual.after[:, 1] == pytest.approx(1e-30 * math.e**2, rel=1e-9)
    with pytest.raises(Refused, match="doubles cannot follow it"):
        attack(net, [laplace_sum(count(ILL, "ill"), [30.0], 0.001)], 30)
    looks = np.zeros((30, 2))
    looks[:, 0] = -800.0
    with pytest.raises(Refused, match="doubles cannot follow it"):
        attack(net, [EntriesSeen(looks)], 30)
    seven = attack(rare_net(7), [laplace_sum(count(ILL, "ill"), [7.0], 0.001)], 7)
    assert seven.after[:, 1] == pytest.approx(np.ones(7))


def test_small_networks_are_listed_where_an_elimination_would_lose_outcomes() -> None:
    """Twelve people all ill, 1e-360: somebody well is a change of 1,000 for every one of them."""
    found = attack(rare_net(12), [laplace_sum(count(ILL, "ill"), [12.0], 0.001)], 12)
    assert found.after[:, 1] == pytest.approx(np.ones(12))
    assert found.largest_change().log_odds == pytest.approx(1000, rel=1e-9)
    assert found.log_evidence == pytest.approx(-360 * math.log(10), rel=1e-9)


def test_the_likeliest_outcome_is_not_lost_to_underflow() -> None:
    """All of twelve people ill has the probability 1e-360, and is all that was seen."""
    seen = laplace_sum(count(ILL, "ill"), [12.0], 0.001)
    assert most_likely(rare_net(12), [seen], 12) == ("ill",) * 12


def test_a_network_too_large_to_be_listed_has_no_likeliest_outcome() -> None:
    with pytest.raises(Refused, match="found by looking at each"):
        most_likely(rare_net(30), [laplace_sum(count(ILL, "ill"), [1.0], 1.0)], 30)


@pytest.mark.parametrize("model", [household(), crowd()], ids=["network", "crowd"])
def test_a_black_box_audit_finds_what_ordinary_noise_leaks(model: BayesNet | Contagion) -> None:
    """60,000 draws of an ordinary release: more than it promises, never more than the truth."""
    plan = calibrate(
        count(ILL, "ill"),
        EachEntry(),
        model,
        epsilon=1,
        mechanism="laplace",
    )
    found = audit_black_box(plan, EachEntry(), model, draws=60_000, seed=3)
    truth = audit(plan)
    assert 1.0 < found.lower <= truth.upper
