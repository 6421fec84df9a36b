"""The lift on networks, contagion and tables, for the rows that need it. Proof: lift.md."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import numpy as np

from shoal.additive.queries import linear
from shoal.chains.walk import UNIT
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.progress import OutOfTime, cut_short, in_time
from shoal.core.task import CUT, EntryLift, LiftedModel, Query
from shoal.networks.bags import BagLift
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.crowds import CrowdLift
from shoal.networks.influence import reaches
from shoal.networks.lift import MAX_STATES, NetworkLift, TableLift
from shoal.networks.queries import per_variable
from shoal.networks.quilts import NodeQuilt, network_quilts, quilt_loss, quilt_sigma, strategy_for
from shoal.networks.table import JointTable

WALKS = "walks"
MARGIN = 1e-7  # of the budget, left unused so that a second evaluation fits too
TOO_LARGE = (
    f"the lift needs blocks with at most {MAX_STATES} values together, quilts, or influences that "
    "fade along walks, and this network has none of them; use exact, wasserstein or group"
)


class NetworkEntryLift:
    """On a network: the smaller of the quilts and the block lift, or where blocks are too large
    the lift by bags and the walks of influence."""

    def __init__(self, net: BayesNet, query: Query | None) -> None:
        self._net, self._query = net, query

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        """What any release that is eta-DP for one entry tells about an entry. Rounds up."""
        lifted = _blocks(self._net, self._query)
        least = math.inf if lifted is None else lifted.loss(eta).loss
        if least > enough and not _in_blocks(lifted):
            least = min(least, _walks_loss(_reaches(self._net, self._query), eta))
        if least > enough and (quilts := _quilts(self._net, self._query)) is not None:
            least = min(least, quilt_loss(quilts, eta))
        if least == math.inf:
            raise Refused(TOO_LARGE)
        return least

    def largest(self, epsilon: float) -> LiftedModel:
        """The largest eta whose loss is at most epsilon, or the best found in time."""
        epsilon *= 1 - MARGIN
        answers: list[LiftedModel | None] = []
        for search in (self._by_itself, self._by_quilts):  # the second may take long
            with suppress(OutOfTime):
                answers.insert(0, search(epsilon))
        found = [answer for answer in answers if answer is not None]
        best = max(found, key=lambda answer: answer.eta, default=None)  # the quilts' when equal
        if best is None or best.eta <= 0:
            in_time("the lift")
            raise Refused(TOO_LARGE)
        return cut_marked(best)

    def _by_quilts(self, epsilon: float) -> LiftedModel | None:
        quilts = _quilts(self._net, self._query)
        return None if quilts is None else _by_quilt(quilts, epsilon)

    def _by_itself(self, epsilon: float) -> LiftedModel | None:
        lifted = _blocks(self._net, self._query)
        found = None if lifted is None else lifted.largest_eta(epsilon)
        if _in_blocks(lifted):
            return found
        walks = _by_walks(_reaches(self._net, self._query), epsilon)
        return walks if found is None or walks.eta > found.eta else found


def _in_blocks(lifted: NetworkLift | None) -> bool:
    """Whether the network falls into small blocks, where walks of influence tell nothing new."""
    return lifted is not None and not isinstance(lifted, BagLift)


def cut_marked(found: LiftedModel) -> LiftedModel:
    """`found`, saying so where a time limit ended the search for it."""
    cut = cut_short() and not found.rule.endswith(CUT)
    return replace(found, rule=f"{found.rule}{CUT}") if cut else found


class WholeEntryLift:
    """On a crowd or a table: of all its entries at once."""

    def __init__(self, lift: CrowdLift | TableLift) -> None:
        self._lift = lift

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        return self._lift.loss(eta).loss

    def largest(self, epsilon: float) -> LiftedModel:
        return cut_marked(self._lift.largest_eta(epsilon * (1 - MARGIN)))


def network_lift(net: BayesNet, query: Query | None) -> NetworkEntryLift:
    """The lift of a network with the metric of `query`."""
    return NetworkEntryLift(net, query)


def _by_walks(reach: Floats, epsilon: float) -> LiftedModel:
    """The answer of the variable that reaches farthest; eta 0 when influences never fade."""
    node = int(reach.argmax())
    eta = epsilon / float(reach[node]) * (1.0 - 8.0 * UNIT)
    return LiftedModel.at(eta, _walks_loss(reach, eta), node, eta, WALKS)


def _walks_loss(reach: Floats, eta: float) -> float:
    return math.inf if eta <= 0 else float(reach.max()) * eta * (1.0 + 2.0 * UNIT)


@lru_cache(maxsize=32)
def _reaches(model: BayesNet, query: Query | None) -> Floats:
    """How far each variable reaches; inf where a variable is tied to too many others."""
    moves = np.array([float(metric.max()) for metric in metrics_of(model, query)])
    try:
        found = reaches(model, moves)
    except OutOfTime:
        raise
    except Refused:
        found = np.full(len(moves), math.inf)
    found.setflags(write=False)
    return found


def _by_quilt(quilts: tuple[tuple[NodeQuilt, ...], ...], epsilon: float) -> LiftedModel:
    """The answer of the worst variable's cheapest quilt: |N|·eta and e."""
    sigma, costs = quilt_sigma(quilts, epsilon)
    worst = max(costs).quilt
    eta = math.nextafter(1 / sigma, 0.0)
    loss = worst.nearby * eta + worst.influence
    return LiftedModel.at(eta, loss, max(costs).node, worst.nearby * eta, "quilt")


