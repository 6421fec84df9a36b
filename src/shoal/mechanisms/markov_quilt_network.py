"""The Markov Quilt Mechanism on Bayesian networks. Proof: markov_quilt.md, last section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.composition import SameQuilts
from shoal.core.plan import Plan
from shoal.core.task import Model, Task
from shoal.core.value import Value
from shoal.loss.network_quilts import (
    NodeCost,
    NodeQuilt,
    network_quilts,
    quilt_loss,
    quilt_sigma,
    strategy_for,
)
from shoal.mechanisms.additive import float_below, laplace_plan, pufferfish
from shoal.models.bayesnet import BayesNet


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkQuilt(Value):
    """The quilt in use for one variable: |N| = `nearby` and e = `influence`.

    `sigma` = |N| / (epsilon - e) is the scale it needs for a 1-Lipschitz query.
    """

    variable: str
    quilt: tuple[str, ...]
    nearby: int
    influence: float
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkQuiltCertificate(Value):
    """Per model: how candidates were found, and the active quilt of every variable."""

    strategies: tuple[str, ...]
    quilts: tuple[tuple[NetworkQuilt, ...], ...]

    @property
    def theorem(self) -> str:
        return (
            "the Markov Quilt Mechanism on networks (Song, Wang & Chaudhuri 2017, Theorem 4.3, "
            "Algorithm 2), every quilt checked by d-separation"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "the data follows one of the family's networks",
            "the query moves by at most its Lipschitz constant when one variable changes",
        )


def is_network_task(family: Sequence[Model]) -> bool:
    """Whether every model is a Bayesian network."""
    return all(isinstance(model, BayesNet) for model in family)


def calibrate(task: Task, epsilon: Fraction, name: str) -> Plan:
    """Laplace noise of scale L·sigma, sigma the largest over variables and members."""
    found = [quilt_sigma(_quilts(model), float_below(epsilon)) for model in task.family]
    strategies = tuple(strategy_for(_net(model)) for model in task.family)
    certificate = NetworkQuiltCertificate(
        strategies=strategies,
        quilts=tuple(
            tuple(_active(_net(model), cost) for cost in costs)
            for model, (_, costs) in zip(task.family, found, strict=True)
        ),
    )
    scale = Fraction(max(sigma for sigma, _ in found)) * task.query.lipschitz
    key = key_of(task.family)
    return laplace_plan(
        task,
        name,
        pufferfish(task, epsilon),
        scale,
        certificate,
        rules=lambda eta: (SameQuilts(key, eta),),
    )


def key_of(family: Sequence[Model]) -> str:
    """What plans from the same quilts share: each network, and how its quilts are found."""
    return ",".join(f"{strategy_for(_net(model))}:{model.fingerprint}" for model in family)


def model_loss(model: Model, eta: float) -> float:
    """max over variables of min over quilts (|N|·eta + e), for any eta-DP release. Rounds up."""
    return quilt_loss(_quilts(model), eta)


def _quilts(model: Model) -> tuple[tuple[NodeQuilt, ...], ...]:
    net = _net(model)
    return network_quilts(net, strategy_for(net))


def _net(model: Model) -> BayesNet:
    assert isinstance(model, BayesNet)  # `is_network_task` has been asked
    return model


def _active(net: BayesNet, cost: NodeCost) -> NetworkQuilt:
    return NetworkQuilt(
        variable=net.variables[cost.node],
        quilt=tuple(net.variables[v] for v in cost.quilt.quilt),
        nearby=cost.quilt.nearby,
        influence=cost.quilt.influence,
        sigma=cost.cost,
    )
