"""The table of mechanisms, and the choice among its rows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from numbers import Real

from shoal.additive import (
    exact,
)
from shoal.additive.plans import Mechanism
from shoal.core.charge import Composition
from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.numbers import Number, positive
from shoal.core.plan import CONFIDENCE, Additive, Noise, Plan
from shoal.core.progress import no_time_limit, time_left, time_limit, told
from shoal.core.registry import Shown, Table, stranger
from shoal.core.task import Model, Query, Secrets, Task, as_family

# every row of every family; ties in cost go to the earlier row
MECHANISMS: Table[Mechanism] = Table(lambda family: family.rows)

LOSS_TOLERANCE = 1e-12  # relative; floating-point evaluations of a loss at its own calibration
SHARE = 0.5  # of the time that is left: what each row may take in its turn
LEAST_TURN = 1e-3  # seconds; a row that is told at once that its time is over still may answer
NEGLIGIBLE = 2e-3  # relative; noise not worth the time of the rows that might save it


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
        found = {name: _attempt(name, task, amount) for name in _counted_rows()}
    notion = task.secrets.notion
    fit = [
        plan
        for plan in found.values()
        if isinstance(plan, Plan)
        and plan.guarantee.proved
        and plan.guarantee.gives(notion)
        and not MECHANISMS[plan.mechanism].narrows(task)
    ]
    alternatives = {
        name: plan if isinstance(plan, Plan) else str(plan) for name, plan in found.items()
    }
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
    near = [plan for plan in fit if plan.mechanism == exact.NAME]
    return next((plan for plan in near if plan.cost <= best.cost * (1 + _let_be(plan))), best)


def _let_be(plan: Plan) -> float:
    """The share of the noise of an `exact` plan that is not worth looking at other rows for.

    Where the search for that plan was itself ended to save work, no less than it may have missed.
    """
    return max(NEGLIGIBLE, exact.missed(plan))


def _counted_rows() -> Iterator[str]:
    """The name of every row, telling how many are done."""
    for number, name in enumerate(MECHANISMS):
        told(number, len(MECHANISMS))
        yield name


def _without_hopeless(task: Task, amount: Fraction) -> Mapping[str, Plan | str | InputError] | None:
    """Every row but those that cannot have noticeably less noise than `exact`; None for no such.

    On a slow chain the least noise any row could promise is known before any of them is
    calibrated; where `exact` comes that near, no other row needs to be.
    """
    row = MECHANISMS.get(exact.NAME)
    least = None if row is None or _refusal(row, task) else exact.least_cost(task, amount)
    if row is None or least is None:
        return None
    found = _attempt(exact.NAME, task, amount)
    if not isinstance(found, Plan) or found.cost > least * (1 + _let_be(found)):
        return None
    left = f"not looked at: here it would not be noticeably below {exact.NAME}"
    if _let_be(found) > NEGLIGIBLE:
        left = f"not looked at: here it would save at most {_let_be(found):.1%} of the noise"
    return {
        name: found if name == exact.NAME else _refused(name, task) or left for name in MECHANISMS
    }


def _refused(name: str, task: Task) -> str | None:
    return stranger(name, task) or _refusal(MECHANISMS[name], task)


def _refusal(row: Mechanism, task: Task) -> str | None:
    """Why the row does not take the task, in a sentence even where asking it fails."""
    try:
        return row.refuse(task)
    except (Refused, InputError) as why:
        return str(why)


def _attempt(name: str, task: Task, amount: Fraction) -> Plan | str | InputError:
    """The row's plan, or why it has none: a row over its limits never ends the choice."""
    foreign = stranger(name, task)
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
        try:
            loss = row_named(plan.mechanism).loss(
                replace(plan, body=Additive(plan.task.query, noise))
            )
        except (Refused, InputError, PromiseBroken):
            loss = math.inf
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
    narrow = MECHANISMS[plan.mechanism].narrows(plan.task)
    return "proved, for one size of data" if narrow else "proved"
