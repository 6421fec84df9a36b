"""The L·ΔQ baseline: noise for all records one record is tied to. Proof: dependent_baseline.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from shoal.additive.mixture import smallest_scale
from shoal.additive.plans import (
    Mechanism,
    entry_level,
    entry_rules,
    eta_above,
    float_below,
    laplace_body,
    laplace_plan,
)
from shoal.core.charge import AsGroupDP, Composition, Guarantee
from shoal.core.plan import Plan, Proof
from shoal.core.task import Task
from shoal.records.coefficients import correlated_sensitivities, published_losses
from shoal.records.proved import float_up, not_tied, pairs_of

BASELINE = "dependent-baseline"
BASELINE_CAVEAT = (
    "the dependence size counts the ties of one record, not the records that depend on each other "
    "together; it is sound only when it is the size of the largest component"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BaselineCertificate(Proof):
    """L as the paper counts it, and the size of the largest component, which a promise needs."""

    dependence_size: int
    component: int

    @property
    def enough(self) -> bool:
        """Whether L covers the largest component, so that the promise is proved."""
        return self.dependence_size >= self.component

    @property
    def theorem(self) -> str:
        return (
            f"the baseline L·ΔQ/ε with L = {self.dependence_size} (Liu, Chakraborty & Mittal 2016, "
            f"Theorem 7), which holds when no more than {self.dependence_size} records depend on "
            "each other jointly"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"a component of ties holds at most {self.component} records; nothing is assumed about "
            "how they depend",
        )


def calibrate_baseline(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L·ΔQ/ε, L one more than the most ties of one record."""
    certificate = _sizes(task)
    scale = certificate.dependence_size * task.query.lipschitz / epsilon
    return laplace_plan(
        task,
        BASELINE,
        promise(task, epsilon),
        scale,
        certificate,
        rules=lambda eta: _together(certificate, eta),
    )


def promise(task: Task, epsilon: Fraction) -> Guarantee:
    """Group privacy for L records; claimed, not proved, where more depend on each other."""
    sizes = _sizes(task)
    return Guarantee(
        notion="group" if sizes.enough else "dependent",
        amount=epsilon,
        over=f"any or all of {sizes.dependence_size} tied records",
        proved=sizes.enough,
        caveat="" if sizes.enough else BASELINE_CAVEAT,
    )


def rules(plan: Plan) -> tuple[Composition, ...]:
    """L·eta for all of a component at once where L is its size, and eta for one record."""
    return (*_together(_sizes(plan.task), entry_level(plan)), *entry_rules(plan))


def baseline_loss(plan: Plan) -> float:
    """n·ΔQ/scale with n the size of the largest component: what is really promised. Rounds up."""
    return eta_above(_sizes(plan.task).component * entry_level(plan))


def _together(sizes: BaselineCertificate, eta: Fraction) -> tuple[Composition, ...]:
    return (AsGroupDP(sizes.component * eta),) if sizes.enough else ()


def _sizes(task: Task) -> BaselineCertificate:
    # the task's own count: a table may call independent variables tied, and a ledger goes by it
    return BaselineCertificate(
        dependence_size=max(model.dependence_size for model in pairs_of(task)),
        component=int(task.tied or 1),
    )


BASELINE_ROW = Mechanism(BASELINE, not_tied, calibrate_baseline, baseline_loss, promise, rules)


# The dependent perturbation mechanism as published, for comparison: not sound.
#
# Why it fails, and on what: dependent_published.md.


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
class PublishedCertificate(Proof):
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

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "that pairwise coefficients can be added up, which they cannot",
    )


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


# Correlated sensitivity, for comparison: no promise follows. Why: correlated_sensitivity.md.


CORRELATED = "correlated-sensitivity"
THRESHOLD = 0.1  # correlations below this count as none, as the paper asks
CORRELATED_CAVEAT = (
    "linear correlation is not dependence: records can determine each other and be uncorrelated, "
    "and then this adds no noise for them at all"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CorrelatedCertificate(Proof):
    """Per model: the correlated sensitivity; correlations below `threshold` were dropped."""

    sensitivities: tuple[float, ...]
    threshold: float

    THEOREM: ClassVar[str] = (
        "none: the scale of Zhu, Xiong, Li & Zhou 2015, max_i Σ_j |δ_ij| ΔQ / ε, is kept for "
        "comparison"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "that correlations say how records depend on each other, which they do not",
    )


def calibrate_correlated(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale max_i Σ_j |δ_ij| ΔQ / ε over the ties of a record."""
    own = float_up(task.query.lipschitz)
    found = tuple(
        float(correlated_sensitivities(model, own, THRESHOLD).max()) for model in pairs_of(task)
    )
    certificate = CorrelatedCertificate(sensitivities=found, threshold=THRESHOLD)
    scale = Fraction(max(found)) / epsilon
    return laplace_plan(task, CORRELATED, correlated_claim(task, epsilon), scale, certificate)


def correlated_claim(task: Task, epsilon: Fraction) -> Guarantee:
    """What is claimed for linear correlation, and why it is not so."""
    over = "any single record, as claimed for linear correlation"
    return Guarantee(
        notion="dependent", amount=epsilon, over=over, proved=False, caveat=CORRELATED_CAVEAT
    )


def correlated_loss(plan: Plan) -> float:
    """The correlated sensitivity over the scale of the noise as drawn."""
    scale = float_below(laplace_body(plan).noise.scale)
    own = float_up(plan.task.query.lipschitz)
    return max(
        float(correlated_sensitivities(model, own, THRESHOLD).max()) / scale
        for model in pairs_of(plan.task)
    )


CORRELATED_ROW = Mechanism(
    CORRELATED, not_tied, calibrate_correlated, correlated_loss, correlated_claim
)
