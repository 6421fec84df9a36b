"""The choice among mechanisms: the plan of least cost that is proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.family import out_of_scope
from shoal.core.numbers import Number, positive
from shoal.core.plan import Plan
from shoal.core.progress import cut_short, report_progress, time_left, time_limit
from shoal.core.registry import Shown
from shoal.core.task import Model, Query, Secrets, Task, as_family
from shoal.mechanisms import exact, table
from shoal.mechanisms.plans import Mechanism
from shoal.mechanisms.table import calibrate_and_check, row_named

SHARE = 0.5  # of the time that is left: what each row may take in its turn
LEAST_TURN = 1e-3  # seconds; a mechanism whose time is over at once may still answer from caches
NOISE_NOT_WORTH_TIME = 2e-3  # relative; noise not worth the time of the rows that might save it


Found = Plan | str | InputError  # a plan, or why there is none


@dataclass(frozen=True, slots=True)
class Choice(Shown):
    """The plan chosen, and for every row its plan or the sentence of its refusal."""

    plan: Plan
    alternatives: dict[str, Plan | str]


def choose(task: Task, amount: Number, mechanism: str = "best", *, prune: bool = False) -> Choice:
    """The plan of least cost that is proved and gives the notion the secrets ask for.

    With a row's name: that row's plan, of any standing. Refused with all reasons when
    nothing applies. `exact` is taken where no row saves .2 % of its noise. With `prune` the plan is
    the same, and mechanisms that cannot win are not calibrated: their alternative is a sentence.
    """
    amount = positive(amount, "amount")
    if not isinstance(task, Task):
        raise InputError(f"the task is of type {type(task).__name__}; make one with shoal.Task")
    if mechanism != "best":
        return Choice(calibrate_and_check(row_named(mechanism), task, amount), {})
    if prune:
        found = _contenders(task, amount)
    else:
        found = {}
        for number, name in enumerate(table.MECHANISMS):
            report_progress(number, len(table.MECHANISMS))
            found[name] = _plan_or_refusal(name, task, amount)
    notion = task.secrets.notion
    fit = [plan for plan in found.values() if isinstance(plan, Plan) and fits(plan, task)]
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


def as_task(query: Query, secrets: Secrets, family: Model | Sequence[Model]) -> Task:
    """The task of three arguments; refused in a sentence when they are in another order."""
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
    return max(NOISE_NOT_WORTH_TIME, exact.relative_excess(plan))


def fits(plan: Plan, task: Task) -> bool:
    """Return whether the plan is proved, gives what the secrets ask for, and covers all data."""
    promise = plan.guarantee
    covers = not table.MECHANISMS[plan.mechanism].narrows(task)
    return promise.proved and promise.gives(task.secrets.notion) and covers


def _contenders(task: Task, amount: Fraction) -> dict[str, Found]:
    """Return the plan of every mechanism that may be the best one, and for others why not.

    All refusals that need no calibration come first. Then mechanisms are calibrated in the order
    of the table, unless one of them is known to have as little noise.
    """
    rows = table.MECHANISMS
    found: dict[str, Found] = {}
    for name in rows:
        why: str | InputError | None = out_of_scope(name, task)
        if why is None and not rows[name].beaten_by(task):
            why = _refusal(rows[name], task)
        if why is not None:
            found[name] = why
    for number, name in enumerate(rows):
        report_progress(number, len(rows))
        if name not in found:
            found[name] = _reason_to_skip(rows[name], task, amount, found) or _plan_or_refusal(
                name, task, amount
            )
    return {name: found[name] for name in rows}


def _reason_to_skip(
    row: Mechanism, task: Task, amount: Fraction, found: Mapping[str, Found]
) -> str | None:
    """Return why the row need not be calibrated beside what was found so far; None if it must."""
    by_name = "; ask for it by name"
    if row.narrows(task):
        return f"not calibrated: its plan would cover only part of the data{by_name}"
    winner = next((name for name in row.beaten_by(task) if _has_plan(found.get(name))), None)
    if winner is not None:
        return f"not calibrated: it never needs less noise than {winner}{by_name}"
    fit = [plan for plan in found.values() if isinstance(plan, Plan) and fits(plan, task)]
    near = next((plan for plan in fit if plan.mechanism == exact.NAME), None)
    if near is not None and row.name != exact.STEPS_NAME and _is_least(near, task, amount):
        if _let_be(near) > NOISE_NOT_WORTH_TIME:
            return f"not calibrated: it would save at most {_let_be(near):.1%} of the noise"
        return f"not calibrated: it would not need noticeably less noise than {exact.NAME}"
    if fit:
        best = _least(fit)
        with suppress(Refused, InputError):
            if row.costs_more(task, amount, best.cost):
                return f"not calibrated: it would need more noise than {best.mechanism}{by_name}"
    return None


def _has_plan(found: Found | None) -> bool:
    """Return whether a plan was found, and no time limit has ended a search so far."""
    return isinstance(found, Plan) and not cut_short()


def _is_least(plan: Plan, task: Task, amount: Fraction) -> bool:
    """Return whether the noise of an `exact` plan is near the least that any row could promise.

    On a slow chain that is known before any row is calibrated. Noise in steps is excepted: it is
    not Laplace noise.
    """
    least = exact.least_cost(task, amount)
    return least is not None and plan.cost <= least * (1 + _let_be(plan))


def _refusal(row: Mechanism, task: Task) -> str | InputError | None:
    """Why the row does not take the task, also where asking it fails; None where it takes it."""
    try:
        return f"it makes no new plans: {row.retired}" if row.retired else row.refuse(task)
    except Refused as why:
        return str(why).removeprefix(f"{row.name} does not apply: ")
    except InputError as why:
        return why
    except (MemoryError, OverflowError):
        return table.TOO_LARGE


def _plan_or_refusal(name: str, task: Task, amount: Fraction) -> Found:
    """The row's plan, or why it has none: a row over its limits never ends the choice."""
    foreign = out_of_scope(name, task)
    if foreign is not None:
        return foreign
    row, left = table.MECHANISMS[name], time_left()
    try:
        with nullcontext() if left is None else time_limit(max(left * SHARE, LEAST_TURN)):
            return calibrate_and_check(row, task, amount)
    except (Refused, PromiseBroken) as why:
        return str(why).removeprefix(f"{row.name} does not apply: ")
    except InputError as why:
        return why
