"""The rise of belief a suppression stream allows, over every output of a day.

Short days are written out: the machine is run through every output. Long ones are followed release
by release, and the worst output is run through the machine (`sweep`).

A promise against an adversary who knows the chain need not hold against one who knows less: the
output may teach the chain. The paper names two challenges. LC1: for any knowledge between the
adversary's own and the chain, from any source, the belief after the output less the belief before
it stays below δ. LC2: the same where only outputs are learned from. Two ways out are proved in it:
the chain is published with the output (Theorem 6), or the states that may be sensitive are treated
as sensitive (Theorem 7). Götz, Nath & Gehrke 2012, Section 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

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
from shoal.contexts.audit.gap import (
    END,
    facts_of,
    rounding_error,
    sensitive_facts,
)
from shoal.contexts.audit.sweep import (
    FINE,
    ConstantRng,
    Sweep,
    SweepPeak,
    Tables,
    find_disagreement,
    tables_of,
)
from shoal.contexts.audit.witness import Output, complete_witness, suppression_chance
from shoal.contexts.checks.task import in_order
from shoal.contexts.day import DayChain, day_chains
from shoal.contexts.machine import memoryless
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.plan import Machine, Plan
from shoal.core.progress import in_time, part
from shoal.mechanisms.table import loss_as_drawn

MAX_BRANCHES = 300_000  # (contexts × released or not) ^ slots, written out one by one: some seconds
SMALLEST_OUTPUT_CHANCE = 1e-250  # probability of an output that is still written out
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
    """Audit a suppression plan: the highest rise of any sensitive belief over all outputs.

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
    if all(_is_short(day) for day in days):
        found = _enumerate_days(days, secrets, plan.body)
    elif tables is not None:
        found = _follow_days([_for_machine(day, tables) for day in days], secrets, tables)
    else:
        found = _by_mechanism(plan, days[0], secrets)
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


def _is_short(day: DayChain) -> bool:
    """Return whether all outputs can be enumerated and none is too unlikely for a float."""
    entries = np.concatenate([day.initial, day.transition.ravel()])
    rarest = float(entries[entries > 0].min()) / FINE
    few = day.slots * math.log(2 * day.size) <= math.log(MAX_BRANCHES)
    return few and day.slots * math.log(rarest) >= math.log(SMALLEST_OUTPUT_CHANCE)


def _enumerate_days(
    days: list[DayChain], secrets: SensitiveContexts, machine: Machine
) -> FoundRise:
    """Find the highest rise over all outputs of short days."""
    joint = [outputs_of(day, machine) for day in days]
    found = [_highest_state_rise(day, secrets, own) for day, own in zip(days, joint, strict=True)]
    which = max(range(len(days)), key=lambda index: found[index].upper)
    day, worst, value = days[which], found[which], max(found[which].upper, 0.0)
    # an adversary who knows frequencies alone takes slots for independent
    alone: Highest | None = None
    labels: tuple[Highest, ...] = ()
    if secrets.labels:
        labels = tuple(
            _highest_label_rise(day, secrets, joint[which], one) for one in (False, True)
        )
    else:
        alone = _highest_state_rise(day, secrets, outputs_of(day.without_memory(), machine))
    others = _lesser_adversaries(day, secrets, worst, labels, alone, memoryless(machine))
    return FoundRise(value, value, _witness(day, which, worst), others)


def _follow_days(days: list[DayChain], secrets: SensitiveContexts, tables: Tables) -> FoundRise:
    """Find the highest rise by following every release that can occur, under each day chain."""
    found = []
    for number, day in enumerate(days):
        with part(number, len(days) + 1):
            found.append(follow_releases(day, secrets, tables))
    which = max(range(len(days)), key=lambda index: found[index].promise.lower)
    day, worst = days[which], found[which]
    with part(len(days), len(days) + 1):
        alone = None if secrets.labels else follow_frequencies(day, secrets, tables)
    alike = memoryless(tables.body)
    others = _lesser_adversaries(day, secrets, worst.promise, worst.labels, alone, alike)
    upper = max(one.promise.upper for one in found)
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    witness = _witness(day, which, worst.promise) if worst.promise.output else None
    return FoundRise(worst.promise.lower, upper, witness, others, notes)


def _for_machine(day: DayChain, tables: Tables) -> DayChain:
    """Return the day with contexts in the order of the machine; refuse one that does not fit."""
    if sorted(day.states) != sorted(tables.states) or day.slots != tables.slots:
        raise InputError(
            f"the machine of the plan is for {tables.slots} slots of {list(tables.states)}; the "
            f"day chain has {day.slots} of {list(day.states)}: the plan belongs to another task"
        )
    return in_order(day, tables.states)


