"""What ties add to the sensitivity of a query, from pairwise laws alone.

Every function returns one bound per record: how much of "distance / noise scale" the release may
tell about that record. The proofs are in mechanisms/dependent_means.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.core.errors import InputError
from shoal.core.value import Floats
from shoal.loss.rho import UNIT, mean_radius, printed_loss, ratio_loss
from shoal.models.dependence import Dependence


class Contributions(NamedTuple):
    """What one record adds to an additive query: between low[y] and high[y], (values, labels).

    `own` is the most the answer moves, in l1, when one record changes: the query's Lipschitz
    constant, which also covers a snapped answer.
    """

    low: Floats
    high: Floats
    own: float

    def moves(self) -> Floats:
        """The largest l1 distance between the contributions of two values, (values, values)."""
        forth = self.high[:, None, :] - self.low[None, :, :]
        back = self.high[None, :, :] - self.low[:, None, :]
        return np.asarray(np.maximum(forth, back).sum(axis=2))

    def radius(self) -> Floats:
        """r(y): how far the answer can still move when a record takes the value y."""
        return np.asarray(self.moves().max(axis=1))


def printed_losses(model: Dependence, query: Contributions, scale: float) -> Floats:
    """(own + Σ_j ρ_ij(σ) Δ_j)/σ for each record i, ρ by Eq. (18) in the query's own metric.

    The sum is over the whole component of i: ρ = 1 where no tie says more. Rounds up.
    Liu, Chakraborty & Mittal 2016, Eq. (18), (23).
    """
    radius = query.radius()
    per_law = printed_loss(model.conditionals(), radius, scale)
    rest = untied(model) * (float(radius.max()) / scale)
    return _raised(query.own / scale + tie_sums(model, per_law) + rest, model)


def printed_limits(model: Dependence, query: Contributions) -> Floats:
    """What printed_losses · σ falls to as σ grows, one per record: at least this scale · ε."""
    radius = query.radius()
    per_law = mean_radius(model.conditionals(), radius)
    return query.own + tie_sums(model, per_law) + untied(model) * float(radius.max())


def mean_sensitivities(model: Dependence, query: Contributions) -> Floats:
    """own + how far the other records are from their farthest answer on average, (records, x).

    For record i and its value x: the smaller of Σ_j E[r(D_j) | x] and, summed over the labels,
    max(E[S | x] - least S, largest S - E[S | x]), S = Σ_j contribution of j over the component of
    i without i; a record of the component that no tie joins to i counts in full. The loss about i
    at scale σ is at most the largest over x, divided by σ; several releases add x by x.
    Values i never takes get `own` alone. Rounds up. Proof: mechanisms/dependent_means.md.
    """
    conditional = model.conditionals()
    radius = query.radius()
    low, high = query.low.min(axis=0), query.high.max(axis=0)
    rest = untied(model)[:, None]
    far = tie_table(model, conditional @ radius) + rest * float(radius.max())
    spread = np.zeros_like(far)
    for axis in range(query.low.shape[1]):
        room = float(high[axis] - low[axis]) * rest
        above = tie_table(model, conditional @ (query.high[:, axis] - low[axis])) + room
        below = tie_table(model, conditional @ (high[axis] - query.low[:, axis])) + room
        spread += np.maximum(above, below)
    return _raised(query.own + np.minimum(far, spread), model)


def published_losses(
    model: Dependence, own: float, scale: float, *, printed: bool, share: float = 1.0
) -> Floats:
    """(ΔQ + Σ_j ρ_ij ΔQ)/σ for each record i, over its ties alone: as published, not sound.

    ρ is that of the record's own values, by Eq. (14) or, if `printed`, Eq. (18), at the noise that
    σ means for them, σ·ΔD/ΔQ, which is Eq. (22) for a query that is not the record itself. `share`
    scales every ρ, to show what an underestimated one leads to. Liu et al. 2016, Eq. (22)-(24).
    """
    domain = model.domain
    diameter = domain.diameter
    if diameter == 0 or not len(model.ties):
        return np.full(model.records, own / scale)
    noise = scale * diameter / own
    if printed:
        per_law = printed_loss(model.conditionals(), domain.distances().max(axis=1), noise)
    else:
        per_law = ratio_loss(model.conditionals(), domain.centres, noise, width=domain.width)
    most = diameter / noise
    return own / scale + tie_sums(model, share * np.minimum(per_law, most))


def dependence_coefficients(model: Dependence, scale: float, *, printed: bool = False) -> Floats:
    """ρ_ij and ρ_ji of every tie (i, j), (ties, 2), at noise of `scale` on the records themselves.

    By Eq. (14) with its supremum over outputs, or by Eq. (18) if `printed`; between 0 and 1. How
    far the law of one record moves when the other changes, as a share of how far its own change
    would move it. Liu, Chakraborty & Mittal 2016. No promise follows from adding them up.
    """
    if not scale > 0:
        raise InputError(f"scale is {scale}; it must be greater than 0")
    domain, laws = model.domain, model.conditionals()
    diameter = domain.diameter
    if printed:
        per_law = printed_loss(laws, domain.distances().max(axis=1), scale)
    else:
        per_law = ratio_loss(laws, domain.centres, scale, width=domain.width)
    share = np.minimum(per_law * (scale / diameter), 1.0) if diameter else 0.0 * per_law
    return np.stack([share[model.law_of], share[model.law_of + len(model.laws)]], axis=1)


def tie_sums(model: Dependence, per_law: Floats) -> Floats:
    """Σ over the ties of each record of a number per (directed) law."""
    near = model.neighbours()
    weights = per_law[near.law]
    return np.asarray(np.bincount(near.record, weights, model.records), dtype=np.float64)


def tie_table(model: Dependence, per_law: Floats) -> Floats:
    """The same for a row per law, (records, columns)."""
    columns = [tie_sums(model, per_law[:, column]) for column in range(per_law.shape[1])]
    return np.stack(columns, axis=1)


def untied(model: Dependence) -> Floats:
    """How many records of its component no tie joins to each record."""
    return (model.component_sizes() - 1 - model.degrees()).astype(np.float64)


def _raised(sums: Floats, model: Dependence) -> Floats:
    """Sums of non-negative numbers, raised by all the roundings they may have suffered."""
    terms = float(model.degrees().max()) + 2.0 * model.domain.size + 16.0
    return np.asarray(sums * (1.0 + terms * UNIT))
