"""What a search over nodes is asked and what it reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from shoal.chains.quilt.nodes import ChainNodes, NodeInfluence, contraction, settle
from shoal.chains.quilt.search import NEXT_TO_NOTHING, NONE, Cost, Influence, Quilt, least_quilt
from shoal.chains.walk import UNIT
from shoal.core.codec import Floats

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


NEGLIGIBLE = 1e-10  # a node this little worse than one searched to the end is not searched further
CHUNK = 1 << 18  # numbers held at once while one quilt is tried on many nodes


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
        enough = finished * (1.0 + NEGLIGIBLE)
        start = [(None, worst.quilt.right), lags]
        if lags[0] == node - 1:  # the last node reached back to the first entry: so may this one
            start.append((node, lags[1]))
        quilt = setting.least(influence, node, enough, start)
        if quilt.cost > enough:
            finished = quilt.cost
        worst = worse(worst, WorstNode(node, quilt))
        lags = quilt.left, quilt.right
        enough = finished * (1.0 + NEGLIGIBLE)
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
    size = max(1, CHUNK // max(1, len(chain.secrets(nodes.start))) ** 2)
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


# The worst node of a chain: early nodes one by one, the settled rest all at once.
#
# Why a finite search is enough for long chains and for chains of any length is proved in
# additive/markov_quilt.md; in short: with more entries on either side a node never needs less
# noise, because dropping an end-point that leaves the chain keeps |N| and never raises e.


SMALL = 32  # up to this length every node is searched to the end and reported
UNMIXED = 4096  # longest chain whose nodes are all searched although it never mixes
TOLERANCE = 1e-13  # slack on law ratios at which a chain counts as settled
FAR = 1 << 40  # an entry this many periods on has a settled past at every lag tried


def survey(chain: ChainNodes, setting: SurveyGoal) -> Survey:
    """The node whose cheapest quilt costs most, over all nodes.

    Without a length, the supremum over every length: NEVER, of cost inf, when no finite quilt
    serves all of them.
    """
    length = setting.length
    if length is not None and length <= SMALL:
        return every_node(chain, setting, length)
    if length is not None and not chain.homogeneous:
        return one_by_one(chain, setting, range(length), UNSEEN)
    chain.mixing = contraction(chain)
    chain.settled = settle(chain, TOLERANCE, None if length is None else length - 1)
    if chain.settled is not None:
        return _settled(chain, setting, chain.settled.first)
    if length is None:
        return NEVER
    if chain.mixing is None and length > UNMIXED:
        return _unmixed(chain, setting, length)
    return one_by_one(chain, setting, range(length), UNSEEN)


def _settled(chain: ChainNodes, setting: SurveyGoal, settled: int) -> Survey:
    """Nodes whose law has settled share one quilt a phase; the others come one by one."""
    period, cycle = chain.period, chain.cycle or 0
    phases = [NodeInfluence(chain, settled + j + FAR * period) for j in range(period)]
    both = (setting.reach, setting.reach)
    inner = [least_quilt(phase, None, None, setting.cost, reach=both) for phase in phases]
    first = max(settled, cycle + max(quilt.left or 0 for quilt in inner))
    if setting.length is not None:
        first = min(first, setting.length)
    worst, runs = UNSEEN, list[QuiltRun]()
    for node in range(first, first + period):
        phase = (node - settled) % period
        found, stretch = _stretch(phases[phase], inner[phase], node, period, cycle, setting)
        worst = worse(worst, found)
        runs.extend(stretch)
    if worst.quilt.cost == math.inf:
        return NEVER
    early = one_by_one(chain, setting, range(first), worst)
    return Survey(early.worst, joined(early.runs, runs))


def _stretch(
    influence: Influence, inner: Quilt, first: int, step: int, cycle: int, setting: SurveyGoal
) -> tuple[WorstNode, list[QuiltRun]]:
    """The worst of the settled nodes first, first+step, …, whose two-sided quilt is `inner`."""
    if setting.length is None:
        return WorstNode(first, inner), [QuiltRun(first, None, step, inner.left, inner.right)]
    nodes, reach = range(first, setting.length, step), setting.reach
    clear = _clear(nodes, inner, setting.cost, setting.length)
    if clear is not None:
        return WorstNode(clear, inner), _covered(nodes, inner, setting.length)

    def rising(node: int, below: float) -> Quilt:
        return setting.least(influence, node, reach=(0, reach), below=below)

    def falling(node: int) -> Quilt:
        farthest = node - cycle if reach is None else min(reach, node - cycle)
        one_sided = setting.least(influence, node, reach=(farthest, 0), below=inner.cost)
        return min(inner, one_sided, key=cost_of)

    return worst_where_they_meet(nodes, rising, falling, setting.length)


def _clear(nodes: range, inner: Quilt, cost: Cost, length: int) -> int | None:
    """A node so far from both ends that quilts without an end-point there cost more than `inner`.

    None when there is none: then they have to be compared.
    """
    distance = cost.largest(inner.cost)
    if not distance < length:
        return None
    from_left = max(0, math.ceil((distance - nodes.start) / nodes.step))
    if from_left >= len(nodes) or length - nodes[from_left] < distance:
        return None
    return nodes[from_left]


def worst_where_they_meet(
    nodes: range,
    rising: Callable[[int, float], Quilt],
    falling: Callable[[int], Quilt],
    length: int,
) -> tuple[WorstNode, list[QuiltRun]]:
    """The worst of `nodes` when each needs the cheaper of a rising and a falling cost.

    With the node moving right, quilts without a left end-point get dearer (`rising`), those
    without a right end-point cheaper, two-sided ones no dearer (`falling`). `rising` takes a cost
    above which it need not look. Doubling, then bisection: the ends of a long chain are far apart.
    """
    low, high, probe = 0, len(nodes), 0
    while low < high:
        middle = min(probe, (low + high) // 2)
        other = falling(nodes[middle]).cost
        if rising(nodes[middle], other).cost >= other:
            high = middle
        else:
            low = middle + 1
        probe = 2 * probe + 1 if high == len(nodes) else high
    worst, runs = UNSEEN, list[QuiltRun]()
    if low > 0:
        worst = WorstNode(nodes[low - 1], rising(nodes[low - 1], math.inf))
        runs += _covered(nodes[:low], worst.quilt, length)
    if low < len(nodes):
        after = WorstNode(nodes[low], falling(nodes[low]))
        worst = worse(worst, after)
        runs += _covered(nodes[low:], after.quilt, length)
    return worst, runs


def _covered(nodes: range, quilt: Quilt, length: int) -> list[QuiltRun]:
    """Runs for `nodes`: this quilt, without its right end-point where that leaves the chain."""
    inside = nodes
    if quilt.right is not None:
        inside = nodes[: len(range(nodes.start, length - quilt.right, nodes.step))]
    runs = []
    for part, right in ((inside, quilt.right), (nodes[len(inside) :], None)):
        if part:
            runs.append(QuiltRun(part[0], part[-1], part.step, quilt.left, right))
    return runs


def _unmixed(chain: ChainNodes, setting: SurveyGoal, length: int) -> Survey:
    """Long chains that never mix: the last certain entry, if any, cuts the chain in two."""
    certain, cost = chain.certain(length), setting.cost
    if certain is None:
        trivial = Quilt(None, None, length, 0.0, cost(length, 0.0))
        return Survey(WorstNode(length - 1, trivial), (QuiltRun(0, length - 1, 1, None, None),))
    before, after = certain, length - 1 - certain
    if before > after:
        return Survey(WorstNode(0, Quilt(None, certain, before, 0.0, cost(before, 0.0))), ())
    return Survey(WorstNode(length - 1, Quilt(after, None, after, 0.0, cost(after, 0.0))), ())
