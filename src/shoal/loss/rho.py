"""Dependence coefficients: how far one record's law moves when a tied record changes.

All functions take a stack of conditional laws, conditional[..., x, y] = P(D_j = y | D_i = x), and
work on a million of them at once; a row of zeros is a value that D_i never takes and counts for
nothing. Losses are in nats, and coefficients are losses over ΔD_j/σ, so that they lie in [0, 1].
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from shoal.core.errors import InputError
from shoal.core.value import Floats

UNIT = 2.0**-52
CHUNK = 4_000_000  # numbers worked on at once
MOST_OUTPUTS = 65_536
SAFE = 1e-280  # below it sums of exponentials are taken in logarithms


def ratio_loss(conditional: Floats, points: Floats, scale: float, *, width: float = 0.0) -> Floats:
    """sup over outputs o and pairs x, x' of log E[K(o - D_j) | x] / E[K(o - D_j) | x'].

    Eq. (14) of Liu, Chakraborty & Mittal 2016 with its supremum, K(u) = exp(-‖u‖₁/σ), σ = scale,
    points (k, coordinates) the values of D_j. The supremum is attained where every coordinate of
    o is that of some value (MATHS, section 2). `width` is the l1 width of the cells the values
    stand for; it adds width/σ, so that the result holds wherever in its cell a value lies.
    Rounds up.
    """
    outputs = _outputs(points)
    exponent = -np.abs(points[:, None, :] - outputs[None, :, :]).sum(axis=2) / scale
    laws = conditional.reshape(-1, *conditional.shape[-2:])
    found = np.empty(len(laws))
    step = max(1, CHUNK // max(laws.shape[1] * max(len(outputs), laws.shape[2]), 1))
    for start in range(0, len(laws), step):
        found[start : start + step] = _largest_gap(laws[start : start + step], exponent)
    slack = (4.0 * conditional.shape[-1] + 64.0) * UNIT * (1.0 + found)
    raised = np.where(found > slack, found + slack, 0.0)  # rows equal up to rounding are equal
    return np.asarray((raised + width / scale).reshape(conditional.shape[:-2]))


def printed_loss(conditional: Floats, radius: Floats, scale: float) -> Floats:
    """max over x of log Σ_y P(y | x) exp(radius(y)/σ): Eq. (18) times ΔD_j/σ.

    radius(y) is the distance from y to the value of D_j farthest from it. Rounds up.
    """
    top = float(radius.max())
    weights = np.exp((radius - top) / scale)
    mean = (conditional @ weights).max(axis=-1)
    # below SAFE the exponentials have underflowed: the largest radius is a bound all the same
    loss = np.where(mean < SAFE, 0.0, np.log(np.maximum(mean, SAFE))) + top / scale
    return np.asarray(np.maximum(loss, 0.0) + (4.0 * len(radius) + 64.0) * UNIT * (1 + top / scale))


def mean_radius(conditional: Floats, radius: Floats) -> Floats:
    """max over x of E[radius(D_j) | x], what Eq. (18) falls to as σ grows. Rounds up."""
    worst = (conditional @ radius).max(axis=-1)
    return np.asarray(worst * (1.0 + (2.0 * len(radius) + 8.0) * UNIT))


def rho_exact(
    conditional: Floats, points: Floats, scale: float, *, diameter: float | None = None
) -> Floats:
    """ρ_ij of Eq. (14): ratio_loss · σ / ΔD_j. 0 for independent records, 1 for copies."""
    return ratio_loss(conditional, points, scale) * scale / _diameter(points, diameter)


def rho_printed(
    conditional: Floats, points: Floats, scale: float, *, diameter: float | None = None
) -> Floats:
    """ρ_ij of Eq. (18) as printed: printed_loss · σ / ΔD_j.

    Not Eq. (14): at least 1/2 on an interval, and 1 for independent bits (ERRATA 002).
    """
    radius = np.abs(points[:, None, :] - points[None, :, :]).sum(axis=2).max(axis=1)
    return printed_loss(conditional, radius, scale) * scale / _diameter(points, diameter)


def _largest_gap(laws: Floats, exponent: Floats) -> Floats:
    """The largest log-ratio between two rows at any output, one per law."""
    seen = laws @ np.exp(exponent)
    never = ~(laws.sum(axis=2) > 0)
    least = np.where(never[:, :, None], math.inf, seen).min(axis=1) if never.any() else seen.min(1)
    if least.min() < SAFE:
        return np.array([_careful_gap(law, exponent) for law in laws])
    return np.asarray(np.log(seen.max(axis=1) / least).max(axis=1))


def _careful_gap(law: Floats, exponent: Floats) -> float:
    """The same for one law in logarithms, where exp(-distance/σ) underflows."""
    possible = law[law.sum(axis=1) > 0]
    with np.errstate(divide="ignore"):
        logs = np.log(possible)
    seen = np.logaddexp.reduce(logs[:, :, None] + exponent[None, :, :], axis=1)
    return float(np.ptp(seen, axis=0).max())


def _outputs(points: Floats) -> Floats:
    """The product grid of the coordinates of all values."""
    axes = [np.unique(points[:, axis]) for axis in range(points.shape[1])]
    count = math.prod(len(axis) for axis in axes)
    if count > MOST_OUTPUTS:
        raise InputError(
            f"the supremum of Eq. (14) is over {count} outputs; at most {MOST_OUTPUTS} are tried"
        )
    if len(axes) == 1:
        return axes[0][:, None]
    return np.array(list(product(*(axis.tolist() for axis in axes))))


def _diameter(points: Floats, diameter: float | None) -> float:
    if diameter is not None:
        return diameter
    apart = float(np.abs(points[:, None, :] - points[None, :, :]).sum(axis=2).max())
    if apart == 0:
        raise InputError("all values are the same, so there is nothing to depend on")
    return apart
