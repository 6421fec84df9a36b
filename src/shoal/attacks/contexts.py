"""What an adversary believes about a day of which some slots were suppressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.audit.suppression_tables import Tables, tables_of
from shoal.core.errors import InputError
from shoal.core.plan import Machine, Plan
from shoal.core.rng import Rng
from shoal.core.value import Floats, Ints
from shoal.loss.suppression import Day
from shoal.mechanisms import mask_sensitive
from shoal.mechanisms.mask_members import members_in
from shoal.mechanisms.mask_task import days_of, parts
from shoal.models.day import DayChain
from shoal.secrets.contexts import SensitiveContexts

Output = Sequence[str | None]
Origin = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ContextCurves:
    """Beliefs in each sensitive context over one day: before, after naive masking, after the plan.

    `before`, `naive` and `after` are (slots, contexts), for an adversary who knows the chain; one
    who knew only frequencies believes the same once the chain is published with the output.
    `weak` is for one who knows only frequencies and never learns more; None when what was shown is
    impossible to such a person. `outputs` and `naive_outputs` are what was shown, None where
    suppressed; `truth` is the day itself. `labelled` holds, for secrets with labels, the belief in
    each sensitive context of one to whom every label of a state is alike: before and after.
    """

    clock: tuple[str, ...]
    contexts: tuple[str, ...]
    truth: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    naive_outputs: tuple[str | None, ...]
    before: Floats
    naive: Floats
    after: Floats
    weak: Floats | None = None
    labelled: tuple[tuple[str, Floats, Floats], ...] = ()

    def weak_rise(self) -> float | None:
        """The highest rise of a belief of somebody who knows frequencies alone."""
        return None if self.weak is None else float((self.weak - self.before).max())

    def labelled_rise(self) -> float:
        """The highest rise of a belief of somebody who is unsure of labels."""
        return max((float((b - a).max()) for _, a, b in self.labelled), default=0.0)

    def highest_rise(self) -> tuple[float, float]:
        """The highest rise of a belief under naive masking and under the plan."""
        return float((self.naive - self.before).max()), float((self.after - self.before).max())


def attack_contexts(plan: Plan, contexts: Output, rng: Rng, *, adversary: int = 0) -> ContextCurves:
    """One day run through the plan and through naive masking, and what each gives away.

    `adversary` is the chain of the family that is held.
    """
    secrets = parts(plan.task)[1]
    day = members_in(plan.task, plan.task.query.states)[adversary]
    if len(contexts) != day.slots:
        raise InputError(f"the day has {len(contexts)} readings; the model has {day.slots} slots")
    naive = mask_sensitive.calibrate(plan.task, plan.guarantee.amount)
    outputs, naive_outputs = run(plan, contexts, rng), run(naive, contexts, rng)
    after = context_beliefs(plan, outputs, adversary)
    weak = _weak(plan, outputs, adversary)
    columns = np.flatnonzero((secrets.shares(day) > 0).any(axis=0))
    return ContextCurves(
        tuple(day.clock(slot) for slot in range(day.slots)),
        tuple(day.states[column] for column in columns),
        tuple(contexts),
        outputs,
        naive_outputs,
        day.marginals()[:, columns],
        context_beliefs(naive, naive_outputs, adversary)[:, columns],
        after[:, columns],
        None if weak is None else weak[:, columns],
        _labelled(day, secrets, after),
    )


def _labelled(
    day: DayChain, secrets: SensitiveContexts, after: Floats
) -> tuple[tuple[str, Floats, Floats], ...]:
    """The belief in each fact when every label of a state is alike, before and after."""
    if not secrets.labels:
        return ()
    found = []
    for names, _ in secrets.facts(day.slots):
        own = [secrets.stands_for(state) for state in day.states]
        fair = np.array([len(set(names) & set(labels)) / len(labels) for labels in own])
        found.append((" or ".join(names), day.marginals() @ fair, after @ fair))
    return tuple(found)


def run(plan: Plan, contexts: Output, rng: Rng) -> tuple[str | None, ...]:
    """What a day's contexts become."""
    machine = plan.body
    if not isinstance(machine, Machine):
        raise InputError(f"{plan.mechanism} makes single releases, not streams")
    state, shown = machine.init(), []
    for context in contexts:
        state, out = machine.step(state, context, rng)
        shown.append(out)
    return tuple(shown)


def _weak(plan: Plan, output: Output, adversary: int) -> Floats | None:
    try:
        return context_beliefs(plan, output, adversary, frequencies_only=True)
    except InputError:
        return None  # such a person cannot explain what was shown


def context_beliefs(
    plan: Plan, output: Output, adversary: int = 0, *, frequencies_only: bool = False
) -> Floats:
    """P(X_t = j | output) for one complete output, (slots, states), by one who knows the plan.

    `adversary` is the chain of the family that is held; with `frequencies_only` its slots are
    taken for independent. Refused when the output cannot occur under the model.
    """
    known, task = tables(plan.body), plan.task
    order = known.states
    if frequencies_only:
        alone = tuple(day.without_memory() for day in members_in(task, task.query.states))
        task = replace(task, family=alone)
    day = days_of(task, plan.guarantee.amount, states=order)[adversary]
    index = {name: place for place, name in enumerate(order)}
    shown = [-1 if item is None else index[item] for item in output]
    beliefs = np.zeros((day.slots, day.size))
    origin: Origin = (-1, 0)
    for slot, state in [*enumerate(shown), (day.slots, 0)]:
        if state < 0:
            continue
        beliefs[origin[0] + 1 : slot] = between(
            day, origin, slot, state, known.after(*origin), known.digits
        )
        if slot < day.slots:
            beliefs[slot, state] = 1.0
            origin = (slot, state)
    return beliefs[:, [order.index(name) for name in plan.task.query.states]]


def between(
    day: Day, origin: Origin, until: int, state: int, hidden: list[Floats], digits: Ints
) -> Floats:
    """Beliefs in the slots strictly between two releases, forward and backward over histories.

    hidden[k][h, j] suppresses state j, k slots after the release, with history h before it.
    """
    slot, base = origin[0], int(digits.max(initial=0)) + 1
    law = day.initial if slot < 0 else day.moves[slot, origin[1]]
    forward = [law[None, :]]
    for k in range(until - slot - 1):
        kept = forward[-1] * hidden[k]
        fresh = np.zeros((len(kept) * base, day.size))
        for j in range(day.size):
            rows = np.arange(len(kept)) * base + digits[j]
            fresh[rows] += np.outer(kept[:, j], day.moves[slot + 1 + k, j])
        if k + 1 >= len(hidden) or len(hidden[k + 1]) == 1:
            fresh = fresh.sum(axis=0, keepdims=True)  # nothing later looks at the history
        total = fresh.sum()
        if total <= 0:
            raise InputError("the output cannot occur under the model")
        forward.append(fresh / total)
    onward = np.zeros(forward[-1].shape)
    last = hidden[until - slot - 1][:, state] if until < day.slots else 0.0
    onward[:, state] = 1.0 - last
    found = np.zeros((until - slot - 1, day.size))
    for k in range(until - slot - 2, -1, -1):
        rows = np.arange(len(forward[k]))[:, None] * base + digits[None, :]
        rows = rows if len(onward) > 1 else np.zeros_like(rows)
        onward = hidden[k] * np.einsum("hjl,jl->hj", onward[rows], day.moves[slot + 1 + k])
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
