"""The best quilt of a node by branch and bound, and the worst node of a long uniform stretch.

A quilt of node i is a pair of lags (a, b) with end-points i-a and i+b; an absent end-point counts
as lag left+1 or right+1, one step past the end of the chain, so that |N| = a + b - 1 always.
Influence never grows with a lag (data processing), and an absent end-point has none: so over a box
[a0, a1] × [b0, b1] no quilt costs less than |N| at (a0, b0) together with e at (a1, b1).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from shoal.loss.kernels import UNIT

FARTHEST = 1 << 26  # lags beyond this are not tried on chains of any length

Influence = Callable[[int | None, int | None], float]
"""e({i-a, i+b} | i) from the two lags; None is an absent end-point."""


class Cost(Protocol):
    """What a quilt costs; never falls when |N| or e grows."""

    def __call__(self, nearby: int, influence: float) -> float: ...

    def largest(self, cost: float) -> float:
        """No |N| above this costs less than `cost`, whatever its influence."""
        ...


@dataclass(frozen=True, slots=True)
class Scale:
    """The noise scale |N| / (epsilon - e) of a 1-Lipschitz query; inf when e >= epsilon.

    Rounds up, far enough that the `Loss` of the result, rounded up too, is within epsilon.
    """

    epsilon: float

    def __call__(self, nearby: int, influence: float) -> float:
        left = self.epsilon * (1.0 - 8.0 * UNIT) - influence
        return nearby / left * (1.0 + 4.0 * UNIT) if left > 0.0 else math.inf

    def largest(self, cost: float) -> float:
        return cost * self.epsilon


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss |N|·eta + e of noise that is eta-private for one entry. Rounds up."""

    eta: float

    def __call__(self, nearby: int, influence: float) -> float:
        return (nearby * self.eta + influence) * (1.0 + 2.0 * UNIT)

    def largest(self, cost: float) -> float:
        return cost / self.eta if self.eta > 0.0 else math.inf


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
    """The quilts of one node: their costs, each influence evaluated once."""

    def __init__(self, influence: Influence, left: Side, right: Side, cost: Cost) -> None:
        self._influence, self._cost = influence, cost
        self.left, self.right = left, right
        self._known: dict[tuple[int, int], float] = {}
        self.best = NONE

    def influence(self, a: int, b: int) -> float:
        known = self._known.get((a, b))
        if known is None:
            known = self._influence(self.left.endpoint(a), self.right.endpoint(b))
            self._known[a, b] = known
        return known

    def nearby(self, a: int, b: int) -> int:
        return self.left.lag(a) + self.right.lag(b) - 1

    def offer(self, a: int, b: int) -> None:
        """Keep the quilt at these positions if it is the cheapest so far."""
        influence, nearby = self.influence(a, b), self.nearby(a, b)
        cost = self._cost(nearby, influence)
        if cost < self.best.cost:
            ends = self.left.endpoint(a), self.right.endpoint(b)
            self.best = Quilt(*ends, nearby, influence, cost)

    def bound(self, a0: int, a1: int, b0: int, b1: int) -> float:
        """No quilt in the box costs less than this."""
        return self._cost(self.nearby(a0, b0), self.influence(a1, b1))

    def limit(self) -> float:
        return self._cost.largest(self.best.cost)


def least_quilt(
    influence: Influence,
    left: int | None,
    right: int | None,
    cost: Cost,
    *,
    reach: tuple[int | None, int | None] = (None, None),
    enough: float = -math.inf,
    start: Iterable[tuple[int | None, int | None]] = (),
) -> Quilt:
    """The cheapest quilt of a node with `left` entries before it and `right` after it.

    None means endlessly many. `reach` limits the lag of each end-point; absent end-points are
    always allowed. The search stops early at a quilt that costs at most `enough`. `start` holds
    lags worth trying first. NONE, of cost inf, when an endless chain offers no finite quilt.
    """
    search = Search(influence, Side.of(left, reach[0]), Side.of(right, reach[1]), cost)
    if left is not None and right is not None:
        search.offer(search.left.positions, search.right.positions)
    for a, b in start:
        _offer_lags(search, a, b)
    if search.best.cost > enough:
        _probe(search)
    if enough < search.best.cost < math.inf:
        _refine(search, enough)
    return search.best


def _offer_lags(search: Search, a: int | None, b: int | None) -> None:
    positions = [
        side.positions if lag is None or lag > side.real else lag
        for side, lag in ((search.left, a), (search.right, b))
    ]
    if min(positions) > 0:
        search.offer(*positions)


def _probe(search: Search) -> None:
    """Try lags 1, 2, 4, … on both sides until no larger quilt can win."""
    last_left, last_right = search.left.positions, search.right.positions
    step = 1
    while min(last_left, last_right) > 0:
        a, b = min(step, last_left), min(step, last_right)
        if search.nearby(a, b) >= search.limit():
            return
        search.offer(a, b)
        if (a, b) == (last_left, last_right):
            return
        step *= 2


def _refine(search: Search, enough: float) -> None:
    """Branch and bound over boxes of positions, cheapest bound first."""
    a1, b1 = search.left.within(search.limit() + 1.0), search.right.within(search.limit() + 1.0)
    boxes = [(0.0, 1, a1, 1, b1)] if a1 and b1 else []
    while boxes:
        bound, *box = heapq.heappop(boxes)
        if bound >= search.best.cost or search.best.cost <= enough:
            return
        for part in _halves(*box):
            search.offer(part[1], part[3])
            least = search.bound(*part)
            if least < search.best.cost and (part[0] < part[1] or part[2] < part[3]):
                heapq.heappush(boxes, (least, *part))


def _halves(a0: int, a1: int, b0: int, b1: int) -> tuple[tuple[int, int, int, int], ...]:
    """The box cut in two across its longer side; itself when it is a single quilt."""
    if a1 - a0 >= b1 - b0:
        if a0 == a1:
            return ((a0, a1, b0, b1),)
        middle = (a0 + a1) // 2
        return (a0, middle, b0, b1), (middle + 1, a1, b0, b1)
    middle = (b0 + b1) // 2
    return (a0, a1, b0, middle), (a0, a1, middle + 1, b1)
