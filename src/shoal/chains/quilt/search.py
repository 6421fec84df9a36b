"""Quilts of one node: what they cost, which lags there are, and the cheapest seen so far.

A quilt of node i is a pair of lags (a, b) with end-points i-a and i+b; an absent end-point counts
as lag left+1 or right+1, one step past the end of the chain, so that |N| = a + b - 1 always.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from shoal.chains.walk import UNIT
from shoal.core.codec import Floats
from shoal.core.progress import in_time

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
class QuiltLoss:
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
class QuiltEnd:
    """The lags one side offers: 1..real, and, when the chain ends, the absent end-point."""

    real: int
    absent: int | None  # its lag: one past the end; None when the chain has no end

    @classmethod
    def of(cls, entries: int | None, reach: int | None) -> QuiltEnd:
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

    def __init__(self, influence: Influence, left: QuiltEnd, right: QuiltEnd, cost: Cost) -> None:
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
        in_time("the search for quilts")
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


# The cheapest quilt of a node with many values, by a few pairs of them: cutting planes.
#
# For one pair of values w = (x, x') the influence of a quilt is at least B_a(w) + F_b(w), one
# number a side. A quilt beats the best so far only if e < alpha - beta·|N|, so only if B_a(w) +
# beta·a and F_b(w) + beta·b are small together, for every w: that rules out all but a few lags on
# each side. The quilt that looks cheapest is then evaluated over all pairs; if its influence was
# underestimated, the pair that attains it joins the list.


MOST_LAGS = 4096  # longer sides are left to branch and bound
MOST_ROUNDS = 64
KEPT = 512  # lags a side compared at once; the most promising ones when there are more
RESOLUTION = 1e-11  # share of the budget below which an improvement does not count


def finish_by_cuts(search: Search, enough: float) -> bool:
    """Improve `search.best` until nothing is cheaper, or than `enough`; False when given up."""
    for _ in range(MOST_ROUNDS):
        limit = search.limit() + 1.0
        last = search.left.within(limit), search.right.within(limit)
        if min(last) == 0 or search.best.cost <= enough:
            return True
        if max(last) > MOST_LAGS:
            return False
        found = search.influence.witnessed(
            min(last[0], search.left.real), min(last[1], search.right.real)
        )
        if found is None:
            return False
        alpha, beta = search.cost.line(search.best.cost)
        before = _priced(search.left, last[0], found[0], beta)
        after = _priced(search.right, last[1], found[1], beta)
        target = alpha * (1.0 - RESOLUTION) + beta
        position, complete = _most_promising(before, after, target)
        if position is None:
            return complete
        search.offer(*position)
    return False


def _priced(side: QuiltEnd, last: int, influences: Floats, beta: float) -> Floats:
    """Influence plus beta times lag, for positions 1..last (rows) and each pair (columns)."""
    lags = np.arange(1.0, last + 1.0)
    lags[-1] = side.lag(last)
    if last > len(influences):  # the absent end-point has no influence
        influences = np.concatenate((influences, np.zeros((1, influences.shape[1]))))
    return np.asarray(influences + beta * lags[:, None])


def _most_promising(
    before: Floats, after: Floats, target: float
) -> tuple[tuple[int, int] | None, bool]:
    """The positions whose bound lies deepest below `target`, and whether all were compared."""
    left_best = (before + after.min(axis=0)).max(axis=1)
    right_best = (after + before.min(axis=0)).max(axis=1)
    left, right = np.flatnonzero(left_best < target), np.flatnonzero(right_best < target)
    complete = max(len(left), len(right)) <= KEPT
    if not complete:
        left = left[np.argsort(left_best[left], kind="stable")[:KEPT]]
        right = right[np.argsort(right_best[right], kind="stable")[:KEPT]]
    if not (len(left) and len(right)):
        return None, True
    bound = before[left, 0][:, None] + after[right, 0]
    for pair in range(1, before.shape[1]):
        np.maximum(bound, before[left, pair][:, None] + after[right, pair], out=bound)
    at = np.unravel_index(int(bound.argmin()), bound.shape)
    if bound[at] >= target:
        return None, complete
    return (int(left[at[0]]) + 1, int(right[at[1]]) + 1), complete


# The cheapest quilt of a node: exact, without looking at every quilt.
#
# Influence never grows with a lag (data processing), and an absent end-point has none: so over a
# box [a0, a1] × [b0, b1] of lags no quilt costs less than |N| at (a0, b0) together with e at (a1,
# b1).


def least_quilt(
    influence: Influence,
    left: int | None,
    right: int | None,
    cost: Cost,
    *,
    reach: tuple[int | None, int | None] = (None, None),
    enough: float = -math.inf,
    below: float = math.inf,
    start: Iterable[tuple[int | None, int | None]] = (),
) -> Quilt:
    """The cheapest quilt of a node with `left` entries before it and `right` after it.

    None means endlessly many. `reach` limits the lag of each end-point; absent end-points are
    always allowed. The search stops early at a quilt that costs at most `enough`, and looks only
    for quilts cheaper than `below`. `start` holds lags worth trying first. NONE, of cost inf, when
    there is no such quilt.
    """
    search = Search(influence, QuiltEnd.of(left, reach[0]), QuiltEnd.of(right, reach[1]), cost)
    search.best = NONE._replace(cost=below)
    if left is not None and right is not None:
        search.offer(search.left.positions, search.right.positions)
    for a, b in start:
        _offer_lags(search, a, b)
    if search.best.cost > enough:
        _probe(search)
    if enough < search.best.cost < math.inf and not finish_by_cuts(search, enough):
        _refine(search, enough)
    return search.best if search.best.nearby else NONE


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
    """Branch and bound over boxes of positions, cheapest bound first.

    Exact up to |N| = LARGE. The best of larger ones is within the share NEARLY of the least, since
    the quilts that near it are as many as |N|.
    """
    a1, b1 = search.left.within(search.limit() + 1.0), search.right.within(search.limit() + 1.0)
    boxes = [(0.0, 1, a1, 1, b1)] if a1 and b1 else []
    while boxes:
        bound, *box = heapq.heappop(boxes)
        if bound >= search.best.cost or search.best.cost <= enough:
            return
        large = search.best.nearby > LARGE and not search.trivial(box[1], box[3])
        if large and bound >= search.best.cost * (1.0 - NEARLY):
            continue
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
