"""The influence matrix: how far one entry reaches through its neighbours. Proof:
influence_matrix.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import Model, Task
from shoal.core.value import Value
from shoal.loss.influence_matrix import InfluenceResult, influence_matrix_scale
from shoal.loss.kernels import UNIT
from shoal.loss.network_matrix import network_matrix_scale
from shoal.mechanisms.additive import (
    entry_level,
    eta_above,
    float_below,
    laplace_plan,
    pufferfish,
)
from shoal.mechanisms.row import Mechanism
from shoal.models.bayesnet import BayesNet
from shoal.models.chain import MarkovChain
from shoal.models.dependence_network import followed
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
            "the data follows one of the family's laws, in which every transition (in a network: "
            "every entry of a table) is positive; separate chains are independent",
            "the norm of the influence matrix is below 1",
        )


def refuse(task: Task) -> str | None:
    """The influence matrix is that of chains with a given initial law, or of networks."""
    if not isinstance(task.secrets, EachEntry):
        return "influences are between single entries; named pairs need another mechanism"
    for model in map(followed, task.family):
        if not isinstance(model, MarkovChain | BayesNet):
            return f"the influence matrix needs a Markov chain or a network, not {model.describe()}"
    return None


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale 2 L max_i Σ_j Φ_ij / ε, the largest over the family."""
    results = []
    for model in task.family:
        found = _scale(followed(model), float_below(epsilon))
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
    eta = eta_above(entry_level(plan))
    row_sums = (_scale(followed(model), 1.0).row_sum for model in plan.task.family)
    return max(2.0 * row_sum * eta * (1.0 + 2.0 * UNIT) for row_sum in row_sums)


def _scale(model: Model, epsilon: float) -> InfluenceResult:
    if isinstance(model, BayesNet):
        return network_matrix_scale(model, epsilon)
    assert isinstance(model, MarkovChain)  # `refuse` lets nothing else through
    return influence_matrix_scale(model.transition, model.initial, model.length, epsilon)


ROW = Mechanism(NAME, refuse, calibrate, loss)
