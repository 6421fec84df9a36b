"""The loss of a sum over a chain, bounded by its past and its future apart: for slow chains.

Given X_i = x the density of the noisy sum is the law of the past, moved by the smoothed law of the
entry and the future. So its ratio between x and x' is at most the ratio of the futures at their
worst output times that of the pasts at theirs: no convolution of the two. At outputs beyond all
answers both are reached together, so where those decide nothing is lost. `mechanisms/exact.md`,
Claim 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.chains.exact.blocks import EXACT_LOSS
from shoal.chains.exact.cover import Marginals, Tie, held_ties
from shoal.chains.exact.extreme_outputs import Ends
from shoal.chains.exact.sums import DEEPEST_TABLE, ChainSum, bridges, marginal_laws, supports
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.progress import evaluation_in_time, time_left
from shoal.core.walk import Powers
from shoal.mechanisms.mixture import crossing, step_over

if TYPE_CHECKING:
    from shoal.chains.exact.kernels import Moves

SMALLEST_WINDOW = 4  # the smallest window looked at
MAX_TABLE = 4_000_000_000  # multiplications a table of held states may cost: a second or two
MOST_TABLE = 25_000_000_000  # the same where nothing less is near the least possible
MAX_TABLE_IN_TIME = 400_000_000  # the same under a time limit: a fifth of a second
MAX_PASS = 1_000_000_000  # multiplications for all numbers of entries up to a window, at one scale
MAX_PAIRS = 20_000_000  # numbers kept for pairs at every number of entries
RAREST = 1e-100  # probabilities of values below this are left to logarithms
ALIKE = 2.0**-49  # relative; entries of a matrix that differ by rounding only
BLAS = 6  # times as many multiplications in the same time, of whole matrices, as measured
STATES_ALL_PAIRS = 24  # states up to which all are compared with all
REFERENCES = 12  # states all others are compared with at first, where there are more
ROUNDS = 8  # times more states are added to those before all are


class LossBound(NamedTuple):
    """An upper bound of the loss, and the pair of values it is for."""

    value: float
    pair: tuple[int, int] = (0, 0)


class PastFutureBound:
    """Past and future of one task's nodes, for windows of any size; the last table is kept."""

    def __init__(self, task: ChainSum, marginals: Marginals) -> None:
        """Keep the task and the marginals of its chain; tables are built when first needed."""
        self.task = task
        self.ends = Ends(task)
        self._marginals = marginals
        self._table: tuple[int, Floats] = (0, np.empty(0))
        self._steps: dict[bool, CountedMoves] = {}
        self._chosen = np.arange(task.states if task.states <= STATES_ALL_PAIRS else 0)

    def size_for(self, decay: float, target: float, limit: float = MAX_TABLE) -> int | None:
        """The smallest window whose bound at ±∞ is at most `target`; None when none affordable is.

        Only ±∞ is looked at, so `loss` may still be larger. The whole chain counts as a window.
        """
        last = self._last_node
        size, known = SMALLEST_WINDOW, [math.inf, math.inf, self.least_held(SMALLEST_WINDOW, decay)]
        low = size // 2
        while not self._holds(size, decay, target, known[-1]):
            if _stuck(known, target):
                return None
            low, size = size, min(2 * size, self.widest(limit))
            if last is not None and 2 * size > last:
                return last + 1 if self.affordable(last + 1) else None
            if size <= low:
                return None
            known = [*known[-2:], self.least_held(size, decay)]
        while size - low > max(1, low // 32):
            middle = (low + size) // 2
            enough = self._holds(middle, decay, target, self.least_held(middle, decay))
            low, size = (low, middle) if enough else (middle, size)
        return size

    def widest(self, limit: float) -> int:
        """The largest window with a state held beyond that costs at most `limit`."""
        task = self.task
        limit = limit if time_left() is None else min(limit, MAX_TABLE_IN_TIME)
        cost = task.states**2 // BLAS if self._dense else self._moves(True).cost
        each = float(task.states) * (cost + 2 * task.states)
        size = math.isqrt(int(2 * limit / (each * max(task.reach, 1))))
        return max(SMALLEST_WINDOW, min(size, _most_whole(task, self._moves(False).cost)))

    def least_held(self, size: int, decay: float) -> float:
        """The bound of windows of `size` at ±∞, for nodes far from both ends: below `loss`."""
        return float(self._held_ends(size, decay).max(initial=-math.inf))

    def _held_ends(self, size: int, decay: float) -> Floats:
        """The same for each pair of states, (k, k)."""
        evaluation_in_time(EXACT_LOSS)
        ties = self._ties(size)
        future, pasts = self.ends.held_ratios(size, decay, [tie.held for tie in ties])
        best = np.full_like(future, -math.inf)
        for past, tie in zip(pasts, ties, strict=True):
            with np.errstate(invalid="ignore"):
                best = np.fmax(best, future + past + tie.offset)
        return best

    def held_loss(self, size: int, decay: float) -> float:
        """The part of `loss` that is about nodes with `size` entries or more on both sides.

        0 when the chain has no such node. Much less work: one table serves every scale.
        """
        if self._last_node is not None and 2 * size > self._last_node:
            return 0.0

        def held_bound() -> LossBound:
            """Return the bound over all pairs; infinite where the log-ratios cannot be had."""
            found = self._held_ratios(size, decay)
            return (
                LossBound(math.inf)
                if found is None
                else _steepest_pair([found[0]], [found[1]], None)
            )

        return self._compare_pair(size, decay, held_bound).value

    def loss(self, size: int, decay: float) -> LossBound:
        """An upper bound of the loss at noise exp(-decay·|j|) from windows of `size`.

        max over pairs of [the entry and its future] + [its past], each at its worst output: up
        to `size` - 1 entries of a side are taken whole, and beyond a state is held. Rounds up.
        inf where plain doubles are not deep enough.
        """
        count = size if self._last_node is None else min(size, self._last_node + 1)
        if not _deep_enough(self._span(count, decay)):
            return LossBound(math.inf)
        return self._compare_pair(size, decay, lambda: self._sides(size, count, decay))

    def _sides(self, size: int, count: int, decay: float) -> LossBound:
        """`loss` by way of the states chosen."""
        evaluation_in_time(EXACT_LOSS)
        pasts = self._whole_pasts(count, decay)
        if pasts is None:
            return LossBound(math.inf)
        futures: list[Floats | Ratios] = list(self._whole_futures(count, decay))
        if self._last_node is None or self._last_node >= size:
            held = self._held_ratios(size, decay)
            if held is None:
                return LossBound(math.inf)
            futures.append(np.maximum(_pairs(futures[-1]), held[0]))
            pasts.append(held[1])
        return _steepest_pair(futures, pasts, self._last_node)

    def _compare_pair(self, size: int, decay: float, bound: Callable[[], LossBound]) -> LossBound:
        """`bound`, with so many states chosen that the pair it is for was compared itself.

        Pairs are bounded by way of the states chosen (log D_x/D_x' ≤ log D_x/D_c + log D_c/D_x'),
        which is the ratio itself where one of the two is chosen. So once the worst pair has such a
        state the maximum is that of all pairs, and most of them were never compared.
        """
        if not self._chosen.size:
            ends = self._held_ends(size, decay)
            order = np.argsort(ends.max(axis=0), kind="stable")
            spread = order[:: max(1, self.task.states // REFERENCES)]
            worst = np.unravel_index(int(np.argmax(ends)), ends.shape)
            self._chosen = np.unique(np.concatenate([np.array(worst), spread]))
        for _ in range(ROUNDS):
            found = bound()
            if np.isin(found.pair, self._chosen).any() or found.value == 0.0:
                return found
            self._chosen = np.unique(np.concatenate([self._chosen, np.array(found.pair)]))
        self._chosen = np.arange(self.task.states)
        return bound()

    def affordable(self, size: int, limit: float = MAX_TABLE) -> bool:
        """Whether windows of `size` cost no more work and memory than is allowed."""
        whole = self._last_node is not None and size > self._last_node
        most = _most_whole(self.task, self._moves(False).cost) if whole else self.widest(limit)
        return size <= most

    @property
    def _last_node(self) -> int | None:
        return None if self.task.length is None else self.task.length - 1

    def _holds(self, size: int, decay: float, target: float, held: float) -> bool:
        """Whether windows of `size` with the bound `held` at ±∞ meet the target after rounding."""
        return held + 2 * self._held_slack(size, decay) <= target

    def _span(self, size: int, decay: float) -> float:
        """How many scales the sums of `size` entries lie apart."""
        return size * self.task.reach * decay

    def _ties(self, size: int) -> tuple[Tie, ...]:
        return held_ties(self.task, self._marginals, size, size, self._last_node)

    def _moves(self, back: bool) -> CountedMoves:
        """The matrix of one step, or its transpose, as a few entries beside what all share."""
        if back not in self._steps:
            self._steps[back] = _few_entries(self.task.matrices[0], back)
        return self._steps[back]

    def _whole_futures(self, count: int, decay: float) -> list[Ratios]:
        """log-ratios for up to so many entries after, the entry's own weight included."""
        from shoal.chains.exact.kernels import whole_side

        task, moves = self.task, self._moves(False).moves
        start, fall = np.ones(task.states), _fall(task, decay)
        sides = whole_side(moves, start, task.weights, count, fall, True, self._chosen)
        logs = np.maximum.accumulate(_logs(sides) + self._whole_slack(count, decay), axis=0)
        return [Ratios(self._chosen, *one) for one in logs]

    def _whole_pasts(self, count: int, decay: float) -> list[Floats | Ratios] | None:
        """log-ratios for each number of entries before; -inf for values the node never takes.

        None when a value is too rare for plain doubles.
        """
        from shoal.chains.exact.kernels import whole_side

        task, chosen = self.task, self._chosen
        assert task.initial is not None
        fall, moves = _fall(task, decay), self._moves(True).moves
        sides = whole_side(moves, task.initial, task.weights, count, fall, False, chosen)
        known, laws = supports(task, count), marginal_laws(task, count)
        rarest = float(laws[known].min())
        if rarest < RAREST or not _deep_enough(self._span(count, decay), rarest):
            return None
        slack = 2 * self._whole_slack(count, decay)
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = np.log(laws)[:, chosen, None] - np.log(laws)[:, None, :]
            logs = _logs(sides) + slack + np.stack([gaps, -gaps], axis=1)
        return [
            Ratios(chosen, one[0], one[1], possible)
            for one, possible in zip(logs, known, strict=True)
        ]

    def _held_ratios(self, size: int, decay: float) -> tuple[Floats, Floats] | None:
        """log-ratios (future, past) of windows with a state held beyond; None when too deep."""
        from shoal.chains.exact.kernels import held_future, held_past

        if not _deep_enough(self._span(size, decay)):
            return None
        evaluation_in_time(EXACT_LOSS)
        task, keep, chosen = self.task, math.exp(-decay), self._chosen
        table = self._bridge(size)
        possible = Powers.of(task.matrices[0]).kernel(0, size).possible
        smallest = float(table.sum(axis=-1)[possible].min())
        if smallest < RAREST or not _deep_enough(self._span(size, decay), smallest):
            return None
        slack = self._held_slack(size, decay)
        logs = _logs(held_future(table, task.weights, keep, chosen)) + slack
        future = _pairs(Ratios(chosen, *logs))
        past = np.full_like(future, -math.inf)
        for tie in self._ties(size):
            logs = _logs(held_past(table, tie.held, keep, chosen)) + slack
            with np.errstate(invalid="ignore"):
                total = _pairs(Ratios(chosen, *logs)) + tie.offset
            is_possible = tie.offset > -math.inf
            past[is_possible] = np.maximum(past[is_possible], total[is_possible])
        return future, past

    def _bridge(self, size: int) -> Floats:
        """Return the table of bridges over `size` entries; the last one is kept."""
        if self._table[0] != size:
            from shoal.chains.exact.kernels import bridge_table

            task = self.task
            if self._dense:
                table = bridges(task, np.zeros(1, np.int64), size, logs=False)[0]
            else:
                table = bridge_table(task.matrices[0], self._moves(True).moves, task.weights, size)
            self._table = (size, np.asarray(table))
        return self._table[1]

    @property
    def _dense(self) -> bool:
        """Whether a product of whole matrices is quicker than one of its entries."""
        states = self.task.states
        return states > STATES_ALL_PAIRS and self._moves(True).cost * BLAS > states**2

    def _whole_slack(self, count: int, decay: float) -> float:
        """What rounding can hide in a log-ratio of densities that were followed `count` entries.

        An entry costs a product and two sums over the states (`Moves`), the rounding of the
        entries and one power of the decay; both densities of a ratio may be off, and the
        logarithms by their size.
        """
        each = 2 * self.task.states + 24 + decay * self.task.reach
        return 2.0**-52 * count * each + 2.0**-50 * (4 + DEEPEST_TABLE)

    def _held_slack(self, size: int, decay: float) -> float:
        """The same for laws of a window, smoothed by one sweep each way."""
        span = size * self.task.reach
        roundings = 2.0 * size * (self.task.states + 12) + 16
        sweeps = 2.0**-50 * (4.0 + 4.0 * span + span * decay + DEEPEST_TABLE)
        return sweeps + roundings * 2.0**-52


def _most_whole(task: ChainSum, cost: int) -> int:
    """The most entries of a side that can be followed, of every number of them, at one scale."""
    pairs = task.states * min(task.states, 2 * REFERENCES)
    follow = math.isqrt(int(2 * MAX_PASS / ((cost + 2 * pairs) * max(task.reach, 1))))
    return min(follow, MAX_PAIRS // pairs)


class CountedMoves(NamedTuple):
    """A matrix as the compiled loops have it, and what one product with it costs."""

    moves: Moves
    cost: int


def _few_entries(matrix: Floats, back: bool) -> CountedMoves:
    """A matrix, or its transpose, as what all its rows share and the entries beside that.

    Rows that share the least entry of each column (a chain that now and then jumps anywhere) have
    few others. Entries are within ALIKE of those of the matrix, none is negative, and 0 stays 0.
    """
    from shoal.chains.exact.kernels import Moves

    shared = matrix.min(axis=0)
    rest = np.where(matrix - shared > ALIKE * matrix, matrix - shared, 0.0)
    cost = int(np.count_nonzero(rest)) + 2 * len(matrix)
    if not shared.any() or cost >= np.count_nonzero(matrix):
        shared, rest, cost = np.zeros_like(shared), matrix, int(np.count_nonzero(matrix))
    ones = np.ones_like(shared) if shared.any() else shared
    entries = rest.T if back else rest
    first = np.concatenate([[0], np.cumsum(np.count_nonzero(entries, axis=1))])
    sides = (shared, ones) if back else (ones, shared)
    source = np.ascontiguousarray(np.nonzero(entries)[1])
    return CountedMoves(Moves(*sides, first, source, entries[entries > 0]), cost)


class Ratios(NamedTuple):
    """log-ratios of states x to the states c chosen, `up` (c, x), and of those to x, `down`."""

    chosen: Ints
    up: Floats
    down: Floats
    possible: Bools | None = None


def _pairs(ratios: Floats | Ratios) -> Floats:
    """log-ratios of all pairs (x, x') by way of the states chosen: -inf where one is impossible."""
    if not isinstance(ratios, Ratios):
        return ratios
    chosen, up, down, possible = ratios
    size = up.shape[1]
    if len(chosen) == size:
        pairs = np.where(np.isnan(up), math.inf, up).T.copy()
    else:
        down[np.arange(len(chosen)), chosen] = up[np.arange(len(chosen)), chosen] = 0.0
        pairs = np.full((size, size), math.inf)
        with np.errstate(invalid="ignore"):
            for above, below in zip(up, down, strict=True):
                pairs = np.fmin(pairs, above[:, None] + below)
    np.fill_diagonal(pairs, -math.inf)
    if possible is not None:
        pairs = np.where(possible[:, None] & possible, pairs, -math.inf)
    return pairs


def _steepest_pair(
    futures: Sequence[Floats | Ratios], pasts: Sequence[Floats | Ratios], last: int | None
) -> LossBound:
    """The worst pair over all numbers of entries before and after that fit the length."""
    best, place, highest = LossBound(0.0), -1, np.empty(0)
    for before, side in enumerate(pasts):
        room = len(futures) - 1 if last is None else min(last - before, len(futures) - 1)
        if room < 0:
            break
        if room != place:
            place, highest = room, _pairs(futures[room])
        logs = _pairs(side)
        with np.errstate(invalid="ignore"):
            total = highest + logs
        total = np.where(np.isnan(total), math.inf, total)
        total = np.where(logs > -math.inf, total, -math.inf)  # no secret, for any later entries
        worst = np.unravel_index(int(np.argmax(total)), total.shape)
        if total[worst] > best.value:
            best = LossBound(float(total[worst]), (int(worst[0]), int(worst[1])))
    return best


def _deep_enough(span: float, rarest: float = 1.0) -> bool:
    """Whether plain doubles hold densities of laws that `span` scales and this mass make small."""
    return span - math.log(rarest) <= DEEPEST_TABLE


def _stuck(known: list[float], target: float) -> bool:
    """Whether bounds of windows that double no longer come down to the target.

    The last two gains tell: once one is less than a quarter of the one before, all that follow
    together are less than the last.
    """
    first, second, third = known[-3:]
    if not math.isfinite(first):
        return False
    return second - third < (first - second) / 4 and third - (second - third) > target


def _fall(task: ChainSum, decay: float) -> Floats:
    return np.asarray(np.exp(-decay * np.arange(task.reach + 1)))


def _logs(ratios: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(ratios))


# The least scale, and the loss of a scale, of sums over slow chains: past and future apart.
#
# Outputs beyond all answers say how small the answer can be (`Ends`), and which window brings the
# bound that close; so as a rule one window is built and evaluated at one scale.


TOLERANCES_TRIED = (0.01, 0.5, 100.0, 1e3)  # tried in turn, in units of the tolerance
RAISED = 1e-7  # relative accuracy of a scale that outputs between the ends decide


class ApartScale(NamedTuple):
    """A scale and its loss from windows of `size`, and how far it may be above the least one.

    `excess` is relative for a scale asked for, absolute for a loss asked for. `converged` says
    that wider windows would gain nothing.
    """

    scale: float
    bound: LossBound
    size: int
    excess: float
    converged: bool = False


def apart_scale(
    apart: PastFutureBound, epsilon: float, least: float, tolerance: float
) -> ApartScale | None:
    """The smallest scale from `least` on whose bound is at most epsilon; None when none is found.

    With `least` from `Ends` no smaller scale keeps the promise, so one evaluation just above it
    is enough where the ends decide. Rounds up: the scale returned was evaluated.
    """
    step = apart.task.step
    within = epsilon * (1 - 2.0**-43)  # so that looking again, with its own rounding, meets epsilon
    for share, limit in [
        *((share, MAX_TABLE) for share in TOLERANCES_TRIED),
        (TOLERANCES_TRIED[-1], MOST_TABLE),
    ]:
        scale = least * (1 + share * tolerance)
        size = apart.size_for(step_over(step, scale), within, limit)
        if size is not None:
            scale, bound = _raise_scale(apart, size, within, scale)
            if math.isfinite(scale):
                return ApartScale(scale, bound, size, scale / least - 1)
    return _widest_scale(apart, within, least, tolerance)


def _widest_scale(
    apart: PastFutureBound, within: float, least: float, tolerance: float
) -> ApartScale | None:
    """The least scale that the widest window allows; None when it allows none.

    By the smallest window that does as well: where that is half as wide, or less, no wider one
    would gain anything.
    """
    step, widest = apart.task.step, apart.widest(MOST_TABLE)

    def ends(at: float) -> float:
        return apart.least_held(widest, step_over(step, at))

    if not apart.least_held(widest, 0.0) < within or not least > 0:
        return None
    scale = crossing(ends, within, least, RAISED)[1] * (1 + tolerance)
    size = apart.size_for(step_over(step, scale), within, MOST_TABLE) or widest
    scale, bound = _raise_scale(apart, size, within, scale)
    if not math.isfinite(scale):
        return None
    return ApartScale(scale, bound, size, scale / least - 1, 2 * size <= widest)


def apart_loss(
    apart: PastFutureBound, scale: float, least: float, enough: float, tolerance: float
) -> ApartScale | None:
    """The bound of one scale: at most `enough`, or within `tolerance` of what the ends lose.

    `least` is what the ends lose. Where neither can be reached, the nearest window that can be
    afforded. None without any.
    """
    decay = step_over(apart.task.step, scale)
    targets = [(least + share * tolerance, MAX_TABLE) for share in TOLERANCES_TRIED]
    first = [(enough, MAX_TABLE), (enough, MOST_TABLE)] if enough > least else []
    for target, limit in [*first, *targets, (math.inf, MOST_TABLE)]:
        size = apart.widest(limit) if target == math.inf else apart.size_for(decay, target, limit)
        if size is not None:
            bound = apart.loss(size, decay)
            if bound.value > target and apart.affordable(size + size // 2, limit):
                size += size // 2
                bound = apart.loss(size, decay)
            if math.isfinite(bound.value):
                return ApartScale(scale, bound, size, bound.value - least)
    return None


def _raise_scale(
    apart: PastFutureBound, size: int, within: float, scale: float
) -> tuple[float, LossBound]:
    """The least scale from `scale` on at which windows of `size` are enough, within 1e-7.

    Nodes far from both ends cost little to look at: they are raised first.
    """
    step = apart.task.step

    def inside(at: float) -> float:
        return apart.held_loss(size, step_over(step, at))

    def everywhere(at: float) -> float:
        return apart.loss(size, step_over(step, at)).value

    if within < inside(scale) < math.inf:
        scale = crossing(inside, within, scale, RAISED)[1]
    bound = apart.loss(size, step_over(step, scale)) if scale < math.inf else LossBound(math.inf)
    if bound.value <= within or bound.value == math.inf:
        return (scale if bound.value < math.inf else math.inf), bound
    scale = crossing(everywhere, within, scale, RAISED)[1]
    return scale, apart.loss(size, step_over(step, scale)) if scale < math.inf else bound
