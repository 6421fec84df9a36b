"""The exact loss of additive noise, and the smallest scale that meets it. Proof: exact.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar

from shoal.core.charge import AsEntryDP, Composition, Guarantee
from shoal.core.errors import InputError, Refused, ShoalError
from shoal.core.plan import Certificate, Plan, Proof
from shoal.core.progress import cut_short, time_left
from shoal.core.registry import load
from shoal.core.task import AnswerLaws, Model, Query, Task, each_entry
from shoal.core.walk import Walk
from shoal.mechanisms.mixture import NO_NOISE
from shoal.mechanisms.plans import (
    CUT_SHORT,
    Mechanism,
    accepted_scale,
    additive_body,
    below_rounding,
    entry_rules,
    float_below,
    keeps_total,
    laplace_body,
    laplace_plan,
    least_error_noise,
    noisy_plan,
    of_each,
    refuse_noise,
    task_guarantee,
)
from shoal.mechanisms.queries import linear
from shoal.noise.laplace import LatticeLaplace, is_zero_sum

NAME = "exact"
ASSUMED = (
    "the data follows one of the family's laws; separate chains are independent",
    "nothing else about the same data is released, or it is added up as entry-level DP",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactCertificate(Proof):
    """Per model: the least scale in lattice steps, and the window it was proved on.

    A window of None is the whole law; otherwise the entries on either side that were not held. 0
    where no window came down to what the lift with the metric of the query allows. `cut` says that
    a time limit ended the search: the scale is proved, and not the least. `above` is not 0 where
    the search was ended by its work instead: at most so much, relatively, above the least.
    """

    kind = "exact-certificate"

    scales: tuple[float, ...]
    windows: tuple[int | None, ...]
    cut: bool = field(default=False, metadata={"later": True})
    above: float = field(default=0.0, metadata={"later": True})

    THEOREM: ClassVar[str] = (
        "the exact loss of additive Laplace noise: its supremum over outputs is attained at "
        "a value the query can take, so it is a finite maximum (proof in exact.md)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = ASSUMED

    @property
    def theorem(self) -> str:
        if self.above:
            return f"{self.THEOREM}; at most {self.above:.2%} above the least scale, to save work"
        return self.THEOREM + CUT_SHORT if self.cut else self.THEOREM


def refuse(task: Task) -> str | None:
    """Exact losses need a sum over entries, and laws that can be followed."""
    number = as_number(task)
    said = (model.answer_laws(number.query, task.secrets) for model in task.family)
    return next((why for why in said if isinstance(why, str)), None)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of the smallest scale whose exact loss is at most ε under every model."""
    return (_calibrate_cached if time_left() is None else _calibrate_cached.__wrapped__)(
        task, epsilon
    )


@lru_cache(maxsize=2)  # rows that ask what this one takes are tried on the same task
def _calibrate_cached(task: Task, epsilon: Fraction) -> Plan:
    """Return the plan of the least noise scale that the exact loss of every model allows.

    Refused when a model has no finite scale. The scale is rounded up to one that the re-check
    accepts. The last two results are kept.
    """
    number = as_number(task)
    results = [laws.least_scale(float_below(epsilon)) for laws in _model_answer_laws(number)]
    for found in results:
        if not math.isfinite(found.scale):
            raise Refused(f"{NAME} does not apply: {found.reason or below_rounding(epsilon)}")
    certificate = ExactCertificate(
        scales=tuple(found.scale for found in results),
        windows=tuple(found.window for found in results),
        cut=cut_short(),
        above=max(found.above for found in results),
    )
    steps = max(found.scale for found in results)
    guarantee = task_guarantee(task, epsilon)

    def plan_of(scale: Fraction) -> Plan:
        return number_plan(task, NAME, guarantee, scale, certificate)

    least = Fraction(steps) * number.query.lattice
    return plan_of(accepted_scale(NAME, lambda scale: loss(plan_of(scale)), least, epsilon))


