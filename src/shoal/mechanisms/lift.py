"""The lift: any entry-level DP mechanism, made safe for a chain or a network. Proof: lift.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from shoal.core.charge import AsEntryDP
from shoal.core.codec import Value
from shoal.core.errors import InputError, Refused
from shoal.core.numbers import Number, positive, significant
from shoal.core.plan import Plan, Proof
from shoal.core.progress import OutOfTime, time_over
from shoal.core.registry import Shown
from shoal.core.task import (
    CUT,
    EachEntry,
    EntryLift,
    LiftedModel,
    Model,
    Query,
    Quilts,
    Secrets,
    Task,
    as_family,
    each_entry,
)
from shoal.mechanisms.plans import (
    CUT_SHORT,
    Measured,
    Mechanism,
    accepted_scale,
    entry_level,
    eta_above,
    float_below,
    keeps_total,
    least_error_noise,
    noisy_plan,
    task_guarantee,
)
from shoal.mechanisms.queries import ExternalQuery

NAME = "lift"
QUILT = "quilt"  # the rule of a bound that is the quilts'
NEARLY = ", nearly"  # ends the rule of a search among many states
STRETCHED = ", in stretches"  # and of one that bounds entries near each other together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiftCertificate(Proof):
    """The worst node and pair of each model; the smallest eta serves all."""

    kind = "lift-certificate"

    models: tuple[LiftedModel, ...]

    THEOREM: ClassVar[str] = (
        "the lift: what an entry-level DP release tells about one entry of a chain, summed "
        "over the entry, its future and its past, with a certified fixed point (lift.md)"
    )
    ABOUT_EVENTS: ClassVar[str] = (
        "the event lift: what an entry-level DP release tells about an event of a chain, from one "
        "entry on into its past and its future (chains/events/event_lift.md)"
    )
    ASSUMED: ClassVar[tuple[str, ...]] = (
        "each chain follows one of the family's laws; separate chains are independent",
        "the release is pure entry-level DP on every sequence, possible or not",
    )

    @property
    def theorem(self) -> str:
        """The theorem behind the certificate, with a note for every shortcut that cost some
        budget.
        """
        rules = {model.rule for model in self.models}
        sentence = self.ABOUT_EVENTS if "events" in rules else self.THEOREM
        if any(rule.removesuffix(CUT) == QUILT for rule in rules):
            sentence += (
                "; no fixed point was nearer than the bound of Markov quilts, which serves here"
            )
        if any(STRETCHED in rule for rule in rules):
            sentence += (
                "; to save work entries near each other are bounded together, so a little less "
                "noise may be enough"
            )
        if any(NEARLY in rule for rule in rules):
            sentence += "; among more than 64 states the search ends within .2 % of the budget"
        return sentence + CUT_SHORT if any(rule.endswith(CUT) for rule in rules) else sentence


def refuse(task: Task) -> str | None:
    """The lift needs entries of chains, networks or crowds, or events of chains, of given laws."""
    said = (model.lift_about(task.query, task.secrets) for model in task.family)
    return next((why for why in said if isinstance(why, str)), None)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Entry-level noise at the largest eta whose lift is at most ε under every model."""
    certificate, eta = certify_eta(task, task.query, epsilon)
    guarantee = task_guarantee(task, epsilon)

    def plan_of(scale: Fraction) -> Plan:
        return noisy_plan(task, NAME, guarantee, least_error_noise(task.query, scale), certificate)

    least = task.query.lipschitz / eta
    return plan_of(accepted_scale(NAME, lambda scale: loss(plan_of(scale)), least, epsilon))


def certify_eta(
    task: Task, query: Query | None, epsilon: Fraction
) -> tuple[LiftCertificate, Fraction]:
    """What every model of a task allows, with the metric of `query`, and the eta for all."""
    below = float_below(epsilon)
    models = tuple(
        lift_of_model(model, query, task.secrets).largest(below) for model in task.family
    )

    def loss_at(scale: Fraction) -> float:
        return _largest_loss(task, query, 1 / scale, epsilon)

    scale = accepted_scale(NAME, loss_at, 1 / Fraction(min(model.eta for model in models)), epsilon)
    return LiftCertificate(models=models), 1 / scale


def loss(plan: Plan) -> float:
    """The lift at eta = L / scale, the largest over the family."""
    return _largest_loss(plan.task, plan.task.query, entry_level(plan), plan.guarantee.amount)


