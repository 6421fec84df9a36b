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

from shoal.chains.quilt.nodes import ChainNodes, NodeInfluence
from shoal.core.progress import in_time
from shoal.core.walk import UNIT

FARTHEST = 1 << 26  # lags beyond this are not tried on chains of any length
# share of epsilon a scale keeps back: twice what a search for the loss may be off
EPSILON_KEPT_BACK = 2e-10
LARGE = 1 << 13  # |N| up to which the cheapest quilt is found exactly
NEXT_TO_NOTHING = 5e-324  # stands for no influence, of all quilts but the one without end-points
NEARLY = 5e-4  # and beyond it within this share of its cost, which a scale keeps back twice


class Influence(Protocol):
    """e({i-a, i+b} | i) as a function of the two lags; None is an absent end-point."""

    def __call__(self, left: int | None, right: int | None) -> float: ...


class Cost(Protocol):
    """What a quilt costs; never falls when |N| or e grows."""

    def __call__(self, nearby: int, influence: float) -> float: ...

    def largest(self, cost: float) -> float:
        """No |N| above this costs less than `cost`, with any influence."""
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
        kept_back = EPSILON_KEPT_BACK if nearby <= LARGE else 2.0 * NEARLY
        if influence == 0.0:
            kept_back = 8.0 * UNIT
        left = self.epsilon * (1.0 - kept_back) - influence
        return nearby / left * (1.0 + 4.0 * UNIT) if left > 0.0 else math.inf

    def largest(self, cost: float) -> float:
        return cost * self.epsilon


@dataclass(frozen=True, slots=True)
class QuiltLoss:
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
        self._known: dict[tuple[int, int], float] = {}
        self.best = NONE

    def _influence(self, a: int, b: int) -> float:
        known = self._known.get((a, b))
        if known is None:
            known = self.influence(self.left.endpoint(a), self.right.endpoint(b))
            self._known[a, b] = known
        return known

    def nearby(self, a: int, b: int) -> int:
        return self.left.lag(a) + self.right.lag(b) - 1

    def offer(self, a: int, b: int) -> None:
        """Keep the quilt at these positions if it is the cheapest so far."""
        in_time("the search for quilts")
        nearby, influence = self.nearby(a, b), self._influence(a, b)
        cost = self._cost(nearby, a, b, influence)
        if cost < self.best.cost:
            ends = self.left.endpoint(a), self.right.endpoint(b)
            self.best = Quilt(*ends, nearby, influence, cost)

    def bound(self, a0: int, a1: int, b0: int, b1: int) -> float:
        """No quilt in the box costs less than this."""
        return self._cost(self.nearby(a0, b0), a1, b1, self._influence(a1, b1))

    def trivial(self, a: int, b: int) -> bool:
        """Whether these positions are those of the quilt without end-points."""
        return self.left.endpoint(a) is None and self.right.endpoint(b) is None

    def _cost(self, nearby: int, a: int, b: int, influence: float) -> float:
        return self.cost(nearby, influence if self.trivial(a, b) else influence or NEXT_TO_NOTHING)

    def limit(self) -> float:
        return self.cost.largest(self.best.cost)


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
    if enough < search.best.cost < math.inf:
        _refine(search, enough)
    return search.best if search.best.nearby else NONE


def _offer_lags(search: Search, a: int | None, b: int | None) -> None:
    """Offer the quilt with end-points at these lags to the search, if both can be looked up.

    None, or a lag beyond the computed ones, stands for a side without an end-point.
    """
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


# What a search over nodes is asked and what it reports.


Lags = tuple[int | None, int | None]


class QuiltRun(NamedTuple):
    """Nodes first, first+step, …, last, all protected by end-points `left` and `right` away.

    None as a lag is an absent end-point; None as `last` means every later node.
    """

    first: int
    last: int | None
    step: int
    left: int | None
    right: int | None


class WorstNode(NamedTuple):
    """A node and its cheapest quilt."""

    node: int | None
    quilt: Quilt


class Survey(NamedTuple):
    """The worst node, a quilt that is enough for each node, and every cost on short chains."""

    worst: WorstNode
    runs: tuple[QuiltRun, ...]
    scores: tuple[float, ...] = ()


