"""What a ledger adds, against joint laws of all outputs written out: no total below the truth.

The oracle enumerates the data and all outputs that can be worst; it shares no code with the
library, which is asked for plans and totals only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.core.composition import AsEntryDP, AsGroupDP
from shoal.core.errors import CannotCompose
from shoal.ledger import compose

Data = tuple[Any, ...]
Law = dict[Data, float]
Release = tuple[Callable[[Data], float], float]  # a number of the data, and 1 / the scale of noise


def joint_loss(law: Law, releases: Sequence[Release], pairs: Iterable[Any]) -> float:
    """The largest log-ratio of all outputs together between the two events of a pair.

    Every output runs over the answers of its query (the ratio is monotone between them, and
    constant beyond). Events are truth functions of the data.
    """
    answers = [sorted({query(data) for data in law}) for query, _ in releases]
    worst = 0.0
    for outputs in itertools.product(*answers):
        weight = {
            data: p
            * math.exp(
                -sum(
                    rate * abs(query(data) - z)
                    for (query, rate), z in zip(releases, outputs, strict=True)
                )
            )
            for data, p in law.items()
        }
        for one, other in pairs:
            seen = []
            for event in (one, other):
                mass = sum(p for data, p in law.items() if event(data))
                seen.append(sum(w for data, w in weight.items() if event(data)) / mass)
            worst = max(worst, math.log(seen[0] / seen[1]), math.log(seen[1] / seen[0]))
    return worst


def rate(plan: Any) -> float:
    return float(1 / plan.body.noise.scale)


def is_value(place: int, value: Any) -> Callable[[Data], bool]:
    return lambda data: bool(data[place] == value)


def chain_law(matrix: Sequence[Sequence[float]], start: Sequence[float], length: int) -> Law:
    law = {}
    for data in itertools.product(range(len(start)), repeat=length):
        p = start[data[0]]
        for a, b in itertools.pairwise(data):
            p *= matrix[a][b]
        if p > 0:
            law[data] = p
    return law


def entries(law: Law) -> list[Any]:
    """All pairs of values of one entry that are possible under the law."""
    pairs = []
    for place in range(len(next(iter(law)))):
        values = sorted({data[place] for data in law})
        pairs += [
            (is_value(place, a), is_value(place, b)) for a, b in itertools.combinations(values, 2)
        ]
    return pairs


# what one entry is


def plan_for(
    query: Any, family: Any, mechanism: str, epsilon: float = 1, secrets: Any = None
) -> Any:
    return shoal.calibrate(
        query, secrets or shoal.EachEntry(), family, epsilon=epsilon, mechanism=mechanism
    )


def degree_plan(level: str, nodes: int = 6) -> Any:
    return plan_for(
        shoal.degree_distribution(nodes, cap=5, level=level), shoal.RecordGroups(1), "group"
    )


def test_edge_and_node_level_degrees_do_not_add() -> None:
    """A node with edges to all others against one with none: 5 by the edge-level plan alone."""
    edge, node = degree_plan("edge"), degree_plan("node")
    degrees = [5, 1, 1, 1, 1, 1]
    moved = sum(sum(d > k for d in degrees) for k in range(5))  # the empty graph has only zeros
    assert moved * rate(edge) >= 5
    with pytest.raises(CannotCompose, match="count different things as one entry") as caught:
        compose([edge, node])
    assert "same unit of change" in str(caught.value)
    assert compose([edge, edge]).amount == 2
    assert compose([node, node]).entry == "one node with all its edges, one of 6 nodes"


def test_degrees_of_another_graph_and_numbers_of_records_do_not_add_to_degrees() -> None:
    mean = plan_for(
        shoal.NumberMean(low=Fraction(0), high=Fraction(1), records=6),
        shoal.RecordGroups(1),
        "group",
    )
    for other in (degree_plan("edge", 7), mean):
        with pytest.raises(CannotCompose, match="as one entry"):
            compose([degree_plan("edge"), other])


def test_the_largest_over_periods_is_about_one_kind_of_entry(tmp_path: Any) -> None:
    with shoal.open_ledger(tmp_path / "budget.db") as ledger:
        for period, level in (("one", "edge"), ("two", "node")):
            degree_plan(level).release([(0, 1)], ledger=ledger, subject="graph", period=period)
        spent = ledger.spent("graph", "one")
        assert spent is not None
        assert spent.amount == 1
        with pytest.raises(CannotCompose, match="count different things as one entry"):
            ledger.spent("graph", "*")
        with pytest.raises(CannotCompose, match="count different things as one entry"):
            degree_plan("node").release([(0, 1)], ledger=ledger, subject="graph", period="one")


# all secrets of all charges under all models of all charges

COUNT = shoal.count("01", "1")
BOTH = shoal.SecretPairs.of(
    [
        (
            shoal.Event.of("ill", {"X1": "1", "X2": "1"}),
            shoal.Event.of("well", {"X1": "0", "X2": "0"}),
        )
    ]
)
FAIR, COPY = [0.5, 0.5], [[1, 0], [0, 1]]


def test_the_secrets_of_one_charge_meet_the_models_of_another() -> None:
    """Two tied pairs: the event about X1 and X2 is about all four, 4 where 2 was claimed."""
    apart = shoal.BayesNet.of(
        {"X1": FAIR, "X2": FAIR, "X3": FAIR, "X4": COPY}, parents={"X4": ["X3"]}
    )
    copies = shoal.BayesNet.of(
        {"X1": FAIR, "X2": FAIR, "X3": COPY, "X4": COPY}, parents={"X3": ["X1"], "X4": ["X2"]}
    )
    first = plan_for(COUNT, apart, "group", secrets=BOTH)
    second = plan_for(COUNT, copies, "group")
    law = {(a, b, a, b): 0.25 for a, b in itertools.product((0, 1), repeat=2)}
    both = (lambda d: d[0] == d[1] == 1), (lambda d: d[0] == d[1] == 0)
    truth = joint_loss(law, [(sum, rate(first)), (sum, rate(second))], [both])
    assert truth == pytest.approx(4)
    assert compose([first, second]).amount >= Fraction(truth) * (1 - Fraction(1, 10**9))


def test_secrets_that_mean_nothing_under_another_model_are_refused() -> None:
    table = shoal.JointTable.of(np.full((2, 2), 0.25))
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=2)
    plans = [plan_for(COUNT, table, "group", secrets=BOTH), plan_for(COUNT, chain, "group")]
    with pytest.raises(CannotCompose, match="mean nothing under the models of another"):
        compose(plans)


def test_models_of_other_variables_values_or_sizes_are_not_about_the_same_data() -> None:
    two, three = (shoal.JointTable.of(np.full((2,) * n, 0.5**n)) for n in (2, 3))
    named = shoal.JointTable.of(np.full((2, 2), 0.25), variables=["a", "b"])
    records = shoal.Dependence.of(
        shoal.RecordDomain.named("01"), 3, [[0, 1]], np.full((2, 2), 0.25)
    )
    plan = plan_for(COUNT, two, "group")
    for family, reason in (
        (named, "different variables"),
        (three, "variables"),
        (records, "2 and 3"),
    ):
        with pytest.raises(CannotCompose, match=reason):
            compose([plan, plan_for(COUNT, family, "group")])
    uneven = [
        shoal.BayesNet.of({"X1": [0.2] * 5, "X2": FAIR}),
        shoal.BayesNet.of({"X1": FAIR, "X2": [0.2] * 5}),
    ]
    plans = [
        plan_for(shoal.variable_sum(net, {"X1": {"1": 1}, "X2": {"1": 1}}), net, "group")
        for net in uneven
    ]
    with pytest.raises(CannotCompose, match="other values of the same"):
        compose(plans)


def test_every_law_goes_on_as_long_as_the_longest_data() -> None:
    """Two laws of a series, one stated for two entries: its holder sees all six entries' count."""
    slow, quick = [[0.99, 0.01], [0.01, 0.99]], [[0.5, 0.5], [0.5, 0.5]]
    short = plan_for(COUNT, shoal.MarkovChain.of(slow, length=2), "lift")
    long = plan_for(COUNT, shoal.MarkovChain.of(quick, length=6), "lift")
    law = chain_law(slow, FAIR, 6)
    releases = [(sum, rate(long)), (lambda d: d[0] + d[1], rate(short))]
    truth = joint_loss(law, releases, entries(law))
    assert truth > 3
    assert float(compose([short, long]).amount) >= truth * (1 - 1e-9)


