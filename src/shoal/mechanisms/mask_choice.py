"""One call from a day and its secrets to the check that shows the most."""

from __future__ import annotations

from fractions import Fraction

from shoal.core.errors import InputError, PromiseBroken
from shoal.core.numbers import Number, exact, positive
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms import (
    LOSS_TOLERANCE,
    mask_adaptive,
    mask_hybrid,
    mask_optimal,
    mask_probabilistic,
    mask_sensitive,
    mask_simulatable,
    mask_task,
)
from shoal.models.day import DayChain
from shoal.queries.current import CurrentState
from shoal.secrets.contexts import SensitiveContexts

# the checks among which "best" chooses, quickest first, with the share of the time each may take
SHARES = {"mask-simulatable": 0.0, "mask-probabilistic": 0.2, "mask-adaptive": 0.4}
REST = "mask-optimal"


def mask(
    day: DayChain,
    secrets: SensitiveContexts,
    *,
    delta: Number,
    check: str = "best",
    seconds: Number = mask_task.SECONDS,
) -> Plan:
    """The plan that shows the most contexts on average while no belief rises by more than delta.

    `check` names a row ("mask-adaptive", …) or "best". `seconds` limits the search, at a nominal
    speed that is the same on every machine, so that equal calls give equal plans; a slower
    machine takes longer. More seconds never give a worse plan of the same check.
    """
    limit = float(positive(seconds, "seconds"))
    amount = exact(delta, "delta")
    task = Task(query=CurrentState(day.states), secrets=secrets, family=(day,))
    if check != "best":
        return _kept(_calibrated(task, check, amount, limit))
    plans = [_calibrated(task, name, amount, share * limit) for name, share in SHARES.items()]
    plans.append(_calibrated(task, REST, amount, limit * (1 - sum(SHARES.values()))))
    return _kept(min(plans, key=lambda plan: plan.cost))


def _calibrated(task: Task, check: str, delta: Fraction, seconds: float) -> Plan:
    match check:
        case "mask-sensitive":
            return mask_sensitive.calibrate(task, delta)
        case "mask-simulatable":
            return mask_simulatable.calibrate(task, delta)
        case "mask-probabilistic":
            return mask_probabilistic.calibrate(task, delta, seconds=seconds)
        case "mask-hybrid":
            return mask_hybrid.calibrate(task, delta, seconds=seconds)
        case "mask-adaptive":
            return mask_adaptive.calibrate(task, delta, seconds=seconds)
        case "mask-optimal":
            return mask_optimal.calibrate(task, delta, seconds=seconds)
    raise InputError(
        f"check is {check!r}; it must be 'best', 'mask-sensitive', 'mask-simulatable', "
        "'mask-probabilistic', 'mask-hybrid', 'mask-adaptive' or 'mask-optimal'"
    )


def _kept(plan: Plan) -> Plan:
    """The plan, its promise evaluated again."""
    loss = mask_task.loss(plan)
    if plan.guarantee.proved and not loss <= float(plan.guarantee.amount) * (1 + LOSS_TOLERANCE):
        raise PromiseBroken(
            f"{plan.mechanism} promised {float(plan.guarantee.amount):g} and its own check "
            f"measures {loss:g}; please report this task"
        )
    return plan