def _largest_loss(task: Task, query: Query | None, eta: Fraction, epsilon: Fraction) -> float:
    at, enough = eta_above(eta), float_below(epsilon)
    return max(lift_of_model(model, query, task.secrets).loss(at, enough) for model in task.family)


def lift_of_model(model: Model, query: Query | None, secrets: Secrets) -> EntryLift:
    """The lift of a model for these secrets, or its refusal."""
    found = model.lift_about(query, secrets)
    if isinstance(found, str):
        raise Refused(f"{NAME} does not apply: {found}")
    return found


COST_TOLERANCE = 1e-6  # relative: how far a scale is lowered before its loss decides


def costs_more(task: Task, epsilon: Fraction, cost: float) -> bool:
    """Return whether the lift's plan has more noise than `cost`, by one evaluation of the lift.

    The lift grows with eta. Where it is above epsilon at the eta of Laplace noise that costs
    slightly less, no plan of the lift costs so little. False where noise adds up to 0.
    """
    query = task.query
    per_value = cost / len(query.labels)
    if keeps_total(query) or not 0 < per_value < math.inf:
        return False
    step = float(query.lattice)
    scale = Fraction(step / math.asinh(step / per_value) * (1 - COST_TOLERANCE))
    return _largest_loss(task, query, query.lipschitz / scale, epsilon) > epsilon


ROW = Mechanism(NAME, refuse, calibrate, loss, costs_more=costs_more)


# What an ordinary entry-level DP release really guarantees under a family of models.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leakage(Shown, Value):
    """The bound on what a release that is `eta`-DP for one entry tells about one entry.

    `per_model` holds the bound under each model of the family, `value` the largest; inf when no
    finite bound is proved.
    """

    kind = "leakage"

    eta: Fraction
    per_model: tuple[float, ...]

    @property
    def value(self) -> float:
        return max(self.per_model)

    @property
    def factor(self) -> float:
        """How many times weaker than it says the release is: value / eta."""
        return self.value / float(self.eta)

    def describe(self, secrets: Secrets | None = None) -> str:
        """The bound in a sentence; `secrets` are what it is about, single entries by default."""
        said = f"a release that is {significant(self.eta)}-DP for one entry"
        if secrets is not None and not each_entry(secrets):
            return self._describe_about(said, secrets)
        if not math.isfinite(self.value):
            return f"{said} has no finite bound under correlation: it may give any entry away"
        if self.value <= float(self.eta):
            return f"{said} keeps that: no dependence of this model makes it weaker"
        return (
            f"{said} is only {significant(self.value)}-private under correlation, "
            f"{significant(self.factor, 3)} times weaker: it may change the odds between two "
            f"values of an entry by a factor of {significant(math.exp(min(self.value, 700)), 3)} "
            f"instead of {significant(math.exp(min(float(self.eta), 700)), 3)}"
        )

    def _describe_about(self, said: str, secrets: Secrets) -> str:
        """Return in words how far `said` may change the odds about `secrets`: a factor and its
        epsilon.
        """
        if not math.isfinite(self.value):
            return f"{said} has no finite bound about {secrets.describe()}"
        return (
            f"{said} may change the odds by a factor of "
            f"{significant(math.exp(min(self.value, 700)), 3)} (epsilon = "
            f"{significant(self.value)}) about {secrets.describe()}"
        )


def leakage(
    family: Model | Sequence[Model], release: Number | Any, *, secrets: Secrets | None = None
) -> Leakage:
    """What a release really guarantees: its entry-level eta, converted by the lift.

    `release` is eta itself, or an OpenDP measurement. Sound for every entry-level DP mechanism,
    adaptive compositions included. Rounds up. `secrets` are single entries by default. Events of a
    chain are converted by the event lift; for named pairs of facts the bound is that of group
    privacy for all entries tied to a pair.
    """
    number = isinstance(release, Number)
    eta = positive(release, "eta") if number else entry_eta(release)
    asked = EachEntry() if secrets is None else secrets
    members = as_family(family)
    asked.check(members)
    return Leakage(eta=eta, per_model=tuple(_model_loss(model, asked, eta) for model in members))


