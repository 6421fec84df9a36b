"""The largest ratio of two laws of one number, over all that may be released about it.

Whatever is released of a number F, by mechanisms that change by at most e^(decay·|c - c'|) between
F = c and F = c', has together a likelihood g(F) with that property: mechanisms/same_answer.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from shoal.loss.exact_blocks import Block
from shoal.loss.exact_cover import Cover
from shoal.loss.mixture import Floats

ULP = 2.0**-52
MAX_WORK = 5e6  # multiplications a cover may cost: with the sweeps, about a second
TOLERANCE = 1e-6  # what a larger window must save
CLOSE = 1e-13  # relative: where the bisection ends
LOST = 1e-13  # what entries too small for plain tables may add: exact.md, "Numerical safety"


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


def chain_ratio(cover: Cover, decay: float) -> float:
    """The same for the sum of `cover` on its chain, over all nodes and values; `decay` per step.

    The whole chain where it is short; else windows that grow until they save nothing: a window
    holds for every such g, because g shifted is one too. Rounds up. inf where it is not computed:
    all initial laws at once, or laws too deep for plain tables.
    """
    if cover.whole_work() <= MAX_WORK:
        return _worst((cell.block(False) for cell in cover.whole()), decay)
    best, size = math.inf, 2
    while cover.window_work(size) <= MAX_WORK:
        found = _worst((cell.block(False) for cell in cover.windows(size)), decay)
        if found > best - TOLERANCE and math.isfinite(found):
            return min(best, found)
        best, size = min(best, found), size * 2
    return best


def _worst(blocks: Iterable[Block], decay: float) -> float:
    """The largest over the blocks; inf when one of them cannot be evaluated."""
    worst = 0.0
    for block in blocks:
        if block.starts is not None or block.logs or not block.fits(decay):
            return math.inf
        worst = _block(block, decay, worst)
    return worst + LOST


def _block(block: Block, decay: float, known: float) -> float:
    """The largest over the groups and ordered pairs of secrets of a block, or `known`."""
    secrets, count = block.laws.shape[1:]
    growth = np.full(count - 1, decay)
    for one in range(secrets):
        for other in range(secrets):
            extra = 0.0 if block.offset is None else float(block.offset[one, other])
            both = block.possible[:, one] & block.possible[:, other]
            if one == other or extra == -math.inf or not both.any():
                continue
            if extra == math.inf:
                return math.inf
            top, bottom = block.laws[both, one], block.laws[both, other]
            before = known - extra
            found = path_ratio(top, bottom, growth, roundings=block.roundings, known=before)
            if found > before:
                known = found + extra + ULP * (abs(found) + abs(extra))
    return known


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
