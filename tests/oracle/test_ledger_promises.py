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
from shoal.core.charge import AsEntryDP, AsGroupDP, Part
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
    data = list(law)
    answers = [np.array([float(query(one)) for one in data]) for query, _ in releases]
    outputs = np.array(list(itertools.product(*(np.unique(column) for column in answers))))
    log_g = -sum(
        rate * np.abs(outputs[:, k, None] - answers[k]) for k, (_, rate) in enumerate(releases)
    )
    return likelihood_loss(law, np.asarray(log_g), pairs)


def likelihood_loss(law: Law, log_g: Any, pairs: Iterable[Any]) -> float:
    """The same for likelihoods of the data, a row of logarithms per output."""
    masses = np.array(list(law.values()))
    weight = masses * np.exp(log_g - log_g.max(axis=1, keepdims=True))
    worst = 0.0
    for pair in pairs:
        chosen = [np.array([event(one) for one in law]) for event in pair]
        one, other = (np.log(weight[:, c].sum(axis=1) / masses[c].sum()) for c in chosen)
        worst = max(worst, float(np.abs(one - other).max()))
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
        shoal.records.degree_distribution(nodes, cap=5, level=level),
        shoal.records.RecordGroups(1),
        "group",
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
        shoal.records.NumberMean(low=Fraction(0), high=Fraction(1), records=6),
        shoal.records.RecordGroups(1),
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
        shoal.records.RecordDomain.named("01"), 3, [[0, 1]], np.full((2, 2), 0.25)
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


@pytest.mark.parametrize("exactly", [False, True])
def test_every_law_goes_on_as_long_as_the_longest_data(exactly: bool) -> None:
    """Two laws of a series, one stated for two entries: its holder sees all six entries' count."""
    slow, quick = [[0.99, 0.01], [0.01, 0.99]], [[0.5, 0.5], [0.5, 0.5]]
    short = plan_for(COUNT, shoal.MarkovChain.of(slow, length=2, exactly=exactly), "lift")
    long = plan_for(COUNT, shoal.MarkovChain.of(quick, length=6), "lift")
    law = chain_law(slow, FAIR, 6)
    releases = [(sum, rate(long)), (lambda d: d[0] + d[1], rate(short))]
    truth = joint_loss(law, releases, entries(law))
    assert truth > 3
    assert float(compose([short, long]).amount) >= truth * (1 - 1e-9)


def test_parts_of_an_exact_length_make_a_longer_series() -> None:
    """Two parts of two entries each: the second part's count tells about the first part, too."""
    slow = [[0.99, 0.01], [0.01, 0.99]]
    plan = plan_for(COUNT, shoal.MarkovChain.of(slow, length=2, exactly=True), "lift")
    releases = [(lambda d: d[0] + d[1], rate(plan)), (lambda d: d[2] + d[3], rate(plan))]
    truth = joint_loss(chain_law(slow, FAIR, 4), releases, entries(chain_law(slow, FAIR, 4)))
    assert truth > 1.5 * float(plan.guarantee.amount)
    parts = [Part(name="one"), Part(name="other")]
    assert float(compose([plan] * 2, parts=parts).amount) >= truth * (1 - 1e-9)


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
    assert shoal.verify_promise(plan) <= 1 + 1e-12
    said = replace(plan, guarantee=replace(plan.guarantee, **words))
    assert shoal.verify_promise(said) == math.inf
    assert compose([said]).rule != "own guarantee"