def _by_mechanism(plan: Plan, day: DayChain, secrets: SensitiveContexts) -> FoundRise:
    """Return the mechanism's own evaluation, for a machine whose decisions cannot be read."""
    value = loss_as_drawn(plan)
    certain = value if math.isfinite(value) else 0.0  # no belief rises by infinity
    others = _lesser_adversaries(day, secrets, Highest(value, value), (), None, False)
    return FoundRise(certain, value, None, others, (BY_ITSELF,))


def highest_rise(day: DayChain, secrets: SensitiveContexts, machine: Machine) -> Highest:
    """Return the highest share·(P(X_t = s | output) - P(X_t = s)) over all outputs of a day.

    Over whole days; a part of an output is an average of its completions and tells no more.
    """
    return _highest_state_rise(day, secrets, outputs_of(day, machine))


def outputs_of(day: DayChain, machine: Machine) -> dict[Output, Floats]:
    """Return P(X_t = j, output), (slots, states), of every output, by running the machine."""
    joint: dict[Output, Floats] = {}
    for path, output, chance in _branches(day, machine):
        table = joint.setdefault(output, np.zeros((day.slots, day.size)))
        table[np.arange(day.slots), path] += chance
    return joint


def _highest_state_rise(day: DayChain, secrets: SensitiveContexts, joint: Joint) -> Highest:
    """Return the highest rise of the belief in a state, times its share: the promise."""
    prior, shares = day.marginals(), secrets.shares(day)

    def rises() -> Iterator[Highest]:
        """Yield the highest rise of each output."""
        for output, table in joint.items():
            after = table / table[0].sum()
            rise = np.where((shares > 0) & (prior > 0), shares * (after - prior), -math.inf)
            slot, context = (int(i) for i in np.unravel_index(int(np.argmax(rise)), rise.shape))
            value, index = float(rise[slot, context]), (slot, context)
            known = float(prior[index]), float(after[index]), output
            yield Highest(value, value, repr(day.states[context]), slot, *known)

    return _first_highest(rises())


def _highest_label_rise(
    day: DayChain, secrets: SensitiveContexts, joint: Joint, any_labels: bool
) -> Highest:
    """Return the highest rise of the belief in a context, Σ_a q(a)·(P(a | output) - P(a)).

    q(a) is the chance that state a is the context: one over its number of labels for LC2; for LC1
    the worst, 1 where the belief in a rises and 0 where it falls.
    """
    prior = day.marginals()

    def rises() -> Iterator[Highest]:
        """Yield the rise of each fact, output and slot."""
        for names, slots in secrets.facts(day.slots):
            fair = secrets.fair(names, day)
            for output, table in joint.items():
                after = table / table[0].sum()
                for slot in slots:
                    change = after[slot] - prior[slot]
                    weight = np.where((fair > 0) & (change > 0), 1.0, 0.0) if any_labels else fair
                    value, name = float(weight @ change), " or ".join(map(repr, names))
                    both = float(weight @ prior[slot]), float(weight @ after[slot])
                    yield Highest(value, value, name, slot, *both, output)

    return _first_highest(rises())


def _first_highest(found: Iterable[Highest]) -> Highest:
    """Return the first of the highest rises."""
    return max(found, key=lambda one: one.upper, default=Highest(-math.inf, -math.inf))


def _branches(
    day: DayChain, machine: Machine
) -> Iterator[tuple[tuple[int, ...], tuple[str | None, ...], float]]:
    """Yield every path, every output the machine may give for it, and their probability."""
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
                chances[key] = suppression_chance(machine, state, day.states[context])
            for word, weight in ((0, chances[key]), (FINE - 1, 1 - chances[key])):
                if weight > 0:
                    after, output_now = machine.step(state, day.states[context], ConstantRng(word))
                    likely = chance * float(law[context]) * weight
                    waiting.append(((*path, context), (*output, output_now), likely, after))


def _lesser_adversaries(
    day: DayChain,
    secrets: SensitiveContexts,
    chain: Highest,
    labels: tuple[Highest, ...],
    alone: Highest | None,
    memoryless: bool,
) -> tuple[LesserAdversary, ...]:
    """Return the largest rise of each adversary who knows less than the chain.

    `chain` is for one who knows the chain, `labels` for LC2 and LC1, or empty where there are too
    many sets to tell apart; `alone` for one who takes slots for independent.
    """
    if secrets.labels and not labels:  # all that is known follows from the rise under the chain
        chain = Highest(chain.upper, chain.upper)
        labels = (chain, chain)
    own = _describe_adversary(day, chain, CHAIN, "nothing to learn", True, "this is the promise")
    if secrets.labels:
        both = zip(((LABELS_LC2, "LC2"), (LABELS_LC1, "LC1")), labels, strict=True)
        return own, *(_describe_adversary(day, one, *names, True, THEOREM_7) for names, one in both)
    # Theorem 6: the same numbers as for one who knew the chain all along
    published = replace(own, knows=PUBLISHED, challenge="LC1 and LC2", why=THEOREM_6)
    if alone is None:
        return own, published
    why = AVERAGED if memoryless else NOT_PROMISED
    return (
        own,
        published,
        _describe_adversary(day, alone, FREQUENCIES, "nothing learned", memoryless, why),
    )


