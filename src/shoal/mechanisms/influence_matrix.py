"""The influence matrix: how far one entry reaches through its neighbours. Proof:
influence_matrix.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.loss.influence_matrix import influence_matrix_loss, influence_matrix_scale
from shoal.mechanisms.additive import (
    eta_above,
    float_below,
    laplace_body,
    laplace_plan,
    pufferfish,
)
from shoal.mechanisms.row import Mechanism
from shoal.models.chain import MarkovChain
from shoal.secrets.entries import EachEntry

NAME = "influence-matrix"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InfluenceCertificate(Value):
    """Per model: the norm of the influence matrix and the largest row sum of its resolvent."""

    norms: tuple[float, ...]
    row_sums: tuple[float, ...]

    @property
    def theorem(self) -> str:
        return (
            "total influence through neighbours, epsilon = 2 eta max_i Σ_j ((I - Γ)^-1)_ij "
            "(after Ghosh & Kleinberg 2016; proof in influence_matrix.md)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "each chain follows one of the family's laws, in which every transition between "
            "possible values is possible; separate chains are independent",
            "the norm of the influence matrix is below 1",
        )


def refuse(task: Task) -> str | None:
    """The influence matrix here is that of chains with a given initial law."""
    if not isinstance(task.secrets, EachEntry):
        return "influences are between single entries; named pairs need another mechanism"
    for model in task.family:
        if not isinstance(model, MarkovChain):
            return f"the influence matrix needs one Markov chain, not {model.describe()}"
    return None


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale 2 L max_i Σ_j Φ_ij / ε, the largest over the family."""
    results = []
    for model in task.family:
        assert isinstance(model, MarkovChain)  # `refuse` lets nothing else through
        found = influence_matrix_scale(
            model.transition, model.initial, model.length, float_below(epsilon)
        )
        if found.refusal is not None:
            raise Refused(f"{NAME} does not apply: {found.refusal}")
        results.append(found)
    certificate = InfluenceCertificate(
        norms=tuple(r.norm for r in results), row_sums=tuple(r.row_sum for r in results)
    )
    scale = Fraction(max(r.scale for r in results)) * task.query.lipschitz
    return laplace_plan(task, NAME, pufferfish(task, epsilon), scale, certificate)


def loss(plan: Plan) -> float:
    """2 eta max_i Σ_j Φ_ij, the largest over the family, at eta = L / scale."""
    eta = eta_above(laplace_body(plan).eta)
    return max(
        influence_matrix_loss(model.transition, model.initial, model.length, eta)
        for model in plan.task.family
        if isinstance(model, MarkovChain)
    )


ROW = Mechanism(NAME, refuse, calibrate, loss)
