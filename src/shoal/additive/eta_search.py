"""The value a lift returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shoal.additive.cone import CEILING, Rule
from shoal.chains.lift.fixed_point import FixedPoint
from shoal.chains.lift.side import SHORT
from shoal.core.codec import Bools, Floats


@dataclass(frozen=True, slots=True, eq=False)
class LiftLoss:
    """The largest loss over nodes and pairs, where it occurs, and the numbers it rests on.

    value = at_node + min(future + past, others), rounded up, for the pair (x, x') at `node`
    (counted from 0; in a chain of any length the last node stands for all later ones); others is
    what all other entries can add by group privacy. node and pair are None when no node has two
    possible values. future_limit and past_limit bound the two sides for every number of entries:
    each lies above its own image under lift_step.image, or is such an image; inf where none is
    certified. certified is False exactly when value is inf.
    """

    value: float
    eta: float
    rule: Rule
    node: int | None
    pair: tuple[int, int] | None
    at_node: float
    future: float
    past: float
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
        return cls(0.0, eta, rule, None, None, 0.0, 0.0, 0.0, others, future, past)

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
            value=float(total[x, other]),
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

    def guesses(self, eta: float, rule: Rule) -> tuple[FixedPoint, FixedPoint]:
        """Where the limits of the two sides may lie at another eta; another rule needs own lags."""
        factor = eta / self.eta
        future, past = self.future_limit.scaled(factor), self.past_limit.scaled(factor)
        if rule != self.rule:
            return replace(future, lags=(1,)), replace(past, lags=(1,))
        return future, past


# The largest eta whose lift stays within epsilon.


CLOSE = 1e-8  # relative distance of the loss to epsilon at which the last search stops
ROUGH = 0.02  # and the searches before it
ROUNDS = 60

LossOfEta = Callable[[float, LiftLoss | None], LiftLoss]


class Lift(Protocol):
    """A model and a metric per unit of eta, ready to be evaluated at any eta."""

    @property
    def length(self) -> int | None: ...

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
    ) -> LiftLoss: ...

    def endless(self) -> Lift:
        """The same model at any length: never a smaller loss, and no slower for long chains."""
        ...


class Searched:
    """What every such model shares: the search for the largest eta."""

    def largest_eta(self: Lift, epsilon: float, rule: Rule | None = None) -> LiftLoss | None:
        """The loss at the largest eta found with loss ≤ epsilon; None if there is none above 0."""
        return search(self, epsilon, rule)


def search(lift: Lift, epsilon: float, rule: Rule | None) -> LiftLoss | None:
    """The loss at the largest eta found with loss ≤ epsilon; None if there is none above 0.

    Bracketed by the cheap rule on the endless chain, then by the given rule, then at the true
    length: each is at most the one before, so an eta that was enough stays enough. A short chain
    needs no endless one.
    """
    # a short chain is its own best bracket: at any length it may hardly ever forget
    endless = lift.endless() if lift.length is None or lift.length > SHORT else lift
    enough = 4.0 * epsilon
    chosen = rule or lift.rule
    stages: list[LossOfEta] = [lambda eta, start: endless.loss(eta, chosen, start, enough)]
    if chosen != "largest":
        stages.insert(0, lambda eta, start: endless.loss(eta, "largest", start, enough))
    if endless is not lift:
        stages.append(lambda eta, start: lift.loss(eta, chosen, start, enough))
    most = epsilon / max(lift.unit, 1e-300)
    least = most * 1e-9 if lift.length is None else most / lift.length / 4.0
    return largest_eta(stages, epsilon, most, least)


def largest_eta(
    stages: Sequence[LossOfEta], epsilon: float, most: float, least: float
) -> LiftLoss | None:
    """The loss at the largest eta found with loss(eta) ≤ epsilon, most ≥ eta ≥ least; else None.

    stages are losses from cheap to tight, each at most the one before and each increasing in
    eta: what a cheap one accepts the next accepts too. Every accepted eta was evaluated, so the
    answer rounds down. The search interpolates log loss in log eta and falls back on bisection.
    """
    best: LiftLoss | None = None
    for place, loss in enumerate(stages):
        if best is None:
            best = _first(loss, epsilon, most, least)
        else:
            tighter = loss(best.eta, best)
            best = tighter if tighter.value <= best.value else best
        if best is not None:
            close = CLOSE if place == len(stages) - 1 else ROUGH
            best = _climb(loss, best, epsilon, most, close)
    return best


def _first(loss: LossOfEta, epsilon: float, most: float, least: float) -> LiftLoss | None:
    """A loss within epsilon, at the first of most, most/4, most/16, … that has one."""
    eta = most
    while eta >= least:
        found = loss(eta, None)
        if found.value <= epsilon:
            return found
        eta = max(eta / 4.0, least) if eta > least else 0.0
    return None


def _climb(loss: LossOfEta, found: LiftLoss, epsilon: float, most: float, close: float) -> LiftLoss:
    """The accepted loss nearest to epsilon, searched upwards from one that is accepted."""
    low, ceiling = found, most
    recent = [found]
    for attempt in range(ROUNDS):
        if low.value >= epsilon * (1.0 - close) or low.eta >= ceiling * (1.0 - close):
            break
        eta = _aim(recent, epsilon * (1.0 - close / 2.0)) if attempt < ROUNDS // 2 else 0.0
        if not low.eta < eta < ceiling:
            eta = float(np.sqrt(low.eta * ceiling))
        tried = loss(eta, recent[-1])
        recent = [*recent, tried][-2:] if np.isfinite(tried.value) else [low]
        if tried.value <= epsilon:
            low = tried
        else:
            ceiling = eta
    return low


def _aim(recent: Sequence[LiftLoss], target: float) -> float:
    """Where the line through the last two losses, in logarithms, meets the target."""
    last = recent[-1]
    slope = 1.0
    if len(recent) > 1 and recent[0].value != last.value and recent[0].eta != last.eta:
        slope = float(np.log(last.value / recent[0].value) / np.log(last.eta / recent[0].eta))
    if last.value <= 0.0 or slope <= 0.0:
        return 0.0
    return float(last.eta * (target / last.value) ** (1.0 / slope))
