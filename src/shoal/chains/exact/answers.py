"""What noise on a sum over a chain tells: the numbers a chain answers about a query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shoal.additive.answer_laws import TOLERANCE, Transport, lattice_gap, path_ratio
from shoal.additive.mixture import TooLarge, WorstOutput, grid_worst, narrowed, step_over
from shoal.additive.plans import eta_above
from shoal.additive.queries import SUMS_ONLY, LinearQuery, linear, too_far
from shoal.chains.exact.blocks import Block
from shoal.chains.exact.cover import MAX_WHOLE, NodeBlocks
from shoal.chains.exact.sums import DEEPEST_TABLE, ChainSum, chain_sum
from shoal.chains.exact.windows import FIRST_SIZE, least_scale, sum_loss
from shoal.chains.model import ChainLaw
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.task import AnswerLaws, Query, ScaleFound, Secrets, as_events, each_entry
from shoal.core.walk import Walk

if TYPE_CHECKING:
    from shoal.chains.exact.extreme_outputs import Ends
    from shoal.chains.exact.past_future import PastFutureBound

MOST_HELD = 20_000_000  # triples of states: beyond, their tables take gigabytes and minutes
LARGEST_REACH = 10_000_000  # steps one entry may move a sum for its laws to be computed


def chain_laws(model: ChainLaw, query: Query, secrets: Secrets) -> AnswerLaws | str:
    """The laws of a linear query on a chain given each secret; or why there are none.

    The laws of the last few queries are kept: what budgets share on a slow chain is made once.
    """
    asked = linear(query)
    if asked is None:
        if hasattr(query, "variables"):
            return f"weights per variable need named variables, not {model.describe()}"
        return SUMS_ONLY
    multiples = [multiple for row in asked.multiples() for multiple in row]
    reach = max(multiples) - min(multiples)
    if reach > LARGEST_REACH:
        return too_far(reach, asked)
    events = as_events(secrets)
    if events is not None:
        from shoal.chains.events.answers import event_laws, refusal

        return refusal(model, events) or event_laws(model, asked, events)
    if not each_entry(secrets):
        return f"the exact loss on a chain is about single entries, not {secrets.subject}"
    several = len(asked.labels)
    if several > 1 and not model.one_law:
        return (
            f"the exact loss of {several} values at once is computed for one "
            f"Markov chain or table, not for {model.describe()}; use lift"
        )
    if several > 1 and model.tied is None:
        return "the exact loss of several values at once needs a length; give the model one"
    laws = kept_laws(model, asked)
    return laws.refusal() or laws


@lru_cache(maxsize=4)
def kept_laws(model: ChainLaw, query: LinearQuery) -> ChainLaws:
    return ChainLaws(model, query)


class ChainLaws:
    """The laws of a sum over a chain given the value of an entry; scales in lattice steps."""

    def __init__(self, model: ChainLaw, query: LinearQuery) -> None:
        self._model, self._query = model, query
        self._several = len(query.labels) > 1
        self._window: int | None = None  # that of the last scale: where its check begins

    def refusal(self) -> str | None:
        """Why no window and no whole law can be had, told before any memory is taken."""
        cover = None if self._several else NodeBlocks(self.sum)
        if cover is None or cover.task.states**3 <= MOST_HELD or self.sum.constant:
            return None
        if min(cover.whole_work(), cover.window_work(FIRST_SIZE)) <= MAX_WHOLE:
            return None
        return (
            f"the exact loss holds a state on either side of an entry, and {cover.task.states} "
            "states are too many for that; use lift or markov-quilt, or merge states"
        )

    @cached_property
    def sum(self) -> ChainSum:
        """The (first) number as a sum, of every length up to the model's own."""
        weights = np.array(self._query.multiples(), dtype=np.int64)[:, 0]
        return walked_sum(self._path, weights)

    @cached_property
    def _path(self) -> Walk:
        return self._model.walk()

    @cached_property
    def vector(self) -> VectorSum:
        """All numbers at once, as one coded sum."""
        return vector_sum(self.sum, np.array(self._query.multiples(), dtype=np.int64))

    @cached_property
    def _apart(self) -> PastFutureBound | None:
        """What budgets share on a slow chain: the laws of its windows are made once."""
        return NodeBlocks(self.sum).apart

    @cached_property
    def _ends(self) -> Ends | None:
        return self._cover().ends

    def _cover(self) -> NodeBlocks:
        apart = self._apart
        return NodeBlocks(self.sum if apart is None else apart.task, apart)

    def least_scale(self, epsilon: float) -> ScaleFound:
        """By windows; where none came near the least possible, what the lift allows if less."""
        if self._several:
            return ScaleFound(least_vector_scale(self.vector, epsilon), None, "it is endless")
        cover = self._cover()
        found = least_scale(cover.task, epsilon, cover=cover)
        if found.scale < math.inf and not found.near_least:
            lifted = self._lift_scale(epsilon)
            if lifted < found.scale:
                return ScaleFound(lifted, 0)
        self._window = found.loss.window
        return ScaleFound(found.scale, found.loss.window, found.loss.reason, found.above)

    def _lift_scale(self, epsilon: float) -> float:
        """The scale that the lift with the query's metric allows; inf if none."""
        lifted = self._model.lift(self._query)
        if isinstance(lifted, str):
            return math.inf
        try:
            eta = Fraction(lifted.largest(epsilon).eta)
        except Refused:
            return math.inf
        return eta_above(self._query.lipschitz / self._query.lattice / eta)

    def loss(self, scale: float, enough: float = -math.inf) -> float:
        """By windows, or by the lift where they do not settle or are above `enough`."""
        if self._several:
            return vector_sum_loss(self.vector, scale)
        cover = self._cover()
        found = sum_loss(cover.task, scale, enough=enough, cover=cover, first=self._window)
        done = found.settled and enough == -math.inf  # else the scale may be the lift's
        lifted = "" if found.value <= enough or done else self._model.lift(self._query)
        if isinstance(lifted, str):
            return found.value
        eta = eta_above(self._query.lipschitz / self._query.lattice / Fraction(scale))
        return min(found.value, lifted.loss(eta))

    def floor(self, epsilon: float) -> float | None:
        """What outputs beyond all answers tell on slow chains (exact.md, Claim 9)."""
        if self._several or self._ends is None:
            return None
        return self._ends.least_scale(epsilon)

    def no_distance(self) -> str | None:
        if self._path.initial is None:
            named = self._model.describe()
            return f"the Wasserstein distance is that of one law at a time, not {named}"
        if self._model.tied is None:
            return "the Wasserstein distance needs the whole law; give the model a length"
        if self._several:
            return "the Wasserstein distance of several values needs a table; ask for one number"
        return None

    def distance(self) -> float:
        """W∞; a gap between multiples of the lattice is a whole number."""
        return math.ceil(sum_transport(self.sum).distance - 1e-9)

    def ratio(self, decay: float) -> float:
        """inf for all initial laws at once, and for laws too deep for plain tables."""
        return math.inf if self._several else chain_ratio(NodeBlocks(self.sum), decay)


