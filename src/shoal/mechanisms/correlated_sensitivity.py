"""Correlated sensitivity, for comparison: no promise follows. Why: correlated_sensitivity.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.guarantee import Guarantee
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.loss.dependence_correlation import correlated_sensitivities
from shoal.mechanisms.additive import float_below, laplace_body, laplace_plan
from shoal.mechanisms.dependent_task import float_up, not_tied, pairs_of
from shoal.mechanisms.row import Mechanism

NAME = "correlated-sensitivity"
THRESHOLD = 0.1  # correlations below this count as none, as the paper asks
CAVEAT = (
    "linear correlation is not dependence: records can determine each other and be uncorrelated, "
    "and then this adds no noise for them at all"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CorrelatedCertificate(Value):
    """Per model: the correlated sensitivity; correlations below `threshold` were dropped."""

    sensitivities: tuple[float, ...]
    threshold: float

    @property
    def theorem(self) -> str:
        return (
            "none: the scale of Zhu, Xiong, Li & Zhou 2015, max_i Σ_j |δ_ij| ΔQ / ε, is kept for "
            "comparison"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("that correlations say how records depend on each other, which they do not",)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale max_i Σ_j |δ_ij| ΔQ / ε over the ties of a record."""
    own = float_up(task.query.lipschitz)
    found = tuple(
        float(correlated_sensitivities(model, own, THRESHOLD).max()) for model in pairs_of(task)
    )
    certificate = CorrelatedCertificate(sensitivities=found, threshold=THRESHOLD)
    scale = Fraction(max(found)) / epsilon
    return laplace_plan(task, NAME, claim(task, epsilon), scale, certificate)


def claim(task: Task, epsilon: Fraction) -> Guarantee:
    """What is claimed for linear correlation, and why it is not so."""
    over = "any single record, as claimed for linear correlation"
    return Guarantee(notion="dependent", amount=epsilon, over=over, proved=False, caveat=CAVEAT)


def loss(plan: Plan) -> float:
    """The correlated sensitivity over the scale of the noise as drawn."""
    scale = float_below(laplace_body(plan).noise.scale)
    own = float_up(plan.task.query.lipschitz)
    return max(
        float(correlated_sensitivities(model, own, THRESHOLD).max()) / scale
        for model in pairs_of(plan.task)
    )


ROW = Mechanism(NAME, not_tied, calibrate, loss, claim)
