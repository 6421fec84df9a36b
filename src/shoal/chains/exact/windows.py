"""Windows around every node of a chain, grown until they gain no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.chains.exact.blocks import INSIDE, MANY_NODES, Cell, any_deep, scale_for, worst_cell
from shoal.chains.exact.cover import MAX_WHOLE, MOST_WINDOW_WORK, NodeBlocks
from shoal.chains.exact.sums import DEEPEST_TABLE, ChainSum, check_cells, reached_in, walked_sum
from shoal.chains.model import ChainLaw, communicating_classes
from shoal.core.codec import Ints
from shoal.core.errors import InputError, Refused
from shoal.core.progress import OutOfTime, time_over
from shoal.core.task import AnswerLaws, Query, ScaleFound, Secrets, as_events, each_entry
from shoal.core.walk import Walk, reachable_states
from shoal.mechanisms.mixture import NO_NOISE, WorstOutput, step_over
from shoal.mechanisms.plans import eta_above
from shoal.mechanisms.queries import SUMS_ONLY, LinearQuery, linear, too_far

if TYPE_CHECKING:
    from shoal.chains.exact.answers import VectorSum
    from shoal.chains.exact.extreme_outputs import Ends
    from shoal.chains.exact.past_future import ApartScale, PastFutureBound
    from shoal.mechanisms.steps import Line

FIRST_SIZE = 2
DEEP_COST = 100  # of a multiplication in logarithms, against one in plain tables, as measured
CLOSE_WORK = 2_000_000_000  # multiplications for windows that gain a thousandth at most
SECOND_WORK = 200_000_000  # multiplications for windows that may only improve a bound at hand


class WindowLoss(NamedTuple):
    """What a cover amounts to, and the cell that decides.

    `deep` says that some of its tables had to be in logarithms.
    """

    amount: float
    worst: WorstOutput
    cell: Cell | None
    scale: float = math.nan
    deep: bool = False


class Goal(NamedTuple):
    """Where windows may stop: at an amount that is enough, or at the least one possible.

    They also end before a size above `widest`, or, once an amount is within `close` of the least,
    before much work; without either, by their work alone. Sizes whose held
    states reveal `revealed` or more by themselves are passed over.
    """

    enough: float
    least: float
    widest: int | None
    revealed: float
    close: float


class Grown(NamedTuple):
    """The tightest cover found: its measure, its window (None: the whole chain), settled or not."""

    measured: WindowLoss
    size: int | None
    settled: bool


def grow(
    cover: NodeBlocks,
    measure: Callable[[Sequence[Cell]], WindowLoss],
    tolerance: float,
    goal: Goal,
) -> Grown | None:
    """The whole chain when it is cheap, else windows that grow until they gain no more.

    The cells that decided smaller windows tell how tight a larger one is. All cells are measured
    once those gain less than `tolerance`, or come down to the goal, or no larger window can be
    afforded; if another cell turns out to decide, it is watched too. When the time is over the
    best cover so far serves. None: all infinite.
    """
    enough, least, widest, revealed, close = goal
    if cover.short:
        return Grown(measure(cover.whole()), None, True)
    best: Grown | None = None
    watched, last, size, smaller, deep = {INSIDE}, math.inf, FIRST_SIZE, 0, False
    while not cover.all_windows_infinite and _affordable(cover, size, widest, deep):
        if cover.revealing(size) >= revealed:
            size += (size + 1) // 2
            continue
        seen = [cell for cell in cover.windows(size) if cell.place in watched]
        for cell in seen:
            cell.keep = True  # few, and looked at again and again
        some = _measured_in_time(measure, seen, best)
        if some is None:
            return best
        amount, deep = some.amount, deep or some.deep
        larger = size + (size + 1) // 2
        costly = close > 0 and not _affordable(cover, larger, None, deep, CLOSE_WORK)
        near = costly and amount - least <= close
        excess = amount - least, last - least
        larger = _near_size(size, smaller, *excess, close) if costly and not near else larger
        settled = last - amount <= tolerance or amount - least <= tolerance
        ends = not _affordable(cover, larger, widest, deep)
        due = best is None or settled or amount <= enough or ends or near
        if due and amount < math.inf:
            measured = _measured_in_time(measure, cover.windows(size), best)
            if measured is None:
                return best
            if settled and measured.amount - amount > tolerance:  # some other cell decides
                before = _at_place(cover, smaller, measured)
                settled = bool(before) and measure(before).amount - measured.amount <= tolerance
                settled = settled or measured.amount - least <= tolerance
            if measured.cell is not None:
                watched.add(measured.cell.place)
            amount = measured.amount
            if best is None or amount <= best.measured.amount + tolerance:
                best = Grown(measured, size, settled)
            above = enough < amount <= enough + 10 * tolerance
            if amount <= enough or (settled and not above) or (near and amount - least <= close):
                return best
        last, size, smaller = amount, larger, size
    short = best is None or best.measured.amount > enough > -math.inf
    if short and widest is None and cover.whole_work() <= MAX_WHOLE:
        return Grown(measure(cover.whole()), None, True)
    return None if best is None or best.measured.amount == math.inf else best


def _measured_in_time(
    measure: Callable[[Sequence[Cell]], WindowLoss], cells: Sequence[Cell], best: Grown | None
) -> WindowLoss | None:
    """Return what `cells` amount to; None where the time is over first and `best` is at hand."""
    if best is not None and time_over():
        return None
    try:
        return measure(cells)
    except OutOfTime:
        if best is None:
            raise
        return None


def _near_size(size: int, smaller: int, excess: float, before: float, close: float) -> int:
    """The window, at most half as wide again, that should come within `close` of the least.

    What a window is above that falls by a factor for every entry, so two windows tell it.
    """
    most = size + (size + 1) // 2
    if not (0 < excess < before < math.inf and smaller):
        return most
    rate = math.log(before / excess) / (size - smaller)
    wanted = size + math.ceil(math.log(2 * excess / close) / rate)
    return min(most, max(wanted, size + 1))


def _affordable(
    cover: NodeBlocks, size: int, widest: int | None, deep: bool, most: float | None = None
) -> bool:
    """Whether windows of `size` are worth their work; less of it when a bound is at hand."""
    work = math.inf if cover.too_wide(size) else cover.window_work(size)
    work *= DEEP_COST if deep else 1
    if widest is None:
        return work <= (most or MOST_WINDOW_WORK)
    return size <= widest and work <= SECOND_WORK


def _at_place(cover: NodeBlocks, size: int, measured: WindowLoss) -> list[Cell]:
    """The cells of smaller windows that cover the nodes of the cell that decides."""
    if measured.cell is None:
        return []
    return [cell for cell in cover.windows(size) if cell.place == measured.cell.place]


# The exact loss of noise on a sum over a chain, and the least scale for a budget.
#
# A short chain is taken whole. On a long one that forgets slowly, past and future are bounded
# apart first; windows with both together serve where that is not close to the least possible.


SMALLEST_LOSS = 1e-100  # smaller losses are as good as none
# tolerances: an answer this near the least possible is not looked into further
CLOSE_TOLERANCES = 1000.0
MODEST = 1e-2  # relative; what windows may be above the least scale when they end by their work
WINDOW_TOLERANCE = 1e-6  # of a loss below 1 this share of it


@dataclass(frozen=True, slots=True, kw_only=True)
class SumLoss:
    """The loss of one scale, and where it is reached.

    `node` counts from 0 and is None when it stands for many nodes; `pair` are the two secrets,
    the likelier one first; `output` is the answer at which they differ most, when the whole chain
    was taken at one length; `window` is None when the whole chain was taken; `settled` says that a
    larger window gained less than the tolerance, or that the bound is within it of the least
    possible; `reason` says why `value` is infinite.
    """

    value: float
    node: int | None = None
    pair: tuple[int, int] | None = None
    output: float | None = None
    window: int | None = None
    settled: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastScale:
    """The smallest scale found for a budget, and its loss; scale inf when there is none.

    `near_least` says that it settled, or is within a thousand tolerances of the least possible, or
    that no wider window of past and future apart would gain anything: then the lift is no less; or
    that it is at most `above`, relatively, above the least where windows were ended by their work.
    """

    scale: float
    loss: SumLoss
    near_least: bool = True
    above: float = 0.0


def sum_loss(
    task: ChainSum,
    scale: float,
    *,
    enough: float | None = None,
    tolerance: float = WINDOW_TOLERANCE,
    cover: NodeBlocks | None = None,
    first: int | None = None,
) -> SumLoss:
    """The largest log-ratio of Σ w(X_t) + Laplace(scale) between two values of one entry.

    max over nodes i, pairs x, x' and outputs u of log P(u | X_i = x) / P(u | X_i = x'). Values
    an entry never takes are not secrets. Exact for the whole chain; a window is an upper bound,
    grown until it gains less than `tolerance` (of a loss below 1, that share of it), and where past
    and future apart come within a thousand tolerances of the loss no other is tried. With `enough`,
    windows stop at the first that is no higher, and go on past the tolerance while they are just
    above: so the promise of a scale from `least_scale` is met again; the window `first`, if that is
    enough, saves looking for one. Rounds up. inf, with a reason,
    when every window the work limit allows is infinite. MATHS section 2; `mechanisms/exact.md`.
    """
    _check_positive("scale", scale)
    if task.constant:
        return SumLoss(value=0.0)
    cover = cover or NodeBlocks(task)
    decay = step_over(task.step, scale)

    def measure(cells: Sequence[Cell]) -> WindowLoss:
        found, cell = worst_cell(cells, decay)
        return WindowLoss(
            _log_scaled_below_one(max(found.value, 0.0)), found, cell, deep=any_deep(cells)
        )

    wanted = -math.inf if enough is None else enough
    apart = cover.apart
    least = -math.inf if cover.ends is None else cover.ends.loss(decay)
    near = tolerance * min(1.0, max(wanted, least, SMALLEST_LOSS))
    found = None
    if apart is not None:
        from shoal.chains.exact.past_future import apart_loss

        found = apart_loss(apart, scale, least, wanted, near)
    if found is not None:
        close = wanted <= least and found.excess <= CLOSE_TOLERANCES * near
        if close or found.bound.value <= wanted:
            return _separable_result(found, near)
    if found is None and first is not None and cover.window_work(first) <= MOST_WINDOW_WORK:
        known = measure(cover.windows(first))
        if known.worst.value <= wanted:
            return _window_result(task, decay, Grown(known, first, False))
    goal = Goal(
        _log_scaled_below_one(wanted),
        _log_scaled_below_one(least),
        _widest_window(task, found),
        math.inf,
        0.0,
    )
    grown = grow(cover, measure, tolerance, goal)
    if found is not None and (grown is None or found.bound.value < _loss_of(grown)):
        return _separable_result(found, near)
    return _infinite_result(cover) if grown is None else _window_result(task, decay, grown)


def least_scale(
    task: ChainSum,
    epsilon: float,
    *,
    lower: float | None = None,
    tolerance: float = WINDOW_TOLERANCE,
    cover: NodeBlocks | None = None,
) -> LeastScale:
    """The smallest scale whose `sum_loss` is at most epsilon, within 1e-13 of its cover.

    Windows grow until they save less than `tolerance` of the scale; where past and future apart
    come within a thousand times that of the least possible scale, theirs is taken, within 1e-7 of
    what they allow. `lower` is the smallest
    scale worth returning: step/64 by default, at which lattice noise is as good as none. Rounds
    up: the scale was evaluated and met epsilon. inf, with a reason, when no window does.
    """
    _check_positive("epsilon", epsilon)
    floor = task.step / NO_NOISE if lower is None else lower
    if task.constant:
        return LeastScale(scale=floor, loss=SumLoss(value=0.0))
    cover = cover or NodeBlocks(task)
    guess = max(floor, task.reach * task.step / epsilon)

    def measure(cells: Sequence[Cell]) -> WindowLoss:
        scale, found, cell = scale_for(cells, epsilon, task.step, floor, guess)
        return WindowLoss(math.log(scale), found, cell, scale, any_deep(cells))

    apart = cover.apart
    least = floor if cover.ends is None else max(cover.ends.least_scale(epsilon), floor)
    found = None
    if apart is not None:
        from shoal.chains.exact.past_future import apart_scale

        found = apart_scale(apart, epsilon, least, tolerance)
    if found is not None and found.excess <= CLOSE_TOLERANCES * tolerance:
        return LeastScale(scale=found.scale, loss=_separable_result(found, tolerance))
    close = CLOSE_TOLERANCES * tolerance
    goal = Goal(-math.inf, math.log(least), _widest_window(task, found), epsilon, close)
    grown = grow(cover, measure, tolerance, goal)
    if found is not None and (grown is None or found.scale < grown.measured.scale):
        result = _separable_result(found, tolerance)
        return LeastScale(scale=found.scale, loss=result, near_least=found.converged)
    if grown is None:
        return LeastScale(scale=math.inf, loss=_infinite_result(cover))
    scale = grown.measured.scale
    result = _window_result(task, step_over(task.step, scale), grown)
    near = grown.settled or scale <= least * (1 + MODEST)
    above = scale / least - 1 if near and not grown.settled else 0.0
    return LeastScale(scale=scale, loss=result, near_least=near, above=above)


def window_loss(
    task: ChainSum, scale: float, size: int, *, cover: NodeBlocks | None = None
) -> SumLoss:
    """The bound from windows of one size: at most `size` - 1 entries on each side, a state beyond.

    Never below the loss, and never above the bound of a smaller size. Rounds up. The chain must
    have at least 2·size + 1 entries, or any length.
    """
    _check_positive("scale", scale)
    cover = cover or NodeBlocks(task)
    if size < 1 or cover.window_work(size) == math.inf:
        raise InputError(f"size is {size}; a chain of length {task.length} has no such window")
    decay = step_over(task.step, scale)
    found, cell = worst_cell(cover.windows(size), decay)
    return _window_result(task, decay, Grown(WindowLoss(found.value, found, cell), size, False))


def _log_scaled_below_one(loss: float) -> float:
    """A number that grows with a loss: differences are relative below 1, absolute above."""
    if loss == -math.inf:
        return loss
    return loss if loss >= 1.0 else 1.0 + math.log(max(loss, SMALLEST_LOSS))


def _loss_of(grown: Grown) -> float:
    return max(grown.measured.worst.value, 0.0)


def _check_positive(field: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"{field} is {value}; it must be positive and finite")


def _widest_window(task: ChainSum, found: ApartScale | None) -> int | None:
    """The widest window plain doubles are deep enough for, when a bound is already at hand."""
    if found is None:
        return None
    return math.floor(DEEPEST_TABLE / 2 * found.scale / (task.step * max(task.reach, 1)))


def _window_result(task: ChainSum, decay: float, grown: Grown) -> SumLoss:
    """Return what windows of the size found prove: the loss, its worst node, pair and output.

    The node is None where the cell stands for many nodes, the output None for windows.
    """
    _, found, cell, *_ = grown.measured
    if cell is None:
        return SumLoss(value=0.0, window=grown.size, settled=grown.settled)
    node = int(cell.at(decay).nodes[found.group])
    return SumLoss(
        value=max(found.value, 0.0),
        node=None if node == MANY_NODES else node,
        pair=(found.secret, found.other),
        output=_lattice_value(task, found.output) if grown.size is None else None,
        window=grown.size,
        settled=grown.settled,
    )


def _separable_result(found: ApartScale, tolerance: float) -> SumLoss:
    """Return what the bound of separate past and future proves, and whether it is within
    tolerance.
    """
    return SumLoss(
        value=max(found.bound.value, 0.0),
        pair=found.bound.pair,
        window=found.size,
        settled=found.excess <= tolerance,
    )


def _lattice_value(task: ChainSum, index: int) -> float | None:
    """The value of the query at a place of its lattice."""
    if task.length is None or task.shorter:
        return None
    first, each = task.lowest
    return first + (task.length - 1) * each + index * task.step


def _infinite_result(cover: NodeBlocks) -> SumLoss:
    """Infinite, and why."""
    task = cover.task
    if not task.homogeneous and task.shorter:
        reason = "one matrix per step and every shorter length need the whole chain, too long here"
    elif cover.window_work(FIRST_SIZE) > MOST_WINDOW_WORK:
        reason = "the sum has too many values for the laws to be computed"
    else:
        reason = f"{_why_slow(task)}, so every window that could be tried reveals too much"
    return SumLoss(value=math.inf, settled=False, reason=reason)


def _why_slow(task: ChainSum) -> str:
    """What keeps a chain from forgetting its entries."""
    if not task.homogeneous:
        return "the chain forgets its entries too slowly for its length"
    edges = task.matrices[0] > 0
    alive = np.ones(task.states, np.bool_) if task.initial is None else task.initial > 0
    alive = reachable_states(alive, edges)
    inner = edges[np.ix_(alive, alive)]
    if len(communicating_classes(inner.astype(np.float64))) > 1:
        return "the chain has states it never comes back to"
    # a chain without a period connects all states by then
    joined = reached_in(inner, (len(inner) - 1) ** 2 + 1).all()
    return "the chain forgets its entries too slowly" if joined else "the chain has a period"


# What a chain answers about a query.


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
        """Why no window and no whole law can be had, decided before any memory is taken."""
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
        return walked_sum(self._path, self._integer_weights[:, 0])

    @property
    def _integer_weights(self) -> Ints:
        return np.array(self._query.multiples(), dtype=np.int64)

    @cached_property
    def _path(self) -> Walk:
        return self._model.walk()

    @cached_property
    def vector(self) -> VectorSum:
        """All numbers at once, as one coded sum."""
        check_cells(self.sum, self._integer_weights)
        from shoal.chains.exact.answers import vector_sum

        return vector_sum(self.sum, self._integer_weights)

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
            vector = self.vector
            from shoal.chains.exact.answers import least_vector_scale

            return ScaleFound(least_vector_scale(vector, epsilon), None, "it is endless")
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
            from shoal.chains.exact.answers import vector_sum_loss

            return vector_sum_loss(self.vector, scale)
        cover = self._cover()
        found = sum_loss(cover.task, scale, enough=enough, cover=cover, first=self._window)
        done = found.settled and enough == -math.inf  # else the scale may be the lift's
        lifted = "" if found.value <= enough or done else self._model.lift(self._query)
        if isinstance(lifted, str):
            return found.value
        eta = eta_above(self._query.lipschitz / self._query.lattice / Fraction(scale))
        return min(found.value, lifted.loss(eta, enough))

    def floor(self, epsilon: float) -> float | None:
        """What outputs beyond all answers tell on slow chains (exact.md, Claim 9)."""
        if self._several or self._ends is None:
            return None
        return self._ends.least_scale(epsilon)

    def no_distance(self) -> str | None:
        """Return why the Wasserstein distance of this model cannot be computed, None when it
        can.
        """
        if self._path.initial is None:
            named = self._model.describe()
            return f"the Wasserstein distance is that of one law at a time, not {named}"
        if self._model.tied is None:
            return "the Wasserstein distance needs the whole law; give the model a length"
        if self._several:
            return "the Wasserstein distance of several values needs a table; ask for one number"
        return no_whole_law(self.sum)

    def distance(self) -> float:
        """W∞; a gap between multiples of the lattice is a whole number."""
        from shoal.chains.exact.answers import sum_transport

        return math.ceil(sum_transport(self.sum).distance - 1e-9)

    def lines(self, epsilon: float) -> Sequence[Line] | str:
        """What the loss of noise in steps on the one number is a maximum over."""
        from shoal.chains.exact.steps import chain_lines

        return chain_lines(self._cover(), epsilon)

    def ratio(self, decay: float) -> float:
        """inf for all initial laws at once, and for laws too deep for plain tables."""
        from shoal.chains.exact.answers import chain_ratio

        return math.inf if self._several else chain_ratio(NodeBlocks(self.sum), decay)


def no_whole_law(task: ChainSum) -> str | None:
    """Why the whole law of the sum at every node, which the distance W∞ needs, is not had."""
    if NodeBlocks(task).whole_work() <= MAX_WHOLE:
        return None
    return (
        "the distance W∞ needs the whole law of the sum at every node; length "
        f"{task.length} with {task.states} states is beyond "
        f"{MAX_WHOLE:.0e} multiplications: use exact or lift"
    )
