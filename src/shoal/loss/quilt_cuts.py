"""The cheapest quilt of a node with many values, by a few pairs of them: cutting planes.

For one pair of values w = (x, x') the influence of a quilt is at least B_a(w) + F_b(w), one number
a side. A quilt beats the best so far only if e < alpha - beta·|N|, so only if B_a(w) + beta·a and
F_b(w) + beta·b are small together, for every w: that rules out all but a few lags on each side. The
quilt that looks cheapest is then evaluated over all pairs; if its influence was underestimated, the
pair that attains it joins the list.
"""

from __future__ import annotations

import numpy as np

from shoal.core.value import Floats
from shoal.loss.quilt_cost import Search, Side

MOST_LAGS = 4096  # longer sides are left to branch and bound
MOST_ROUNDS = 64
KEPT = 512  # lags a side compared at once; the most promising ones when there are more
RESOLUTION = 1e-11  # share of the budget below which an improvement does not count


def finish_by_cuts(search: Search, enough: float) -> bool:
    """Improve `search.best` until nothing is cheaper, or than `enough`; False when given up."""
    for _ in range(MOST_ROUNDS):
        limit = search.limit() + 1.0
        last = search.left.within(limit), search.right.within(limit)
        if min(last) == 0 or search.best.cost <= enough:
            return True
        if max(last) > MOST_LAGS:
            return False
        found = search.influence.witnessed(
            min(last[0], search.left.real), min(last[1], search.right.real)
        )
        if found is None:
            return False
        alpha, beta = search.cost.line(search.best.cost)
        before = _priced(search.left, last[0], found[0], beta)
        after = _priced(search.right, last[1], found[1], beta)
        target = alpha * (1.0 - RESOLUTION) + beta
        position, complete = _most_promising(before, after, target)
        if position is None:
            return complete
        search.offer(*position)
    return False


def _priced(side: Side, last: int, influences: Floats, beta: float) -> Floats:
    """Influence plus beta times lag, for positions 1..last (rows) and each pair (columns)."""
    lags = np.arange(1.0, last + 1.0)
    lags[-1] = side.lag(last)
    if last > len(influences):  # the absent end-point has no influence
        influences = np.concatenate((influences, np.zeros((1, influences.shape[1]))))
    return np.asarray(influences + beta * lags[:, None])


def _most_promising(
    before: Floats, after: Floats, target: float
) -> tuple[tuple[int, int] | None, bool]:
    """The positions whose bound lies deepest below `target`, and whether all were compared."""
    left_best = (before + after.min(axis=0)).max(axis=1)
    right_best = (after + before.min(axis=0)).max(axis=1)
    left, right = np.flatnonzero(left_best < target), np.flatnonzero(right_best < target)
    complete = max(len(left), len(right)) <= KEPT
    if not complete:
        left = left[np.argsort(left_best[left], kind="stable")[:KEPT]]
        right = right[np.argsort(right_best[right], kind="stable")[:KEPT]]
    if not (len(left) and len(right)):
        return None, True
    bound = before[left, 0][:, None] + after[right, 0]
    for pair in range(1, before.shape[1]):
        np.maximum(bound, before[left, pair][:, None] + after[right, pair], out=bound)
    at = np.unravel_index(int(bound.argmin()), bound.shape)
    if bound[at] >= target:
        return None, complete
    return (int(left[at[0]]) + 1, int(right[at[1]]) + 1), complete
