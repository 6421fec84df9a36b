"""Releases of which a bound for one entry is known and nothing else: what follows from that."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from shoal.additive.plans import Measured, Rounds, eta_above
from shoal.audit.bounds import entry_bound
from shoal.audit.result import ASSUMED, NOT_CHECKED, Audit
from shoal.core.errors import Refused
from shoal.core.numbers import significant
from shoal.core.plan import Additive, Plan
from shoal.core.task import Model, each_entry
from shoal.records.audit import means_bound
from shoal.records.ties import Dependence


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
    body = plan.body
    if isinstance(model, Dependence) and isinstance(body, Additive):
        least = min(least, means_bound(model, body.query, body.noise))
    return least


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
