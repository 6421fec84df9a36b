"""Several numbers at once, the distance of the laws of one, and the largest ratio of two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shoal.chains.exact.blocks import EXACT_LOSS, Block
from shoal.chains.exact.cover import MAX_WHOLE, NodeBlocks
from shoal.chains.exact.sums import DEEPEST_TABLE, ChainSum, check_cells
from shoal.chains.exact.windows import no_whole_law
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.progress import OutOfTime, evaluation_in_time, in_time
from shoal.mechanisms.answer_laws import LEVELS_ALIKE, Transport, lattice_gap, path_ratio
from shoal.mechanisms.mixture import TooLarge, WorstOutput, grid_worst, narrow_bracket, step_over

if TYPE_CHECKING:
    pass

# Several numbers at once: their vector coded as one sum.


@dataclass(frozen=True, slots=True, eq=False)
class VectorSum:
    """F = Σ_t w(X_t) with w(x) a vector of whole numbers; made by `vector_sum`.

    The vector is coded as one number, digit by digit in a base no digit reaches, so its law is
    that of an ordinary sum (`flat`), unfolded to a grid of `shape`.
    """

    flat: ChainSum
    shape: tuple[int, ...]
    steps: tuple[float, ...]


def vector_sum(task: ChainSum, weights: npt.ArrayLike, steps: npt.ArrayLike = 1.0) -> VectorSum:
    """The sum over the chain of `task` of the rows of `weights` (k, d), multiples of `steps`.

    The weights of `task` itself are not used. Only for one length; TooLarge when the grid of
    values over all nodes exceeds 2e7 numbers.
    """
    rows = np.asarray(weights, dtype=np.int64)
    if task.length is None or rows.ndim != 2 or len(rows) != task.states:
        raise InputError("a vector sum needs a length, and weights with one row per state")
    digits = rows - rows.min(axis=0)
    shape = tuple(int(top) * task.length + 1 for top in digits.max(axis=0))
    check_cells(task, rows)
    base = np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])
    coded: Ints = digits @ base
    flat = replace(task, weights=coded, first_weights=coded, step=1.0)
    if task.initial is None or NodeBlocks(flat).whole_work() > MAX_WHOLE * 10:
        raise TooLarge("the vector sum needs one initial law and a shorter chain")
    return VectorSum(flat, shape, tuple(np.broadcast_to(steps, len(shape)).tolist()))


def vector_sum_loss(task: VectorSum, scale: float, *, cover: NodeBlocks | None = None) -> float:
    """The exact loss of product Laplace(scale) noise on a vector sum, over all nodes; rounds up."""
    cover = cover or NodeBlocks(task.flat)
    decays = np.array([step_over(step, scale) for step in task.steps])
    return max((found.value for found in _vector_blocks(task, cover, decays)), default=0.0)


def least_vector_scale(task: VectorSum, epsilon: float, *, lower: float | None = None) -> float:
    """The smallest common scale whose `vector_sum_loss` is at most epsilon, rounded up."""
    cover = NodeBlocks(task.flat)
    smallest = min(task.steps) / 64 if lower is None else lower
    extent = sum(step * count for step, count in zip(task.steps, task.shape, strict=True))

    def loss(scale: float) -> float:
        return vector_sum_loss(task, scale, cover=cover)

    high = max(smallest, extent / epsilon)
    below = loss(high)
    if not below <= epsilon:
        return math.inf
    while high > smallest:  # from above: tiny scales need logarithms, and are seldom needed
        low = max(smallest, high / 4)
        try:
            above = loss(low)
        except OutOfTime:
            return high
        if above > epsilon:
            return narrow_bracket(loss, epsilon, (low, above), (high, below), 1e-13)[1]
        high, below = low, above
    return smallest


def _vector_blocks(task: VectorSum, cover: NodeBlocks, decays: Floats) -> Iterator[WorstOutput]:
    """Yield the worst output of each block of nodes, for an answer of several numbers.

    Blocks whose tables are too deep for plain doubles are evaluated in logarithms.
    """
    deepest = float(decays @ (np.array(task.shape) - 1))
    for cell in cover.whole():
        evaluation_in_time(EXACT_LOSS)
        plain = cell.block(False)
        block = plain if deepest + plain.depth <= DEEPEST_TABLE else cell.block(True)
        groups, secrets, width = block.laws.shape
        table = np.full((groups, secrets, math.prod(task.shape)), -math.inf if block.logs else 0.0)
        table[..., :width] = block.laws
        yield grid_worst(
            table.reshape(groups, secrets, *task.shape),
            decays,
            block.possible,
            block.offset,
            block.logs,
            block.roundings,
        )


# How far mass must move between the laws given two values.


def sum_transport(task: ChainSum, *, tolerance: float = LEVELS_ALIKE) -> Transport:
    """max over nodes and pairs of secrets of W∞ between the laws of the sum given each.

    The sensitivity of the Wasserstein mechanism (Song, Wang & Chaudhuri 2017, Algorithm 1), in
    the query's own unit: noise of scale distance/ε. Every node's whole law is needed: TooLarge
    when that takes more than 5e9 multiplications (about length³·states/2 for a count) or the
    length is any. As for `quantile_gap` the promise must be re-certified by the exact loss.
    """
    if task.initial is None:
        raise TooLarge(
            "the distance W∞ is computed for one initial law at a time, not for all of them"
        )
    reason = no_whole_law(task)
    if reason is not None:
        raise TooLarge(reason)
    best = Transport(0.0)
    for cell in NodeBlocks(task).whole():
        block = cell.at(0.0)
        laws = np.exp(block.laws) if block.logs else block.laws
        for group in range(len(laws)):
            in_time("the Wasserstein distance")
            found = _widest_pair(laws[group], block.possible[group], task.offset, tolerance)
            if found.distance * task.step > best.distance:
                best = Transport(found.distance * task.step, int(block.nodes[group]), found.pair)
    return best


def _widest_pair(
    laws: Floats, possible: Bools, offset: Floats | None, tolerance: float
) -> Transport:
    """The largest W∞ between two possible laws on 0, 1, 2, …"""
    levels = np.cumsum(laws, axis=1)
    best = Transport(0.0)
    members = np.flatnonzero(possible)
    for one in members:
        for two in members:
            asked = offset is None or max(offset[one, two], offset[two, one]) > -math.inf
            if one < two and asked:
                gap = lattice_gap(levels[one], levels[two], tolerance)
                if gap > best.distance:
                    best = Transport(gap, 0, (int(one), int(two)))
    return best


# All that may be released of one number: mechanisms/same_answer.md.


MAX_RATIO_WORK = 5e6  # multiplications a cover may cost: with the sweeps, about a second
SAVES = 1e-6  # what a larger window must save
LOST = 1e-13  # what entries too small for plain tables may add: exact.md, "Numerical safety"
ULP = 2.0**-52


def chain_ratio(cover: NodeBlocks, decay: float) -> float:
    """The largest ratio of two laws of the sum, over all g that change by e^decay a step.

    The whole chain where it is short; else windows that grow until they save nothing: a window
    holds for every such g, because g shifted is one too. Rounds up. inf where it is not computed:
    all initial laws at once, or laws too deep for plain tables.
    """
    if cover.whole_work() <= MAX_RATIO_WORK:
        return _worst_ratio((cell.block(False) for cell in cover.whole()), decay)
    best, size = math.inf, 2
    while cover.window_work(size) <= MAX_RATIO_WORK:
        found = _worst_ratio((cell.block(False) for cell in cover.windows(size)), decay)
        if found > best - SAVES and math.isfinite(found):
            return min(best, found)
        best, size = min(best, found), size * 2
    return best


def _worst_ratio(blocks: Iterable[Block], decay: float) -> float:
    """The largest over the blocks; inf when one of them cannot be evaluated."""
    worst = 0.0
    for block in blocks:
        if block.starts is not None or block.logs or not block.fits(decay):
            return math.inf
        worst = _block_ratio(block, decay, worst)
    return worst + LOST


def _block_ratio(block: Block, decay: float, known: float) -> float:
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
