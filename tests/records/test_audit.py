"""The rows for tied records audited on random joint laws written out.

A row sees the pairwise laws of a joint law only. Rows with a promise must keep it for that law and
for the worst one with the same pairs; rows without one must be found out where they break it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from shoal.audit.exact import audit
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.queries import LinearQuery, count, histogram, weighted_sum
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.table import JointTable
from shoal.noise.laplace import LatticeLaplace
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField
from shoal.records.pairwise import Dependence
from shoal.testing import with_scale
from tests.oracle.enumeration import Law, entry_loss, table_law

PROMISED = ("dependent-means", "group")
CLAIMED = (
    "correlated-sensitivity",
    "dependent-baseline",
    "dependent-published",
    "dependent-published-18",
)
ROWS = sorted((*PROMISED, *CLAIMED, "dependent-field"))
ROUNDING = 1e-9
SOLVED = 1e-6  # how exactly a program finds the worst law


class Drawn(NamedTuple):
    """A random task, its budget, and the joint law behind it."""

    task: Task
    epsilon: Fraction
    law: Law


def tables(seed: int) -> Iterator[Drawn]:
    """Endless joint laws of 2 to 4 records, from nearly independent to nearly deterministic."""
    rng = np.random.default_rng(seed)
    while True:
        size, records = ((2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2))[rng.integers(6)]
        shape = (size,) * records
        weights = rng.gamma(rng.choice([0.03, 0.1, 0.3, 1.0, 5.0]), size=shape)
        weights = np.where(rng.random(shape) < rng.choice([0.0, 0.4]), 0.0, weights)
        weights.flat[0] += 1e-3
        if rng.random() < 0.3:  # records that are all but copies of each other
            weights[(np.arange(size),) * records] += 100 * rng.random(size) * weights.max()
        table = JointTable.of(weights / weights.sum())
        states = [str(value) for value in range(size)]
        query = _query(rng, states, small=size**records <= 9)
        # where the values lie matters to the published rows, which go by their distances
        domain = RecordDomain.points([0.0, *np.sort(rng.random(size - 1))], states=states)
        task = Task(query=query, secrets=EachEntry(), family=(_pairs(rng, table, domain),))
        yield Drawn(task, Fraction(int(rng.integers(4, 60)), 20), table_law(table))


def _pairs(rng: np.random.Generator, table: JointTable, domain: RecordDomain) -> Dependence:
    """The laws of all pairs, or of those along a random tree: the others may then be any."""
    names = table.variables
    ties = list(itertools.combinations(range(len(names)), 2))
    if rng.random() < 0.5:
        ties = [(int(rng.integers(i)), i) for i in range(1, len(names))]
    laws = np.array([table.marginal(names[i], names[j]) for i, j in ties])
    return Dependence.of(domain, len(names), ties, laws, np.arange(len(ties)))


def fields(seed: int) -> Iterator[Drawn]:
    """Endless fields of 2 to 5 records on random ties, loops included, from weak to strong."""
    rng = np.random.default_rng(seed)
    while True:
        records, size = int(rng.integers(2, 6)), int(rng.integers(2, 4))
        possible = list(itertools.combinations(range(records), 2))
        ties = [tie for tie in possible if rng.random() < 0.5] or possible[:1]
        potentials = np.exp(rng.choice([0.2, 0.6, 1.5]) * rng.normal(size=(len(ties), size, size)))
        potentials = np.where(rng.random(potentials.shape) < 0.05, 0.0, potentials)
        potentials[:, 0, 0] += 1e-3
        own = np.exp(rng.normal(size=(records, size)))
        states = [str(value) for value in range(size)]
        law = _field_law(ties, potentials, own)
        if not law:
            continue  # the zeros leave no outcome
        field = PairwiseField.of(
            RecordDomain.named(states), records, ties, potentials, np.arange(len(ties)), own
        )
        query = _query(rng, states, small=size**records <= 32)
        task = Task(query=query, secrets=EachEntry(), family=(field,))
        yield Drawn(task, Fraction(int(rng.integers(4, 60)), 20), law)


def _field_law(ties: list[tuple[int, int]], potentials: np.ndarray, own: np.ndarray) -> Law:
    """P(x) ∝ Π own · Π ψ, from the definition."""
    records, size = own.shape
    weight = {
        x: math.prod(float(own[i, x[i]]) for i in range(records))
        * math.prod(float(potentials[k, x[a], x[b]]) for k, (a, b) in enumerate(ties))
        for x in itertools.product(range(size), repeat=records)
    }
    total = math.fsum(weight.values())
    return {x: w / total for x, w in weight.items() if w > 0}


def _query(rng: np.random.Generator, states: list[str], *, small: bool) -> LinearQuery:
    """A count of some values or a sum, or a histogram where there are few outcomes."""
    match int(rng.integers(4)):
        case 0 if small:
            return histogram(states)
        case 1:
            weights = ("-1", "3/2", "2", "5")
            return weighted_sum(states, dict(zip(states, weights, strict=False)))
        case _:
            return count(states, states[int(rng.integers(1, len(states))) :])


def plans(row: str, wanted: int, seed: int) -> Iterator[tuple[Plan, Drawn]]:
    """The row's plans for the first `wanted` random tasks it accepts."""
    source = fields(seed) if row == "dependent-field" else tables(seed)
    left = wanted
    for drawn in itertools.islice(source, 20 * wanted):
        if left and MECHANISMS[row].refuse(drawn.task) is None:
            left -= 1
            yield calibrate_and_check(MECHANISMS[row], drawn.task, drawn.epsilon), drawn
    assert not left, f"{row} accepted {wanted - left} tasks"


