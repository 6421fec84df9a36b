"""What a plan really leaks under its own task, computed, not sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from shoal.additive.choice import MECHANISMS, loss_as_drawn
from shoal.additive.plans import eta_above, keeps_total
from shoal.additive.queries import LinearQuery, linear
from shoal.additive.running import Running
from shoal.audit.bounds import learning_audit, least_upper
from shoal.audit.case import AuditCase
from shoal.audit.result import ASSUMED, NOT_CHECKED, Audit, Finding
from shoal.core.codec import kind_of
from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.numbers import Number, positive, significant
from shoal.core.plan import Additive, Plan
from shoal.core.progress import cut_short
from shoal.core.registry import Table, hook
from shoal.core.task import Model, Query, Secrets, Task, as_family
from shoal.networks.queries import VariableSum, per_variable
from shoal.noise.laplace import LatticeLaplace, is_zero_sum

Measure = TypeVar("Measure")

# kind of model to how the loss of additive noise on a linear query is measured under it
MODELS: Table[Callable[[AuditCase], Finding]] = Table(lambda family: family.models)
# kind of body to how a plan with it is measured
BODIES: Table[Callable[[Plan, bool], Audit]] = Table(lambda family: family.bodies)


def audit(plan: Plan, *, curve: bool = False, secrets: Secrets | None = None) -> Audit:
    """The true loss of `plan` under its task, or an interval for it, and whether its claim holds.

    Works on the plan alone: the query, the noise as it is drawn, the family and the secrets; what
    its mechanism says about itself serves as an upper bound only where nothing exact is known.
    With `curve` the densities behind the worst case are kept for a plot. With `secrets` it says
    what the same noise tells about something the plan makes no claim about: an event, say.
    """
    if not isinstance(plan, Plan):
        raise InputError(
            f"plan is a {type(plan).__name__}; audit takes a plan, as shoal.calibrate makes them "
            "(for noise added elsewhere: shoal.audit.audit_noise)"
        )
    if secrets is not None and secrets != plan.task.secrets:
        return _asked_about(plan, secrets, curve)
    return _measure(plan.body, BODIES, "bodies")(plan, curve)


def audit_noise(
    query: Query,
    secrets: Secrets,
    family: Model | Sequence[Model],
    *,
    scale: Number,
    claimed: Number | None = None,
    curve: bool = False,
) -> Audit:
    """What Laplace noise of `scale` on `query` leaks: "I added Lap(2) to this count".

    `claimed` is the epsilon somebody claims for it, if anybody does. Laplace noise on the real
    line and on any lattice that holds the answers have the same loss: the largest ratio is reached
    at an answer.
    """
    task = Task(query=query, secrets=secrets, family=as_family(family))
    body = Additive(query, LatticeLaplace(positive(scale, "scale"), query.lattice))
    promised = None if claimed is None else float(positive(claimed, "claimed"))
    return _noise_audit(f"Laplace noise of scale {scale}", task, body, promised, curve)


def _asked_about(plan: Plan, secrets: Secrets, curve: bool) -> Audit:
    """What the noise of a plan tells about other secrets than its own: no claim is held to it."""
    of_stream = hook("audit events", plan.body)
    if of_stream is not None:
        found: Audit = of_stream(plan, secrets)
        return found
    body = plan.additive
    if body is None or not isinstance(body.query, LinearQuery | VariableSum):
        raise Refused(
            f"a {plan.mechanism} plan adds no noise to a sum over entries; what it tells about "
            f"{secrets.subject} is not computed here"
        )
    task = Task(query=body.query, secrets=secrets, family=plan.task.family)
    measured = _noise_audit(plan.mechanism, task, body, None, curve)
    made = f"the noise was made for {plan.task.secrets.subject}"
    amount = significant(plan.guarantee.amount)
    return replace(measured, asked=f"{measured.asked}; {made}, epsilon = {amount}")


def _noise_audit(
    name: str, task: Task, body: Additive, promised: float | None, curve: bool
) -> Audit:
    found = _findings(task, body, math.inf, promised, curve)
    lower, upper, worst = _largest(found)
    return Audit(
        mechanism=name,
        asked=task.query.describe(),
        protected=task.secrets.describe(),
        notion=None if promised is None else task.secrets.notion,
        promised=promised,
        claim=(lower, upper),
        lower=lower,
        upper=upper,
        entry_level=eta_above(body.eta),
        witness=worst.witness,
        assumptions=ASSUMED,
        not_checked=(*_notes(found), *NOT_CHECKED),
    )


def additive_audit(plan: Plan, curve: bool) -> Audit:
    """What a plan that adds noise to a sum over entries leaks, under each of its models."""
    body = plan.additive
    assert body is not None
    if linear(body.query) is None and per_variable(body.query) is None:
        return learning_audit(plan, curve)
    guarantee = plan.guarantee
    task = replace(plan.task, query=body.query)  # what is released, whatever the task says
    promised = float(guarantee.amount)
    found = _findings(task, body, _own_bound(plan), promised, curve)
    lower, upper, worst = _largest(found)
    eta = eta_above(body.eta)
    claim = {
        "entry-dp": (eta, eta),
        "group": (max(lower, _grouped(task, eta)), max(upper, _grouped(task, eta))),
    }.get(guarantee.notion, (lower, upper))
    return Audit(
        mechanism=plan.mechanism,
        asked=body.query.describe(),
        protected=task.secrets.describe(),
        notion=guarantee.notion,
        promised=promised,
        claim=claim,
        lower=lower,
        upper=upper,
        entry_level=eta,
        witness=worst.witness,
        assumptions=ASSUMED,
        not_checked=(*_notes(found), *NOT_CHECKED),
    )


def running_audit(plan: Plan, curve: bool) -> Audit:
    """What a series in steps leaks: at least what one step does, at most the lift of all.

    One step is a sum over a chain of its entries, which is followed exactly.
    """
    body = plan.body
    assert isinstance(body, Running)
    whole = learning_audit(plan, curve)
    one, inner = Additive(body.query.query, body.noise), body.query.query
    family = tuple(replace(model, length=body.query.every) for model in plan.task.family)  # type: ignore[type-var]
    task = Task(query=inner, secrets=plan.task.secrets, family=family)
    lower, _, worst = _largest(_findings(task, one, whole.upper, None, curve))
    claim = whole.claim if plan.guarantee.notion == "entry-dp" else (lower, whole.claim[1])
    return replace(whole, lower=lower, claim=claim, witness=worst.witness)


def _own_bound(plan: Plan) -> float:
    """What the plan's own mechanism measures; inf unless that is a proof about what is released."""
    guarantee, body = plan.guarantee, plan.additive
    covers = guarantee.proved and guarantee.gives("pufferfish")
    same_query = body is not None and body.query == plan.task.query
    known = plan.mechanism in MECHANISMS
    try:
        return loss_as_drawn(plan) if covers and same_query and known else math.inf
    except PromiseBroken:
        return math.inf


