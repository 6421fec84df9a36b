"""The lift: any entry-level DP mechanism, made safe for a chain or a network. Proof: lift.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from shoal.additive.eta_search import LiftLoss
from shoal.additive.laplace import quietest_noise
from shoal.additive.plans import (
    Mechanism,
    entry_level,
    eta_above,
    float_below,
    noisy_plan,
    task_guarantee,
)
from shoal.additive.queries import LinearQuery
from shoal.chains.families import AnyInitialLaw, OrderChain
from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.families import AnyInitialLift
from shoal.chains.lift.side import SHORT
from shoal.chains.lift.tuples import TupleLift
from shoal.chains.model import MarkovChain
from shoal.chains.quilt.scale import (
    QuiltResult,
    any_initial_loss,
    any_initial_scale,
    quilt_loss,
    quilt_scale,
)
from shoal.core.codec import Floats, Value
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Model, Query, Task
from shoal.networks import lift_row
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable
from shoal.records import field_row
from shoal.records.field import PairwiseField

NAME = "lift"
MARGIN = 1e-7  # of the budget, left unused so that a second evaluation fits too
ATTEMPTS = 8
NETWORKS = BayesNet | Contagion | JointTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiftedModel(Value):
    """One model's answer: the largest eta it allows, and where its loss reaches the budget.

    loss = at_node + future + past: what the release tells about the entry itself, and what the
    entries after and before it add. With rule "quilt" the bound is the quilt's: at_node covers
    all entries nearby and future the influence on the quilt.
    """

    eta: float
    loss: float
    node: int | None
    pair: tuple[int, int] | None
    at_node: float
    future: float
    past: float
    rule: str

    @classmethod
    def of(cls, found: LiftLoss) -> LiftedModel:
        return cls(
            eta=found.eta,
            loss=found.value,
            node=found.node,
            pair=found.pair,
            at_node=found.at_node,
            future=found.future,
            past=found.past,
            rule=found.rule,
        )

    @classmethod
    def on_network(cls, found: lift_row.Lifted) -> LiftedModel:
        """The answer on a network or in a crowd: what all neighbours add stands as `future`."""
        return cls(
            eta=found.eta,
            loss=found.loss,
            node=found.node,
            pair=found.pair,
            at_node=found.at_node,
            future=max(found.loss - found.at_node, 0.0),
            past=0.0,
            rule=found.rule,
        )

    @classmethod
    def by_quilt(cls, found: QuiltResult) -> LiftedModel:
        """The quilt's answer, where no lag that was tried does better: |N|·eta and e."""
        eta = math.nextafter(1 / found.sigma, 0.0)
        return cls(
            eta=eta,
            loss=found.nearby * eta + found.influence,
            node=found.node,
            pair=None,
            at_node=found.nearby * eta,
            future=found.influence,
            past=0.0,
            rule="quilt",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiftCertificate(Value):
    """The worst node and pair of each model; the smallest eta serves all."""

    models: tuple[LiftedModel, ...]

    @property
    def theorem(self) -> str:
        return (
            "the lift: what an entry-level DP release tells about one entry of a chain, summed "
            "over the entry, its future and its past, with a certified fixed point (lift.md)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "each chain follows one of the family's laws; separate chains are independent",
            "the release is pure entry-level DP on every sequence, possible or not",
        )


def refuse(task: Task) -> str | None:
    """The lift needs single entries of chains, networks or crowds whose laws are given."""
    if not isinstance(task.secrets, EachEntry):
        return "the lift protects single entries; named pairs of events need another mechanism"
    for model in task.family:
        if not isinstance(
            model, MarkovChain | AnyInitialLaw | OrderChain | NETWORKS | PairwiseField
        ):
            return f"the lift needs the law of a Markov chain or a network, not {model.describe()}"
    return None


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Entry-level noise at the largest eta whose lift is at most ε under every model."""
    models = tuple(largest(model, task.query, float_below(epsilon)) for model in task.family)
    eta = Fraction(min(model.eta for model in models))
    certificate = LiftCertificate(models=models)
    noise = quietest_noise(task.query, task.query.lipschitz / eta)
    return noisy_plan(task, NAME, task_guarantee(task, epsilon), noise, certificate)


def loss(plan: Plan) -> float:
    """The lift at eta = L / scale, the largest over the family."""
    eta = eta_above(entry_level(plan))
    enough = float_below(plan.guarantee.amount)
    return max(model_loss(model, plan.task.query, eta, enough) for model in plan.task.family)


def model_loss(model: Model, query: Query | None, eta: float, enough: float = -math.inf) -> float:
    """What a release that is eta-DP for one entry tells about an entry of `model`. Rounds up.

    With a linear query the metric is the query's own: entries whose weights are close are told
    apart less. Without one any change of an entry counts eta. The smaller of the lift and the
    quilt bound, which covers the lags a long chain does not try; on a chain whose marginals settle
    too slowly to be followed, of the lift for every first law as well. The first that is at most
    `enough` is taken.
    """
    if isinstance(model, PairwiseField):
        return field_row.bound(model, query, eta)
    if isinstance(model, NETWORKS):
        return lift_row.bound(model, query, eta)
    found = model_lift(model, query).loss(eta)
    value = found.value
    if value > enough:
        value = min(value, _any_start_loss(model, query, found))
    return value if value <= enough else min(value, _quilt_loss(model, eta))


@lru_cache(maxsize=32)
def model_lift(model: Model, query: Query | None) -> ChainLift | AnyInitialLift | TupleLift:
    """The lift of a model with the metric of `query` per unit of eta, its powers kept."""
    assert isinstance(model, MarkovChain | AnyInitialLaw | OrderChain)  # as `refuse` has it
    metric = metric_of(query, len(model.states))
    if isinstance(model, AnyInitialLaw):
        return AnyInitialLift.of(model.transition, metric, model.length)
    if isinstance(model, OrderChain):
        return TupleLift.of(model.initial, model.conditional, metric, model.length)
    return ChainLift.of(model.initial, model.transition, metric, model.length)


def metric_of(query: Query | None, size: int) -> Floats:
    """E(y, z) per unit of eta: |w(y) - w(z)|_1 / L for a linear query, else 1 off the diagonal."""
    if not isinstance(query, LinearQuery):
        return 1.0 - np.eye(size)
    weights = query.multiples()
    gaps = [[sum(abs(a - b) for a, b in zip(x, y, strict=True)) for y in weights] for x in weights]
    widest = max(map(max, gaps))
    exact = np.array([[gap / widest for gap in row] for row in gaps])
    return np.asarray(np.minimum(exact * (1 + 2.0**-52), 1.0))  # divisions round up, 1 stays 1


@lru_cache(maxsize=32)
def largest(model: Model, query: Query | None, epsilon: float) -> LiftedModel:
    """The largest eta whose loss is at most epsilon under one model; refused when there is none."""
    if isinstance(model, PairwiseField):
        return LiftedModel.on_network(field_row.largest(model, query, epsilon * (1 - MARGIN)))
    if isinstance(model, NETWORKS):
        return _checked(model, query, epsilon)
    found = _largest_lift(model_lift(model, query), epsilon)
    if isinstance(model, MarkovChain) and _unsettled(model, found):
        wider = _largest_lift(model_lift(_any_start(model), query), epsilon)
        found = max((f for f in (found, wider) if f is not None), key=_eta, default=None)
    quilt = _quilt(model, epsilon)
    if found is None and quilt is None:
        raise Refused(
            f"{NAME} does not apply: for {model.describe()} what a release tells about one entry "
            "has no finite bound, because the chain never forgets; give the model a length"
        )
    if quilt is not None and (found is None or found.eta * quilt.sigma < 1):
        return LiftedModel.by_quilt(quilt)
    assert found is not None
    return LiftedModel.of(found)


def _any_start_loss(model: Model, query: Query | None, found: LiftLoss) -> float:
    """The lift for every first law, where the marginals of the given one settle too slowly."""
    if not isinstance(model, MarkovChain) or not _unsettled(model, found):
        return math.inf
    return model_lift(_any_start(model), query).loss(found.eta).value


def _any_start(model: MarkovChain) -> AnyInitialLaw:
    return AnyInitialLaw(states=model.states, transition=model.transition, length=model.length)


def _unsettled(model: MarkovChain, found: LiftLoss | None) -> bool:
    """Whether no bound on every number of earlier entries was certified from the given start."""
    if not model.homogeneous or model.stationary or (model.length or math.inf) <= SHORT + 1:
        return False
    return found is None or not bool(np.isfinite(found.past_limit.bound).all())


def _eta(found: LiftLoss) -> float:
    return found.eta


def _checked(
    model: BayesNet | Contagion | JointTable, query: Query | None, epsilon: float
) -> LiftedModel:
    """The answer on a network, with a margin so that a second evaluation fits too."""
    return LiftedModel.on_network(lift_row.largest(model, query, epsilon * (1 - MARGIN)))


def _quilt(model: Model, epsilon: float) -> QuiltResult | None:
    """The quilt's answer where there is one: it covers the lags a long chain does not try."""
    if isinstance(model, MarkovChain):
        found = quilt_scale(model.transition, model.initial, model.length, epsilon)
    elif isinstance(model, AnyInitialLaw):
        found = any_initial_scale(model.transition, model.length, epsilon)
    else:
        return None
    return found if math.isfinite(found.sigma) else None


def _quilt_loss(model: Model, eta: float) -> float:
    if isinstance(model, MarkovChain):
        return quilt_loss(model.transition, model.initial, model.length, eta)
    if isinstance(model, AnyInitialLaw):
        return any_initial_loss(model.transition, model.length, eta)
    return math.inf


def _largest_lift(
    lifted: ChainLift | AnyInitialLift | TupleLift, epsilon: float
) -> LiftLoss | None:
    """The lift at the largest eta that fits, evaluated afresh.

    A certified fixed point depends, in its tenth digit, on where the search began. So the search
    aims a little lower, and its answer is evaluated afresh until it fits, as `loss` will do.
    """
    found = lifted.largest_eta(epsilon * (1 - MARGIN))
    found = None if found is None else lifted.loss(found.eta)
    for _ in range(ATTEMPTS):
        if found is None or found.value <= epsilon * (1 - MARGIN / 2):
            break
        found = lifted.loss(found.eta * (1 - MARGIN) * min(1.0, epsilon / found.value))
    return found if found is not None and found.value <= epsilon else None


ROW = Mechanism(NAME, refuse, calibrate, loss)
