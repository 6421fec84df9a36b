"""Outputs drawn among the states themselves, by distance in the policy graph.

q(z | s) = w_z exp(-r d(s, z)) / N_s, N_s = Σ_z w_z exp(-r d(s, z)), with d the number of edges
between s and z. Joined states have |d(s, z) - d(s', z)| <= 1, so an edge loses at most
r + |log N_s - log N_s'|. With the constants w = Φ⁻¹1, Φ = exp(-r d), every N_s is 1 and an edge
loses r, without the usual factor 2; they serve whenever none is negative. Otherwise w = 1 and the
rate is the largest that keeps every edge within ε. Under the same definition as K-norm noise this
protects states that are not joined less, and states in different components not at all.
The proof is in GRAPH.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.charge import Rng
from shoal.core.codec import Floats, Ints, as_read_only
from shoal.core.errors import InputError
from shoal.core.numbers import positive
from shoal.noise.knorm import Uniform
from shoal.noise.primitives import uniform_below

MOST_GRAPH_STATES = 4096  # states, so that the matrix of distances stays within 128 MB
PARTS = 2.0**50  # units of the proposal; their sum over 4096 states stays below 2^63
OVER = 1 + 2.0**-30  # the proposal exceeds the floats it is made of by this, far above their error
BISECTIONS = 20  # bisections of the calibrated rate
MOST_BITS = 2**27  # edges times nodes: 16 MB at a time; beyond, one node after the other is quicker


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GraphExponential:
    """An EmissionLaw: state s answers as node `place[s]`, outputs are the points of nodes.

    distances (n, n) between nodes in edges, inf where there is no path. `tight` says whether
    w = Φ⁻¹1. log_normalisers are log N of each node, `slack` a bound on their error: of the sum,
    the exponentials and their arguments.
    """

    points: Ints
    place: Ints
    nodes: Ints
    weights: Floats
    distances: Floats
    rate: Fraction
    tight: bool
    log_normalisers: Floats = field(init=False, repr=False)
    slack: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rate = float(self.rate)
        logs = np.log(_normalisers(self.distances, self.weights, rate))
        object.__setattr__(self, "log_normalisers", logs)
        slack = _slack(len(self.distances), _longest(self.distances), rate)
        object.__setattr__(self, "slack", slack)

    def draw(self, state: int, rng: Rng) -> tuple[int, ...]:
        """One output with exactly the stated law: the weights are taken as the rationals they are.

        A node is proposed with whole weights slightly above the true ones, and kept with the
        exact ratio of the two, decided with as many bits as it takes.
        """
        row = self.distances[self.place[state]]
        reachable = np.flatnonzero(np.isfinite(row) & (self.weights > 0))
        floats = self.weights[reachable] * np.exp(-float(self.rate) * row[reachable])
        unit = float(floats.max()) / PARTS
        proposed = np.floor(floats / unit * OVER).astype(np.int64) + 1
        sums = np.cumsum(proposed)
        while True:
            at = int(np.searchsorted(sums, uniform_below(int(sums[-1]), rng), side="right"))
            node = int(reachable[at])
            share = Fraction(float(self.weights[node])) / (int(proposed[at]) * Fraction(unit))
            if _below(share, self.rate * int(row[node]), rng):
                return tuple(int(value) for value in self.points[self.nodes[node]])

    def log_likelihood(self, output: Sequence[int]) -> Floats:
        """log q(output | s) of every state; -inf where no path leads to such an output."""
        here = (self.points[self.nodes] == np.array(output)).all(axis=1) & (self.weights > 0)
        if not here.any():
            return np.full(len(self.place), -np.inf)
        logs = np.logaddexp.reduce(self._logs(here), axis=1) - self.log_normalisers
        return np.asarray(logs[self.place])

    def log_likelihoods(self) -> Floats:
        """log q(z | s), (states, outputs), of every output there is."""
        drawn = np.flatnonzero(self.weights > 0)
        logs = self._logs(drawn)
        _, same = np.unique(self.points[self.nodes[drawn]], axis=0, return_inverse=True)
        if same.max(initial=-1) + 1 < len(drawn):  # several members answer alike
            groups = [logs[:, same.ravel() == k] for k in range(int(same.max()) + 1)]
            logs = np.stack([np.logaddexp.reduce(group, axis=1) for group in groups], axis=1)
        return np.asarray((logs - self.log_normalisers[:, None])[self.place])

    def _logs(self, chosen: npt.NDArray[Any]) -> Floats:
        """log w_z - r d(s, z) of some nodes z: e^-x of a state far away could underflow."""
        return np.asarray(
            np.log(self.weights[chosen]) - float(self.rate) * self.distances[:, chosen]
        )

    def near(self, state: int, members: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """For each member whether it is the state itself or joined to it: those ε speaks about."""
        row = self.distances[self.place[state]]
        return np.asarray(row[self.place[np.flatnonzero(members)]] <= 1)

    def spread(self) -> float:
        """The largest log-ratio between any two members, as `log_ratios` has it; inf apart."""
        logs = self.log_normalisers
        ratios = float(self.rate) * self.distances * (1 + 2.0**-50)
        ratios += np.abs(logs[:, None] - logs[None, :])
        np.fill_diagonal(ratios, 0.0)
        return float(ratios.max()) + 2 * self.slack

    def log_ratio(self, first: int, second: int) -> float:
        """sup over outputs of |log q(z|first) - log q(z|second)|, rounded up."""
        a, b = int(self.place[first]), int(self.place[second])
        if a == b:
            return 0.0
        return float(self.log_ratios(np.array([[first, second]]))[0])

    def log_ratios(self, pairs: Ints) -> Floats:
        """The same for every row (first, second): r max_z |d(s,z) - d(s',z)| + |log N - log N'|.

        inf between components; the first term is bounded by r d(s, s'), where it is attained.
        """
        a, b = self.place[pairs[:, 0]], self.place[pairs[:, 1]]
        logs = self.log_normalisers
        apart = self.distances[a, b]
        ratios = float(self.rate) * apart * (1 + 2.0**-50) + np.abs(logs[a] - logs[b])
        return np.where(a == b, 0.0, ratios + 2 * self.slack)

    def expected_error(self, prior: Floats) -> float:
        """√E|z - f(s)|² of the raw output under the prior, in lattice units."""
        law = np.exp(-float(self.rate) * self.distances) * self.weights
        law /= law.sum(axis=1, keepdims=True)
        answers = self.points[self.nodes].astype(np.float64)
        squares = (answers**2).sum(axis=1)
        mean, second = law @ answers, law @ squares
        own = self.points.astype(np.float64)
        errors = second[self.place] - 2 * (mean[self.place] * own).sum(axis=1)
        errors += (own**2).sum(axis=1)
        return math.sqrt(max(0.0, float(prior @ errors)))


def graph_exponential(
    points: Ints,
    members: npt.NDArray[np.bool_],
    answering: Ints,
    edges: Ints,
    epsilon: Fraction,
) -> GraphExponential:
    """The law of a policy graph on the members: tight constants if they serve, else calibrated.

    `edges` (m, 2) join members, repairs included; state s answers as the member answering[s].
    Every edge loses at most epsilon, with the rounding of the normalisers counted in. A member
    without an edge would answer with its own place and is refused: repair the graph first.
    """
    amount = positive(epsilon, "epsilon")
    nodes = np.flatnonzero(members)
    if len(nodes) > MOST_GRAPH_STATES:
        raise InputError(
            f"the policy leaves {len(nodes)} states; a graph-exponential law takes at most "
            f"{MOST_GRAPH_STATES}: use K-norm noise"
        )
    if len(nodes) > 1 and not np.isin(nodes, edges).all():
        raise InputError(
            "the policy leaves a state without an edge, which a graph-exponential law would "
            "reveal; join it to another state first"
        )
    number = np.full(len(points), -1, dtype=np.int64)
    number[nodes] = np.arange(len(nodes))
    inner = number[edges]
    distances = hops(inner, len(nodes))
    weights, rate, tight = _constants(distances, inner, amount)
    return GraphExponential(
        points=points,
        place=number[answering],
        nodes=nodes,
        weights=weights,
        distances=distances,
        rate=rate,
        tight=tight,
    )


def hops(edges: Ints, size: int) -> Floats:
    """The number of edges on a shortest path between any two nodes; inf where there is none."""
    return _hops(_edge_bytes(edges), size)


def _edge_bytes(edges: Ints) -> bytes:
    return np.ascontiguousarray(edges, dtype=np.int64).tobytes()


@lru_cache(maxsize=2)
def _hops(stored: bytes, size: int) -> Floats:
    """The same from the edges' bytes: distances do not depend on ε, so they are found once.

    Breadth-first search from all nodes at once; each set of nodes is a bit mask.
    """
    edges = np.frombuffer(stored, dtype=np.int64).reshape(-1, 2)
    own = np.arange(size)
    ends, others = (np.concatenate([a, b, own]) for a, b in (edges.T, edges.T[::-1]))
    order = np.argsort(ends, kind="stable")
    others, starts = others[order], np.searchsorted(ends[order], own)
    if len(others) * size > MOST_BITS:
        return _far_hops(edges, size)
    distances = np.where(np.eye(size, dtype=np.bool_), 0.0, np.inf)
    reached, steps, left = np.packbits(distances == 0, axis=1), 0.0, size > 0
    while left:
        wider = np.bitwise_or.reduceat(reached[others], starts, axis=0)
        new = np.unpackbits(wider & ~reached, axis=1, count=size).astype(np.bool_)
        steps, reached, left = steps + 1, wider, bool(new.any())
        distances[new] = steps
    return as_read_only(distances)


def _far_hops(edges: Ints, size: int) -> Floats:
    """The same of many edges, one node after the other."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    ones = np.ones(len(edges))
    graph = coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(size, size)).tocsr()
    return as_read_only(shortest_path(graph, method="D", directed=False, unweighted=True))


def _constants(distances: Floats, edges: Ints, epsilon: Fraction) -> tuple[Floats, Fraction, bool]:
    """(weights, rate, tight) with every edge within epsilon."""
    longest = _longest(distances)
    for spared in (Fraction(1, 2**30), Fraction(1, 2**20)):
        rate = epsilon * (1 - spared)
        weights = _tight_weights(distances, float(rate))
        if weights is None:
            break  # a slightly smaller rate does not make a negative constant serve
        logs = np.log(_normalisers(distances, weights, float(rate)))
        if _edge_loss(logs, longest, edges, rate) <= epsilon:
            return weights, rate, True
    ones, counts = np.ones(len(distances)), _distance_counts(_edge_bytes(edges), len(distances))

    def loss(at: Fraction) -> float:
        # of equal weights the counts have the same sums with fewer terms, so fewer roundings
        logs = np.log(counts @ np.exp(-float(at) * np.arange(counts.shape[1])))
        return _edge_loss(logs, longest, edges, at)

    low, high = epsilon * Fraction(1, 2) * (1 - Fraction(1, 2**20)), epsilon
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) <= epsilon else (low, middle)
    if loss(low) > epsilon:
        raise InputError(
            f"epsilon is {float(epsilon):g}, too small for a graph-exponential law in floating "
            "point; use K-norm noise"
        )
    return ones, low, False


