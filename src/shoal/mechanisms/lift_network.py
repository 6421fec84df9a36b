"""The lift on networks, contagion and tables, for the rows that need it. Proof: lift.md."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.core.errors import Refused
from shoal.core.task import Query
from shoal.core.value import Floats
from shoal.loss.contagion_lift import CrowdLift
from shoal.loss.lift_blocks_table import TableLift
from shoal.loss.lift_network import MAX_STATES, NetworkLift
from shoal.loss.network_quilts import (
    MOST_NODES,
    NodeQuilt,
    network_quilts,
    quilt_loss,
    quilt_sigma,
    strategy_for,
)
from shoal.models.bayesnet import BayesNet
from shoal.models.contagion import Contagion
from shoal.models.table import JointTable
from shoal.queries.linear import LinearQuery
from shoal.queries.variables import VariableSum

TOO_LARGE = (
    f"the lift needs blocks with at most {MAX_STATES} values together, or quilts of at most "
    f"{MOST_NODES} tied variables, and this network has neither; use exact, wasserstein or group"
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

    On networks the smaller of the block lift, where its blocks are small enough, and the quilts.
    """
    if isinstance(model, Contagion):
        return _crowd(model).loss(eta).value
    if isinstance(model, JointTable):
        return _table(model, query).loss(eta).value
    lifted, quilts = _blocks(model, query), _quilts(model)
    if lifted is None and quilts is None:
        raise Refused(TOO_LARGE)
    return min(
        math.inf if lifted is None else lifted.loss(eta).value,
        math.inf if quilts is None else quilt_loss(quilts, eta),
    )


def largest(
    model: BayesNet | Contagion | JointTable, query: Query | None, epsilon: float
) -> Lifted:
    """The largest eta whose `bound` is at most epsilon.

    On lifts of its own: those kept for `bound` remember where the last optimum was, which may
    change the last digit of the next one, and calibration is deterministic.
    """
    if isinstance(model, Contagion):
        crowd = CrowdLift(model).largest_eta(epsilon)
        return Lifted(crowd.eta, crowd.value, crowd.node, (0, 1), crowd.eta, "cone")
    if isinstance(model, JointTable):
        whole = TableLift(model, metrics_of(model, query)).largest_eta(epsilon)
        return Lifted(whole.eta, whole.value, whole.node, whole.pair, whole.at_node, whole.rule)
    lifted = _fresh_blocks(model, query)
    found = None if lifted is None else lifted.largest_eta(epsilon)
    quilts = _quilts(model)
    by_quilt = None if quilts is None else _by_quilt(quilts, epsilon)
    if by_quilt is not None and (found is None or by_quilt.eta >= found.eta):
        return by_quilt
    if found is None:
        raise Refused(TOO_LARGE)
    return Lifted(found.eta, found.value, found.node, found.pair, found.at_node, found.rule)


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
    return _fresh_blocks(model, query)


def _fresh_blocks(model: BayesNet, query: Query | None) -> NetworkLift | None:
    """The lift of a network; None when its blocks are too large."""
    try:
        return NetworkLift(model, metrics_of(model, query))
    except Refused:
        return None


@lru_cache(maxsize=32)
def _table(model: JointTable, query: Query | None) -> TableLift:
    return TableLift(model, metrics_of(model, query))
