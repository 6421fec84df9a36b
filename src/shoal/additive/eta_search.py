"""The one search for the largest eta whose loss stays within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from shoal.core.progress import time_over

CLOSE = 1e-8  # relative distance of the loss to epsilon at which the last search stops
ROUGH = 0.02  # and the searches before it
ATTEMPTS = 60  # evaluations of one search; the second half of them halve the bracket


class EtaBound(Protocol):
    """A loss, and the eta it was evaluated at."""

    @property
    def eta(self) -> float: ...
    @property
    def value(self) -> float: ...


Bound = TypeVar("Bound", bound=EtaBound)
LossOfEta = Callable[[float, Bound | None], Bound]  # an earlier result lends a guess


def largest_eta(
    stages: Sequence[LossOfEta[Bound]],
    epsilon: float,
    most: float,
    least: float,
    likely: float = np.inf,
    close: float = CLOSE,
) -> Bound | None:
    """The loss at the largest eta found with loss(eta) ≤ epsilon, most ≥ eta ≥ least; else None.

    stages are losses from cheap to tight, each at most the one before and each increasing in
    eta: what a cheap one accepts the next accepts too. Every accepted eta was evaluated, so the
    answer rounds down; when the time is over it is the best so far. The search begins at `likely`,
    interpolates log loss in log eta and falls back on bisection; the last stage ends within `close`
    of epsilon.
    """
    best: Bound | None = None
    for place, loss in enumerate(stages):
        if best is not None and time_over():
            break
        if best is None:
            best = _first(loss, epsilon, max(min(most, likely), least), least)
        else:
            tighter = loss(best.eta, best)
            best = tighter if tighter.value <= best.value else best
        if best is not None:
            last = place == len(stages) - 1
            best = climb(loss, best, epsilon, most, close if last else ROUGH)
    return best


def _first(loss: LossOfEta[Bound], epsilon: float, most: float, least: float) -> Bound | None:
    """A loss within epsilon, at the first of most, most/4, most/16, … that has one."""
    eta = most
    while eta >= least and not time_over():
        found = loss(eta, None)
        if found.value <= epsilon:
            return found
        eta = max(eta / 4.0, least) if eta > least else 0.0
    return None


def climb(
    loss: LossOfEta[Bound], found: Bound, epsilon: float, most: float, close: float = CLOSE
) -> Bound:
    """The accepted loss nearest to epsilon, searched upwards from one that is accepted."""
    low, ceiling = found, most
    recent = [found]
    for attempt in range(ATTEMPTS):
        if low.value >= epsilon * (1.0 - close) or low.eta >= ceiling * (1.0 - close):
            break
        if time_over():
            break
        eta = _aim(recent, epsilon * (1.0 - close / 2.0)) if attempt < ATTEMPTS // 2 else 0.0
        if not low.eta < eta < ceiling:
            eta = float(np.sqrt(low.eta * ceiling))
        tried = loss(eta, recent[-1])
        recent = [*recent, tried][-2:] if np.isfinite(tried.value) else [low]
        if tried.value <= epsilon:
            low = tried
        else:
            ceiling = eta
    return low


def _aim(recent: Sequence[Bound], target: float) -> float:
    """Where the line through the last two losses, in logarithms, meets the target."""
    last = recent[-1]
    slope = 1.0
    if len(recent) > 1 and recent[0].value != last.value and recent[0].eta != last.eta:
        slope = float(np.log(last.value / recent[0].value) / np.log(last.eta / recent[0].eta))
    if last.value <= 0.0 or slope <= 0.0:
        return 0.0
    return float(last.eta * (target / last.value) ** (1.0 / slope))
