"""The rows for tied records: the proved ones, and the published ones kept for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

from shoal.core.charge import Guarantee
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.plan import Plan, Proof
from shoal.core.task import Model, Task, each_entry
from shoal.core.walk import TooUnlikely
from shoal.mechanisms.plans import (
    Mechanism,
    float_below,
    laplace_body,
    laplace_plan,
    refuse_noise,
    task_guarantee,
)
from shoal.networks.table import JointTable
from shoal.records.coefficients import (
    Contributions,
    contributions,
    mean_sensitivities,
    printed_losses,
)
from shoal.records.field import PairwiseField
from shoal.records.field_laws import as_field
from shoal.records.pairwise import Dependence
from shoal.records.sources import pairs_of_table

Found = TypeVar("Found")


def pairwise_laws(model: Model) -> Dependence | None:
    """Return the pairwise laws a model gives; None when it gives none."""
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


def pairwise_laws_of_family(task: Task) -> tuple[Dependence, ...]:
    """Return the pairwise laws of every model, for tasks that `refuse_without_pairs` lets
    through.
    """
    return tuple(_require(pairwise_laws(model)) for model in task.family)


def refuse_without_pairs(task: Task) -> str | None:
    """Return why the mechanisms for tied records do not apply: other secrets, or a model without
    pairs.
    """
    reason = refuse_noise(task)
    if reason is not None:
        return reason
    if not each_entry(task.secrets):
        return "ties are between single records; named pairs of secrets need another mechanism"
    for model in task.family:
        if pairwise_laws(model) is None:
            return f"dependence needs pairwise laws of records, not the model {model.describe()}"
    return None


def refuse_unless_sum(task: Task) -> str | None:
    """Return `refuse_without_pairs`, or that the query is not a sum of one contribution per
    record.
    """
    reason = refuse_without_pairs(task)
    if reason is not None:
        return reason
    if any(contributions(task.query, model) is None for model in pairwise_laws_of_family(task)):
        return (
            "coefficients for a query that is not a sum of one contribution per record are not "
            "sound (a threshold query breaks them); use group"
        )
    return None


def records_guarantee(task: Task, epsilon: Fraction) -> Guarantee:
    """Return the promise of a mechanism that rests on laws of records: about values, or their
    cells.

    A law of cells says nothing of where a value lies in its cell, so nothing is promised of it,
    unless the domain declares that the place tells nothing (`own_places`).
    """
    promise = task_guarantee(task, epsilon)
    cells = protected_cells(task)
    return replace(promise, over=f"{cells}, under every model of the family") if cells else promise


def protected_cells(task: Task) -> str:
    """Return what is protected where laws of records are about cells; empty where about values."""
    domains = [m.domain for m in task.family if isinstance(m, Dependence | PairwiseField)]
    unknown = [domain.width for domain in domains if not domain.known_inside]
    if not unknown:
        return ""
    cell = f"which cell, up to {max(unknown):.3g} wide"
    return f"{cell}, {task.secrets.subject} lies in, not where in it"


def describe_protected(plan: Plan) -> str:
    """Return what a plan of records protects, in words: values, or no more than their cells."""
    cells = protected_cells(plan.task)
    return cells if cells and cells in plan.guarantee.over else plan.task.secrets.describe()


def pairs_and_contributions(task: Task) -> list[tuple[Dependence, Contributions]]:
    """Return each model's pairwise laws and what its records add, for tasks that are sums."""
    return [
        (model, _require(contributions(task.query, model)))
        for model in pairwise_laws_of_family(task)
    ]


def _require(found: Found | None) -> Found:
    """Return `found`; a missing one is an error, because no model of a family is left out."""
    if found is None:
        raise ValueError("calibrate called on a task that `refuse` refuses")
    return found


def drawn_scale(plan: Plan) -> float:
    """Return the scale of the noise as drawn, rounded down."""
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
        """Return the largest bound under each model, over records (and their values), and whose it
        is.
        """
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
    """Return the plan with noise of scale B/ε, B the largest `mean_sensitivities`; no fixed point
    is needed.
    """
    found = [mean_sensitivities(*member) for member in pairs_and_contributions(task)]
    certificate = MeanTiesCertificate.of(found)
    scale = Fraction(max(certificate.sensitivities)) * (1 + ROUNDED) / epsilon
    return laplace_plan(task, MEANS, records_guarantee(task, epsilon), scale, certificate)


def means_loss(plan: Plan) -> float:
    """Return B / scale of the noise as drawn, the largest over the family."""
    found = (
        float(mean_sensitivities(*member).max()) for member in pairs_and_contributions(plan.task)
    )
    return max(found) / drawn_scale(plan)


MEANS_MECHANISM = Mechanism(
    MEANS, refuse_unless_sum, calibrate_means, means_loss, records_guarantee
)


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
    """Raise Refused: the mechanism is retired."""
    raise Refused(f"{ADDITIVE} makes no new plans: {ADDITIVE_MECHANISM.retired}")


def additive_loss(plan: Plan) -> float:
    """Return max_i Σ_j ρ_ij(σ) Δ_j / σ at the noise as drawn, the largest over the family."""
    scale = drawn_scale(plan)
    return max(
        float(printed_losses(*member, scale).max()) for member in pairs_and_contributions(plan.task)
    )


ADDITIVE_MECHANISM = Mechanism(
    ADDITIVE,
    refuse_unless_sum,
    calibrate_additive,
    additive_loss,
    records_guarantee,
    retired=f"{MEANS} never needs more noise; use {MEANS}",
)
