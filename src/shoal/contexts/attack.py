"""What an adversary believes about a day of which some slots were suppressed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.contexts import online
from shoal.contexts.audit.events import event_beliefs
from shoal.contexts.audit.memories import UNREAD, TableMemory
from shoal.contexts.audit.sweep import Tables, tables_of
from shoal.contexts.checks import rows as checks
from shoal.contexts.checks.task import (
    ALONE,
    day_and_secrets,
    days_of,
    family_days_in,
    in_order,
    machine_states,
    rise_of,
)
from shoal.contexts.day import DayChain
from shoal.contexts.machine import HistoryMask, VectorMask
from shoal.contexts.online import OnlineMask
from shoal.contexts.search.beliefs import COIN_LEVELS, START, Day, Origin, law_after_release
from shoal.contexts.search.memory import extend_histories
from shoal.contexts.secrets import SensitiveContexts
from shoal.contexts.stream import advance, machine_of
from shoal.core.charge import Rng
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.progress import in_time
from shoal.core.task import Task
from shoal.events.event import TimeEvent, visit
from shoal.events.secrets import Events
from shoal.noise.primitives import SeededRng

Output = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class EventCurve:
    """The belief in one event before any output, and after each slot: naive, and by the plan."""

    event: str
    before: float
    naive: Floats
    after: Floats


@dataclass(frozen=True, slots=True)
class EventCurves:
    """One day, what was released of it by the plan and naively, and the belief in each event."""

    clock: tuple[str, ...]
    truth: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    naive_outputs: tuple[str | None, ...]
    events: tuple[EventCurve, ...]


@dataclass(frozen=True, slots=True)
class ContextCurves(EventCurves):
    """Beliefs in each sensitive context over one day: before, after naive masking, after the plan.

    `before`, `naive` and `after` are (slots, contexts), for an adversary who knows the chain; one
    who knew only frequencies believes the same once the chain is published with the output.
    `weak` is for one who knows only frequencies and never learns more; None when what was released
    is impossible to such a person. `outputs` and `naive_outputs` are what was released, None where
    suppressed; `truth` is the day itself. `labelled` holds, for secrets with labels, the belief in
    each sensitive context of one to whom every label of a state is alike: before and after.
    `events` is having been there at all, which is not what is promised.
    """

    contexts: tuple[str, ...]
    before: Floats
    naive: Floats
    after: Floats
    weak: Floats | None = None
    labelled: tuple[tuple[str, Floats, Floats], ...] = ()

    def weak_rise(self) -> float | None:
        """Return the highest rise of a belief of an adversary who knows frequencies alone."""
        return None if self.weak is None else float((self.weak - self.before).max())

    def labelled_rise(self) -> float:
        """Return the highest rise of a belief of an adversary who is unsure of labels."""
        return max((float((b - a).max()) for _, a, b in self.labelled), default=0.0)

    def highest_rise(self) -> tuple[float, float]:
        """Return the highest rise of a belief under naive masking and under the plan."""
        return float((self.naive - self.before).max()), float((self.after - self.before).max())


def attack_contexts(
    plan: Plan,
    contexts: Output,
    rng: Rng,
    *,
    adversary: int = 0,
    events: Sequence[TimeEvent] | None = None,
) -> ContextCurves:
    """Run one day through the plan and through naive masking; return what each gives away.

    `adversary` is the chain of the family that is held. `events` are asked about beside the single
    slots: by default having been in each sensitive context at all.
    """
    secrets = day_and_secrets(plan.task)[1]
    day = family_days_in(plan.task, plan.task.query.states)[adversary]
    naive = checks.plan_sensitive(plan.task, plan.guarantee.amount)
    visits = [visit(name) for name in secrets.contexts if name in day.states]
    asked = visits if events is None else events
    played, seen, naive_seen = _run_both(plan, naive, day, contexts, rng, asked, adversary)
    after, weak = context_beliefs(plan, seen, adversary), None
    with suppress(InputError):  # who knows frequencies alone may not explain what was released
        weak = context_beliefs(plan, seen, adversary, frequencies_only=True)
    columns = np.flatnonzero((secrets.shares(day) > 0).any(axis=0))
    return ContextCurves(
        **{part.name: getattr(played, part.name) for part in fields(played)},
        contexts=tuple(day.states[column] for column in columns),
        before=day.marginals()[:, columns],
        naive=context_beliefs(naive, naive_seen, adversary)[:, columns],
        after=after[:, columns],
        weak=None if weak is None else weak[:, columns],
        labelled=_label_beliefs(day, secrets, after),
    )


def attack_events(
    plan: Plan,
    contexts: Output,
    rng: Rng,
    *,
    adversary: int = 0,
    events: Sequence[TimeEvent] = (),
) -> EventCurves:
    """Run one day through an online plan and through naive masking of the events' contexts.

    `events` are asked about beside those of the plan.
    """
    secrets, body = plan.task.secrets, plan.body
    if not (isinstance(secrets, Events) and isinstance(body, OnlineMask)):
        raise InputError(f"{plan.mechanism} does not hide events; use attack_contexts")
    naive = naive_events(plan.task, plan.guarantee.amount)
    asked = (*secrets.all_events(), *events)
    return _run_both(plan, naive, body.days[0], contexts, rng, asked, adversary)[0]


def naive_events(task: Task, amount: Fraction) -> Plan:
    """Return the plan that suppresses exactly the contexts that events name. It is not private."""
    secrets, day = task.secrets, task.family[0]
    if not (isinstance(secrets, Events) and isinstance(day, DayChain)):
        raise InputError("the secrets are not events of a day")
    named = set().union(*(event.states() for event in secrets.all_events()))
    codes = np.where([name in named for name in day.states], COIN_LEVELS - 1, 0).astype(np.uint16)
    return Plan(
        mechanism="mask-sensitive",
        task=task,
        body=VectorMask(day.states, np.tile(codes, (day.slots, 1))),
        cost=0.0,
        guarantee=replace(
            online.promise(task, amount), proved=False, caveat="the gap itself tells"
        ),
        certificate=online.OnlineCertificate(0.0, 0.0, 0, 0.0, day.slots),
        composition=(ALONE,),
    )


def naive_event_rises(
    task: Task, amount: Fraction, days: int = 24, seed: int = 1
) -> list[tuple[str, float, float]]:
    """Return each event in words, the belief before, and the highest belief on random days."""
    plan, rng = naive_events(task, amount), SeededRng(seed)
    day, secrets = task.family[0], task.secrets
    assert isinstance(day, DayChain)
    assert isinstance(secrets, Events)
    events = secrets.all_events()
    highest = np.zeros(len(events))
    for _ in range(days):
        outputs = run_day(plan, [day.states[x] for x in day.sample(rng)], rng)
        curves = event_beliefs(plan, outputs, events)
        highest = np.maximum(highest, curves.max(axis=0))
    each = zip(events, curves[0], highest, strict=True)
    return [(event.describe(), float(before), float(most)) for event, before, most in each]


def _run_both(
    plan: Plan,
    naive: Plan,
    day: DayChain,
    contexts: Output,
    rng: Rng,
    events: Sequence[TimeEvent],
    adversary: int,
) -> tuple[EventCurves, Output, Output]:
    """Run one day through both plans; return curves and what is seen, unread slots marked.

    Events that are certain or impossible have no curve.
    """
    if len(contexts) != day.slots:
        raise InputError(f"the day has {len(contexts)} readings; the model has {day.slots} slots")
    outputs, naive_outputs = run_day(plan, contexts, rng), run_day(naive, contexts, rng)
    seen, naive_seen = (
        tuple(
            UNREAD if context is None else one for context, one in zip(contexts, out, strict=True)
        )
        for out in (outputs, naive_outputs)
    )
    open_to = [event for event in events if 0 < event.prior(plan.task.family[adversary]) < 1]
    curves: list[EventCurve] = []
    if open_to:
        after = event_beliefs(plan, seen, open_to, adversary)
        plain = event_beliefs(naive, naive_seen, open_to, adversary)
        curves += [
            EventCurve(event.describe(), float(after[0, i]), plain[1:, i], after[1:, i])
            for i, event in enumerate(open_to)
        ]
    clock = tuple(day.clock(slot) for slot in range(day.slots))
    played = EventCurves(clock, tuple(contexts), outputs, naive_outputs, tuple(curves))
    return played, seen, naive_seen


def _label_beliefs(
    day: DayChain, secrets: SensitiveContexts, after: Floats
) -> tuple[tuple[str, Floats, Floats], ...]:
    """Return the belief in each fact, before and after, when all labels of a state are alike."""
    fair = [(names, secrets.fair(names, day)) for names, _ in secrets.facts(day.slots)]
    return tuple(
        (" or ".join(names), day.marginals() @ chance, after @ chance)
        for names, chance in (fair if secrets.labels else ())
    )


def run_day(plan: Plan, contexts: Output, rng: Rng) -> tuple[str | None, ...]:
    """Return the outputs of a plan for one day; contexts that are None were not read."""
    state, outputs = machine_of(plan).init(), []
    for context in contexts:
        in_time("the attack")
        state, out = advance(plan, state, context, rng)
        outputs.append(out)
    return tuple(outputs)


def context_beliefs(
    plan: Plan, output: Output, adversary: int = 0, *, frequencies_only: bool = False
) -> Floats:
    """Return P(X_t = j | output), (slots, states), of one complete output.

    `adversary` is the chain of the family that is held; with `frequencies_only` its slots are
    taken for independent. Slots that were not read are UNREAD. Refused when the output cannot occur
    under the model.
    """
    known, task = TableMemory(plan, tables(plan.body)), plan.task
    order, digits = known.states, known.tables.digits
    if frequencies_only:
        alone = tuple(day.without_memory() for day in family_days_in(task, task.query.states))
        task = replace(task, family=alone)
    day = days_of(task, plan.guarantee.amount, states=order)[adversary]
    index = {name: index for index, name in enumerate(order)}
    beliefs, suppression = np.zeros((day.slots, day.size)), []
    origin = START
    for slot, output_now in enumerate(output):
        in_time("the attack")
        suppression.append(
            np.ones((1, day.size)) if output_now == UNREAD else known.suppression(slot)
        )
        known.record_output(output_now)
        if output_now is None or output_now == UNREAD:
            continue
        state = index[output_now]
        beliefs[origin[0] + 1 : slot] = beliefs_between(
            day, origin, slot, state, suppression, digits
        )
        beliefs[slot, state] = 1.0
        origin, suppression = (slot, state), []
    beliefs[origin[0] + 1 :] = beliefs_between(day, origin, day.slots, 0, suppression, digits)
    return beliefs[:, [order.index(name) for name in plan.task.query.states]]


def beliefs_between(
    day: Day, origin: Origin, until: int, state: int, suppression: list[Floats], digits: Ints
) -> Floats:
    """Return the beliefs of the slots strictly between two releases.

    Forward and backward over histories.

    suppression[k][h, j] suppresses state j, k slots after the release, with history h before it.
    """
    slot, base = origin[0], int(digits.max(initial=0)) + 1
    forward = [law_after_release(day, origin)[None, :]]
    for k in range(until - slot - 1):
        fresh = extend_histories(forward[-1] * suppression[k], day.moves[slot + 1 + k], digits)
        if k + 1 >= len(suppression) or len(suppression[k + 1]) == 1:
            fresh = fresh.sum(axis=0, keepdims=True)  # nothing later looks at the history
        total = fresh.sum()
        if total <= 0:
            raise InputError("the output cannot occur under the model")
        forward.append(fresh / total)
    onward = np.zeros(forward[-1].shape)
    last = suppression[until - slot - 1][:, state] if until < day.slots else 0.0
    onward[:, state] = 1.0 - last
    found = np.zeros((until - slot - 1, day.size))
    for k in range(until - slot - 2, -1, -1):
        rows = np.arange(len(forward[k]))[:, None] * base + digits[None, :]
        rows = rows if len(onward) > 1 else np.zeros_like(rows)
        onward = suppression[k] * np.einsum("hjl,jl->hj", onward[rows], day.moves[slot + 1 + k])
        joint = (forward[k] * onward).sum(axis=0)
        if joint.sum() <= 0:
            raise InputError("the output cannot occur under the model")
        onward /= onward.max()
        found[k] = joint / joint.sum()
    return found


def suppression_after(body: Any, origin: Origin) -> list[Floats]:
    """The probabilities of the slots after a release, each (histories, states)."""
    return tables(body).after(*origin)


def tables(body: Any) -> Tables:
    """What the machine does after each release, as the auditor reads it."""
    found = tables_of(body)
    if found is None:
        raise TypeError(f"no way is known to attack a {type(body).__name__}")
    return found


# A weak adversary who learns a chain from what is released of it, day after day.
#
# The paper's second learning challenge (LC2): an adversary who starts with frequencies and has only
# the outputs to learn from. Götz, Nath & Gehrke 2012, Section 6.


EM_ROUNDS = 60  # of expectation and maximisation


def rises_while_learning(
    plan: Plan, days: Sequence[int], seed: int, *, truth: int = 0
) -> list[tuple[float, float]]:
    """Return the highest rises, as believed and in truth, after so many days of watching.

    The adversary begins with the frequencies of the chain `truth` of the family, slots taken for
    independent, watches days of the plan's outputs and fits a chain to them. The first number of
    each pair is LC2's: belief after an output less belief before it, both by the chain fitted so
    far. It is not bounded by the promise until the fitted chain is the true one; the second
    number, that of the true chain, is. Publishing the chain makes the two the same at once.
    """
    names = plan.task.query.states
    day = family_days_in(plan.task, names)[truth]
    rng = SeededRng(seed)
    outputs = [
        run_day(plan, [names[i] for i in day.sample(rng)], rng) for _ in range(max(days, default=0))
    ]
    known = rise_of(replace(plan.task, family=(day,)), plan.guarantee.amount, plan.body)
    found = []
    for count in days:
        held = fit_to_outputs(plan, outputs[:count], day.without_memory())
        task = replace(plan.task, family=(held,))
        found.append((rise_of(task, plan.guarantee.amount, plan.body), known))
    return found


def fit_to_outputs(plan: Plan, outputs: Sequence[Output], start: DayChain) -> DayChain:
    """Fit a day chain to outputs of a plan by expectation maximisation from `start`.

    One day of `start` is counted in, so that nothing is ruled out for want of data; the first slot
    keeps its law. Plans whose suppression depends on suppressed visits are refused: an observer
    cannot tell their probabilities.
    """
    if isinstance(plan.body, HistoryMask):
        raise Refused(f"an observer cannot follow {plan.mechanism}; learn from another check")
    order = machine_states(plan.body)
    held = in_order(start, order)
    laws = held.marginals()
    prior = laws[:-1, :, None] * held.transition
    likelihood = np.array([_likelihood(plan, output) for output in outputs])
    matrices = held.transition
    for _ in range(EM_ROUNDS if len(likelihood) else 0):
        in_time("the attack")
        counts = prior + expected_steps(likelihood, held.initial, matrices)
        total = counts.sum(axis=2, keepdims=True)
        matrices = np.where(total > 0, counts / np.where(total > 0, total, 1.0), matrices)
    return in_order(replace(held, transition=matrices), start.states)


def expected_steps(likelihood: Floats, initial: Floats, matrices: Floats) -> Floats:
    """Return Σ over days of P(X_t = x, X_{t+1} = y | output), (slots - 1, states, states).

    `likelihood` (days, slots, states) is that of what was released in each slot given its state.
    """
    forward = [_normalise_rows(initial * likelihood[:, 0])]
    for t in range(1, likelihood.shape[1]):
        forward.append(_normalise_rows((forward[-1] @ matrices[t - 1]) * likelihood[:, t]))
    backward = np.ones_like(forward[0])
    total = np.zeros_like(matrices)
    for t in range(likelihood.shape[1] - 2, -1, -1):
        ahead = likelihood[:, t + 1] * backward
        moves = forward[t][:, :, None] * matrices[t] * ahead[:, None, :]
        total[t] = (moves / moves.sum(axis=(1, 2), keepdims=True)).sum(axis=0)
        backward = _normalise_rows(ahead @ matrices[t].T)
    return total


def _likelihood(plan: Plan, output: Output) -> Floats:
    """Return P(output of a slot | its state), given earlier outputs, (slots, states)."""
    known = TableMemory(plan, tables(plan.body))
    rows = np.zeros((len(output), len(known.states)))
    for slot, output_now in enumerate(output):
        chance = known.suppression(slot)[0]
        own = [name == output_now for name in known.states]
        rows[slot] = chance if output_now is None else np.where(own, 1.0 - chance, 0.0)
        known.record_output(output_now)
    return rows


def _normalise_rows(rows: Floats) -> Floats:
    total = rows.sum(axis=1, keepdims=True)
    if not (total > 0).all():
        raise InputError("a day that was shown is impossible under the chain to begin with")
    return np.asarray(rows / total)
