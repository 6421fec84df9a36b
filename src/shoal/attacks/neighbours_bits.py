"""Leaked information in bits, and how much of it a budget allows."""

from __future__ import annotations

import math

import numpy as np

from shoal.core.value import Floats


def entropy_bits(law: Floats) -> float:
    """H = -Σ p log2 p; 0 log 0 is 0."""
    seen = law[law > 0]
    return float(-(seen * np.log2(seen)).sum())


def gain_bits(after: Floats, before: Floats) -> float:
    """Σ after · log2(after / before): what an observation added to a belief. inf from nothing.

    For an ε-DP release and an adversary who knows everybody else it is at most ε·log2 e for *every*
    output, since no belief then grows by more than e^ε.
    """
    seen = after > 0
    if (before[seen] == 0).any():
        return math.inf
    return float((after[seen] * np.log2(after[seen] / before[seen])).sum())


def bits_allowed(epsilon: float) -> float:
    """ε·log2 e: the most bits an ε-DP release tells, in expectation over its outputs.

    Liu et al. 2016, Theorem 2, prints ε: that is the bound in nats. The mutual information between
    one record and the output, all other records known, is the mean of log ratios of at most ε.
    """
    return epsilon * math.log2(math.e)


def largest_fall_bits(prior: Floats, epsilon: float) -> float:
    """The most the entropy of a belief can fall after one single output of an ε-DP release.

    max over r in [1, e^ε]^k of H(prior) - H(prior·r / Σ prior·r). It may exceed ε·log2 e: only
    the mean over outputs is bounded so. Entropy is concave along each coordinate of r, so r is 1
    or e^ε everywhere, and moving mass to likelier values only lowers it: r = e^ε on a prefix of the
    values sorted from likely to unlikely. 0 at least: the output may be one that tells nothing.
    """
    law = np.sort(prior[prior > 0])[::-1]
    boost = math.exp(min(epsilon, 700.0))
    head = np.cumsum(law)
    # with mass m = Σ p r:  H = log2 m - (1/m) Σ p r log2(p r)
    heavy = np.cumsum(boost * law * (np.log2(law) + math.log2(boost)))
    plain = law * np.log2(law)
    light = plain.sum() - np.cumsum(plain)
    mass = boost * head + (head[-1] - head)
    entropies = np.log2(mass) - (heavy + light) / mass
    return max(0.0, entropy_bits(law / law.sum()) - float(entropies.min()))