class SurveyGoal(NamedTuple):
    """What all nodes share: the length (None = any), the cost of a quilt, the farthest lag."""

    length: int | None
    cost: Cost
    reach: int | None

    def least(
        self,
        influence: Influence,
        node: int,
        enough: float = -math.inf,
        start: Iterable[Lags] = (),
        reach: Lags | None = None,
        below: float = math.inf,
    ) -> Quilt:
        """The cheapest quilt of `node`, see `least_quilt`."""
        right = None if self.length is None else self.length - 1 - node
        ends = (self.reach, self.reach) if reach is None else reach
        return least_quilt(
            influence,
            node,
            right,
            self.cost,
            reach=ends,
            enough=enough,
            below=below,
            start=start,
        )


UNSEEN = WorstNode(None, NONE._replace(cost=-math.inf))
NEVER = Survey(WorstNode(None, NONE), ())


def worse(one: WorstNode, other: WorstNode) -> WorstNode:
    """The one whose quilt costs more; the first when they tie."""
    return other if other.quilt.cost > one.quilt.cost else one


def cost_of(quilt: Quilt) -> float:
    return quilt.cost


def join_runs(*parts: Iterable[QuiltRun]) -> tuple[QuiltRun, ...]:
    """Runs one after another, neighbours with the same lags made one."""
    runs: list[QuiltRun] = []
    for run in (run for part in parts for run in part):
        last = runs[-1] if runs else None
        follows = last is not None and last.last == run.first - 1 and last.step == run.step == 1
        if last is not None and follows and last[3:] == run[3:]:
            runs[-1] = last._replace(last=run.last)
        else:
            runs.append(run)
    return tuple(runs)


# Nodes of a chain one by one, passing over those that cannot be the worst.


# a node this little worse than one searched to the end is not searched further
NODE_LITTLE_WORSE = 1e-10


def every_node(chain: ChainNodes, setting: SurveyGoal, length: int) -> Survey:
    """All nodes, each searched to the end."""
    quilts = [setting.least(NodeInfluence(chain, node), node) for node in range(length)]
    worst = UNSEEN
    for node, quilt in enumerate(quilts):
        worst = worse(worst, WorstNode(node, quilt))
    runs = (QuiltRun(node, node, 1, q.left, q.right) for node, q in enumerate(quilts))
    return Survey(worst, join_runs(runs), tuple(quilt.cost for quilt in quilts))


def one_by_one(chain: ChainNodes, setting: SurveyGoal, nodes: range, worst: WorstNode) -> Survey:
    """The worst of `nodes` and `worst`; a node stops at the first quilt that shows it is not.

    The cost reported is at most 1 + 1e-10 times the true maximum: no node is given up at a quilt
    dearer than that times the dearest node searched to the end.
    """
    worst = _climb(chain, setting, nodes, worst)
    finished, runs = worst.quilt.cost, list[QuiltRun]()
    lags: Lags = (None, None)
    for node in nodes:
        enough = finished * (1.0 + NODE_LITTLE_WORSE)
        start = [(None, worst.quilt.right), lags]
        if lags[0] == node - 1:  # the last node reached back to the first entry: so may this one
            start.append((node, lags[1]))
        quilt = setting.least(NodeInfluence(chain, node), node, enough, start)
        if quilt.cost > enough:
            finished = quilt.cost
        worst = worse(worst, WorstNode(node, quilt))
        lags = quilt.left, quilt.right
        runs.append(QuiltRun(node, node, 1, *lags))
    return Survey(worst, join_runs(runs))


def _climb(chain: ChainNodes, setting: SurveyGoal, nodes: range, worst: WorstNode) -> WorstNode:
    """A node likely to be among the worst, so that the others need no full search."""
    if not nodes:
        return worst
    place, step = len(nodes) // 2, len(nodes) // 4
    tried = [place]
    while tried:
        for other in tried:
            node = nodes[other]
            quilt = setting.least(NodeInfluence(chain, node), node, worst.quilt.cost)
            if quilt.cost > worst.quilt.cost:
                worst, place = WorstNode(node, quilt), other
        tried = [p for p in (place - step, place + step) if step and 0 <= p < len(nodes)]
        step //= 2
    return worst
