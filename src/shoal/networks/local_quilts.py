"""Quilts of large networks: rings around a variable, their influence from what lies inside alone.

A set Q that separates N ∋ i from everything else in the moral graph leaves the law of N given Q to
the tables that touch N:

    P(X_i = x | Q = q) ∝ W[x, q] = Σ over the rest of N of Π of those tables,
    P(q | x) / P(q | x') = (W[x, q] / W[x', q]) / (P(x) / P(x')),

so only N is eliminated, never the joint law. Proof: additive/markov_quilt.md, Claim 15.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from shoal.chains.walk import UNIT
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.progress import OutOfTime
from shoal.core.walk import Wide
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import Scope, elimination, followed_joint
from shoal.networks.graph import Neighbours, children_of, d_connected
from shoal.networks.influence import joint_law

MAX_CELLS = 2**14  # values a ring and its variable may have together
WIDEST = 20  # members of a ring that are dropped one by one: each time all are tried
MOST_INSIDE = 64  # variables a ring may hold: beyond it no quilt saves much, and tables grow

Ring = tuple[Scope, frozenset[int]]  # a separator, and what it holds with the variable


def local_candidates(
    net: BayesNet, graph: Neighbours, node: int
) -> Iterator[tuple[Scope, int, float]]:
    """Quilts of one variable: members, how many variables they leave nearby, their influence.

    Influences round up. The empty quilt comes first.
    """
    yield (), len(d_connected(net.above, node, ()) | {node}), 0.0
    prior = _prior(net, node)
    for quilt, inside in _rings(net, graph, node):
        # what d-separation leaves nearby is a part of what the ring holds
        near = len(d_connected(net.above, node, quilt) | {node})
        yield quilt, near, ring_influence(net, node, quilt, inside, prior)


class Prior(NamedTuple):
    """log P(X = x) up to `error` each, -inf exactly where impossible."""

    logs: Floats
    error: float


def ring_influence(
    net: BayesNet, node: int, quilt: Scope, inside: Collection[int], prior: Prior | None = None
) -> float:
    """An upper bound of the influence of X_node on a ring around `inside`; inf where there is none.

    max over q, x, x' of log W[x, q]/W[x', q] - log P(x)/P(x'), over the q the inside allows, more
    than those that are possible. Without `prior`, log P(x)/P(x') is taken as the least of
    log W[x, q]/W[x', q] over q, below which it is not.
    """
    children = children_of(net.above)
    factors = net.factors(sorted({v for n in inside for v in (n, *children[n])}))
    scopes = tuple(factor.scope for factor in factors)
    if not {v for scope in scopes for v in scope} <= {*inside, *quilt}:
        raise ValueError("the ring does not hold the variables inside it: a table reaches beyond")
    kept = (node, *quilt)
    try:
        law = followed_joint(factors, net.sizes, kept)
    except OutOfTime:
        raise
    except Refused:
        return math.inf
    roundings = 2 * elimination(scopes, tuple(net.sizes), kept).roundings + len(factors)
    weights = law.arranged(lambda table: table.reshape(net.sizes[node], -1))
    return _influence(weights, prior, roundings)


def _influence(weights: Wide, prior: Prior | None, roundings: int) -> float:
    """The largest log-ratio over columns and pairs of rows, beside the prior; rounds up."""
    known = np.ones(weights.shape[0], bool) if prior is None else prior.logs > -math.inf
    possible = weights.possible[known]
    allowed = possible.any(axis=0)
    if known.sum() < 2 or not allowed.any():
        return 0.0
    if not possible[:, allowed].all():
        return math.inf  # some value is ruled out
    logs = _logs(weights)[known][:, allowed]
    error = (1.01 * roundings + 8.0 * float(np.abs(logs).max()) + 8.0) * UNIT
    worst = 0.0
    for x, own in enumerate(logs):
        gaps = own - logs  # rows x', columns q
        before = (
            gaps.min(axis=1)
            if prior is None
            else prior.logs[known][x] - prior.logs[known] - 2.0 * prior.error
        )
        others = np.arange(len(logs)) != x
        worst = max(worst, float((gaps.max(axis=1) - before)[others].max()))
    return max(worst, 0.0) + 4.0 * error


def _logs(weights: Wide) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights.part) + weights.power * math.log(2.0))


def _prior(net: BayesNet, node: int) -> Prior | None:
    """The law of one variable; None where it is not to be had."""
    try:
        law = joint_law(net, (node,))
    except OutOfTime:
        raise
    except Refused:
        return None
    logs = np.where(law.possible, _logs(law.values), -math.inf)
    deepest = float(np.abs(logs[law.possible]).max())
    return Prior(logs, (1.01 * law.roundings + 8.0 * deepest + 8.0) * UNIT)


# Which sets.


def _rings(net: BayesNet, graph: Neighbours, node: int) -> Iterator[Ring]:
    """Separators around a variable, ever farther: rings, and rings with members dropped.

    Ends where a ring holds too much: farther ones are dearer still.
    """
    held, seen = frozenset({node}), set[frozenset[int]]()
    while len(held) <= MOST_INSIDE:
        ring = frozenset(near for v in held for near in graph[v]) - held
        inside = held
        while ring and len(inside) <= MOST_INSIDE and ring not in seen:
            seen.add(ring)
            if math.prod(net.sizes[v] for v in (node, *ring)) <= MAX_CELLS:
                yield tuple(sorted(ring)), inside
            if len(ring) > WIDEST:
                break
            ring, inside = _without_one(graph, node, ring)
        farther = frozenset(near for v in held for near in graph[v]) | held
        if farther == held:
            return
        held = farther


def _without_one(
    graph: Neighbours, node: int, ring: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """The ring less the member that lets in the fewest variables, and what it holds then."""
    left = [(_held(graph, node, ring - {v}), v) for v in sorted(ring)]
    inside, dropped = min(left, key=lambda one: (len(one[0]), one[1]))
    return ring - {dropped}, inside


def _held(graph: Neighbours, node: int, ring: frozenset[int]) -> frozenset[int]:
    """What `ring` separates from the rest together with `node`; some of it where that is a lot."""
    found, waiting = {node}, [node]
    while waiting and len(found) <= MOST_INSIDE:
        near = graph[waiting.pop()] - ring - found
        found |= near
        waiting.extend(near)
    return frozenset(found)
