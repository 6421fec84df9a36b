"""The worst node of a chain: early nodes one by one, the settled rest all at once.

Why a finite search is enough for long chains and for chains of any length is proved in
mechanisms/markov_quilt.md; in short: with more entries on either side a node never needs less
noise, because dropping an end-point that leaves the chain keeps |N| and never raises e.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.loss.quilt_cost import Cost, Influence, Quilt
from shoal.loss.quilt_nodes import ChainNodes, NodeInfluence
from shoal.loss.quilt_report import (
    NEVER,
    UNSEEN,
    QuiltRun,
    Setting,
    Survey,
    Worst,
    cost_of,
    joined,
    worse,
)
from shoal.loss.quilt_scan import every_node, one_by_one
from shoal.loss.quilt_search import least_quilt
from shoal.loss.quilt_settle import contraction, settle

SMALL = 32  # up to this length every node is searched to the end and reported
UNMIXED = 4096  # longest chain whose nodes are all searched although it never mixes
TOLERANCE = 1e-13  # slack on law ratios at which a chain counts as settled
FAR = 1 << 40  # an entry this many periods on has a settled past at every lag tried


def survey(chain: ChainNodes, setting: Setting) -> Survey:
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
        worst = worse(worst, found)
        runs.extend(stretch)
    if worst.quilt.cost == math.inf:
        return NEVER
    early = one_by_one(chain, setting, range(first), worst)
    return Survey(early.worst, joined(early.runs, runs))


def _stretch(
    influence: Influence, inner: Quilt, first: int, step: int, cycle: int, setting: Setting
) -> tuple[Worst, list[QuiltRun]]:
    """The worst of the settled nodes first, first+step, …, whose two-sided quilt is `inner`."""
    if setting.length is None:
        return Worst(first, inner), [QuiltRun(first, None, step, inner.left, inner.right)]
    nodes, reach = range(first, setting.length, step), setting.reach
    clear = _clear(nodes, inner, setting.cost, setting.length)
    if clear is not None:
        return Worst(clear, inner), _covered(nodes, inner, setting.length)

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
) -> tuple[Worst, list[QuiltRun]]:
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
        worst = Worst(nodes[low - 1], rising(nodes[low - 1], math.inf))
        runs += _covered(nodes[:low], worst.quilt, length)
    if low < len(nodes):
        after = Worst(nodes[low], falling(nodes[low]))
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


def _unmixed(chain: ChainNodes, setting: Setting, length: int) -> Survey:
    """Long chains that never mix: the last certain entry, if any, cuts the chain in two."""
    certain, cost = chain.certain(length), setting.cost
    if certain is None:
        trivial = Quilt(None, None, length, 0.0, cost(length, 0.0))
        return Survey(Worst(length - 1, trivial), (QuiltRun(0, length - 1, 1, None, None),))
    before, after = certain, length - 1 - certain
    if before > after:
        return Survey(Worst(0, Quilt(None, certain, before, 0.0, cost(before, 0.0))), ())
    return Survey(Worst(length - 1, Quilt(after, None, after, 0.0, cost(after, 0.0))), ())
