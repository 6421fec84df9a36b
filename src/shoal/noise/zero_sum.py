"""K-norm noise for histograms: Laplace noise that keeps the public total.

When one entry moves from one bar to another the histogram moves by e_i - e_j, so the smallest
convex body for its noise is K = conv{e_i - e_j} (Xiao 2017, Example 3.1), which lies in the plane
Σv = 0 and has the norm |v|_K = |v|_1 / 2. Noise with density proportional to exp(-eta |v|_K) on
that plane is Laplace noise of scale 2/eta on each bar, given that it adds up to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shoal.core.rng import Rng
from shoal.noise.lattice import check_positive
from shoal.noise.primitives import bernoulli_exp, discrete_laplace

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
