"""What any number of releases of one answer tell together: the lift on the answer itself.

Releases that read the data only through F = Σ w(X_t), each pure DP with respect to F, have a joint
density g(F) whose logarithm moves by at most the sum of their rates when F moves by one step. So
they tell "X_i = x" from "X_i = x'" by at most

    sup over g with |log g(c+1) - log g(c)| ≤ rate of log Σ_c P(c | x) g(c) / Σ_c P(c | x') g(c),

a linear program on a path, which one sweep decides for a given bound. Proof: mechanisms/exact.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shoal.loss.exact_blocks import Block, Cell
from shoal.loss.exact_cover import Cover
from shoal.loss.exact_growth import Goal, Measured, grow
from shoal.loss.mixture import NOTHING, Worst
from shoal.loss.sums import ChainSum

ACCURACY = 1e-10  # of a bound, absolute
TOLERANCE = 1e-4  # what a larger window must gain
WIDEST = 256  # entries of a window beyond which none is tried


def answer_loss(task: ChainSum, rate: float, *, cover: Cover | None = None) -> float:
    """What all releases of Σ w(X_t) with `rate` per step tell about one entry. Rounds up.

    inf where the first law may be any, or where no window that can be afforded bounds it.
    """
    if task.constant or rate == 0.0:
        return 0.0
    if task.initial is None:
        return math.inf

    def measure(cells: Sequence[Cell]) -> Measured:
        best, where = NOTHING, None
        for cell in cells:
            found = _block_loss(cell.block(False), rate, max(best.value, 0.0))
            if found > best.value:
                best, where = Worst(found), cell
        return Measured(max(best.value, 0.0), best, where)

    grown = grow(cover or Cover(task), measure, TOLERANCE, Goal(-math.inf, -math.inf, WIDEST))
    return math.inf if grown is None else grown.measured.amount


def _block_loss(block: Block, rate: float, known: float) -> float:
    """The largest over the groups and pairs of one block, or `known` if that is larger."""
    from shoal.loss.answer_kernels import told

    if not block.fits(rate) or block.starts is not None:
        return math.inf
    slack = (block.roundings + 4.0 * (block.span + 1)) * 2.0**-52
    best = known
    for laws, possible in zip(block.laws, block.possible, strict=True):
        for x, other in np.argwhere(possible[:, None] & possible[None, :]).tolist():
            offset = 0.0 if block.offset is None else float(block.offset[x, other])
            if x == other or offset == -math.inf or not laws[x].any():
                continue
            if not laws[other].any() or offset == math.inf:
                return math.inf
            value = told(laws[x], laws[other], rate, slack, ACCURACY)
            best = max(best, value + offset + 2.0**-50 * abs(offset))
    return best
