"""Drawn noise against its closed form and against OpenDP, with controls that must fail.

Every chi-square test fails wrongly with probability ERROR_RATE = 1e-6 over the choice of seed (the
seeds are fixed, so it fails always or never). OpenDP cannot be seeded: those comparisons fail
wrongly in one run of 10^9 each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.noise.laplace import ONE_BY_ONE, LatticeLaplace, digits_of, geometric_batch
from shoal.noise.primitives import SeededRng, bernoulli_exp, geometric

ERROR_RATE = 1e-6
ORACLE_ERROR_RATE = 1e-9
BATCH = 200_000

# exact rationals, spelt with decimal points so that none of them is a float's value
SCALES = ["1/3", "1", "7.4", "1024", "1900.7", "1e6", "1e12", "1e19"]


def chi_square_tail(statistic: float, freedom: int) -> float:
    from scipy.stats import chi2

    return float(chi2.sf(statistic, freedom))


def cells(scale: Fraction, pieces: int = 40) -> tuple[list[int], NDArray[np.float64]]:
    """Cuts c and probabilities of Z < c_1, c_1 <= Z < c_2, ..., from P(Z >= k) = q^k / (1 + q)."""
    r = float(1 / scale)
    upper = sorted(
        {
            max(1, math.floor(-math.log(share * (1 + math.exp(-r))) / r))
            for share in np.linspace(0.48, 0.002, pieces // 2).tolist()
        }
    )
    tails = [math.exp(-k * r) / (1 + math.exp(-r)) for k in upper]
    cuts = [1 - k for k in reversed(upper)] + upper
    below = [*reversed(tails), *[1 - tail for tail in tails]]
    return cuts, np.diff([0.0, *below, 1.0])


def p_value(drawn: list[int], scale: Fraction) -> float:
    """How likely counts at least this far from the closed form are, if the law is right."""
    cuts, probabilities = cells(scale)
    counts = np.bincount(place(drawn, cuts), minlength=len(cuts) + 1)
    expected = probabilities * len(drawn)
    assert expected.min() > 5
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return chi_square_tail(statistic, len(cuts))


def place(drawn: list[int], cuts: list[int]) -> NDArray[np.intp]:
    """The cell of each value; Python integers when they need more than 64 bits."""
    wide = object if max(map(abs, drawn)) >= 2**62 else np.int64
    return np.searchsorted(np.array(cuts, dtype=wide), np.array(drawn, dtype=wide), side="right")


@pytest.mark.parametrize("text", SCALES)
def test_batches_have_the_closed_form(text: str) -> None:
    scale = Fraction(text)
    drawn = LatticeLaplace(scale, Fraction(1)).draw(BATCH, SeededRng(11))
    assert p_value(drawn.tolist(), scale) > ERROR_RATE


@pytest.mark.parametrize("text", SCALES)
def test_control_noise_divided_by_one_and_a_half_fails(text: str) -> None:
    scale = Fraction(text)
    drawn = LatticeLaplace(scale * Fraction(2, 3), Fraction(1)).draw(BATCH, SeededRng(11))
    assert p_value(drawn.tolist(), scale) < ERROR_RATE


@pytest.mark.parametrize("text", ["1/3", "1", "7.4"])
def test_control_a_double_zero_fails(text: str) -> None:
    scale = Fraction(text)
    words = SeededRng(12).words(BATCH)
    first = (words >> np.uint64(2)).astype(np.int64)
    magnitude = geometric_batch(first, digits_of(1 / scale), SeededRng(13))
    drawn = np.where(words & np.uint64(1), -magnitude, magnitude)
    assert p_value(drawn.tolist(), scale) < ERROR_RATE


@pytest.mark.parametrize("text", ["1/3", "7.4", "1900.7", "1e12"])
def test_small_draws_have_the_closed_form(text: str) -> None:
    scale, rng = Fraction(text), SeededRng(14)
    noise = LatticeLaplace(scale, Fraction(1))
    drawn = [z for _ in range(220) for z in noise.draw(ONE_BY_ONE, rng).tolist()]
    assert p_value(drawn, scale) > ERROR_RATE
    assert p_value([z * 2 // 3 for z in drawn], scale) < ERROR_RATE


def test_the_smallest_scale_draws_zero() -> None:
    """At scale 1e-6 anything but 0 has probability 2 exp(-10^6)."""
    noise = LatticeLaplace(Fraction("1e-6"), Fraction(1))
    assert not noise.draw(BATCH, SeededRng(15)).any()
    assert not noise.draw(ONE_BY_ONE, SeededRng(15)).any()


@pytest.mark.parametrize("text", ["1e6", "1e12", "1e19"])
def test_low_bits_of_wide_noise_are_uniform(text: str) -> None:
    """|Z| mod 64 is uniform up to 64 / scale, far below what this sample could see."""
    drawn = LatticeLaplace(Fraction(text), Fraction(1)).draw(BATCH, SeededRng(16)).tolist()
    counts = np.bincount([abs(z) % 64 for z in drawn], minlength=64)
    expected = BATCH / 64
    assert chi_square_tail(float(((counts - expected) ** 2 / expected).sum()), 63) > ERROR_RATE


def test_the_step_only_sets_the_unit() -> None:
    fine = LatticeLaplace(Fraction("7.4"), Fraction(1, 256)).draw(BATCH, SeededRng(17))
    assert p_value(fine.tolist(), Fraction("7.4") * 256) > ERROR_RATE


def test_neighbouring_draws_are_independent() -> None:
    """Signs and sizes of draws that follow each other, in a 4 by 4 table of equal chances."""
    scale = Fraction("1e6")
    drawn = LatticeLaplace(scale, Fraction(1)).draw(BATCH, SeededRng(18))
    median = int(scale * Fraction("0.693147"))
    quarter = 2 * (drawn < 0) + (np.abs(drawn) >= median)
    counts = np.bincount(4 * quarter[0::2] + quarter[1::2], minlength=16)
    expected = BATCH / 32
    assert chi_square_tail(float(((counts - expected) ** 2 / expected).sum()), 15) > ERROR_RATE


@pytest.mark.parametrize(("p", "q"), [(1, 10**9), (1, 3), (1, 1), (5, 2)])
def test_bernoulli_exp_has_its_rate(p: int, q: int) -> None:
    """Within 5 standard deviations of n exp(-p/q): wrong alarm below 1e-6."""
    rng, count = SeededRng(19), 20_000
    hits = sum(bernoulli_exp(p, q, rng) for _ in range(count))
    chance = math.exp(-p / q)
    assert abs(hits - count * chance) <= 5 * math.sqrt(count * chance * (1 - chance)) + 1


def two_sample_p_value(left: list[int], right: list[int]) -> float:
    """Chi-square of equal laws, on cells cut at quantiles of the two samples together."""
    together = np.sort(np.array(left + right, dtype=np.int64))
    cuts = np.unique(together[np.linspace(0, together.size - 1, 128).astype(int)[1:-1]])
    table = [
        np.bincount(np.searchsorted(cuts, sample, side="right"), minlength=cuts.size + 1)
        for sample in (left, right)
    ]
    kept = np.array(table)[:, np.sum(table, axis=0) > 0].astype(float)
    expected = kept.sum(1, keepdims=True) * kept.sum(0, keepdims=True) / kept.sum()
    statistic = float(((kept - expected) ** 2 / expected).sum())
    return chi_square_tail(statistic, kept.shape[1] - 1)


@pytest.fixture(scope="module")
def opendp_draws() -> Callable[[float, int], list[int]]:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    # "i64": with T=int OpenDP uses 32 bits and saturates
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")

    def draw(scale: float, count: int) -> list[int]:
        return [int(z) for z in dp.m.make_laplace(*space, scale=scale)([0] * count)]

    return draw


@pytest.mark.parametrize("scale", [0.5, 3.0, 1000.25, 1e12])
def test_opendp_draws_the_same_law(
    scale: float, opendp_draws: Callable[[float, int], list[int]]
) -> None:
    theirs = opendp_draws(scale, 40_000)
    batch = LatticeLaplace(Fraction(scale), Fraction(1)).draw(BATCH, SeededRng(20)).tolist()
    assert two_sample_p_value(batch, theirs) > ORACLE_ERROR_RATE
    control = LatticeLaplace(Fraction(scale) * 2 / 3, Fraction(1)).draw(BATCH, SeededRng(20))
    assert two_sample_p_value(control.tolist(), theirs) < ORACLE_ERROR_RATE


@pytest.mark.slow
@pytest.mark.parametrize("text", ["1/3", "7.4", "1024", "1e12"])
def test_ten_million_draws_have_the_closed_form(text: str) -> None:
    """Sees a relative error of about 0.3 % in any one of forty cells."""
    scale = Fraction(text)
    drawn = LatticeLaplace(scale, Fraction(1)).draw(10_000_000, SeededRng(21))
    assert p_value(drawn.tolist(), scale) > ERROR_RATE


@pytest.mark.parametrize("rate", [Fraction(2), Fraction(1, 9)])
def test_geometric_reference_and_batch_agree(rate: Fraction) -> None:
    rng = SeededRng(22)
    one_by_one = [geometric(rate.numerator, rate.denominator, rng) for _ in range(15_000)]
    first = (rng.words(BATCH) >> np.uint64(2)).astype(np.int64)
    batch = geometric_batch(first, digits_of(rate), rng).tolist()
    assert two_sample_p_value(one_by_one, batch) > ERROR_RATE
    assert two_sample_p_value([z + (z > 0) for z in one_by_one], batch) < ERROR_RATE
