"""The rise of belief a suppression stream allows, over every output of a day.

Short days are written out: the machine is run through every output. Long ones are followed release
by release, and the worst output is run through the machine (suppression_long).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from shoal.additive.choice import loss_as_drawn
from shoal.audit.result import Audit, LesserAdversary, StreamWitness
from shoal.contexts.audit.adversaries import bounded, enumerated, measured
from shoal.contexts.audit.facts import part
from shoal.contexts.audit.sweep import Highest, followed, frequencies
from shoal.contexts.audit.tables import FINE, OneWord, Tables, tables_of
from shoal.contexts.audit.witness import hide_chance
from shoal.contexts.checks.task import in_order
from shoal.contexts.day import DayChain, day_chains
from shoal.contexts.machine import memoryless
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.plan import Machine, Plan

MOST_BRANCHES = 300_000  # (contexts × shown or not) ^ slots, written out one by one
SMALLEST = 1e-250  # probability of an output that is still written out
ASSUMED = (
    "days are independent of each other and follow the day chain",
    "the adversary knows the chain and the machine, and sees one stream of each day",
)
NOT_CHECKED = (
    "windows of several slots: only single slots are promised",
    "laws outside the family, and other releases about the same day",
)
UNSURE = "adversaries who know contexts only up to sets of labels: give labels to cover them"
BY_ITSELF = (
    "the machine step by step: the day is too long to write out all its outputs, and this kind of "
    "machine may decide by more than the last release, so its mechanism's own evaluation is given"
)


class HighestRise(NamedTuple):
    """The highest rise of a belief (times its share), the output, and the belief there."""

    value: float
    output: tuple[str | None, ...]
    slot: int
    context: int
    before: float
    after: float


class FoundRise(NamedTuple):
    """lower ≤ highest rise ≤ upper, where it is seen, who else learns what, what is left out."""

    lower: float
    upper: float
    witness: StreamWitness | None
    adversaries: tuple[LesserAdversary, ...]
    notes: tuple[str, ...] = ()


def suppression_audit(plan: Plan, curve: bool) -> Audit:
    """The highest rise of any sensitive belief over all outputs of a day, and whether it is kept.

    Short days: every path of contexts is run through the plan's own machine, both ways at every
    slot, and the beliefs are added up over paths. Longer days: the auditor's own evaluation over
    partial outputs (release, gaps, release), rounded up, and the beliefs after the worst output by
    running the machine through it, rounded down.
    """
    secrets = plan.task.secrets
    assert isinstance(secrets, SensitiveContexts)
    assert isinstance(plan.body, Machine)
    days = list(day_chains(plan.task.family))
    tables = tables_of(plan.body)
    if all(_short(day) for day in days):
        found = _written_out(days, secrets, plan.body)
    elif tables is not None:
        found = _followed([_for_machine(day, tables) for day in days], secrets, tables)
    else:
        found = _by_itself(plan, secrets)
    return Audit(
        mechanism=plan.mechanism,
        asked=plan.task.query.describe(),
        protected=secrets.describe(),
        notion=plan.guarantee.notion,
        promised=float(plan.guarantee.amount),
        claim=(found.lower, found.upper),
        lower=found.lower,
        upper=found.upper,
        entry_level=math.inf,
        witness=found.witness,
        assumptions=ASSUMED,
        not_checked=(*found.notes, *NOT_CHECKED, *(() if secrets.labels else (UNSURE,))),
        adversaries=found.adversaries,
    )


def _short(day: DayChain) -> bool:
    """Whether all outputs can be written out, and none is too unlikely for a float."""
    entries = np.concatenate([day.initial, day.transition.ravel()])
    rarest = float(entries[entries > 0].min()) / FINE
    few = day.slots * math.log(2 * day.size) <= math.log(MOST_BRANCHES)
    return few and day.slots * math.log(rarest) >= math.log(SMALLEST)


def _written_out(days: list[DayChain], secrets: SensitiveContexts, machine: Machine) -> FoundRise:
    """By all outputs of a short day."""
    tables = [outputs_of(day, machine) for day in days]
    found = [_highest(day, secrets, own) for day, own in zip(days, tables, strict=True)]
    which = max(range(len(days)), key=lambda place: found[place].value)
    day, worst, value = days[which], found[which], max(found[which].value, 0.0)
    alone = outputs_of(day.without_memory(), machine)
    others = enumerated(day, secrets, tables[which], alone, memoryless(machine))
    return FoundRise(value, value, _witness(day, which, worst), others)


def _followed(days: list[DayChain], secrets: SensitiveContexts, tables: Tables) -> FoundRise:
    """By following every release that can come up, under each day chain."""
    found = []
    for number, day in enumerate(days):
        with part(number, len(days) + 1):
            found.append(followed(day, secrets, tables))
    which = max(range(len(days)), key=lambda place: found[place].promise.lower)
    day, worst = days[which], found[which]
    with part(len(days), len(days) + 1):
        alone = None if secrets.labels else frequencies(day, secrets, tables)
    alike = memoryless(tables.body)
    others = measured(day, secrets, worst.promise, worst.labels, alone, alike)
    upper = max(one.promise.upper for one in found)
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    witness = _stream_witness(day, which, worst.promise) if worst.promise.output else None
    return FoundRise(worst.promise.lower, upper, witness, others, notes)


def _for_machine(day: DayChain, tables: Tables) -> DayChain:
    """The day with its contexts in the order of the machine; refused if they do not fit."""
    if sorted(day.states) != sorted(tables.states) or day.slots != tables.slots:
        raise InputError(
            f"the machine of the plan is for {tables.slots} slots of {list(tables.states)}; the "
            f"day chain has {day.slots} of {list(day.states)}: the plan belongs to another task"
        )
    return in_order(day, tables.states)


def _by_itself(plan: Plan, secrets: SensitiveContexts) -> FoundRise:
    """By the mechanism: all that is left for a machine whose decisions cannot be read."""
    value = loss_as_drawn(plan)
    certain = value if math.isfinite(value) else 0.0  # no belief rises by infinity
    return FoundRise(certain, value, None, bounded(secrets, value), (BY_ITSELF,))


def highest_rise(day: DayChain, secrets: SensitiveContexts, machine: Machine) -> HighestRise:
    """max over outputs, slots and sensitive contexts of share · (P(X_t = s | output) - P(X_t = s)).

    Over whole days; a part of an output is an average of its completions and tells no more.
    """
    return _highest(day, secrets, outputs_of(day, machine))


def outputs_of(day: DayChain, machine: Machine) -> dict[tuple[str | None, ...], Floats]:
    """P(X_t = j, output) for every output of a day, (slots, states), by running the machine."""
    joint: dict[tuple[str | None, ...], Floats] = {}
    for path, output, chance in _branches(day, machine):
        table = joint.setdefault(output, np.zeros((day.slots, day.size)))
        table[np.arange(day.slots), path] += chance
    return joint


def _highest(
    day: DayChain, secrets: SensitiveContexts, joint: Mapping[tuple[str | None, ...], Floats]
) -> HighestRise:
    prior, shares = day.marginals(), secrets.shares(day)
    best = HighestRise(-math.inf, (), 0, 0, 0.0, 0.0)
    for output, table in joint.items():
        after = table / table[0].sum()
        rises = np.where((shares > 0) & (prior > 0), shares * (after - prior), -math.inf)
        slot, context = (int(i) for i in np.unravel_index(int(np.argmax(rises)), rises.shape))
        if rises[slot, context] > best.value:
            value, reached = float(rises[slot, context]), float(after[slot, context])
            best = HighestRise(value, output, slot, context, float(prior[slot, context]), reached)
    return best


def _branches(
    day: DayChain, machine: Machine
) -> Iterator[tuple[tuple[int, ...], tuple[str | None, ...], float]]:
    """Every path, every output the machine may give for it, and their probability."""
    chances: dict[tuple[Any, int], float] = {}
    waiting: list[tuple[tuple[int, ...], tuple[str | None, ...], float, Any]] = [
        ((), (), 1.0, machine.init())
    ]
    while waiting:
        path, output, chance, state = waiting.pop()
        if len(path) == day.slots:
            yield path, output, chance
            continue
        law = day.transition[len(path) - 1, path[-1]] if path else day.initial
        for context in np.flatnonzero(law).tolist():
            key = (state, context)
            if key not in chances:
                chances[key] = hide_chance(machine, state, day.states[context])
            for word, weight in ((0, chances[key]), (FINE - 1, 1 - chances[key])):
                if weight > 0:
                    after, shown = machine.step(state, day.states[context], OneWord(word))
                    likely = chance * float(law[context]) * weight
                    waiting.append(((*path, context), (*output, shown), likely, after))


def _witness(day: DayChain, model: int, found: HighestRise) -> StreamWitness:
    name = repr(day.states[found.context])
    known = found.slot, found.before, found.after, found.output
    return _stream_witness(day, model, Highest(found.value, found.value, name, *known))


def _stream_witness(day: DayChain, model: int, found: Highest) -> StreamWitness:
    name = found.fact
    return StreamWitness(
        model=model,
        law=day.describe(),
        subject=f"slot {day.clock(found.slot)}",
        facts=(name, f"not {name}"),
        output=found.output,
        before=(found.before, 1 - found.before),
        after=(found.after, 1 - found.after),
    )
