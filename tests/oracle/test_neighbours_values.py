"""Guesses from ties against the joint law written out."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.core.errors import InputError
from shoal.mechanisms.queries import weighted_sum
from shoal.records.attack import guess_values
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField, field_of_pairs
from shoal.records.pairwise import Dependence

DOMAIN = RecordDomain.points([0.0, 1.0, 3.0], states=["a", "b", "c"])
LAW = np.array([[0.3, 0.05, 0.02], [0.05, 0.2, 0.06], [0.02, 0.06, 0.24]])
TIES = [(0, 1), (1, 2), (1, 3)]  # a tree: the product over ties is the law itself
QUERY = weighted_sum(["a", "b", "c"], {"a": 0, "b": 1, "c": 3})
TRUTH = np.array([0, 1, 2, 2])
OUTPUT, SCALE = 5.5, 2.0


def by_enumeration(model: Dependence, record: int, *, released: bool) -> list[float]:
    """P(record | all others, and the release), from the joint table."""
    joint = field_of_pairs(model).table().probability
    found = []
    for value in range(3):
        place = TRUTH.copy()
        place[record] = value
        mass = float(joint[tuple(place)])
        if released:
            mass *= float(np.exp(-abs(OUTPUT - sum([0, 1, 3][v] for v in place)) / SCALE))
        found.append(mass)
    return [mass / sum(found) for mass in found]


@pytest.mark.parametrize("field", [False, True])
def test_beliefs_given_all_others_are_those_of_the_joint_law(field: bool) -> None:
    pairs = Dependence.of(DOMAIN, 4, TIES, LAW)
    model = field_of_pairs(pairs) if field else pairs
    found = guess_values(model, QUERY, np.array([OUTPUT]), SCALE, TRUTH)
    for record in range(4):
        assert found.tied[record] == pytest.approx(by_enumeration(pairs, record, released=False))
        assert found.tied_after[record] == pytest.approx(
            by_enumeration(pairs, record, released=True)
        )


def test_a_release_moves_odds_by_no_more_than_its_scale_allows() -> None:
    model = Dependence.of(DOMAIN, 4, TIES, LAW)
    found = guess_values(model, QUERY, np.array([OUTPUT]), SCALE, TRUTH)
    change = np.log(found.tied_after) - np.log(found.tied)
    assert np.ptp(change, axis=1).max() <= 3 / SCALE + 1e-12
    assert found.alone[0] == pytest.approx(LAW.sum(axis=1))
    assert 0 <= found.right(found.tied) <= 1
    assert found.distance(np.eye(3)[TRUTH]) == 0


def test_a_law_with_zeros_rules_values_out() -> None:
    model = PairwiseField.of(DOMAIN, 2, [(0, 1)], np.eye(3))
    found = guess_values(model, QUERY, np.array([0.0]), SCALE, np.array([2, 2]))
    assert found.tied.tolist() == [[0, 0, 1], [0, 0, 1]]
    with pytest.raises(InputError, match="truth has 3 values"):
        guess_values(model, QUERY, np.array([0.0]), SCALE, np.array([0, 0, 0]))
