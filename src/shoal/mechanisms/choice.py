"""The table of mechanisms, and the choice among its rows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache
from numbers import Real
from typing import Any

import numpy as np

from shoal.core.charge import Composition
from shoal.core.codec import Floats
from shoal.core.errors import InputError, PromiseBroken, Refused, ShoalError
from shoal.core.family import out_of_scope
from shoal.core.numbers import Number, positive, significant
from shoal.core.plan import CONFIDENCE, Additive, Noise, Plan
from shoal.core.progress import no_time_limit, time_left, time_limit, told
from shoal.core.registry import Shown, Table, load
from shoal.core.task import Model, Query, Secrets, Task, as_family
from shoal.mechanisms import exact
from shoal.mechanisms.plans import Mechanism
from shoal.noise.primitives import SeededRng

# every row of every family; ties in cost go to the earlier row
MECHANISMS: Table[Mechanism] = Table(lambda family: family.mechanisms)

LOSS_TOLERANCE = 1e-12  # relative; floating-point evaluations of a loss at its own calibration
SHARE = 0.5  # of the time that is left: what each row may take in its turn
LEAST_TURN = 1e-3  # seconds; a row that is told at once that its time is over still may answer
NOISE_NOT_WORTH_TIME = 2e-3  # relative; noise not worth the time of the rows that might save it


@dataclass(frozen=True, slots=True)
class Choice(Shown):
    """The plan chosen, and for every row its plan or the sentence of its refusal."""

    plan: Plan
    alternatives: dict[str, Plan | str]


def choose(task: Task, amount: Number, mechanism: str = "best", *, prune: bool = False) -> Choice:
    """The plan of least cost that is proved and gives the notion the secrets ask for.

    With a row's name: that row's plan, whatever its standing. Refused with all reasons when
    nothing applies. `exact` is taken where no row saves .2 % of its noise; with `prune`, rows
    known beforehand not to are left out, and their alternative is a sentence that says so.
    """
    amount = positive(amount, "amount")
    if not isinstance(task, Task):
        raise InputError(f"the task is of type {type(task).__name__}; make one with shoal.Task")
    if mechanism != "best":
        return Choice(calibrated(row_named(mechanism), task, amount), {})
    found = _without_hopeless(task, amount) if prune else None
    if found is None:
        found = {}
        for number, name in enumerate(MECHANISMS):
            told(number, len(MECHANISMS))
            found[name] = _attempt(name, task, amount)
    notion = task.secrets.notion
    fit = [
        plan
        for plan in found.values()
        if isinstance(plan, Plan)
        and plan.guarantee.proved
        and plan.guarantee.gives(notion)
        and not MECHANISMS[plan.mechanism].narrows(task)
    ]
    alternatives = {name: p if isinstance(p, Plan) else str(p) for name, p in found.items()}
    if not fit:
        for why in found.values():
            if isinstance(why, InputError):
                raise why
        reasons = "; ".join(
            f"{name}: {why}" for name, why in alternatives.items() if isinstance(why, str)
        )
        raise Refused(f"no mechanism gives {notion} for this task ({reasons})")
    return Choice(_least(fit), alternatives)


def calibrated(row: Mechanism, task: Task, amount: Fraction) -> Plan:
    """The row's plan, its promise evaluated again before anybody sees it.

    A plan that says itself that it is not proved may fail: it is there to show by how much.
    """
    try:
        reason = row.refuse(task)
        if reason is not None:
            raise Refused(f"{row.name} does not apply: {reason}")
        return _kept(row, row.calibrate(task, amount))
    except (MemoryError, OverflowError):
        raise Refused(
            f"{row.name} does not apply: its computation needs more memory, or larger numbers, "
            "than there are"
        ) from None


def verify_promise(plan: Plan) -> float:
    """The loss of a finished plan, evaluated again from its task and what it draws. Rounds up.

    At most `plan.guarantee.amount`, up to 1e-12 of it, when the promise holds. inf when the plan
    draws something its mechanism does not speak about, or says something else about itself that is
    not so: what is protected, that it is proved, how it adds to others. `confirmed` tells which.
    """
    row = _row_of(plan)
    try:
        loss = _measured(row, plan)
        if not plan.guarantee.proved or loss <= _allowed(plan):  # else the number tells enough
            _check_words(row, plan)
    except (PromiseBroken, InputError):
        return math.inf
    return loss


def confirmed(plan: Plan) -> Plan:
    """`plan`, where all it says holds for what it draws; PromiseBroken tells what does not."""
    return _kept(_row_of(plan), plan)


def loss_as_drawn(plan: Plan) -> float:
    """What `verify_promise` measures, whatever else the plan says: for plans known to be broken."""
    return _measured(_row_of(plan), plan)


def composition_of(plan: Plan) -> tuple[Composition, ...]:
    """The rules that add `plan` to others, from its task and what it draws: its own are claims."""
    return _row_of(plan).rules(plan)


def row_named(name: object) -> Mechanism:
    """The row called `name`."""
    row = MECHANISMS.get(name) if isinstance(name, str) else None
    if row is None:
        raise InputError(f"mechanism is {name!r}; it must be 'best' or one of {list(MECHANISMS)}")
    return row


def _row_of(plan: Plan) -> Mechanism:
    if not isinstance(plan, Plan):
        raise InputError(
            f"the plan is of type {type(plan).__name__}; give what shoal.calibrate or shoal.loads "
            "returned"
        )
    return row_named(plan.mechanism)


def _least(fit: list[Plan]) -> Plan:
    """The plan of least cost; `exact` where it comes near, so that the choice is one and the same
    whether or not every row was looked at."""
    best = min(fit, key=lambda plan: plan.cost)
    near = (p for p in fit if p.mechanism == exact.NAME and p.cost <= best.cost * (1 + _let_be(p)))
    return next(near, best)


def _let_be(plan: Plan) -> float:
    """The share of the noise of an `exact` plan that is not worth looking at other rows for.

    Where the search for that plan was itself ended to save work, no less than it may have missed.
    """
    return max(NOISE_NOT_WORTH_TIME, exact.missed(plan))


def _without_hopeless(task: Task, amount: Fraction) -> dict[str, Plan | str | InputError] | None:
    """Every row but those that cannot have noticeably less noise than `exact`; None for no such.

    On a slow chain the least noise any row could promise is known before any of them is
    calibrated; where `exact` comes that near, no other row needs to be: but noise in steps, which
    is not Laplace noise.
    """
    row = MECHANISMS.get(exact.NAME)
    least = None if row is None or _refusal(row, task) else exact.least_cost(task, amount)
    if least is None:
        return None
    found = _attempt(exact.NAME, task, amount)
    if not isinstance(found, Plan) or found.cost > least * (1 + _let_be(found)):
        return None
    left = f"not looked at: here it would not be noticeably below {exact.NAME}"
    if _let_be(found) > NOISE_NOT_WORTH_TIME:
        left = f"not looked at: here it would save at most {_let_be(found):.1%} of the noise"
    looked_at = {exact.NAME: found, exact.STEPS_NAME: _attempt(exact.STEPS_NAME, task, amount)}
    return {
        name: looked_at.get(name)
        or out_of_scope(name, task)
        or _refusal(MECHANISMS[name], task)
        or left
        for name in MECHANISMS
    }


def _refusal(row: Mechanism, task: Task) -> str | None:
    """Why the row does not take the task, in a sentence even where asking it fails."""
    try:
        return row.refuse(task)
    except (Refused, InputError) as why:
        return str(why)


def _attempt(name: str, task: Task, amount: Fraction) -> Plan | str | InputError:
    """The row's plan, or why it has none: a row over its limits never ends the choice."""
    foreign = out_of_scope(name, task)
    if foreign is not None:
        return foreign
    row, left = MECHANISMS[name], time_left()
    try:
        with nullcontext() if left is None else time_limit(max(left * SHARE, LEAST_TURN)):
            return calibrated(row, task, amount)
    except (Refused, PromiseBroken) as why:
        return str(why).removeprefix(f"{row.name} does not apply: ")
    except InputError as why:
        return why


