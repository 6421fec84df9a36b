"""The lift: what an entry-level DP mechanism really leaks about one entry of a Markov chain.

Let M's output density change by at most e^{E(y,z)} when one entry changes from y to z, for every
pair of sequences. Then M tells "X_i = x" from "X_i = x'" by at most

    E(x,x') + D^future(x,x') + D^past(x,x'),

where D bounds what the other entries add (shoal.chains.lift.step). Proof: shoal/additive/lift.md.
Natural logarithms; every value rounds up; inf means that no finite bound was certified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shoal.additive.cone import CEILING, Memory, Rule, bearable_rule
from shoal.chains.lift.fixed_point import FixedPoint
from shoal.chains.lift.laws import Ahead, Behind, Steps, behind
from shoal.chains.lift.neighbours import NeighbourSide, worst_way
from shoal.chains.lift.search import LiftLoss, Searched
from shoal.chains.lift.side import LiftSide, deciding_nodes, future_side, past_side, stepwise_future
from shoal.chains.lift.solver import MANY
from shoal.chains.lift.step import EntryMetric
from shoal.chains.walk import KernelSegments, Powers, PowerWalk
from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError


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
