"""The rows for tied records: the proved ones, and the published ones kept for comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

from shoal.core.charge import AsGroupDP, Composition, Guarantee
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.plan import Plan, Proof
from shoal.core.progress import cut_short
from shoal.core.task import LiftedModel, Model, Query, Task, each_entry
from shoal.core.walk import TooUnlikely
from shoal.mechanisms.mixture import smallest_scale
from shoal.mechanisms.plans import (
    CUT_SHORT,
    Mechanism,
    entry_level,
    entry_rules,
    eta_above,
    float_below,
    laplace_body,
    laplace_plan,
    refuse_noise,
    task_guarantee,
)
from shoal.networks.lift_row import BUDGET_UNUSED, cut_marked
from shoal.networks.table import JointTable
from shoal.records.coefficients import (
    Contributions,
    contributions,
    correlated_sensitivities,
    float_up,
    mean_sensitivities,
    printed_losses,
    published_losses,
)
from shoal.records.field import PairwiseField, as_field, as_network, field_reach
from shoal.records.sources import pairs_of_table
from shoal.records.ties import Dependence

Found = TypeVar("Found")


def pairwise(model: Model) -> Dependence | None:
    """The pairwise laws a model gives; None when it gives none."""
    if isinstance(model, Dependence):
        return model
    if isinstance(model, JointTable) and model.states is not None:
        return pairs_of_table(model)
    field = as_field(model)
    if field is not None and field.small() and field.states is not None:
        try:
            return pairs_of_table(field.table(), field.domain)
        except TooUnlikely:
            return None
    return None


def pairs_of(task: Task) -> tuple[Dependence, ...]:
    """The pairwise laws of every member of the family; for tasks that `not_tied` lets through."""
    return tuple(_there(pairwise(model)) for model in task.family)


def not_tied(task: Task) -> str | None:
    """Why the rows for tied records do not apply: other secrets, or a model without pairs."""
    reason = refuse_noise(task)
    if reason is not None:
        return reason
    if not each_entry(task.secrets):
        return "ties are between single records; named pairs of secrets need another mechanism"
    for model in task.family:
        if pairwise(model) is None:
            return f"dependence needs pairwise laws of records, not the model {model.describe()}"
    return None


def not_additive(task: Task) -> str | None:
    """`not_tied`, or that the query is not a sum of one contribution per record."""
    reason = not_tied(task)
    if reason is not None:
        return reason
    if any(contributions(task.query, model) is None for model in pairs_of(task)):
        return (
            "coefficients for a query that is not a sum of one contribution per record are not "
            "sound (a threshold query breaks them); use group"
        )
    return None


def about_records(task: Task, epsilon: Fraction) -> Guarantee:
    """The promise of a row that rests on laws of records: about values, or about their cells.

    A law of cells says nothing of where a value lies in its cell, so nothing is promised of it,
    unless the domain declares that the place tells nothing (`own_places`).
    """
    promise = task_guarantee(task, epsilon)
    cells = cells_protected(task)
    return replace(promise, over=f"{cells}, under every model of the family") if cells else promise


def cells_protected(task: Task) -> str:
    """What is protected where laws of records are about cells; empty where about values."""
    domains = [m.domain for m in task.family if isinstance(m, Dependence | PairwiseField)]
    unknown = [domain.width for domain in domains if not domain.known_inside]
    if not unknown:
        return ""
    cell = f"which cell, up to {max(unknown):.3g} wide"
    return f"{cell}, {task.secrets.subject} lies in, not where in it"


def protected(plan: Plan) -> str:
    """What a plan of records protects, in words: values, or no more than their cells."""
    cells = cells_protected(plan.task)
    return cells if cells and cells in plan.guarantee.over else plan.task.secrets.describe()


def needed(task: Task) -> list[tuple[Dependence, Contributions]]:
    """Each member's pairs, with what its records add; for tasks `not_additive` lets through."""
    return [(model, _there(contributions(task.query, model))) for model in pairs_of(task)]