def _kept(row: Mechanism, plan: Plan) -> Plan:
    """`plan`, its loss and its words held against what it draws."""
    with no_time_limit():
        loss = _measured(row, plan)
    if plan.guarantee.proved and not loss <= _allowed(plan):
        raise PromiseBroken(
            f"{row.name} promised {float(plan.guarantee.amount):g} and its own check measures "
            f"{loss:g}; please report this task"
        )
    _check_words(row, plan)
    return plan


def _measured(row: Mechanism, plan: Plan) -> float:
    reason = row.refuse(plan.task)
    if reason is not None:
        raise PromiseBroken(f"{row.name} proves nothing about the task of this plan: {reason}")
    return row.loss(plan)


def _allowed(plan: Plan) -> float:
    return float(plan.guarantee.amount) * (1 + LOSS_TOLERANCE)


def _check_words(row: Mechanism, plan: Plan) -> None:
    """Refuse a plan that says more of itself than its row proves for what it draws."""
    said, true = plan.guarantee, row.promise(plan.task, plan.guarantee.amount)
    if (said.notion, said.over) != (true.notion, true.over) or said.proved > true.proved:
        raise PromiseBroken(
            f"the plan says: {said.describe()} Its mechanism {row.name} says: {true.describe()}"
        )
    holding = row.rules(plan)
    for rule in plan.composition:
        if not any(rule.follows(other) for other in holding):
            shown = "; or ".join(other.describe() for other in holding)
            raise PromiseBroken(
                f"the plan says that it {rule.describe()}; what {row.name} draws here {shown}"
            )


