"""How far a record of a pairwise field reaches, against the worst of all η-DP releases.

A release enters by the probability h(x) of one output; η-DP means that h changes by at most e^η
when one record changes. The worst h for a record and two of its values is a linear program.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from shoal.audit.exact import audit
from shoal.core.charge import AsEntryDP
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.lift import leakage, lift
from shoal.mechanisms.queries import count
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField, field_of_pairs, friend_field
from shoal.records.reach import field_reach, potential_contractions
from shoal.records.sources import FriendModel, pairs_of_table

BITS = RecordDomain.named("01")
GRAPHS = {
    "pair": (2, [[0, 1]]),
    "chain": (4, [[0, 1], [1, 2], [2, 3]]),
    "star": (5, [[0, 1], [0, 2], [0, 3], [0, 4]]),
    "loop": (4, [[0, 1], [1, 2], [2, 3], [0, 3]]),
    "clique": (4, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]),
    "two-parts": (5, [[0, 1], [1, 2], [3, 4]]),
}


def random_field(name: str, seed: int) -> PairwiseField:
    """A field with a potential of its own per tie, from weak to strong, and own weights."""
    records, ties = GRAPHS[name]
    rng = np.random.default_rng(seed)
    spread = (0.2, 0.6, 1.5)[seed % 3]
    potentials = np.exp(spread * rng.normal(size=(len(ties), 2, 2)))
    own = np.exp(rng.normal(size=(records, 2)))
    return PairwiseField.of(BITS, records, ties, potentials, np.arange(len(ties)), own)


def worst_release(field: PairwiseField, eta: float) -> float:
    """max over h, records and pairs of values of log E[h | a] / E[h | a'], by linear programs."""
    law = field.table().probability
    grid = np.array(list(product((0, 1), repeat=field.records)))
    weight, number = law.ravel(), np.arange(len(grid))
    rows = []
    for record in range(field.records):
        flipped = number ^ (1 << (field.records - 1 - record))
        rows.append(np.eye(len(grid)) - math.exp(eta) * np.eye(len(grid))[flipped])
    bounds, best = np.concatenate(rows), 0.0
    for record in range(field.records):
        sides = [np.where(grid[:, record] == v, weight, 0.0) for v in (0, 1)]
        sides = [side / side.sum() for side in sides]
        for top, bottom in (sides, sides[::-1]):
            found = linprog(
                -top, A_ub=bounds, b_ub=np.zeros(len(bounds)), A_eq=bottom[None], b_eq=[1.0]
            )
            best = max(best, math.log(-found.fun))
    return best


@pytest.mark.parametrize("name", GRAPHS)
def test_no_release_tells_more_than_the_reach(name: str) -> None:
    for seed in range(6):
        field = random_field(name, seed)
        reach = float(field_reach(field).max())
        for eta in (0.05, 0.5, 2.0):
            found = worst_release(field, eta)
            assert found <= eta * reach * (1 + 1e-7)
            assert reach <= (field.tied or 0) * (1 + 1e-9)


def test_the_reach_is_nearly_attained_on_a_pair_with_small_eta() -> None:
    """1 + κ for two records tied by ψ = e^{±J}: Birkhoff's contraction is sharp."""
    tie = math.exp(0.8)
    field = PairwiseField.of(BITS, 2, [[0, 1]], [[tie, 1 / tie], [1 / tie, tie]])
    kappa = math.tanh(0.8)
    assert potential_contractions(field.potentials)[0] == pytest.approx(kappa)
    assert field_reach(field) == pytest.approx([1 + kappa, 1 + kappa])
    assert worst_release(field, 1e-3) == pytest.approx(1e-3 * (1 + kappa), rel=1e-3)


def test_a_smaller_reach_would_be_caught() -> None:
    """A control: κ replaced by κ² is too little for some field of the list."""
    short = 0
    for seed in range(6):
        field = random_field("pair", seed)
        kappa = float(potential_contractions(field.potentials)[0])
        short += worst_release(field, 0.05) > 0.05 * (1 + kappa**2)
    assert short >= 1


def test_a_potential_with_zeros_counts_as_a_copy() -> None:
    field = PairwiseField.of(BITS, 3, [[0, 1], [1, 2]], [[1.0, 0.0], [0.0, 1.0]])
    assert field_reach(field) == pytest.approx([3, 3, 3])


def test_ties_that_do_nothing_reach_nobody() -> None:
    field = PairwiseField.of(BITS, 4, [[0, 1], [1, 2], [2, 3]], [[2.0, 1.0], [2.0, 1.0]])
    assert field_reach(field) == pytest.approx([1, 1, 1, 1], abs=1e-9)
    assert leakage(field, 1).value == pytest.approx(1.0)


def test_the_chosen_noise_is_enough_and_group_noise_is_more() -> None:
    places = RecordDomain.points([0, 1, 3], states="abc")
    edges = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4]]
    field = friend_field(FriendModel(b=4, c=0.5), places, 6, edges)
    query = count("abc", "c")
    for epsilon in (Fraction(1, 2), Fraction(2)):
        plan = calibrate(query, EachEntry(), field, epsilon=epsilon, mechanism="dependent-field")
        found = audit(plan)
        assert not found.violated
        assert found.loss > 0.7 * float(epsilon)
        group = calibrate(query, EachEntry(), field, epsilon=epsilon, mechanism="group")
        assert plan.cost < group.cost


def test_a_forest_has_the_pair_laws_it_was_made_from() -> None:
    places = RecordDomain.points([0, 1, 3], states="abc")
    pairs = FriendModel(b=0.5, c=2).ties(places, 5, [[0, 1], [1, 2], [1, 3]])
    again = pairs_of_table(field_of_pairs(pairs).table(), places)
    for one, other in pairs.ties.tolist():
        assert again.pair(one, other) == pytest.approx(pairs.pair(one, other), abs=1e-12)
    assert np.bincount(again.components()).max() == 4


@pytest.mark.parametrize("name", ["chain", "loop"])
def test_any_release_is_made_safe_for_a_field(name: str) -> None:
    """`lift` around a mechanism from outside, and `leakage`, against the worst release of all."""
    field = random_field(name, 0)
    plan = lift(lambda eta: len, field, epsilon=1)
    (rule,) = plan.composition
    assert isinstance(rule, AsEntryDP)
    assert worst_release(field, float(rule.eta)) <= 1 + 1e-7
    found = leakage(field, 1).value
    assert worst_release(field, 1.0) <= found * (1 + 1e-7)
    assert found <= float(field_reach(field).max()) * (1 + 1e-9)
