"""Markov quilts of a Bayesian network: candidate sets, what they leave nearby, their influence.

A quilt of variable i is a set Q. What it leaves far away, R, are the variables d-separated from i
by Q; what stays nearby, N ∋ i, are all others outside Q. Every candidate goes through that test,
so every strategy that proposes sets is sound; a poor one only costs noise.
Song, Wang & Chaudhuri 2017, Section 4.2 and Algorithm 2. Proof: mechanisms/markov_quilt.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import ClassVar, Literal, NamedTuple

from shoal.core.codec import Value
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Proof
from shoal.core.progress import doing, unless_refused
from shoal.core.walk import UNIT
from shoal.networks.bayesnet import BayesNet
from shoal.networks.graph import d_connected, distances, moral_graph
from shoal.networks.influence import network_influence


@dataclass(frozen=True)
class QuiltSettings:
    """Which sets are tried as quilts, and how large they may be."""

    max_nodes_all_sets: int = 10  # tied variables up to which every set is tried
    max_nodes_pairs: int = 48  # tied variables up to which all sets of one and two are tried
    max_tied_nodes: int = 128  # more tied variables take minutes to search
    max_quilt_cells: int = 2**18  # values a quilt and its variable may have together
    epsilon_margin: float = 1e-11  # share kept back, so that a second evaluation fits too


QUILTS = QuiltSettings()


Strategy = Literal["all", "distance"]


class NodeQuilt(NamedTuple):
    """A quilt of one variable: its members, how many variables stay nearby, and its influence."""

    quilt: tuple[int, ...]
    nearby: int
    influence: float


class NodeCost(NamedTuple):
    """The cheapest quilt of one variable at some budget or eta, and what it costs."""

    cost: float
    node: int
    quilt: NodeQuilt


def strategy_for(net: BayesNet) -> Strategy:
    """Return every set where all components are small; otherwise separators by distance."""
    return "all" if max(map(len, net.parts)) <= QUILTS.max_nodes_all_sets else "distance"


def nearby(net: BayesNet, node: int, quilt: Sequence[int]) -> frozenset[int]:
    """Return N: the variables, `node` among them, that `quilt` does not d-separate from `node`."""
    return d_connected(net.above, node, quilt) | {node}


def node_quilts(net: BayesNet, node: int, strategy: Strategy) -> tuple[NodeQuilt, ...]:
    """Return the useful quilts of one variable: fewer nearby only for more influence.

    The empty quilt is always among them. They do not depend on epsilon, so all plans for the same
    network share them (Theorem 4.4).
    """
    found: dict[int, NodeQuilt] = {}
    single: dict[int, float] = {}
    for quilt in _candidate_sets(net, node, strategy):
        near = len(nearby(net, node, quilt))
        # a part of a quilt has no more influence than the whole
        least = max((single.get(v, 0.0) for v in quilt), default=0.0)
        if any(q.nearby <= near and q.influence <= least for q in found.values()):
            continue
        if math.prod(net.sizes[v] for v in (node, *quilt)) > QUILTS.max_quilt_cells:
            continue
        influence = _influence_or_inf(net, node, quilt)
        if len(quilt) == 1:
            single[quilt[0]] = influence
        if near not in found or influence < found[near].influence:
            found[near] = NodeQuilt(quilt, near, influence)
    return _drop_dominated(found.values())


@lru_cache(maxsize=64)
def network_quilts(net: BayesNet, strategy: Strategy) -> tuple[tuple[NodeQuilt, ...], ...]:
    """Return `node_quilts` of every variable; refused beyond 128 tied variables. Refused beyond 128
    tied variables.
    """
    tied = max(map(len, net.parts))
    if tied > QUILTS.max_tied_nodes:
        raise Refused(
            f"quilts are searched among at most {QUILTS.max_tied_nodes} tied variables, not "
            f"{tied}; use exact, wasserstein or group"
        )
    rows, count = [], len(net.variables)
    for node in range(count):
        doing(f"the search for quilts of {count} variables", node, count)
        rows.append(node_quilts(net, node, strategy))
    return tuple(rows)


def family_quilts(
    nets: Sequence[BayesNet], strategy: Strategy
) -> tuple[tuple[NodeQuilt, ...], ...]:
    """Return the quilts of networks with one structure, each with its largest influence over them.

    This is Algorithm 2 as printed: one quilt has to serve all members. `network_quilts` of each
    member by itself never needs more noise, since an adversary holds one of them.
    """
    first = nets[0]
    if any((net.variables, net.parents) != (first.variables, first.parents) for net in nets):
        raise InputError("the networks have different structures; take them one by one")
    rows = []
    for node in range(len(first.variables)):
        candidates = (
            NodeQuilt(
                quilt,
                len(nearby(first, node, quilt)),
                max(_influence_or_inf(net, node, quilt) for net in nets),
            )
            for quilt in _candidate_sets(first, node, strategy)
        )
        rows.append(_drop_dominated(candidates))
    return tuple(rows)


def quilt_sigma(
    quilts: Sequence[Sequence[NodeQuilt]], epsilon: float
) -> tuple[float, tuple[NodeCost, ...]]:
    """Return max_i min_Q |N| / (epsilon - e), for a 1-Lipschitz query, and each variable's
    choice.
    """
    costs = tuple(
        min(NodeCost(_quilt_scale(q, epsilon), node, q) for q in several)
        for node, several in enumerate(quilts)
    )
    return max(cost.cost for cost in costs), costs


def quilt_loss(quilts: Sequence[Sequence[NodeQuilt]], eta: float) -> float:
    """Return max_i min_Q (|N|·eta + e), the most that any release which is eta-DP for one entry
    tells. Rounds up.
    """
    return max(
        min((q.nearby * eta + q.influence) * (1.0 + 4.0 * UNIT) for q in several)
        for several in quilts
    )


def _influence_or_inf(net: BayesNet, node: int, quilt: tuple[int, ...]) -> float:
    """Return the influence, or inf where its law is too large to compute: such a quilt is not
    used.
    """
    return unless_refused(lambda: network_influence(net, node, quilt), math.inf)


def _quilt_scale(quilt: NodeQuilt, epsilon: float) -> float:
    if quilt.influence == 0.0:
        return quilt.nearby / epsilon
    left = epsilon * (1.0 - QUILTS.epsilon_margin) - quilt.influence
    return quilt.nearby / left * (1.0 + 4.0 * UNIT) if left > 0 else math.inf


def _candidate_sets(net: BayesNet, node: int, strategy: Strategy) -> Iterator[tuple[int, ...]]:
    """Yield sets that may be quilts, the empty one first, none twice."""
    part = next(part for part in net.parts if node in part)
    others = [v for v in part if v != node]
    if strategy == "all":
        for size in range(len(others) + 1):
            yield from combinations(others, size)
        return
    seen: set[tuple[int, ...]] = set()
    for size in range(3 if len(part) <= QUILTS.max_nodes_pairs else 2):
        for quilt in combinations(others, size):
            seen.add(quilt)
            yield quilt
    for quilt in _thinned_rings(net, node):
        if quilt not in seen:
            seen.add(quilt)
            yield quilt


def _thinned_rings(net: BayesNet, node: int) -> Iterator[tuple[int, ...]]:
    """Yield rings around a variable in the moral graph, thinned out one by one.

    A ring separates in the moral graph and so d-separates. Then the member whose loss brings the
    fewest variables nearby is dropped, and so on: every set on the way is a candidate.
    """
    far = distances(moral_graph(net.above), node)
    for radius in range(1, max(far.values(), default=0) + 1):
        ring = [v for v, distance in far.items() if distance == radius]
        while ring:
            yield tuple(sorted(ring))
            left = {
                v: len(nearby(net, node, [other for other in ring if other != v])) for v in ring
            }
            ring.remove(min(ring, key=lambda v: (left[v], v)))


def _drop_dominated(quilts: Iterable[NodeQuilt]) -> tuple[NodeQuilt, ...]:
    """Return the quilts no other beats in both respects, most variables nearby first; of equals
    one.
    """
    kept: list[NodeQuilt] = []
    for quilt in sorted(quilts, key=lambda quilt: (quilt.nearby, quilt.influence)):
        if math.isfinite(quilt.influence) and all(q.influence > quilt.influence for q in kept):
            kept.append(quilt)
    return tuple(reversed(kept))


# The Markov Quilt Mechanism on Bayesian networks. Proof: markov_quilt.md, last section.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkQuilt(Value):
    """The quilt in use for one variable: |N| = `nearby` and e = `influence`.

    `sigma` = |N| / (epsilon - e) is the scale it needs for a 1-Lipschitz query.
    """

    kind = "network-quilt"

    variable: str
    quilt: tuple[str, ...]
    nearby: int
    influence: float
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkQuiltCertificate(Proof):
    """Per model: how candidates were found, and the active quilt of every variable."""

    kind = "network-quilt-certificate"

    strategies: tuple[str, ...]
    quilts: tuple[tuple[NetworkQuilt, ...], ...]

    THEOREM: ClassVar[str] = (
        "the Markov Quilt Mechanism on networks (Song, Wang & Chaudhuri 2017, Theorem 4.3, "
        "Algorithm 2), every quilt checked by d-separation"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "the data follows one of the family's networks",
        "the query moves by at most its Lipschitz constant when one variable changes",
    )


class NetworkQuilts:
    """The quilts of one network; how far they reach is not limited."""

    sort = "networks"

    def __init__(self, net: BayesNet) -> None:
        self._net, self._strategy = net, strategy_for(net)

    @property
    def key(self) -> str:
        """The network, and how its quilts are found."""
        return f"{self._strategy}:{self._net.fingerprint}"

    def scale(self, epsilon: float) -> tuple[float, tuple[str, tuple[NetworkQuilt, ...]]]:
        """Return the noise scale by quilts, and the strategy with each variable's quilt."""
        sigma, costs = quilt_sigma(network_quilts(self._net, self._strategy), epsilon)
        return sigma, (self._strategy, tuple(_active_quilt(self._net, cost) for cost in costs))

    def loss(self, eta: float) -> float:
        return quilt_loss(network_quilts(self._net, self._strategy), eta)

    def certificate(
        self, found: Sequence[tuple[str, tuple[NetworkQuilt, ...]]], reach: int | None
    ) -> NetworkQuiltCertificate:
        strategies, quilts = zip(*found, strict=True)
        return NetworkQuiltCertificate(strategies=strategies, quilts=quilts)


def _active_quilt(net: BayesNet, cost: NodeCost) -> NetworkQuilt:
    """Return the stored form of the quilt a variable uses."""
    return NetworkQuilt(
        variable=net.variables[cost.node],
        quilt=tuple(net.variables[v] for v in cost.quilt.quilt),
        nearby=cost.quilt.nearby,
        influence=cost.quilt.influence,
        sigma=cost.cost,
    )