# From a task and a budget to a plan, and from a wanted accuracy to a budget.


# budgets of three significant digits, from 1e-6 to 999,000
BUDGETS = [
    Fraction(digits) * Fraction(10) ** power
    for power in range(-8, 4)
    for digits in range(100, 1000)
]
LARGEST, MIDDLE = BUDGETS[-1], BUDGETS.index(Fraction(1))


def calibrate(
    query: Query,
    secrets: Secrets,
    family: Model | Sequence[Model],
    *,
    epsilon: Number,
    mechanism: str = "best",
) -> Plan:
    """The plan with the least noise that is provably enough for `epsilon`."""
    task = as_task(query, secrets, family)
    return choose(task, positive(epsilon, "epsilon"), mechanism, prune=True).plan


def epsilon_for(
    query: Query,
    secrets: Secrets,
    family: Model | Sequence[Model],
    *,
    error: Number,
    confidence: float = CONFIDENCE,
    mechanism: str = "best",
) -> Fraction:
    """The least budget at which each value is within `error` with probability `confidence`.

    Rounded up to three significant digits; `calibrate` with it meets the wanted error.
    """
    wanted = float(positive(error, "error"))
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        raise InputError(f"confidence is {confidence}; it must be between 0 and 1")
    task = as_task(query, secrets, family)

    @cache
    def plan_at(place: int) -> Plan:
        return choose(task, BUDGETS[place], mechanism, prune=True).plan

    def enough(place: int) -> bool:
        found = plan_at(place).error(confidence)
        if found is None:
            raise Refused("this plan cannot state its error, so no budget can be derived from it")
        return found.bound <= wanted

    likely = MIDDLE
    for _ in range(2):  # the second guess is by the mechanism that is best near the answer
        likely = _likely_budget(plan_at(likely), BUDGETS[likely], confidence, wanted)
    found = _least_budget(enough, likely)
    if found is None:
        raise Refused(
            f"error {wanted:g} {query.unit} is out of reach even at epsilon = {float(LARGEST):g}; "
            "allow a larger error"
        )
    return found


