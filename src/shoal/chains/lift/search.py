"""The value a lift returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shoal.additive.cone import CEILING, FEW, Memory, Rule
from shoal.additive.eta_search import CLOSE, LossOfEta, largest_eta
from shoal.additive.lift import NEARLY
from shoal.chains.lift.fixed_point import FixedPoint
from shoal.chains.lift.side import SHORT
from shoal.chains.lift.solver import MANY
from shoal.core.codec import Bools, Floats
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
