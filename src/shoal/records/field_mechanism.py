"""The mechanism for pairwise fields, by how far one record reaches, and the lift of a field."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from shoal.core.errors import Refused
from shoal.core.plan import Plan, Proof
from shoal.core.progress import cut_short
from shoal.core.task import LiftedModel, Model, Query, Task, each_entry
from shoal.mechanisms.plans import (
    CUT_SHORT,
    Mechanism,
    entry_level,
    eta_above,
    float_below,
    laplace_plan,
    refuse_noise,
)
from shoal.networks.entry_lift import BUDGET_UNUSED, mark_if_cut_short
from shoal.records.coefficients import (
    contributions,
)
from shoal.records.field import PairwiseField
from shoal.records.field_laws import as_field, as_network
from shoal.records.pairwise_mechanisms import ROUNDED, records_guarantee
from shoal.records.reach import field_reach

# By how far one record of a pairwise field reaches. Proof: dependent_field.md.


FIELD = "dependent-field"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FieldCertificate(Proof):
    """Per model: the largest reach of a record, and which record that is.

    `cut` says that a time limit ended the search: the reach is a bound, and not the least.
    """

    kind = "field-certificate"
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


def refuse_unless_field(task: Task) -> str | None:
    """Return why reach does not apply, or None: it is that of single records in pairwise fields."""
    if not each_entry(task.secrets):
        return "reach is that of single records; named pairs of secrets need another mechanism"
    for model in task.family:
        if as_field(model) is None:
            return f"reach is that of records in a pairwise field, not the model {model.describe()}"
    return refuse_noise(task)


def calibrate_field(task: Task, epsilon: Fraction) -> Plan:
    """Return the plan with noise of scale L·W/ε, W the largest reach of a record under any
    model.
    """
    found = [field_reach(model, share_within_cell(task.query, model)) for model in fields_of(task)]
    certificate = FieldCertificate(
        reaches=tuple(float(reach.max()) for reach in found),
        records=tuple(int(reach.argmax()) for reach in found),
        cut=cut_short(),
    )
    scale = Fraction(max(certificate.reaches)) * (1 + ROUNDED) * task.query.lipschitz / epsilon
    return laplace_plan(task, FIELD, records_guarantee(task, epsilon), scale, certificate)


def reach_loss(plan: Plan) -> float:
    """Return W · L/scale of the noise as drawn, the largest over the family."""
    eta, task = eta_above(entry_level(plan)), plan.task
    return max(field_loss(model, eta, task.query) for model in fields_of(task))


def fields_of(task: Task) -> list[PairwiseField]:
    """Return the models of a task, each a field: `not_a_field` lets no other through."""
    return [field for model in task.family if (field := as_field(model)) is not None]


def share_within_cell(query: Query | None, model: PairwiseField) -> float:
    """Return the most a record moves the answer within its cell, as a share of what it moves it at
    all.

    0 where laws of cells are laws of values; 1 for a query that is no sum over records, or not
    given: nothing is known of it then. Rounds up.
    """
    if model.domain.known_inside:
        return 0.0
    adds = None if query is None else contributions(query, model)
    if query is None or adds is None:
        return 1.0
    widest = float((adds.high - adds.low).sum(axis=1).max())
    return min(widest / float_below(query.lipschitz) * (1 + float(ROUNDED)), 1.0)


def field_loss(model: PairwiseField, eta: float, query: Query | None = None) -> float:
    """Return what any release that is eta-DP for one record tells about one record of the field.

    On a domain of cells that is group privacy, unless noise was added to `query`, a sum.
    """
    return float(field_reach(model, share_within_cell(query, model)).max()) * eta


FIELD_MECHANISM = Mechanism(
    FIELD, refuse_unless_field, calibrate_field, reach_loss, records_guarantee
)


# The lift on a pairwise field: by the reach of a record, or as a network. Proofs:
# dependent_field.md, lift.md.


REACH_RULE = "reach"


MAX_LIFTED_RECORDS = 40  # records; the lift of a larger network takes long, the reach serves


class FieldLift:
    """What eta-DP for one record tells: by its reach, or by a network's lift where that is less."""

    def __init__(self, model: PairwiseField, query: Query | None) -> None:
        law = _small_field_law(model)
        lifted = None if law is None else law.lift(query)
        self._model, self._query = model, query
        self._lift_or_none = None if isinstance(lifted, str) else lifted

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        """Return the lesser of the loss by reach and, where it is small, by the field's network."""
        reach = field_loss(self._model, eta, self._query)
        if self._lift_or_none is None:
            return reach
        try:
            return min(reach, self._lift_or_none.loss(eta))
        except Refused:
            return reach

    def largest(self, epsilon: float) -> LiftedModel:
        """Return the larger eta of reach and, where it is small, of the field's network."""
        reach = field_reach(self._model)
        most = float(reach.max())
        eta = math.nextafter(epsilon * (1 - BUDGET_UNUSED) / most, 0.0)
        best = mark_if_cut_short(
            LiftedModel.at(eta, most * eta, int(reach.argmax()), eta, REACH_RULE)
        )
        if self._lift_or_none is None:
            return best
        try:
            other = self._lift_or_none.largest(epsilon)
        except Refused:
            return best
        return other if other.eta > best.eta else best


def _small_field_law(model: PairwiseField) -> Model | None:
    """Return the field as a network or table that is lifted in a moment."""
    law = as_network(model) if model.records <= MAX_LIFTED_RECORDS else model
    return None if law is model else law
