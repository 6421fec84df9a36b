"""The Markov Quilt Mechanism: correlation fades with distance. Proof: markov_quilt.md.

Chains are handled here, Bayesian networks in markov_quilt_network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from shoal.additive.plans import (
    Mechanism,
    entry_level,
    entry_rules,
    eta_above,
    float_below,
    laplace_plan,
    task_guarantee,
)
from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary
from shoal.chains.model import MarkovChain
from shoal.chains.quilt.matrix import InfluenceResult, influence_matrix_scale
from shoal.chains.quilt.mixing import bound_loss, bound_scale, chain_constants, interval_constants
from shoal.chains.quilt.scale import (
    QuiltResult,
    any_initial_loss,
    any_initial_scale,
    interval_loss,
    interval_scale,
    quilt_loss,
    quilt_scale,
)
from shoal.chains.walk import UNIT
from shoal.core.codec import Value
from shoal.core.errors import InputError, Refused
from shoal.core.guarantee import Composition, SameQuilts
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Model, Task
from shoal.networks import quilts as networks
from shoal.networks.bayesnet import BayesNet
from shoal.networks.influence import network_matrix_scale
from shoal.records.field import as_network

NAME = "markov-quilt"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActiveQuilt(Value):
    """One model's worst node and the quilt that protects it, nodes counted from 0.

    `sigma` is the scale it needs for a 1-Lipschitz query, |N| / (epsilon - e) with |N| = `nearby`
    and e = `influence`; `left` and `right` are the lags of the quilt's end-points (None = absent).
    `runs` lists (first, last, step, left, right): the quilt that is enough for each node.
    """

    sigma: float
    node: int | None
    left: int | None
    right: int | None
    nearby: int
    influence: float
    runs: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuiltCertificate(Value):
    """The active quilts, one per model of the family, and the farthest end-point allowed."""

    quilts: tuple[ActiveQuilt, ...]
    reach: int | None

    @property
    def theorem(self) -> str:
        return (
            "the Markov Quilt Mechanism (Song, Wang & Chaudhuri 2017, Theorem 4.3, Algorithm 3), "
            "with the true minimum over quilts at every node"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "each chain follows one of the family's laws; separate chains are independent",
            "the query moves by at most its Lipschitz constant when one entry changes",
        )


def refuse(task: Task) -> str | None:
    """Quilts need single entries of chains of order 1, or of Bayesian networks."""
    if not isinstance(task.secrets, EachEntry):
        return "quilts protect single entries; named pairs of events need another mechanism"
    if networks.is_network_task(task.family):
        return None
    for model in task.family:
        if not isinstance(model, MarkovChain | AnyInitialLaw | IntervalChains):
            return (
                "quilts need the transition matrix of a Markov chain, or Bayesian networks only, "
                f"not {model.describe()}"
            )
    return None


def calibrate(task: Task, epsilon: Fraction, reach: int | None = None) -> Plan:
    """Laplace noise of scale L·sigma, sigma the largest over the family.

    `reach` limits how far a quilt's end-points may lie on a chain (no limit by default).
    """
    if networks.is_network_task(task.family):
        return networks.calibrate(task, epsilon, NAME)
    results = [_scale(model, float_below(epsilon), reach) for model in task.family]
    sigma = max(result.sigma for result in results)
    if not math.isfinite(sigma):
        raise Refused(
            f"{NAME} does not apply: no quilt of finite size is enough for a chain of any length, "
            "because its past is never forgotten; give the model a length"
        )
    certificate = QuiltCertificate(quilts=tuple(_active(r) for r in results), reach=reach)
    scale = Fraction(sigma) * task.query.lipschitz
    key = _key(task.family, reach)
    guarantee = task_guarantee(task, epsilon)
    return laplace_plan(
        task, NAME, guarantee, scale, certificate, rules=lambda eta: (SameQuilts(key, eta),)
    )


def rules(plan: Plan) -> tuple[Composition, ...]:
    """`SameQuilts` and `AsEntryDP`, of what is drawn."""
    family = plan.task.family
    named = networks.is_network_task(family)
    key = networks.key_of(family) if named else _key(family, _reach(plan))
    return (SameQuilts(key, entry_level(plan)), *entry_rules(plan))


def _key(family: Sequence[Model], reach: int | None) -> str:
    return f"{reach}:" + ",".join(model.fingerprint for model in family)


def loss(plan: Plan) -> float:
    """max over models and nodes of min over quilts (|N|·eta + e), eta = L / scale."""
    return family_loss(plan.task.family, eta_above(entry_level(plan)), _reach(plan))


def family_loss(family: Sequence[Model], eta: float, reach: int | None = None) -> float:
    """The quilt bound on what any release that is eta-DP for one entry tells about an entry."""
    return max(_loss(model, eta, reach) for model in family)


def composed_loss(plans: Sequence[Plan]) -> float:
    """The loss of several plans from the same quilt sets: max_i min_Q (|N|·Ση + e).

    Song, Wang & Chaudhuri 2017, Theorem 4.4, with the noise scales known.
    """
    shared = [rule for plan in plans for rule in plan.composition if isinstance(rule, SameQuilts)]
    if len(shared) != len(plans) or len({rule.key for rule in shared}) != 1:
        raise InputError("the plans were not made from the same quilt sets")
    eta = sum(map(entry_level, plans), Fraction(0))
    return family_loss(plans[0].task.family, eta_above(eta), _reach(plans[0]))


def _reach(plan: Plan) -> int | None:
    """How far quilts were looked for; a smaller reach only loses quilts, and noise a promise."""
    reach = plan.certificate.reach if isinstance(plan.certificate, QuiltCertificate) else None
    return reach if isinstance(reach, int) else None


def _scale(model: Model, epsilon: float, reach: int | None) -> QuiltResult:
    if isinstance(model, AnyInitialLaw):
        return any_initial_scale(model.transition, model.length, epsilon, reach)
    if isinstance(model, IntervalChains):
        return interval_scale(model.low, model.high, model.length, epsilon, reach).result
    assert isinstance(model, MarkovChain)  # `refuse` lets nothing else through
    return quilt_scale(model.transition, model.initial, model.length, epsilon, reach)


def _loss(model: Model, eta: float, reach: int | None) -> float:
    if isinstance(model, AnyInitialLaw):
        return any_initial_loss(model.transition, model.length, eta, reach)
    if isinstance(model, IntervalChains):
        return interval_loss(model.low, model.high, model.length, eta, reach)
    if isinstance(model, BayesNet):
        return networks.model_loss(model, eta)
    assert isinstance(model, MarkovChain)
    return quilt_loss(model.transition, model.initial, model.length, eta, reach)


def _active(result: QuiltResult) -> ActiveQuilt:
    return ActiveQuilt(
        sigma=result.sigma,
        node=result.node,
        left=result.left,
        right=result.right,
        nearby=result.nearby,
        influence=result.influence,
        runs=tuple(tuple(run) for run in result.runs),
    )


ROW = Mechanism(NAME, refuse, calibrate, loss, task_guarantee, rules)


# Quilt noise from mixing times alone. Proof: markov_quilt_bound.md.


BOUND = "markov-quilt-bound"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixingCertificate(Value):
    """Per model: the rarest stationary probability and the gap, both rounded down, and sigma."""

    constants: tuple[tuple[float, float], ...]
    sigmas: tuple[float, ...]

    @property
    def theorem(self) -> str:
        return (
            "the Markov Quilt Mechanism with influences bounded by mixing (Song, Wang & Chaudhuri "
            "2017, Algorithm 4 and Lemma C.1), the gap counted with multiplicity"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "each chain is time-homogeneous and at least as fast to mix as its constants say, "
            "whatever its initial law; separate chains are independent",
            "the query moves by at most its Lipschitz constant when one entry changes",
        )


def refuse_bound(task: Task) -> str | None:
    """Mixing needs time-homogeneous chains, or their constants."""
    if not isinstance(task.secrets, EachEntry):
        return "quilts protect single entries; named pairs of events need another mechanism"
    for model in task.family:
        if not isinstance(model, MarkovChain | AnyInitialLaw | MixingSummary | IntervalChains):
            return f"mixing needs a Markov chain or its constants, not {model.describe()}"
        if isinstance(model, MarkovChain) and not model.homogeneous:
            return "mixing needs one transition matrix for all steps, and there is one per step"
    return None


def calibrate_bound(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L·sigma, from the rarest state and the gap of each model."""
    constants = tuple(_constants(model) for model in task.family)
    results = [
        bound_scale(pi_min, gap, model.tied, float_below(epsilon))
        for model, (pi_min, gap) in zip(task.family, constants, strict=True)
    ]
    sigma = max(result.sigma for result in results)
    if not math.isfinite(sigma):
        raise Refused(
            f"{BOUND} does not apply: no finite quilt is enough for a chain of any length"
        )
    certificate = MixingCertificate(
        constants=constants, sigmas=tuple(result.sigma for result in results)
    )
    scale = Fraction(sigma) * task.query.lipschitz
    return laplace_plan(task, BOUND, task_guarantee(task, epsilon), scale, certificate)


