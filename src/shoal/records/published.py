"""Mechanisms published without a sound proof, kept for comparison, and the baseline L ΔQ."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from shoal.core.charge import AsGroupDP, Composition, Guarantee
from shoal.core.codec import Floats
from shoal.core.plan import Plan, Proof
from shoal.core.task import Task
from shoal.mechanisms.mixture import smallest_scale
from shoal.mechanisms.plans import (
    Mechanism,
    entry_level,
    entry_rules,
    eta_above,
    float_below,
    laplace_plan,
)
from shoal.records.coefficients import (
    correlated_sensitivities,
    float_up,
    published_losses,
)
from shoal.records.pairwise_mechanisms import (
    TiesCertificate,
    drawn_scale,
    pairwise_laws_of_family,
    refuse_without_pairs,
)

# The L·ΔQ baseline: noise for all records one record is tied to. Proof: dependent_baseline.md.


BASELINE = "dependent-baseline"


BASELINE_CAVEAT = (
    "the dependence size counts the ties of one record, not the records that depend on each other "
    "together; it is sound only when it is the size of the largest component"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BaselineCertificate(Proof):
    """L as the paper counts it, and the size of the largest component, which a promise needs."""

    kind = "baseline-certificate"
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
    """Return the plan with noise of scale L·ΔQ/ε, L one more than the most ties of one record."""
    certificate = _baseline_certificate(task)
    scale = certificate.dependence_size * task.query.lipschitz / epsilon
    return laplace_plan(
        task,
        BASELINE,
        baseline_promise(task, epsilon),
        scale,
        certificate,
        rules=lambda eta: _group_rules(certificate, eta),
    )


def baseline_promise(task: Task, epsilon: Fraction) -> Guarantee:
    """Return group privacy for L records; claimed, not proved, where more depend on each other."""
    sizes = _baseline_certificate(task)
    return Guarantee(
        notion="group" if sizes.enough else "dependent",
        amount=epsilon,
        over=f"any or all of {sizes.dependence_size} tied records",
        proved=sizes.enough,
        caveat="" if sizes.enough else BASELINE_CAVEAT,
    )


def baseline_rules(plan: Plan) -> tuple[Composition, ...]:
    """Return L·eta for all of a component at once where L is its size, and eta for one record."""
    return (*_group_rules(_baseline_certificate(plan.task), entry_level(plan)), *entry_rules(plan))


def baseline_loss(plan: Plan) -> float:
    """Return n·ΔQ/scale with n the size of the largest component: what is really promised. Rounds
    up.
    """
    return eta_above(_baseline_certificate(plan.task).component * entry_level(plan))


def _group_rules(sizes: BaselineCertificate, eta: Fraction) -> tuple[Composition, ...]:
    return (AsGroupDP(sizes.component * eta),) if sizes.enough else ()


def _baseline_certificate(task: Task) -> BaselineCertificate:
    # the task's own count: a table may call independent variables tied, and a ledger goes by it
    return BaselineCertificate(
        dependence_size=max(model.dependence_size for model in pairwise_laws_of_family(task)),
        component=int(task.tied or 1),
    )


BASELINE_MECHANISM = Mechanism(
    BASELINE,
    refuse_without_pairs,
    calibrate_baseline,
    baseline_loss,
    baseline_promise,
    baseline_rules,
)


# Published without a sound proof, for comparison. Why they fail, and on what:
# dependent_published.md, dependent_published_18.md, correlated_sensitivity.md.


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
class PublishedCertificate(TiesCertificate):
    """The dependent sensitivity DS, with coefficients by one of two equations."""

    kind = "published-certificate"
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


def published_mechanism(name: str, caveat: str, *, printed: bool) -> Mechanism:
    """Return the mechanism with noise of scale DS/ε, DS = max_i Σ_j ρ_ij ΔQ at that very scale.

    ρ by Eq. (14), or, `printed`, by Eq. (18), for any query. Its loss is DS(σ)/σ at the noise
    as drawn: what the paper claims, not what the release tells.
    """

    def losses(task: Task, scale: float) -> list[Floats]:
        own = float_up(task.query.lipschitz)
        return [
            published_losses(model, own, scale, printed=printed)
            for model in pairwise_laws_of_family(task)
        ]

    def claim(task: Task, epsilon: Fraction) -> Guarantee:
        return unproved_guarantee(epsilon, "any single record, as claimed by the paper", caveat)

    def calibrate(task: Task, epsilon: Fraction) -> Plan:
        scale = published_scale(task, epsilon, printed=printed)
        found = [bounds * scale for bounds in losses(task, scale)]
        certificate = PublishedCertificate.of(found, equation=18 if printed else 14)
        return laplace_plan(task, name, claim(task, epsilon), scale, certificate)

    def loss(plan: Plan) -> float:
        return max(float(bounds.max()) for bounds in losses(plan.task, drawn_scale(plan)))

    return Mechanism(name, refuse_without_pairs, calibrate, loss, claim)


def published_scale(task: Task, epsilon: Fraction, *, printed: bool, share: float = 1.0) -> float:
    """Return the fixed point σ = DS(σ)/ε; `share` scales every ρ_ij, i ≠ j (Fig. 7: 0.8 and
    0.9).
    """
    own, models = float_up(task.query.lipschitz), pairwise_laws_of_family(task)
    budget = float_below(epsilon)

    def worst(scale: float) -> float:
        return max(
            float(published_losses(model, own, scale, printed=printed, share=share).max())
            for model in models
        )

    most = max(model.dependence_size for model in models) * own / budget
    return smallest_scale(worst, budget, own / budget, 1.001 * most)


def unproved_guarantee(epsilon: Fraction, over: str, caveat: str) -> Guarantee:
    """Return a guarantee that is claimed and not proved, and why it does not hold."""
    return Guarantee(notion="dependent", amount=epsilon, over=over, proved=False, caveat=caveat)


PUBLISHED_MECHANISM = published_mechanism("dependent-published", CAVEAT, printed=False)


PUBLISHED_MECHANISM_18 = published_mechanism("dependent-published-18", CAVEAT_18, printed=True)


CORRELATED = "correlated-sensitivity"


MIN_CORRELATION = 0.1  # correlations below this count as none, as the paper asks


CORRELATED_CAVEAT = (
    "linear correlation is not dependence: records can determine each other and be uncorrelated, "
    "and then this adds no noise for them at all"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CorrelatedCertificate(Proof):
    """Per model: the correlated sensitivity; correlations below `threshold` were dropped."""

    kind = "correlated-certificate"
    sensitivities: tuple[float, ...]
    threshold: float

    THEOREM: ClassVar[str] = (
        "none: the scale of Zhu, Xiong, Li & Zhou 2015, max_i Σ_j |δ_ij| ΔQ / ε, is kept for "
        "comparison"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "that correlations say how records depend on each other, which they do not",
    )


def correlated_sensitivities_of(task: Task) -> tuple[float, ...]:
    """Return max_i Σ_j |δ_ij| ΔQ over the ties of a record, under each model."""
    own = float_up(task.query.lipschitz)
    return tuple(
        float(correlated_sensitivities(model, own, MIN_CORRELATION).max())
        for model in pairwise_laws_of_family(task)
    )


def calibrate_correlated(task: Task, epsilon: Fraction) -> Plan:
    """Return the plan with noise of the largest correlated sensitivity over ε."""
    found = correlated_sensitivities_of(task)
    certificate = CorrelatedCertificate(sensitivities=found, threshold=MIN_CORRELATION)
    scale = Fraction(max(found)) / epsilon
    return laplace_plan(task, CORRELATED, correlated_claim(task, epsilon), scale, certificate)


def correlated_claim(task: Task, epsilon: Fraction) -> Guarantee:
    """Return what is claimed for linear correlation."""
    over = "any single record, as claimed for linear correlation"
    return unproved_guarantee(epsilon, over, CORRELATED_CAVEAT)


def correlated_loss(plan: Plan) -> float:
    """Return the correlated sensitivity over the scale of the noise as drawn."""
    return max(found / drawn_scale(plan) for found in correlated_sensitivities_of(plan.task))


CORRELATED_MECHANISM = Mechanism(
    CORRELATED, refuse_without_pairs, calibrate_correlated, correlated_loss, correlated_claim
)
