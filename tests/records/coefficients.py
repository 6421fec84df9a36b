"""The coefficients ρ of single conditional laws, as Liu, Chakraborty & Mittal 2016 write them."""

from __future__ import annotations

import numpy as np

from shoal.core.codec import Floats
from shoal.records.coefficients import printed_loss, ratio_loss


def rho_exact(conditional: Floats, points: Floats, scale: float) -> Floats:
    """ρ_ij of Eq. (14): ratio_loss · σ / ΔD_j. 0 for independent records, 1 for copies."""
    return ratio_loss(conditional, points, scale) * scale / float(_distances(points).max())


def rho_printed(conditional: Floats, points: Floats, scale: float) -> Floats:
    """ρ_ij of Eq. (18) as printed: printed_loss · σ / ΔD_j.

    Not Eq. (14): at least 1/2 on an interval, and 1 for independent bits (ERRATA 002).
    """
    apart = _distances(points)
    return printed_loss(conditional, apart.max(axis=1), scale) * scale / float(apart.max())


def _distances(points: Floats) -> Floats:
    return np.asarray(np.abs(points[:, None, :] - points[None, :, :]).sum(axis=2))
