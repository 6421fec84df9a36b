"""What all checks of context streams share: which tasks they take, what they promise and why."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.core.composition import Alone
from shoal.core.errors import InputError
from shoal.core.guarantee import Guarantee
from shoal.core.numbers import significant
from shoal.core.plan import Machine, Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.loss.suppression import (
    Day,
    decoded,
    future_beliefs,
    memoryless_rise,
    prepare,
    releasable,
)
from shoal.loss.suppression_adaptive import (
    next_releases,
    segments_rise,
    simulatable_segments,
)
from shoal.loss.suppression_greedy import private
from shoal.loss.suppression_history import history_rise
from shoal.mechanisms.mask_machine import SegmentMask, VectorMask
from shoal.mechanisms.mask_machine_history import HistoryMask
from shoal.mechanisms.mask_machine_simulatable import SimulatableMask
from shoal.models.day import DayChain
from shoal.queries.current import CurrentState
from shoal.secrets.contexts import SensitiveContexts

SECONDS = 10.0  # of search, at a nominal speed of 10^9 multiplications a second
SPEED = 1e9
TOLERANCE = 1e-12  # relative, of a plan's own re-check

ALONE = Alone(
    "beliefs do not add up, so nothing else may be released about the same day; other days are "
    "independent and keep the same delta"
)
ASSUMPTIONS = (
    "days are independent of each other and follow the day chain",
    "all applications of one person see one and the same stream",
    "nothing is promised about a window of several slots: only about each single one",
    "an adversary who knows less than the chain is covered when the chain is published with the "
    "output, or knows the frequencies of the sensitive contexts (Theorem 6)",
)


@dataclass(frozen=True, slots=True, eq=False)
class MaskCertificate(Value):
    """The numbers of a suppression plan: the highest rise of belief and the mean of releases.

    `most` is what no check whatever could exceed: the sum of the priors of releasable states.
    `breached` counts the sensitive (slot, context) pairs whose belief can rise beyond delta.
    """

    reason: str
    rise: float
    releases: float
    most: float
    slots: int
    breached: int = 0

    @property
    def theorem(self) -> str:
        return (
            f"{self.reason}; the highest rise of any belief over all outputs is "
            f"{significant(self.rise)}; {significant(self.releases)} of {self.slots} slots are "
            f"shown on average (no check can show more than {significant(self.most)})"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ASSUMPTIONS


def refuse(task: Task) -> str | None:
    """The checks are for sensitive contexts on one day chain."""
    if not isinstance(task.secrets, SensitiveContexts):
        return "the secrets are not sensitive contexts, so there is nothing to suppress"
    if not isinstance(task.query, CurrentState):
        return "the secrets are sensitive contexts, which a stream of states protects, not a number"
    if len(task.family) != 1:
        return "the family holds several models, and beliefs are bounded under one day chain only"
    return None


def parts(task: Task) -> tuple[DayChain, SensitiveContexts]:
    """The day chain and the secrets of a task that `refuse` takes."""
    day, secrets = task.family[0], task.secrets
    if not (isinstance(day, DayChain) and isinstance(secrets, SensitiveContexts)):
        raise TypeError("calibrate called on a task that `refuse` refuses")
    return day, secrets


def arrays(task: Task, delta: Fraction, **rest: Any) -> Day:
    """The day of a task for the loops of `shoal.loss`; refused unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise InputError(
            f"belief_delta is {significant(delta)}; it must be between 0 and 1, both excluded"
        )
    day, secrets = parts(task)
    return prepare(day.initial, day.transition, secrets.shares(day), float(delta), **rest)


def mask_plan(
    task: Task, name: str, delta: Fraction, body: Machine, releases: float, reason: str, **rest: Any
) -> Plan:
    """A plan around a machine, with the numbers that certify it."""
    day = arrays(task, delta)
    certificate = MaskCertificate(
        reason=reason,
        rise=rise_of(task, delta, body),
        releases=releases,
        most=float((day.prior * releasable(day, future_beliefs(day))).sum()),
        slots=day.slots,
        breached=rest.pop("breached", 0),
    )
    guarantee = Guarantee(
        notion="delta-privacy",
        amount=delta,
        over=f"{task.secrets.subject}, for an adversary who knows the chain and the plan",
        **rest,
    )
    return Plan(
        mechanism=name,
        task=task,
        body=body,
        cost=-releases,
        guarantee=guarantee,
        certificate=certificate,
        composition=(ALONE,),
    )


def loss(plan: Plan) -> float:
    """The highest rise of belief over all outputs of the plan as stored, from the plan alone.

    Evaluated by posteriors in logarithms; where a single vector suppresses, the division-free
    check must agree, and infinity says that it does not.
    """
    rise = rise_of(plan.task, plan.guarantee.amount, plan.body)
    if isinstance(plan.body, VectorMask) and rise <= float(plan.guarantee.amount):
        day = arrays(plan.task, plan.guarantee.amount, slack=TOLERANCE)
        if not private(day, decoded(plan.body.codes)):
            return float("inf")
    return rise


def rise_of(task: Task, delta: Fraction, body: Any) -> float:
    """The highest rise of belief over all outputs of a machine."""
    day = arrays(task, delta, everything=True)
    match body:
        case VectorMask():
            return memoryless_rise(day, decoded(body.codes))
        case SimulatableMask():
            return segments_rise(day, simulatable_segments(day, body.table).hidden)
        case SegmentMask():
            return segments_rise(day, body.policies())
        case HistoryMask():
            return _history_rise(arrays(task, delta), body)
    raise TypeError(f"no way is known to evaluate a {type(body).__name__}")


def _history_rise(day: Day, body: HistoryMask) -> float:
    """Over every release that may be shown; those without a policy suppress the rest.

    `day` lists the secrets that can be breached: only their states leave a digit in a history.
    """
    plans = body.policies().items()
    rises = [history_rise(day, origin, plan, body.digits) for origin, plan in plans]
    return max([0.0, *rises])


def marked(day: Day) -> np.ndarray[Any, Any]:
    """`next_releases` with -1 for contexts that are never shown."""
    table = next_releases(day)
    shown = releasable(day, future_beliefs(day))
    table[1:][~shown] = -1
    return table
