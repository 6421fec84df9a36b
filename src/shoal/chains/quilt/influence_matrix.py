"""The influence matrix of a chain: how far one entry reaches through its neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from shoal.chains.model import MarkovChain
from shoal.chains.quilt.nodes import ChainNodes, largest
from shoal.core.codec import Floats
from shoal.core.walk import UNIT

MODELS_KEPT = 8  # models whose influences are kept


class MatrixInfluences:
    """The influence matrix of a model, found when it is first asked for."""

    def __init__(self, find: Callable[[], InfluenceResult]) -> None:
        self._find = find

    @cached_property
    def _result(self) -> InfluenceResult:
        return self._find()

    @property
    def norm(self) -> float:
        return self._result.norm

    @property
    def row_sum(self) -> float:
        return self._result.row_sum

    @property
    def refusal(self) -> str | None:
        return self._result.refusal

    def scale(self, epsilon: float) -> float:
        return 2.0 * self.row_sum / epsilon * (1.0 + 16.0 * UNIT)


@lru_cache(maxsize=MODELS_KEPT)
def chain_influences(model: MarkovChain) -> MatrixInfluences:
    """The influences of a chain with a given initial law."""
    return MatrixInfluences(
        lambda: influence_matrix_scale(model.transition, model.initial, model.length, 1.0)
    )


CERTIFIED = 1e-11  # relative amount by which row sums and norms are raised before they are used
LONG = 10_000  # a longer chain gets the row sums of an endless one
PROBE = 512  # entries on which the norm of a chain of any length is taken


class InfluenceResult(NamedTuple):
    """The scale for a 1-Lipschitz query, the norm of Γ and the largest row sum of (I - Γ)^-1.

    `refusal` says why there is none; then scale and row_sum are inf.
    """

    scale: float
    norm: float
    row_sum: float
    refusal: str | None


class Edges(NamedTuple):
    """right[i] = Γ(i, i+1) and left[i] = Γ(i+1, i) along the chain; Γ is 0 elsewhere."""

    right: Floats
    left: Floats


def influence_matrix_scale(
    transition: Floats, initial: Floats, length: int | None, epsilon: float
) -> InfluenceResult:
    """The noise scale 2 max_i Σ_j Φ(i, j) / epsilon, Φ = (I - Γ)^-1, when the norm of Γ is below 1.

    Γ(i, j) is half the largest log-ratio between the laws of X_j given all other entries when only
    X_i changes: 0 unless |i - j| = 1 on a chain. Every transition between possible values must be
    positive: with zeros Γ cannot see what a chain copies. `length` None: every length. Rounds up.
    Ghosh & Kleinberg 2016 as Song, Wang & Chaudhuri 2017 run it; proof in
    mechanisms/influence_matrix.md.
    """
    chain = ChainNodes(transition, initial)
    if not _positive(chain, length):
        return _infinite_influence(
            math.inf, "some transition between possible values has probability 0"
        )
    if length is None or (chain.homogeneous and length > LONG):
        norm, row_sum = _any_length(chain)  # never less than that of a finite chain
    else:
        edges = influence_edges(chain, length)
        norm, row_sum = spectral_norm(edges), _largest_row_sum(edges)
    if norm >= 1.0 or not math.isfinite(row_sum):
        return _infinite_influence(
            norm, f"the influence matrix has norm {norm:.9g}; it must be below 1"
        )
    return InfluenceResult(2.0 * row_sum / epsilon * (1.0 + 16.0 * UNIT), norm, row_sum, None)


def influence_matrix_loss(
    transition: Floats, initial: Floats, length: int | None, eta: float
) -> float:
    """The loss 2 eta max_i Σ_j Φ(i, j) of noise that is eta-private for one entry. Rounds up.

    inf when the influence matrix does not apply.
    """
    row_sum = influence_matrix_scale(transition, initial, length, 1.0).row_sum
    return 2.0 * row_sum * eta * (1.0 + 2.0 * UNIT)


def influence_edges(chain: ChainNodes, length: int, ends: bool = True) -> Edges:
    """Γ along `length` entries: computed until it repeats, then tiled. Rounds up.

    `ends` says that the chain stops there; otherwise it goes on, which only enlarges Γ.
    """
    count = length - 1
    own = count
    if chain.homogeneous and chain.cycle is not None:
        own = min(count, chain.cycle + 1 + chain.period)
    last = count - 1 if ends else None
    right = np.array([_from_left(chain, i, stops=i == last) for i in range(own)])
    left = np.array([_from_right(chain, i) for i in range(own)])
    if own < count:
        order = np.arange(count)
        order[own:] = own - chain.period + (order[own:] - own) % chain.period
        right, left = right[order], left[order]
        if ends:
            right[-1] = _from_left(chain, count - 1, stops=True)
    return Edges(right, left)


def spectral_norm(edges: Edges) -> float:
    """The largest singular value of Γ, raised by 1e-11.

    Γ swaps odd and even entries, so ΓᵀΓ falls apart into two tridiagonal matrices.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    right, left = edges
    if not (np.isfinite(right).all() and np.isfinite(left).all()):
        return math.inf
    diagonal = np.concatenate(([0.0], right)) ** 2 + np.concatenate((left, [0.0])) ** 2
    beside = left[:-1] * right[1:]
    top = 0.0
    for parity in (0, 1):
        d, e = diagonal[parity::2], beside[parity::2]
        if len(d) == 1:
            top = max(top, float(d[0]))
        elif len(d) > 1:
            last = (len(d) - 1, len(d) - 1)
            top = max(top, float(eigvalsh_tridiagonal(d, e, select="i", select_range=last)[0]))
    return math.sqrt(top) * (1.0 + CERTIFIED)


