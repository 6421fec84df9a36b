"""Quilts of one node: what they cost, which lags there are, and the cheapest seen so far.

A quilt of node i is a pair of lags (a, b) with end-points i-a and i+b; an absent end-point counts
as lag left+1 or right+1, one step past the end of the chain, so that |N| = a + b - 1 always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from shoal.core.value import Floats
from shoal.loss.kernels import UNIT

FARTHEST = 1 << 26  # lags beyond this are not tried on chains of any length
MARGIN = 2e-10  # share of epsilon a scale keeps back: twice what a search for the loss may be off
LARGE = 1 << 13  # |N| up to which the cheapest quilt is found exactly
NEXT_TO_NOTHING = 5e-324  # stands for no influence, of all quilts but the one without end-points
NEARLY = 5e-4  # and beyond it within this share of its cost, which a scale keeps back twice


class Influence(Protocol):
    """e({i-a, i+b} | i) as a function of the two lags; None is an absent end-point."""

    def __call__(self, left: int | None, right: int | None) -> float: ...

    def at_least(self, left: int | None, right: int | None) -> float:
        """A lower bound on e that is cheaper to get."""
        ...

    def witnessed(self, left: int, right: int) -> tuple[Floats, Floats] | None:
        """B at lags 1..left and F at lags 1..right (rows) for a few pairs of values (columns).

        For each pair B + F is a lower bound on e. None when not worth the trouble.
        """
        ...


class Cost(Protocol):
    """What a quilt costs; never falls when |N| or e grows."""

    def __call__(self, nearby: int, influence: float) -> float: ...

    def largest(self, cost: float) -> float:
        """No |N| above this costs less than `cost`, whatever its influence."""
        ...

    def line(self, cost: float) -> tuple[float, float]:
        """(alpha, beta) such that only quilts with e < alpha - beta·|N| cost less than `cost`."""
        ...


@dataclass(frozen=True, slots=True)
class Scale:
    """The noise scale |N| / (epsilon - e) of a 1-Lipschitz query; inf when e >= epsilon.

    Rounds up, far enough that the `Loss` of the result, rounded up too, is within epsilon however
    the search for it ends. An influence of 0 stands for the quilt without end-points, which
    every search looks at.
    """

    epsilon: float

    def __call__(self, nearby: int, influence: float) -> float:
        kept_back = MARGIN if nearby <= LARGE else 2.0 * NEARLY
        if influence == 0.0:
            kept_back = 8.0 * UNIT
        left = self.epsilon * (1.0 - kept_back) - influence
        return nearby / left * (1.0 + 4.0 * UNIT) if left > 0.0 else math.inf

    def largest(self, cost: float) -> float:
        return cost * self.epsilon

    def line(self, cost: float) -> tuple[float, float]:
        return self.epsilon * (1.0 - MARGIN), 1.0 / cost


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss |N|·eta + e of noise that is eta-private for one entry. Rounds up."""

    eta: float

    def __call__(self, nearby: int, influence: float) -> float:
        return (nearby * self.eta + influence) * (1.0 + 2.0 * UNIT)

    def largest(self, cost: float) -> float:
        return cost / self.eta if self.eta > 0.0 else math.inf

    def line(self, cost: float) -> tuple[float, float]:
        return cost, self.eta


class Quilt(NamedTuple):
    """One quilt: lags of its end-points (None = absent), |N|, e and what it costs."""

    left: int | None
    right: int | None
    nearby: int
    influence: float
    cost: float


NONE = Quilt(None, None, 0, math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Side:
    """The lags one side offers: 1..real, and, when the chain ends, the absent end-point."""

    real: int
    absent: int | None  # its lag: one past the end; None when the chain has no end

    @classmethod
    def of(cls, entries: int | None, reach: int | None) -> Side:
        """A side with this many entries (None = endless) and end-points within `reach`."""
        limits = [limit for limit in (entries, reach) if limit is not None]
        real = min([*limits, FARTHEST])
        return cls(real, None if entries is None else entries + 1)

    @property
    def positions(self) -> int:
        return self.real + (self.absent is not None)

    def lag(self, position: int) -> int:
        return position if position <= self.real or self.absent is None else self.absent

    def endpoint(self, position: int) -> int | None:
        return position if position <= self.real else None

    def within(self, limit: float) -> int:
        """The last position whose lag is below `limit`."""
        if math.isinf(limit) or (self.absent is not None and self.absent < limit):
            return self.positions
        return max(0, min(self.real, math.ceil(limit) - 1))


class Search:
    """The quilts of one node: the cheapest so far, and bounds on the others."""

    def __init__(self, influence: Influence, left: Side, right: Side, cost: Cost) -> None:
        self.influence, self.cost = influence, cost
        self.left, self.right = left, right
        self._least: dict[tuple[int, int], float] = {}
        self.best = NONE

    def _at_least(self, a: int, b: int) -> float:
        known = self._least.get((a, b))
        if known is None:
            known = self.influence.at_least(self.left.endpoint(a), self.right.endpoint(b))
            self._least[a, b] = known
        return known

    def nearby(self, a: int, b: int) -> int:
        return self.left.lag(a) + self.right.lag(b) - 1

    def offer(self, a: int, b: int) -> None:
        """Keep the quilt at these positions if it is the cheapest so far."""
        nearby = self.nearby(a, b)
        if self._cost(nearby, a, b, self._at_least(a, b)) >= self.best.cost:
            return
        ends = self.left.endpoint(a), self.right.endpoint(b)
        influence = self._least[a, b] = self.influence(*ends)
        cost = self._cost(nearby, a, b, influence)
        if cost < self.best.cost:
            self.best = Quilt(*ends, nearby, influence, cost)

    def bound(self, a0: int, a1: int, b0: int, b1: int) -> float:
        """No quilt in the box costs less than this."""
        return self._cost(self.nearby(a0, b0), a1, b1, self._at_least(a1, b1))

    def trivial(self, a: int, b: int) -> bool:
        """Whether these positions are those of the quilt without end-points."""
        return self.left.endpoint(a) is None and self.right.endpoint(b) is None

    def _cost(self, nearby: int, a: int, b: int, influence: float) -> float:
        return self.cost(nearby, influence if self.trivial(a, b) else influence or NEXT_TO_NOTHING)

    def limit(self) -> float:
        return self.cost.largest(self.best.cost)
