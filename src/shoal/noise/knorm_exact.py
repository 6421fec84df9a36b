"""One attempt at a K-norm draw on Python's integers: the meaning of the compiled attempts.

An attempt has one word for each coordinate of the proposal and, beyond the line, one more that
decides whether it is kept. The upper 63 bits of a word begin a uniform real U, which is continued
with fresh words for as long as a comparison with a power of e is undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.rng import Rng
from shoal.core.value import Ints
from shoal.geometry.body import Body
from shoal.noise.exponential import exp_bounds
from shoal.noise.knorm_proposal import Proposal


@dataclass(slots=True, eq=False)
class Uniform:
    """A uniform real of which `bits` bits, the integer `prefix`, have been drawn."""

    prefix: int
    bits: int

    def below_exp(self, exponent: Fraction, rng: Rng) -> bool:
        """Whether U < exp(-exponent); each round of 64 bits fails with chance below 2^-61."""
        if exponent == 0:
            return True
        while True:
            low, high = exp_bounds(exponent, self.bits)
            if self.prefix + 1 <= low:
                return True
            if self.prefix >= high:
                return False
            self.prefix = self.prefix << 64 | int(rng.words(1)[0])
            self.bits += 64

    def below_scaled_exp(self, share: Fraction, exponent: Fraction, rng: Rng) -> bool:
        """Whether U < share·exp(-exponent), for a rational share > 0."""
        if exponent == 0:
            return self.below(share, rng)
        while True:
            low, high = exp_bounds(exponent, self.bits)
            if self.prefix + 1 <= share * low:
                return True
            if self.prefix >= share * high:
                return False
            self._extend(rng)

    def below(self, share: Fraction, rng: Rng) -> bool:
        """Whether U < share."""
        while True:
            if self.prefix + 1 <= share * 2**self.bits:
                return True
            if self.prefix >= share * 2**self.bits:
                return False
            self._extend(rng)

    def _extend(self, rng: Rng) -> None:
        """64 more bits of U."""
        self.prefix = self.prefix << 64 | int(rng.words(1)[0])
        self.bits += 64


def exact_attempt(
    words: Sequence[int], body: Body, epsilon: Fraction, proposal: Proposal, rng: Rng
) -> tuple[int, ...] | None:
    """The draw these words make, in coordinates of the span; None when the attempt is rejected.

    Discrete Laplace draws w of rates ε rate_j, kept with probability exp(-γ),
    γ = ε (|y|_K - Σ rate_j |w_j|) >= 0, because the diamond of the proposal contains K.
    """
    inner = []
    for word, rate in zip(words, proposal.rates, strict=False):
        magnitude = geometric(Uniform(word >> 1, 63), epsilon * rate, rng)
        if word & 1 and magnitude == 0:
            return None
        inner.append(-magnitude if word & 1 else magnitude)
    row = proposal.outward(inner)
    if body.dimension >= 2:
        gamma = epsilon * (_norm(body, row) - proposal.height(inner))
        if not Uniform(words[-1] >> 1, 63).below_exp(gamma, rng):
            return None
    return tuple(int(value) for value in row[0])


def geometric(uniform: Uniform, rate: Fraction, rng: Rng) -> int:
    """The largest k with U < exp(-rate k): P(G >= k) = exp(-rate k). By doubling and bisection."""
    low, high = 0, 1
    while uniform.below_exp(rate * high, rng):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if uniform.below_exp(rate * middle, rng):
            low = middle
        else:
            high = middle
    return low


def _norm(body: Body, row: Ints) -> Fraction:
    """The exact norm of a row of the span."""
    norms = body.inner_norm(row)
    return Fraction(int(norms.numerators[0]), int(norms.denominators[0]))
