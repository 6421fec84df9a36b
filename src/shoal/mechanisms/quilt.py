"""The Markov Quilt Mechanism: correlation fades with distance. Proof: markov_quilt.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from shoal.core.charge import Composition, SameQuilts
from shoal.core.codec import Value
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan, Proof
from shoal.core.task import Influences, Model, Quilts, Task, each_entry
from shoal.mechanisms.plans import (
    Mechanism,
    entry_level,
    entry_rules,
    eta_above,
    float_below,
    laplace_plan,
    of_each,
    task_guarantee,
)

NAME = "markov-quilt"
LIFT = "lift"
CHAIN = "chains"  # the sort of quilts whose end-points have a reach
PAIRS = "quilts protect single entries; named pairs of events need another mechanism"
UNIT = 2.0**-53  # half the distance from 1 to the next double


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActiveQuilt(Value):
    """One model's worst node and the quilt that protects it, nodes counted from 0.

    `sigma` is the scale it needs for a 1-Lipschitz query, |N| / (epsilon - e) with |N| = `nearby`
    and e = `influence`; `left` and `right` are the lags of the quilt's end-points (None = absent).
    `runs` lists (first, last, step, left, right): the quilt that is enough for each node.
    """

    kind = "active-quilt"

    sigma: float
    node: int | None
    left: int | None
    right: int | None
    nearby: int
    influence: float
    runs: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuiltCertificate(Proof):
    """The active quilts, one per model of the family, and the farthest end-point allowed."""

    kind = "quilt-certificate"

    quilts: tuple[ActiveQuilt, ...]
    reach: int | None

    THEOREM: ClassVar[str] = (
        "the Markov Quilt Mechanism (Song, Wang & Chaudhuri 2017, Theorem 4.3, Algorithm 3), "
        "with the true minimum over quilts at every node"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "each chain follows one of the family's laws; separate chains are independent",
        "the query moves by at most its Lipschitz constant when one entry changes",
    )


def refuse(task: Task) -> str | None:
    """Quilts need single entries of chains of order 1, or of Bayesian networks."""
    if not each_entry(task.secrets):
        return PAIRS
    found = [model.quilts() for model in task.family]
    why = next((quilts for quilts in found if isinstance(quilts, str)), None)
    sorts = {quilts.sort for quilts in found if not isinstance(quilts, str)}
    if why is None and len(sorts) > 1:
        return f"quilts are those of one sort of model at a time, not of {' and '.join(sorts)}"
    return why


def calibrate(task: Task, epsilon: Fraction, reach: int | None = None) -> Plan:
    """Laplace noise of scale L·sigma, sigma the largest over the family.

    `reach` limits how far a quilt's end-points may lie on a chain (no limit by default).
    """
    quilts = _quilts(task.family, reach)
    found = [one.scale(float_below(epsilon)) for one in quilts]
    sigma = max(sigma for sigma, _ in found)
    if not math.isfinite(sigma):
        raise Refused(
            f"{NAME} does not apply: no quilt of finite size is enough for a chain of any length, "
            "because its past is never forgotten; give the model a length"
        )
    certificate = quilts[0].certificate([active for _, active in found], reach)
    key = _key(quilts, reach)
    return laplace_plan(
        task,
        NAME,
        task_guarantee(task, epsilon),
        Fraction(sigma) * task.query.lipschitz,
        certificate,
        rules=lambda eta: (SameQuilts(key, eta),),
    )


def rules(plan: Plan) -> tuple[Composition, ...]:
    """`SameQuilts` and `AsEntryDP`, of what is drawn."""
    reach = _quilt_reach(plan)
    key = _key(_quilts(plan.task.family, reach), reach)
    return (SameQuilts(key, entry_level(plan)), *entry_rules(plan))


def _quilts(family: Sequence[Model], reach: int | None) -> list[Quilts]:
    return of_each(family, NAME, lambda model: model.quilts(reach))


def _key(quilts: Sequence[Quilts], reach: int | None) -> str:
    """What plans from the same quilts share; only chains have a reach."""
    shared = ",".join(one.key for one in quilts)
    return f"{reach}:{shared}" if quilts[0].sort == CHAIN else shared


def loss(plan: Plan) -> float:
    """max over models and nodes of min over quilts (|N|·eta + e), eta = L / scale."""
    return family_loss(plan.task.family, eta_above(entry_level(plan)), _quilt_reach(plan))


def family_loss(family: Sequence[Model], eta: float, reach: int | None = None) -> float:
    """The quilt bound on what any release that is eta-DP for one entry tells about an entry."""
    return max(quilts.loss(eta) for quilts in _quilts(family, reach))


def composed_loss(plans: Sequence[Plan]) -> float:
    """The loss of several plans from the same quilt sets: max_i min_Q (|N|·Ση + e).

    Song, Wang & Chaudhuri 2017, Theorem 4.4, with the noise scales known.
    """
    shared = [rule for plan in plans for rule in plan.rules(SameQuilts)]
    if len(shared) != len(plans) or len({rule.key for rule in shared}) != 1:
        raise InputError("the plans were not made from the same quilt sets")
    eta = sum(map(entry_level, plans), Fraction(0))
    return family_loss(plans[0].task.family, eta_above(eta), _quilt_reach(plans[0]))


def _quilt_reach(plan: Plan) -> int | None:
    """How far quilts were looked for; a smaller reach only loses quilts, and noise a promise."""
    reach = getattr(plan.certificate, "reach", None)
    return reach if isinstance(reach, int) else None


def beaten_by(task: Task) -> tuple[str, ...]:
    """The lift, where its bound under every model is never above that of quilts."""
    covered = each_entry(task.secrets) and all(model.lift_covers_quilts for model in task.family)
    return (LIFT,) if covered else ()


ROW = Mechanism(NAME, refuse, calibrate, loss, task_guarantee, rules, beaten_by=beaten_by)


# Quilt noise from mixing times alone. Proof: markov_quilt_bound.md.


BOUND = "markov-quilt-bound"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixingCertificate(Proof):
    """Per model: the rarest stationary probability and the gap, both rounded down, and sigma."""

    kind = "mixing-certificate"

    constants: tuple[tuple[float, float], ...]
    sigmas: tuple[float, ...]

    THEOREM: ClassVar[str] = (
        "the Markov Quilt Mechanism with influences bounded by mixing (Song, Wang & Chaudhuri "
        "2017, Algorithm 4 and Lemma C.1), the gap counted with multiplicity"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "each chain is time-homogeneous and at least as fast to mix as its constants say, "
        "whatever its initial law; separate chains are independent",
        "the query moves by at most its Lipschitz constant when one entry changes",
    )


def refuse_bound(task: Task) -> str | None:
    """Mixing needs time-homogeneous chains, or their constants."""
    if not each_entry(task.secrets):
        return PAIRS
    said = (model.mixing() for model in task.family)
    return next((why for why in said if isinstance(why, str)), None)


def calibrate_bound(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L·sigma, from the rarest state and the gap of each model."""
    bounds = of_each(task.family, BOUND, lambda model: model.mixing())
    found = [bound.scale(float_below(epsilon)) for bound in bounds]
    sigma = max(sigma for sigma, _ in found)
    if not math.isfinite(sigma):
        raise Refused(
            f"{BOUND} does not apply: no finite quilt is enough for a chain of any length"
        )
    certificate = MixingCertificate(
        constants=tuple(constants for _, constants in found),
        sigmas=tuple(sigma for sigma, _ in found),
    )
    scale = Fraction(sigma) * task.query.lipschitz
    return laplace_plan(task, BOUND, task_guarantee(task, epsilon), scale, certificate)


