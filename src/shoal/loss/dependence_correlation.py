"""Correlations of tied records, for the correlated sensitivity of Zhu et al."""

from __future__ import annotations

import numpy as np

from shoal.core.value import Floats
from shoal.loss.dependence import tie_sums
from shoal.models.dependence import Dependence


def correlations(model: Dependence) -> Floats:
    """|δ| of each directed law: the largest Pearson correlation of any coordinate, in [0, 1].

    Values are the centres of their cells; a coordinate that does not vary has correlation 0.
    """
    both = np.concatenate([model.laws, model.laws.transpose(0, 2, 1)])
    centres = model.domain.centres
    best = np.zeros(len(both))
    for axis in range(centres.shape[1]):
        v = centres[:, axis]
        one, two = both.sum(axis=2), both.sum(axis=1)
        mean = (one @ v)[:, None] - v, (two @ v)[:, None] - v
        spread = np.sqrt((one * mean[0] ** 2).sum(1) * (two * mean[1] ** 2).sum(1))
        together = np.einsum("mx,mxy,my->m", mean[0], both, mean[1])
        share = np.divide(together, spread, out=np.zeros_like(spread), where=spread > 1e-300)
        best = np.maximum(best, np.abs(share))
    return np.minimum(best, 1.0)


def correlated_sensitivities(model: Dependence, own: float, threshold: float) -> Floats:
    """Σ_j |δ_ij| ΔQ over the ties of each record i and itself; |δ| below the threshold is 0.

    Zhu, Xiong, Li & Zhou 2015, correlated sensitivity. No promise follows from it.
    """
    share = correlations(model)
    return own * (1.0 + tie_sums(model, np.where(share >= threshold, share, 0.0)))
