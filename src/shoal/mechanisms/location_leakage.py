"""What all outputs of a stream tell about one position: scalar bounds that a live step can keep."""

from __future__ import annotations

import math

import numpy as np

from shoal.core.value import Floats
from shoal.models.filter import FarLaw, Motion

MOST_STATES = 64  # beyond, a position is taken to give its predecessor away entirely
MARGIN = 1 + 1e-9


class Forgetting:
    """How much of what was known about the last position carries over to the current one.

    factor(t) = max over x, x' of the total variation distance between P(X_{t-1} | X_t = x) and
    P(X_{t-1} | X_t = x'), over the x, x' possible under the chain and its first law, rounded up; 1
    when chains are large (sparse maps always have two positions with no common predecessor).
    Computed once per step and kept: it does not depend on outputs.
    """

    def __init__(self, motion: Motion) -> None:
        self._motion = motion
        self._marginal = FarLaw.of(motion.begin())
        self._factors: list[float] = [0.0]
        self._followed = motion.hidden <= MOST_STATES and motion.memory == 1

    def factor(self, step: int) -> float:
        """The factor into `step` (from 0); nothing comes before the first."""
        if not self._followed:
            return 1.0
        while step >= len(self._factors):
            self._advance(len(self._factors))
        return self._factors[step]

    def _advance(self, step: int) -> None:
        self._marginal, logs = self._marginal.moved(self._motion.rows(step))
        with np.errstate(under="ignore"):
            backward = np.exp(logs[:, self._marginal.possible])
        # distances of rows whose entries are known up to this share, and sums of n terms
        error = (step + 2) * (len(backward) + 4) * 2.0**-51
        self._factors.append(min(1.0, _largest_distance(backward.T) + error))


def carried(before: float, factor: float) -> float:
    """Λ ≤ log(1 + τ (e^g - 1)), and ≤ g: what a bound g about X_{t-1} says about X_t.

    g = before, τ = factor. For weights v in [1, e^g] and laws p, p' at distance τ the ratio
    Σ p v / Σ p' v is largest when p' puts no mass where v is e^g. MATHS, section 3. Rounds up.
    """
    if before <= 0 or factor <= 0:
        return 0.0
    if factor >= 1 or math.isinf(before):
        return before
    if before < 700:
        grown = math.log1p(factor * math.expm1(before))
    else:
        grown = float(np.logaddexp(0.0, before + math.log(factor)))
    return min(before, grown * MARGIN)


def _largest_distance(rows: Floats) -> float:
    """max over pairs of rows of ½ Σ |p - p'|."""
    largest = 0.0
    for row in rows:
        largest = max(largest, float(np.abs(rows - row).sum(axis=1).max()) / 2)
    return largest