# what is drawn counts, not what is said


def forged(plan: Any, scale: Fraction) -> Any:
    """The same words, other noise."""
    return replace(plan, body=replace(plan.body, noise=replace(plan.body.noise, scale=scale)))


@pytest.mark.parametrize("mechanism", ["exact", "lift", "group", "markov-quilt", "laplace"])
def test_a_plan_costs_what_it_draws_whatever_it_says(mechanism: str) -> None:
    matrix = [[0.9, 0.1], [0.4, 0.6]]
    chain = shoal.MarkovChain.of(matrix, length=4)
    plan = forged(plan_for(COUNT, chain, mechanism), Fraction(1, 4))
    law = chain_law(matrix, [0.8, 0.2], 4)
    truth = joint_loss(law, [(sum, 4.0), (sum, 4.0)], entries(law))
    total = compose([plan, plan])
    assert total.eta == 8
    assert float(total.amount) >= truth * (1 - 1e-9)
    said = replace(plan, composition=(AsGroupDP(Fraction(1, 100)), AsEntryDP(Fraction(1, 100))))
    assert compose([said, said]).amount == total.amount or mechanism == "markov-quilt"


@pytest.mark.parametrize("mechanism", ["exact", "lift", "group", "markov-quilt", "wasserstein"])
def test_a_single_plan_with_other_noise_does_not_cost_what_it_promises(mechanism: str) -> None:
    matrix = [[0.1, 0.9], [0.9, 0.1]]
    law = chain_law(matrix, [0.5, 0.5], 6)
    plan = plan_for(COUNT, shoal.MarkovChain.of(matrix, length=6), mechanism)
    changed = forged(plan, plan.body.noise.scale / 3)
    truth = joint_loss(law, [(sum, rate(changed))], entries(law))
    assert float(compose([changed]).amount) >= truth * (1 - 1e-9)
    assert compose([changed]).rule != "own guarantee"
    quieter = replace(plan, guarantee=replace(plan.guarantee, amount=Fraction(1, 100)))
    assert compose([quieter]).amount > Fraction(1, 100)


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        ("laplace", {"notion": "pufferfish"}),
        ("knorm", {"notion": "group"}),
        ("exact", {"notion": "group"}),
        ("dependent-published", {"proved": True, "caveat": ""}),
        ("dependent-published-18", {"proved": True, "caveat": ""}),
        ("correlated-sensitivity", {"proved": True, "caveat": ""}),
    ],
)
def test_words_that_no_proof_stands_behind_are_caught(mechanism: str, words: Any) -> None:
    table = np.zeros((2, 2, 2))
    for a, b in itertools.product((0, 1), repeat=2):
        table[a, b, a ^ b] = 0.25
    query = shoal.histogram("01") if mechanism == "knorm" else COUNT
    plan = plan_for(query, shoal.JointTable.of(table), mechanism)
    assert shoal.recheck(plan) <= 1 + 1e-12
    said = replace(plan, guarantee=replace(plan.guarantee, **words))
    assert shoal.recheck(said) == math.inf
    assert compose([said]).rule != "own guarantee"


