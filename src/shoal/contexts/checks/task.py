"""The day chains of a task, their contexts in an order that does not depend on their writing.

Searches for suppression probabilities go through the contexts one after the other, so that the
plan they find depends on the order. They are given this one: sensitive contexts first, then by
how likely each is over the day (to nine digits), and by name where that does not decide. So the
order in which somebody lists contexts never changes a plan, and renaming them changes it only
where two contexts are equally likely at every slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from shoal.contexts.checks.search_budget import shared
from shoal.contexts.day import DayChain, day_chains
from shoal.contexts.machine import HistoryMask, SegmentMask, SimulatableMask, VectorMask, memoryless
from shoal.contexts.search.adaptive import (
    expected_releases,
    next_releases,
    segments_rise,
    simulatable_segments,
    unread_rise,
)
from shoal.contexts.search.beliefs import (
    Day,
    decoded,
    jointly_releasable,
    memoryless_rise,
    prepare,
    released_fraction,
    upper_bound,
)
from shoal.contexts.search.families import family_next_releases
from shoal.contexts.search.greedy import private
from shoal.contexts.search.memory import fine_decoded, histories_rise, histories_value
from shoal.contexts.search.pacing import Effort
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.charge import Alone, Composition, Guarantee
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.plan import Machine, Plan, Proof
from shoal.core.task import Task

DIGITS = 9


def members(task: Task) -> tuple[DayChain, ...]:
    """The day chains of the family, all in canonical order."""
    days = _days(task)
    secrets = task.secrets
    assert isinstance(secrets, SensitiveContexts)
    return tuple(in_order(day, canonical(days, secrets)) for day in days)


def members_in(task: Task, states: Sequence[str]) -> tuple[DayChain, ...]:
    """The day chains of the family, contexts in the order of `states`."""
    return tuple(in_order(day, states) for day in _days(task))


def canonical(days: Sequence[DayChain], secrets: SensitiveContexts) -> tuple[str, ...]:
    """The contexts in canonical order."""
    by_name = sorted(days[0].states)
    named = [in_order(day, by_name) for day in days]
    share = secrets.shares(named[0]).sum(axis=0)
    prior = np.concatenate([day.marginals() for day in named]).round(DIGITS)

    def key(place: int) -> tuple[float, tuple[float, ...], str]:
        return -float(share[place]), tuple((-prior[:, place]).tolist()), by_name[place]

    return tuple(by_name[place] for place in sorted(range(len(by_name)), key=key))


def in_order(day: DayChain, states: Sequence[str]) -> DayChain:
    """The same day with its contexts in another order."""
    if tuple(states) == day.states:
        return day
    index = {name: place for place, name in enumerate(day.states)}
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


# What all checks of context streams share: which tasks they take, what they promise and why.


TOLERANCE = 1e-12  # relative, of a plan's own re-check
AGREE = 1e-9  # numbers of a certificate, evaluated again
NOTION = "delta-privacy"

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

    ASSUMED: ClassVar[tuple[str, ...]] = ASSUMPTIONS


def refuse(task: Task) -> str | None:
    """The checks are for sensitive contexts on day chains of one length."""
    if not isinstance(task.secrets, SensitiveContexts):
        return "the secrets are not sensitive contexts, so there is nothing to suppress"
    if not isinstance(task.query, CurrentState):
        return "the secrets are sensitive contexts, which a stream of states protects, not a number"
    slots = sorted({day.slots for day in day_chains(task.family)})
    if len(slots) > 1:
        return f"the day chains of the family have {slots} slots, and a plan is for one number"
    return None


def refuse_families(task: Task) -> str | None:
    """For checks whose search is for one day chain."""
    reason = refuse(task)
    if reason is None and len(task.family) > 1:
        return (
            "the family holds several day chains, and its linear programs are optimal for one only "
            "(mask-adaptive, mask-hybrid and the others hold under every member)"
        )
    return reason


def parts(task: Task) -> tuple[DayChain, SensitiveContexts]:
    """The first day chain, as it was written, and the secrets of a task that `refuse` takes."""
    day, secrets = task.family[0], task.secrets
    if not (isinstance(day, DayChain) and isinstance(secrets, SensitiveContexts)):
        raise TypeError("calibrate called on a task that `refuse` refuses")
    return day, secrets


def contexts_of(task: Task) -> tuple[str, ...]:
    """The contexts in the canonical order in which plans keep them."""
    return members(task)[0].states


def arrays(task: Task, delta: Fraction, **rest: Any) -> Day:
    """The first day of `days_of`: the only one, unless the task has a family."""
    return days_of(task, delta, **rest)[0]


def days_of(
    task: Task, delta: Fraction, *, states: Sequence[str] | None = None, **rest: Any
) -> tuple[Day, ...]:
    """The days of a task for the loops of `shoal.contexts.search`; refused unless 0 < delta < 1.

    Contexts are in canonical order, or in the order of `states`.
    """
    if not 0 < delta < 1:
        raise InputError(
            f"belief_delta is {significant(delta)}; it must be between 0 and 1, both excluded"
        )
    secrets = task.secrets
    assert isinstance(secrets, SensitiveContexts)

    def prepared() -> tuple[Day, ...]:
        chosen = members(task) if states is None else members_in(task, states)
        return tuple(
            prepare(
                day.initial,
                day.transition,
                secrets.shares(day),
                float(delta),
                never=secrets.kept_back(day),
                **rest,
            )
            for day in chosen
        )

    order = None if states is None else tuple(states)
    return shared((task, delta, order, tuple(sorted(rest.items()))), prepared)


def mask_plan(
    task: Task, name: str, delta: Fraction, body: Machine, releases: float, reason: str, **rest: Any
) -> Plan:
    """A plan around a machine, with the numbers that certify it."""
    days = days_of(task, delta)
    certificate = MaskCertificate(
        reason=reason,
        rise=rise_of(task, delta, body),
        releases=releases,
        most=upper_bound(days),
        slots=days[0].slots,
        breached=rest.pop("breached", 0),
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


def _over(task: Task, days: Sequence[Day]) -> str:
    known = "the chain" if len(days) == 1 else f"any of the {len(days)} chains"
    return f"{task.secrets.subject}, for an adversary who knows {known} and the plan"


def promise(task: Task, delta: Fraction) -> Guarantee:
    """What a check promises about the sensitive contexts of a task."""
    return Guarantee(notion=NOTION, amount=delta, over=_over(task, days_of(task, delta)))


def rules(plan: Plan) -> tuple[Composition, ...]:
    """None adds suppression to anything."""
    return (ALONE,)


def loss(plan: Plan) -> float:
    """The highest rise of belief over all outputs of the plan as stored, from the plan alone.

    Under every day chain of the family. Evaluated by posteriors in logarithms, or rounded up where
    histories count; where a single vector suppresses, the division-free check must agree. Infinity
    says that it does not, or that the plan says of itself what is not so (`honest`). Tables that
    only slots not read lead to count too (mask_missing.md).
    """
    delta, body = plan.guarantee.amount, plan.body
    rise, unread = _rises_of(plan.task, delta, body)
    if not honest(plan, rise) or _shows_what_it_never_may(plan.task, body):
        return float("inf")
    if memoryless(body) and rise <= float(delta):
        days = days_of(plan.task, delta, states=body.states, slack=TOLERANCE)
        if not all(private(day, decoded(body.codes)) for day in days):
            return float("inf")
    return max(rise, unread)


def _shows_what_it_never_may(task: Task, body: Any) -> bool:
    """Whether a table of the machine can show a context that is never to be shown."""
    day, secrets = parts(task)
    names = machine_states(body)
    kept = secrets.kept_back(in_order(day, names))
    if not kept.any():
        return False
    match body:
        case VectorMask():
            return bool((decoded(body.codes)[:, kept] < 1).any())
        case SimulatableMask():
            return bool((np.asarray(body.table)[1:, kept] >= 0).any())
        case SegmentMask():
            tables = body.policies().values()
            return any((decoded(codes)[:, kept] < 1).any() for codes in tables)
        case HistoryMask():
            windows = (fine_decoded(c) for p in body.policies().values() for c in p.codes)
            return any((hidden[:, kept] < 1).any() for hidden in windows) or (
                _shows_what_it_never_may(task, body.tail)
            )
    raise TypeError(f"no way is known to evaluate a {type(body).__name__}")


def vector_keeps(task: Task, delta: Fraction, hidden: Floats) -> bool:
    """Whether one vector p[t, j], contexts in canonical order, passes what `loss` asks of it."""
    measured = days_of(task, delta, everything=True)
    highest = max(memoryless_rise(day, hidden) for day in measured)
    if float(delta) < highest <= float(delta) * (1 + TOLERANCE):
        return True
    days = days_of(task, delta, slack=TOLERANCE)
    return highest <= float(delta) and all(private(day, hidden) for day in days)


def honest(plan: Plan, rise: float) -> bool:
    """Whether the words and numbers of a plan are those of its task and machine.

    The notion and whom it covers, that it composes with nothing, and the rise, the releases and
    the most that its certificate and its cost name. Why it is said to be so (`reason`) is words.
    """
    guarantee, certificate = plan.guarantee, plan.certificate
    days = days_of(plan.task, guarantee.amount, states=machine_states(plan.body))
    if not isinstance(certificate, MaskCertificate) or certificate.slots != days[0].slots:
        return False
    if (guarantee.notion, guarantee.over) != (NOTION, _over(plan.task, days)):
        return False
    if plan.composition != (ALONE,) or plan.cost != -certificate.releases:
        return False
    said = np.array([certificate.rise, certificate.releases, certificate.most])
    releases = min(releases_of(day, plan.body) for day in days)
    true = np.array([rise, releases, upper_bound(days)])
    return bool((np.abs(said - true) <= AGREE * (1.0 + true)).all())


def releases_of(day: Day, body: Any) -> float:
    """The mean number of slots that a machine shows."""
    match body:
        case VectorMask():
            return released_fraction(day, decoded(body.codes))
        case SimulatableMask():
            return simulatable_segments(day, body.table).expected
        case SegmentMask():
            return expected_releases(day, body.policies())
        case HistoryMask():
            return histories_value(day, body.policies(), body.digits)
    raise TypeError(f"no way is known to evaluate a {type(body).__name__}")


def rise_of(task: Task, delta: Fraction, body: Any) -> float:
    """The highest rise of belief over all outputs of a machine, under every member.

    Of days on which every slot is read.
    """
    return _rises_of(task, delta, body)[0]


def _rises_of(task: Task, delta: Fraction, body: Any) -> tuple[float, float]:
    """`rise_of`, and the same with the tables that only slots not read lead to.

    Evaluated once for a machine inside a time limit: equal machines have equal rises.
    """
    return shared((task, delta, body, "rise"), lambda: _rises(task, delta, body))


def _rises(task: Task, delta: Fraction, body: Any) -> tuple[float, float]:
    states = machine_states(body)
    _check_fit(task, states, body)
    full = days_of(task, delta, states=states, everything=True)
    match body:
        case VectorMask():
            rise = max(memoryless_rise(day, decoded(body.codes)) for day in full)
            return rise, rise
        case SimulatableMask():
            rise = max(
                segments_rise(day, simulatable_segments(day, body.table).hidden) for day in full
            )
            return rise, rise  # after a slot not read the model is asked, not the table
        case SegmentMask():
            tables = body.policies()
            rise = max(segments_rise(day, tables) for day in full)
            return rise, max(unread_rise(day, tables, rise) for day in full)
        case HistoryMask():
            rises = [histories_rise(day, body.policies(), body.digits) for day in full]
            return max(rise for rise, _ in rises), max(unread for _, unread in rises)
    raise TypeError(f"no way is known to evaluate a {type(body).__name__}")


def _check_fit(task: Task, states: tuple[str, ...], body: Any) -> None:
    """Refuses a machine for other contexts or days of another length."""
    slots = machine_slots(body)
    for day in task.family:
        if isinstance(day, DayChain) and (
            sorted(day.states) != sorted(states) or day.slots != slots
        ):
            raise InputError(
                f"the machine of the plan is for {slots} slots of {list(states)}; the day chain "
                f"has {day.slots} of {list(day.states)}: the plan belongs to another task"
            )


def machine_slots(body: Any) -> int:
    """The length of the day that a machine is for."""
    match body:
        case VectorMask():
            return len(body.codes)
        case SimulatableMask():
            return len(body.table) - 1
        case SegmentMask():
            return body.slots
        case HistoryMask():
            return body.tail.slots
    raise TypeError(f"no way is known to evaluate a {type(body).__name__}")


def machine_states(body: Any) -> tuple[str, ...]:
    """The contexts of a machine, in the order of its tables."""
    names: tuple[str, ...] = body.states
    return names


def marked(days: Sequence[Day], work: float | Effort = np.inf) -> np.ndarray[Any, Any]:
    """The slots of the simulatable check, with -1 for contexts that are never shown."""
    table = next_releases(days[0], work) if len(days) == 1 else family_next_releases(days, work)
    table[1:][~jointly_releasable(days)] = -1
    return table
