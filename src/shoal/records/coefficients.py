"""Dependence coefficients: how far one record's law moves when a tied record changes.

All functions take a stack of conditional laws, conditional[..., x, y] = P(D_j = y | D_i = x), and
work on a million of them at once; a row of zeros is a value that D_i never takes and counts for
nothing. Losses are in nats, and coefficients are losses over ΔD_j/σ, so that they lie in [0, 1].
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.progress import doing
from shoal.core.task import Query
from shoal.mechanisms.plans import float_below
from shoal.mechanisms.queries import linear
from shoal.noise.laplace import is_laplace
from shoal.records.pairwise import Dependence, TiedRecords

UNIT = 2.0**-52  # twice the unit roundoff of a double
MAX_NUMBERS_AT_ONCE = 4_000_000  # numbers worked on at once
MAX_GRID_OUTPUTS = 65_536  # outputs at which the supremum of Eq. (14) is sought, at most
MIN_LINEAR_SUM = 1e-280  # below it sums of exponentials are taken in logarithms


def ratio_loss(conditional: Floats, points: Floats, scale: float, *, width: float = 0.0) -> Floats:
    """Return sup over outputs o and pairs x, x' of log E[K(o - D_j) | x] / E[K(o - D_j) | x'].

    Eq. (14) of Liu, Chakraborty & Mittal 2016 with its supremum, K(u) = exp(-‖u‖₁/σ), σ = scale,
    points (k, coordinates) the values of D_j. The supremum is attained where every coordinate of
    o is that of some value (MATHS, section 2). `width` is the l1 width of the cells the values
    stand for; it adds width/σ, so that the result holds wherever in its cell a value lies.
    Rounds up.
    """
    outputs = _output_grid(points)
    exponent = -np.abs(points[:, None, :] - outputs[None, :, :]).sum(axis=2) / scale
    laws = conditional.reshape(-1, *conditional.shape[-2:])
    found = np.empty(len(laws))
    step = max(1, MAX_NUMBERS_AT_ONCE // max(laws.shape[1] * max(len(outputs), laws.shape[2]), 1))
    for start in range(0, len(laws), step):
        doing("the search for coefficients of tied pairs", start, len(laws))
        found[start : start + step] = _largest_gap(laws[start : start + step], exponent)
    slack = (4.0 * conditional.shape[-1] + 64.0) * UNIT * (1.0 + found)
    raised = np.where(found > slack, found + slack, 0.0)  # rows equal up to rounding are equal
    return np.asarray((raised + width / scale).reshape(conditional.shape[:-2]))


def printed_loss(conditional: Floats, radius: Floats, scale: float) -> Floats:
    """Return max over x of log Σ_y P(y | x) exp(radius(y)/σ): Eq. (18) times ΔD_j/σ.

    radius(y) is the distance from y to the value of D_j farthest from it. Rounds up.
    """
    top = float(radius.max())
    weights = np.exp((radius - top) / scale)
    mean = (conditional @ weights).max(axis=-1)
    # below SAFE the exponentials have underflowed: the largest radius is a bound all the same
    loss = (
        np.where(mean < MIN_LINEAR_SUM, 0.0, np.log(np.maximum(mean, MIN_LINEAR_SUM))) + top / scale
    )
    return np.asarray(np.maximum(loss, 0.0) + (4.0 * len(radius) + 64.0) * UNIT * (1 + top / scale))


def _largest_gap(laws: Floats, exponent: Floats) -> Floats:
    """Return the largest log-ratio between two rows at any output, one per law."""
    seen = laws @ np.exp(exponent)
    never = ~(laws.sum(axis=2) > 0)
    least = np.where(never[:, :, None], math.inf, seen).min(axis=1) if never.any() else seen.min(1)
    if least.min() < MIN_LINEAR_SUM:
        return np.array([_largest_gap_in_logs(law, exponent) for law in laws])
    return np.asarray(np.log(seen.max(axis=1) / least).max(axis=1))


def _largest_gap_in_logs(law: Floats, exponent: Floats) -> float:
    """Return the same for one law in logarithms, where exp(-distance/σ) underflows."""
    possible = law[law.sum(axis=1) > 0]
    with np.errstate(divide="ignore"):
        logs = np.log(possible)
    seen = np.logaddexp.reduce(logs[:, :, None] + exponent[None, :, :], axis=1)
    return float(np.ptp(seen, axis=0).max())


def _output_grid(points: Floats) -> Floats:
    """Return the product grid of the coordinates of all values."""
    axes = [np.unique(points[:, axis]) for axis in range(points.shape[1])]
    count = math.prod(len(axis) for axis in axes)
    if count > MAX_GRID_OUTPUTS:
        raise InputError(
            f"the supremum of Eq. (14) is over {count} outputs; at most {MAX_GRID_OUTPUTS} are "
            "tried"
        )
    if len(axes) == 1:
        return axes[0][:, None]
    return np.array(list(product(*(axis.tolist() for axis in axes))))


# Correlations of tied records, for the correlated sensitivity of Zhu et al.


def correlations(model: Dependence) -> Floats:
    """Return |δ| of each directed law: the largest Pearson correlation of any coordinate, in [0,
    1].

    Values are the centres of their cells; a coordinate that does not vary has correlation 0.
    """
    both = np.concatenate([model.laws, model.laws.transpose(0, 2, 1)])
    centres = model.domain.centres
    best = np.zeros(len(both))
    for axis in range(centres.shape[1]):
        v = centres[:, axis]
        one, two = both.sum(axis=2), both.sum(axis=1)
        mean = (one @ v)[:, None] - v, (two @ v)[:, None] - v
        spread = np.sqrt((one * mean[0] ** 2).sum(1) * (two * mean[1] ** 2).sum(1))
        together = np.einsum("mx,mxy,my->m", mean[0], both, mean[1])
        share = np.divide(together, spread, out=np.zeros_like(spread), where=spread > 1e-300)
        best = np.maximum(best, np.abs(share))
    return np.minimum(best, 1.0)


def correlated_sensitivities(model: Dependence, own: float, threshold: float) -> Floats:
    """Return Σ_j |δ_ij| ΔQ over the ties of each record i and itself; |δ| below the threshold is 0.

    Zhu, Xiong, Li & Zhou 2015, correlated sensitivity. No promise follows from it.
    """
    share = correlations(model)
    return own * (1.0 + tie_sums(model, np.where(share >= threshold, share, 0.0)))


# What ties add to the sensitivity of a query, from pairwise laws alone.
#
# Every function returns one bound per record: how much of "distance / noise scale" the release may
# tell about that record. The proofs are in records/dependent_means.md.


class Contributions(NamedTuple):
    """What one record adds to an additive query: between low[y] and high[y], (values, labels).

    `own` is the most the answer moves, in l1, when one record changes: the query's Lipschitz
    constant, which also covers a snapped answer.
    """

    low: Floats
    high: Floats
    own: float

    def moves(self) -> Floats:
        """Return the largest l1 distance between the contributions of two values, (values,
        values).
        """
        forth = self.high[:, None, :] - self.low[None, :, :]
        back = self.high[None, :, :] - self.low[:, None, :]
        return np.asarray(np.maximum(forth, back).sum(axis=2))

    def radius(self) -> Floats:
        """Return r(y): how far the answer can still move when a record takes the value y."""
        return np.asarray(self.moves().max(axis=1))


def contributions(query: Query, model: TiedRecords) -> Contributions | None:
    """Return what one record adds to the answer, by its value in `model.domain`; None when the
    query is no such sum.

    A linear query has its weights. Any other query may say it itself by a method
    `contributions(domain)` that gives (low, high), two (values, labels) arrays of bounds in the
    query's own unit, for answers that are a sum of one contribution per record, however snapped.
    Rounds outwards.
    """
    own = float_up(query.lipschitz)
    sums = linear(query)
    if sums is not None:
        if model.domain.states != sums.states:
            return None
        exact = [[Fraction(w) for w in row] for row in sums.weights]
        low = np.array([[-float_up(-w) for w in row] for row in exact])
        high = np.array([[float_up(w) for w in row] for row in exact])
        return Contributions(low, high, own)
    bounds_by_cell = getattr(query, "contributions", None)
    if bounds_by_cell is None:
        return None
    low, high = (np.asarray(side, dtype=np.float64) for side in bounds_by_cell(model.domain))
    found = Contributions(low, high, own)
    return found._replace(own=max(own, float(found.moves().max())))


def means_bound(model: Dependence, query: Query, noise: object) -> float:
    """Return what Laplace noise on a sum over tied records tells, by conditional means; inf for
    others.
    """
    adds = contributions(query, model)
    if adds is None or not is_laplace(noise):
        return math.inf
    return float(mean_sensitivities(model, adds).max()) / float_below(noise.scale)


@lru_cache(maxsize=8)
def sensitivities(query: Query, model: Dependence) -> Floats | None:
    """Return `mean_sensitivities` of a query, cached; None when it is no sum over records."""
    adds = contributions(query, model)
    return None if adds is None else mean_sensitivities(model, adds)


def float_up(value: Fraction) -> float:
    """Return the least double that is not below `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def printed_losses(model: Dependence, query: Contributions, scale: float) -> Floats:
    """Return (own + Σ_j ρ_ij(σ) Δ_j)/σ for each record i, ρ by Eq. (18) in the query's own metric.

    The sum is over the whole component of i: ρ = 1 where no tie says more. Rounds up.
    Liu, Chakraborty & Mittal 2016, Eq. (18), (23).
    """
    radius = query.radius()
    per_law = printed_loss(model.conditionals(), radius, scale)
    rest = count_untied(model) * (float(radius.max()) / scale)
    return _round_up_sums(query.own / scale + tie_sums(model, per_law) + rest, model)


def mean_sensitivities(model: Dependence, query: Contributions) -> Floats:
    """Return own + how far the other records are from their farthest answer on average, (records,
    x).

    For record i and its value x: the smaller of Σ_j E[r(D_j) | x] and, summed over the labels,
    max(E[S | x] - least S, largest S - E[S | x]), S = Σ_j contribution of j over the component of
    i without i; a record of the component that no tie joins to i counts in full. The loss about i
    at scale σ is at most the largest over x, divided by σ; several releases add x by x.
    Values i never takes get `own` alone. Rounds up. Proof: records/dependent_means.md.
    """
    conditional = model.conditionals()
    radius = query.radius()
    low, high = query.low.min(axis=0), query.high.max(axis=0)
    rest = count_untied(model)[:, None]
    far = tie_table(model, conditional @ radius) + rest * float(radius.max())
    spread = np.zeros_like(far)
    for axis in range(query.low.shape[1]):
        room = float(high[axis] - low[axis]) * rest
        above = tie_table(model, conditional @ (query.high[:, axis] - low[axis])) + room
        below = tie_table(model, conditional @ (high[axis] - query.low[:, axis])) + room
        spread += np.maximum(above, below)
    return _round_up_sums(query.own + np.minimum(far, spread), model)


def published_losses(
    model: Dependence, own: float, scale: float, *, printed: bool, share: float = 1.0
) -> Floats:
    """Return (ΔQ + Σ_j ρ_ij ΔQ)/σ for each record i, over its ties alone: as published, not sound.

    ρ is that of the record's own values, by Eq. (14) or, if `printed`, Eq. (18), at the noise that
    σ means for them, σ·ΔD/ΔQ, which is Eq. (22) for a query that is not the record itself. `share`
    scales every ρ, to show what an underestimated one leads to. Liu et al. 2016, Eq. (22)-(24).
    """
    diameter = model.domain.diameter
    if diameter == 0 or not len(model.ties):
        return np.full(model.records, own / scale)
    noise = scale * diameter / own
    per_law = np.minimum(_value_losses(model, noise, printed=printed), diameter / noise)
    return own / scale + tie_sums(model, share * per_law)


def dependence_coefficients(model: Dependence, scale: float, *, printed: bool = False) -> Floats:
    """Return ρ_ij and ρ_ji of every tie (i, j), (ties, 2), at noise of `scale` on the records
    themselves.

    By Eq. (14) with its supremum over outputs, or by Eq. (18) if `printed`; between 0 and 1. How
    far the law of one record moves when the other changes, as a share of how far its own change
    would move it. Liu, Chakraborty & Mittal 2016. No promise follows from adding them up.
    """
    if not scale > 0:
        raise InputError(f"scale is {scale}; it must be greater than 0")
    diameter, per_law = model.domain.diameter, _value_losses(model, scale, printed=printed)
    share = np.minimum(per_law * (scale / diameter), 1.0) if diameter else 0.0 * per_law
    return np.stack([share[model.law_of], share[model.law_of + len(model.laws)]], axis=1)


def _value_losses(model: Dependence, scale: float, *, printed: bool) -> Floats:
    """ρ ΔD_j/σ of each directed law at noise on the records' own values, by Eq. (18) or (14)."""
    domain, laws = model.domain, model.conditionals()
    if printed:
        return printed_loss(laws, domain.distances().max(axis=1), scale)
    return ratio_loss(laws, domain.centres, scale, width=domain.width)


def tie_sums(model: Dependence, per_law: Floats) -> Floats:
    """Return Σ over the ties of each record of a number per (directed) law."""
    near = model.neighbours()
    weights = per_law[near.law]
    return np.asarray(np.bincount(near.record, weights, model.records), dtype=np.float64)


def tie_table(model: Dependence, per_law: Floats) -> Floats:
    """Return the same for a row per law, (records, columns)."""
    columns = [tie_sums(model, per_law[:, column]) for column in range(per_law.shape[1])]
    return np.stack(columns, axis=1)


def count_untied(model: Dependence) -> Floats:
    """Return how many records of its component no tie joins to each record."""
    return (model.component_sizes() - 1 - model.degrees()).astype(np.float64)


def _round_up_sums(sums: Floats, model: Dependence) -> Floats:
    """Return sums of non-negative numbers, raised by all the roundings they may have suffered."""
    terms = float(model.degrees().max()) + 2.0 * model.domain.size + 16.0
    return np.asarray(sums * (1.0 + terms * UNIT))
