"""How far a network's variables move with one of them: quilts, influence matrix and walks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.chains.quilt.influence_matrix import CERTIFIED, InfluenceResult, MatrixInfluences
from shoal.core.codec import Bools, Floats
from shoal.core.errors import Refused
from shoal.core.progress import doing
from shoal.core.walk import LOST, UNIT, Wide, log_bounds
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import Factor, plan_elimination, sum_product
from shoal.networks.graph import ancestors, children_of, moral_graph


class JointLaw(NamedTuple):
    """P(keep = values), 0 exactly where impossible, and how often an entry was rounded."""

    values: Wide
    roundings: int

    @property
    def possible(self) -> Bools:
        return self.values.possible


def joint_law(net: BayesNet, keep: Sequence[int]) -> JointLaw:
    """Return the joint law of some variables, axes in that order, by elimination."""
    kept = tuple(keep)
    scopes = tuple((*net.above[v], v) for v in sorted(ancestors(net.above, kept)))
    steps = plan_elimination(scopes, net.sizes, kept, net.elimination_order)
    return JointLaw(net.weight(kept, {}), 2 * steps.roundings)


def normalise_rows(values: Wide) -> Floats:
    """Return the rows divided by their sums, as doubles: one rounding more for each number of a
    row.

    Entries below 2.2e-308 lose digits, or all of them; rows of zeros stay so.
    """
    return values.over(values.total(-1, keepdims=True))


def network_influence(net: BayesNet, node: int, quilt: Sequence[int]) -> float:
    """Return the max-influence of a variable on a set of others. Rounds up.

    max over x, x', q of log P(X_Q = q | X_i = x) - log P(X_Q = q | X_i = x'), with i = node and
    Q = quilt. Values X_i never takes are not secrets. Rounds up; 0 for an empty set; inf when some
    q is possible under x and impossible under x'. Song, Wang & Chaudhuri 2017, Definition 4.1.
    """
    if not quilt:
        return 0.0
    law = joint_law(net, (node, *quilt))
    values = law.values.map_layout(lambda table: table.reshape(net.sizes[node], -1))
    known = values.possible.any(axis=1)
    if known.sum() < 2:
        return 0.0
    operations = law.roundings + values.shape[1] + 4
    rows = normalise_rows(values)
    bounds = log_bounds(rows[known], values.possible[known], operations)
    top, bottom = bounds.upper.max(axis=0), bounds.lower.min(axis=0)
    live = top > -math.inf
    if not live.any():
        return 0.0
    return max(float((top[live] - bottom[live]).max()), 0.0) + 2.0 * bounds.error


# The influence matrix of a Bayesian network: how far one variable moves each of the others.


MAX_SPECTRAL_VARIABLES = 256  # variables; the singular values of a larger matrix take seconds
MAX_NEIGHBOURHOOD_CELLS = 2**20  # values a variable and all that is tied to it may have together


@lru_cache(maxsize=8)
def network_influence_matrix(net: BayesNet) -> MatrixInfluences:
    """Return the influence matrix of a network, found when it is first asked for."""
    return MatrixInfluences(lambda: network_matrix_scale(net, 1.0))


def network_matrix_scale(net: BayesNet, epsilon: float) -> InfluenceResult:
    """Return the noise scale 2 max_i Σ_j Φ(i, j) / epsilon, Φ = (I - Γ)^-1, when the norm of Γ is
    below 1.

    Γ(i, j) is half the largest log-ratio between the laws of X_j given all other variables when
    only X_i changes: 0 unless they are tied in the moral graph. Every entry of every table must
    be positive. Ghosh & Kleinberg 2016 as Song, Wang & Chaudhuri 2017 run it; proof in
    mechanisms/influence_matrix.md.
    """
    if any((table <= 0).any() for table in net.tables):
        return _inapplicable(math.inf, "some value of a variable is impossible given its parents")
    largest = max(neighbourhood_cells(net))
    if largest > MAX_NEIGHBOURHOOD_CELLS:
        return _inapplicable(
            math.inf,
            f"a variable and its neighbours have {largest} values; "
            f"{MAX_NEIGHBOURHOOD_CELLS} at most",
        )
    matrix = network_matrix(net)
    if not np.isfinite(matrix).all():
        return _inapplicable(math.inf, "products of its tables are too small for a double")
    norm = _spectral_norm(matrix) * (1.0 + CERTIFIED)
    if norm >= 1.0:
        return _inapplicable(norm, f"the influence matrix has norm {norm:.9g}; it must be below 1")
    solved = np.linalg.solve(np.eye(len(matrix)) - matrix, np.ones(len(matrix)))
    raised = solved * (1.0 + CERTIFIED)
    # a raised φ with (I - Γ) φ ≥ 1 is at least (I - Γ)^-1 1, because Γ ≥ 0
    if not (raised - matrix @ raised >= 1.0).all():
        return _inapplicable(norm, "the sums of the influence matrix could not be certified")
    row_sum = float(raised.max())
    return InfluenceResult(2.0 * row_sum / epsilon * (1.0 + 16.0 * UNIT), norm, row_sum, None)


@lru_cache(maxsize=8)
def network_matrix(net: BayesNet) -> Floats:
    """Return Γ(i, j) for all pairs of variables; tables must be positive. Rounds up. Rounds up.

    inf in the column of a variable whose law given the others is lost to underflow.
    """
    count = len(net.variables)
    matrix = np.zeros((count, count))
    for j in range(count):
        doing(f"the matrix of influences of {count} variables", j, count)
        weights = law_given_rest(net, j)
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


def neighbourhood_cells(net: BayesNet) -> list[int]:
    """Return how many values each variable and those it is tied to have together."""
    return [
        math.prod(net.sizes[v] for v in (j, *near)) for j, near in enumerate(moral_graph(net.above))
    ]


class LawGivenRest(NamedTuple):
    """What the law of one variable given all others is proportional to.

    `table` has an axis for each of `ties`, the variables it depends on, and its own last;
    `factors` tables were multiplied for it.
    """

    ties: tuple[int, ...]
    table: Floats
    factors: int


def law_given_rest(net: BayesNet, variable: int) -> LawGivenRest:
    """Return the product of the tables that hold `variable`: its own and its children's."""
    factors = net.factors([variable, *children_of(net.above)[variable]])
    ties = tuple(sorted({v for factor in factors for v in factor.scope} - {variable}))
    table = sum_product([*factors, Factor((), np.ones(()))], net.sizes, (*ties, variable))
    return LawGivenRest(ties, table, len(factors))