def _describe_adversary(
    day: DayChain, found: Highest, knows: str, challenge: str, covered: bool, why: str
) -> LesserAdversary:
    """Return one adversary's report, with the worst output where it is known."""
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
    """Return the report of the worst output."""
    return StreamWitness(
        model=model,
        law=day.describe(),
        subject=f"slot {day.clock(found.slot)}",
        facts=(found.fact, f"not {found.fact}"),
        output=found.output,
        before=(found.before, 1 - found.before),
        after=(found.after, 1 - found.after),
    )


# Days too long to write out all outputs: a bound over all of them, and one output that attains it.
#
# The bound follows every release by what the machine's tables say; the output it names is then
# given to the machine itself, and its beliefs are found from scratch. So the two ends share no
# line of code beyond the model, and neither shares one with the mechanism that made the plan.


BELIEF_ULPS = 1e-15  # of a belief: columns are dropped by comparisons that round
APART = "the witness lies above the bound over all outputs: one of the two is wrong; report this"


class Highest(NamedTuple):
    """lower ≤ highest rise of a kind of belief ≤ upper, and the output that attains the lower end.

    `before` and `after` are the belief in `fact` at `slot`; `output` is empty when nothing rises.
    """

    lower: float
    upper: float
    fact: str = ""
    slot: int = 0
    before: float = 0.0
    after: float = 0.0
    output: Output = ()


class FollowedDay(NamedTuple):
    """What is found for one day chain: the promise, the labels (LC2, LC1) if any, and notes."""

    promise: Highest
    labels: tuple[Highest, ...]
    notes: tuple[str, ...]


def follow_releases(day: DayChain, secrets: SensitiveContexts, tables: Tables) -> FollowedDay:
    """Return the highest rises under one day chain, contexts in the order of the tables."""
    sweep = Sweep(day, tables, facts_of(day, secrets))
    sweep.run()
    wrong, asked, total = find_disagreement(tables, _releases(sweep))
    found = [_with_witness(sweep, peak) for peak in sweep.peaks]
    if any(one.lower > one.upper for one in found):
        wrong = wrong or APART
    if wrong:
        found = [one._replace(upper=math.inf) for one in found]
    notes = (wrong,) if wrong else ()
    if asked < total:
        notes = (*notes, f"{total - asked:,} of {total:,} decisions were read from the machine's "
                 "tables; it was asked for the others")  # fmt: skip
    return FollowedDay(found[0], tuple(found[1:]), notes)


def follow_frequencies(day: DayChain, secrets: SensitiveContexts, tables: Tables) -> Highest:
    """Return the highest rise for an adversary who takes slots for independent."""
    alone = day.without_memory()
    sweep = Sweep(alone, tables, sensitive_facts(day, secrets))
    sweep.run()
    return _with_witness(sweep, sweep.peaks[0])


def _releases(sweep: Sweep) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the start and the releases that can occur; the start alone if they do not matter."""
    if memoryless(sweep.tables.body):
        return np.array([[-1, 0]])
    return np.concatenate([[[-1, 0]], np.argwhere(sweep.seen)])


def _with_witness(sweep: Sweep, peak: SweepPeak) -> Highest:
    """Return the bounds of a peak, the lower one by running the machine through a whole output."""
    day, facts = sweep.day, sweep.facts
    upper = peak.rise + BELIEF_ULPS * float(facts.share.max(initial=0.0))
    if peak.fact < 0:
        return Highest(0.0, upper)
    seen = complete_witness(day, sweep.tables.body, output_of(sweep, peak))
    if seen is None:
        return Highest(0.0, math.inf)
    slot, weight = int(facts.slot[peak.fact]), facts.weight[peak.fact]
    before = float(weight @ day.marginals()[slot])
    after = float(weight @ seen.beliefs[slot])
    above = before * (1 + rounding_error(day.slots, day.size))
    rise = float(facts.share[peak.fact]) * (after * (1 - seen.error) - above) * (1 - 1e-15)
    named = facts.name[peak.fact], slot
    return Highest(max(rise, 0.0), upper, *named, before, after, seen.output)


def output_of(sweep: Sweep, peak: SweepPeak) -> Output:
    """Return the start of a day that leads to the peak: releases, gaps, and the last release."""
    names = sweep.day.states
    output: list[str | None] = [None] * peak.until
    release = peak.origin
    while release[0] >= 0:
        output[release[0]] = names[release[1]]
        slot, context = sweep.before[release]
        release = int(slot), int(context)
    return tuple(output) if peak.released == END else (*output, names[peak.released])
