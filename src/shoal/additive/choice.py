"""The table of mechanisms, and the choice among its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real

from shoal.additive import (
    exact,
)
from shoal.additive.plans import Mechanism
from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.guarantee import Composition
from shoal.core.numbers import Number, positive
from shoal.core.plan import CONFIDENCE, Plan
from shoal.core.registry import Table
from shoal.core.shown import Shown
from shoal.core.task import Model, Query, Secrets, Task, as_family

# every row of every family; ties in cost go to the earlier row
MECHANISMS: Table[Mechanism] = Table(lambda family: family.rows)

LOSS_TOLERANCE = 1e-12  # relative; floating-point evaluations of a loss at its own calibration
NEGLIGIBLE = 2e-3  # relative; noise not worth the time of the rows that might save it


@dataclass(frozen=True, slots=True)
class Choice(Shown):
    """The plan chosen, and for every row its plan or the sentence of its refusal."""

    plan: Plan
    alternatives: dict[str, Plan | str]


def choose(task: Task, amount: Number, mechanism: str = "best", *, every: bool = True) -> Choice:
    """The plan of least cost that is proved and gives the notion the secrets ask for.

    With a row's name: that row's plan, whatever its standing. Refused with all reasons when
    nothing applies. `exact` is taken where no row saves .2 % of its noise; without `every`, rows
    known beforehand not to are left out, and their alternative is a sentence that says so.
    """
    amount = positive(amount, "amount")
    if not isinstance(task, Task):
        raise InputError(f"the task is of type {type(task).__name__}; make one with shoal.Task")
    if mechanism != "best":
        return Choice(calibrated(row_named(mechanism), task, amount), {})
    found = None if every else _without_hopeless(task, amount)
    if found is None:
        found = {name: _attempt(row, task, amount) for name, row in MECHANISMS.items()}
    notion = task.secrets.notion
    fit = [
        plan
        for plan in found.values()
        if isinstance(plan, Plan) and plan.guarantee.proved and plan.guarantee.gives(notion)
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
    return next((plan for plan in near if plan.cost <= best.cost * (1 + NEGLIGIBLE)), best)


def _without_hopeless(task: Task, amount: Fraction) -> Mapping[str, Plan | str | InputError] | None:
    """Every row but those that cannot have noticeably less noise than `exact`; None for no such.

    On a slow chain the least noise any row could promise is known before any of them is
    calibrated; where `exact` comes that near, no other row needs to be.
    """
    row = MECHANISMS.get(exact.NAME)
    least = None if row is None or _refusal(row, task) else exact.least_cost(task, amount)
    if row is None or least is None:
        return None
    found = _attempt(row, task, amount)
    if not isinstance(found, Plan) or found.cost > least * (1 + NEGLIGIBLE):
        return None
    left = f"not looked at: here it would not be noticeably below {exact.NAME}"
    return {
        name: found if name == exact.NAME else _refusal(other, task) or left
        for name, other in MECHANISMS.items()
    }


def _refusal(row: Mechanism, task: Task) -> str | None:
    """Why the row does not take the task, in a sentence even where asking it fails."""
    try:
        return row.refuse(task)
    except (Refused, InputError) as why:
        return str(why)


def _attempt(row: Mechanism, task: Task, amount: Fraction) -> Plan | str | InputError:
    """The row's plan, or why it has none: a row over its limits never ends the choice."""
    try:
        return calibrated(row, task, amount)
    except (Refused, PromiseBroken) as why:
        return str(why).removeprefix(f"{row.name} does not apply: ")
    except InputError as why:
        return why


def _kept(row: Mechanism, plan: Plan) -> Plan:
    """`plan`, its loss and its words held against what it draws."""
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


LARGEST = Fraction(999_000)


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
    return choose(task, positive(epsilon, "epsilon"), mechanism, every=False).plan


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

    def enough(epsilon: Fraction) -> bool:
        reached = choose(task, epsilon, mechanism, every=False).plan.error(confidence)
        if reached is None:
            raise Refused("this plan cannot state its error, so no budget can be derived from it")
        return reached.bound <= wanted

    if not enough(LARGEST):
        raise Refused(
            f"error {wanted:g} {query.unit} is out of reach even at epsilon = {float(LARGEST):g}; "
            "allow a larger error"
        )
    return _least_of_calibration(enough)


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


def _least_of_calibration(enough: Callable[[Fraction], bool]) -> Fraction:
    """The least budget of three significant digits at which `enough` holds; it is monotone."""
    grid = [
        Fraction(digits) * Fraction(10) ** power
        for power in range(-8, 4)
        for digits in range(100, 1000)
    ]
    low, high = 0, len(grid) - 1
    while low < high:
        middle = (low + high) // 2
        if enough(grid[middle]):
            high = middle
        else:
            low = middle + 1
    return grid[low]