def bound_row_loss(plan: Plan) -> float:
    """max over models of the quilt loss by mixing, at eta = L / scale."""
    eta = eta_above(entry_level(plan))
    return max(bound_loss(*_constants(model), model.tied, eta) for model in plan.task.family)


def _constants(model: Model) -> tuple[float, float]:
    """(pi_min, gap) of a model, or its refusal."""
    if isinstance(model, MixingSummary):
        return model.pi_min, model.gap
    if isinstance(model, IntervalChains):
        pi_min, gap = interval_constants(model.low, model.high)
        if pi_min <= 0 or gap <= 0:
            raise Refused(f"{BOUND} does not apply: the interval holds chains that do not mix")
        return pi_min, gap
    assert isinstance(model, MarkovChain | AnyInitialLaw)  # `refuse` lets nothing else through
    constants = chain_constants(model.transition)
    if constants.refusal is not None:
        raise Refused(f"{BOUND} does not apply: {constants.refusal}")
    return constants.pi_min, constants.gap


BOUND_ROW = Mechanism(BOUND, refuse_bound, calibrate_bound, bound_row_loss)


# The influence matrix: how far one entry reaches through its neighbours. Proof:
# influence_matrix.md.


INFLUENCE = "influence-matrix"


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


def refuse_influence(task: Task) -> str | None:
    """The influence matrix is that of chains with a given initial law, or of networks."""
    if not isinstance(task.secrets, EachEntry):
        return "influences are between single entries; named pairs need another mechanism"
    for model in map(as_network, task.family):
        if not isinstance(model, MarkovChain | BayesNet):
            return f"the influence matrix needs a Markov chain or a network, not {model.describe()}"
    return None


