"""The largest ratio of two laws of one number, over all that may be released about it.

Whatever is released of a number F, by mechanisms that change by at most e^(decay·|c - c'|) between
F = c and F = c', has together a likelihood g(F) with that property: additive/same_answer.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce

import numpy as np

from shoal.additive.plans import eta_above
from shoal.additive.queries import LinearQuery, linear, weighted_sum
from shoal.core.codec import Floats
from shoal.core.task import EachEntry, Model, Query

ULP = 2.0**-52
CLOSE = 1e-13  # relative: where the bisection ends


def path_ratio(
    top: Floats, bottom: Floats, growth: Floats, *, roundings: float = 0.0, known: float = -math.inf
) -> float:
    """max over rows of sup over g of log Σ_j top[r, j] g_j / Σ_j bottom[r, j] g_j, or `known`.

    g > 0 with |log g_j+1 - log g_j| ≤ growth[j]. For a number λ the best g is found from the right:
    R_j = top_j - λ bottom_j + e^{±growth_j} R_j+1, with + when R_j+1 > 0; λ bounds the ratio iff
    R_0 ≤ 0. Every step rounds up, so a λ that passes is proved; λ is bisected and the upper end
    kept. Entries may be off by `roundings` relative errors of 2^-53. `known` comes back when it is
    larger; inf when some row of `bottom` is 0 and that of `top` is not.
    """
    alive = (top > 0).any(axis=1)
    top, bottom = top[alive], bottom[alive]
    if not len(top):
        return known
    if not (bottom > 0).any(axis=1).all():
        return math.inf
    masses = float((np.log(top.sum(axis=1)) - np.log(bottom.sum(axis=1))).max())
    low, high = max(known, masses - 1e-9), masses + float(growth.sum()) + 1e-9
    error = (roundings + 16) * ULP
    top, bottom = top * (1 + error), bottom * (1 - error)
    up, down = np.exp(growth) * (1 + 8 * ULP), np.exp(-growth) * (1 - 8 * ULP)
    if known > -math.inf and not _above(top, bottom, known, up, down).any():
        return known
    if _above(top, bottom, high, up, down).any():
        return math.inf
    while high - low > CLOSE * max(1.0, abs(high)):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        over = _above(top, bottom, middle, up, down)
        if over.any():  # the others stay below at every larger number
            low, top, bottom = middle, top[over], bottom[over]
        else:
            high = middle
    return high


def _above(
    top: Floats, bottom: Floats, log_ratio: float, up: Floats, down: Floats
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For which rows e^log_ratio is not proved to bound the ratio."""
    bound = math.exp(log_ratio) * (1 - 1e-12)
    reached = _raised(top[:, -1] - bound * bottom[:, -1])
    for j in range(top.shape[1] - 2, -1, -1):
        carried = reached * np.where(reached > 0, up[j], down[j])
        reached = _raised(top[:, j] - bound * bottom[:, j] + carried)
    return np.asarray(reached > 0)


def _raised(values: Floats) -> Floats:
    return np.asarray(values + np.abs(values) * ULP)


# What any number of releases tell that read the data through one and the same number.
#
# Proof: same_answer.md.


def one_number(query: Query) -> LinearQuery | None:
    """The sum that determines the answer of `query` on data of a public size, and no more.

    Weights are whole, from 0, without a common factor, and not turned round: equal for a count of
    either of two states, for their histogram, for a sum and its mean. None for other queries.
    """
    asked = linear(query)
    if asked is None:
        return None
    if len(asked.states) == 2:
        column = [0, 1]
    elif len(asked.labels) == 1:
        column = [row[0] for row in asked.multiples()]
    else:
        return None
    raised = [weight - min(column) for weight in column]
    divisor = reduce(math.gcd, raised)
    weights = [weight // divisor for weight in raised]
    least = min(weights, [max(weights) - weight for weight in weights])
    return weighted_sum(asked.states, dict(zip(asked.states, least, strict=True)))


def same_answer_loss(number: LinearQuery, model: Model, eta: Fraction) -> float:
    """What releases about `number`, together eta-DP for one entry, tell about one entry.

    Each must read all entries of the same data, and only through the answer. Rounds up; inf where
    it is not known.
    """
    laws = model.answer_laws(number, EachEntry())
    if isinstance(laws, str):
        return math.inf
    return laws.ratio(math.nextafter(eta_above(eta) / int(number.lipschitz), math.inf))
