"""Staircase noise on a lattice: the K-norm law in steps, for larger epsilon.

P(z) ∝ exp(-ε ⌊|z|_K + 1 - width⌋). Moving the answer by v with |v|_K <= 1 moves the norm by at
most 1, hence the floor by at most 1: ε for every policy edge. Between edges the loss goes up in
whole steps, ε ⌈|v|_K⌉: pairs that are not neighbours are protected less than by K-norm noise.
Geng & Viswanath 2014 in one dimension; here in the norm of a body. The proof is in KNORM.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np

from shoal.core.charge import Rng
from shoal.core.codec import Floats, Ints, Value
from shoal.core.errors import InputError
from shoal.core.numbers import exact, positive, whole
from shoal.geometry.body import Body
from shoal.geometry.span import Norms
from shoal.noise.knorm import LatticeKNorm, Uniform
from shoal.noise.primitives import lattice_mse

WIDTHS = 64  # widths tried: 1/64, 2/64, …, 1
FLAT = 2.0**-10  # below this epsilon steps are so low that the K-norm law's moments serve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staircase(Value):
    """Noise with P(z) ∝ exp(-epsilon ⌊|z|_K + 1 - width⌋), 0 < width <= 1."""

    body: Body
    epsilon: Fraction
    width: Fraction
    source: LatticeKNorm = field(init=False, repr=False, metadata={"stored": False})

    def __post_init__(self) -> None:
        width = exact(self.width, "width")
        if not 0 < width <= 1:
            raise InputError(f"width is {width}; it must be above 0 and at most 1")
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "width", width)
        rate = min(self.epsilon, max(1, self.body.dimension) / width)
        object.__setattr__(self, "source", LatticeKNorm(body=self.body, epsilon=rate))

    @classmethod
    def best(cls, body: Body, epsilon: Fraction) -> Staircase:
        """The width of least mean squared error of the continuous law, among 1/64, …, 1."""
        width = best_width(positive(epsilon, "epsilon"), body.dimension)
        return cls(body=body, epsilon=epsilon, width=width)

    def draw(self, rng: Rng) -> tuple[int, ...]:
        """One draw with exactly the stated law."""
        return tuple(int(value) for value in self.draws(1, rng)[0])

    def draws(self, count: int, rng: Rng) -> Ints:
        """`count` draws: K-norm draws of rate ε' kept with chance exp(-(ε k - ε' (r - width))).

        r = |z|_K, k = ⌊r + 1 - width⌋, ε' = min(ε, d/width). The exponent is not negative, because
        r < k + width and ε' <= ε; with ε' = d/width a share that does not depend on ε is kept.
        """
        rows: list[Ints] = []
        found = 0
        while found < whole(count, "count", least=0):
            drawn = self.source.draws(count - found, rng)
            kept = drawn[self._kept(drawn, rng)]
            rows.append(kept)
            found += len(kept)
        return np.concatenate(rows) if rows else np.zeros((0, self.body.ambient), dtype=np.int64)

    def _kept(self, drawn: Ints, rng: Rng) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which K-norm draws stay: by floats where they are clear, else by more bits, exactly."""
        norms = self.body.norm(drawn)
        steps = self._steps(norms)
        words = (rng.words(len(drawn)) >> np.uint64(1)).astype(np.int64)
        ratio = norms.numerators.astype(np.float64) / norms.denominators.astype(np.float64)
        high, low = float(self.epsilon), float(self.source.epsilon)
        exponent = high * steps.astype(np.float64) + low * (float(self.width) - ratio)
        slack = 2.0**-40 * (1 + high * (2 + ratio))
        chance = np.exp(-np.maximum(exponent, 0.0))
        drawn_at = words.astype(np.float64) * 2.0**-63
        kept = drawn_at < chance
        close = np.abs(drawn_at - chance) <= slack
        for place in np.flatnonzero(close):
            norm = norms.fraction(int(place))
            assert norm is not None
            gamma = self.epsilon * int(steps[place]) + self.source.epsilon * (self.width - norm)
            kept[place] = Uniform(int(words[place]), 63).below_exp(gamma, rng)
        return kept

    def _steps(self, norms: Norms) -> Ints:
        """⌊r + 1 - width⌋, exact: r = q + f with 0 <= f < 1 gives q, and one more if f >= width."""
        below = np.where(norms.denominators > 0, norms.denominators, 1)
        quotient = norms.numerators // below  # Python's integers beyond the plane
        rest = norms.numerators - quotient * below
        share = rest.astype(np.float64) / below.astype(np.float64)
        further = share >= float(self.width)
        for place in np.flatnonzero(np.abs(share - float(self.width)) < 1e-12):
            further[place] = Fraction(int(rest[place]), int(below[place])) >= self.width
        return np.asarray(quotient + further)

    def log_weights(self, vectors: Ints) -> Floats:
        """-epsilon ⌊|z|_K + 1 - width⌋ of each row; -inf outside the span."""
        norms = self.body.norm(vectors)
        steps = self._steps(norms).astype(np.float64)
        return np.where(norms.denominators > 0, -float(self.epsilon) * steps, -np.inf)

    def log_ratios(self, shifts: Ints) -> Floats:
        """epsilon ⌈|v|_K⌉ of each row, rounded up; inf outside the span."""
        norms = self.body.norm(shifts)
        below = np.where(norms.denominators > 0, norms.denominators, 1)
        steps = -(-norms.numerators // below)
        ratios = np.nextafter(float(self.epsilon) * steps.astype(np.float64), np.inf)
        return np.where(norms.denominators > 0, ratios, np.inf)

    @property
    def mse(self) -> float:
        """E|z|², in squared lattice units; of the continuous law when there are too many points."""
        on_lattice = lattice_mse(self, self.body)
        if on_lattice is not None:
            return on_lattice
        d = self.body.dimension
        radial = radial_moment(float(self.epsilon), float(self.width), d)
        return float(self.body.second_moment) * (d + 2) / d * radial


def radial_moment(epsilon: float, width: float, dimension: int) -> float:
    """E r² of the norm r of continuous staircase noise, density ∝ r^(d-1) exp(-ε⌊r + 1 - width⌋).

    Step k covers [k - 1 + width, k + width), the first one [0, width). E|z|² = E r² (d+2)/d E_K|u|²
    because z/r is distributed as a uniform point's direction, whose norm has E r² = d/(d+2).
    Below FLAT d(d+1)/ε², that of the density r^(d-1) exp(-ε r), from which it differs by a share
    of at most e^(2ε) - 1.
    """
    d = dimension
    if epsilon < FLAT:
        return d * (d + 1) / epsilon**2
    k = np.arange(0, math.ceil(60 / epsilon) + 2, dtype=np.float64)
    low, high = np.maximum(k - 1 + width, 0.0), k + width
    weight = np.exp(-epsilon * k)
    mass = (weight * (high**d - low**d)).sum() / d
    second = (weight * (high ** (d + 2) - low ** (d + 2))).sum() / (d + 2)
    return float(second / mass)


@lru_cache(maxsize=256)
def best_width(epsilon: Fraction, dimension: int) -> Fraction:
    """The width of least E r² among 1/64, 2/64, …, 1; 1/2 below FLAT, where all are alike."""
    if epsilon < FLAT:
        return Fraction(1, 2)
    widths = [Fraction(k, WIDTHS) for k in range(1, WIDTHS + 1)]
    dimension = max(1, dimension)
    return min(widths, key=lambda width: radial_moment(float(epsilon), float(width), dimension))
