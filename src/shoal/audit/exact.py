"""Exact audits: the loss of a plan under its own task, computed without sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice, permutations, product
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from shoal.audit.case import AuditCase, FiniteLoss, finite_loss
from shoal.audit.result import ASSUMED, LOSS_TOLERANCE, NOT_CHECKED, Audit, Finding, Witness
from shoal.core.codec import Floats, kind_of
from shoal.core.errors import InputError, PromiseBroken, Refused, ShoalError
from shoal.core.family import act_of
from shoal.core.numbers import Number, positive, significant
from shoal.core.plan import Additive, Plan
from shoal.core.progress import cut_short
from shoal.core.registry import Table
from shoal.core.task import (
    EachEntry,
    EntryLift,
    Model,
    Query,
    Quilts,
    Secrets,
    Task,
    as_family,
    each_entry,
)
from shoal.core.walk import Coded, Walk, backward, by_value, forward
from shoal.mechanisms.optimal_table import Tabulated
from shoal.mechanisms.person import each_person
from shoal.mechanisms.plans import (
    Measured,
    Rounds,
    eta_above,
    keeps_total,
    tied_entries,
    together,
)
from shoal.mechanisms.queries import LinearQuery, Running, linear
from shoal.mechanisms.table import MECHANISMS, loss_as_drawn
from shoal.mechanisms.variables import VariableSum, per_variable
from shoal.noise.laplace import LatticeLaplace, is_zero_sum

Measure = TypeVar("Measure")

# kind of model to how the loss of additive noise on a linear query is measured under it
MODELS: Table[Callable[[AuditCase], Finding]] = Table(lambda family: family.model_audits)
# kind of body to how a plan with it is measured
BODIES: Table[Callable[[Plan, bool], Audit]] = Table(lambda family: family.plan_audits)


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
    """Return the audit of Laplace noise of `scale` on `query`: "I added Lap(2) to this count".

    `claimed` is the epsilon claimed for it, None without a claim. Laplace noise on the real
    line and on any lattice that holds the answers have the same loss: the largest ratio is reached
    at an answer.
    """
    task = Task(query=query, secrets=secrets, family=as_family(family))
    body = Additive(query, LatticeLaplace(positive(scale, "scale"), query.lattice))
    promised = None if claimed is None else float(positive(claimed, "claimed"))
    return _noise_audit(f"Laplace noise of scale {scale}", task, body, promised, curve)


def _asked_about(plan: Plan, secrets: Secrets, curve: bool) -> Audit:
    """Return the audit of a plan's noise under other secrets than its own; it tests no claim."""
    of_stream = act_of("audit_events", plan.body)
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
    name: str,
    task: Task,
    body: Additive,
    promised: float | None,
    curve: bool,
    known: float = math.inf,
) -> Audit:
    """Return the audit of the noise `body` under `task`, the largest finding over its models.

    `promised` is the claimed epsilon (None: no claim), `known` an upper bound that is already
    certified. With `curve` the densities of the worst case are kept.
    """
    found = _findings(task, body, known, promised, curve)
    lower, upper, worst = _largest_finding(found)
    if each_person(task.secrets):  # what one entry tells is only a part of it
        upper = max(upper, _group_epsilon(task, eta_above(body.eta)))
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
    """Return the audit of a plan that adds noise to a sum over entries, over all its models."""
    body = plan.additive
    assert body is not None
    if linear(body.query) is None and per_variable(body.query) is None:
        return learning_audit(plan, curve)
    guarantee = plan.guarantee
    task = replace(plan.task, query=body.query)  # the body's query is the one released
    promised = float(guarantee.amount)
    found = _noise_audit(plan.mechanism, task, body, promised, curve, _own_bound(plan))
    eta, group = found.entry_level, _group_epsilon(task, found.entry_level)
    claim = {
        "entry-dp": (eta, eta),
        "group": (max(found.lower, group), max(found.upper, group)),
    }.get(guarantee.notion, found.claim)
    return replace(found, notion=guarantee.notion, claim=claim)


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
    lower, _, worst = _largest_finding(_findings(task, one, whole.upper, None, curve))
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


def _largest_finding(found: list[Finding]) -> tuple[float, float, Finding]:
    worst = max(found, key=lambda finding: finding.lower)
    return worst.lower, max(finding.upper for finding in found), worst


