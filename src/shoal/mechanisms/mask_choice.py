"""One call from a day and its secrets to the check that shows the most."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fractions import Fraction

from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.numbers import Number, exact, positive
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.loss.suppression_effort import Clock
from shoal.mechanisms import LOSS_TOLERANCE, MECHANISMS, mask_limit, mask_task
from shoal.mechanisms.row import Mechanism
from shoal.models.day import DayChain
from shoal.queries.current import CurrentState
from shoal.secrets.contexts import SensitiveContexts


def mask(
    day: DayChain | Sequence[DayChain],
    secrets: SensitiveContexts,
    *,
    delta: Number,
    check: str = "best",
    seconds: Number | None = None,
    clock: Clock | None = time.monotonic,
) -> Plan:
    """The plan that shows the most contexts on average while no belief rises by more than delta.

    With several day chains, whichever of them an adversary holds. `check` names a row
    ("mask-adaptive", …) or "best", which tries the proved checks, quickest first, each with its
    share of `seconds`. Those end by `clock`, so that plans may differ from call to call. Without
    `seconds`, or with `clock=None`, work alone is counted, at a nominal speed: equal calls give
    equal plans, and a slow machine takes longer. Every plan is private however little time there
    is.
    """
    limit = float(positive(seconds, "seconds")) if seconds is not None else mask_limit.SECONDS
    amount = exact(delta, "delta")
    days = (day,) if isinstance(day, DayChain) else tuple(day)
    if not days:
        raise InputError("day holds no day chain; give at least one")
    task = Task(query=CurrentState(days[0].states), secrets=secrets, family=days)
    named = _rows(task, check)
    with mask_limit.time_limit(limit, check, clock=clock if seconds is not None else None):
        plans = list(_in_turn(named, task, amount))
    return min(plans, key=lambda plan: plan.cost)


def masks(
    day: DayChain,
    secrets: SensitiveContexts,
    checks: Sequence[str],
    *,
    delta: Number,
    seconds: Number,
    clock: Clock | None = None,
) -> dict[str, Plan]:
    """The plans of several checks side by side, each with its share of `seconds` as for "best".

    What more than one of them needs is found once: the probabilities of the probabilistic check,
    the tables of the adaptive one.
    """
    task = Task(query=CurrentState(day.states), secrets=secrets, family=(day,))
    amount = exact(delta, "delta")
    rows = [row for check in checks for row in _rows(task, check)]
    with mask_limit.time_limit(seconds, clock=clock):
        return {plan.mechanism: plan for plan in _in_turn(rows, task, amount)}


def _in_turn(rows: Sequence[Mechanism], task: Task, delta: Fraction) -> Iterator[Plan]:
    """The plans of the rows, one after the other, until the time is over; the first always."""
    for row in rows:
        try:
            plan = row.calibrate(task, delta)
        except Refused:
            return  # rows that apply refuse only when nothing is left of the time
        yield _kept(plan)


def _rows(task: Task, check: str) -> list[Mechanism]:
    """The rows to try: the one that is named, or the proved ones that take the task."""
    if check == "best":
        rows = [MECHANISMS[name] for name in mask_limit.SHARES]
        return [row for row in rows if row.refuse(task) is None]
    names = [name for name in MECHANISMS if name.startswith("mask-")]
    if check not in names:
        listed = ", ".join(map(repr, names[:-1]))
        raise InputError(f"check is {check!r}; it must be 'best', {listed} or {names[-1]!r}")
    reason = MECHANISMS[check].refuse(task)
    if reason is not None:
        raise Refused(f"{check} does not apply: {reason}")
    return [MECHANISMS[check]]


def _kept(plan: Plan) -> Plan:
    """The plan, its promise evaluated again."""
    loss = mask_task.loss(plan)
    if plan.guarantee.proved and not loss <= float(plan.guarantee.amount) * (1 + LOSS_TOLERANCE):
        raise PromiseBroken(
            f"{plan.mechanism} promised {float(plan.guarantee.amount):g} and its own check "
            f"measures {loss:g}; please report this task"
        )
    return plan
