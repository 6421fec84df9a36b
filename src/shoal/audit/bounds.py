"""Upper bounds on what any release that is eta-DP for one entry tells under a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from shoal.additive.lift import model_loss
from shoal.additive.plans import eta_above
from shoal.additive.quilt import family_loss
from shoal.audit.case import AuditCase
from shoal.audit.result import TOLERANCE
from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary, OrderChain
from shoal.chains.model import MarkovChain
from shoal.chains.quilt.mixing import bound_loss
from shoal.core.errors import ShoalError
from shoal.core.task import EachEntry, Model, Query
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable
from shoal.records.field import PairwiseField
from shoal.records.field_row import field_loss

LIFTED = (MarkovChain, AnyInitialLaw, OrderChain, BayesNet, Contagion, JointTable)
VOUCHED = "the upper bound by itself: it is the mechanism's own evaluation of its promise"


def entry_bound(model: Model, query: Query | None, eta: Fraction) -> float:
    """The least of the bounds that apply to `model`; inf when none does.

    Each holds for every release that is eta-DP for one entry, whatever was asked; the lift also
    uses how far apart two values of an entry move the answer of `query`.
    """
    return min(bound(model, query, eta) for bound in BOUNDS)


def least_upper(setting: AuditCase, computed: float = math.inf) -> tuple[float, tuple[str, ...]]:
    """The least upper bound at hand, and a note when only the mechanism vouches for it.

    `computed` is what the auditor found by itself; the bounds for any entry-level release are
    asked only where that is no help.
    """
    own = computed
    entries = isinstance(setting.secrets, EachEntry)  # the bounds are about single entries
    if entries and computed > (setting.promised or 0.0):
        own = min(own, entry_bound(setting.model, setting.query, setting.eta))
    if setting.known < own * (1 - TOLERANCE):
        return setting.known, (VOUCHED,)
    return own, ()


def _group(model: Model, query: Query | None, eta: Fraction) -> float:
    """n·eta for n tied entries: group privacy."""
    return math.inf if model.tied is None else eta_above(model.tied * eta)


def _quilt(model: Model, query: Query | None, eta: Fraction) -> float:
    """max over nodes of min over quilts (|N|·eta + e)."""
    if not isinstance(model, MarkovChain | AnyInitialLaw | IntervalChains | BayesNet):
        return math.inf
    return _attempt(lambda: family_loss((model,), eta_above(eta)))


def _mixing(model: Model, query: Query | None, eta: Fraction) -> float:
    """The quilt bound by mixing constants alone."""
    if not isinstance(model, MixingSummary):
        return math.inf
    return _attempt(lambda: bound_loss(model.pi_min, model.gap, model.length, eta_above(eta)))


def _lift(model: Model, query: Query | None, eta: Fraction) -> float:
    """The lift at eta, with the metric of the query."""
    if not isinstance(model, LIFTED):
        return math.inf
    return _attempt(lambda: model_loss(model, query, eta_above(eta)))


def _field(model: Model, query: Query | None, eta: Fraction) -> float:
    """How far one record reaches in a pairwise field."""
    if not isinstance(model, PairwiseField):
        return math.inf
    return field_loss(model, eta_above(eta), query)


def _attempt(bound: Callable[[], float]) -> float:
    try:
        return bound()
    except ShoalError:
        return math.inf


BOUNDS: tuple[Callable[[Model, Query | None, Fraction], float], ...] = (
    _group,
    _quilt,
    _mixing,
    _lift,
    _field,
)