def _spectral_norm(matrix: Floats) -> float:
    """Return the spectral norm; for large matrices √(largest row sum · column sum) if that will
    do.
    """
    bound = math.sqrt(float(matrix.sum(axis=0).max()) * float(matrix.sum(axis=1).max()))
    if len(matrix) > MAX_SPECTRAL_VARIABLES and bound < 1.0:
        return bound
    return float(np.linalg.norm(matrix, ord=2))


def _inapplicable(norm: float, sentence: str) -> InfluenceResult:
    return InfluenceResult(math.inf, norm, math.inf, sentence)


# How far one variable of a network reaches: the weight of all walks of influence from it.
#
#     κ(i, j) = tanh(δ(i, j)/4),   δ(i, j) = the largest log cross-ratio
#               P(y | u, rest) P(y' | u', rest) / (P(y' | u, rest) P(y | u', rest)) of X_j
#               for two values u, u' of X_i and any values of the rest,
#     reach(i) = Σ over walks i → j → k → … → v that never return to i, the empty one included, of
#                κ(i, j) κ(j, k) … move(v).
#
# A release whose log-density moves by at most eta · move(v) when variable v changes tells at most
# eta · reach(i) about X_i. No joint law is built: only the laws of single variables given those
# they are tied to. Proof: mechanisms/lift.md. Everything rounds up.


@dataclass(frozen=True)
class WalkSettings:
    """How far walks of influence are followed."""

    relative_raise: float = 1e-9  # raises sums over walks before they are certified
    max_length: int = 5_000  # lengths of walks that are followed
    settled_change: float = 1e-13  # relative change at which longer walks no longer matter


WALKS = WalkSettings()


def reaches(net: BayesNet, moves: Floats) -> Floats:
    """Return upper bounds of how far each variable reaches, per unit of eta, or inf for all.

    Rounds up. `moves` (variables) says how far each variable moves the release, in the same
    units. All walks from i weigh reach(i) times the closed ones, which weigh at least
    1 + Σ_j κ(i, j) κ(j, i).
    """
    from scipy.sparse import csr_array

    kappa = contractions(net)
    sparse = csr_array(kappa)
    total = np.maximum(moves, WALKS.relative_raise)  # positive, so that raising it raises every sum
    for _ in range(WALKS.max_length):
        longer = np.maximum(moves, WALKS.relative_raise) + sparse @ total
        if not (longer <= 1e12).all():
            return np.full(len(moves), math.inf)
        settled = (longer - total).max() <= WALKS.settled_change * longer.max()
        total = longer
        if settled:
            break
    raised = total * (1.0 + WALKS.relative_raise)
    slack = 1.0 + 4.0 * len(moves) * UNIT
    # a vector with total ≥ moves + κ total is at least the sum over all walks, because κ ≥ 0
    if not (raised >= (moves + sparse @ raised) * slack).all():
        return np.full(len(moves), math.inf)
    returns = (kappa * kappa.T).sum(axis=1) * (1.0 - 4.0 * len(moves) * UNIT)
    return np.asarray(raised / (1.0 + returns) * (1.0 + 8.0 * UNIT))


@lru_cache(maxsize=8)
def contractions(net: BayesNet) -> Floats:
    """Return κ(i, j) for all pairs of variables; 1 where a zero in a table lets X_i rule values
    out.

    1 too where products of tables are so small that they lose digits. Refused when a variable and
    those it is tied to have too many values together.
    """
    found = np.zeros((len(net.variables),) * 2)
    for j, cells in enumerate(neighbourhood_cells(net)):
        doing("the search for walks of influence", j, len(net.variables))
        if cells > MAX_NEIGHBOURHOOD_CELLS:
            raise Refused(
                f"{net.variables[j]!r} and the variables it is tied to have {cells} values "
                f"together; walks of influence take {MAX_NEIGHBOURHOOD_CELLS} at most"
            )
        weights = law_given_rest(net, j)
        for axis, i in enumerate(weights.ties):
            found[i, j] = _contraction(np.moveaxis(weights.table, axis, 0), weights.factors)
    found.setflags(write=False)
    return found


def _contraction(weights: Floats, factors: int) -> float:
    """Return tanh(δ/4) over pairs of values along the first axis; the last one holds the laws."""
    if (weights < LOST).any():
        return 1.0
    logs = np.log(weights)
    widest = max(
        (
            float(np.ptp(logs[u] - logs[v], axis=-1).max())
            for u, v in combinations(range(len(logs)), 2)
        ),
        default=0.0,
    )
    slack = 64.0 * (factors + 1) * UNIT * (1.0 + float(np.abs(logs).max()))
    return min(1.0, math.tanh((widest + slack) / 4.0) * (1.0 + 4.0 * UNIT))
