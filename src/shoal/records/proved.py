"""The proved rows for tied records, and what they share: pairwise laws, what a record adds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from shoal.additive.mixture import smallest_scale
from shoal.additive.plans import (
    CUT_SHORT,
    Mechanism,
    entry_level,
    eta_above,
    float_below,
    laplace_body,
    laplace_plan,
    refuse_noise,
    task_guarantee,
)
from shoal.additive.queries import linear
from shoal.core.charge import Guarantee
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.plan import Plan, Proof
from shoal.core.progress import cut_short
from shoal.core.task import LiftedModel, Model, Query, Task, each_entry
from shoal.core.walk import TooUnlikely
from shoal.networks.lift_row import MARGIN, cut_marked
from shoal.networks.table import JointTable
from shoal.noise.laplace import is_laplace
from shoal.records.coefficients import (
    Contributions,
    mean_sensitivities,
    printed_limits,
    printed_losses,
)
from shoal.records.field import PairwiseField, as_field, as_network, field_reach
from shoal.records.sources import pairs_of_table
from shoal.records.ties import Dependence


def pairwise(model: Model) -> Dependence | None:
    """The pairwise laws a model gives; None when it gives none."""
    if isinstance(model, Dependence):
        return model
    if isinstance(model, JointTable) and model.states is not None:
        return pairs_of_table(model)
    field = as_field(model)
    if field is not None and field.small() and field.states is not None:
        try:
            return pairs_of_table(field.table(), field.domain)
        except TooUnlikely:
            return None
    return None


def pairs_of(task: Task) -> tuple[Dependence, ...]:
    """The pairwise laws of every member of the family; for tasks that `not_tied` lets through."""
    found = tuple(pairwise(model) for model in task.family)
    if any(model is None for model in found):
        raise ValueError("calibrate called on a task that `refuse` refuses")
    return tuple(model for model in found if model is not None)


def not_tied(task: Task) -> str | None:
    """Why the rows for tied records do not apply: other secrets, or a model without pairs."""
    reason = refuse_noise(task)
    if reason is not None:
        return reason
    if not each_entry(task.secrets):
        return "ties are between single records; named pairs of secrets need another mechanism"
    for model in task.family:
        if pairwise(model) is None:
            return f"dependence needs pairwise laws of records, not the model {model.describe()}"
    return None


def not_additive(task: Task) -> str | None:
    """`not_tied`, or that the query is not a sum of one contribution per record."""
    reason = not_tied(task)
    if reason is not None:
        return reason
    if any(contributions(task.query, model) is None for model in pairs_of(task)):
        return (
            "coefficients for a query that is not a sum of one contribution per record are not "
            "sound (a threshold query breaks them); use group"
        )
    return None


def about_records(task: Task, epsilon: Fraction) -> Guarantee:
    """The promise of a row that rests on laws of records: about values, or about their cells.

    A law of cells says nothing of where a value lies in its cell, so nothing is promised of it,
    unless the domain declares that the place tells nothing (`own_places`).
    """
    promise = task_guarantee(task, epsilon)
    domains = [m.domain for m in task.family if isinstance(m, Dependence | PairwiseField)]
    unknown = [domain.width for domain in domains if not domain.known_inside]
    if not unknown:
        return promise
    cells = f"which cell, up to {max(unknown):.3g} wide, {task.secrets.subject} lies in"
    return replace(promise, over=f"{cells}, not where in it, under every model of the family")


def contributions(query: Query, model: Dependence | PairwiseField) -> Contributions | None:
    """What one record adds to the answer, by its value; None when the query is no such sum.

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
        low = np.array([[_down(w) for w in row] for row in exact])
        high = np.array([[float_up(w) for w in row] for row in exact])
        return Contributions(low, high, own)
    told = getattr(query, "contributions", None)
    if told is None:
        return None
    low, high = (np.asarray(side, dtype=np.float64) for side in told(model.domain))
    return Contributions(low, high, max(own, float(_most(low, high))))


def means_bound(model: Dependence, query: Query, noise: object) -> float:
    """What Laplace noise on a sum over tied records tells, by conditional means; inf for others."""
    adds = contributions(query, model)
    if adds is None or not is_laplace(noise):
        return math.inf
    return float(mean_sensitivities(model, adds).max()) / float_below(noise.scale)


@lru_cache(maxsize=8)
def sensitivities(query: Query, model: Dependence) -> Floats | None:
    """`mean_sensitivities` of a query, remembered; None when it is no sum over records."""
    adds = contributions(query, model)
    return None if adds is None else mean_sensitivities(model, adds)