def _largest_row_sum(edges: Edges, returned: float = 0.0, inflow: float = 0.0) -> float:
    """max_i Σ_j Φ(i, j), from (I - Γ) φ = 1; inf when the solution is not certified.

    Past the last entry an endless chain adds returned·φ_last + inflow to its equation. Certified:
    a raised φ with (I - Γ) φ >= 1 is at least (I - Γ)^-1 1, because Γ >= 0.
    """
    from scipy.linalg import solve_banded

    right, left = edges
    size = len(right) + 1
    bands, known = np.zeros((3, size)), np.ones(size)
    bands[0, 1:], bands[1], bands[2, :-1] = -right, 1.0, -left
    bands[1, -1] -= returned
    known[-1] += inflow
    solved = solve_banded((1, 1), bands, known)
    raise_by = 1.0 + max(CERTIFIED, 64.0 * UNIT * float(np.abs(solved).max()))
    raised = solved * raise_by
    before = np.concatenate(([0.0], left * raised[:-1]))
    after = np.concatenate((right * raised[1:], [returned * raised[-1] + inflow * raise_by]))
    sound = (raised > 0.0).all() and (raised - before - after >= 1.0).all()
    return float(raised.max()) if sound else math.inf


def _any_length(chain: ChainNodes) -> tuple[float, float]:
    """Norm and largest row sum over every length.

    Beyond the first entries Γ repeats with constants c (rightwards) and d (leftwards); the last
    edge of a finite chain is at most c. There φ solves φ_i = 1 + d φ_{i-1} + c φ_{i+1}, whose
    bounded solutions are s + C θ^i with s = 1/(1-c-d) and θ the smaller root of cθ² - θ + d = 0.
    """
    own = (chain.cycle or 0) + 1 + chain.period
    edges = influence_edges(chain, own + 1, ends=False)
    c = float(edges.right[-chain.period :].max())
    d = float(edges.left[-chain.period :].max())
    norm = max(c + d, spectral_norm(influence_edges(chain, own + PROBE)))
    if c + d >= 1.0:
        return norm, math.inf
    limit = 1.0 / (1.0 - c - d)
    decay = 2.0 * d / (1.0 + math.sqrt(1.0 - 4.0 * c * d))
    row_sum = _largest_row_sum(edges, c * decay, c * limit * (1.0 - decay))
    return norm, max(row_sum, limit * (1.0 + CERTIFIED))


def _from_left(chain: ChainNodes, node: int, *, stops: bool) -> float:
    """Γ(node, node+1): how far X[node] moves the law of the next entry, the one after it fixed.

    ½ max over u, u' of [ max_y log P(u,y)/P(u',y) + max_v log Z(u',v)/Z(u,v) ] with Z the
    two-step law; without the second term when the chain stops at the next entry.
    """
    moved = chain.future(node, 1)
    if not stops:
        moved = moved + chain.future(node, 2).T
    return 0.5 * largest(moved)


def _from_right(chain: ChainNodes, node: int) -> float:
    """Γ(node+1, node): how far the next entry moves the law of X[node], the one before it fixed.

    The same with columns; before the first entry Z(u, v) is replaced by the law of entry 1.
    """
    moved = chain.past(node + 1, 1)
    fixed = chain.past(node + 1, 2).T if node > 0 else chain.law_ratio(node + 1)
    return 0.5 * largest(moved + fixed)


def _positive(chain: ChainNodes, length: int | None) -> bool:
    """Whether every transition between possible values is positive, so that F and L are finite."""
    if chain.homogeneous:
        if chain.cycle is None:  # positive transitions would repeat within k steps
            return False
        count = chain.cycle + chain.period
    if length is not None:
        count = min(count, length - 1) if chain.homogeneous else length - 1
    return all(bool(np.isfinite(chain.future(node, 1)).all()) for node in range(count))


def _infinite_influence(norm: float, sentence: str) -> InfluenceResult:
    return InfluenceResult(math.inf, norm, math.inf, sentence)