def as_task(query: Query, secrets: Secrets, family: Model | Sequence[Model]) -> Task:
    """The task of three arguments; told in a sentence when they are in another order."""
    wrong = [
        f"{name} is of type {type(value).__name__}"
        for name, value, fits in (
            ("query", query, hasattr(query, "evaluate")),
            ("secrets", secrets, hasattr(secrets, "notion")),
            ("family", family, not hasattr(family, "evaluate") and not hasattr(family, "notion")),
        )
        if not fits
    ]
    if wrong:
        raise InputError(
            f"{' and '.join(wrong)}; give a query such as shoal.count(...), secrets such as "
            "shoal.EachEntry(), and one model or several, in this order"
        )
    return Task(query=query, secrets=secrets, family=as_family(family))


def _least_budget(enough: Callable[[int], bool], likely: int) -> Fraction | None:
    """The least of BUDGETS that is `enough`, which is monotone; None when none is.

    Looked for from `likely` on, in steps that double, then half way between what is too little and
    what is enough: where the guess is right, two budgets are tried.
    """
    low, high, step, place = -1, len(BUDGETS), 1, likely
    while high - low > 1:
        if enough(place):
            high, place = place, place - step
        else:
            low, place = place, place + step
        step *= 2
        if low >= 0 and high < len(BUDGETS):
            place = (low + high) // 2
        place = min(max(place, low + 1), high - 1)
    return BUDGETS[high] if high < len(BUDGETS) else None


def _likely_budget(plan: Plan, budget: Fraction, confidence: float, wanted: float) -> int:
    """The place in BUDGETS of the loss that the plan's noise has at the scale that is wanted.

    The scale follows from the error alone, and the loss at a scale is measured once, where finding
    the scale of a budget takes many such measurements. Without such a loss: the error goes as the
    inverse of the budget.
    """
    error = plan.error(confidence)
    loss = math.inf
    if plan.additive is not None and error is not None:
        scale = _widest(plan.additive.noise, confidence, wanted)
        noise = replace(plan.additive.noise, scale=scale)  # type: ignore[type-var]
        wider = replace(plan, body=Additive(plan.task.query, noise))
        with suppress(Refused, InputError, PromiseBroken):
            loss = row_named(plan.mechanism).loss(wider)
    if not 0 < loss < math.inf:
        off = 0.0 if error is None else error.bound
        loss = float(budget) * (off / wanted if 0 < off < math.inf else 1.0)
    return min(bisect_left(BUDGETS, loss), len(BUDGETS) - 1)


def _widest(noise: Noise, confidence: float, wanted: float) -> Fraction:
    """About the largest scale of such noise that stays within `wanted` with this confidence."""
    low, high = noise.scale / 10**9, noise.scale * 10**9
    for _ in range(40):
        middle = Fraction(math.sqrt(float(low) * float(high)))
        wider = replace(noise, scale=middle)  # type: ignore[type-var]
        low, high = (middle, high) if wider.quantile(confidence) <= wanted else (low, middle)
    return low


def standing(plan: Plan) -> str:
    """What a row's promise is worth for the task it was calibrated on."""
    wanted = plan.task.secrets.notion
    if not plan.guarantee.proved:
        return "claimed, not proved"
    if not plan.guarantee.gives(wanted):
        return f"{plan.guarantee.notion} only"
    return "proved, for one series" if MECHANISMS[plan.mechanism].narrows(plan.task) else "proved"


# Is a release worth making: its noise beside the range of the answer and beside the public model,
# of which a normal law with the answer's mean and variance is taken. A guide, not a promise.


USUAL = 1e-3, 20  # budgets beyond which something is said
SAMPLES, MOST_VARIABLES = 200, 2000  # outcomes of a network, and the largest that is drawn from
FAR_ABOVE_LEAST = 0.995  # above the least error, relatively: then the least itself is said
NORMAL = math.sqrt(2 / math.pi)  # mean distance from the mean, in standard deviations