def _model_loss(model: Model, secrets: Secrets, eta: Fraction) -> float:
    """The least proved bound for one model; group privacy is always one when entries are few."""
    tied = secrets.tied_under(model)
    together = math.inf if tied is None else eta_above(tied * eta)
    bounds: list[EntryLift | Quilts | str] = [model.lift_about(None, secrets)]
    if each_entry(secrets):
        bounds += [model.quilts(), model.mixing()]
    first = next((bound for bound in bounds if not isinstance(bound, str)), None)
    try:
        return together if first is None else min(together, first.loss(eta_above(eta)))
    except Refused:  # the model is too large for it
        return together


# Other libraries' mechanisms, lifted, and what must be known about them.


FACTORY_ROUNDING = 1e-9  # the factory is asked for this much less, so that its own rounding fits

# how far apart two data sets are that differ in one entry, by the input metric's name
ENTRY_DISTANCE = {
    "SymmetricDistance": 2,  # one row removed, one added
    "InsertDeleteDistance": 2,
    "HammingDistance": 1,
    "ChangeOneDistance": 1,
}


def lift(
    factory: Callable[[float], Callable[[list[Any]], Any]],
    family: Model | Sequence[Model],
    *,
    epsilon: Number,
    name: str = "external mechanism",
    secrets: Secrets | None = None,
) -> Plan:
    """A plan around `factory(eta)` at the largest eta whose lift is at most `epsilon`.

    `factory` makes a mechanism that is eta-DP for one entry, in pure DP and on every sequence; it
    is called once. An OpenDP measurement is checked to keep that eta; for any other callable
    the caller vouches for it. `secrets` are single entries by default; events of chains serve too.
    """
    if not callable(factory):
        raise InputError(
            f"factory is of type {type(factory).__name__}; give a function of eta that returns a "
            "mechanism"
        )
    members = as_family(family)
    states = next((model.states for model in members if model.states is not None), None)
    if states is None:
        raise InputError("no model of the family names its states; give at least one that does")
    task = Task(query=ExternalQuery(name, states), secrets=secrets or EachEntry(), family=members)
    budget = positive(epsilon, "epsilon")
    certificate, eta = certify_eta(task, None, budget)
    mechanism = factory(float(eta) * (1 - FACTORY_ROUNDING))
    _check_callable(mechanism, name)
    return Plan(
        mechanism=NAME,
        task=task,
        body=Measured(name, _refuse_excess(mechanism, eta, name), mechanism),
        cost=float("inf"),
        guarantee=task_guarantee(task, budget),
        certificate=certificate,
        composition=(AsEntryDP(eta),),
    )


def attach(plan: Plan, mechanism: Callable[[list[Any]], Any]) -> Plan:
    """`plan` with its external mechanism in place again; an OpenDP measurement is re-checked."""
    if not isinstance(plan.body, Measured):
        raise InputError(f"the plan of {plan.mechanism} holds no external mechanism to attach")
    _check_callable(mechanism, plan.body.name)
    _refuse_excess(mechanism, plan.body.eta, plan.body.name)
    return replace(plan, body=replace(plan.body, mechanism=mechanism))


def entry_eta(measurement: Any) -> Fraction:
    """The entry-level eta of an OpenDP measurement: its privacy map at one changed entry.

    One changed entry is distance 2 under SymmetricDistance and InsertDeleteDistance, 1 under
    HammingDistance and ChangeOneDistance. Refuses other metrics, and measures but MaxDivergence.
    """
    try:
        metric, measure = str(measurement.input_metric), str(measurement.output_measure)
    except AttributeError:
        raise InputError(
            f"{type(measurement).__name__} states no privacy map; give eta itself as a number"
        ) from None
    distance = ENTRY_DISTANCE.get(metric.split("(", maxsplit=1)[0])
    if distance is None:
        raise InputError(
            f"input metric is {metric}; it must be one of {sorted(ENTRY_DISTANCE)}, "
            "for which one changed entry has a known distance"
        )
    if not measure.startswith("MaxDivergence"):
        raise InputError(f"output measure is {measure}; the lift needs pure DP, MaxDivergence")
    return positive(Fraction(measurement.map(distance)), "eta of the measurement")


def _check_callable(mechanism: object, name: str) -> None:
    if not callable(mechanism):
        raise InputError(
            f"{name} is of type {type(mechanism).__name__}; it must be called with a list of "
            "entries and return its answer"
        )


def _refuse_excess(mechanism: Any, eta: Fraction, name: str) -> Fraction:
    """`eta`, refused when the mechanism's own privacy map exceeds it."""
    if hasattr(mechanism, "input_metric"):
        own = entry_eta(mechanism)
        if own > eta:
            raise InputError(
                f"{name} is {float(own):g}-DP for one entry; the lift allows {float(eta):g}: "
                "make the factory use the eta it is given"
            )
    return eta


