"""Nodes of a chain one by one, passing over those that cannot be the worst."""

from __future__ import annotations

import numpy as np

from shoal.core.value import Floats
from shoal.loss.kernels import UNIT
from shoal.loss.quilt_cost import NEXT_TO_NOTHING, Quilt
from shoal.loss.quilt_nodes import ChainNodes, NodeInfluence
from shoal.loss.quilt_report import UNSEEN, QuiltRun, Setting, Survey, Worst, joined, worse

NEGLIGIBLE = 1e-10  # a node this little worse than one searched to the end is not searched further
CHUNK = 1 << 18  # numbers held at once while one quilt is tried on many nodes


def every_node(chain: ChainNodes, setting: Setting, length: int) -> Survey:
    """All nodes, each searched to the end."""
    quilts = [setting.least(NodeInfluence(chain, node), node) for node in range(length)]
    worst = UNSEEN
    for node, quilt in enumerate(quilts):
        worst = worse(worst, Worst(node, quilt))
    runs = (QuiltRun(node, node, 1, q.left, q.right) for node, q in enumerate(quilts))
    return Survey(worst, joined(runs), tuple(quilt.cost for quilt in quilts))


def one_by_one(chain: ChainNodes, setting: Setting, nodes: range, worst: Worst) -> Survey:
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
        worst = worse(worst, Worst(node, quilt))
        lags = quilt.left, quilt.right
        enough = finished * (1.0 + NEGLIGIBLE)
        count, peak = _passed(chain, setting, quilt, range(node + 1, nodes.stop), enough)
        worst = worse(worst, peak)
        runs.append(QuiltRun(node, node + count, 1, *lags))
        node += count + 1
    return Survey(worst, joined(runs))


def _climb(chain: ChainNodes, setting: Setting, nodes: range, worst: Worst) -> Worst:
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
                worst, place = Worst(node, quilt), other
        tried = [p for p in (place - step, place + step) if step and 0 <= p < len(nodes)]
        step //= 2
    return worst


def _passed(
    chain: ChainNodes, setting: Setting, quilt: Quilt, nodes: range, enough: float
) -> tuple[int, Worst]:
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
            peak = worse(peak, Worst(part[at], found))
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
