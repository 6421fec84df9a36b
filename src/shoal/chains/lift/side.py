"""What each side of a node tells, for so many entries; the loss of both, and the search for eta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shoal.chains.lift.solver import MANY_STATES, FixedPoint, limit
from shoal.chains.lift.step import (
    Ahead,
    Behind,
    EntryMetric,
    History,
    Steps,
    image,
    next_bound,
    off_diagonal,
)
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.progress import in_time
from shoal.core.task import LiftedModel
from shoal.core.walk import Powers
from shoal.mechanisms.cone import CEILING, STATES_BY_CORNERS, Memory, Rule, closure, leak
from shoal.mechanisms.lift import LOSS_CLOSE, NEARLY, STRETCHED, LossOfEta, largest_eta

if TYPE_CHECKING:
    from shoal.chains.lift.stretch import Stretched

SPAN = 64  # a chain this many times longer than the leak reaches is as good as endless
# the same where steps are expensive: 1 % of the noise is lost at 7, a ten-thousandth at 15
EXPENSIVE_SPAN = 12
QUICK_STATES = 24  # beyond them stretches after a node take minutes, too: the limit serves alone
LIMIT_NEAR = 1e-6  # relative distance to the limit at which explicit steps stop
# entries up to which each number of them is followed, in milliseconds, and no limit sought
SHORT_CHAINS = 32
ENDLESS = 256  # explicit steps when there is no finite limit
EXPENSIVE_STEPS = 5e6  # entries × states⁴: all pairs, each by a search over trees; about a second
MOST_STEP_WORK = 5e7  # beyond it steps one by one take minutes: the limit serves alone
MEMORY = 4_000_000  # numbers kept for explicit steps
MOST_STRETCHED = 300  # states up to which entries are bounded in stretches
GAIN_WORTH = 0.98  # of group privacy: a limit beyond that share of it is not sought
WAIT = 8  # steps between two tries to cover all later entries


@dataclass(frozen=True, slots=True, eq=False)
class LiftSide:
    """D_n for n = 0, 1, …: bounds up to N, and one bound for all n beyond.

    Row n bounds n entries; or, in stretches, row j all numbers of them up to ends[j]. Beyond N an
    entry is bounded by its limit (certified for every n) where that is finite, else by
    onward + (n - N - 1)·slope, which grows as fast as the last step did (see `_onward`), and where
    that is not known either by n·eta: constant or linear in n.
    """

    explicit: Floats
    eta: float
    limit: FixedPoint
    onward: Floats
    slope: float
    ends: Ints | None = None

    @property
    def last(self) -> int:
        return len(self.explicit) - 1 if self.ends is None else int(self.ends[-1])

    @property
    def row_ends(self) -> Ints:
        """The largest number of entries that each row bounds."""
        return np.arange(len(self.explicit)) if self.ends is None else self.ends

    @classmethod
    def of(cls, found: Stretched, eta: float) -> LiftSide:
        """A side in stretches."""
        return cls(found.bounds, eta, found.beyond, found.beyond.bound, 0.0, found.ends)

    def at(self, entries: int | None) -> Floats:
        """D_n for n = entries, or a bound for all n. Rounds up."""
        bound = self.limit.bound
        if entries is None:
            return bound
        if entries <= self.last:
            place = entries if self.ends is None else int(np.searchsorted(self.ends, entries))
            row: Floats = self.explicit[place]
            return row
        size = len(bound)
        whole = off_diagonal(size, entries * self.eta)
        grown = self.onward + off_diagonal(size, (entries - self.last - 1) * self.slope)
        beyond = np.where(np.isfinite(bound), bound, grown)
        return np.where(np.isfinite(beyond), beyond, whole) * (1.0 + 2.0**-51)


def deciding_nodes(length: int | None, future: LiftSide, past: LiftSide) -> list[int]:
    """The nodes among which the worst one is.

    Between two of them the bounds of both sides are the same as at the first. Where neither side is
    explicit they are constant or linear in the position, so the two ends of that stretch stand for
    it; at any length its first node does.
    """
    early = {0, *(past.row_ends + 1).tolist()}
    if length is None:
        return sorted(early)
    late = {length - future.last - 2, *(length - 1 - future.row_ends).tolist()}
    return sorted(node for node in early | late if 0 <= node < length)


def limit_worth(size: int, count: int | None, eta: float, enough: float) -> float:
    """Return the largest limit of a side worth seeking, given that `enough` is one reason to stop.

    Group privacy bounds all `count` other entries by count·eta. A limit within 2 % of that would
    gain next to nothing, and entries one by one are followed instead where they cost little.
    """
    if count is None or float(count) * size**4 > EXPENSIVE_STEPS:
        return enough
    return min(enough, GAIN_WORTH * count * eta)


def future_side(
    ahead: Ahead,
    entry: EntryMetric,
    count: int | None,
    rule: Rule,
    start: FixedPoint | None = None,
    enough: float = CEILING,
) -> LiftSide:
    """D_n of a homogeneous chain for n up to `count` entries on one side; None for any number."""
    settled = FixedPoint.unknown(len(ahead.pairs))
    if count is None or count > SHORT_CHAINS:
        settled = limit(ahead, entry, rule, start, enough)
    bound = settled.bound
    if count is not None and _future_in_stretches(bound, ahead, entry, count):
        from shoal.chains.lift.stretch import stretched_future

        return LiftSide.of(stretched_future(ahead, entry, count, rule, settled), entry.eta)
    none = off_diagonal(len(bound), 0.0)
    history = History(none)
    explicit = [none]
    for n in range(1, _explicit_steps(bound, ahead, entry, count) + 1):
        in_time("the lift")
        step = np.minimum(bound, next_bound(n, history, ahead, entry, rule))
        history.append(step)
        explicit.append(step)
        if (step >= bound * (1.0 - LIMIT_NEAR))[ahead.pairs].all():
            break
    onward, slope = _onward(explicit[-1], bound, ahead, entry, rule)
    return LiftSide(np.array(explicit), entry.eta, settled, onward, slope)


def stepwise_future(steps: Steps, entry: EntryMetric, count: int, rule: Rule) -> LiftSide:
    """D_n of a chain with one matrix per step: n entries follow node count - n."""
    size = steps.walk.size
    explicit = [off_diagonal(size, 0.0)]
    history = History(explicit[0])
    for n in range(1, count + 1):
        in_time("the lift")
        history.append(next_bound(n, history, steps.at(count - n), entry, rule))
        explicit.append(history.bounds[-1])
    return LiftSide(
        np.array(explicit), entry.eta, FixedPoint.unknown(size), off_diagonal(size, np.inf), 0.0
    )


def past_side(
    past: Behind,
    entry: EntryMetric,
    count: int | None,
    rule: Rule,
    start: FixedPoint | None = None,
    enough: float = CEILING,
) -> LiftSide:
    """D_t of the past for t up to `count` entries before a node; None for any number.

    From a stationary start this is the future of the reversed chain. From another start, steps
    are taken one by one until the law has settled and a bound that the settled step maps below
    itself covers every step it looks back on.
    """
    if past.settled == 0 and past.reversal is not None:
        return future_side(past.reversal, entry, count, rule, start, enough)
    size = past.walk.size
    settled, expensive = FixedPoint.unknown(size), past_is_expensive(past, entry, count)
    rule = "largest" if expensive and size > MANY_STATES else rule  # hundreds of steps by any other
    if expensive and past.arrived is not None and size <= MOST_STRETCHED:
        from shoal.chains.lift.stretch import stretched_past

        settled = limit(past.arrived, entry, rule, start, enough)
        found = stretched_past(past, entry, count, rule, settled)
        if found is not None:
            return LiftSide.of(found, entry.eta)
    elif past.reversal is not None and (count is None or count > SHORT_CHAINS):
        settled = limit(past.reversal, entry, rule, start, enough)
    explicit = [off_diagonal(size, 0.0)]
    history = History(explicit[0])
    steps = _steps_back(past, settled, count)
    if expensive:
        steps = min(steps, max(ENDLESS, int(MOST_STEP_WORK / size**4)))
    for t in range(1, steps + 1):
        in_time("the lift")
        history.append(next_bound(t, history, past.at(t), entry, rule))
        explicit.append(history.bounds[-1])
        covered = _covering(explicit, past, settled, entry, rule)
        if covered is not None:
            return LiftSide(np.array(explicit), entry.eta, covered, covered.bound, 0.0)
    onward, slope = off_diagonal(size, np.inf), 0.0
    if past.reversal is not None and past.settled is not None and len(explicit) > past.settled:
        onward, slope = _onward(explicit[-1], onward, past.reversal, entry, rule)
    return LiftSide(np.array(explicit), entry.eta, FixedPoint.unknown(size), onward, slope)


def _future_in_stretches(bound: Floats, ahead: Ahead, entry: EntryMetric, count: int) -> bool:
    """Whether steps one by one take too long, and the limit alone would tell too much."""
    size, pair_bounds = len(bound), bound[ahead.pairs]
    if len(entry.metrics) > 1 or size > QUICK_STATES or not np.isfinite(pair_bounds).all():
        return False
    reached = 0.0 < count * entry.eta <= EXPENSIVE_SPAN * pair_bounds.max()
    return reached and float(count) * size**4 > EXPENSIVE_STEPS


def past_is_expensive(past: Behind, entry: EntryMetric, count: int | None) -> bool:
    """Whether steps one by one until the law has settled take too long."""
    if len(entry.metrics) > 1 or entry.eta == 0.0 or not isinstance(past.walk, Powers):
        return False
    if past.settled is not None and past.settled <= SHORT_CHAINS:
        return False
    steps = past.last if past.settled is None else past.settled + ENDLESS
    return (
        float(steps if count is None else min(steps, count)) * past.walk.size**4 > EXPENSIVE_STEPS
    )


def _explicit_steps(bound: Floats, ahead: Ahead, entry: EntryMetric, count: int | None) -> int:
    """How many steps are worth taking one by one."""
    if count is None:
        return 0
    if not np.isfinite(bound[ahead.pairs]).all():
        return min(count, ENDLESS)
    work = float(count) * len(bound) ** 4
    if work > MOST_STEP_WORK:
        return 0
    span = SPAN if work <= EXPENSIVE_STEPS else EXPENSIVE_SPAN
    reach = span * bound[ahead.pairs].max() / entry.eta if entry.eta > 0.0 else 0.0
    return count if count <= max(reach, ENDLESS) else 0


def _steps_back(past: Behind, settled: FixedPoint, count: int | None) -> int:
    """How many entries the past may be followed one by one."""
    if not isinstance(past.walk, Powers):
        return past.last
    room = max(ENDLESS, MEMORY // past.walk.size**2)
    if past.settled is None:
        return 0 if count is None else min(count, past.last, room)
    more = past.settled + max(settled.lags) + ENDLESS
    return min(more if count is None else count, more, room)


def _covering(
    explicit: list[Floats], past: Behind, settled: FixedPoint, entry: EntryMetric, rule: Rule
) -> FixedPoint | None:
    """A bound for this and every later entry, once the settled law covers all it looks back on."""
    longest = max(settled.lags)
    if past.settled is None or past.reversal is None:
        return None
    if len(explicit) - 1 - longest < past.settled:
        return None
    pairs = past.reversal.pairs
    if not np.isfinite(settled.bound[pairs]).all():
        return None
    seen = np.where(pairs, np.max(explicit[-longest - 1 :], axis=0), np.inf)
    np.fill_diagonal(seen, 0.0)
    if (seen <= settled.bound).all():
        return settled
    candidate = np.maximum(seen, settled.bound) * (1.0 + LIMIT_NEAR)
    if len(explicit) % WAIT:
        return None
    mapped = image(candidate, settled.lags, past.reversal, entry, rule)
    return FixedPoint(candidate, settled.lags) if (mapped <= candidate).all() else None


def _onward(
    last: Floats, bound: Floats, ahead: Ahead, entry: EntryMetric, rule: Rule
) -> tuple[Floats, float]:
    """D_{N+1} and a slope such that D_{N+j} ≤ D_{N+1} + (j-1)·slope for every j ≥ 1.

    With Γ the closure of E + D_N, and c the most that E + Λ(Γ) exceeds Γ, every rule has
    Λ(Γ + c) ≤ Λ(Γ) + c, so the bound E + D may grow by c a step and no faster; nor can it grow
    faster than η, which is what the farthest entry alone can add.
    """
    if np.isfinite(bound[ahead.pairs]).all():
        return bound, 0.0
    metric, _ = entry.at(1)
    growth = np.where(ahead.pairs, metric + last, np.inf)
    np.fill_diagonal(growth, 0.0)
    growth = closure(growth)
    step = leak(ahead.laws(1), growth, rule)
    excess = (metric + step)[ahead.pairs] - growth[ahead.pairs]
    return step, min(max(0.0, float(excess.max())), entry.eta) * (1.0 + 2.0**-50)


# The loss of both sides of every node.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiftLoss(LiftedModel):
    """The largest loss over nodes and pairs, where it occurs, and the numbers it rests on.

    loss = at_node + min(future + past, others), rounded up, for the pair (x, x') at `node`
    (counted from 0; in a chain of any length the last node stands for all later ones); others is
    what all other entries can add by group privacy. node and pair are None when no node has two
    possible values. future_limit and past_limit bound the two sides for every number of entries:
    each lies above its own image under step.image, or is such an image; inf where none is
    certified. certified is False exactly when the loss is inf; stretched says that some entries
    were bounded together.
    """

    kind = "lift-loss"

    others: float
    future_limit: FixedPoint
    past_limit: FixedPoint
    stretched: bool = False

    @property
    def certified(self) -> bool:
        return bool(np.isfinite(self.value))

    @classmethod
    def none(
        cls, rule: Rule, eta: float, others: float, future: FixedPoint, past: FixedPoint
    ) -> LiftLoss:
        """Nothing leaked yet."""
        return cls(
            eta=eta,
            loss=0.0,
            node=None,
            pair=None,
            at_node=0.0,
            future=0.0,
            past=0.0,
            rule=rule,
            others=others,
            future_limit=future,
            past_limit=past,
        )

    def or_at(
        self, node: int, possible: Bools, at_node: Floats, future: Floats, past: Floats
    ) -> LiftLoss:
        """This loss, or the worst pair of possible values at `node` if that is larger."""
        total = (at_node + np.minimum(future + past, self.others)) * (1.0 + 2.0**-51)
        total = np.where(possible[:, None] & possible[None, :], total, 0.0)
        x, other = divmod(int(total.argmax()), len(total))
        if not total[x, other] > self.value:
            return self
        return replace(
            self,
            loss=float(total[x, other]),
            node=node,
            pair=(x, other),
            at_node=float(at_node[x, other]),
            future=float(future[x, other]),
            past=float(past[x, other]),
        )

    def or_unsplit(self, node: int, at_node: Floats, bound: Floats) -> LiftLoss:
        """This loss, or the worst pair of a bound that does not split into its sides."""
        everywhere = np.ones(len(bound), np.bool_)
        return self.or_at(node, everywhere, at_node, bound - at_node, np.zeros_like(bound))

    def renumbered(self, states: npt.NDArray[np.intp]) -> LiftLoss:
        """The same loss with the pair in the numbering of the whole chain."""
        if self.pair is None:
            return self
        return replace(self, pair=(int(states[self.pair[0]]), int(states[self.pair[1]])))

    def to_certificate(self) -> LiftedModel:
        """What a certificate says of it."""
        return LiftedModel(
            eta=self.eta,
            loss=self.value,
            node=self.node,
            pair=self.pair,
            at_node=self.at_node,
            future=self.future,
            past=self.past,
            rule=self.rule
            + STRETCHED * self.stretched
            + NEARLY * (len(self.future_limit.bound) > MANY_STATES),
        )

    def guesses(self, eta: float, rule: Rule) -> tuple[FixedPoint, FixedPoint] | tuple[None, None]:
        """Where the limits of the two sides may lie at another eta; another rule needs own lags.

        None of limits between neighbours only.
        """
        if self.future_limit.bound.ndim == 1:
            return None, None
        factor = eta / self.eta
        future, past = self.future_limit.scaled_by(factor), self.past_limit.scaled_by(factor)
        if rule != self.rule:
            return FixedPoint(future.bound, (1,)), FixedPoint(past.bound, (1,))
        return future, past


# The largest eta whose lift stays within epsilon.


NEAR_ENOUGH = 1.5e-3  # ends this near the budget: noise that much larger is not worth more of them


class Searched:
    """A model of some `length` and a metric per unit of eta, ready to be evaluated at any eta."""

    length: int | None

    @property
    def size(self) -> int:
        """The number of states, or of tuples."""
        raise NotImplementedError

    @property
    def unit(self) -> float:
        """The largest entry of the metric."""
        raise NotImplementedError

    @cached_property
    def rule(self) -> Rule:
        """The rule used when none is asked for."""
        raise NotImplementedError

    def loss(
        self,
        eta: float = 1.0,
        rule: Rule | None = None,
        start: LiftLoss | None = None,
        enough: float = CEILING,
        memory: Memory | None = None,
    ) -> LiftLoss:
        """The lift at metric · eta."""
        raise NotImplementedError

    def endless(self) -> Searched:
        """The same model at any length: never a smaller loss, and no slower for long chains."""
        raise NotImplementedError

    def roughly(
        self, eta: float, start: LiftLoss | None, enough: float, memory: Memory
    ) -> LiftLoss:
        """A loss at any length that is quick to have and never smaller."""
        return self.endless().loss(eta, "largest", start, enough, memory)

    @property
    def is_expensive(self) -> bool:
        """Whether an evaluation takes long, so that a search ends a little sooner."""
        return self.size > MANY_STATES

    def near(self, epsilon: float, likely: float) -> float | None:
        """An eta a little below the one sought, where that is soon known."""
        return None

    def largest_eta(
        self,
        epsilon: float,
        rule: Rule | None = None,
        likely: float = np.inf,
        afresh: Callable[[float], LiftLoss] | None = None,
    ) -> LiftLoss | None:
        """The loss at the largest eta found with loss ≤ epsilon; None if there is none above 0.

        Bracketed by the cheap rule on the endless chain, then by the given rule, then at the true
        length: each is at most the one before, so an eta that was enough stays enough. A short
        chain needs no endless one, and few states or caps no cheap rule. The search begins at
        `likely`: an eta that is much too large costs most, because its bounds grow for long before
        they are given up. Where evaluations are expensive one that starts from another is no
        cheaper than one `afresh`, as if nothing had been asked before, which the answer needs
        anyway.
        """
        # a short chain is its own best bracket: at any length it may hardly ever forget
        endless = self.endless() if self.length is None or self.length > SHORT_CHAINS else self
        enough, memory = 4.0 * epsilon, Memory()
        chosen, near = rule or self.rule, None if rule else self.near(epsilon, likely)
        expensive = rule is None and self.is_expensive
        stages: list[LossOfEta[LiftLoss]] = [
            lambda eta, start: endless.loss(eta, chosen, start, enough, memory)
        ]
        if expensive:
            again = afresh or self.loss
            stages = [lambda eta, start: again(eta)]
        elif endless is not self:
            stages.append(lambda eta, start: self.loss(eta, chosen, start, enough, memory))
        if near is None and (
            (chosen == "cone" and STATES_BY_CORNERS < self.size <= MANY_STATES)
            or (chosen == "caps" and self.size > MANY_STATES)
        ):
            stages.insert(0, lambda eta, start: endless.roughly(eta, start, enough, memory))
        most = epsilon / max(self.unit, 1e-300)
        least = most * 1e-9 if self.length is None else most / self.length / 4.0
        close = NEAR_ENOUGH if expensive else LOSS_CLOSE
        return largest_eta(stages, epsilon, most, least, near or likely, close)
