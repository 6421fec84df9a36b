"""The lift on a pairwise field: by the reach of a record, or as a network. Proofs:
dependent_field.md, lift.md."""

from __future__ import annotations

import math

from shoal.core.errors import Refused
from shoal.core.task import Query
from shoal.loss.dependence_field import field_reach
from shoal.mechanisms import lift_network
from shoal.mechanisms.dependent_field import field_loss
from shoal.mechanisms.lift_network import Lifted
from shoal.models.bayesnet import BayesNet
from shoal.models.dependence_field import PairwiseField
from shoal.models.dependence_network import followed
from shoal.models.table import JointTable

REACH = "reach"
MOST_LIFTED = 40  # records; the lift of a larger network takes long, the reach serves


def bound(model: PairwiseField, query: Query | None, eta: float) -> float:
    """What a release that is eta-DP for one record tells about a record. Rounds up."""
    law = _small_law(model)
    reach = field_loss(model, eta)
    if law is None:
        return reach
    try:
        return min(reach, lift_network.bound(law, query, eta))
    except Refused:
        return reach


def largest(model: PairwiseField, query: Query | None, epsilon: float) -> Lifted:
    """The largest eta by the reach, or by the network's own lift where that allows more."""
    reach = field_reach(model)
    most = float(reach.max())
    eta = math.nextafter(epsilon / most, 0.0)
    best = Lifted(eta, most * eta, int(reach.argmax()), None, eta, REACH)
    law = _small_law(model)
    if law is None:
        return best
    try:
        other = lift_network.largest(law, query, epsilon)
    except Refused:
        return best
    return other if other.eta > best.eta else best


def _small_law(model: PairwiseField) -> BayesNet | JointTable | None:
    """The field as a network or table that is lifted in a moment."""
    law = followed(model) if model.records <= MOST_LIFTED else model
    return law if isinstance(law, BayesNet | JointTable) else None
