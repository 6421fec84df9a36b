"""K-norm noise on a lattice: the planar isotropic mechanism, exactly.

P(z) ∝ exp(-ε |z|_K) on the lattice points of the span of K. The normaliser does not depend on
where the noise is added, so by the triangle inequality moving the answer by v changes any
probability by a factor of at most exp(ε |v|_K): exactly ε for every policy edge. The planar
isotropic mechanism of Xiao & Xiong 2015 is this law: its transform T changes nothing, because
T⁻¹ of a uniform point of TK is a uniform point of K. The proof is in KNORM.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from shoal.core.numbers import positive, whole
from shoal.core.rng import Rng
from shoal.core.value import Floats, Ints, Value
from shoal.geometry.body import Body
from shoal.geometry.integers import VECTOR_LIMIT, largest
from shoal.noise.knorm_batch import compiled_draws, exact_draws
from shoal.noise.knorm_proposal import Proposal, proposal_for
from shoal.noise.lattice_moments import lattice_mse


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatticeKNorm(Value):
    """Noise z on the lattice points of the span of `body`, P(z) ∝ exp(-epsilon |z|_K)."""

    body: Body
    epsilon: Fraction
    proposal: Proposal = field(init=False, repr=False, metadata={"stored": False})

    def __post_init__(self) -> None:
        amount = positive(self.epsilon, "epsilon")
        object.__setattr__(self, "epsilon", amount)
        object.__setattr__(self, "proposal", proposal_for(self.body))

    def draw(self, rng: Rng) -> tuple[int, ...]:
        """One draw with exactly the stated law, in lattice units."""
        return tuple(self._draws(1, rng)[0].tolist())

    def draws(self, count: int, rng: Rng) -> Ints:
        """`count` independent draws, one a row; Python's integers when one exceeds 62 bits."""
        return self._draws(whole(count, "count", least=0), rng)

    def _draws(self, count: int, rng: Rng) -> Ints:
        match self.body.dimension:
            case 0:
                return np.zeros((count, self.body.ambient), dtype=np.int64)
            case 1 | 2:
                inner = compiled_draws(self.body, self.epsilon, self.proposal, count, rng)
            case _:
                inner = exact_draws(self.body, self.epsilon, self.proposal, count, rng)
        return self.body.span.vectors(inner)

    def log_weight(self, z: tuple[int, ...]) -> float:
        """-epsilon |z|_K as a float; -inf outside the span."""
        return float(self.log_weights(np.array([z], dtype=np.int64))[0])

    def log_weights(self, vectors: Ints) -> Floats:
        """-epsilon |z|_K of each row, within a relative 2^-50; -inf outside the span."""
        if self.body.ambient == self.body.dimension == 2 and largest(vectors) <= VECTOR_LIMIT:
            from shoal.noise.knorm_kernels import norms_of

            return np.asarray(-float(self.epsilon) * norms_of(self.body.flat, vectors))
        return -float(self.epsilon) * self.body.norm_upper(vectors)

    def log_ratios(self, shifts: Ints) -> Floats:
        """epsilon |v|_K of each row, rounded up; inf outside the span."""
        ratios: Floats = np.nextafter(float(self.epsilon) * self.body.norm_upper(shifts), np.inf)
        return ratios

    @property
    def mse(self) -> float:
        """E|z|², in squared lattice units; of the continuous law when there are too many points."""
        on_lattice = lattice_mse(self, self.body)
        return float(self.body.mse(self.epsilon)) if on_lattice is None else on_lattice


def noise_of(body: Body, epsilon: Fraction) -> LatticeKNorm:
    """The noise of an epsilon known to be one: skips the check of the constructor."""
    noise = object.__new__(LatticeKNorm)
    object.__setattr__(noise, "body", body)
    object.__setattr__(noise, "epsilon", epsilon)
    object.__setattr__(noise, "proposal", proposal_for(body))
    return noise