def _findings(
    task: Task, body: Additive, known: float, promised: float | None, curve: bool
) -> list[Finding]:
    """One finding per member of the family."""
    named = all(hasattr(model, "variables") for model in task.family)
    if not isinstance(task.query, LinearQuery | VariableSum) or (
        isinstance(task.query, VariableSum) and not named
    ):
        raise Refused(f"the auditor measures sums over entries, not {task.query.describe()}")
    if is_zero_sum(body.noise) and not keeps_total(task.query):
        raise Refused(
            "the noise keeps the total of the answer, which is no public number for this query: "
            "the output tells it exactly, so no epsilon describes it"
        )
    return [
        _finding(
            AuditCase(task.query, body.noise, task.secrets, model, index, known, promised, curve)
        )
        for index, model in enumerate(task.family)
    ]


def _finding(setting: AuditCase) -> Finding:
    """What the model's own audit finds, with every bound at hand where rounding would decide."""
    found = _measure(setting.model, MODELS, "models")(setting)
    if not setting.close(found.upper):
        return found
    upper, notes = least_upper(setting, found.upper)
    return replace(found, upper=max(upper, found.lower), notes=(*found.notes, *notes))


def _largest(found: list[Finding]) -> tuple[float, float, Finding]:
    worst = max(found, key=lambda finding: finding.lower)
    return worst.lower, max(finding.upper for finding in found), worst


def _notes(found: list[Finding]) -> tuple[str, ...]:
    """What was left out, unless the interval is a point all the same."""
    open_ones = [finding for finding in found if not finding.exact]
    notes = [note for finding in open_ones for note in finding.notes]
    if open_ones and cut_short():
        notes.append("the time limit ended the search: with more time the interval may be narrower")
    return tuple(dict.fromkeys(notes))


def _grouped(task: Task, eta: float) -> float:
    """The group-level epsilon: all tied entries at once."""
    return math.inf if task.tied is None else task.tied * eta


def _measure(value: object, known: Table[Measure], what: str) -> Measure:
    """How a body or a model of this kind is measured; refused with the kinds that can be."""
    kind = kind_of(type(value))
    if kind not in known:
        raise Refused(
            f"the auditor has no way to measure {type(value).__name__}; it knows the {what} "
            f"{', '.join(known)}"
        )
    return known[kind]
