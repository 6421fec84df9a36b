"""The lift on networks, contagion and tables, for the rows that need it. Proof: lift.md."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.additive.queries import LinearQuery
from shoal.chains.walk import UNIT
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.task import Query
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.crowds import CrowdLift
from shoal.networks.influence import reaches
from shoal.networks.lift import MAX_STATES, NetworkLift, TableLift
from shoal.networks.queries import VariableSum
from shoal.networks.quilts import NodeQuilt, network_quilts, quilt_loss, quilt_sigma, strategy_for
from shoal.networks.table import JointTable

WALKS = "walks"
TOO_LARGE = (
    f"the lift needs blocks with at most {MAX_STATES} values together, quilts, or influences that "
    "fade along walks, and this network has none of them; use exact, wasserstein or group"
)


class Lifted(NamedTuple):
    """The largest eta a model allows, and where its loss comes from (see LiftedModel)."""

    eta: float
    loss: float
    node: int | None
    pair: tuple[int, int] | None
    at_node: float
    rule: str


def bound(model: BayesNet | Contagion | JointTable, query: Query | None, eta: float) -> float:
    """What any release that is eta-DP for one entry tells about an entry. Rounds up.

    On networks the smaller of the quilts and the block lift, or where blocks are too large the
    walks of influence.
    """
    if isinstance(model, Contagion):
        return _crowd(model).loss(eta).value
    if isinstance(model, JointTable):
        return _table(model, query).loss(eta).value
    lifted, quilts = _blocks(model, query), _quilts(model)
    least = math.inf if quilts is None else quilt_loss(quilts, eta)
    if lifted is None:
        least = min(least, _walks_loss(_reaches(model, query), eta))
    else:
        least = min(least, lifted.loss(eta).value)
    if least == math.inf:
        raise Refused(TOO_LARGE)
    return least


def largest(
    model: BayesNet | Contagion | JointTable, query: Query | None, epsilon: float
) -> Lifted:
    """The largest eta whose `bound` is at most epsilon."""
    if isinstance(model, Contagion):
        crowd = _crowd(model).largest_eta(epsilon)
        return Lifted(crowd.eta, crowd.value, crowd.node, (0, 1), crowd.eta, "cone")
    if isinstance(model, JointTable):
        whole = _table(model, query).largest_eta(epsilon)
        return Lifted(whole.eta, whole.value, whole.node, whole.pair, whole.at_node, whole.rule)
    quilts = _quilts(model)
    answers = [] if quilts is None else [_by_quilt(quilts, epsilon)]
    lifted = _blocks(model, query)
    if lifted is None:
        answers.append(_by_walks(_reaches(model, query), epsilon))
    elif (found := lifted.largest_eta(epsilon)) is not None:
        at_node = (found.node, found.pair, found.at_node)
        answers.append(Lifted(found.eta, found.value, *at_node, found.rule))
    best = max(answers, key=lambda answer: answer.eta, default=None)  # the quilts' when equal
    if best is None or best.eta <= 0:
        raise Refused(TOO_LARGE)
    return best


def _by_walks(reach: Floats, epsilon: float) -> Lifted:
    """The answer of the variable that reaches farthest; eta 0 when influences never fade."""
    node = int(reach.argmax())
    eta = epsilon / float(reach[node]) * (1.0 - 8.0 * UNIT)
    return Lifted(eta, _walks_loss(reach, eta), node, None, eta, WALKS)


def _walks_loss(reach: Floats, eta: float) -> float:
    return math.inf if eta <= 0 else float(reach.max()) * eta * (1.0 + 2.0 * UNIT)


@lru_cache(maxsize=32)
def _reaches(model: BayesNet, query: Query | None) -> Floats:
    """How far each variable reaches; inf where a variable is tied to too many others."""
    moves = np.array([float(metric.max()) for metric in metrics_of(model, query)])
    try:
        found = reaches(model, moves)
    except Refused:
        found = np.full(len(moves), math.inf)
    found.setflags(write=False)
    return found


def _by_quilt(quilts: tuple[tuple[NodeQuilt, ...], ...], epsilon: float) -> Lifted:
    """The answer of the worst variable's cheapest quilt: |N|·eta and e."""
    sigma, costs = quilt_sigma(quilts, epsilon)
    worst = max(costs).quilt
    eta = math.nextafter(1 / sigma, 0.0)
    loss = worst.nearby * eta + worst.influence
    return Lifted(eta, loss, max(costs).node, None, worst.nearby * eta, "quilt")


def _quilts(model: BayesNet) -> tuple[tuple[NodeQuilt, ...], ...] | None:
    """The quilts of a network; None when it is too large to search."""
    try:
        return network_quilts(model, strategy_for(model))
    except Refused:
        return None


def metrics_of(model: BayesNet | JointTable, query: Query | None) -> tuple[Floats, ...]:
    """How far apart two values of each variable move the answer, divided by the Lipschitz constant.

    1 off the diagonal for anything that is not a sum. Divisions round up, 1 stays 1.
    """
    if isinstance(query, LinearQuery) and model.states == query.states:
        rows = [query.multiples()] * len(model.variables)
    elif isinstance(query, VariableSum) and query.variables == model.variables:
        rows = [tuple((weight,) for weight in own) for own in query.multiples()]
    else:
        return tuple(1.0 - np.eye(len(domain)) for domain in model.domains)
    gaps = [_gaps(own) for own in rows]
    widest = max(float(gap.max()) for gap in gaps)
    return tuple(np.minimum(gap / widest * (1 + 2.0**-52), 1.0) for gap in gaps)


def _gaps(rows: tuple[tuple[int, ...], ...]) -> Floats:
    weights = np.array(rows, dtype=np.float64)
    return np.asarray(np.abs(weights[:, None, :] - weights[None, :, :]).sum(axis=2))


@lru_cache(maxsize=32)
def _crowd(model: Contagion) -> CrowdLift:
    return CrowdLift(model)


@lru_cache(maxsize=32)
def _blocks(model: BayesNet, query: Query | None) -> NetworkLift | None:
    """The lift of a network; None when its blocks are too large."""
    try:
        return NetworkLift(model, metrics_of(model, query))
    except Refused:
        return None


@lru_cache(maxsize=32)
def _table(model: JointTable, query: Query | None) -> TableLift:
    return TableLift(model, metrics_of(model, query))
