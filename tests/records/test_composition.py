"""Charges about tied records: what adds, what is the larger one, and what is refused.

Whole joint laws are enumerated; the ledger sees the pairwise model only.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.core.codec import Floats
from shoal.core.errors import CannotCompose, InputError
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry
from shoal.ledger.rules import compose, parallel_records
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import LinearQuery, count, weighted_sum
from shoal.networks.table import JointTable
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField
from shoal.records.pairwise import Dependence
from shoal.records.sources import pairs_of_table

BITS = RecordDomain.named("01")
COUNT = count("01", "1")
COPIES = Dependence.of(BITS, 2, [[0, 1]], np.eye(2) / 2)
PAIR = np.array([[0.35, 0.15], [0.15, 0.35]])


def plan_for(model: Dependence, epsilon: float, row: str, query: LinearQuery = COUNT) -> Plan:
    return calibrate(query, EachEntry(), model, epsilon=epsilon, mechanism=row)


def rate(plan: Plan) -> float:
    assert isinstance(plan.body, Additive)
    return float(1 / plan.body.noise.scale)


def joint_loss(law: Floats, releases: list[tuple[Floats, float]]) -> float:
    """The loss of several noisy sums at once: their outputs range over the answers of each.

    Each release is (answers by outcome, 1/scale); with independent noise the density of all is a
    product, and between neighbouring answers the ratio is monotone in each output.
    """
    flat = law.ravel()
    grid = np.array(list(np.ndindex(law.shape)))
    worst = 0.0
    for outputs in product(*(np.unique(answers) for answers, _ in releases)):
        exponent = sum(
            -decay * np.abs(answers - output)
            for (answers, decay), output in zip(releases, outputs, strict=True)
        )
        weight = flat * np.exp(exponent)
        for record in range(law.ndim):
            values = [v for v in range(law.shape[record]) if flat[grid[:, record] == v].sum() > 0]
            seen = [
                weight[grid[:, record] == v].sum() / flat[grid[:, record] == v].sum()
                for v in values
            ]
            worst = max(worst, math.log(max(seen) / min(seen)))
    return worst


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.integers(1, 3), st.integers(1, 3))
def test_additive_laplace_plans_add_under_every_law(seed: int, often: int, other: int) -> None:
    """Counts and sums, released several times, against the law the pairs came from."""
    rng = np.random.default_rng(seed)
    law = rng.gamma((0.2, 1.0)[seed % 2], size=(2, 2, 2)) + 1e-6
    table = JointTable.of(law / law.sum())
    model = pairs_of_table(table)
    weights = weighted_sum("01", {"0": -1, "1": 3})
    first = plan_for(model, 0.5, "dependent-means")
    second = plan_for(model, 1.0, "dependent-means", weights)
    total = compose([first] * often + [second] * other)
    ones = np.array([sum(place) for place in np.ndindex(2, 2, 2)], float)
    releases = [(ones, often * rate(first)), (4 * ones - 3, other * rate(second))]
    # equal releases: the largest ratio is where all outputs agree, as one with the rates added
    assert joint_loss(table.probability, releases) <= float(total.amount) * (1 + 1e-9)
    assert total.notion in ("pufferfish", "group")
    assert total.amount <= often * first.guarantee.amount + other * second.guarantee.amount


def test_their_epsilons_add_and_never_count_for_less() -> None:
    plan = plan_for(COPIES, 1, "dependent-means")
    assert float(compose([plan] * 3).amount) == pytest.approx(3, rel=1e-9)
    published = plan_for(COPIES, 1, "dependent-published")
    assert compose([published]).rule in ("ties", "group")
    assert compose([published]).amount >= 1 - Fraction(1, 10**9)


def test_the_exclusive_or_is_charged_for_what_it_tells() -> None:
    """A published plan at ε = 1 loses 1.434; the ledger counts 2, its bound, not 1."""
    law = np.zeros((2, 2, 2))
    for a, b in product((0, 1), repeat=2):
        law[a, b, a ^ b] = 0.25
    plan = plan_for(pairs_of_table(JointTable.of(law)), 1, "dependent-published")
    assert float(compose([plan]).amount) == pytest.approx(2.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000))
def test_independent_components_lose_the_largest_of_their_losses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (rng.gamma(0.5, size=(2, 2)) + 1e-3 for _ in range(2))
    left, right = left / left.sum(), right / right.sum()
    model = Dependence.of(BITS, 4, [[0, 1], [2, 3]], np.stack([left, right]), [0, 1])
    parts = [model.part([0, 1]), model.part([2, 3])]
    plans = [
        plan_for(parts[0], 1, "dependent-means"),
        plan_for(parts[1], 0.5, "dependent-means"),
    ]
    total = parallel_records(model, [([0, 1], plans[:1]), ([2, 3], plans[1:])])
    law = np.einsum("ab,cd->abcd", left, right)
    grid = np.array(list(np.ndindex(law.shape)), float)
    releases = [
        (grid[:, :2].sum(axis=1), rate(plans[0])),
        (grid[:, 2:].sum(axis=1), rate(plans[1])),
    ]
    assert joint_loss(law, releases) <= float(total.amount) * (1 + 1e-9)
    assert total.rule == "parallel"
    assert float(total.amount) == pytest.approx(max(float(compose([p]).amount) for p in plans))


def test_a_tie_between_parts_is_refused() -> None:
    """Theorem 4: two copies, a release about each; the losses add, so no larger one counts."""
    alone = Dependence.of(BITS, 1, np.zeros((0, 2)), np.eye(2) / 2)
    plan = plan_for(alone, 1, "group")
    with pytest.raises(CannotCompose, match="which ties link to it") as caught:
        parallel_records(COPIES, [([0], [plan]), ([1], [plan])])
    assert "whole components" in caught.value.ways_out[0]
    whole = plan_for(COPIES, 1, "group")
    with pytest.raises(CannotCompose, match="parts 0 and 1 hold records of the same component"):
        parallel_records(COPIES, [([0, 1], [whole]), ([0, 1], [whole])])
    law = np.eye(2) / 2
    each = [(np.array([0.0, 0, 1, 1]), 1.0), (np.array([0.0, 1, 0, 1]), 1.0)]
    assert joint_loss(law, each) == pytest.approx(2.0)


def test_records_that_only_a_third_one_links_are_not_independent() -> None:
    chain = Dependence.of(BITS, 3, [[0, 1], [1, 2]], np.eye(2) / 2)
    alone = Dependence.of(BITS, 1, np.zeros((0, 2)), np.eye(2) / 2)
    plan = plan_for(alone, 1, "group")
    with pytest.raises(CannotCompose, match="records has 0 but not 1"):
        parallel_records(chain, [([0], [plan]), ([2], [plan])])


def test_a_plan_for_another_model_is_refused() -> None:
    model = Dependence.of(BITS, 4, [[0, 1], [2, 3]], PAIR)
    plan = plan_for(COPIES, 1, "group")
    with pytest.raises(InputError, match=r"make it for model\.part"):
        parallel_records(model, [([0, 1], [plan])])
    with pytest.raises(InputError, match="a part has no plan"):
        parallel_records(model, [([0, 1], [])])


def test_fields_add_by_eta_and_one_reach() -> None:
    field = PairwiseField.of(BITS, 4, [[0, 1], [1, 2], [2, 3]], [[1.2, 1.0], [1.0, 1.2]])
    plan = calibrate(COUNT, EachEntry(), field, epsilon=1, mechanism="dependent-field")
    total = compose([plan, plan])
    assert 1.5 < float(total.amount) <= 2 + 1e-9  # the lift of the network may prove less than 2
    split = field.part([0, 1, 2, 3])
    assert parallel_records(field, [([0, 1, 2, 3], [plan])]).amount == compose([plan]).amount
    assert split == field


def test_other_secrets_and_other_noise_do_not_add_by_ties() -> None:
    from shoal.chains.model import MarkovChain
    from shoal.ledger.rules import standard_conversions, ties
    from shoal.ledger.totals import tallied

    chain = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=5)
    plan = calibrate(COUNT, EachEntry(), chain, epsilon=1, mechanism="group")
    why = ties(tallied([plan]), standard_conversions())
    assert isinstance(why, str)
    assert "gives no pairwise laws" in why
