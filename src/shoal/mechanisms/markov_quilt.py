"""The Markov Quilt Mechanism: correlation fades with distance. Proof: markov_quilt.md.

Chains are handled here, Bayesian networks in markov_quilt_network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.composition import Composition, SameQuilts
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.task import Model, Task
from shoal.core.value import Value
from shoal.loss.quilt import QuiltResult, quilt_loss, quilt_scale
from shoal.loss.quilt_any_initial import any_initial_loss, any_initial_scale
from shoal.loss.quilt_interval import interval_loss, interval_scale
from shoal.mechanisms import markov_quilt_network as networks
from shoal.mechanisms.additive import (
    entry_level,
    entry_rules,
    eta_above,
    float_below,
    laplace_plan,
    pufferfish,
)
from shoal.mechanisms.row import Mechanism
from shoal.models.bayesnet import BayesNet
from shoal.models.chain import MarkovChain
from shoal.models.family import AnyInitialLaw
from shoal.models.interval import IntervalChains
from shoal.secrets.entries import EachEntry

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
    guarantee = pufferfish(task, epsilon)
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


ROW = Mechanism(NAME, refuse, calibrate, loss, pufferfish, rules)
