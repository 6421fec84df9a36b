"""Drawn K-norm, staircase and graph noise against their laws, with controls that must fail.

Each chi-square test fails wrongly with probability 1e-6 over the choice of seed; seeds are fixed.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from shoal.geometry.body import symmetric_hull
from shoal.noise.graph_exponential import graph_exponential
from shoal.noise.knorm import LatticeKNorm, Staircase
from shoal.noise.primitives import LatticeNoise, SeededRng
from tests.bodies import knorm_points

ERROR_RATE = 1e-6
PAPER = symmetric_hull([[4, 1], [3, 0], [1, -1], [1, 1]])
NOISES: dict[str, LatticeNoise] = {
    "paper": LatticeKNorm(body=PAPER, epsilon=Fraction(1)),
    "unit": LatticeKNorm(body=symmetric_hull([[1, 0], [0, 1]]), epsilon=Fraction(2)),
    "sliver": LatticeKNorm(body=symmetric_hull([[50, 3], [51, 3], [1, 0]]), epsilon=Fraction(3)),
    "segment": LatticeKNorm(body=symmetric_hull([[4, 6]]), epsilon=Fraction(1)),
    "staircase": Staircase.best(PAPER, Fraction(3)),
    "staircase on a line": Staircase.best(symmetric_hull([[3, 0]]), Fraction(2)),
}


def p_value(counts: npt.NDArray[np.float64], law: npt.NDArray[np.float64]) -> float:
    """How likely counts this far from the law are; cells that expect fewer than 8 are joined."""
    from scipy.stats import chi2

    total = counts.sum()
    big = law * total > 8
    seen = np.append(counts[big], counts[~big].sum())
    expected = np.append(law[big], law[~big].sum()) * total
    kept = expected > 0
    statistic = float(((seen[kept] - expected[kept]) ** 2 / expected[kept]).sum())
    return float(chi2.sf(statistic, kept.sum() - 1))


def compared(noise: LatticeNoise, drawn: npt.NDArray[np.int64], reach: int = 260) -> float:
    axis = np.arange(-reach, reach + 1)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    law = np.exp(noise.log_weights(grid))
    seen = Counter(map(tuple, drawn.tolist()))
    counts = np.array([seen.get(tuple(point), 0) for point in grid.tolist()], dtype=np.float64)
    assert counts.sum() == len(drawn)
    return p_value(counts, law / law.sum())


@pytest.mark.parametrize("name", NOISES)
def test_draws_follow_their_law(name: str) -> None:
    noise = NOISES[name]
    assert compared(noise, noise.draws(60_000, SeededRng(1))) > ERROR_RATE


def test_draws_one_by_one_follow_it_too() -> None:
    noise, rng = NOISES["paper"], SeededRng(2)
    drawn = np.array([noise.draw(rng) for _ in range(4000)])
    assert compared(noise, drawn) > ERROR_RATE


def test_noise_of_another_epsilon_is_noticed() -> None:
    drawn = LatticeKNorm(body=PAPER, epsilon=Fraction(21, 20)).draws(60_000, SeededRng(1))
    assert compared(NOISES["paper"], drawn) < ERROR_RATE


def test_graph_draws_follow_their_law() -> None:
    points = np.stack(np.meshgrid(np.arange(4), np.arange(4)), axis=-1).reshape(-1, 2)
    near = [
        (a, b) for a in range(16) for b in range(a) if ((points[a] - points[b]) ** 2).sum() <= 2
    ]
    law = graph_exponential(
        points, np.ones(16, dtype=np.bool_), np.arange(16), np.array(near), Fraction(1)
    )
    rng = SeededRng(7)
    seen = Counter(law.draw(5, rng) for _ in range(8000))
    counts = np.array([seen[tuple(point)] for point in points.tolist()], dtype=np.float64)
    chances = np.exp([law.log_likelihood(tuple(point))[5] for point in points.tolist()])
    assert p_value(counts, chances) > ERROR_RATE
    assert p_value(counts[::-1], chances) < ERROR_RATE


@pytest.mark.parametrize(
    "vectors", [[[300, 75], [10, 200]], [[900, 20], [0, 30]], [[250, 100]]], ids=str
)
def test_a_fine_lattice_agrees_with_the_gamma_construction(vectors: list[list[int]]) -> None:
    """Kolmogorov and Smirnov on the norm and on each coordinate; 1e-6 each."""
    from scipy.stats import gamma, ks_2samp, kstest

    body = symmetric_hull(vectors)
    drawn = LatticeKNorm(body=body, epsilon=Fraction(1)).draws(20_000, SeededRng(5))
    reference = knorm_points(body, 1.0, 20_000, SeededRng(6))
    for axis in (0, 1):
        assert ks_2samp(drawn[:, axis], reference[:, axis]).pvalue > ERROR_RATE
    norms = body.norm_upper(drawn)
    d = body.dimension
    # uniform point times Gamma(d+1): the norm itself is Gamma(d)
    assert kstest(norms, gamma(d).cdf).pvalue > ERROR_RATE
    assert kstest(norms, gamma(d + 1).cdf).pvalue < ERROR_RATE
