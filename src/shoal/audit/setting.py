"""What was released, in the numbers an audit works with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np

from shoal.audit.result import TOLERANCE
from shoal.core.additive import Noise
from shoal.core.task import Model, Secrets
from shoal.core.value import Floats, Ints
from shoal.noise.zero_sum import ZeroSumLaplace
from shoal.queries.linear import LinearQuery
from shoal.queries.variables import VariableSum

CLOSE = 1.01  # an upper bound this close above the promise is worth a second look
WIDEST = 2**40  # lattice steps one entry may add where sums are counted one by one


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """One member of a family, and noise on a linear query about data it may describe.

    `known` is an upper bound on the loss that somebody has certified already (inf: none), and
    `promised` the claim, which only decides how hard to look. `curve` asks for the densities.
    """

    query: LinearQuery | VariableSum
    noise: Noise
    secrets: Secrets
    model: Model
    index: int = 0
    known: float = math.inf
    promised: float | None = None
    curve: bool = False

    def close(self, upper: float) -> bool:
        """Whether an upper bound is so little above the promise that a second look is worth it."""
        promised = self.promised
        return promised is not None and promised * (1 + TOLERANCE) < upper <= CLOSE * promised

    @property
    def finer(self) -> int:
        """Outputs to look at between two neighbouring answers, and one more.

        1 for independent noise, whose worst outputs are answers. Noise that keeps a total may be
        worst anywhere on its own lattice.
        """
        zero_sum = isinstance(self.noise, ZeroSumLaplace)
        return int(self.query.lattice / self.noise.step) if zero_sum else 1

    @property
    def step(self) -> Fraction:
        """The lattice that answers and outputs are counted on."""
        return self.query.lattice / self.finer

    @property
    def wide(self) -> bool:
        """Whether sums of the weights, in lattice steps, would leave the integers of a machine."""
        widest = max(abs(step) for row in self.query.multiples() for step in row)
        return widest * self.finer > WIDEST

    @property
    def weights(self) -> Floats:
        """`multiples` as numbers, however large."""
        rows = [[float(step) for step in row] for row in self.query.multiples()]
        return self.finer * np.array(rows, dtype=np.float64)

    @property
    def multiples(self) -> Ints:
        """What each value of an entry adds, (values, labels), in lattice steps."""
        return self.finer * np.array(self.query.multiples(), dtype=np.int64)

    @property
    def scale(self) -> float:
        """The scale of the noise in lattice steps."""
        return float(self.noise.scale / self.step)

    @property
    def eta(self) -> Fraction:
        """Entry-level DP: Lipschitz constant over scale."""
        return Fraction(self.query.lipschitz / self.noise.scale)

    def output(self, steps: Floats, entries: int) -> tuple[float, ...]:
        """Codes counted from the least possible answer, as answers in the query's own units.

        `steps` are multiples of the lattice above the least answer of `entries` entries.
        """
        least = self.weights.min(axis=0) * entries
        return tuple(float(value) for value in (steps + least) * float(self.step))


def coprime(weights: Ints) -> tuple[Ints, int]:
    """Weights less their least, divided by their greatest common divisor, and that divisor."""
    low: Ints = weights - weights.min()
    divisor = reduce(math.gcd, low.ravel().tolist(), 0) or 1
    return low // divisor, divisor
