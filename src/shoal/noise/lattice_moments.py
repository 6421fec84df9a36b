"""Mean squared noise on a coarse lattice, summed up point by point."""

from __future__ import annotations

import math

import numpy as np

from shoal.geometry.body import Body
from shoal.noise.emission import LatticeNoise

MOST_POINTS = 2**18  # beyond it the continuous law serves: the lattice is fine, or d is large
NEGLIGIBLE = 40.0  # norms beyond this over epsilon weigh less than 1e-17


def lattice_mse(noise: LatticeNoise, body: Body) -> float | None:
    """E|z|² of noise that falls with the norm of `body`, to ten digits; None: too many points.

    Sums over the lattice points of the span with norm at most (40 + 4 d')/ε + 1, boxed.
    """
    d = body.dimension
    if d == 0:
        return 0.0
    reach = (NEGLIGIBLE + 4 * d) / float(noise.epsilon) + 1
    sides = [math.ceil(reach * int(np.abs(body.flat[:, axis]).max())) for axis in range(d)]
    if math.prod(2 * side + 1 for side in sides) > MOST_POINTS:
        return None
    axes = [np.arange(-side, side + 1) for side in sides]
    inner = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    points = body.span.vectors(inner).astype(np.int64)
    weights = np.exp(noise.log_weights(points))
    return float(weights @ (points.astype(np.float64) ** 2).sum(axis=1) / weights.sum())