def _there(found: Found | None) -> Found:
    """No member of a family is ever left out."""
    if found is None:
        raise ValueError("calibrate called on a task that `refuse` refuses")
    return found


def drawn_scale(plan: Plan) -> float:
    """The scale of the noise as drawn, rounded down."""
    return float_below(laplace_body(plan).noise.scale)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TiesCertificate(Proof):
    """Per model: the sensitivity at the scale chosen, and the record that reaches it."""

    sensitivities: tuple[float, ...]
    records: tuple[int, ...]

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "tied pairs of records follow the given pairwise laws, records of different components are "
        "independent; nothing is assumed about three records at once, nor about where values lie "
        "in cells, unless that is declared to be their own matter",
    )

    @classmethod
    def of(cls, found: Sequence[Floats], **more: Any) -> Self:
        """The largest bound under each model, over records (and their values), and whose it is."""
        return cls(
            sensitivities=tuple(float(bounds.max()) for bounds in found),
            records=tuple(
                int(bounds.reshape(len(bounds), -1).max(axis=1).argmax()) for bounds in found
            ),
            **more,
        )


# By conditional means, for sums. Proof: dependent_means.md.


MEANS = "dependent-means"
ROUNDED = Fraction(1, 10**12)  # relative: the sensitivity over the scale is divided in floats once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanTiesCertificate(TiesCertificate):
    """The sensitivity of the sum over a component."""

    kind = "mean-ties-certificate"
    THEOREM: ClassVar[str] = (
        "the other records of a component are, on average, no farther from any answer than "
        "their conditional means allow (Jensen's inequality; proof in dependent_means.md)"
    )


