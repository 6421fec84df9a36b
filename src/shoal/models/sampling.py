"""Random draws from a model, for synthetic data and attacks; private noise lives in `noise`."""

from __future__ import annotations

import numpy as np

from shoal.core.rng import Rng
from shoal.core.value import Floats


def uniforms(count: int, rng: Rng) -> Floats:
    """`count` numbers in [0, 1) on the lattice of 2^-53."""
    return (rng.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def categorical(law: Floats, uniform: float) -> int:
    """The state whose slice of [0, 1) holds `uniform`; never one of probability 0."""
    cumulative = np.cumsum(law)
    chosen = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(chosen, int(np.flatnonzero(law)[-1]))
