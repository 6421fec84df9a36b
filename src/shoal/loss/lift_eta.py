"""The largest eta whose lift stays within epsilon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from shoal.loss.cone import CEILING, Rule
from shoal.loss.lift_loss import LiftLoss
from shoal.loss.lift_side import SHORT

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