@dataclass(frozen=True, slots=True)
class Usefulness:
    """What a plan's noise means for its answer, per value, in the query's unit.

    `error` is the mean error of a value, `spread` how far apart two answers can be at most (None:
    no limit is known), `prior_error` the mean error of somebody who guesses from the public model
    alone, for the value where that is largest and if the model is right (None: not known): on data
    of another law the guess is worse, and the release no worse. `warnings` are sentences.
    """

    error: float | None
    spread: float | None
    prior_error: float | None
    unit: str
    warnings: tuple[str, ...]

    @property
    def tells(self) -> bool:
        """Whether the release says more than the range and, if it is right, the model do."""
        if self.error is None:
            return True
        limits = [limit for limit in (self.spread, self.prior_error) if limit is not None]
        return all(self.error < limit for limit in limits)

    def describe(self) -> str:
        """How good it is, in a sentence; empty when nothing can be compared."""
        if self.error is None or (self.spread is None and self.prior_error is None):
            return ""
        parts = [f"a value is off by {significant(self.error, 3)} {self.unit} on average"]
        if self.prior_error is not None:
            guess = significant(self.prior_error, 3)
            parts.append(f"if the model is right, a guess from it alone is off by {guess}")
        if self.spread is not None:
            parts.append(f"answers can be {significant(self.spread, 3)} apart")
        return "; ".join(parts) + "."


@lru_cache(maxsize=256)
def usefulness(plan: Plan) -> Usefulness:
    """The noise of `plan` beside the range of its answer and its models' own guesses."""
    error = plan.error()
    expected = None if error is None else error.expected
    if hasattr(plan.body, "mean_error"):  # noise errs alike at every answer, a table does not
        expected = plan.body.mean_error(plan.task)
    spread = prior = None
    if error is not None:
        spread, guesses = _spread(plan), [_guess(plan, model) for model in plan.task.family]
        prior = max((guess for guess in guesses if guess is not None), default=None)
    unit = plan.task.query.unit
    words = _budget_words(plan), _noise_words(expected, spread, prior, unit)
    return Usefulness(expected, spread, prior, unit, tuple(filter(None, words)))


def cautions(plan: Plan) -> tuple[str, ...]:
    """The sentences of warning alone."""
    return usefulness(plan).warnings


def in_words(plan: Plan) -> tuple[str, str]:
    """How useful the plan is and what to be careful about, for `plan.explain()`."""
    found = usefulness(plan)
    parts = filter(None, (found.describe(), _beside_the_best(plan)))
    return " ".join(parts), " ".join(found.warnings)


def _beside_the_best(plan: Plan) -> str:
    """How far the error is from the least that any release of a small answer could have."""
    error, least = plan.error(), least_error(plan)
    if least is None or error is None:
        return ""
    worst = f"At the worst answer it is off by {significant(error.expected, 3)} {error.unit}"
    above = error.expected / least - 1 if least > 0 else math.inf
    if above < FAR_ABOVE_LEAST:
        above = max(math.ceil(100 * above), 1)
        return f"{worst}, within {above} % of the least any release of this answer could be."
    hint = exact.nearer_for_one_series(plan)
    return (
        f"{worst}; the least any release of this answer could be is {significant(least, 3)}.{hint}"
    )


@lru_cache(maxsize=256)
def least_error(plan: Plan) -> float | None:
    """A worst-case error that no release of this answer with this promise is below, proved.

    In the query's unit, beside `plan.error().expected`. None where it is not found at once.
    """
    if plan.error() is None or exact.refuse_table(plan.task) is not None:
        return None
    return load("shoal.mechanisms.optimal_table:least_known")(plan)  # type: ignore[no-any-return]


def _budget_words(plan: Plan) -> str | None:
    amount = float(plan.guarantee.amount)
    if plan.guarantee.notion == "delta-privacy" or USUAL[0] <= amount <= USUAL[1]:
        return None
    if amount < USUAL[0]:
        return (
            f"epsilon = {significant(amount)} is so small that hardly any answer survives its "
            "noise; 0.1 to 10 is usual."
        )
    odds = significant(math.exp(min(amount, 700.0)), 2)
    return (
        f"epsilon = {significant(amount)} lets the odds between two secrets change by a factor "
        f"of {odds}: next to nothing is protected; 0.1 to 10 is usual."
    )


