"""Noise for records of a pairwise field: how far one record reaches. Proof: dependent_field.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.loss.dependence_field import field_reach
from shoal.mechanisms.additive import (
    eta_above,
    laplace_body,
    laplace_plan,
    not_for_numbers,
    pufferfish,
)
from shoal.mechanisms.row import Mechanism
from shoal.models.dependence_field import PairwiseField
from shoal.secrets.entries import EachEntry

NAME = "dependent-field"
ROUNDED = Fraction(1, 10**12)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FieldCertificate(Value):
    """Per model: the largest reach of a record, and which record that is."""

    reaches: tuple[float, ...]
    records: tuple[int, ...]

    @property
    def theorem(self) -> str:
        return (
            "total influence along self-avoiding walks of ties, each tie a Birkhoff contraction: "
            f"a record counts as at most {max(self.reaches):.4g} records (dependent_field.md)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "the records follow the field: given the values it is tied to, a record depends on no "
            "other record; different components are independent",
        )


def refuse(task: Task) -> str | None:
    """Reach is that of single records in pairwise fields; any noisy query will do."""
    if not isinstance(task.secrets, EachEntry):
        return "reach is that of single records; named pairs of secrets need another mechanism"
    for model in task.family:
        if not isinstance(model, PairwiseField):
            return f"reach is that of records in a pairwise field, not the model {model.describe()}"
    return not_for_numbers(task)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L·W/ε, W the largest reach of a record under any model."""
    found = [field_reach(model) for model in task.family if isinstance(model, PairwiseField)]
    certificate = FieldCertificate(
        reaches=tuple(float(reach.max()) for reach in found),
        records=tuple(int(reach.argmax()) for reach in found),
    )
    scale = Fraction(max(certificate.reaches)) * (1 + ROUNDED) * task.query.lipschitz / epsilon
    return laplace_plan(task, NAME, pufferfish(task, epsilon), scale, certificate)


def loss(plan: Plan) -> float:
    """W · L/scale of the noise as drawn, the largest over the family."""
    eta = eta_above(laplace_body(plan).eta)
    return max(field_loss(m, eta) for m in plan.task.family if isinstance(m, PairwiseField))


def field_loss(model: PairwiseField, eta: float) -> float:
    """What any release that is eta-DP for one record tells about one record of the field."""
    return float(field_reach(model).max()) * eta


ROW = Mechanism(NAME, refuse, calibrate, loss)
