"""The lift: what an entry-level DP mechanism really leaks about one entry of a Markov chain.

Let M's output density change by at most e^{E(y,z)} when one entry changes from y to z, for every
pair of sequences. Then M tells "X_i = x" from "X_i = x'" by at most

    E(x,x') + D^future(x,x') + D^past(x,x'),

where D bounds what the other entries add (shoal.chains.lift.step). Proof: shoal/additive/lift.md.
Natural logarithms; every value rounds up; inf means that no finite bound was certified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shoal.additive.cone import CEILING, FEW, Memory, Rule, bearable_rule
from shoal.additive.lift import CLOSE, NEARLY, LossOfEta, largest_eta
from shoal.chains.lift.neighbours import NeighbourSide, worst_way
from shoal.chains.lift.side import (
    SHORT,
    FixedPoint,
    LiftSide,
    deciding_nodes,
    future_side,
    past_side,
    stepwise_future,
)
from shoal.chains.lift.solver import MANY
from shoal.chains.lift.step import Ahead, Behind, EntryMetric, Steps, behind
from shoal.chains.walk import KernelSegments, Powers, PowerWalk
from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError
from shoal.core.task import LiftedModel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiftLoss(LiftedModel):
    """The largest loss over nodes and pairs, where it occurs, and the numbers it rests on.

    loss = at_node + min(future + past, others), rounded up, for the pair (x, x') at `node`
    (counted from 0; in a chain of any length the last node stands for all later ones); others is
    what all other entries can add by group privacy. node and pair are None when no node has two
    possible values. future_limit and past_limit bound the two sides for every number of entries:
    each lies above its own image under step.image, or is such an image; inf where none is
    certified. certified is False exactly when the loss is inf.
    """

    others: float
    future_limit: FixedPoint
    past_limit: FixedPoint

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
        x, other = (int(i) for i in np.unravel_index(int(total.argmax()), total.shape))
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

    def or_told(self, node: int, at_node: Floats, told: Floats) -> LiftLoss:
        """This loss, or the worst pair of a bound that does not split into its sides."""
        everywhere = np.ones(len(told), np.bool_)
        return self.or_at(node, everywhere, at_node, told - at_node, np.zeros_like(told))

    def named(self, states: npt.NDArray[np.intp]) -> LiftLoss:
        """The same loss with the pair in the numbering of the whole chain."""
        if self.pair is None:
            return self
        return replace(self, pair=(int(states[self.pair[0]]), int(states[self.pair[1]])))

    def told(self) -> LiftedModel:
        """What a certificate says of it."""
        return LiftedModel(
            eta=self.eta,
            loss=self.value,
            node=self.node,
            pair=self.pair,
            at_node=self.at_node,
            future=self.future,
            past=self.past,
            rule=self.rule + NEARLY * (len(self.future_limit.bound) > MANY),
        )

    def guesses(self, eta: float, rule: Rule) -> tuple[FixedPoint, FixedPoint] | tuple[None, None]:
        """Where the limits of the two sides may lie at another eta; another rule needs own lags.

        None of limits between neighbours only.
        """
        if self.future_limit.bound.ndim == 1:
            return None, None
        factor = eta / self.eta
        future, past = self.future_limit.scaled(factor), self.past_limit.scaled(factor)
        if rule != self.rule:
            return FixedPoint(future.bound, (1,)), FixedPoint(past.bound, (1,))
        return future, past


# The largest eta whose lift stays within epsilon.


NEAR_ENOUGH = 1.5e-3  # ends this near the budget: noise that much larger is not worth more of them


class Lift(Protocol):
    """A model and a metric per unit of eta, ready to be evaluated at any eta."""

    @property
    def length(self) -> int | None: ...

    @property
    def size(self) -> int:
        """The number of states, or of tuples."""
        ...

    @property
    def unit(self) -> float:
        """The largest entry of the metric."""
        ...

    @property
    def rule(self) -> Rule:
        """The rule used when none is asked for."""
        ...

    def loss(
        self,
        eta: float = 1.0,
        rule: Rule | None = None,
        start: LiftLoss | None = None,
        enough: float = CEILING,
        memory: Memory | None = None,
    ) -> LiftLoss: ...

    def endless(self) -> Lift:
        """The same model at any length: never a smaller loss, and no slower for long chains."""
        ...

    def roughly(
        self, eta: float, start: LiftLoss | None, enough: float, memory: Memory
    ) -> LiftLoss:
        """A loss at any length that is quick to have and never smaller."""
        ...


class Searched:
    """What every such model shares: the search for the largest eta."""

    def roughly(
        self: Lift, eta: float, start: LiftLoss | None, enough: float, memory: Memory
    ) -> LiftLoss:
        """A loss at any length that is quick to have and never smaller."""
        return self.endless().loss(eta, "largest", start, enough, memory)

    def largest_eta(
        self: Lift,
        epsilon: float,
        rule: Rule | None = None,
        likely: float = np.inf,
        afresh: Callable[[float], LiftLoss] | None = None,
    ) -> LiftLoss | None:
        """The loss at the largest eta found with loss ≤ epsilon; None if there is none above 0.

        `afresh` evaluates an eta as if nothing had been asked before, and may remember what it
        said.
        """
        return search(self, epsilon, rule, likely, afresh or self.loss)


def search(
    lift: Lift,
    epsilon: float,
    rule: Rule | None,
    likely: float,
    afresh: Callable[[float], LiftLoss],
) -> LiftLoss | None:
    """The loss at the largest eta found with loss ≤ epsilon; None if there is none above 0.

    Bracketed by the cheap rule on the endless chain, then by the given rule, then at the true
    length: each is at most the one before, so an eta that was enough stays enough. A short chain
    needs no endless one, and few states or caps no cheap rule. The search begins at `likely`: an
    eta that is much too large costs most, because its bounds grow for long before they are given
    up. Where states are many an evaluation that starts from another is no cheaper than one afresh,
    which the answer needs anyway.
    """
    # a short chain is its own best bracket: at any length it may hardly ever forget
    endless = lift.endless() if lift.length is None or lift.length > SHORT else lift
    enough, memory = 4.0 * epsilon, Memory()
    chosen = rule or lift.rule
    stages: list[LossOfEta[LiftLoss]] = [
        lambda eta, start: endless.loss(eta, chosen, start, enough, memory)
    ]
    if lift.size > MANY and rule is None:
        stages = [lambda eta, start: afresh(eta)]
    elif endless is not lift:
        stages.append(lambda eta, start: lift.loss(eta, chosen, start, enough, memory))
    if (chosen == "cone" and FEW < lift.size <= MANY) or (chosen == "caps" and lift.size > MANY):
        stages.insert(0, lambda eta, start: endless.roughly(eta, start, enough, memory))
    most = epsilon / max(lift.unit, 1e-300)
    least = most * 1e-9 if lift.length is None else most / lift.length / 4.0
    close = CLOSE if lift.size <= MANY else NEAR_ENOUGH
    return largest_eta(stages, epsilon, most, least, likely, close)


# The lift of one chain.


def lift_loss(
    initial: npt.ArrayLike,
    transitions: npt.ArrayLike,
    metric: npt.ArrayLike | EntryMetric,
    length: int | None,
    rule: Rule | None = None,
) -> LiftLoss:
    """max over nodes i and values x, x' possible there of  E(x,x') + D^future + D^past.

    E = metric (η off the diagonal for an η-DP mechanism, |w(y)-w(z)|/s for Laplace noise of scale
    s on a weighted sum); transitions is P (k×k) or one matrix per step (length - 1, k, k); length
    None covers every length. Rounds up; inf when no finite bound is certified. MATHS 3.
    """
    return ChainLift.of(initial, transitions, metric, length).loss(1.0, rule)


ALL_PAIRS = 600  # states beyond which only neighbours are compared


@dataclass(frozen=True, eq=False)
class ChainLift(Searched):
    """A chain and a metric per unit of eta, ready to be evaluated at any eta.

    states numbers the values the chain can ever take; the arrays are restricted to them. What
    does not depend on eta (powers, reversed laws) is computed once and kept.
    """

    states: npt.NDArray[np.intp]
    initial: Floats
    transitions: Floats
    metric: EntryMetric
    length: int | None

    @classmethod
    def of(
        cls,
        initial: npt.ArrayLike,
        transitions: npt.ArrayLike,
        metric: npt.ArrayLike | EntryMetric,
        length: int | None,
    ) -> ChainLift:
        """The lift of a chain given by plain arrays, checked for shape."""
        start = np.asarray(initial, dtype=np.float64)
        steps = np.asarray(transitions, dtype=np.float64)
        entry = metric if isinstance(metric, EntryMetric) else EntryMetric.of(metric)
        size = len(start)
        if steps.shape[-2:] != (size, size) or len(entry.metrics[0]) != size:
            raise InputError(
                f"initial has {size} states, transitions {steps.shape[-1]} and metric "
                f"{len(entry.metrics[0])}; all must have the same"
            )
        if steps.ndim == 3 and length != len(steps) + 1:
            raise InputError(
                f"transitions holds {len(steps)} matrices and length is {length}; "
                f"one matrix per step needs length {len(steps) + 1}"
            )
        states = np.arange(size) if steps.ndim == 3 else reached(start, steps)
        chosen = np.ix_(states, states)
        kept = steps if steps.ndim == 3 else steps[chosen]
        return cls(states, start[states], kept, entry.restricted(states), length)

    def loss(
        self,
        eta: float = 1.0,
        rule: Rule | None = None,
        start: LiftLoss | None = None,
        enough: float = CEILING,
        memory: Memory | None = None,
    ) -> LiftLoss:
        """The lift at metric · eta. `start` lends its limits as a guess, which saves time.

        So does the `memory` of a search; without both the loss depends on nothing that was asked
        before. Sides whose limit passes `enough` may be reported as infinite. Rounds up.
        """
        if rule is None and self.size > MANY and self._between_neighbours is not None:
            return self._neighbour_loss(*self._between_neighbours, eta, enough)
        if rule is None and self.size > ALL_PAIRS:
            return self._no_loss(eta)
        rule, memory = rule or self.rule, Memory() if memory is None else memory
        entry = self.metric.scaled(eta)
        count = None if self.length is None else self.length - 1
        guesses = (None, None) if start is None else start.guesses(eta, rule)
        behind = self._behind.remembering(memory)
        if self.transitions.ndim == 3:
            steps = Steps(KernelSegments(self.transitions), memory["future"])
            future = stepwise_future(steps, entry, len(self.transitions), rule)
        else:
            ahead = self._ahead.remembering(memory["future"])
            future = future_side(ahead, entry, count, rule, guesses[0], enough)
        past = past_side(behind, entry, count, rule, guesses[1], enough)
        others = np.inf if count is None else count * entry.eta
        worst = LiftLoss.none(rule, eta, others, future.limit, past.limit)
        metric = entry.metrics[0]
        for node in deciding_nodes(self.length, future, past):
            possible = self._possible(node, past)
            after = None if count is None else count - node
            before = None if count is None and node > past.last else node
            worst = worst.or_at(node, possible, metric, future.at(after), past.at(before))
        return worst.named(self.states)

    @cached_property
    def _between_neighbours(self) -> tuple[NeighbourSide, NeighbourSide] | None:
        """Both sides of a stationary chain of which few states follow each, else None."""
        if self.transitions.ndim == 3 or self._behind.settled != 0:
            return None
        metric, back = self.metric.metrics[0], self._behind.reversal
        future = self._ahead.beside(metric)
        past = None if future is None or back is None else back.beside(metric)
        return None if future is None or past is None else (future, past)

    def roughly(
        self, eta: float, start: LiftLoss | None, enough: float, memory: Memory
    ) -> LiftLoss:
        """By neighbours where they serve, else by the largest rule."""
        if self._between_neighbours is None:
            return super().roughly(eta, start, enough, memory)
        return self._neighbour_loss(*self._between_neighbours, eta, enough)

    def _neighbour_loss(
        self, ahead: NeighbourSide, back: NeighbourSide, eta: float, enough: float
    ) -> LiftLoss:
        """The lift at any length, by the shortest ways between neighbours."""
        entry = self.metric.scaled(eta)
        metric, others = entry.metrics[0], np.inf
        if self.length is not None:
            others = (self.length - 1) * entry.eta
        future = ahead.bound(metric, enough)
        start = future if future is not None and len(back.first) == len(ahead.first) else None
        past = None if future is None else back.bound(metric, enough, start)
        if future is None or past is None:
            return self._no_loss(eta)
        worst = worst_way(metric, ahead.ways(future), back.ways(past))
        limits = FixedPoint(future, (1,)), FixedPoint(past, (1,))
        middle = 0 if self.length is None else self.length // 2
        told = replace(
            LiftLoss.none("cone", eta, others, *limits),
            loss=min(worst.value, entry.eta + others) * (1.0 + 2.0**-51),
            node=middle,
            pair=worst.pair,
            at_node=worst.at_node,
            future=worst.future,
            past=worst.past,
        )
        return told.named(self.states)

    def _no_loss(self, eta: float) -> LiftLoss:
        """No bound."""
        none = FixedPoint.unknown(2)
        return replace(LiftLoss.none("cone", eta, np.inf, none, none), loss=np.inf)

    def endless(self) -> ChainLift:
        """The same chain at any length: never a smaller loss, and no slower for long chains."""
        if self.length is None or self.transitions.ndim == 3:
            return self
        return ChainLift(self.states, self.initial, self.transitions, self.metric, None)

    @cached_property
    def rule(self) -> Rule:
        if self.size > MANY and self._between_neighbours is not None:
            return "cone"
        return bearable_rule(self.transitions)

    @property
    def size(self) -> int:
        return len(self.states)

    @property
    def unit(self) -> float:
        return self.metric.eta

    @cached_property
    def _walk(self) -> PowerWalk:
        return (
            KernelSegments(self.transitions)
            if self.transitions.ndim == 3
            else Powers(self.transitions)
        )

    @cached_property
    def _ahead(self) -> Ahead:
        return Ahead(Powers(self.transitions))

    @cached_property
    def _behind(self) -> Behind:
        return behind(self.initial, self._walk, None if self.length is None else self.length - 1)

    def _possible(self, node: int, past: LiftSide) -> Bools:
        """The values the node can take, or that any node it stands for can."""
        if node > past.last and self._behind.settled is None:
            return np.ones(len(self.states), dtype=np.bool_)
        return self._behind.support(node)


def reached(initial: Floats, transition: Floats) -> npt.NDArray[np.intp]:
    """The states a homogeneous chain can ever take."""
    seen = initial > 0
    while True:
        wider = seen | (transition[seen] > 0).any(axis=0)
        if np.array_equal(wider, seen):
            return np.flatnonzero(seen)
        seen = wider
