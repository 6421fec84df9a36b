"""How often each context is shown at each slot, exactly, and why it is not shown more often."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.additive.choice import LOSS_TOLERANCE, MECHANISMS
from shoal.additive.plans import Mechanism
from shoal.contexts.checks import online, search_budget, task as mask_task
from shoal.contexts.checks.task import arrays, days_of, machine_states
from shoal.contexts.day import DayChain
from shoal.contexts.machine import HistoryMask, SegmentMask, SimulatableMask, VectorMask
from shoal.contexts.search.adaptive import Origin, full, simulatable_segments
from shoal.contexts.search.beliefs import Day, decoded, jointly_releasable
from shoal.contexts.search.memory import Remembering, fine_decoded, flow
from shoal.contexts.search.pacing import Clock
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.codec import Floats
from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.numbers import Number, exact, positive
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.events.secrets import Events, MaskOptions


def shown_rates(plan: Plan) -> Floats:
    """r[t, j] = P(X_t = j and the plan shows it); its sum is the expected number of releases.

    Under the first chain of a family.
    """
    order = machine_states(plan.body)
    day = arrays(plan.task, plan.guarantee.amount, states=order)
    return _rates(day, plan.body)[:, [order.index(name) for name in plan.task.query.states]]


def _rates(day: Day, body: Any) -> Floats:
    match body:
        case VectorMask():
            return np.asarray(day.prior * (1.0 - decoded(body.codes)))
        case SegmentMask():
            return _followed(day, body.policies())
        case SimulatableMask():
            return _followed(day, simulatable_segments(day, body.table).hidden)
        case HistoryMask():
            return _followed(day, body.policies(), digits=body.digits)
    raise TypeError(f"no way is known to follow a {type(body).__name__}")


def reasons(plan: Plan) -> list[list[str]]:
    """For each slot and context why it is not always shown: "" where it is.

    "impossible", "sensitive", "tells what follows" (showing it would raise a later belief by
    itself), or "hides others" (it is suppressed so that suppression does not tell).
    """
    names = plan.task.query.states
    days = days_of(plan.task, plan.guarantee.amount, states=names)
    day, open_to = days[0], jointly_releasable(days)
    rates = shown_rates(plan)
    secret = np.zeros((day.slots, day.size), dtype=np.bool_)
    secret[day.when, day.who] = True
    return [
        [_reason(day, rates, secret, open_to, t, j) for j in range(day.size)]
        for t in range(day.slots)
    ]


def _reason(day: Day, rates: Floats, secret: Any, open_to: Any, t: int, j: int) -> str:
    if not day.possible[t, j]:
        return "impossible"
    if secret[t, j]:
        return "sensitive"
    if not open_to[t, j]:
        return "tells what follows"
    return "" if rates[t, j] >= day.prior[t, j] * (1 - 1e-9) else "hides others"


def _followed(day: Day, policies: dict[Origin, Any], digits: Any = None) -> Floats:
    """Release masses, from "start" on: each release hands its mass to its own segment."""
    rates = np.zeros((day.slots, day.size))
    for slot in range(-1, day.slots):
        for state in range(day.size if slot >= 0 else 1):
            mass = 1.0 if slot < 0 else rates[slot, state]
            plan = policies.get((slot, state))
            if mass > 0 and plan is not None:
                _add_segment(day, (slot, state), plan, digits, mass, rates)
    return rates


def _add_segment(
    day: Day, origin: Origin, plan: Any, digits: Any, mass: float, rates: Floats
) -> None:
    slot, state = origin
    begin = slot + 1
    if isinstance(plan, Remembering):
        arriving = flow(day, slot, state, plan, digits)
        for k, codes in enumerate(plan.codes):
            rates[slot + 1 + k] += mass * (arriving[k] * (1 - fine_decoded(codes))).sum(axis=0)
        begin, law, codes_after = begin + len(plan.codes), arriving[-1].sum(axis=0), plan.tail
    else:
        law, codes_after = (day.initial if slot < 0 else day.moves[slot, state]), plan
    hidden = full(day, slot, {origin: codes_after}, state)
    for t in range(begin, day.slots):
        rates[t] += mass * law * (1.0 - hidden[t])
        law = (law * hidden[t]) @ day.moves[t]


# One call from a day and its secrets to the check that shows the most.


def mask(
    day: DayChain | Sequence[DayChain],
    secrets: SensitiveContexts | Events,
    *,
    delta: Number | None = None,
    epsilon: Number | None = None,
    check: str = "best",
    seconds: Number | None = None,
    clock: Clock | None = time.monotonic,
    **events: Any,
) -> Plan:
    """The plan that shows the most contexts on average while no belief rises by more than delta.

    With several day chains, whichever of them an adversary holds. `check` names a row
    ("mask-adaptive", …) or "best", which tries the proved checks, quickest first, each with its
    share of `seconds`. Those end by `clock`, so that plans may differ from call to call. Without
    `seconds`, or with `clock=None`, work alone is counted, at a nominal speed: equal calls give
    equal plans, and a slow machine takes longer. Every plan is private however little time there
    is.

    For events (`shoal.Events.of`) the check is "mask-online"; `epsilon` instead of `delta` bounds
    their odds, both ways, and these may be given too: `lower=True` (beliefs may not fall by more
    than delta either), `memory="none"` (what is shown depends on the context alone), `mixture`
    (weights of the chains, for somebody unsure which of them holds), `ahead` (look ahead to the end
    of the day or not; by default whatever shows more).
    """
    days = (day,) if isinstance(day, DayChain) else tuple(day)
    if not days:
        raise InputError("day holds no day chain; give at least one")
    query = CurrentState(days[0].states)
    if isinstance(secrets, Events):
        amount, hidden = _event_amount(secrets, delta, epsilon, bool(events.pop("lower", False)))
        unknown = sorted(set(events) - {"memory", "mixture", "ahead"})
        if unknown:
            raise InputError(f"{unknown[0]} is not an option of mask for events; see shoal.mask")
        hidden = replace(hidden, options=MaskOptions(**events)) if events else hidden
        task = Task(query=query, secrets=hidden, family=days)
        return _event_mask(task, amount, check)
    if delta is None or epsilon is not None or events:
        given = ["epsilon"] if epsilon is not None else list(events)
        raise InputError(
            f"{given[0]} is for events (shoal.Events.of); sensitive contexts take delta"
            if given
            else "delta is missing; say how much any belief may rise, such as delta=0.1"
        )
    limit = float(positive(seconds, "seconds")) if seconds is not None else search_budget.SECONDS
    task = Task(query=query, secrets=secrets, family=days)
    named = _rows(task, check)
    with search_budget.time_limit(limit, check, clock=clock if seconds is not None else None):
        plans = list(_in_turn(named, task, exact(delta, "delta")))
    return min(plans, key=lambda plan: plan.cost)


def _event_amount(
    secrets: Events, delta: Number | None, epsilon: Number | None, lower: bool
) -> tuple[Fraction, Events]:
    """The amount, and the events held to a rise for delta, to their odds for epsilon."""
    if (delta is None) == (epsilon is None):
        raise InputError("give delta (a rise of belief) or epsilon (a factor of odds), one of them")
    if epsilon is None:
        both = lower or secrets.change == "rise-and-fall"  # whoever asked for it that way
        return exact(delta if delta is not None else 0, "delta"), secrets.as_rise(lower=both)
    if lower:
        raise InputError("lower goes with delta; odds are bounded both ways already")
    return positive(epsilon, "epsilon"), replace(secrets, change="odds")


def _event_mask(task: Task, amount: Fraction, check: str) -> Plan:
    if check != "best":
        _rows(task, check)  # refuses the rows for single slots in their own words
    reason = online.refuse(task)
    if reason is not None:
        raise Refused(f"{online.NAME} does not apply: {reason}")
    return online.calibrate(task, amount)


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
    with search_budget.time_limit(seconds, clock=clock):
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
        rows = [MECHANISMS[name] for name in search_budget.SHARES]
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
