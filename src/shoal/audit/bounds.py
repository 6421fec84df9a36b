"""Upper bounds on what any release that is eta-DP for one entry tells, and audits by them alone."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from shoal.additive.plans import Measured, Rounds, eta_above
from shoal.audit.case import AuditCase
from shoal.audit.result import ASSUMED, NOT_CHECKED, TOLERANCE, Audit
from shoal.core.errors import Refused, ShoalError
from shoal.core.numbers import significant
from shoal.core.plan import Additive, Plan
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


class _Known(NamedTuple):
    """A release that is eta-DP for one entry: its name, and on whose word."""

    name: str
    eta: Fraction
    word: str


def measured_audit(plan: Plan, curve: bool) -> Audit:
    """A mechanism from outside: its bound is known, what it really tells only sampling can say."""
    body = plan.body
    assert isinstance(body, Measured)
    word = f"{body.name} is {significant(eta_above(body.eta))}-DP for one entry"
    return _bounded(plan, _Known(f"{plan.mechanism} of {body.name}", body.eta, word))


def learning_audit(plan: Plan, curve: bool) -> Audit:
    """Noise on an answer that is no sum over entries, in rounds or at once: the same bound.

    How far one entry moves the answer is the query's own proof; rounds add up (Dwork & Roth 2014,
    Section 3.5).
    """
    body = plan.body
    assert isinstance(body, Additive)
    moved = f"{significant(body.query.lipschitz)} {body.query.unit}"
    rounds = ", all rounds together," if isinstance(body, Rounds) else ""
    word = f"one entry moves the answer{rounds} by at most {moved}"
    return _bounded(plan, _Known(plan.mechanism, body.eta, word))


def _bound(plan: Plan, model: Model, eta: Fraction) -> float:
    """The least bound for any release that is eta-DP, or for noise on a sum over tied records."""
    least = entry_bound(model, plan.task.query, eta)
    body = plan.additive
    return least if body is None else min(least, model.noise_bound(body.query, body.noise))


def _bounded(plan: Plan, known: _Known) -> Audit:
    """Between nothing and the least bound for every release that is eta-DP for one entry."""
    task, guarantee = plan.task, plan.guarantee
    if not each_entry(task.secrets):
        raise Refused(
            f"the secrets are {task.secrets.describe()}; of this release only a bound for single "
            "entries is known"
        )
    eta = eta_above(known.eta)
    upper = max(_bound(plan, model, known.eta) for model in task.family)
    claim = (eta, eta) if guarantee.notion == "entry-dp" else (0.0, upper)
    return Audit(
        mechanism=known.name,
        asked=task.query.describe(),
        protected=task.secrets.describe(),
        notion=guarantee.notion,
        promised=float(guarantee.amount),
        claim=claim,
        lower=0.0,
        upper=upper,
        entry_level=eta,
        witness=None,
        assumptions=(*ASSUMED, known.word),
        not_checked=("what the release really tells: only sampling can say", *NOT_CHECKED),
    )