def _notes(found: list[Finding]) -> tuple[str, ...]:
    """What was left out, unless the interval is a point all the same."""
    open_ones = [finding for finding in found if not finding.exact]
    notes = [note for finding in open_ones for note in finding.notes]
    if open_ones and cut_short():
        notes.append("the time limit ended the search: with more time the interval may be narrower")
    return tuple(dict.fromkeys(notes))


def _group_epsilon(task: Task, eta: float) -> float:
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


# Upper bounds on what any release that is eta-DP for one entry tells, and audits by them alone.


VOUCHED = "the upper bound by itself: it is the mechanism's own evaluation of its promise"


def entry_bound(model: Model, query: Query | None, eta: Fraction) -> float:
    """The least of the bounds that apply to `model`; inf when none does.

    Group privacy, the lift, quilts, or mixing alone: each holds for every release that is eta-DP
    for one entry, for every query; the lift also uses how far apart two values of an entry
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
    if setting.known < own * (1 - LOSS_TOLERANCE):
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
    return _audit_any_release(plan, _Known(f"{plan.mechanism} of {body.name}", body.eta, word))


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
    return _audit_any_release(plan, _Known(plan.mechanism, body.eta, word))


def _bound(plan: Plan, model: Model, eta: Fraction) -> float:
    """The least bound for any release that is eta-DP, or for noise on a sum over tied records."""
    least = entry_bound(model, plan.task.query, eta)
    body = plan.additive
    return least if body is None else min(least, model.noise_bound(body.query, body.noise))


def _audit_any_release(plan: Plan, known: _Known) -> Audit:
    """Return the interval from 0 to the least bound that holds for every eta-DP release."""
    task, guarantee = plan.task, plan.guarantee
    eta, person = eta_above(known.eta), each_person(task.secrets)
    if not (person or each_entry(task.secrets)):
        raise Refused(
            f"the secrets are {task.secrets.describe()}; of this release only a bound for single "
            "entries is known"
        )
    if person:
        upper = eta_above(together(plan, tied_entries(task)))
    else:
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


# What a table of laws tells: every output looked at, in logarithms, under every model.
#
# By another method than the mechanism: series are followed forwards and backwards in logarithms,
# named variables outcome by outcome, each answer asked of the query itself.


LOG_RATIO_ROUNDING = 1e-12  # of one log-ratio, relative to its size and added to it


def tabulated_audit(plan: Plan, curve: bool) -> Audit:
    """The true loss of a table of laws, the largest over the family."""
    body, task = plan.body, plan.task
    assert isinstance(body, Tabulated)
    if not each_entry(task.secrets):
        raise Refused(
            f"the secrets are {task.secrets.describe()}; of a table of laws only what it tells of "
            "single entries is measured"
        )
    peaks = [_peak(body, model) for model in task.family]
    found = [peak._replace(output=int(body.answers[peak.output])) for peak in peaks]
    uppers = [peak.value + rounding(peak) for peak in found]
    level = math.inf if body.eta is None else eta_above(body.eta)
    return peaks_audit(plan, found, uppers, level)


def rounding(peak: FiniteLoss) -> float:
    """What rounding may have added to a log-ratio, or taken from it."""
    return LOG_RATIO_ROUNDING * (1.0 + abs(peak.value))


def peaks_audit(
    plan: Plan,
    peaks: Sequence[FiniteLoss],
    uppers: Sequence[float],
    entry_level: float,
    notes: Sequence[str] = (),
) -> Audit:
    """What is known of a release of one number whose most telling outputs were found.

    One peak per model, its output in lattice steps, and an upper bound of its loss.
    """
    task, body = plan.task, cast(Any, plan.body)
    query = body.query  # the body's query is the one released
    index = max(range(len(peaks)), key=lambda number: peaks[number].value)
    worst, upper = peaks[index], max(uppers)
    lower = max(worst.value - rounding(worst), 0.0)
    evidence = Witness(
        model=index,
        law=task.family[index].describe(),
        subject="the data",
        facts=(f"'{worst.facts[0]}'", f"'{worst.facts[1]}'"),
        labels=query.labels,
        output=(float(worst.output * query.lattice),),
        unit=query.unit,
        before=worst.before,
        after=worst.after,
        log_ratio=worst.value,
    )
    return Audit(
        mechanism=plan.mechanism,
        asked=query.describe(),
        protected=task.secrets.describe(),
        notion=plan.guarantee.notion,
        promised=float(plan.guarantee.amount),
        claim=(lower, upper),
        lower=lower,
        upper=upper,
        entry_level=entry_level,
        witness=evidence if worst.value > 0 else None,
        assumptions=ASSUMED,
        not_checked=(*dict.fromkeys(notes), *NOT_CHECKED),
    )


def _peak(body: Tabulated, model: Model) -> FiniteLoss:
    """Return the largest log-ratio of a table of laws between two values of an entry of `model`.

    Models with a walk use it. Other models are written out as a finite table, and Refused is raised
    when they are too large for that.
    """
    walk = model.walk()
    if not isinstance(walk, str):
        return _walk_peak(body, walk)
    table: Any = model.written_out()
    if isinstance(table, str):
        raise Refused(f"the auditor has no way to measure a table of laws here: {table}")
    laws = {a: np.array(row) / sum(row) for a, row in zip(body.answers, body.weights, strict=True)}
    release = [
        laws[body.query.evaluate(body.query.read(list(outcome)))[0]]
        for outcome in product(*table.domains)
    ]
    shape = (*table.probability.shape, len(body.answers))
    return finite_loss(table, np.array(release).reshape(shape), EachEntry())


def _walk_peak(body: Tabulated, walk: Walk) -> FiniteLoss:
    """The same for a series, of every size the table is for."""
    most = body.entries
    sizes = range(walk.order, most + 1) if body.shorter else [most]
    peaks = [_sized_peak(body, walk, entries) for entries in sizes]
    return max(peaks, key=lambda peak: peak.value)


def _sized_peak(body: Tabulated, walk: Walk, entries: int) -> FiniteLoss:
    """The same for a series of so many entries, output by output."""
    query = linear(body.query)
    if query is None or walk.initial is None:
        raise Refused("the auditor follows sums over series with one initial law")
    weights = np.array([row[0] for row in query.multiples()], dtype=np.int64)
    coded = Coded(walk, weights - weights.min())
    nodes = entries - walk.order + 1
    pasts = list(islice(forward(coded, walk.initial), nodes))
    nothing = np.zeros(coded.width(nodes))
    before = _by_entry(coded, pasts, nothing, entries)
    best = FiniteLoss(0.0)
    offset = int(weights.min()) * entries
    for place in range(len(body.answers)):
        log_likelihood = np.full(len(nothing), -math.inf)
        for answer, row in zip(body.answers, body.weights, strict=True):
            if 0 <= answer - offset < len(log_likelihood):  # others are answers of another size
                log_likelihood[answer - offset] = (
                    math.log(row[place] / sum(row)) if row[place] else -math.inf
                )
        after = _by_entry(coded, pasts, log_likelihood, entries)
        best = max(best, _steepest(walk, place, before, after), key=lambda peak: peak.value)
    return best


def _by_entry(coded: Coded, pasts: list[Floats], log_likelihood: Floats, entries: int) -> Floats:
    """Return log P(X_e = x, output) for every entry and value; -inf for impossible sums."""
    walk = coded.walk
    futures = list(backward(coded, len(pasts), log_likelihood))[::-1]
    states = [
        np.logaddexp.reduce(past + future, axis=1)
        for past, future in zip(pasts, futures, strict=True)
    ]
    rows = []
    for entry in range(entries):
        node, values = walk.place(entry)
        rows.append(by_value(states[node], values, len(walk.values)))
    return np.array(rows)


def _steepest(walk: Walk, place: int, before: Floats, after: Floats) -> FiniteLoss:
    """Return the largest change of log-odds between two values of one entry, and where it is.

    `before` and `after` (entries, values) hold logarithms. Impossible values are skipped. `place`
    is the index of the output.
    """
    best = FiniteLoss(-math.inf)
    whole = np.logaddexp.reduce(after, axis=1)
    for entry, (old, new) in enumerate(zip(before, after, strict=True)):
        for x, y in permutations(np.flatnonzero(old > -math.inf).tolist(), 2):
            if new[x] == -math.inf:
                continue
            gap = float((new[x] - old[x]) - (new[y] - old[y]))
            if gap > best.value:
                names = (f"X_{entry + 1} = {walk.values[x]}", f"X_{entry + 1} = {walk.values[y]}")
                beliefs = [math.exp(float(old[v])) for v in (x, y)]
                ratios = [math.exp(float(new[v] - whole[entry])) for v in (x, y)]
                best = FiniteLoss(
                    gap, names, place, (beliefs[0], beliefs[1]), (ratios[0], ratios[1])
                )
    return best
