"""Noise on the whole numbers whose law falls in steps: the law, its errors, and exact draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from shoal.core.charge import Rng
from shoal.core.errors import InputError
from shoal.noise.primitives import exp_bounds, geometric, least_whole, uniform_below

STEEPEST = 1000  # a fall beyond which all mass but e^-1000 of it is level: no double tells it apart


@dataclass(frozen=True, slots=True)
class SteppedNoise:
    """A whole number Z with P(Z = z) proportional to exp(-fall · floor((|z| + lead) / width)).

    The numbers fall into blocks: block 0 holds the 2 (width - lead) - 1 nearest to 0, and each
    block after it the next `width` on either side, every one exp(-fall) times as likely as one of
    the block before. width = 1 is discrete Laplace noise of scale 1 / fall.
    """

    fall: Fraction
    width: int
    lead: int

    def __post_init__(self) -> None:
        """Refuse a fall outside (0, STEEPEST], a width below 1, and a lead outside [0, width)."""
        if type(self.fall) is not Fraction or not 0 < self.fall <= STEEPEST:
            raise InputError(f"fall is {self.fall!r}; it must be a Fraction in (0, {STEEPEST}]")
        if type(self.width) is not int or self.width < 1:
            raise InputError(f"width is {self.width!r}; it must be a whole number above 0")
        if type(self.lead) is not int or not 0 <= self.lead < self.width:
            raise InputError(f"lead is {self.lead!r}; it must be 0 or more and below the width")

    def draw(self, rng: Rng) -> int:
        """One draw, with exactly the stated law.

        A block j with P(j) ∝ exp(-fall·j) and one of 2·width places in it, each as likely; block 0
        has fewer numbers, and a place beyond them is drawn again together with its block. Every
        number is one pair of a block and a place, so what is kept has the stated law.
        """
        near = self.width - self.lead
        while True:
            block = geometric(self.fall.numerator, self.fall.denominator, rng)
            place = uniform_below(2 * self.width, rng)
            if block:
                magnitude = block * self.width - self.lead + place % self.width
                return magnitude if place < self.width else -magnitude
            if place < 2 * near - 1:
                return place - (near - 1)

    def ratio_between(self, distance: int) -> Fraction:
        """max over z and |d| ≤ distance of log P(z) / P(z + d): fall · ceil(distance / width)."""
        return self.fall * -(-distance // self.width)

    def log_weight(self, z: int) -> Fraction:
        """log P(z) but for the constant of all z."""
        return -self.fall * ((abs(z) + self.lead) // self.width)

    def log_probability(self, z: int) -> float:
        """log P(Z = z) to about 1e-14, relatively."""
        near, beyond = self._parts()
        return float(self.log_weight(int(z))) - math.log(near + beyond)

    def pmf(self, z: int) -> float:
        """P(Z = z) as a float, for plots and tests; draws never use it."""
        return math.exp(self.log_probability(z))

    def expected_error(self) -> float:
        """E|Z|, within 1e-12 of it relatively."""
        return mean_magnitude(float(self.fall), self.width, self.lead)

    def quantile(self, confidence: float | Fraction) -> int:
        """The smallest m with P(|Z| <= m) >= confidence, exactly; 0 <= confidence < 1."""
        tail = 1 - Fraction(confidence) if math.isfinite(confidence) else Fraction(0)
        if not 0 < tail <= 1:
            raise ValueError(
                f"confidence is {confidence}; it must lie in [0, 1) "
                "(no finite error bound holds with certainty)"
            )
        return _magnitude_for(self, tail)

    def _parts(self) -> tuple[float, float]:
        """How much block 0, and all others together, weigh."""
        q = math.exp(-float(self.fall))
        rest = q / -math.expm1(-float(self.fall))
        return 2.0 * (self.width - self.lead) - 1, 2.0 * self.width * rest


def mean_magnitude(fall: float, width: int, lead: int) -> float:
    """E|Z| of such a law. With r = q/(1-q), q = e^-fall, and n = width - lead:

    (n (n-1) + 2 width r (n + width r + (width - 1)/2)) / (2n - 1 + 2 width r).
    It falls as `fall` grows: mass moves to smaller magnitudes.
    """
    near = width - lead
    rest = math.exp(-fall) / -math.expm1(-fall)
    beyond = 2.0 * width * rest * (near + width * rest + (width - 1) / 2)
    return (near * (near - 1.0) + beyond) / (2.0 * near - 1 + 2.0 * width * rest)


@lru_cache(maxsize=256)
def _magnitude_for(noise: SteppedNoise, tail: Fraction) -> int:
    """The smallest m with P(|Z| > m) at most `tail`: every release of a plan asks for the same."""
    return least_whole(lambda m: _tail_at_most(noise, m, tail))


def _tail_at_most(noise: SteppedNoise, m: int, tail: Fraction) -> bool:
    """Whether P(|Z| > m) <= tail, decided by bounds on q = exp(-fall) and its powers.

    m is in block j, and r of the block's magnitudes are larger:
    2 r q^j (1 - q) + 2 width q^(j+1) <= tail (near (1 - q) + 2 width q), near = 2 (width-lead) - 1.
    The two sides are different polynomials in q, which is transcendental: finer bounds decide.
    """
    width, near = noise.width, 2 * (noise.width - noise.lead) - 1
    block = (m + noise.lead) // width
    larger = (block + 1) * width - noise.lead - 1 - m
    precision = 128
    while True:
        one = 1 << precision
        low_q, high_q = exp_bounds(noise.fall, precision)
        low_power, high_power = exp_bounds(noise.fall * block, precision)
        # both sides grow with q and with the power: 2 width >= 2 larger, and >= near
        left = [
            2 * power * (larger * (one - q) + width * q)
            for power, q in ((low_power, low_q), (high_power, high_q))
        ]
        right = [tail * one * (near * (one - q) + 2 * width * q) for q in (low_q, high_q)]
        if left[1] <= right[0]:
            return True
        if left[0] > right[1]:
            return False
        precision *= 2