def needed(task: Task) -> list[tuple[Dependence, Contributions]]:
    """Each member's pairs, with what its records add; for tasks `not_additive` lets through."""
    listed = []
    for model in pairs_of(task):
        adds = contributions(task.query, model)
        if adds is None:
            raise ValueError("calibrate called on a task that `refuse` refuses")
        listed.append((model, adds))
    return listed


def float_up(value: Fraction) -> float:
    """The least double that is not below `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _down(value: Fraction) -> float:
    return -float_up(-value)


def _most(low: Floats, high: Floats) -> float:
    return float(Contributions(low, high, 0.0).moves().max())


# Noise for tied records by conditional means, for sums. Proof: dependent_means.md.


MEANS = "dependent-means"
ROUNDED = Fraction(1, 10**12)  # relative: the sensitivity over the scale is divided in floats once


TIES_ASSUMED = (
    "tied pairs of records follow the given pairwise laws, records of different components are "
    "independent; nothing is assumed about three records at once, nor about where values lie in "
    "cells, unless that is declared to be their own matter",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanTiesCertificate(Proof):
    """Per model: the sensitivity of the sum over a component, and the record that reaches it."""

    sensitivities: tuple[float, ...]
    records: tuple[int, ...]

    THEOREM: ClassVar[str] = (
        "the other records of a component are, on average, no farther from any answer than "
        "their conditional means allow (Jensen's inequality; proof in dependent_means.md)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = TIES_ASSUMED


def calibrate_means(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale B/ε, B the largest `mean_sensitivities`; no fixed point is needed."""
    found = [mean_sensitivities(*member) for member in needed(task)]
    certificate = MeanTiesCertificate(
        sensitivities=tuple(float(bounds.max()) for bounds in found),
        records=tuple(int(bounds.max(axis=1).argmax()) for bounds in found),
    )
    scale = Fraction(max(certificate.sensitivities)) * (1 + ROUNDED) / epsilon
    return laplace_plan(task, MEANS, about_records(task, epsilon), scale, certificate)


def means_loss(plan: Plan) -> float:
    """B / scale of the noise as drawn, the largest over the family."""
    scale = float_below(laplace_body(plan).noise.scale)
    return max(float(mean_sensitivities(*member).max()) for member in needed(plan.task)) / scale


MEANS_ROW = Mechanism(MEANS, not_additive, calibrate_means, means_loss, about_records)


# Noise for tied records by the printed coefficients, for sums. Proof: dependent_additive.md.


