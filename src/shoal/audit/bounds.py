"""Upper bounds on what any release that is eta-DP for one entry tells under a model."""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.additive.plans import eta_above
from shoal.audit.case import AuditCase
from shoal.audit.result import TOLERANCE
from shoal.core.errors import ShoalError
from shoal.core.task import EntryLift, Model, Query, Quilts, each_entry

VOUCHED = "the upper bound by itself: it is the mechanism's own evaluation of its promise"


def entry_bound(model: Model, query: Query | None, eta: Fraction) -> float:
    """The least of the bounds that apply to `model`; inf when none does.

    Group privacy, the lift, quilts, or mixing alone: each holds for every release that is eta-DP
    for one entry, whatever was asked; the lift also uses how far apart two values of an entry
    move the answer of `query`.
    """
    group = math.inf if model.tied is None else eta_above(model.tied * eta)
    said = [model.lift(query), model.quilts()]
    bounds = [bound for bound in said if not isinstance(bound, str)]
    mixing = model.mixing()
    if not bounds and not isinstance(mixing, str):
        bounds = [mixing]
    return min([group, *(_attempt(bound, eta_above(eta)) for bound in bounds)])


def least_upper(setting: AuditCase, computed: float = math.inf) -> tuple[float, tuple[str, ...]]:
    """The least upper bound at hand, and a note when only the mechanism vouches for it.

    `computed` is what the auditor found by itself; the bounds for any entry-level release are
    asked only where that is no help.
    """
    own = computed
    if computed > (setting.promised or 0.0):
        if each_entry(setting.secrets):
            own = min(own, entry_bound(setting.model, setting.query, setting.eta))
        else:
            own = min(own, _bound_about(setting))
    if setting.known < own * (1 - TOLERANCE):
        return setting.known, (VOUCHED,)
    return own, ()


def _bound_about(setting: AuditCase) -> float:
    """The lift for secrets that are not single entries; inf where the model has none."""
    found = setting.model.lift_about(setting.query, setting.secrets)
    return math.inf if isinstance(found, str) else _attempt(found, eta_above(setting.eta))


def _attempt(bound: EntryLift | Quilts, eta: float) -> float:
    try:
        return bound.loss(eta)
    except ShoalError:
        return math.inf