def _noise_words(
    error: float | None, spread: float | None, prior: float | None, unit: str
) -> str | None:
    off = "" if error is None else f"{significant(error, 3)} {unit}"
    if error is not None and spread is not None and error >= spread / 2:
        return (
            f"The noise is as wide as the answer: a value is off by {off} on average, and no two "
            f"answers are more than {significant(spread, 3)} apart; ask for less, of more entries, "
            "or allow a larger epsilon."
        )
    if error is not None and prior is not None and error >= prior:
        return (
            f"If the model is right, this release says less than the model alone: it is off by "
            f"{off} on average, and a guess from the model by {significant(prior, 3)} where the "
            "data is as the model expects; release of more entries at once, or allow a larger "
            "epsilon."
        )
    return None


def _spread(plan: Plan) -> float | None:
    """How far apart two answers can be, for the value where it is most; None without a limit."""
    query: Any = plan.task.query
    low, high = getattr(query, "low", None), getattr(query, "high", None)
    if low is not None and high is not None:  # of a box its longest side
        ends = zip(low, high, strict=True) if isinstance(low, tuple) else [(low, high)]
        return max(float(b - a) for a, b in ends)
    if getattr(query, "variables", ()):  # a sum with weights of each variable
        return float(sum(max(row) - min(row) for row in query.weights))
    entries = _entries(plan)
    if entries is not None and hasattr(query, "edges"):  # bins of numbers: all in one, or none
        return float(entries)
    weights = _weights(query)
    if entries is None or weights is None:
        return None
    return float(entries * (weights.max(axis=0) - weights.min(axis=0)).max())


def _guess(plan: Plan, model: Any) -> float | None:
    """The mean error of a guess from one model; None where it gives no law of the answer."""
    entries, weights = _entries(plan), _weights(plan.task.query)
    of_sum, of_answer = (getattr(model, f"{name}_variance", None) for name in ("sum", "answer"))
    if of_sum is not None and entries is not None and weights is not None:
        return NORMAL * math.sqrt(float(of_sum(weights, entries).max()))
    if of_answer is not None:
        variance = of_answer(plan.task.query)
        return None if variance is None else NORMAL * math.sqrt(float(variance.max()))
    return _sampled(plan, model)


def _sampled(plan: Plan, model: Any) -> float | None:
    """The same from outcomes of a law of named variables, drawn with a fixed seed."""
    names = getattr(model, "variables", ())
    if not 0 < len(names) <= MOST_VARIABLES or not hasattr(model, "sample"):
        return None
    query, rng = plan.task.query, SeededRng(1)
    try:
        drawn = [query.evaluate(plan.task.read(list(model.sample(rng)))) for _ in range(SAMPLES)]
    except ShoalError:  # the query is not about one value of each variable
        return None
    answers = np.array(drawn, dtype=np.float64) * float(query.lattice)
    return float(np.abs(answers - np.median(answers, axis=0)).mean(axis=0).max())


def _weights(query: Query) -> Floats | None:
    rows, states = getattr(query, "weights", None), getattr(query, "states", ())
    states = () if getattr(query, "variables", ()) else states  # then rows are variables
    if not isinstance(rows, tuple) or not states or len(rows) != len(states):
        return None
    return np.array([[float(weight) for weight in row] for row in rows])


def _entries(plan: Plan) -> int | None:
    """The public number of entries: what a mean divides by, or the most a model covers."""
    length = getattr(plan.task.query, "length", None)
    if length is not None:
        return int(length)
    known = [size for model in plan.task.family if (size := _size(model)) is not None]
    return max(known) if len(known) == len(plan.task.family) else None


def _size(model: Any) -> int | None:
    """Entries of a series, records, or variables, where the model says how many there are."""
    known = (getattr(model, name, None) for name in ("length", "records"))
    variables = len(getattr(model, "variables", ())) or None
    return next((size for size in known if isinstance(size, int)), variables)