ADDITIVE = "dependent-additive"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdditiveTiesCertificate(Proof):
    """Per model: the dependent sensitivity at the scale chosen, and the record that reaches it."""

    sensitivities: tuple[float, ...]
    records: tuple[int, ...]

    THEOREM: ClassVar[str] = (
        "dependence coefficients by Eq. (18) in the query's own metric, over whole components, "
        "for a sum over records (Liu, Chakraborty & Mittal 2016; our proof in "
        "dependent_additive.md)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = TIES_ASSUMED


def calibrate_additive(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of the least scale σ with σ ε ≥ max_i Σ_j ρ_ij(σ) Δ_j, ρ_ii = 1.

    ρ depends on the scale it sets; Σ_j ρ_ij(σ) Δ_j / σ falls as σ grows, so bisection finds the
    fixed point from above.
    """
    members = needed(task)
    budget = float_below(epsilon)
    low = max(float(printed_limits(*member).max()) for member in members) / budget
    most = max(float(member[0].tied or 1) * member[1].own for member in members) / budget

    def worst(scale: float) -> float:
        return max(float(printed_losses(*member, scale).max()) for member in members)

    scale = smallest_scale(worst, budget, 0.999 * low, 1.001 * max(most, low))
    found = [printed_losses(*member, scale) * scale for member in members]
    certificate = AdditiveTiesCertificate(
        sensitivities=tuple(float(bounds.max()) for bounds in found),
        records=tuple(int(bounds.argmax()) for bounds in found),
    )
    return laplace_plan(task, ADDITIVE, about_records(task, epsilon), scale, certificate)


def additive_loss(plan: Plan) -> float:
    """max_i Σ_j ρ_ij(σ) Δ_j / σ at the noise as drawn, the largest over the family."""
    scale = float_below(laplace_body(plan).noise.scale)
    return max(float(printed_losses(*member, scale).max()) for member in needed(plan.task))


ADDITIVE_ROW = Mechanism(ADDITIVE, not_additive, calibrate_additive, additive_loss, about_records)


# Noise for records of a pairwise field: how far one record reaches. Proof: dependent_field.md.


FIELD = "dependent-field"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FieldCertificate(Proof):
    """Per model: the largest reach of a record, and which record that is.

    `cut` says that a time limit ended the search: the reach is a bound, and not the least.
    """

    reaches: tuple[float, ...]
    records: tuple[int, ...]
    cut: bool = field(default=False, metadata={"later": True})

    @property
    def theorem(self) -> str:
        return (
            "total influence along self-avoiding walks of ties, each tie a Birkhoff contraction: "
            f"a record counts as at most {max(self.reaches):.4g} records (dependent_field.md)"
        ) + CUT_SHORT * self.cut

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "the records follow the field: given the values it is tied to, a record depends on no "
        "other record; different components are independent; where values lie in cells is "
        "free, unless declared to be their own matter",
    )


def not_a_field(task: Task) -> str | None:
    """Reach is that of single records in pairwise fields; any noisy query will do."""
    if not each_entry(task.secrets):
        return "reach is that of single records; named pairs of secrets need another mechanism"
    for model in task.family:
        if as_field(model) is None:
            return f"reach is that of records in a pairwise field, not the model {model.describe()}"
    return refuse_noise(task)


def calibrate_field(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L·W/ε, W the largest reach of a record under any model."""
    found = [field_reach(model, moved_inside(task.query, model)) for model in fields(task)]
    certificate = FieldCertificate(
        reaches=tuple(float(reach.max()) for reach in found),
        records=tuple(int(reach.argmax()) for reach in found),
        cut=cut_short(),
    )
    scale = Fraction(max(certificate.reaches)) * (1 + ROUNDED) * task.query.lipschitz / epsilon
    return laplace_plan(task, FIELD, about_records(task, epsilon), scale, certificate)


def reach_loss(plan: Plan) -> float:
    """W · L/scale of the noise as drawn, the largest over the family."""
    eta, task = eta_above(entry_level(plan)), plan.task
    return max(field_loss(model, eta, task.query) for model in fields(task))


def fields(task: Task) -> list[PairwiseField]:
    """The models of a task, each a field: `not_a_field` lets no other through."""
    return [field for model in task.family if (field := as_field(model)) is not None]


def moved_inside(query: Query | None, model: PairwiseField) -> float:
    """The most a record moves the answer within its cell, as a share of what it moves it at all.

    0 where laws of cells are laws of values; 1 for a query that is no sum over records, or not
    told: nothing is known of it then. Rounds up.
    """
    if model.domain.known_inside:
        return 0.0
    adds = None if query is None else contributions(query, model)
    if query is None or adds is None:
        return 1.0
    widest = float((adds.high - adds.low).sum(axis=1).max())
    return min(widest / float_below(query.lipschitz) * (1 + float(ROUNDED)), 1.0)


def field_loss(model: PairwiseField, eta: float, query: Query | None = None) -> float:
    """What any release that is eta-DP for one record tells about one record of the field.

    On a domain of cells that is group privacy, unless noise was added to `query`, a sum.
    """
    return float(field_reach(model, moved_inside(query, model)).max()) * eta


FIELD_ROW = Mechanism(FIELD, not_a_field, calibrate_field, reach_loss, about_records)


# The lift on a pairwise field: by the reach of a record, or as a network. Proofs:
# dependent_field.md, lift.md.


REACH = "reach"
MOST_LIFTED = 40  # records; the lift of a larger network takes long, the reach serves


class FieldLift:
    """What eta-DP for one record tells: by its reach, or by a network's lift where that is less."""

    def __init__(self, model: PairwiseField, query: Query | None) -> None:
        law = _small_law(model)
        lifted = None if law is None else law.lift(query)
        self._model, self._query = model, query
        self._lifted = None if isinstance(lifted, str) else lifted

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        reach = field_loss(self._model, eta, self._query)
        if self._lifted is None:
            return reach
        try:
            return min(reach, self._lifted.loss(eta))
        except Refused:
            return reach

    def largest(self, epsilon: float) -> LiftedModel:
        reach = field_reach(self._model)
        most = float(reach.max())
        eta = math.nextafter(epsilon * (1 - MARGIN) / most, 0.0)
        best = cut_marked(LiftedModel.at(eta, most * eta, int(reach.argmax()), eta, REACH))
        if self._lifted is None:
            return best
        try:
            other = self._lifted.largest(epsilon)
        except Refused:
            return best
        return other if other.eta > best.eta else best


def _small_law(model: PairwiseField) -> Model | None:
    """The field as a network or table that is lifted in a moment."""
    law = as_network(model) if model.records <= MOST_LIFTED else model
    return None if law is model else law
