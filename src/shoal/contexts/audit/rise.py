"""The rise of belief a suppression stream allows, over every output of a day.

Short days are written out: the machine is run through every output. Long ones are followed release
by release, and the worst output is run through the machine (`sweep`).

A promise to somebody who knows the chain need not hold for somebody who knows less: the output may
teach the chain. The paper names two challenges. LC1: whatever between the adversary's own knowledge
and the chain is known, from any source, the belief after the output less the belief before it stays
below δ. LC2: the same where only outputs are learned from. Two ways out are proved in it: the chain
is published with the output (Theorem 6), or the states that may be sensitive are treated as
sensitive (Theorem 7). Götz, Nath & Gehrke 2012, Section 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from shoal.additive.choice import loss_as_drawn
from shoal.audit.result import (
    CHAIN,
    FREQUENCIES,
    LABELS_LC1,
    LABELS_LC2,
    PUBLISHED,
    Audit,
    LesserAdversary,
    StreamWitness,
)
from shoal.contexts.audit.sweep import Highest, followed, frequencies
from shoal.contexts.audit.tables import FINE, OneWord, Output, Tables, hide_chance, tables_of
from shoal.contexts.checks.task import in_order
from shoal.contexts.day import DayChain, day_chains
from shoal.contexts.machine import memoryless
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.plan import Machine, Plan
from shoal.core.progress import in_time, part

MOST_BRANCHES = 300_000  # (contexts × shown or not) ^ slots, written out one by one: some seconds
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


AVERAGED = "the belief about a slot is then an average of beliefs that keep the bound"
NOT_PROMISED = "nothing is promised to one who takes slots for independent; publish the chain"
THEOREM_6 = (
    "the belief before is that of one who knows the chain, and so is the belief after it is "
    "published (Theorem 6)"
)
THEOREM_7 = "states that may be sensitive are held to their share of delta (Theorem 7)"
Joint = Mapping[Output, Floats]  # output -> P(X_t = j, output), (slots, states)


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
        found = _by_itself(plan, days[0], secrets)
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
    joint = [outputs_of(day, machine) for day in days]
    found = [_highest(day, secrets, own) for day, own in zip(days, joint, strict=True)]
    which = max(range(len(days)), key=lambda place: found[place].upper)
    day, worst, value = days[which], found[which], max(found[which].upper, 0.0)
    # what somebody takes for true who knows frequencies alone: slots are independent
    alone: Highest | None = None
    labels: tuple[Highest, ...] = ()
    if secrets.labels:
        labels = tuple(_labelled(day, secrets, joint[which], one) for one in (False, True))
    else:
        alone = _highest(day, secrets, outputs_of(day.without_memory(), machine))
    others = _adversaries(day, secrets, worst, labels, alone, memoryless(machine))
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
    others = _adversaries(day, secrets, worst.promise, worst.labels, alone, alike)
    upper = max(one.promise.upper for one in found)
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    witness = _witness(day, which, worst.promise) if worst.promise.output else None
    return FoundRise(worst.promise.lower, upper, witness, others, notes)


def _for_machine(day: DayChain, tables: Tables) -> DayChain:
    """The day with its contexts in the order of the machine; refused if they do not fit."""
    if sorted(day.states) != sorted(tables.states) or day.slots != tables.slots:
        raise InputError(
            f"the machine of the plan is for {tables.slots} slots of {list(tables.states)}; the "
            f"day chain has {day.slots} of {list(day.states)}: the plan belongs to another task"
        )
    return in_order(day, tables.states)


def _by_itself(plan: Plan, day: DayChain, secrets: SensitiveContexts) -> FoundRise:
    """By the mechanism: all that is left for a machine whose decisions cannot be read."""
    value = loss_as_drawn(plan)
    certain = value if math.isfinite(value) else 0.0  # no belief rises by infinity
    others = _adversaries(day, secrets, Highest(value, value), (), None, False)
    return FoundRise(certain, value, None, others, (BY_ITSELF,))


def highest_rise(day: DayChain, secrets: SensitiveContexts, machine: Machine) -> Highest:
    """max over outputs, slots and sensitive contexts of share · (P(X_t = s | output) - P(X_t = s)).

    Over whole days; a part of an output is an average of its completions and tells no more.
    """
    return _highest(day, secrets, outputs_of(day, machine))


def outputs_of(day: DayChain, machine: Machine) -> dict[Output, Floats]:
    """P(X_t = j, output) for every output of a day, (slots, states), by running the machine."""
    joint: dict[Output, Floats] = {}
    for path, output, chance in _branches(day, machine):
        table = joint.setdefault(output, np.zeros((day.slots, day.size)))
        table[np.arange(day.slots), path] += chance
    return joint


def _highest(day: DayChain, secrets: SensitiveContexts, joint: Joint) -> Highest:
    """The highest rise of the belief in a state, times its share: what plans are held to."""
    prior, shares = day.marginals(), secrets.shares(day)

    def rises() -> Iterator[Highest]:
        for output, table in joint.items():
            after = table / table[0].sum()
            rise = np.where((shares > 0) & (prior > 0), shares * (after - prior), -math.inf)
            slot, context = (int(i) for i in np.unravel_index(int(np.argmax(rise)), rise.shape))
            value, place = float(rise[slot, context]), (slot, context)
            known = float(prior[place]), float(after[place]), output
            yield Highest(value, value, repr(day.states[context]), slot, *known)

    return _largest(rises())


def _labelled(day: DayChain, secrets: SensitiveContexts, joint: Joint, any_labels: bool) -> Highest:
    """The highest rise of the belief in a context: Σ_a q(a)·(P(X = a | output) - P(X = a)).

    q(a) is the chance that state a is the context: one over its number of labels for LC2; for LC1
    the worst, 1 where the belief in a rises and 0 where it falls.
    """
    prior, known = day.marginals(), [secrets.stands_for(state) for state in day.states]

    def rises() -> Iterator[Highest]:
        for names, slots in secrets.facts(day.slots):
            fair = np.array([len(set(own) & set(names)) / len(own) for own in known])
            for output, table in joint.items():
                after = table / table[0].sum()
                for slot in slots:
                    change = after[slot] - prior[slot]
                    weight = np.where((fair > 0) & (change > 0), 1.0, 0.0) if any_labels else fair
                    value, name = float(weight @ change), " or ".join(map(repr, names))
                    both = float(weight @ prior[slot]), float(weight @ after[slot])
                    yield Highest(value, value, name, slot, *both, output)

    return _largest(rises())


def _largest(found: Iterable[Highest]) -> Highest:
    """The first of the highest."""
    return max(found, key=lambda one: one.upper, default=Highest(-math.inf, -math.inf))


def _branches(
    day: DayChain, machine: Machine
) -> Iterator[tuple[tuple[int, ...], tuple[str | None, ...], float]]:
    """Every path, every output the machine may give for it, and their probability."""
    chances: dict[tuple[Any, int], float] = {}
    waiting: list[tuple[tuple[int, ...], tuple[str | None, ...], float, Any]] = [
        ((), (), 1.0, machine.init())
    ]
    while waiting:
        in_time("the audit")
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


def _adversaries(
    day: DayChain,
    secrets: SensitiveContexts,
    chain: Highest,
    labels: tuple[Highest, ...],
    alone: Highest | None,
    memoryless: bool,
) -> tuple[LesserAdversary, ...]:
    """Every adversary's largest rise, with the output that raises a belief most where one is known.

    `chain` is for one who knows the chain, `labels` for LC2 and LC1, or empty where there are too
    many sets to tell apart; `alone` for one who takes slots for independent.
    """
    if secrets.labels and not labels:  # all that is known follows from the rise under the chain
        chain = Highest(chain.upper, chain.upper)
        labels = (chain, chain)
    own = _seen(day, chain, CHAIN, "nothing to learn", True, "this is the promise")
    if secrets.labels:
        both = zip(((LABELS_LC2, "LC2"), (LABELS_LC1, "LC1")), labels, strict=True)
        return own, *(_seen(day, one, *names, True, THEOREM_7) for names, one in both)
    # Theorem 6: the same numbers as for one who knew the chain all along
    published = replace(own, knows=PUBLISHED, challenge="LC1 and LC2", why=THEOREM_6)
    if alone is None:
        return own, published
    why = AVERAGED if memoryless else NOT_PROMISED
    return own, published, _seen(day, alone, FREQUENCIES, "nothing learned", memoryless, why)


def _seen(
    day: DayChain, found: Highest, knows: str, challenge: str, covered: bool, why: str
) -> LesserAdversary:
    """One adversary, with the beliefs at the worst output; the bound alone if there is none."""
    rise = max(found.upper, 0.0)
    bound = LesserAdversary(knows=knows, challenge=challenge, rise=rise, covered=covered, why=why)
    if not (found.output and found.upper - found.lower <= 1e-9 and rise > 0):
        return bound
    return replace(
        bound,
        fact=f"{found.fact} at slot {day.clock(found.slot)}",
        before=found.before,
        after=found.after,
        output=found.output,
    )


def _witness(day: DayChain, model: int, found: Highest) -> StreamWitness:
    return StreamWitness(
        model=model,
        law=day.describe(),
        subject=f"slot {day.clock(found.slot)}",
        facts=(found.fact, f"not {found.fact}"),
        output=found.output,
        before=(found.before, 1 - found.before),
        after=(found.after, 1 - found.after),
    )
