"""The choice among mechanisms: the plan of least cost that is proved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.family import out_of_scope
from shoal.core.numbers import Number, positive
from shoal.core.plan import Plan
from shoal.core.progress import time_left, time_limit, told
from shoal.core.registry import Shown
from shoal.core.task import Model, Query, Secrets, Task, as_family
from shoal.mechanisms import exact, table
from shoal.mechanisms.plans import Mechanism
from shoal.mechanisms.table import calibrated, row_named

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
        for number, name in enumerate(table.MECHANISMS):
            told(number, len(table.MECHANISMS))
            found[name] = _attempt(name, task, amount)
    notion = task.secrets.notion
    fit = [
        plan
        for plan in found.values()
        if isinstance(plan, Plan)
        and plan.guarantee.proved
        and plan.guarantee.gives(notion)
        and not table.MECHANISMS[plan.mechanism].narrows(task)
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
    row = table.MECHANISMS.get(exact.NAME)
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
        or _refusal(table.MECHANISMS[name], task)
        or left
        for name in table.MECHANISMS
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
    row, left = table.MECHANISMS[name], time_left()
    try:
        with nullcontext() if left is None else time_limit(max(left * SHARE, LEAST_TURN)):
            return calibrated(row, task, amount)
    except (Refused, PromiseBroken) as why:
        return str(why).removeprefix(f"{row.name} does not apply: ")
    except InputError as why:
        return why
