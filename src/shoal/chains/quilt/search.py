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

from shoal.chains.quilt.nodes import ChainNodes, NodeInfluence
from shoal.core.codec import Floats
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
        kept_back = EPSILON_KEPT_BACK if nearby <= LARGE else 2.0 * NEARLY
        if influence == 0.0:
            kept_back = 8.0 * UNIT
        left = self.epsilon * (1.0 - kept_back) - influence
        return nearby / left * (1.0 + 4.0 * UNIT) if left > 0.0 else math.inf

    def largest(self, cost: float) -> float:
        return cost * self.epsilon

    def line(self, cost: float) -> tuple[float, float]:
        return self.epsilon * (1.0 - EPSILON_KEPT_BACK), 1.0 / cost


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
LAGS_COMPARED = 512  # lags a side compared at once; the most promising ones when there are more
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
    complete = max(len(left), len(right)) <= LAGS_COMPARED
    if not complete:
        left = left[np.argsort(left_best[left], kind="stable")[:LAGS_COMPARED]]
        right = right[np.argsort(right_best[right], kind="stable")[:LAGS_COMPARED]]
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


def joined(*parts: Iterable[QuiltRun]) -> tuple[QuiltRun, ...]:
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
NUMBERS_AT_ONCE = 1 << 18  # numbers held at once while one quilt is tried on many nodes


def every_node(chain: ChainNodes, setting: SurveyGoal, length: int) -> Survey:
    """All nodes, each searched to the end."""
    quilts = [setting.least(NodeInfluence(chain, node), node) for node in range(length)]
    worst = UNSEEN
    for node, quilt in enumerate(quilts):
        worst = worse(worst, WorstNode(node, quilt))
    runs = (QuiltRun(node, node, 1, q.left, q.right) for node, q in enumerate(quilts))
    return Survey(worst, joined(runs), tuple(quilt.cost for quilt in quilts))


def one_by_one(chain: ChainNodes, setting: SurveyGoal, nodes: range, worst: WorstNode) -> Survey:
    """The worst of `nodes` and `worst`; a node stops at the first quilt that shows it is not.

    The cost reported is at most 1 + 1e-10 times the true maximum: no node is given up at a quilt
    dearer than that times the dearest node searched to the end.
    """
    worst = _climb(chain, setting, nodes, worst)
    finished, runs = worst.quilt.cost, list[QuiltRun]()
    lags: tuple[int | None, int | None] = (None, None)
    node = nodes.start
    while node < nodes.stop:
        influence = NodeInfluence(chain, node)
        enough = finished * (1.0 + NODE_LITTLE_WORSE)
        start = [(None, worst.quilt.right), lags]
        if lags[0] == node - 1:  # the last node reached back to the first entry: so may this one
            start.append((node, lags[1]))
        quilt = setting.least(influence, node, enough, start)
        if quilt.cost > enough:
            finished = quilt.cost
        worst = worse(worst, WorstNode(node, quilt))
        lags = quilt.left, quilt.right
        enough = finished * (1.0 + NODE_LITTLE_WORSE)
        count, peak = _passed(chain, setting, quilt, range(node + 1, nodes.stop), enough)
        worst = worse(worst, peak)
        runs.append(QuiltRun(node, node + count, 1, *lags))
        node += count + 1
    return Survey(worst, joined(runs))


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


def _passed(
    chain: ChainNodes, setting: SurveyGoal, quilt: Quilt, nodes: range, enough: float
) -> tuple[int, WorstNode]:
    """How many of `nodes`, from the first, cost at most `enough` with the same lags; the dearest.

    0 when the supports of the nodes or of their left end-points may differ.
    """
    if setting.length is not None and quilt.right is not None:
        nodes = nodes[: max(0, setting.length - quilt.right - nodes.start)]
    steady = chain.cycle is not None and chain.period == 1
    if not (nodes and steady and nodes.start - (quilt.left or 0) >= (chain.cycle or 0)):
        return 0, UNSEEN
    count, peak = 0, UNSEEN
    size = max(1, NUMBERS_AT_ONCE // max(1, len(chain.secrets(nodes.start))) ** 2)
    alpha, beta = setting.cost.line(enough)
    for first in range(0, len(nodes), size):
        part = nodes[first : first + size]
        influences = _influences(chain, quilt, part)
        nearby = np.array([_nearby(setting.length, quilt, node) for node in (part[0], part[-1])])
        spread = np.linspace(nearby[0], nearby[1], len(part))  # it changes by a fixed step
        over = influences + beta * spread - alpha
        above = np.flatnonzero(over > 0.0)
        within = int(above[0]) if above.size else len(part)
        if within:
            at = int(over[:within].argmax())
            size_at, e = _nearby(setting.length, quilt, part[at]), float(influences[at])
            trivial = quilt.left is None and quilt.right is None
            cost = setting.cost(size_at, e if trivial else e or NEXT_TO_NOTHING)
            found = Quilt(quilt.left, quilt.right, size_at, e, cost)
            peak = worse(peak, WorstNode(part[at], found))
        count += within
        if above.size:
            break
    return count, peak


def _nearby(length: int | None, quilt: Quilt, node: int) -> int:
    """|N| of a node with these lags."""
    left = node + 1 if quilt.left is None else quilt.left
    if quilt.right is not None:
        return left + quilt.right - 1
    return left + (length or 0) - 1 - node


def _influences(chain: ChainNodes, quilt: Quilt, nodes: range) -> Floats:
    """e of the same lags at each of `nodes`, which share all supports. Rounds up."""
    if quilt.left is None:
        same = NodeInfluence(chain, nodes[0])(None, quilt.right)
        return np.full(len(nodes), same)
    fixed = chain.past(nodes[0], quilt.left)
    if quilt.right is not None:
        fixed = fixed + chain.future(nodes[0], quilt.right)
    moved = (chain.law_ratios(nodes) + fixed).reshape(len(nodes), -1)
    return np.asarray(np.maximum(moved.max(axis=1), 0.0) * (1.0 + 4.0 * UNIT))
