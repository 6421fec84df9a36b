"""The dependent perturbation mechanism as published, for comparison: not sound.

Why it fails, and on what: dependent_published.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.guarantee import Guarantee
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.loss.crossing import smallest_scale
from shoal.loss.dependence import published_losses
from shoal.mechanisms.additive import float_below, laplace_body, laplace_plan
from shoal.mechanisms.dependent_task import float_up, not_tied, pairs_of
from shoal.mechanisms.row import Mechanism

NAME, NAME_18 = "dependent-published", "dependent-published-18"
CAVEAT = (
    "adding up pairwise coefficients misses what records do together: two fair bits and their "
    "exclusive or have coefficients 0, and their sum with the noise this asks for at epsilon = 1 "
    "has loss 1.434"
)
CAVEAT_18 = (
    "Eq. (18) bounds sums over records only, over whole components: counting two tied values "
    "above a threshold with the noise this asks for at epsilon = 1 has loss 1.325"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedCertificate(Value):
    """Per model: the dependent sensitivity DS, and the record that reaches it."""

    sensitivities: tuple[float, ...]
    records: tuple[int, ...]
    equation: int

    @property
    def theorem(self) -> str:
        return (
            f"Theorem 9 of Liu, Chakraborty & Mittal 2016 with coefficients by Eq. ({self.equation}"
            "), which is false"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("that pairwise coefficients can be added up, which they cannot",)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale DS/ε, DS = max_i Σ_j ρ_ij ΔQ, ρ by Eq. (14) at that very scale."""
    return _calibrate(task, epsilon, printed=False)


def calibrate_18(task: Task, epsilon: Fraction) -> Plan:
    """The same with ρ by Eq. (18) as printed, for whatever query."""
    return _calibrate(task, epsilon, printed=True)


def published_scale(task: Task, epsilon: Fraction, *, printed: bool, share: float = 1.0) -> float:
    """The fixed point σ = DS(σ)/ε; `share` scales every ρ_ij, i ≠ j (Fig. 7: 0.8 and 0.9)."""
    own, models = float_up(task.query.lipschitz), pairs_of(task)
    budget = float_below(epsilon)

    def worst(scale: float) -> float:
        return max(
            float(published_losses(model, own, scale, printed=printed, share=share).max())
            for model in models
        )

    most = max(model.dependence_size for model in models) * own / budget
    return smallest_scale(worst, budget, own / budget, 1.001 * most)


def loss(plan: Plan) -> float:
    """DS(σ)/σ at the noise as drawn: what the paper claims, not what the release tells."""
    return _claimed(plan, printed=plan.mechanism == NAME_18)


def _claimed(plan: Plan, *, printed: bool) -> float:
    scale = float_below(laplace_body(plan).noise.scale)
    own = float_up(plan.task.query.lipschitz)
    return max(
        float(published_losses(model, own, scale, printed=printed).max())
        for model in pairs_of(plan.task)
    )


def _calibrate(task: Task, epsilon: Fraction, *, printed: bool) -> Plan:
    scale = published_scale(task, epsilon, printed=printed)
    own = float_up(task.query.lipschitz)
    found = [
        published_losses(model, own, scale, printed=printed) * scale for model in pairs_of(task)
    ]
    certificate = PublishedCertificate(
        sensitivities=tuple(float(bounds.max()) for bounds in found),
        records=tuple(int(bounds.argmax()) for bounds in found),
        equation=18 if printed else 14,
    )
    name, guarantee = (NAME_18, claim_18) if printed else (NAME, claim)
    return laplace_plan(task, name, guarantee(task, epsilon), scale, certificate)


def claim(task: Task, epsilon: Fraction, caveat: str = CAVEAT) -> Guarantee:
    """What the paper claims, and why it is not so."""
    over = "any single record, as claimed by the paper"
    return Guarantee(notion="dependent", amount=epsilon, over=over, proved=False, caveat=caveat)


def claim_18(task: Task, epsilon: Fraction) -> Guarantee:
    """The same for Eq. (18), which fails for other reasons."""
    return claim(task, epsilon, CAVEAT_18)


ROW = Mechanism(NAME, not_tied, calibrate, loss, claim)
ROW_18 = Mechanism(NAME_18, not_tied, calibrate_18, loss, claim_18)