def test_a_plan_that_draws_another_query_is_refused() -> None:
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=4)
    plan = plan_for(COUNT, chain, "group")
    other = replace(plan, body=replace(plan.body, query=shoal.weighted_sum("01", {"1": 100})))
    with pytest.raises(CannotCompose, match="draws another query than its task's"):
        compose([other])
    bars = plan_for(shoal.histogram("01"), chain, "knorm")
    query = shoal.LinearQuery(
        name="two",
        states=("0", "1"),
        labels=("a", "b"),
        weights=((Fraction(0),) * 2, (Fraction(1),) * 2),
        unit="x",
    )
    two = replace(bars, task=replace(bars.task, query=query), body=replace(bars.body, query=query))
    with pytest.raises(CannotCompose, match="whose sum is secret"):
        compose([two, two])


# claims


def test_a_claimed_guarantee_is_never_a_total() -> None:
    """Three bits, the third the exclusive or: 1 is claimed, 1.434 lost; the ledger says 2."""
    law = {(a, b, a ^ b): 0.25 for a, b in itertools.product((0, 1), repeat=2)}
    table = np.zeros((2, 2, 2))
    for data, p in law.items():
        table[data] = p
    plan = plan_for(COUNT, shoal.JointTable.of(table), "dependent-published")
    assert not plan.guarantee.proved
    truth = joint_loss(law, [(sum, rate(plan))], entries(law))
    total = compose([plan])
    assert total.rule != "own guarantee"
    assert truth == pytest.approx(1.434, abs=1e-3)
    assert float(total.amount) >= truth
