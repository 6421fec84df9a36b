"""The table of mechanisms, and the re-check of what the plan of a mechanism promises."""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.core.charge import Composition
from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.plan import Plan
from shoal.core.progress import no_time_limit
from shoal.core.registry import Table
from shoal.core.task import Task
from shoal.mechanisms.plans import Mechanism

# every row of every family; ties in cost go to the earlier row
MECHANISMS: Table[Mechanism] = Table(lambda family: family.mechanisms)

TOO_LARGE = "its computation needs more memory, or larger numbers, than there are"
LOSS_TOLERANCE = 1e-12  # relative; floating-point evaluations of a loss at its own calibration


def row_named(name: object) -> Mechanism:
    """The row called `name`."""
    row = MECHANISMS.get(name) if isinstance(name, str) else None
    if row is None:
        raise InputError(f"mechanism is {name!r}; it must be 'best' or one of {list(MECHANISMS)}")
    return row


def calibrate_and_check(row: Mechanism, task: Task, amount: Fraction) -> Plan:
    """The row's plan, its promise evaluated again before it is returned.

    A plan that says itself that it is not proved may fail: it is there to show by how much.
    """
    try:
        if row.retired:
            raise Refused(f"{row.name} does not apply: it makes no new plans: {row.retired}")
        reason = row.refuse(task)
        if reason is not None:
            raise Refused(f"{row.name} does not apply: {reason}")
        return _check_plan(row, row.calibrate(task, amount))
    except (MemoryError, OverflowError):
        raise Refused(f"{row.name} does not apply: {TOO_LARGE}") from None


def verify_promise(plan: Plan) -> float:
    """The loss of a finished plan, evaluated again from its task and what it draws. Rounds up.

    At most `plan.guarantee.amount`, up to 1e-12 of it, when the promise holds. inf when the plan
    draws something its mechanism does not speak about, or says something else about itself that is
    not so: what is protected, that it is proved, how it adds to others. `confirm_plan` names which.
    """
    row = _row_of(plan)
    try:
        loss = _evaluate_loss(row, plan)
        if not plan.guarantee.proved or loss <= _allowed_loss(plan):  # else the number tells enough
            _check_words(row, plan)
    except (PromiseBroken, InputError):
        return math.inf
    return loss


def confirm_plan(plan: Plan) -> Plan:
    """`plan`, where all it says holds for what it draws; PromiseBroken tells what does not."""
    return _check_plan(_row_of(plan), plan)


def loss_as_drawn(plan: Plan) -> float:
    """What `verify_promise` measures, ignoring what else the plan says: for plans known to be
    broken.
    """
    return _evaluate_loss(_row_of(plan), plan)


def composition_of(plan: Plan) -> tuple[Composition, ...]:
    """The rules that add `plan` to others, from its task and what it draws: its own are claims."""
    return _row_of(plan).rules(plan)


def standing(plan: Plan) -> str:
    """What a row's promise is worth for the task it was calibrated on."""
    wanted = plan.task.secrets.notion
    if not plan.guarantee.proved:
        return "claimed, not proved"
    if not plan.guarantee.gives(wanted):
        return f"{plan.guarantee.notion} only"
    return "proved, for one series" if MECHANISMS[plan.mechanism].narrows(plan.task) else "proved"


def _row_of(plan: Plan) -> Mechanism:
    """Return the mechanism that made a plan; refuse what is not a plan."""
    if not isinstance(plan, Plan):
        raise InputError(
            f"the plan is of type {type(plan).__name__}; give what shoal.calibrate or shoal.loads "
            "returned"
        )
    return row_named(plan.mechanism)


def _check_plan(row: Mechanism, plan: Plan) -> Plan:
    """`plan`, its loss and its words held against what it draws."""
    with no_time_limit():
        loss = _evaluate_loss(row, plan)
    if plan.guarantee.proved and not loss <= _allowed_loss(plan):
        raise PromiseBroken(
            f"{row.name} promised {float(plan.guarantee.amount):g} and its own check measures "
            f"{loss:g}; please report this task"
        )
    _check_words(row, plan)
    return plan


def _evaluate_loss(row: Mechanism, plan: Plan) -> float:
    reason = row.refuse(plan.task)
    if reason is not None:
        raise PromiseBroken(f"{row.name} proves nothing about the task of this plan: {reason}")
    return row.loss(plan)


def _allowed_loss(plan: Plan) -> float:
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