def truth_of(plan: Plan, drawn: Drawn) -> float:
    """The loss of the plan's noise under the joint law the task was drawn from."""
    query = drawn.task.query
    assert isinstance(plan.body, Additive)
    assert isinstance(query, LinearQuery)
    assert isinstance(plan.body.noise, LatticeLaplace)
    return entry_loss(drawn.law, query, plan.body.noise)


def check(row: str, wanted: int, seed: int) -> dict[str, float]:
    """Audits `wanted` plans of a row; its promise, if it has one, is never broken."""
    shares, broken, own = [], 0, 0
    for number, (plan, drawn) in enumerate(plans(row, wanted, seed)):
        found, truth, promised = audit(plan), truth_of(plan, drawn), float(drawn.epsilon)
        where = f"{row}, task {number} of seed {seed}"
        assert found.lower <= found.upper + ROUNDING, where
        assert truth <= found.upper * (1 + ROUNDING), where
        if row == "dependent-field":
            assert found.exact, where
            assert found.loss == pytest.approx(truth, rel=ROUNDING, abs=ROUNDING), where
        if plan.guarantee.proved:
            assert found.holds, where
            assert truth <= promised * (1 + ROUNDING), where
        assert not found.holds or truth <= promised * (1 + SOLVED), where
        own += truth > promised * (1 + SOLVED)
        broken += found.violated
        shares.append(max(found.lower, truth) / promised)
    return {
        "mean": sum(shares) / len(shares),
        "max": max(shares),
        "violated": broken / wanted,
        "own": own / wanted,
    }


def report(row: str, wanted: int, figures: dict[str, float]) -> None:
    print(
        f"{row:24} {wanted:4} audits, loss / promise: mean {figures['mean']:.4f}, largest "
        f"{figures['max']:.9f}; violated {figures['violated']:.1%}, by the law the pairs came "
        f"from {figures['own']:.1%}"
    )


@pytest.mark.parametrize("row", ROWS)
def test_promises_are_kept_and_claims_are_judged(row: str) -> None:
    figures = check(row, 30, seed=50)
    report(row, 30, figures)
    if row not in CLAIMED:
        assert figures["violated"] == 0
        assert figures["max"] > 0.8  # a bound that is never near would hide a mistake
    elif row in ("correlated-sensitivity", "dependent-published"):
        assert figures["violated"] > 0.1  # the other two fail more rarely: tests/errata has where


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_promises_are_kept_and_claims_are_judged_in_many(row: str) -> None:
    figures = check(row, 200, seed=51)
    report(row, 200, figures)
    assert (figures["violated"] > 0) == (row in CLAIMED)


@pytest.mark.parametrize("row", ["dependent-field", "dependent-means"])
def test_half_of_the_noise_is_found_out(row: str) -> None:
    caught = 0
    for plan, _ in plans(row, 12, seed=52):
        assert isinstance(plan.body, Additive)
        found = audit(with_scale(plan, plan.body.noise.scale / 2))
        assert found.violated or not found.holds or found.upper <= found.promised  # type: ignore[operator]
        caught += found.violated
    assert caught >= 6