def _quilts(model: BayesNet, query: Query | None) -> tuple[tuple[NodeQuilt, ...], ...] | None:
    """The quilts of a network; None when it is too large to search.

    Rings of a large network, which take seconds, are looked at where nothing else is to be had.
    """
    strategy = strategy_for(model)
    if strategy == "local" and (
        _blocks(model, query) is not None or np.isfinite(_reaches(model, query)).all()
    ):
        return None
    try:
        return network_quilts(model, strategy)
    except OutOfTime:
        raise
    except Refused:
        return None


def metrics_of(model: BayesNet | JointTable, query: Query | None) -> tuple[Floats, ...]:
    """How far apart two values of each variable move the answer, divided by the Lipschitz constant.

    1 off the diagonal for anything that is not a sum. Divisions round up, 1 stays 1.
    """
    shared, own_weights = linear(query), per_variable(query)
    if shared is not None and model.states == shared.states:
        rows = [shared.multiples()] * len(model.variables)
    elif own_weights is not None and own_weights.variables == model.variables:
        rows = [tuple((weight,) for weight in own) for own in own_weights.multiples()]
    else:
        return tuple(1.0 - np.eye(len(domain)) for domain in model.domains)
    gaps = [_gaps(own) for own in rows]
    widest = max(float(gap.max()) for gap in gaps)
    return tuple(np.minimum(gap / widest * (1 + 2.0**-52), 1.0) for gap in gaps)


def _gaps(rows: tuple[tuple[int, ...], ...]) -> Floats:
    weights = np.array(rows, dtype=np.float64)
    return np.asarray(np.abs(weights[:, None, :] - weights[None, :, :]).sum(axis=2))


@lru_cache(maxsize=32)
def crowd_lift(model: Contagion, query: Query | None) -> WholeEntryLift:
    """The lift of a crowd: any change of a person counts the same."""
    return WholeEntryLift(CrowdLift(model))


@lru_cache(maxsize=32)
def table_lift(model: JointTable, query: Query | None) -> EntryLift | str:
    """The lift of a table with the metric of `query`; a sentence where it is too large."""
    try:
        return WholeEntryLift(TableLift(model, metrics_of(model, query)))
    except OutOfTime:
        raise
    except Refused as why:
        return str(why)


@lru_cache(maxsize=32)
def _blocks(model: BayesNet, query: Query | None) -> NetworkLift | None:
    """The lift of a network, by blocks, else by bags; None when both are too large."""
    for kind in (NetworkLift, BagLift):
        try:
            return kind(model, metrics_of(model, query))
        except OutOfTime:
            raise
        except Refused:
            continue
    return None
