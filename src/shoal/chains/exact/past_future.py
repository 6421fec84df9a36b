"""The loss of a sum over a chain, bounded by its past and its future apart: for slow chains.

Given X_i = x the density of the noisy sum is the law of the past, moved by the smoothed law of the
entry and the future. So its ratio between x and x' is at most the ratio of the futures at their
worst output times that of the pasts at theirs: no convolution of the two. At outputs beyond all
answers both are reached together, so where those decide nothing is lost. `additive/exact.md`,
Claim 8.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.additive.mixture import crossing, step_over
from shoal.chains.exact.extreme_outputs import Ends
from shoal.chains.exact.offsets import Marginals, Tie, held_ties
from shoal.chains.exact.sums import DEEPEST_TABLE, ChainSum, marginal_laws, supports
from shoal.chains.walk import Powers
from shoal.core.codec import Floats

SMALLEST = 4  # the smallest window looked at
MAX_TABLE = 4_000_000_000  # multiplications a table of held states may cost: a second or two
MAX_PASS = 1_000_000_000  # multiplications for all numbers of entries up to a window, at one scale
MAX_PAIRS = 20_000_000  # numbers kept for pairs at every number of entries
RAREST = 1e-100  # probabilities of values below this are left to logarithms


class LossBound(NamedTuple):
    """An upper bound of the loss, and the pair of values it is for."""

    value: float
    pair: tuple[int, int] = (0, 0)


class PastFutureBound:
    """Past and future of one task's nodes, for windows of any size; the last table is kept."""

    def __init__(self, task: ChainSum, marginals: Marginals) -> None:
        self.task = task
        self.ends = Ends(task)
        self._marginals = marginals
        self._table: tuple[int, Floats] = (0, np.empty(0))

    def size_for(self, decay: float, target: float) -> int | None:
        """The smallest window whose bound at ±∞ is at most `target`; None when none affordable is.

        Only ±∞ is looked at, so `loss` may still be larger. The whole chain counts as a window.
        """
        last = self._last
        size, known = SMALLEST, [math.inf, math.inf, self.least_held(SMALLEST, decay)]
        while not self._holds(size, decay, target, known[-1]):
            if _stuck(known, target):
                return None
            size *= 2
            if last is not None and 2 * size > last:
                return last + 1 if self.affordable(last + 1) else None
            if not self.affordable(size):
                return None
            known = [*known[-2:], self.least_held(size, decay)]
        low = size // 2
        while size - low > max(1, low // 32):
            middle = (low + size) // 2
            enough = self._holds(middle, decay, target, self.least_held(middle, decay))
            low, size = (low, middle) if enough else (middle, size)
        return size

    def least_held(self, size: int, decay: float) -> float:
        """The bound of windows of `size` at ±∞, for nodes far from both ends: below `loss`."""
        future, past = self.ends.held(size, decay)
        with np.errstate(invalid="ignore"):
            totals = [future + past[tie.held].max(axis=0) + tie.offset for tie in self._ties(size)]
        shown = [np.where(np.isnan(total), -math.inf, total).max() for total in totals]
        return float(max(shown, default=-math.inf))

    def held_loss(self, size: int, decay: float) -> float:
        """The part of `loss` that is about nodes with `size` entries or more on both sides.

        0 when the chain has no such node. Much less work: one table serves every scale.
        """
        if self._last is not None and 2 * size > self._last:
            return 0.0
        held = self._held(size, decay)
        return math.inf if held is None else self._together(held[:1], held[1:]).value

    def loss(self, size: int, decay: float) -> LossBound:
        """An upper bound of the loss at noise exp(-decay·|j|) from windows of `size`.

        max over pairs of [the entry and its future] + [its past], each at its worst output: up
        to `size` - 1 entries of a side are taken whole, and beyond a state is held. Rounds up.
        inf where plain doubles are not deep enough.
        """
        count = size if self._last is None else min(size, self._last + 1)
        if not _deep_enough(self._span(count, decay)):
            return LossBound(math.inf)
        future, past = self._whole_futures(count, decay), self._whole_pasts(count, decay)
        if past is None:
            return LossBound(math.inf)
        if self._last is None or self._last >= size:
            held = self._held(size, decay)
            if held is None:
                return LossBound(math.inf)
            future, past = np.concatenate([future, held[:1]]), np.concatenate([past, held[1:]])
        return self._together(np.maximum.accumulate(future, axis=0), past)

    def affordable(self, size: int) -> bool:
        return affordable(self.task, size)

    @property
    def _last(self) -> int | None:
        return None if self.task.length is None else self.task.length - 1

    def _holds(self, size: int, decay: float, target: float, held: float) -> bool:
        """Whether windows of `size` with the bound `held` at ±∞ meet the target after rounding."""
        return held + 2 * self._held_slack(size, decay) <= target

    def _span(self, size: int, decay: float) -> float:
        """How many scales the sums of `size` entries lie apart."""
        return size * self.task.reach * decay

    def _ties(self, size: int) -> tuple[Tie, ...]:
        return held_ties(self.task, self._marginals, size, size, self._last)

    def _together(self, highest: Floats, past: Floats) -> LossBound:
        """The worst pair over all numbers of entries before and after that fit the length."""
        best = LossBound(0.0)
        for before, logs in enumerate(past):
            room = len(highest) - 1 if self._last is None else self._last - before
            if room < 0:
                break
            with np.errstate(invalid="ignore"):
                total = highest[min(room, len(highest) - 1)] + logs
            total = np.where(np.isnan(total), math.inf, total)
            total = np.where(logs > -math.inf, total, -math.inf)  # no secret, whatever follows
            place = np.unravel_index(int(np.argmax(total)), total.shape)
            if total[place] > best.value:
                best = LossBound(float(total[place]), (int(place[0]), int(place[1])))
        return best

    def _whole_futures(self, count: int, decay: float) -> Floats:
        """log-ratios (entries after, k, k), the entry's own weight included."""
        from shoal.chains.exact.kernels import whole_side

        task = self.task
        start, fall = np.ones(task.states), _fall(task, decay)
        ratios = whole_side(task.matrices[0], start, task.weights, count, fall, True)
        return _logs(ratios) + self._whole_slack(count, decay)

    def _whole_pasts(self, count: int, decay: float) -> Floats | None:
        """log-ratios (entries before, k, k); -inf for values the node never takes.

        None when a value is too rare for plain doubles.
        """
        from shoal.chains.exact.kernels import whole_side

        task = self.task
        assert task.initial is not None
        matrix = np.ascontiguousarray(task.matrices[0].T)
        fall = _fall(task, decay)
        ratios = whole_side(matrix, task.initial, task.weights, count, fall, False)
        known, laws = supports(task, count), marginal_laws(task, count)
        rarest = float(laws[known].min())
        if rarest < RAREST or not _deep_enough(self._span(count, decay), rarest):
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(laws)
            gaps = _logs(ratios) + logs[:, None, :] - logs[:, :, None]
        both = known[:, :, None] & known[:, None, :] & ~np.eye(task.states, dtype=np.bool_)
        return np.where(both, gaps + 2 * self._whole_slack(count, decay), -math.inf)

    def _held(self, size: int, decay: float) -> Floats | None:
        """log-ratios (future, past) of windows with a state held beyond; None when too deep."""
        from shoal.chains.exact.kernels import held_future, held_past

        if not _deep_enough(self._span(size, decay)):
            return None
        task, keep = self.task, math.exp(-decay)
        table = self._bridge(size)
        possible = Powers(task.matrices[0]).kernel(0, size).possible
        smallest = float(table.sum(axis=-1)[possible].min())
        if smallest < RAREST or not _deep_enough(self._span(size, decay), smallest):
            return None
        slack = self._held_slack(size, decay)
        future = _logs(held_future(table, task.weights, keep)) + slack
        past = np.full_like(future, -math.inf)
        for tie in self._ties(size):
            logs = _logs(held_past(table, tie.held, keep)) + slack
            told = tie.offset > -math.inf
            past[told] = np.maximum(past[told], logs[told] + tie.offset[told])
        return np.stack([future, past])

    def _bridge(self, size: int) -> Floats:
        if self._table[0] != size:
            from shoal.chains.exact.kernels import bridge_table

            table = np.asarray(bridge_table(self.task.matrices[0], self.task.weights, size))
            self._table = (size, table)
        return self._table[1]

    def _whole_slack(self, count: int, decay: float) -> float:
        """What rounding can hide in a log-ratio of densities that were followed `count` entries.

        An entry costs a product and a sum over the states, the row's own rounding, and one power
        of the decay; both densities of a ratio may be off, and the logarithms by their size.
        """
        each = self.task.states + 6 + decay * self.task.reach
        return 2.0**-52 * count * each + 2.0**-50 * (4 + DEEPEST_TABLE)

    def _held_slack(self, size: int, decay: float) -> float:
        """The same for laws of a window, smoothed by one sweep each way."""
        span = size * self.task.reach
        roundings = 2.0 * size * (self.task.states + 2) + 16
        sweeps = 2.0**-50 * (4.0 + 4.0 * span + span * decay + DEEPEST_TABLE)
        return sweeps + roundings * 2.0**-52


def affordable(task: ChainSum, size: int) -> bool:
    """Whether windows of `size` cost no more work and memory than is allowed."""
    width = size * (size / 2) * task.reach
    whole = task.length is not None and size >= task.length
    table = 0.0 if whole else task.states**3 * width
    return (
        table <= MAX_TABLE
        and 2 * task.states**2 * width <= MAX_PASS
        and size * task.states**2 <= MAX_PAIRS
    )


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


def separable(task: ChainSum) -> bool:
    """Whether past and future are apart given an entry: one law, every pair of states, no ties."""
    return (
        task.homogeneous
        and task.initial is not None
        and (task.length is None or task.shorter)
        and task.offset is None
        and not task.first_labels
        and not task.constant
        and np.array_equal(task.first_weights, task.weights)
        and np.array_equal(task.label, np.arange(task.states))
    )


def _fall(task: ChainSum, decay: float) -> Floats:
    return np.asarray(np.exp(-decay * np.arange(task.reach + 1)))


def _logs(ratios: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(ratios))


# The least scale, and the loss of a scale, of sums over slow chains: past and future apart.
#
# Outputs beyond all answers say how small the answer can be (`Ends`), and which window brings the
# bound that close; so as a rule one window is built and evaluated at one scale.


SHARES = (0.01, 0.5, 100.0, 1e3, 1e4, 1e5, 1e6)  # tried in turn, in units of the tolerance
CLOSE = 1000.0  # tolerances: an answer this near the least possible is not looked into further
RAISED = 1e-7  # relative accuracy of a scale that outputs between the ends decide


class ApartScale(NamedTuple):
    """A scale and its loss from windows of `size`, and how far it may be above the least one.

    `excess` is relative for a scale asked for, absolute for a loss asked for.
    """

    scale: float
    bound: LossBound
    size: int
    excess: float


def apart_scale(
    apart: PastFutureBound, epsilon: float, least: float, tolerance: float
) -> ApartScale | None:
    """The smallest scale from `least` on whose bound is at most epsilon; None when none is found.

    With `least` from `Ends` no smaller scale keeps the promise, so one evaluation just above it
    is enough where the ends decide. Rounds up: the scale returned was evaluated.
    """
    step = apart.task.step
    within = epsilon * (1 - 2.0**-43)  # so that looking again, with its own rounding, meets epsilon
    for share in SHARES:
        scale = least * (1 + share * tolerance)
        size = apart.size_for(step_over(step, scale), within)
        if size is not None:
            scale, bound = _raised(apart, size, within, scale)
            if math.isfinite(scale):
                return ApartScale(scale, bound, size, scale / least - 1)
    return None


def apart_loss(
    apart: PastFutureBound, scale: float, least: float, enough: float, tolerance: float
) -> ApartScale | None:
    """The bound of one scale: at most `enough`, or within `tolerance` of what the ends lose.

    `least` is what the ends lose. Where neither can be reached, the nearest window that can be
    afforded. None without any.
    """
    decay = step_over(apart.task.step, scale)
    targets = [least + share * tolerance for share in SHARES]
    for target in [enough, *targets] if enough > least else targets:
        size = apart.size_for(decay, target)
        if size is not None:
            bound = apart.loss(size, decay)
            if bound.value > target and apart.affordable(size + size // 2):
                size += size // 2
                bound = apart.loss(size, decay)
            if math.isfinite(bound.value):
                return ApartScale(scale, bound, size, bound.value - least)
    return None


def _raised(
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