# The one search for the largest eta whose loss stays within a budget.


LOSS_CLOSE = 1e-8  # relative distance of the loss to epsilon at which the last search stops
ROUGH = 0.02  # and the searches before it
FAILURES_BEFORE_LEAST = 2  # etas that fail before the least one tells whether any can serve
EVALUATIONS = 60  # evaluations of one search; the second half of them halve the bracket


class EtaBound(Protocol):
    """A loss, and the eta it was evaluated at."""

    @property
    def eta(self) -> float: ...
    @property
    def value(self) -> float: ...


Bound = TypeVar("Bound", bound=EtaBound)
LossOfEta = Callable[[float, Bound | None], Bound]  # an earlier result lends a guess


def largest_eta(
    stages: Sequence[LossOfEta[Bound]],
    epsilon: float,
    most: float,
    least: float,
    likely: float = np.inf,
    close: float = LOSS_CLOSE,
) -> Bound | None:
    """The loss at the largest eta found with loss(eta) ≤ epsilon, most ≥ eta ≥ least; else None.

    stages are losses from cheap to tight, each at most the one before and each increasing in
    eta: what a cheap one accepts the next accepts too. Every accepted eta was evaluated, so the
    answer rounds down; when the time is over it is the best so far. The search begins at `likely`,
    interpolates log loss in log eta and falls back on bisection; the last stage ends within `close`
    of epsilon.
    """
    best: Bound | None = None
    for place, loss in enumerate(stages):
        if best is not None and time_over():
            break
        if best is None:
            best = _first(loss, epsilon, max(min(most, likely), least), least)
        else:
            tighter = _in_time(loss, best.eta, best)
            best = best if tighter is None or tighter.value > best.value else tighter
        if best is not None:
            last = place == len(stages) - 1
            best = climb(loss, best, epsilon, most, close if last else ROUGH)
    return best


def _in_time(loss: LossOfEta[Bound], eta: float, start: Bound | None) -> Bound | None:
    """The loss, or None where the time is over before it is known."""
    try:
        return loss(eta, start)
    except OutOfTime:
        return None


def _first(loss: LossOfEta[Bound], epsilon: float, most: float, least: float) -> Bound | None:
    """A loss within epsilon, at the first of most, most/4, most/16, … that has one.

    A loss grows with eta. So after two failures the least eta is tried: where it fails, all do.
    """
    eta, failures = most, 0
    while eta >= least and not time_over():
        found = _in_time(loss, eta, None)
        if found is None or found.value <= epsilon:
            return found
        failures += 1
        if failures == FAILURES_BEFORE_LEAST and eta > least:
            smallest = _in_time(loss, least, None)
            if smallest is None or smallest.value > epsilon:
                return None
        eta = max(eta / 4.0, least) if eta > least else 0.0
    return None


def climb(
    loss: LossOfEta[Bound], found: Bound, epsilon: float, most: float, close: float = LOSS_CLOSE
) -> Bound:
    """The accepted loss nearest to epsilon, searched upwards from one that is accepted."""
    low, ceiling = found, most
    recent = [found]
    for attempt in range(EVALUATIONS):
        if low.value >= epsilon * (1.0 - close) or low.eta >= ceiling * (1.0 - close):
            break
        if time_over():
            break
        eta = _aim(recent, epsilon * (1.0 - close / 2.0)) if attempt < EVALUATIONS // 2 else 0.0
        if not low.eta < eta < ceiling:
            eta = float(np.sqrt(low.eta * ceiling))
        tried = _in_time(loss, eta, recent[-1])
        if tried is None:
            break
        recent = [*recent, tried][-2:] if np.isfinite(tried.value) else [low]
        if tried.value <= epsilon:
            low = tried
        else:
            ceiling = eta
    return low


def _aim(recent: Sequence[Bound], target: float) -> float:
    """Where the line through the last two losses, in logarithms, meets the target."""
    last = recent[-1]
    slope = 1.0
    if len(recent) > 1 and recent[0].value != last.value and recent[0].eta != last.eta:
        slope = float(np.log(last.value / recent[0].value) / np.log(last.eta / recent[0].eta))
    if last.value <= 0.0 or slope <= 0.0:
        return 0.0
    return float(last.eta * (target / last.value) ** (1.0 / slope))