def test_a_plan_that_draws_another_query_is_refused() -> None:
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=4)
    plan = plan_for(COUNT, chain, "group")
    other = replace(plan, body=replace(plan.body, query=shoal.weighted_sum("01", {"1": 100})))
    with pytest.raises(CannotCompose, match="draws another query than its task's"):
        compose([other])
    bars = plan_for(shoal.histogram("01"), chain, "knorm")
    query = shoal.mechanisms.LinearQuery(
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


# one number, however often

ALTERNATING = [[0.1, 0.9], [0.9, 0.1]]


def steps(matrix: Any, length: int, start: Any = (0.5, 0.5)) -> Any:
    """A chain of exactly this length: data with fewer entries is refused."""
    size = len(matrix)
    return shoal.MarkovChain.of(
        [matrix] * (length - 1), states=list("012"[:size]), initial=list(start), length=length
    )


def test_two_exact_counts_on_an_alternating_chain_cost_what_they_tell() -> None:
    """1.065 in truth; the lift says 6.04."""
    law = chain_law(ALTERNATING, FAIR, 10)
    plan = plan_for(COUNT, steps(ALTERNATING, 10), "exact", 0.5)
    truth = joint_loss(law, [(sum, rate(plan))] * 2, entries(law))
    total = compose([plan, plan])
    assert total.rule == "same answer"
    assert truth == pytest.approx(1.0651, abs=1e-4)
    assert truth <= float(total.amount) <= truth * (1 + 1e-9)
    others = [
        plan_for(query, steps(ALTERNATING, 10), "exact", 0.5)
        for query in (shoal.count("01", "0"), shoal.mean("01", {"0": 3, "1": 5}, length=10))
    ]
    answers = [lambda d: 10.0 - sum(d), lambda d: (30 + 2 * sum(d)) / 10]
    releases = [(sum, rate(plan)), *((f, rate(p)) for f, p in zip(answers, others, strict=True))]
    both = compose([plan, *others])
    truth = joint_loss(law, releases, entries(law))
    assert both.rule == "same answer"
    assert truth <= float(both.amount) <= truth * (1 + 1e-6)


def test_the_documented_pair_of_counts_still_costs_1_040() -> None:
    matrix = [[0.9, 0.1], [0.4, 0.6]]
    chain = shoal.MarkovChain.of(matrix, length=10)
    plan = plan_for(COUNT, chain, "exact", 0.5)
    law = chain_law(matrix, [0.8, 0.2], 10)
    truth = joint_loss(law, [(sum, rate(plan))] * 2, entries(law))
    for total in (compose([plan, plan]), compose([plan, plan], whole=True)):
        assert float(total.amount) == pytest.approx(1.040, abs=1e-3)
        assert float(total.amount) >= truth


def test_parts_of_a_series_do_not_count_as_one_number(tmp_path: Any) -> None:
    """A quick chain that turns round: counts of its two halves, in one account."""
    matrix = [[0.02, 0.98], [0.98, 0.02]]
    plan = plan_for(COUNT, shoal.MarkovChain.of(matrix, length=8), "exact", 1)
    law = chain_law(matrix, FAIR, 8)
    releases = [(lambda d: sum(d[:3]), rate(plan)), (lambda d: sum(d[3:6]), rate(plan))]
    truth = joint_loss(law, releases, entries(law))
    with shoal.open_ledger(tmp_path / "budget.db") as ledger:
        for part in (["0", "1", "0"], ["1", "0", "1"]):
            plan.release(part, ledger=ledger, subject="s")
        spent, whole = ledger.spent("s"), ledger.spent("s", whole=True)
        assert spent is not None
        assert whole is not None
        assert float(spent.amount) >= truth
        assert whole.rule == "same answer"
        assert whole.amount < spent.amount


@pytest.mark.parametrize("seed", range(12))
def test_releases_of_one_number_never_cost_less_than_any_of_them_tell(seed: int) -> None:
    """Noise on a grid of outputs, and the likelihoods that only move up or down by a step."""
    rng = np.random.default_rng(seed)
    size, length = int(rng.integers(2, 4)), int(rng.integers(2, 6))
    matrix = rng.dirichlet(np.full(size, rng.choice([0.15, 1.0])), size=size)
    matrix = (
        np.where(rng.random((size, size)) < 0.15, rng.choice([0, 1e-300, 1e-9]), matrix) + 1e-320
    )
    matrix /= matrix.sum(axis=1, keepdims=True)
    start = rng.dirichlet(np.ones(size))
    weights = {str(x): int(w) for x, w in enumerate((0, int(rng.integers(1, 4)), 1)[:size])}
    query = shoal.weighted_sum("012"[:size], weights)
    plan = plan_for(query, steps(matrix.tolist(), length, start), "laplace", rng.choice([0.2, 1.0]))
    law = chain_law(matrix.tolist(), start.tolist(), length)
    times = int(rng.integers(2, 4))

    def answer(data: Data) -> float:
        return float(sum(weights[str(x)] for x in data))

    total = compose([plan] * times)
    truth = joint_loss(law, [(answer, rate(plan))] * times, entries(law))
    if total.rule == "same answer":
        answers = np.array([int(answer(data)) for data in law])
        moves = rng.choice([-1.0, 1.0], size=(500, answers.max() + 1)) * times * rate(plan)
        truth = max(truth, likelihood_loss(law, np.cumsum(moves, axis=1)[:, answers], entries(law)))
    assert float(total.amount) >= truth * (1 - 1e-9)


# what underflow took


def test_near_copies_of_a_hub_are_charged_for_what_they_tell() -> None:
    """39 leaves that copy a rare hub: 57.9 in truth for two releases that were called 2.0."""
    rare, leaves = 1e-12, 39
    tie = [[1 - rare, rare], [rare, 1 - rare]]
    field = shoal.records.PairwiseField.of(
        shoal.records.RecordDomain.named("01"),
        leaves + 1,
        [[0, i] for i in range(1, leaves + 1)],
        tie,
        own=[[1 - rare, rare]] * (leaves + 1),
    )
    plan = plan_for(COUNT, field, "laplace")
    grow = 2 * rate(plan)
    moment = []
    for hub in (0, 1):
        mass = [(1 - rare) * tie[hub][0], rare * tie[hub][1]]
        one = mass[1] / sum(mass)
        moment.append(hub * grow + leaves * math.log(1 - one + one * math.exp(grow)))
    truth = moment[1] - moment[0]
    assert truth > 50
    assert float(compose([plan, plan]).amount) >= truth
