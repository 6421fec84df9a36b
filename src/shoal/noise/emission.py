"""What a location stream asks of noise: a public law of the output given the hidden state.

`EmissionLaw` is the one interface behind which K-norm noise (the planar isotropic mechanism),
the staircase, lattice Laplace noise and the graph-exponential laws are interchangeable. Everything
is in lattice units: states answer with integer points, outputs are integer points.

    law = LatticeEmission(points=answers, noise=LatticeKNorm(body=body, epsilon=Fraction(1)))
    z = law.draw(state, rng)                 # released, in lattice units
    posterior = prior * exp(law.log_likelihood(z)), normalised

Guarantee: sup over z of log q(z|s) / q(z|s') is at most `law.log_ratio(s, s')`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.rng import Rng


class LatticeNoise(Protocol):
    """Noise on Z^d added to the answer: exact draws, weights, and what a shift of it gives away."""

    @property
    def epsilon(self) -> Fraction: ...

    def draw(self, rng: Rng) -> tuple[int, ...]:
        """One draw, with exactly the stated law."""
        ...

    def draws(self, count: int, rng: Rng) -> Ints:
        """`count` independent draws, one a row."""
        ...

    def log_weights(self, vectors: Ints) -> Floats:
        """log P(z) of each row up to one constant; -inf where the noise never goes."""
        ...

    def log_ratios(self, shifts: Ints) -> Floats:
        """sup over z of log P(z) / P(z - v), for each row v; rounded up, inf if unbounded."""
        ...

    @property
    def mse(self) -> float:
        """E|z|² in squared lattice units."""
        ...


class EmissionLaw(Protocol):
    """q(z | s) for every state s = 0, 1, …, known to everybody."""

    @property
    def points(self) -> Ints:
        """(states, d): the answer of each state in lattice units."""
        ...

    def draw(self, state: int, rng: Rng) -> tuple[int, ...]:
        """One output given the state, with exactly the stated law."""
        ...

    def log_likelihood(self, output: Sequence[int]) -> Floats:
        """log q(output | s) of every state, up to one constant for all; -inf when impossible."""
        ...

    def log_ratio(self, first: int, second: int) -> float:
        """An upper bound on sup over z of |log q(z|first) - log q(z|second)|."""
        ...

    def expected_error(self, prior: Floats) -> float:
        """√E|z - f(s)|² with s drawn from the prior: of the raw output, in lattice units."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatticeEmission:
    """z = points[s] + noise.

    The normaliser of the noise does not depend on the state, so weights are likelihoods. Give a
    state outside a location set the point of its surrogate: it emits as its surrogate does.
    """

    points: Ints
    noise: LatticeNoise

    def draw(self, state: int, rng: Rng) -> tuple[int, ...]:
        """points[state] + one draw of the noise."""
        drawn = self.noise.draw(rng)
        return tuple(map(operator.add, self.points[state].tolist(), drawn))

    def log_likelihood(self, output: Sequence[int]) -> Floats:
        """log weight of output - points[s] for every state s."""
        return self.noise.log_weights(difference_rows(output, self.points))

    def log_ratio(self, first: int, second: int) -> float:
        """What the noise gives away about the shift between the two answers."""
        shift = (self.points[first] - self.points[second])[None, :]
        return float(self.noise.log_ratios(shift)[0])

    def expected_error(self, prior: Floats) -> float:
        """√E|noise|², whatever the prior."""
        return math.sqrt(self.noise.mse)


def difference_rows(output: Sequence[int], points: Ints) -> Ints:
    """output - points, one row a state; Python's integers when the output is beyond 62 bits."""
    values = [int(value) for value in output]
    if all(abs(value) < 2**62 for value in values):
        return np.array(values, dtype=np.int64)[None, :] - points
    return np.asarray(np.array(values, dtype=object)[None, :] - points.astype(object))