def walked_sum(path: Walk, weights: Ints) -> ChainSum:
    """The sum of a weight per entry along a walk, of every length it covers."""
    return chain_sum(
        path.initial,
        path.matrices if path.fixed else path.matrices[0],
        weights[path.shown],
        path.length,
        label=path.shown,
        first_weights=sum(weights[values] for values in path.first),
        first_labels=path.first[:-1],
        shorter=not path.fixed,
    )


# Several numbers at once: their vector coded as one sum.


MAX_CELLS = 20_000_000  # numbers a table of laws may hold


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
    secrets = int(task.label.max()) + 1
    cells = math.prod(shape) * task.length * secrets * (task.length if task.shorter else 1)
    if cells > MAX_CELLS:
        raise TooLarge(
            f"a sum of {rows.shape[1]} coordinates over {task.length} entries has "
            f"{math.prod(shape)} values; with all nodes that is {cells} numbers of at most "
            f"{MAX_CELLS}: shorten the chain, or ask for one coordinate at a time"
        )
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
        above = loss(low)
        if above > epsilon:
            return narrowed(loss, epsilon, (low, above), (high, below), 1e-13)[1]
        high, below = low, above
    return smallest


def _vector_blocks(task: VectorSum, cover: NodeBlocks, decays: Floats) -> Iterator[WorstOutput]:
    deepest = float(decays @ (np.array(task.shape) - 1))
    for cell in cover.whole():
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


def sum_transport(task: ChainSum, *, tolerance: float = TOLERANCE) -> Transport:
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
    cover = NodeBlocks(task)
    if cover.whole_work() > MAX_WHOLE:
        raise TooLarge(
            "the distance W∞ needs the whole law of the sum at every node; length "
            f"{task.length} with {task.states} states is beyond "
            f"{MAX_WHOLE:.0e} multiplications: use exact or lift"
        )
    best = Transport(0.0)
    for cell in cover.whole():
        block = cell.at(0.0)
        laws = np.exp(block.laws) if block.logs else block.laws
        for group in range(len(laws)):
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


# All that may be released of one number: additive/same_answer.md.


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
