"""Noise drawn for many releases at once has the law of the noise of one release."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from shoal.core.codec import Ints
from shoal.jobs.drawing import draw_many
from shoal.noise.laplace import LatticeLaplace, ZeroSumLaplace
from shoal.noise.primitives import SeededRng

RARE = 1e-6  # of a right sampler to fail, each test; the control must fail below it


def zero_sum_law(rate: float, dimension: int, reach: int) -> dict[tuple[int, ...], float]:
    """P(Z = z) ∝ exp(-r |z|_1) on Σz = 0, by enumeration."""
    weights = {}
    for free in product(range(-reach, reach + 1), repeat=dimension - 1):
        vector = (*free, -sum(free))
        weights[vector] = float(np.exp(-rate * sum(map(abs, vector))))
    total = sum(weights.values())
    return {vector: weight / total for vector, weight in weights.items()}


def p_value(rows: Ints, law: dict[tuple[int, ...], float]) -> float:
    """How likely rows this far from the law are; vectors expected fewer than 20 times are one."""
    seen = Counter(map(tuple, rows.tolist()))
    common = [vector for vector, chance in law.items() if chance * len(rows) >= 20]
    counts = [seen[vector] for vector in common]
    chances = [law[vector] for vector in common]
    observed = [*counts, len(rows) - sum(counts)]
    expected = np.array([*chances, 1 - sum(chances)]) * len(rows)
    return float(chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("dimension", [2, 3])
def test_zero_sum_rows_have_the_exact_law(dimension: int) -> None:
    noise = ZeroSumLaplace(Fraction(3, 2), Fraction(1), dimension)
    rows = draw_many(noise, 60_000, dimension, SeededRng(7))
    assert (rows.sum(axis=1) == 0).all()
    assert p_value(rows, zero_sum_law(2 / 3, dimension, 25)) > RARE
    wrong = zero_sum_law(2 / 3 / 1.1, dimension, 25)
    assert p_value(rows, wrong) < RARE


def test_laplace_rows_are_the_draws_of_the_batch_sampler() -> None:
    noise = LatticeLaplace(Fraction(7, 2), Fraction(1))
    rows = draw_many(noise, 50, 3, SeededRng(1))
    assert rows.ravel().tolist() == noise.draw(150, SeededRng(1)).tolist()
    assert draw_many(noise, 0, 3, SeededRng(1)).shape == (0, 3)
