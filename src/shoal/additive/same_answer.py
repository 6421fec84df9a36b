"""The largest ratio of two laws of one number, over all that may be released about it.

Whatever is released of a number F, by mechanisms that change by at most e^(decay·|c - c'|) between
F = c and F = c', has together a likelihood g(F) with that property: additive/same_answer.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import reduce

import numpy as np

from shoal.additive.exact import model_sum
from shoal.additive.plans import eta_above
from shoal.additive.queries import LinearQuery, weighted_sum
from shoal.chains.exact.blocks import Block
from shoal.chains.exact.cover import NodeBlocks
from shoal.chains.exact.sums import DEEPEST_TABLE
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.task import EachEntry, Model, Query
from shoal.networks.bayesnet import BayesNet
from shoal.networks.secret_laws import table_laws
from shoal.networks.table import JointTable

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


def chain_ratio(cover: NodeBlocks, decay: float) -> float:
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


# What any number of releases tell that read the data through one and the same number.
#
# Proof: same_answer.md.


MAX_TABLE = 2**14  # outcomes of a law that is written out


def one_number(query: Query) -> LinearQuery | None:
    """The sum that determines the answer of `query` on data of a public size, and no more.

    Weights are whole, from 0, without a common factor, and not turned round: equal for a count of
    either of two states, for their histogram, for a sum and its mean. None for other queries.
    """
    if not isinstance(query, LinearQuery):
        return None
    if len(query.states) == 2:
        column = [0, 1]
    elif len(query.labels) == 1:
        column = [row[0] for row in query.multiples()]
    else:
        return None
    raised = [weight - min(column) for weight in column]
    divisor = reduce(math.gcd, raised)
    weights = [weight // divisor for weight in raised]
    least = min(weights, [max(weights) - weight for weight in weights])
    return weighted_sum(query.states, dict(zip(query.states, least, strict=True)))


def same_answer_loss(number: LinearQuery, model: Model, eta: Fraction) -> float:
    """What releases about `number`, together eta-DP for one entry, tell about one entry.

    Each must read all entries of the same data, and only through the answer. Rounds up; inf where
    it is not known.
    """
    reach = int(number.lipschitz)
    decay = math.nextafter(eta_above(eta) / reach, math.inf)
    if isinstance(model, MarkovChain | OrderChain):
        return chain_ratio(NodeBlocks(model_sum(number, model)), decay)
    table = _written_out(model)
    return math.inf if table is None else _table_ratio(table, number, decay)


def _written_out(model: Model) -> JointTable | None:
    if isinstance(model, BayesNet) and math.prod(model.sizes) <= MAX_TABLE:
        try:
            return model.as_table()
        except InputError:  # an outcome too rare for a table
            return None
    small = isinstance(model, JointTable) and model.probability.size <= MAX_TABLE
    return model if small and isinstance(model, JointTable) else None


def _table_ratio(table: JointTable, number: LinearQuery, decay: float) -> float:
    found = table_laws(table, number, EachEntry())
    growth = np.nextafter(np.diff(found.values[:, 0]) * decay, math.inf)
    if found.lossy or float(growth.sum()) > DEEPEST_TABLE:
        return math.inf
    one, other = np.nonzero(found.pairs)
    roundings = found.roundings + 2 * table.probability.size
    return path_ratio(found.laws[one], found.laws[other], growth, roundings=roundings, known=0.0)
