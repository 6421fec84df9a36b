"""Discrete Laplace noise on a public lattice: the law, its errors, and exact draws from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from shoal.core.rng import Rng
from shoal.noise.digits import Integers, laplace_batch
from shoal.noise.lattice import WIDEST_RATIO, check_positive
from shoal.noise.primitives import bernoulli_exp, discrete_laplace, exp_bounds

# Up to this many draws are made one by one: building the tables of a batch would take longer.
ONE_BY_ONE = 64

# Batches are cut so that their arrays stay in the processor's cache.
BATCH = 2**16


@dataclass(frozen=True, slots=True)
class LatticeLaplace:
    """Noise Z * step, Z an integer with P(Z = z) proportional to exp(-|z| step / scale).

    scale and step are exact rationals above 0 in the query's own units. Added to a query whose
    values are multiples of step and change by at most L, it is (L / scale)-DP.
    """

    scale: Fraction
    step: Fraction

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("step", self.step)

    @property
    def rate(self) -> Fraction:
        """r = step / scale: each further step is exp(-r) times as likely."""
        return Fraction(self.step) / self.scale

    def draw(self, count: int, rng: Rng) -> Integers:
        """`count` independent draws of Z, with exactly the stated law.

        int64 with |Z| < 2^62. Python integers (dtype object) when scale / step exceeds 2^54, or
        when a draw does not fit 62 bits (probability below 2^-180): nothing ever wraps.
        The time taken depends on the count, the public rate, and the drawn noise: zeros with
        a minus sign and the largest magnitudes are drawn on. The data is not an argument.
        """
        if count < 0:
            raise ValueError(f"count is {count}; it must be 0 or more (one draw per coordinate)")
        rate = self.rate
        if count > ONE_BY_ONE:
            sizes = [min(BATCH, count - done) for done in range(0, count, BATCH)]
            return np.concatenate([laplace_batch(rate, size, rng) for size in sizes])
        drawn = [discrete_laplace(rate.numerator, rate.denominator, rng) for _ in range(count)]
        fits = rate * WIDEST_RATIO >= 1 and all(abs(value) < 2**62 for value in drawn)
        return np.array(drawn, dtype=np.int64 if fits else object)

    def expected_error(self) -> float:
        """E|Z| step = step / sinh(r), with r = step / scale; tends to scale for small r.

        Within 1e-12 of it; 0 when exp(-r) is below the smallest float, inf when scale is above
        the largest.
        """
        if self.step <= self.scale:
            r = float(self.rate)
            return _to_float(self.scale) * (r / math.sinh(r) if r else 1.0)
        q = _exp_minus(self.rate)
        return _to_float(self.step) * 2 * q / (1 - q * q) if q else 0.0

    def variance(self) -> float:
        """E (Z step)^2 = step^2 / (2 sinh^2(r/2)); tends to 2 scale^2 for small r. Same limits."""
        if self.step <= self.scale:
            half = float(self.rate) / 2
            return 2 * (_to_float(self.scale) * (half / math.sinh(half) if half else 1.0)) ** 2
        q = _exp_minus(self.rate)
        return _to_float(self.step) ** 2 * 2 * q / (1 - q) ** 2 if q else 0.0

    def quantile(self, confidence: float | Fraction) -> Fraction:
        """The smallest multiple x of step with P(|Z| step <= x) >= confidence, exactly.

        P(|Z| > m) = 2 q^(m+1) / (1 + q) with q = exp(-r): bisection on m with certified bounds.
        A float confidence stands for its exact binary value; 0 <= confidence < 1.
        """
        tail = 1 - Fraction(confidence) if math.isfinite(confidence) else Fraction(0)
        if not 0 < tail <= 1:
            raise ValueError(
                f"confidence is {confidence}; it must lie in [0, 1) "
                "(no finite error bound holds with certainty)"
            )
        return _steps_for(self.rate, tail) * Fraction(self.step)

    def log_probability(self, z: int) -> float:
        """log P(Z = z) = log tanh(r/2) - |z| r; -inf when it is below the smallest float."""
        if self.rate < Fraction(1, 2**60):
            # tanh(r/2) = r/2 to the last bit, and r itself may be too small for a float
            log_zero = math.log(self.rate.numerator) - math.log(2 * self.rate.denominator)
        else:
            q = _exp_minus(self.rate)
            log_zero = math.log(_one_minus_exp(self.rate)) - math.log1p(q)
        return log_zero - _to_float(abs(int(z)) * self.rate)

    def pmf(self, z: int) -> float:
        """P(Z = z) as a float, for plots and tests; draws never use it."""
        return math.exp(self.log_probability(z))


@lru_cache(maxsize=256)
def _steps_for(rate: Fraction, tail: Fraction) -> int:
    """The smallest m with P(|Z| > m) at most `tail`: every release of a plan asks for the same."""
    low, high = 0, 1
    while not _tail_at_most(rate, high, tail):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if _tail_at_most(rate, middle, tail):
            high = middle
        else:
            low = middle + 1
    return low


def _tail_at_most(rate: Fraction, m: int, tail: Fraction) -> bool:
    """Whether 2 q^(m+1) / (1 + q) <= tail, q = exp(-rate), decided by bounds on q and q^(m+1).

    The two are never equal, or q would be algebraic, so finer bounds always decide.
    """
    precision = 128
    while True:
        one = 1 << precision
        low_q, high_q = exp_bounds(rate, precision)
        low_power, high_power = exp_bounds(rate * (m + 1), precision)
        if 2 * high_power <= tail * (one + low_q):
            return True
        if 2 * low_power > tail * (one + high_q):
            return False
        precision *= 2


def _exp_minus(rate: Fraction) -> float:
    return math.exp(-_to_float(rate))


def _one_minus_exp(rate: Fraction) -> float:
    return -math.expm1(-_to_float(rate))


def _to_float(value: Fraction) -> float:
    """The nearest float, or inf where there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


