"""How often the black-box auditor finds a planted violation, and how often it cries wolf.

Random chains of two and three states, epsilon in [0.5, 2]: ordinary ones of 2 to 100 entries, which
forget within a few, and slow ones of 100 to 1,440 entries, which stay where they are for 10 to 200,
so that short data tells little. The `exact` plan is the hardest judge, because its true loss is
the promise itself: any excess is a false alarm. No constant of the auditor was chosen on the seeds
of the slow tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.audit.fact_pairs import SHORT_LENGTHS
from shoal.audit.statistical import Estimate, audit_black_box
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.plan import Plan
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import count, histogram
from shoal.networks.table import JointTable

PLANTED = Fraction(3, 2)  # what the noise of a broken plan is divided by
DRAWS = 100_000


def exact_plans(seed: int) -> Iterator[Plan]:
    """Exact plans for random tasks, endlessly."""
    rng = np.random.default_rng(seed)
    while True:
        size, length = int(rng.integers(2, 4)), int(rng.choice([2, 5, 10, 20, 50, 100]))
        yield _exact_plan(rng.uniform(0.4, 0.9, size), length, rng)


def slow_plans(seed: int) -> Iterator[Plan]:
    """Exact plans for slow chains, endlessly."""
    rng = np.random.default_rng(seed)
    while True:
        size, length = int(rng.integers(2, 4)), int(rng.choice([100, 400, 1440]))
        yield _exact_plan(1 - 10 ** rng.uniform(math.log10(0.005), -1, size), length, rng)


def _exact_plan(stay: Floats, length: int, rng: np.random.Generator) -> Plan:
    size = len(stay)
    matrix = np.diag(stay)
    for row in range(size):
        others = [column for column in range(size) if column != row]
        matrix[row, others] = (1 - stay[row]) * rng.dirichlet(np.full(size - 1, 3.0))
    chain = MarkovChain.of(matrix, length=length)
    epsilon = Fraction(int(rng.integers(50, 201)), 100)
    return calibrate(
        count(chain.states, "1"), EachEntry(), chain, epsilon=epsilon, mechanism="exact"
    )


def broken(plan: Plan) -> Plan:
    body: Any = plan.body
    return replace(
        plan, body=replace(body, noise=replace(body.noise, scale=body.noise.scale / PLANTED))
    )


def audited(plan: Plan, seed: int, draws: int = DRAWS, confidence: float = 0.99) -> Estimate:
    return audit_black_box(
        plan, plan.task.secrets, plan.task.family, seed=seed, draws=draws, confidence=confidence
    )


def power(plans: Iterator[Plan], repetitions: int) -> float:
    """The share of broken plans found out."""
    found = [audited(broken(next(plans)), seed=i).violated for i in range(repetitions)]
    return sum(found) / repetitions


def false_alarms(
    plans: Iterator[Plan], repetitions: int, draws: int = DRAWS, confidence: float = 0.99
) -> int:
    """How many correct plans were called broken."""
    return sum(audited(next(plans), i, draws, confidence).violated for i in range(repetitions))


def too_many(alarms: int, repetitions: int, rate: float = 0.01) -> bool:
    """Whether so many alarms have probability below 1e-4 at the stated rate."""
    chance = math.fsum(
        math.comb(repetitions, k) * rate**k * (1 - rate) ** (repetitions - k)
        for k in range(alarms, repetitions + 1)
    )
    return chance < 1e-4


def test_planted_violations_are_found() -> None:
    assert power(exact_plans(1), 8) >= 0.75


def test_planted_violations_of_slow_chains_are_found() -> None:
    """None of these shows in data of up to 12 entries."""
    assert power(slow_plans(1), 4) >= 0.75


def test_correct_plans_are_not_called_broken() -> None:
    assert not too_many(false_alarms(exact_plans(2), 12, draws=20_000), 12)
    assert not too_many(false_alarms(slow_plans(2), 3, draws=20_000), 3)


KINDS = pytest.mark.parametrize("plans", [exact_plans, slow_plans])
Plans = Callable[[int], Iterator[Plan]]


@pytest.mark.slow
@KINDS
def test_the_power_is_at_least_95_percent(plans: Plans) -> None:
    found = power(plans(2611), 300)
    print(f"{plans.__name__}: power over 300 broken plans, {DRAWS:,} draws each: {found:.4f}")
    assert found >= 0.95


@pytest.mark.slow
def test_slow_chains_need_long_data() -> None:
    """A control: what the ladder of lengths is for."""
    plans = slow_plans(2611)
    short = [
        audit_black_box(
            broken(plan), EachEntry(), plan.task.family, seed=i, lengths=SHORT_LENGTHS
        ).violated
        for i, plan in zip(range(300), plans, strict=False)
    ]
    print(f"slow_plans: power with data of up to 12 entries only: {sum(short) / 300:.4f}")
    assert sum(short) < 30


@pytest.mark.slow
@KINDS
def test_the_error_rate_is_the_stated_one(plans: Plans) -> None:
    alarms = false_alarms(plans(2612), 300)
    print(f"{plans.__name__}: false alarms over 300 correct plans at 99 % confidence: {alarms}")
    assert not too_many(alarms, 300)


@pytest.mark.slow
@KINDS
def test_low_confidence_errs_no_more_often_than_it_says(plans: Plans) -> None:
    """At 80 % the limit is close enough to be wrong sometimes: at most 20 % of 300 times."""
    wrong = false_alarms(plans(2613), 300, draws=20_000, confidence=0.8)
    print(f"{plans.__name__}: at 80 % confidence: {wrong} of 300 above the true loss")
    assert not too_many(wrong, 300, rate=0.2)


def test_the_too_many_rule_can_fail() -> None:
    """A control: ten alarms in a hundred are not a rate of one in a hundred."""
    assert too_many(10, 100)
    assert not too_many(4, 100)


def test_the_same_seed_gives_the_same_answer() -> None:
    plan = broken(next(exact_plans(6)))
    assert audited(plan, 7, 10_000) == audited(plan, 7, 10_000)
    assert audited(plan, 7, 10_000) != audited(plan, 8, 10_000)


def test_a_histogram_with_too_little_noise_is_found() -> None:
    """Several numbers: the direction that tells is learned."""
    chain = MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], length=6)
    query = histogram(chain.states)
    plan = calibrate(query, EachEntry(), chain, epsilon=1, mechanism="group")
    less: Any = plan.body
    scale = less.noise.scale / 12
    bad = replace(plan, body=replace(less, noise=replace(less.noise, scale=scale)))
    found = audited(bad, 1, 40_000)
    assert found.violated
    assert "·" in found.event


def test_a_table_is_sampled_by_its_facts() -> None:
    table = JointTable.of(np.eye(2) / 2)
    plan = calibrate(count("01", "1"), EachEntry(), table, epsilon=1, mechanism="exact")
    assert not audited(plan, 1, 20_000).violated
    found = audited(broken(plan), 1, 20_000)
    assert found.violated
    assert set(found.facts) <= {"'X1 = 0'", "'X1 = 1'", "'X2 = 0'", "'X2 = 1'"}
