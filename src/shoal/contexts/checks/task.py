"""The day chains of a task, their contexts in an order that does not depend on their writing.

Searches for suppression probabilities go through the contexts one after the other, so that the
plan they find depends on the order. They are given this one: sensitive contexts first, then by
how likely each is over the day (to nine digits), and by name where that does not decide. So the
order in which contexts are written never changes a plan, and renaming them changes it only
where two contexts are equally likely at every slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from shoal.contexts.day import DayChain, day_chains
from shoal.contexts.machine import Mask, memoryless, prepared
from shoal.contexts.search.adaptive import full_table, releases_forward
from shoal.contexts.search.beliefs import (
    START,
    Day,
    Origin,
    decoded,
    jointly_releasable,
    memoryless_rise,
    upper_bound,
    vector_value,
)
from shoal.contexts.search.decimals import vector_rise
from shoal.contexts.search.greedy import keeps_every_bound
from shoal.contexts.search.limits import by_clock, compute_once
from shoal.contexts.search.memory import (
    Remembering,
    fine_decoded,
    follow_window,
    histories_rise,
    histories_value,
)
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.charge import Alone, Composition, Guarantee
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.plan import Machine, Plan, Proof
from shoal.core.task import Task

PRIOR_DIGITS = 9  # of a prior: far above its rounding, so that equal contexts stay equal


def family_days(task: Task) -> tuple[DayChain, ...]:
    """Return the day chains of the family, all in canonical order."""
    days = _days(task)
    secrets = task.secrets
    assert isinstance(secrets, SensitiveContexts)
    return tuple(in_order(day, canonical_order(days, secrets)) for day in days)


def family_days_in(task: Task, states: Sequence[str]) -> tuple[DayChain, ...]:
    """Return the day chains of the family, contexts in the order of `states`."""
    return tuple(in_order(day, states) for day in _days(task))


def canonical_order(days: Sequence[DayChain], secrets: SensitiveContexts) -> tuple[str, ...]:
    """Return the contexts in canonical order: sensitive first, then likely ones, then by name."""
    by_name = sorted(days[0].states)
    named = [in_order(day, by_name) for day in days]
    share = secrets.shares(named[0]).sum(axis=0)
    prior = np.concatenate([day.marginals() for day in named]).round(PRIOR_DIGITS)

    def key(index: int) -> tuple[float, tuple[float, ...], str]:
        return -float(share[index]), tuple((-prior[:, index]).tolist()), by_name[index]

    return tuple(by_name[index] for index in sorted(range(len(by_name)), key=key))


def in_order(day: DayChain, states: Sequence[str]) -> DayChain:
    """Return the same day with its contexts in the order of `states`."""
    if tuple(states) == day.states:
        return day
    index = {name: index for index, name in enumerate(day.states)}
    turn = [index[name] for name in states]
    return replace(
        day,
        states=tuple(states),
        initial=day.initial[turn],
        transition=day.transition[:, turn][:, :, turn],
    )


def _days(task: Task) -> tuple[DayChain, ...]:
    days = day_chains(task.family)
    if len(days) != len(task.family) or not isinstance(task.secrets, SensitiveContexts):
        raise TypeError("called on a task that the checks of contexts refuse")
    return days


RECHECK_TOLERANCE = 1e-12  # relative, of a plan's own re-check
CERTIFICATE_TOLERANCE = 1e-9  # numbers of a certificate, evaluated again
NOTION = "delta-privacy"
BY_THE_CLOCK = (
    "; the search went by the clock, so that what it found depends on the load of the machine: "
    "another call may show more or less, and is as private"
)

ALONE = Alone(
    "beliefs do not add up, so nothing else may be released about the same day; other days are "
    "independent and keep the same delta"
)
ASSUMPTIONS = (
    "days are independent of each other and follow the day chain",
    "all applications of one person see one and the same stream",
    "whether a slot is read does not depend on the contexts, given what was shown before (a phone "
    "that is off because of where it is tells so by itself)",
    "nothing is promised about a window of several slots: only about each single one",
    "an adversary who knows less than the chain is covered who knows the frequencies of the "
    "sensitive contexts, when the chain is published with the output (Theorem 6), or is unsure of "
    "labels only, when the secrets name them (Theorem 7)",
)


@dataclass(frozen=True, slots=True, eq=False)
class MaskCertificate(Proof):
    """The numbers of a suppression plan: the highest rise of belief and the mean of releases.

    `most` is an upper bound for every check: the sum of the priors of releasable states.
    `breached` counts the sensitive (slot, context) pairs whose belief can rise beyond delta.
    `timed` says that the search went by a clock: equal calls may then find different plans.
    """

    kind = "mask-certificate"

    reason: str
    rise: float
    releases: float
    most: float
    slots: int
    breached: int = 0
    timed: bool = field(default=False, metadata={"later": True})

    @property
    def theorem(self) -> str:
        """Return the reason and the numbers of the certificate as one sentence."""
        return (
            f"{self.reason}; the highest rise of any belief over all outputs is "
            f"{significant(self.rise)}; {significant(self.releases)} of {self.slots} slots are "
            f"shown on average (no check can show more than {significant(self.most)})"
            + (BY_THE_CLOCK if self.timed else "")
        )

    ASSUMED: ClassVar[tuple[str, ...]] = ASSUMPTIONS


def refuse(task: Task) -> str | None:
    """Return why the checks do not apply: they need sensitive contexts on days of one length."""
    if not isinstance(task.secrets, SensitiveContexts):
        return "the secrets are not sensitive contexts, so there is nothing to suppress"
    if not isinstance(task.query, CurrentState):
        return "the secrets are sensitive contexts, which a stream of states protects, not a number"
    slots = sorted({day.slots for day in day_chains(task.family)})
    if len(slots) > 1:
        return f"the day chains of the family have {slots} slots, and a plan is for one number"
    return None


def refuse_families(task: Task) -> str | None:
    """Return why a check for a single day chain does not apply; None when it does."""
    reason = refuse(task)
    if reason is None and len(task.family) > 1:
        return (
            "the family holds several day chains, and its linear programs are optimal for one only "
            "(mask-adaptive, mask-hybrid and the others hold under every member)"
        )
    return reason


def day_and_secrets(task: Task) -> tuple[DayChain, SensitiveContexts]:
    """Return the first day chain, in its own order, and the secrets of an accepted task."""
    day, secrets = task.family[0], task.secrets
    if not (isinstance(day, DayChain) and isinstance(secrets, SensitiveContexts)):
        raise TypeError("calibrate called on a task that `refuse` refuses")
    return day, secrets


def contexts_of(task: Task) -> tuple[str, ...]:
    """Return the contexts in the canonical order in which plans keep them."""
    return family_days(task)[0].states


def first_day(task: Task, delta: Fraction, **rest: Any) -> Day:
    """Return the first day of `days_of`: the only one, unless the task has a family."""
    return days_of(task, delta, **rest)[0]


def days_of(
    task: Task, delta: Fraction, *, states: Sequence[str] | None = None, **rest: Any
) -> tuple[Day, ...]:
    """Return the days of a task as arrays for the searches; refuse unless 0 < delta < 1.

    Contexts are in canonical order, or in the order of `states`.
    """
    _check_delta(delta)
    secrets = task.secrets
    assert isinstance(secrets, SensitiveContexts)

    by_default = states is None or tuple(states) == contexts_of(task)
    order = None if by_default else tuple(states or ())

    def prepare_days() -> tuple[Day, ...]:
        chosen = family_days(task) if order is None else family_days_in(task, order)
        return tuple(prepared(day, secrets, float(delta), **rest) for day in chosen)

    return compute_once((task, delta, order, tuple(sorted(rest.items()))), prepare_days)


def _check_delta(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise InputError(
            f"belief_delta is {significant(delta)}; it must be between 0 and 1, both excluded"
        )


def mask_plan(
    task: Task, name: str, delta: Fraction, body: Machine, releases: float, reason: str, **rest: Any
) -> Plan:
    """Return a plan around a machine, with the numbers that certify it."""
    days = days_of(task, delta)
    certificate = MaskCertificate(
        reason=reason,
        rise=rise_of(task, delta, body),
        releases=releases,
        most=upper_bound(days),
        slots=days[0].slots,
        breached=rest.pop("breached", 0),
        timed=rest.pop("searched", True) and by_clock(),
    )
    guarantee = replace(promise(task, delta), **rest)
    return Plan(
        mechanism=name,
        task=task,
        body=body,
        cost=-releases,
        guarantee=guarantee,
        certificate=certificate,
        composition=(ALONE,),
    )


def over(task: Task, also: str = "") -> str:
    """Return whom a promise covers: an adversary who knows the chains, and whom `also` adds."""
    count = len(task.family)
    known = ("the chain" if count == 1 else f"any of the {count} chains") + also
    return f"{task.secrets.subject}, for an adversary who knows {known} and the plan"


def promise(task: Task, delta: Fraction) -> Guarantee:
    """Return the guarantee of a check for the sensitive contexts of a task."""
    _check_delta(delta)
    return Guarantee(notion=NOTION, amount=delta, over=over(task))


def rules(plan: Plan) -> tuple[Composition, ...]:
    """Return the composition rules: suppression composes with nothing else."""
    return (ALONE,)


def loss(plan: Plan) -> float:
    """Return the highest rise of belief over all outputs of the stored plan, from the plan alone.

    Under every day chain of the family. Evaluated by posteriors in logarithms, or rounded up where
    histories count; where a single vector suppresses, the division-free check must agree. Infinity
    says that it does not, or that the plan says of itself what is not so (`honest`). Tables that
    only slots not read lead to count too (mask_missing.md).
    """
    delta, body = plan.guarantee.amount, as_mask(plan.body)
    rise, unread = _rises_of(plan.task, delta, body)
    first, secrets = day_and_secrets(plan.task)
    never = secrets.kept_back(in_order(first, machine_states(body)))
    if not certificate_is_true(plan, rise) or (never.any() and body.can_show(never)):
        return float("inf")
    if memoryless(body) and rise <= float(delta):
        days = days_of(plan.task, delta, states=body.states, slack=RECHECK_TOLERANCE, lowered=False)
        if not all(keeps_every_bound(day, decoded(body.codes)) for day in days):
            return float("inf")
    return max(rise, unread)


def vector_keeps_promise(task: Task, delta: Fraction, suppression: Floats) -> bool:
    """Return whether a vector p[t, j], in canonical order, passes both checks of `loss`."""
    measured = days_of(task, delta, everything=True)
    highest = max(memoryless_rise(day, suppression) for day in measured)
    if float(delta) < highest <= float(delta) * (1 + RECHECK_TOLERANCE):
        return True
    days = days_of(task, delta, slack=RECHECK_TOLERANCE, lowered=False)
    return highest <= float(delta) and all(keeps_every_bound(day, suppression) for day in days)


def certificate_is_true(plan: Plan, rise: float) -> bool:
    """Return whether the words and numbers of a plan are those of its task and machine.

    The notion and whom it covers, that it composes with nothing, and the rise, the releases and
    the most that its certificate and its cost name. Why it is said to be so (`reason`) is words.
    """
    guarantee, certificate = plan.guarantee, plan.certificate
    days = days_of(plan.task, guarantee.amount, states=machine_states(plan.body))
    if not isinstance(certificate, MaskCertificate) or certificate.slots != days[0].slots:
        return False
    if (guarantee.notion, guarantee.over) != (NOTION, over(plan.task)):
        return False
    if plan.composition != (ALONE,) or plan.cost != -certificate.releases:
        return False
    said = np.array([certificate.rise, certificate.releases, certificate.most])
    releases = min(releases_of(day, plan.body) for day in days)
    true = np.array([rise, releases, upper_bound(days)])
    return bool((np.abs(said - true) <= CERTIFICATE_TOLERANCE * (1.0 + true)).all())


def releases_of(day: Day, body: Any) -> float:
    """Return the expected number of slots that a machine releases."""
    if memoryless(body):
        return vector_value(day, decoded(body.codes))
    return histories_value(day, *as_mask(body).segments(day))


def rise_of(task: Task, delta: Fraction, body: Any) -> float:
    """Return the highest rise of belief over all outputs of a machine, under every member.

    Of days on which every slot is read.
    """
    return _rises_of(task, delta, body)[0]


def _rises_of(task: Task, delta: Fraction, body: Any) -> tuple[float, float]:
    """Return `rise_of`, and the same with tables that only unread slots lead to.

    Evaluated once for a machine inside a time limit: equal machines have equal rises.
    """

    def compute_rises() -> tuple[float, float]:
        """Return the largest rise of a belief when all slots are read, and when some may not be."""
        states = machine_states(body)
        _check_fit(task, states, body)
        full = days_of(task, delta, states=states, everything=True)
        if memoryless(body):
            rise = max(vector_rise(day, decoded(body.codes), float(delta)) for day in full)
            return rise, rise
        rises = []
        for day in full:
            policies, digits = as_mask(body).segments(day)
            rises.append(histories_rise(day, policies, digits, float(delta)))
        return max(rise for rise, _ in rises), max(unread for _, unread in rises)

    return compute_once((task, delta, body, "rise"), compute_rises)


def _check_fit(task: Task, states: tuple[str, ...], body: Any) -> None:
    """Refuse a machine for other contexts or for days of another length."""
    slots = as_mask(body).slots
    for day in task.family:
        if isinstance(day, DayChain) and (
            sorted(day.states) != sorted(states) or day.slots != slots
        ):
            raise InputError(
                f"the machine of the plan is for {slots} slots of {list(states)}; the day chain "
                f"has {day.slots} of {list(day.states)}: the plan belongs to another task"
            )


def as_mask(body: Any) -> Any:
    """Return a machine whose tables can be evaluated; refuse any other."""
    if not isinstance(body, Mask) or not hasattr(body, "slots"):
        raise TypeError(f"no way is known to evaluate a {type(body).__name__}")
    return body


def machine_states(body: Any) -> tuple[str, ...]:
    """Return the contexts of a machine, in the order of its tables."""
    names: tuple[str, ...] = body.states
    return names


def release_rates(plan: Plan) -> Floats:
    """Return r[t, j] = P(X_t = j and the plan releases it), under the first chain of a family."""
    body, order = plan.body, machine_states(plan.body)
    day = first_day(plan.task, plan.guarantee.amount, states=order)
    rates = np.zeros((day.slots, day.size))
    if memoryless(body):
        rates = np.asarray(day.prior * (1.0 - decoded(body.codes)))
    else:
        policies, digits = as_mask(body).segments(day)
        for origin in releases_forward(rates):
            mass = 1.0 if origin == START else float(rates[origin])
            if origin in policies:
                _add_segment(day, origin, policies[origin], digits, mass, rates)
    return rates[:, [order.index(name) for name in plan.task.query.states]]


def _add_segment(
    day: Day, origin: Origin, plan: Remembering, digits: Ints, mass: float, rates: Floats
) -> None:
    """Add the releases that follow one release of probability `mass` to `rates` in place."""
    arriving, slot = follow_window(day, *origin, plan, digits), origin[0]
    for k, codes in enumerate(plan.codes):
        rates[slot + 1 + k] += mass * (arriving[k] * (1 - fine_decoded(codes))).sum(axis=0)
    law, suppression = arriving[-1].sum(axis=0), full_table(day, slot, plan.tail)
    for t in range(slot + 1 + len(plan.codes), day.slots):
        rates[t] += mass * law * (1.0 - suppression[t])
        law = (law * suppression[t]) @ day.moves[t]


def suppression_reasons(plan: Plan) -> list[list[str]]:
    """Return, for each slot and context, why it is not always released; "" where it is.

    "impossible", "sensitive", "tells what follows" (releasing it would raise a later belief by
    itself), or "hides others" (it is suppressed so that suppression does not tell).
    """
    days = days_of(plan.task, plan.guarantee.amount, states=plan.task.query.states)
    day, always = days[0], release_rates(plan) >= days[0].prior * (1 - 1e-9)
    secret = np.zeros_like(day.possible)
    secret[day.when, day.who] = True
    cases = [~day.possible, secret, ~jointly_releasable(days), ~always]
    names = ["impossible", "sensitive", "tells what follows", "hides others"]
    return np.select(cases, names, default="").tolist()  # type: ignore[no-any-return]