def loss(plan: Plan) -> float:
    """The exact loss of the noise as drawn, the largest over the family."""
    task, noise = plan.task, additive_body(plan).noise
    scale = noise.scale
    if is_zero_sum(noise):
        task, scale = as_number(task), scale / 2
        if len(task.query.labels) > 1:
            return math.inf  # the loss of noise that adds up to 0 is known for two bars only
    if any(isinstance(m.answer_laws(task.query, task.secrets), str) for m in task.family):
        return math.inf
    steps = float_below(scale / task.query.lattice)
    enough = float_below(plan.guarantee.amount)
    evaluate = _loss_at if time_left() is None else _loss_at.__wrapped__
    return evaluate(task, steps, enough)


@lru_cache(maxsize=1)  # the scale a calibration has just accepted is the one looked at again
def _loss_at(task: Task, steps: float, enough: float) -> float:
    return max(laws.loss(steps, enough) for laws in _model_answer_laws(task))


def _model_answer_laws(task: Task) -> list[AnswerLaws]:
    return of_each(task.family, NAME, lambda model: model.answer_laws(task.query, task.secrets))


def as_number(task: Task) -> Task:
    """The task of one number that two bars with a public total are; any other task as it is.

    Bars (c, S·n - c) of n entries, n public, and c tell each other (exact.md, Claim 10).
    """
    query = linear(task.query)
    if query is None or len(query.labels) != 2 or not keeps_total(query):
        return task
    weights = tuple(row[:1] for row in query.weights)
    return replace(task, query=replace(query, labels=query.labels[:1], weights=weights))


def number_plan(
    task: Task, mechanism: str, guarantee: Guarantee, scale: Fraction, certificate: Certificate
) -> Plan:
    """A plan that adds Laplace noise of `scale` to the number `as_number` has, or to every value.

    Of two bars one gets the noise and the other its negative: Laplace noise of twice the scale on
    each, given that it adds up to 0.
    """
    if as_number(task) is task:
        return laplace_plan(task, mechanism, guarantee, scale, certificate)
    return noisy_plan(
        task, mechanism, guarantee, least_error_noise(task.query, 2 * scale), certificate
    )


def relative_excess(plan: Plan) -> float:
    """How far the noise of an `exact` plan may be above the least, relatively; 0 if settled."""
    return 1.01 * float(getattr(plan.certificate, "above", 0.0))  # costs grow a little faster


@lru_cache(maxsize=4)  # asked again for every other mechanism of a choice
def least_cost(task: Task, epsilon: Fraction) -> float | None:
    """A cost below which no Laplace noise keeps the promise ε on `task`; None where unknown.

    What outputs beyond all answers tell (exact.md, Claim 9), for one number on slow chains:
    quick, and true of every row that adds Laplace noise.
    """
    number = as_number(task)
    if len(number.query.labels) > 1:
        return None
    scales = [laws.floor(float_below(epsilon)) for laws in _model_answer_laws(number)]
    steps = max((scale for scale in scales if scale is not None), default=0.0)
    if None in scales or not 0 < steps < math.inf:
        return None
    lattice = number.query.lattice
    noise = LatticeLaplace(scale=Fraction(steps) * lattice, step=lattice)
    return noise.expected_error() * len(task.query.labels)


ROW = Mechanism(NAME, refuse, calibrate, loss)


# The Wasserstein Mechanism: how far the answer's law moves with the secret. Proof: wasserstein.md.