def calibrate_influence(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale 2 L max_i Σ_j Φ_ij / ε, the largest over the family."""
    results = []
    for model in task.family:
        found = _influence_scale(as_network(model), float_below(epsilon))
        if found.refusal is not None:
            raise Refused(f"{INFLUENCE} does not apply: {found.refusal}")
        results.append(found)
    certificate = InfluenceCertificate(
        norms=tuple(r.norm for r in results), row_sums=tuple(r.row_sum for r in results)
    )
    scale = Fraction(max(r.scale for r in results)) * task.query.lipschitz
    return laplace_plan(task, INFLUENCE, task_guarantee(task, epsilon), scale, certificate)


def influence_row_loss(plan: Plan) -> float:
    """2 eta max_i Σ_j Φ_ij, the largest over the family, at eta = L / scale."""
    eta = eta_above(entry_level(plan))
    row_sums = (_influence_scale(as_network(model), 1.0).row_sum for model in plan.task.family)
    return max(2.0 * row_sum * eta * (1.0 + 2.0 * UNIT) for row_sum in row_sums)


def _influence_scale(model: Model, epsilon: float) -> InfluenceResult:
    if isinstance(model, BayesNet):
        return network_matrix_scale(model, epsilon)
    assert isinstance(model, MarkovChain)  # `refuse` lets nothing else through
    return influence_matrix_scale(model.transition, model.initial, model.length, epsilon)


INFLUENCE_ROW = Mechanism(INFLUENCE, refuse_influence, calibrate_influence, influence_row_loss)
