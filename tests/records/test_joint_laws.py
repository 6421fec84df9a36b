"""The sound rows for tied records against whole joint laws: random ones, and the worst of all.

Every random joint law has pairwise laws; the rows see only those. Their noise must be enough for
that very law, and for the worst joint law with the same pairs, which linear programs find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from shoal.audit.exact import audit, audit_noise
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import LinearQuery, count, histogram, weighted_sum
from shoal.networks.table import JointTable
from shoal.records.audit import list_outcomes, worst_law
from shoal.records.domain import RecordDomain
from shoal.records.pairwise import Dependence
from shoal.records.sources import pairs_of_table
from shoal.testing import with_scale

SOUND = ("dependent-means", "group")


def random_tables(shape: tuple[int, ...], number: int, seed: int) -> Iterator[JointTable]:
    """Joint laws from nearly independent to nearly deterministic, zeros included."""
    rng = np.random.default_rng(seed)
    for index in range(number):
        sharp = (0.1, 0.3, 1.0, 5.0)[index % 4]
        law = rng.gamma(sharp, size=shape)
        if index % 3 == 0:
            law[rng.random(shape) < 0.4] = 0.0
            law.flat[0] += 1e-3
        yield JointTable.of(law / law.sum())


def exact_scale(plan: Plan) -> Fraction:
    assert isinstance(plan.body, Additive)
    return plan.body.noise.scale


def scale_of(plan: Plan) -> float:
    return float(exact_scale(plan))


@pytest.mark.parametrize("row", SOUND)
@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 3, 3), (2,) * 5], ids=["2^3", "3^3", "2^5"])
def test_noise_from_pairs_is_enough_for_the_law_they_came_from(
    row: str, shape: tuple[int, ...]
) -> None:
    """40 random joints each, counts and sums: never violated (Eq. 18 for additive queries)."""
    states = [str(value) for value in range(shape[0])]
    queries: list[LinearQuery] = [
        count(states, states[-1]),
        weighted_sum(states, {state: 2**place for place, state in enumerate(states)}),
    ]
    worst = 0.0
    for number, table in enumerate(random_tables(shape, 40, seed=len(shape))):
        query = queries[number % 2]
        epsilon = Fraction((1, 2, 6)[number % 3], 2)
        plan = calibrate(query, EachEntry(), pairs_of_table(table), epsilon=epsilon, mechanism=row)
        found = audit_noise(
            query,
            EachEntry(),
            table,
            scale=exact_scale(plan),
            claimed=epsilon,
        )
        assert not found.violated
        worst = max(worst, found.loss / float(epsilon))
    print(f"{row} {shape}: worst share of epsilon {worst:.3f}")
    assert worst > 0.3  # a bound that is never near would hide a mistake


def test_noise_from_pairs_is_enough_for_the_worst_law_with_the_same_pairs() -> None:
    """Linear programs over all joint laws; the least share found shows that the bound is tight."""
    shares = []
    for number, table in enumerate(random_tables((2, 2, 2), 8, seed=7)):
        query = count("01", "1") if number % 2 else weighted_sum("01", {"0": -1, "1": 3})
        plan = calibrate(
            query, EachEntry(), pairs_of_table(table), epsilon=1, mechanism="dependent-means"
        )
        found = audit(plan)
        assert not found.violated
        assert found.upper <= 1 + 1e-9
        shares.append(found.lower)
    print(f"worst law found reaches {max(shares):.4f} of epsilon 1")
    assert max(shares) > 0.7


def test_a_third_less_noise_is_caught() -> None:
    """A control: the same program finds the breach when the scale is divided by 1.5."""
    model = one_tie()
    plan = calibrate(count("01", "1"), EachEntry(), model, epsilon=1, mechanism="dependent-means")
    weaker = with_scale(plan, exact_scale(plan) * 2 / 3)
    assert not audit(plan).violated
    assert audit(weaker).violated


def test_pairwise_independent_records_can_tell_half_of_group_noise() -> None:
    """dependent_means.md: the sum of the others is n/2 for sure, or 0 or n; no pair shows it."""
    others = 4
    law = np.zeros((2,) * (others + 1))
    halves = list(combinations(range(others), others // 2))
    for half in halves:
        law[(0, *(int(place in half) for place in range(others)))] = 0.5 / len(halves)
    law[(1,) + (0,) * others] = law[(1,) + (1,) * others] = 0.25
    table = JointTable.of(law)
    for place in range(1, others + 1):
        pair = table.marginal("X1", f"X{place + 1}")
        assert pair == pytest.approx(np.full((2, 2), 0.25))
    query = count("01", "1")
    plan = calibrate(
        query, EachEntry(), pairs_of_table(table), epsilon=1, mechanism="dependent-means"
    )
    assert scale_of(plan) == pytest.approx(1 + others / 2 + _pairs_room(table), rel=1e-6)
    found = audit_noise(query, EachEntry(), table, scale=1)
    assert found.loss >= others / 2 - 1  # the record itself may hide one step of it


def test_the_program_keeps_the_pairs() -> None:
    """The law found has the pairwise laws it was asked for."""
    table = next(random_tables((3, 3, 3), 1, seed=3))
    model = pairs_of_table(table)
    answers = list_outcomes(model).sum(axis=1)[:, None].astype(float)
    found = worst_law(model, answers, np.arange(7.0)[:, None], 2.0)
    assert found is not None
    again = pairs_of_table(JointTable.of(found.law.reshape(3, 3, 3)))
    assert again.laws == pytest.approx(model.laws, abs=1e-7)
    grid, one, two = list_outcomes(model)[:, found.record], *found.pair
    kernel = np.exp(-np.abs(answers[:, 0] - np.arange(7.0)[:, None]) / 2.0) * found.law
    told = [kernel[:, grid == v].sum(axis=1) / found.law[grid == v].sum() for v in (one, two)]
    assert found.log_ratio == pytest.approx(float(np.log(told[0] / told[1]).max()), rel=1e-6)


def test_pairs_no_joint_law_has_are_told() -> None:
    """Three bits, every two of them different: no such triple."""
    law = np.array([[0.0, 0.5], [0.5, 0.0]])
    model = Dependence.of(RecordDomain.named("01"), 3, [[0, 1], [1, 2], [0, 2]], law)
    plan = calibrate(count("01", "1"), EachEntry(), model, epsilon=1)
    found = audit(plan)
    assert any("no joint law has" in note for note in found.not_checked)


def test_histograms_are_covered_too() -> None:
    """Two labels at once: (A) and (B) of the proof against enumerated laws."""
    worst = 0.0
    for table in random_tables((2, 2, 2), 20, seed=11):
        plan = calibrate(
            histogram("01"),
            EachEntry(),
            pairs_of_table(table),
            epsilon=1,
            mechanism="dependent-means",
        )
        found = audit_noise(histogram("01"), EachEntry(), table, scale=exact_scale(plan))
        assert found.upper <= 1 + 1e-9
        worst = max(worst, found.loss)
    assert worst > 0.3


def one_tie() -> Dependence:
    return Dependence.of(RecordDomain.named("01"), 2, [[0, 1]], [[0.49, 0.01], [0.01, 0.49]])


def _pairs_room(table: JointTable) -> float:
    """How far the means of the other pairs ask for more than half: their ties are not fair."""
    model = pairs_of_table(table)
    conditional = model.conditionals()[:, :, 1]
    far = np.maximum(conditional, 1 - conditional)
    near = model.neighbours()
    sums = np.stack(
        [np.bincount(near.record, conditional[near.law, x], model.records) for x in (0, 1)]
    )
    others = model.records - 1
    assert math.isfinite(far.max())
    return float(np.maximum(sums, others - sums).max()) - others / 2