# K-norm noise for histograms: Laplace noise that keeps the public total.
#
# When one entry moves from one bar to another the histogram moves by e_i - e_j, so the smallest
# convex body for its noise is K = conv{e_i - e_j} (Xiao 2017, Example 3.1), which lies in the
# plane Σv = 0 and has the norm |v|_K = |v|_1 / 2. Noise with density proportional to exp(-eta
# |v|_K) on that plane is Laplace noise of scale 2/eta on each bar, given that it adds up to 0.


COARSEST_RATE = Fraction(1, 256)  # error figures of finer lattices are read off this one


@dataclass(frozen=True, slots=True)
class ZeroSumLaplace:
    """Noise Z * step in `dimension` coordinates, P(Z = z) ∝ exp(-|z|_1 step / scale) on Σz = 0.

    Added to a histogram whose bars are multiples of step and whose l1 change is at most L, it is
    (L / scale)-DP, like Laplace noise of the same scale, with less error: the total stays exact.
    """

    scale: Fraction
    step: Fraction
    dimension: int

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("step", self.step)
        if self.dimension < 2:
            raise ValueError(
                f"dimension is {self.dimension}; noise that adds up to 0 needs at least 2 bars"
            )

    @property
    def rate(self) -> Fraction:
        """r = step / scale."""
        return Fraction(self.step) / self.scale

    def draw(self, count: int, rng: Rng) -> NDArray[np.int64] | NDArray[np.object_]:
        """One vector of `count` = dimension integers, with exactly the stated law.

        All but the last are independent discrete Laplace; the last is minus their sum, and the
        vector is kept with probability exp(-r |last|), which is the missing factor. About one in
        three vectors is kept for six bars. Python integers when they do not fit 62 bits.
        """
        if count != self.dimension:
            raise ValueError(f"count is {count}; it must be dimension = {self.dimension}")
        a, b = self.rate.numerator, self.rate.denominator
        while True:
            drawn = [discrete_laplace(a, b, rng) for _ in range(count - 1)]
            last = -sum(drawn)
            if bernoulli_exp(abs(last) * a, b, rng):
                break
        drawn.append(last)
        fits = all(abs(value) < 2**62 for value in drawn)
        return np.array(drawn, dtype=np.int64 if fits else object)

    def expected_error(self) -> float:
        """E|Z_1| step, to about six digits."""
        coarse = max(self.rate, COARSEST_RATE)
        magnitudes, law = _one_bar(coarse, self.dimension)
        return float(magnitudes @ law) * float(coarse * self.scale)

    def quantile(self, confidence: float) -> Fraction:
        """A multiple x of step with P(|Z_1| step <= x) >= confidence, rounded up."""
        if not 0 <= confidence < 1:
            raise ValueError(
                f"confidence is {confidence}; it must lie in [0, 1) "
                "(no finite error bound holds with certainty)"
            )
        coarse = max(self.rate, COARSEST_RATE)
        magnitudes, law = _one_bar(coarse, self.dimension)
        order = np.argsort(magnitudes, kind="stable")
        reached = np.cumsum(law[order])
        place = int(np.searchsorted(reached, min(confidence + 1e-9, reached[-1])))
        bound = int(magnitudes[order[min(place, len(order) - 1)]]) + int(coarse > self.rate)
        return math.ceil(bound * coarse * self.scale / self.step) * self.step


@lru_cache(maxsize=32)
def _one_bar(rate: Fraction, dimension: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Magnitudes and probabilities of one coordinate, by convolving the others."""
    reach = math.ceil((40 + 4 * dimension) / float(rate)) + 1
    z = np.arange(-reach, reach + 1)
    weight = np.exp(-float(rate) * np.abs(z))
    size = 1 << (dimension * len(z)).bit_length()
    spectrum = np.fft.rfft(np.roll(np.pad(weight, (0, size - len(z))), -reach), size)
    others = np.fft.irfft(spectrum ** (dimension - 1), size)
    law = weight * np.maximum(np.roll(others, reach)[: len(z)], 0.0)
    return np.abs(z).astype(np.float64), law / law.sum()


def is_zero_sum(noise: object) -> TypeGuard[ZeroSumLaplace]:
    """Whether noise adds up to 0 over its coordinates, so that a public total stays what it is."""
    return isinstance(noise, ZeroSumLaplace)
