"""Noise for tied records by the printed coefficients, for sums. Proof: dependent_additive.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.loss.crossing import smallest_scale
from shoal.loss.dependence import printed_limits, printed_losses
from shoal.mechanisms.additive import float_below, laplace_body, laplace_plan
from shoal.mechanisms.dependent_task import about_records, needed, not_additive
from shoal.mechanisms.row import Mechanism

NAME = "dependent-additive"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdditiveTiesCertificate(Value):
    """Per model: the dependent sensitivity at the scale chosen, and the record that reaches it."""

    sensitivities: tuple[float, ...]
    records: tuple[int, ...]

    @property
    def theorem(self) -> str:
        return (
            "dependence coefficients by Eq. (18) in the query's own metric, over whole components, "
            "for a sum over records (Liu, Chakraborty & Mittal 2016; our proof in "
            "dependent_additive.md)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return TIES_ASSUMED


TIES_ASSUMED = (
    "tied pairs of records follow the given pairwise laws, records of different components are "
    "independent; nothing is assumed about three records at once, nor about where values lie in "
    "cells, unless that is declared to be their own matter",
)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
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
    return laplace_plan(task, NAME, about_records(task, epsilon), scale, certificate)


def loss(plan: Plan) -> float:
    """max_i Σ_j ρ_ij(σ) Δ_j / σ at the noise as drawn, the largest over the family."""
    scale = float_below(laplace_body(plan).noise.scale)
    return max(float(printed_losses(*member, scale).max()) for member in needed(plan.task))


ROW = Mechanism(NAME, not_additive, calibrate, loss, about_records)
