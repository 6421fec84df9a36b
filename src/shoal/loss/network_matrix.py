"""The influence matrix of a Bayesian network: how far one variable moves each of the others."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.core.value import Floats
from shoal.loss.frameworks import LOST
from shoal.loss.influence_matrix import CERTIFIED, InfluenceResult
from shoal.loss.kernels import UNIT
from shoal.models.bayesnet import BayesNet
from shoal.models.bayesnet_elimination import Factor, joint
from shoal.models.graph import children_of, moral

LARGE = 256  # variables; the singular values of a larger matrix take seconds
MAX_CELLS = 2**20  # values a variable and all that is tied to it may have together


def network_matrix_scale(net: BayesNet, epsilon: float) -> InfluenceResult:
    """The noise scale 2 max_i Σ_j Φ(i, j) / epsilon, Φ = (I - Γ)^-1, when the norm of Γ is below 1.

    Γ(i, j) is half the largest log-ratio between the laws of X_j given all other variables when
    only X_i changes: 0 unless they are tied in the moral graph. Every entry of every table must
    be positive. Ghosh & Kleinberg 2016 as Song, Wang & Chaudhuri 2017 run it; proof in
    mechanisms/influence_matrix.md.
    """
    if any((table <= 0).any() for table in net.tables):
        return _refused(math.inf, "some value of a variable is impossible given its parents")
    graph = moral(net.above)
    largest = max(
        math.prod(net.sizes[v] for v in (j, *graph[j])) for j in range(len(net.variables))
    )
    if largest > MAX_CELLS:
        return _refused(
            math.inf, f"a variable and its neighbours have {largest} values; {MAX_CELLS} at most"
        )
    matrix = network_matrix(net)
    if not np.isfinite(matrix).all():
        return _refused(math.inf, "products of its tables are too small for a double")
    norm = _norm(matrix) * (1.0 + CERTIFIED)
    if norm >= 1.0:
        return _refused(norm, f"the influence matrix has norm {norm:.9g}; it must be below 1")
    solved = np.linalg.solve(np.eye(len(matrix)) - matrix, np.ones(len(matrix)))
    raised = solved * (1.0 + CERTIFIED)
    # a raised φ with (I - Γ) φ ≥ 1 is at least (I - Γ)^-1 1, because Γ ≥ 0
    if not (raised - matrix @ raised >= 1.0).all():
        return _refused(norm, "the sums of the influence matrix could not be certified")
    row_sum = float(raised.max())
    return InfluenceResult(2.0 * row_sum / epsilon * (1.0 + 16.0 * UNIT), norm, row_sum, None)


@lru_cache(maxsize=8)
def network_matrix(net: BayesNet) -> Floats:
    """Γ(i, j) for all pairs of variables; tables must be positive. Rounds up.

    inf in the column of a variable whose law given the others is lost to underflow.
    """
    count = len(net.variables)
    matrix = np.zeros((count, count))
    for j in range(count):
        weights = weights_given_ties(net, j)
        if (weights.table < LOST).any():
            matrix[:, j] = math.inf
            continue
        logs = np.log(weights.table / weights.table.sum(axis=-1, keepdims=True))
        terms = weights.factors + net.sizes[j]
        slack = 64.0 * terms * UNIT * (1.0 + float(np.abs(logs).max()))
        for axis, i in enumerate(weights.ties):
            matrix[i, j] = 0.5 * float(np.ptp(logs, axis=axis).max()) + slack
    matrix.setflags(write=False)
    return matrix


class Weights(NamedTuple):
    """What the law of one variable given all others is proportional to.

    `table` has an axis for each of `ties`, the variables it depends on, and its own last;
    `factors` tables were multiplied for it.
    """

    ties: tuple[int, ...]
    table: Floats
    factors: int


def weights_given_ties(net: BayesNet, variable: int) -> Weights:
    """The product of the tables that hold `variable`: its own and its children's."""
    factors = net.factors([variable, *children_of(net.above)[variable]])
    ties = tuple(sorted({v for factor in factors for v in factor.scope} - {variable}))
    table = joint([*factors, Factor((), np.ones(()))], net.sizes, (*ties, variable))
    return Weights(ties, table, len(factors))


def _norm(matrix: Floats) -> float:
    """The spectral norm; for large matrices √(largest row sum · column sum) if that will do."""
    bound = math.sqrt(float(matrix.sum(axis=0).max()) * float(matrix.sum(axis=1).max()))
    if len(matrix) > LARGE and bound < 1.0:
        return bound
    return float(np.linalg.norm(matrix, ord=2))


def _refused(norm: float, sentence: str) -> InfluenceResult:
    return InfluenceResult(math.inf, norm, math.inf, sentence)
