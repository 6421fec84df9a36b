"""Zero-sum noise has its stated law. Error rate 1e-6 a test, at a fixed seed."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shoal.noise.laplace import LatticeLaplace, ZeroSumLaplace
from shoal.noise.primitives import SeededRng, discrete_laplace

ERROR_RATE = 1e-6
DRAWS = 6000


def expected_law(rate: float, dimension: int, reach: int) -> dict[tuple[int, ...], float]:
    """P(z) ∝ exp(-rate |z|_1) on Σz = 0, over the vectors with entries up to `reach`."""
    heads = itertools.product(range(-reach, reach + 1), repeat=dimension - 1)
    vectors = [(*head, -sum(head)) for head in heads]
    weights = [math.exp(-rate * sum(map(abs, vector))) for vector in vectors]
    total = sum(weights)
    return {v: w / total for v, w in zip(vectors, weights, strict=True)}


def p_value(drawn: list[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    common = [vector for vector, p in law.items() if p * len(drawn) >= 8]
    seen = [sum(1 for d in drawn if d == vector) for vector in common]
    wanted = [law[vector] * len(drawn) for vector in common]
    rest = len(drawn) - sum(wanted)
    return float(stats.chisquare([*seen, len(drawn) - sum(seen)], [*wanted, rest]).pvalue)


@pytest.mark.parametrize(("dimension", "scale"), [(2, "3/2"), (3, "1"), (4, "7/5")])
def test_draws_follow_the_closed_form(dimension: int, scale: str) -> None:
    noise = ZeroSumLaplace(Fraction(scale), Fraction(1), dimension)
    rng = SeededRng(11)
    drawn = [tuple(int(z) for z in noise.draw(dimension, rng)) for _ in range(DRAWS)]
    assert all(sum(vector) == 0 for vector in drawn)
    law = expected_law(float(noise.rate), dimension, 12)
    assert p_value(drawn, law) > ERROR_RATE


@pytest.mark.parametrize("dimension", [2, 6, 100, 500, 5000])
def test_many_bars_have_the_error_of_the_plane(dimension: int) -> None:
    """On a fine lattice Σ|Z_i| is Gamma distributed with dimension - 1 as its shape."""
    noise = ZeroSumLaplace(Fraction(1000), Fraction(1), dimension)
    assert noise.expected_error() == pytest.approx(1000 * (1 - 1 / dimension), rel=1e-4)
    if dimension >= 100:  # one bar of many is nearly free: P(|Z| > x) = exp(-x / scale)
        assert float(noise.quantile(0.99)) == pytest.approx(1000 * math.log(100), rel=0.02)


def test_forgetting_the_acceptance_step_is_noticed() -> None:
    """The control: the last coordinate minus the sum of the others, always kept."""
    rng = SeededRng(11)
    heads = [[discrete_laplace(1, 1, rng) for _ in range(2)] for _ in range(DRAWS)]
    drawn = [(*head, -sum(head)) for head in heads]
    assert p_value(drawn, expected_law(1.0, 3, 12)) < ERROR_RATE


def test_the_ratio_between_neighbours_is_the_promise() -> None:
    """By enumeration: moving one entry between two bars changes log-probabilities by at most η."""
    scale = Fraction(2)
    law = expected_law(0.5, 3, 20)
    eta = 2 / float(scale)
    inner = [vector for vector in law if max(map(abs, vector)) < 15]
    gaps = [math.log(law[v]) - math.log(law[(v[0] + 1, v[1] - 1, v[2])]) for v in inner]
    assert max(map(abs, gaps)) == pytest.approx(eta, abs=1e-12)


@pytest.mark.parametrize("dimension", [2, 3, 6])
@pytest.mark.parametrize("scale", ["1/3", "5", "2000"])
def test_stated_errors_match_draws(dimension: int, scale: str) -> None:
    noise = ZeroSumLaplace(Fraction(scale), Fraction(1), dimension)
    rng = SeededRng(5)
    size = np.abs([noise.draw(dimension, rng) for _ in range(2000)]).astype(float)
    sigma = max(float(size.std()), 0.05) / math.sqrt(2000)
    assert abs(size.mean() - noise.expected_error()) < 6 * sigma
    assert noise.expected_error() < LatticeLaplace(Fraction(scale), Fraction(1)).expected_error()
    covered = float((size <= float(noise.quantile(0.9))).mean())
    assert covered > 0.9 - 6 * math.sqrt(0.09 / 2000)


def test_two_bars_halve_the_scale() -> None:
    """z and -z: exp(-r(|z| + |-z|)) is Laplace of half the scale."""
    noise = ZeroSumLaplace(Fraction(10), Fraction(1), 2)
    half = LatticeLaplace(Fraction(5), Fraction(1))
    assert noise.expected_error() == pytest.approx(half.expected_error(), rel=1e-6)
    assert abs(noise.quantile(0.95) - half.quantile(0.95)) <= 1


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 bars"):
        ZeroSumLaplace(Fraction(1), Fraction(1), 1)
    with pytest.raises(ValueError, match="count is 3"):
        ZeroSumLaplace(Fraction(1), Fraction(1), 2).draw(3, SeededRng(1))
    with pytest.raises(ValueError, match="confidence is 1"):
        ZeroSumLaplace(Fraction(1), Fraction(1), 2).quantile(1)