def calibrate_means(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale B/ε, B the largest `mean_sensitivities`; no fixed point is needed."""
    found = [mean_sensitivities(*member) for member in needed(task)]
    certificate = MeanTiesCertificate.of(found)
    scale = Fraction(max(certificate.sensitivities)) * (1 + ROUNDED) / epsilon
    return laplace_plan(task, MEANS, about_records(task, epsilon), scale, certificate)


def means_loss(plan: Plan) -> float:
    """B / scale of the noise as drawn, the largest over the family."""
    found = (float(mean_sensitivities(*member).max()) for member in needed(plan.task))
    return max(found) / drawn_scale(plan)


MEANS_ROW = Mechanism(MEANS, not_additive, calibrate_means, means_loss, about_records)


# By the printed coefficients, for sums: plans that are stored, no new ones. Proof:
# dependent_additive.md.


ADDITIVE = "dependent-additive"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdditiveTiesCertificate(TiesCertificate):
    """The dependent sensitivity at the scale chosen."""

    kind = "additive-ties-certificate"
    THEOREM: ClassVar[str] = (
        "dependence coefficients by Eq. (18) in the query's own metric, over whole components, "
        "for a sum over records (Liu, Chakraborty & Mittal 2016; our proof in "
        "dependent_additive.md)"
    )


def calibrate_additive(task: Task, epsilon: Fraction) -> Plan:
    """Refuse to make a plan: stored plans keep their re-check and their composition rule."""
    raise Refused(
        f"{ADDITIVE} makes no new plans, because {MEANS} never needs more noise; use {MEANS}"
    )


def additive_loss(plan: Plan) -> float:
    """max_i Σ_j ρ_ij(σ) Δ_j / σ at the noise as drawn, the largest over the family."""
    scale = drawn_scale(plan)
    return max(float(printed_losses(*member, scale).max()) for member in needed(plan.task))


ADDITIVE_ROW = Mechanism(ADDITIVE, not_additive, calibrate_additive, additive_loss, about_records)


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


def not_a_field(task: Task) -> str | None:
    """Reach is that of single records in pairwise fields; any noisy query will do."""
    if not each_entry(task.secrets):
        return "reach is that of single records; named pairs of secrets need another mechanism"
    for model in task.family:
        if as_field(model) is None:
            return f"reach is that of records in a pairwise field, not the model {model.describe()}"
    return refuse_noise(task)


def calibrate_field(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L·W/ε, W the largest reach of a record under any model."""
    found = [field_reach(model, moved_inside(task.query, model)) for model in fields(task)]
    certificate = FieldCertificate(
        reaches=tuple(float(reach.max()) for reach in found),
        records=tuple(int(reach.argmax()) for reach in found),
        cut=cut_short(),
    )
    scale = Fraction(max(certificate.reaches)) * (1 + ROUNDED) * task.query.lipschitz / epsilon
    return laplace_plan(task, FIELD, about_records(task, epsilon), scale, certificate)


def reach_loss(plan: Plan) -> float:
    """W · L/scale of the noise as drawn, the largest over the family."""
    eta, task = eta_above(entry_level(plan)), plan.task
    return max(field_loss(model, eta, task.query) for model in fields(task))


def fields(task: Task) -> list[PairwiseField]:
    """The models of a task, each a field: `not_a_field` lets no other through."""
    return [field for model in task.family if (field := as_field(model)) is not None]


def moved_inside(query: Query | None, model: PairwiseField) -> float:
    """The most a record moves the answer within its cell, as a share of what it moves it at all.

    0 where laws of cells are laws of values; 1 for a query that is no sum over records, or not
    told: nothing is known of it then. Rounds up.
    """
    if model.domain.known_inside:
        return 0.0
    adds = None if query is None else contributions(query, model)
    if query is None or adds is None:
        return 1.0
    widest = float((adds.high - adds.low).sum(axis=1).max())
    return min(widest / float_below(query.lipschitz) * (1 + float(ROUNDED)), 1.0)


def field_loss(model: PairwiseField, eta: float, query: Query | None = None) -> float:
    """What any release that is eta-DP for one record tells about one record of the field.

    On a domain of cells that is group privacy, unless noise was added to `query`, a sum.
    """
    return float(field_reach(model, moved_inside(query, model)).max()) * eta


FIELD_ROW = Mechanism(FIELD, not_a_field, calibrate_field, reach_loss, about_records)


# The lift on a pairwise field: by the reach of a record, or as a network. Proofs:
# dependent_field.md, lift.md.


REACH_RULE = "reach"
MOST_LIFTED = 40  # records; the lift of a larger network takes long, the reach serves


class FieldLift:
    """What eta-DP for one record tells: by its reach, or by a network's lift where that is less."""

    def __init__(self, model: PairwiseField, query: Query | None) -> None:
        law = _small_law(model)
        lifted = None if law is None else law.lift(query)
        self._model, self._query = model, query
        self._lifted = None if isinstance(lifted, str) else lifted

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        reach = field_loss(self._model, eta, self._query)
        if self._lifted is None:
            return reach
        try:
            return min(reach, self._lifted.loss(eta))
        except Refused:
            return reach

    def largest(self, epsilon: float) -> LiftedModel:
        reach = field_reach(self._model)
        most = float(reach.max())
        eta = math.nextafter(epsilon * (1 - BUDGET_UNUSED) / most, 0.0)
        best = cut_marked(LiftedModel.at(eta, most * eta, int(reach.argmax()), eta, REACH_RULE))
        if self._lifted is None:
            return best
        try:
            other = self._lifted.largest(epsilon)
        except Refused:
            return best
        return other if other.eta > best.eta else best


def _small_law(model: PairwiseField) -> Model | None:
    """The field as a network or table that is lifted in a moment."""
    law = as_network(model) if model.records <= MOST_LIFTED else model
    return None if law is model else law


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
    """Laplace noise of scale L·ΔQ/ε, L one more than the most ties of one record."""
    certificate = _sizes(task)
    scale = certificate.dependence_size * task.query.lipschitz / epsilon
    return laplace_plan(
        task,
        BASELINE,
        baseline_promise(task, epsilon),
        scale,
        certificate,
        rules=lambda eta: _together(certificate, eta),
    )


def baseline_promise(task: Task, epsilon: Fraction) -> Guarantee:
    """Group privacy for L records; claimed, not proved, where more depend on each other."""
    sizes = _sizes(task)
    return Guarantee(
        notion="group" if sizes.enough else "dependent",
        amount=epsilon,
        over=f"any or all of {sizes.dependence_size} tied records",
        proved=sizes.enough,
        caveat="" if sizes.enough else BASELINE_CAVEAT,
    )


def baseline_rules(plan: Plan) -> tuple[Composition, ...]:
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


BASELINE_ROW = Mechanism(
    BASELINE, not_tied, calibrate_baseline, baseline_loss, baseline_promise, baseline_rules
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


def published_row(name: str, caveat: str, *, printed: bool) -> Mechanism:
    """Laplace noise of scale DS/ε, DS = max_i Σ_j ρ_ij ΔQ at that very scale.

    ρ by Eq. (14), or, `printed`, by Eq. (18), for whatever query. Its loss is DS(σ)/σ at the noise
    as drawn: what the paper claims, not what the release tells.
    """

    def losses(task: Task, scale: float) -> list[Floats]:
        own = float_up(task.query.lipschitz)
        return [published_losses(model, own, scale, printed=printed) for model in pairs_of(task)]

    def claim(task: Task, epsilon: Fraction) -> Guarantee:
        return claimed(epsilon, "any single record, as claimed by the paper", caveat)

    def calibrate(task: Task, epsilon: Fraction) -> Plan:
        scale = published_scale(task, epsilon, printed=printed)
        found = [bounds * scale for bounds in losses(task, scale)]
        certificate = PublishedCertificate.of(found, equation=18 if printed else 14)
        return laplace_plan(task, name, claim(task, epsilon), scale, certificate)

    def loss(plan: Plan) -> float:
        return max(float(bounds.max()) for bounds in losses(plan.task, drawn_scale(plan)))

    return Mechanism(name, not_tied, calibrate, loss, claim)


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


def claimed(epsilon: Fraction, over: str, caveat: str) -> Guarantee:
    """What somebody claims, and why it is not so."""
    return Guarantee(notion="dependent", amount=epsilon, over=over, proved=False, caveat=caveat)


PUBLISHED_ROW = published_row("dependent-published", CAVEAT, printed=False)
PUBLISHED_ROW_18 = published_row("dependent-published-18", CAVEAT_18, printed=True)
CORRELATED = "correlated-sensitivity"
THRESHOLD = 0.1  # correlations below this count as none, as the paper asks
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


def correlated(task: Task) -> tuple[float, ...]:
    """max_i Σ_j |δ_ij| ΔQ over the ties of a record, under each model."""
    own = float_up(task.query.lipschitz)
    return tuple(
        float(correlated_sensitivities(model, own, THRESHOLD).max()) for model in pairs_of(task)
    )


def calibrate_correlated(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of the largest of `correlated` over ε."""
    found = correlated(task)
    certificate = CorrelatedCertificate(sensitivities=found, threshold=THRESHOLD)
    scale = Fraction(max(found)) / epsilon
    return laplace_plan(task, CORRELATED, correlated_claim(task, epsilon), scale, certificate)


def correlated_claim(task: Task, epsilon: Fraction) -> Guarantee:
    """What is claimed for linear correlation."""
    over = "any single record, as claimed for linear correlation"
    return claimed(epsilon, over, CORRELATED_CAVEAT)


def correlated_loss(plan: Plan) -> float:
    """The correlated sensitivity over the scale of the noise as drawn."""
    return max(found / drawn_scale(plan) for found in correlated(plan.task))


CORRELATED_ROW = Mechanism(
    CORRELATED, not_tied, calibrate_correlated, correlated_loss, correlated_claim
)
