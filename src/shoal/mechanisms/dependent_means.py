"""Noise for tied records by conditional means, for sums. Proof: dependent_means.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.loss.dependence import mean_sensitivities
from shoal.mechanisms.additive import float_below, laplace_body, laplace_plan
from shoal.mechanisms.dependent_additive import TIES_ASSUMED
from shoal.mechanisms.dependent_task import about_records, needed, not_additive
from shoal.mechanisms.row import Mechanism

NAME = "dependent-means"
ROUNDED = Fraction(1, 10**12)  # relative: the sensitivity over the scale is divided in floats once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanTiesCertificate(Value):
    """Per model: the sensitivity of the sum over a component, and the record that reaches it."""

    sensitivities: tuple[float, ...]
    records: tuple[int, ...]

    @property
    def theorem(self) -> str:
        return (
            "the other records of a component are, on average, no farther from any answer than "
            "their conditional means allow (Jensen's inequality; proof in dependent_means.md)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return TIES_ASSUMED


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale B/ε, B the largest `mean_sensitivities`; no fixed point is needed."""
    found = [mean_sensitivities(*member) for member in needed(task)]
    certificate = MeanTiesCertificate(
        sensitivities=tuple(float(bounds.max()) for bounds in found),
        records=tuple(int(bounds.max(axis=1).argmax()) for bounds in found),
    )
    scale = Fraction(max(certificate.sensitivities)) * (1 + ROUNDED) / epsilon
    return laplace_plan(task, NAME, about_records(task, epsilon), scale, certificate)


def loss(plan: Plan) -> float:
    """B / scale of the noise as drawn, the largest over the family."""
    scale = float_below(laplace_body(plan).noise.scale)
    return max(float(mean_sensitivities(*member).max()) for member in needed(plan.task)) / scale


ROW = Mechanism(NAME, not_additive, calibrate, loss, about_records)
