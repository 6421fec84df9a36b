"""Histories of rides on tiny towns, against an oracle that enumerates walks in fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.share.enumeration import random_town
from tests.share.histories import KINDS, TwoLegs, begun, roads_of

EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))


def worst_of(seed: int) -> float:
    """Return how far the worst output of a random town and structure passes its bound."""
    town = random_town(seed, one_way=seed % 3 == 1, two_way_weights=seed % 3 == 0)
    start = begun(roads_of(town), town.zone, EPSILONS[seed % 4])
    legs = TwoLegs(town, start)
    return legs.worst(KINDS[seed % 5], town.goals[seed % 2], seed % 7 < 3)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_charges_bound_the_odds_of_every_output(first: int) -> None:
    worst = [worst_of(seed) for seed in range(first, first + 10)]
    assert max(worst) <= 1 + 1e-9


@pytest.mark.slow
def test_charges_bound_the_odds_in_a_thousand_towns() -> None:
    worst = [worst_of(seed) for seed in range(1000, 2000)]
    assert max(worst) <= 1 + 1e-9
    assert max(worst) > 0.9  # the bound is attained, nearly