def bound_row_loss(plan: Plan) -> float:
    """max over models of the quilt loss by mixing, at eta = L / scale."""
    eta = eta_above(entry_level(plan))
    bounds = of_each(plan.task.family, BOUND, lambda model: model.mixing())
    return max(bound.loss(eta) for bound in bounds)


BOUND_ROW = Mechanism(BOUND, refuse_bound, calibrate_bound, bound_row_loss, beaten_by=beaten_by)


# The influence matrix: how far one entry reaches through its neighbours. Proof:
# influence_matrix.md.


INFLUENCE = "influence-matrix"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InfluenceCertificate(Proof):
    """Per model: the norm of the influence matrix and the largest row sum of its resolvent."""

    kind = "influence-certificate"

    norms: tuple[float, ...]
    row_sums: tuple[float, ...]

    THEOREM: ClassVar[str] = (
        "total influence through neighbours, epsilon = 2 eta max_i Σ_j ((I - Γ)^-1)_ij "
        "(after Ghosh & Kleinberg 2016; proof in influence_matrix.md)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "the data follows one of the family's laws, in which every transition (in a network: "
        "every entry of a table) is positive; separate chains are independent",
        "the norm of the influence matrix is below 1",
    )


def refuse_influence(task: Task) -> str | None:
    """The influence matrix is that of chains with a given initial law, or of networks."""
    if not each_entry(task.secrets):
        return "influences are between single entries; named pairs need another mechanism"
    said = (model.influences() for model in task.family)
    return next((why for why in said if isinstance(why, str)), None)


def calibrate_influence(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale 2 L max_i Σ_j Φ_ij / ε, the largest over the family."""
    results = _influences(task)
    for found in results:
        if found.refusal is not None:
            raise Refused(f"{INFLUENCE} does not apply: {found.refusal}")
    certificate = InfluenceCertificate(
        norms=tuple(r.norm for r in results), row_sums=tuple(r.row_sum for r in results)
    )
    widest = max(found.scale(float_below(epsilon)) for found in results)
    scale = Fraction(widest) * task.query.lipschitz
    return laplace_plan(task, INFLUENCE, task_guarantee(task, epsilon), scale, certificate)


def influence_row_loss(plan: Plan) -> float:
    """2 eta max_i Σ_j Φ_ij, the largest over the family, at eta = L / scale."""
    eta = eta_above(entry_level(plan))
    return max(2.0 * r.row_sum * eta * (1.0 + 2.0 * UNIT) for r in _influences(plan.task))


def _influences(task: Task) -> list[Influences]:
    return of_each(task.family, INFLUENCE, lambda model: model.influences())


INFLUENCE_ROW = Mechanism(INFLUENCE, refuse_influence, calibrate_influence, influence_row_loss)