WASSERSTEIN = "wasserstein"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WassersteinCertificate(Proof):
    """Per model the distance W in lattice steps; the promise is re-certified by the exact loss."""

    kind = "wasserstein-certificate"

    distances: tuple[float, ...]

    THEOREM: ClassVar[str] = (
        "the Wasserstein Mechanism (Song, Wang & Chaudhuri 2017, Theorem 3.2), its numerical "
        "tolerance covered by the exact loss"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = ASSUMED


def refuse_wasserstein(task: Task) -> str | None:
    """W∞ needs whole laws: chains of a given length, or tables."""
    reason = refuse(task)
    if reason is not None:
        return reason.replace("exact loss", "Wasserstein distance")
    said = (laws.no_distance() for laws in _model_answer_laws(as_number(task)))
    return next((why for why in said if why is not None), None)


def calibrate_wasserstein(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale W/ε, raised to the exact scale where W's tolerance hid a tail."""
    number = as_number(task)
    distances = tuple(laws.distance() for laws in _model_answer_laws(number))
    certificate = WassersteinCertificate(distances=distances)
    lattice = number.query.lattice
    scale = max(Fraction(max(distances)) * lattice / epsilon, lattice / int(NO_NOISE))
    guarantee = task_guarantee(task, epsilon)
    plan = number_plan(task, WASSERSTEIN, guarantee, scale, certificate)
    if loss(plan) <= float(epsilon):  # W∞ itself is only as good as its tolerance
        return plan
    enough = laplace_body(calibrate(number, epsilon)).noise.scale

    def plan_of(at: Fraction) -> Plan:
        return number_plan(task, WASSERSTEIN, guarantee, at, certificate)

    least = max(scale, enough)
    return plan_of(accepted_scale(WASSERSTEIN, lambda at: loss(plan_of(at)), least, epsilon))


WASSERSTEIN_ROW = Mechanism(
    WASSERSTEIN, refuse_wasserstein, calibrate_wasserstein, loss, beaten_by=lambda task: (NAME,)
)


# Tables of laws: which tasks one is made for. How it is made: optimal_table.py, read only then.


TABLE = "optimal-table"
MAX_ENTRIES_OF_SHORTER_TABLE = 20  # a table for every size takes about a second to make
MAX_ANSWERS = 33  # programs over more answers take more than a second or so
MAX_OUTCOMES = 2**14  # of a table that is gone through outcome by outcome


def refuse_table(task: Task) -> str | None:
    """A table needs one number with few answers, single entries as secrets, and laws to list."""
    reason = refuse_noise(task)
    if reason is None and not each_entry(task.secrets):
        reason = "a table of laws is made to hide the values of single entries"
    if reason is None:
        reason = _not_written_out(task)
    return refuse(task) if reason is None else reason


def refuse_table_plan(task: Task) -> str | None:
    """Return why no table is made for `task`, from its shape alone; None where one is made."""
    reason = refuse_table(task)
    if reason is None and narrows(task):
        entries = max(len(answer_steps(model, task.query)) for model in task.family)
        if entries > MAX_ENTRIES_OF_SHORTER_TABLE:
            reason = (
                f"the data may have fewer than {entries} entries, and a table for every size is "
                f"made for up to {MAX_ENTRIES_OF_SHORTER_TABLE}; where data always has {entries}, "
                "give the chain exactly = True"
            )
    return reason


def narrows(task: Task) -> bool:
    """Return whether every model covers shorter data and several series: a table is for one."""
    walks = [model.walk() for model in task.family]
    return all(not isinstance(walk, str) and not walk.fixed for walk in walks)


def _not_written_out(task: Task) -> str | None:
    """Why the laws of the answer are not written out, from the shape of the task alone."""
    if len(task.query.labels) > 1:
        return "a table of laws is made for one number, not for several at once"
    try:
        steps = [answer_steps(model, task.query) for model in task.family]
    except (Refused, InputError) as why:
        return str(why)
    if any(own != steps[0] for own in steps[1:]):
        return "the models are about data of different sizes, and a table is for one"
    found = answer_sums(steps[0])
    if found is None:
        return (
            f"the answer can take more than {MAX_ANSWERS} values over {len(steps[0])} entries; a "
            "table of laws is made for fewer"
        )
    return None


Steps = tuple[tuple[int, ...], ...]  # for every entry, what each of its values adds


def answer_steps(model: Model, query: Query) -> Steps:
    """What every value of every entry adds to the answer, in lattice steps."""
    walk = walk_of(model)
    if walk is None:
        return _named_steps(model, query)
    asked = linear(query)
    if asked is None:
        raise Refused("a table of laws is made for sums over entries only")
    nodes = walk.cut_to_length(query).length
    if nodes is None:
        raise Refused("a table of laws needs series of one length, and the model covers any")
    own = tuple(row[0] for row in asked.multiples())
    entries = nodes + walk.order - 1
    if (max(own) - min(own)) and entries > MAX_ANSWERS:
        raise Refused(
            f"series of {entries} entries have more than {MAX_ANSWERS} answers; a table of laws is "
            "made for fewer"
        )
    return (own,) * entries


def walk_of(model: Model) -> Walk | None:
    """The walk with one initial law that a model is; None where it does not move in time."""
    walk = model.walk()
    if isinstance(walk, str):
        return None
    if walk.initial is None:
        raise Refused("a table of laws needs one initial law, and the model has every one")
    return walk


def _named_steps(model: Any, query: Query) -> Steps:
    """The same for named variables, by changing one at a time."""
    domains = getattr(model, "domains", None)
    if domains is None:
        raise Refused(
            "a table of laws is made for series, tables, networks and contagion, not "
            f"{model.describe()}"
        )
    if len(domains) < 2 or math.prod(map(len, domains)) > MAX_OUTCOMES:
        raise Refused(
            f"a table of laws is made for 2 variables or more with at most {MAX_OUTCOMES} outcomes "
            "together"
        )
    first = [domain[0] for domain in domains]
    try:
        none = query.evaluate(query.read(first))[0]
        changed = [
            tuple(
                query.evaluate(query.read([*first[:v], value, *first[v + 1 :]]))[0] - none
                for value in domain
            )
            for v, domain in enumerate(domains)
        ]
    except ShoalError as why:
        raise Refused(f"the query is not about one value of each variable: {why}") from None
    return (tuple(none + step for step in changed[0]), *changed[1:])


def answer_sums(steps: Steps) -> tuple[int, ...] | None:
    """All sums of one step per entry, in increasing order; None where there are too many."""
    found = {0}
    for own in steps:
        found = {total + step for total in found for step in set(own)}
        if len(found) > MAX_ANSWERS:
            return None
    return tuple(sorted(found))


def _asked_of(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is read when it is first asked."""

    def ask(*given: Any) -> Any:
        return load(f"shoal.mechanisms.{module}:{name}")(*given)

    return ask


_table = partial(_asked_of, "optimal_table")
TABLE_ROW = Mechanism(
    TABLE,
    refuse_table_plan,
    _table("calibrate"),
    _table("loss"),
    rules=_table("rules"),
    narrows=narrows,
)


def nearer_for_one_series(plan: Plan) -> str:
    """What `explain` adds where a table of laws errs less than `plan`, on one series alone."""
    if plan.mechanism == TABLE or not TABLE_ROW.narrows(plan.task):
        return ""
    return (
        f" Where the data is one series, mechanism {TABLE} comes nearer; where it also always has "
        "the same number of entries, give the chain exactly = True."
    )


# Noise in steps on one number. Proof: steps.md; its code is read only where it is asked for.


STEPS_NAME = "steps"
# budgets below which no law in steps was seen to save a twentieth, and beyond which next to no
# noise is needed
SEARCHED = Fraction(6, 5), 30


def refuse_steps(task: Task) -> str | None:
    """Return why noise in steps cannot serve a task, None when it can.

    It needs one number, single entries as secrets, and the law of the answer value by value.
    """
    if len(task.query.labels) > 1:
        return "noise in steps is added to one number, not to several at once"
    if not each_entry(task.secrets):
        return f"noise in steps is made to hide single entries, not {task.secrets.subject}"
    reason = refuse_noise(task) or refuse(task)
    if reason is None and not all(hasattr(laws, "lines") for laws in _model_answer_laws(task)):
        return "noise in steps needs the law of the answer value by value, too much for this model"
    return reason


def calibrate_steps(task: Task, epsilon: Fraction) -> Plan:
    """Noise in steps where a law was found that saves enough; else the very noise of `exact`."""
    even = calibrate(task, epsilon)
    low, high = SEARCHED
    found = _in_steps("stepped_plan")(task, epsilon, even) if low <= epsilon <= high else None
    return found or replace(even, mechanism=STEPS_NAME)


def loss_steps(plan: Plan) -> float:
    """The exact loss of what is drawn."""
    return loss(plan) if plan.additive is not None else float(_in_steps("loss")(plan))


def rules_steps(plan: Plan) -> tuple[Composition, ...]:
    """Entry-level DP of what is drawn."""
    if plan.additive is not None:
        return entry_rules(plan)
    return (AsEntryDP(_in_steps("stepped_body")(plan).eta),)


_in_steps = partial(_asked_of, "steps")
STEPS_ROW = Mechanism(STEPS_NAME, refuse_steps, calibrate_steps, loss_steps, rules=rules_steps)