def _tight_weights(distances: Floats, rate: float) -> Floats | None:
    """Φ⁻¹1 with rounding below 0 cut off; None when it is truly negative or not to be had."""
    try:
        weights = np.linalg.solve(np.exp(-rate * distances), np.ones(len(distances)))
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(weights).all() or weights.min() < -1e-9 * weights.max():
        return None
    return np.asarray(np.maximum(weights, 0.0))


@lru_cache(maxsize=2)
def _distance_counts(stored: bytes, size: int) -> Floats:
    """How many nodes lie at each distance from each node; those out of reach left out."""
    distances = _hops(stored, size)
    reached = np.isfinite(distances)
    width = int(distances[reached].max(initial=0.0)) + 1
    places = np.where(reached, distances, 0.0).astype(np.int64)
    places += width * np.arange(len(distances))[:, None]
    counts = np.bincount(places.ravel(), reached.ravel(), width * len(distances))
    return as_read_only(counts.reshape(len(distances), width))


def _edge_loss(logs: Floats, longest: float, edges: Ints, rate: Fraction) -> float:
    """r + max over edges of |log N - log N'|, rounded up; 0 without edges. `logs` are all log N."""
    if not len(edges):
        return 0.0
    widest = float(np.abs(logs[edges[:, 0]] - logs[edges[:, 1]]).max())
    return float(rate) * (1 + 2.0**-50) + widest + 2 * _slack(len(logs), longest, float(rate))


def _normalisers(distances: Floats, weights: Floats, rate: float) -> Floats:
    return np.asarray(np.exp(-rate * distances) @ weights)


def _longest(distances: Floats) -> float:
    """The diameter of the largest component."""
    return float(distances.max(initial=0.0, where=np.isfinite(distances)))


def _slack(size: int, longest: float, rate: float) -> float:
    """Relative error of a normaliser: n sums, exponentials, and arguments of up to r·diameter."""
    return (size + 64 + 4 * rate * longest) * 2.0**-51


def _below(share: Fraction, exponent: Fraction, rng: Rng) -> bool:
    """True with probability share·exp(-exponent), which is at most 1."""
    uniform = Uniform(int(rng.words(1)[0]) >> 1, 63)
    return uniform.below_scaled_exp(share, exponent, rng)
