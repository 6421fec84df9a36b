"""The worst node of a chain: early nodes one by one, the settled rest all at once.

Why a finite search is enough for long chains and for chains of any length is proved in
mechanisms/markov_quilt.md; in short: with more entries on either side a node never needs less
noise, because dropping an end-point that leaves the chain keeps |N| and never raises e.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.loss.quilt_nodes import ChainNodes, NodeInfluence, settle
from shoal.loss.quilt_search import NONE, Cost, Influence, Quilt, least_quilt

SMALL = 32  # up to this length every node is searched to the end and reported
UNSETTLED = 4096  # longest chain whose nodes are all searched although it never mixes
TOLERANCE = 1e-13  # slack on law ratios at which a chain counts as settled
FAR = 1 << 40  # an entry this many periods on has a settled past at every lag tried

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


class Worst(NamedTuple):
    """A node and its cheapest quilt."""

    node: int | None
    quilt: Quilt


class Survey(NamedTuple):
    """The worst node, a quilt that is enough for each node, and every cost on short chains."""

    worst: Worst
    runs: tuple[QuiltRun, ...]
    scores: tuple[float, ...] = ()


class Setting(NamedTuple):
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
    ) -> Quilt:
        """The cheapest quilt of `node`."""
        right = None if self.length is None else self.length - 1 - node
        ends = (self.reach, self.reach) if reach is None else reach
        return least_quilt(
            influence, node, right, self.cost, reach=ends, enough=enough, start=start
        )


UNSEEN = Worst(None, NONE._replace(cost=-math.inf))
NEVER = Survey(Worst(None, NONE), ())


def survey(chain: ChainNodes, setting: Setting) -> Survey:
    """The node whose cheapest quilt costs most, over all nodes.

    Without a length, the supremum over every length: NEVER, of cost inf, when no finite quilt
    serves all of them.
    """
    length = setting.length
    if length is not None and (length <= SMALL or not chain.homogeneous):
        return _one_by_one(chain, setting, range(length), UNSEEN)
    chain.settled = settle(chain, TOLERANCE, None if length is None else length - 1)
    if chain.settled is not None:
        return _settled(chain, setting, chain.settled.first)
    if length is None:
        return NEVER
    if length > UNSETTLED:
        return _unsettled(chain, setting, length)
    return _one_by_one(chain, setting, range(length), UNSEEN)


def _one_by_one(chain: ChainNodes, setting: Setting, nodes: range, worst: Worst) -> Survey:
    """Some nodes one by one; one that cannot be worst stops at the first quilt that shows it."""
    complete = setting.length is not None and setting.length <= SMALL
    if nodes and worst is UNSEEN and not complete:
        middle = nodes[len(nodes) // 2]  # likely the worst: spares the others a full search
        worst = Worst(middle, setting.least(NodeInfluence(chain, middle), middle))
    quilts: list[Quilt] = []
    for node in nodes:
        enough = -math.inf if complete else worst.quilt.cost
        tried = [(None, worst.quilt.right), *((q.left, q.right) for q in quilts[-1:])]
        quilt = setting.least(NodeInfluence(chain, node), node, enough, tried)
        worst = _worse(worst, Worst(node, quilt))
        quilts.append(quilt)
    scores = tuple(quilt.cost for quilt in quilts) if complete else ()
    return Survey(worst, _grouped(nodes.start, quilts), scores)


def _settled(chain: ChainNodes, setting: Setting, settled: int) -> Survey:
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
        worst = _worse(worst, found)
        runs.extend(stretch)
    if worst.quilt.cost == math.inf:
        return NEVER
    early = _one_by_one(chain, setting, range(first), worst)
    return Survey(early.worst, (*early.runs, *runs))


def _stretch(
    influence: Influence, inner: Quilt, first: int, step: int, cycle: int, setting: Setting
) -> tuple[Worst, list[QuiltRun]]:
    """The worst of the settled nodes first, first+step, …, whose two-sided quilt is `inner`.

    With the node moving right, quilts without a left end-point get dearer and those without a
    right end-point cheaper, so the worst node is where the two meet, or where `inner` beats both.
    """
    if setting.length is None:
        return Worst(first, inner), [QuiltRun(first, None, step, inner.left, inner.right)]
    nodes = range(first, setting.length, step)
    reach = setting.reach

    def rising(node: int) -> Quilt:
        return setting.least(influence, node, reach=(0, reach))

    def falling(node: int) -> Quilt:
        settled = node - cycle
        quilt = setting.least(
            influence, node, reach=(settled if reach is None else min(reach, settled), 0)
        )
        return min(inner, quilt, key=lambda q: q.cost)

    low, high = 0, len(nodes)
    while low < high:
        middle = (low + high) // 2
        if rising(nodes[middle]).cost >= falling(nodes[middle]).cost:
            high = middle
        else:
            low = middle + 1
    worst, runs = UNSEEN, list[QuiltRun]()
    if low > 0:
        worst = Worst(nodes[low - 1], rising(nodes[low - 1]))
        runs += _covered(nodes[:low], worst.quilt, setting.length)
    if low < len(nodes):
        after = Worst(nodes[low], falling(nodes[low]))
        worst = _worse(worst, after)
        runs += _covered(nodes[low:], after.quilt, setting.length)
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


def _unsettled(chain: ChainNodes, setting: Setting, length: int) -> Survey:
    """Long chains that never mix: the last certain entry, if any, cuts the chain in two."""
    certain = chain.certain(length)
    if certain is None:
        quilt = Quilt(None, None, length, 0.0, setting.cost(length, 0.0))
        return Survey(Worst(length - 1, quilt), (QuiltRun(0, length - 1, 1, None, None),))
    nearby = max(certain, length - 1 - certain, 1)
    node = 0 if nearby == certain else length - 1
    ends = (None, certain) if node == 0 else (length - 1 - certain, None)
    quilt = Quilt(*ends, nearby, 0.0, setting.cost(nearby, 0.0))
    return Survey(Worst(node, quilt), ())


def _grouped(first: int, quilts: Sequence[Quilt]) -> tuple[QuiltRun, ...]:
    """Consecutive nodes with the same lags as one run."""
    runs: list[QuiltRun] = []
    for node, quilt in enumerate(quilts, start=first):
        last = runs[-1] if runs else None
        if last is not None and (last.left, last.right) == (quilt.left, quilt.right):
            runs[-1] = last._replace(last=node)
        else:
            runs.append(QuiltRun(node, node, 1, quilt.left, quilt.right))
    return tuple(runs)


def _worse(one: Worst, other: Worst) -> Worst:
    return other if other.quilt.cost > one.quilt.cost else one
