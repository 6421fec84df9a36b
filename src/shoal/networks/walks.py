"""How far one variable of a network reaches: the weight of all walks of influence from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.progress import doing
from shoal.core.walk import LOST, UNIT
from shoal.networks.bayesnet import BayesNet
from shoal.networks.influence import MAX_NEIGHBOURHOOD_CELLS, law_given_rest, neighbourhood_cells


@dataclass(frozen=True)
class WalkSettings:
    """How far walks of influence are followed."""

    relative_raise: float = 1e-9  # raises sums over walks before they are certified
    max_length: int = 5_000  # lengths of walks that are followed
    settled_change: float = 1e-13  # relative change at which longer walks no longer matter


WALKS = WalkSettings()


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
