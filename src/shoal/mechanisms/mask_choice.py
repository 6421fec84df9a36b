"""One call from a day and its secrets to the check that shows the most."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.numbers import Number, exact, positive
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms import (
    LOSS_TOLERANCE,
    MECHANISMS,
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


def mask(
    day: DayChain | Sequence[DayChain],
    secrets: SensitiveContexts,
    *,
    delta: Number,
    check: str = "best",
    seconds: Number = mask_task.SECONDS,
) -> Plan:
    """The plan that shows the most contexts on average while no belief rises by more than delta.

    With several day chains, whichever of them an adversary holds. `check` names a row
    ("mask-adaptive", …) or "best", which tries the proved checks, quickest first, each with its
    share of `seconds`. Those are seconds of search at a nominal speed that is the same on every
    machine, so that equal calls give equal plans; a slower machine takes longer. Every plan is
    private however little time there is.
    """
    limit = float(positive(seconds, "seconds"))
    amount = exact(delta, "delta")
    days = (day,) if isinstance(day, DayChain) else tuple(day)
    if not days:
        raise InputError("day holds no day chain; give at least one")
    task = Task(query=CurrentState(days[0].states), secrets=secrets, family=days)
    if check != "best":
        return _kept(_calibrated(task, check, amount, limit))
    plans = [
        _calibrated(task, name, amount, share * limit)
        for name, share in mask_task.SHARES.items()
        if MECHANISMS[name].refuse(task) is None
    ]
    return _kept(min(plans, key=lambda plan: plan.cost))


def _calibrated(task: Task, check: str, delta: Fraction, seconds: float) -> Plan:
    reason = MECHANISMS[check].refuse(task) if check in MECHANISMS else None
    if reason is not None:
        raise Refused(f"{check} does not apply: {reason}")
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
