"""What an observer believes about events, slot by slot, under any suppression plan.

The observer knows the chain, the plan and the outputs, and which slots were read. Beliefs follow
from masses of (event, what the machine remembers, context); an event is decided path by path from
its words (`happens`) on short days, and by its automaton on long ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from shoal.audit.result import Audit, StreamWitness
from shoal.contexts.audit.memories import UNREAD, Output, machine_memory
from shoal.contexts.checks.task import in_order
from shoal.contexts.day import DayChain
from shoal.contexts.online import OnlineMask
from shoal.contexts.stream import advance
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.core.progress import in_time, time_over
from shoal.core.task import Secrets, as_events
from shoal.events.automaton import PathLaw, beliefs, compile_events, law_of
from shoal.events.cuts import histories
from shoal.events.event import AllOf, AnyOf, AtLeast, InOrder, NotOf, Stay, TimeEvent
from shoal.events.filter import GRAIN
from shoal.events.secrets import Events
from shoal.events.window import window
from shoal.noise.primitives import SeededRng

MAX_PATHS_WITH_OUTPUTS = 400_000  # paths times outputs, written out one by one
MAX_OUTPUTS_LISTED = 1000  # outputs of a day of any mask, followed one by one
MAX_SAMPLED_SLOTS = 600  # slots of random days behind a calendar
SAMPLED_HISTORIES = 24  # of outputs that a long day is followed along
ASSUMED = (
    "the path follows the chain",
    "the adversary knows the chain, the machine and which slots were read, and sees one stream",
)
DRAWN = f"outputs other than the {SAMPLED_HISTORIES} drawn"
NOT_CHECKED = ("events that are not named, and combinations of those that are",)


def event_beliefs(
    plan: Plan, outputs: Output, events: Sequence[TimeEvent], adversary: int = 0
) -> Floats:
    """Return P(E | outputs up to each slot), (slots + 1, events); row 0 is before any output.

    `outputs` holds a context, None for a slot that showed nothing, UNREAD for one not read.
    Refused when the chain cannot explain the outputs.
    """
    memory = machine_memory(plan)
    day = in_order(_model_day(plan, adversary), memory.states)
    law = law_of(day)
    automaton = compile_events(list(events), law)
    ahead = beliefs(automaton, law)
    columns = np.arange(day.size)
    rows = [ahead[0][:, automaton.steps[0][0], columns] @ day.initial]
    mass = day.initial[None, None, :]  # (automaton, memory, context) before the slot
    index = {name: index for index, name in enumerate(memory.states)}
    for slot, output in enumerate(outputs):
        if slot:
            mass = mass @ day.transition[slot - 1]
        step, entered = (
            automaton.steps[slot],
            np.zeros((automaton.sizes[slot + 1], *mass.shape[1:])),
        )
        for q, x in np.ndindex(step.shape):
            entered[step[q, x], :, x] += mass[q, :, x]
        mass = memory.condition_on(entered, slot, output, index.get(str(output), -1))
        total = mass.sum()
        if not total > 0:
            raise InputError("the outputs cannot occur under the model")
        mass = mass / total
        rows.append((ahead[slot] * mass.sum(axis=1)).sum(axis=(1, 2)))
    return np.array(rows)


def slot_beliefs(plan: Plan, outputs: Output) -> Floats:
    """Return P(X_t = s | outputs), (slots, states), of a day that may still be running.

    `outputs` as in `event_beliefs`, from the first slot on. Refused when the chain cannot explain
    them.
    """
    memory, own = machine_memory(plan), _model_day(plan)
    day = in_order(own, memory.states)
    size, index = day.size, {name: index for index, name in enumerate(memory.states)}
    # (0, memory, context), and jointly with X_t = s in row 1 + t * size + s
    mass = np.zeros((1 + day.slots * size, 1, size))
    for slot, output in enumerate([*outputs, UNREAD][: day.slots]):
        mass[0] = day.initial if slot == 0 else mass[0]
        mass = mass if slot == 0 else mass @ day.transition[slot - 1]
        for x in range(size):
            mass[1 + slot * size + x, :, x] = mass[0, :, x]
        if slot == len(outputs):
            break
        known = output in (None, UNREAD) or output in index
        mass = (
            memory.condition_on(mass, slot, output, index.get(str(output), -1))
            if known
            else 0 * mass
        )
        total = mass[0].sum()
        if not total > 0:
            raise InputError("the outputs cannot occur under the model")
        mass = mass / total
    laws = mass[1:].sum(axis=(1, 2)).reshape(day.slots, size)
    for slot in range(len(outputs) + 1, day.slots):
        laws[slot] = laws[slot - 1] @ day.transition[slot - 1]
    return np.asarray(laws[:, [index[name] for name in own.states]])


def _model_day(plan: Plan, number: int = 0) -> DayChain:
    day = plan.task.family[number]
    assert isinstance(day, DayChain)
    return day


def happens(event: TimeEvent, path: Sequence[str], law: PathLaw) -> bool:
    """Return whether an event holds on a path, from its definition."""
    match event:
        case NotOf(inner):
            return not happens(inner, path, law)
        case AllOf(parts):
            return all(happens(part, path, law) for part in parts)
        case AnyOf(parts):
            return any(happens(part, path, law) for part in parts)
        case AtLeast(named, times, between):
            inside = window(between, law.length, law.clock)
            return (
                sum(x in named for x, within in zip(path, inside, strict=True) if within) >= times
            )
        case Stay(named, times, between):
            inside = window(between, law.length, law.clock)
            run = longest = 0
            for x, within in zip(path, inside, strict=True):
                run = run + 1 if within and x in named else 0
                longest = max(longest, run)
            return longest >= times
        case InOrder(stages, between):
            inside = window(between, law.length, law.clock)
            reached = 0
            for x, within in zip(path, inside, strict=True):
                reached += bool(within and reached < len(stages) and x in stages[reached])
            return reached == len(stages)
    raise TypeError(f"{type(event).__name__} is not an event")


def event_audit(plan: Plan, curve: bool) -> Audit:
    """Audit an online plan: how far any output moves the belief in an event, or its odds.

    Short days: every path and every output, events decided from their words, coins multiplied.
    Long ones: beliefs along histories drawn from the model give a lower bound, the certificate of
    every slot the upper one.
    """
    secrets, body = plan.task.secrets, plan.body
    assert isinstance(secrets, Events)
    assert isinstance(body, OnlineMask)
    amount = float(plan.guarantee.amount)
    if body.slots * math.log(body.days[0].size * (body.days[0].size + 1)) <= math.log(
        MAX_PATHS_WITH_OUTPUTS
    ):
        found = max((_enumerate_paths(plan, i) for i in range(len(body.days))), key=_amount)
        return _audit_of(plan, secrets, found, max(found[0], 0.0), (), promised=amount)
    found = max((_sample_outputs(plan, i, secrets) for i in range(len(body.days))), key=_amount)
    note = "the upper bound is the certificate that the machine asks of every slot"
    return _audit_of(plan, secrets, found, amount, (f"{DRAWN}: {note}",), promised=amount)


def audit_events(plan: Plan, asked: Secrets) -> Audit:
    """Audit any suppression plan for events it was not made for.

    Exact on days short enough to list every output; else a lower bound, along histories drawn
    from the model, and no upper one: nothing is promised.
    """
    secrets = as_events(asked)
    if secrets is None:
        raise Refused(
            f"what {plan.mechanism} tells about {asked.subject} is not computed; ask about events"
        )
    secrets.check(plan.task.family)
    day = _model_day(plan)
    members = range(len(plan.task.family))
    if (day.size + 1) ** day.slots <= MAX_OUTPUTS_LISTED:
        found = max((_enumerate_outputs(plan, i, secrets) for i in members), key=_amount)
        return _audit_of(plan, secrets, found, max(found[0], 0.0), ())
    found = max((_sample_outputs(plan, i, secrets) for i in members), key=_amount)
    upper = math.inf if secrets.change == "odds" else 1.0
    return _audit_of(plan, secrets, found, upper, (f"{DRAWN}: nothing is promised about these",))


def _audit_of(
    plan: Plan,
    secrets: Events,
    found: Found,
    upper: float,
    notes: tuple[str, ...],
    *,
    promised: float | None = None,
) -> Audit:
    """Return the audit report of the largest change found; `promised` is None for other events."""
    lower, amount = max(found[0], 0.0), significant(plan.guarantee.amount)
    made = f"; the mask was made for {plan.task.secrets.subject}, at {amount}"
    return Audit(
        mechanism=plan.mechanism,
        asked=plan.task.query.describe() + ("" if promised is not None else made),
        protected=secrets.describe(),
        notion=secrets.notion if promised is None else plan.guarantee.notion,
        promised=promised,
        claim=(lower, upper),
        lower=lower,
        upper=upper,
        entry_level=math.inf,
        witness=found[1],
        assumptions=ASSUMED,
        not_checked=(*notes, *NOT_CHECKED),
    )


Found = tuple[float, StreamWitness | None]


def _amount(found: Found) -> float:
    """Return the size of a change."""
    return found[0]


def _change_of_belief(secrets: Events, before: Floats, after: Floats) -> float:
    """Return how far one pair (E, E') is moved: a rise, a rise or fall, or a change of log-odds."""
    if secrets.change == "odds":
        if not after.any():
            return 0.0  # neither of the pair: nothing to tell apart
        with np.errstate(divide="ignore"):
            odds = np.log(after) - np.log(before)
        return float(abs(odds[0] - odds[1]))
    rise = float(after[0] - before[0])
    return abs(rise) if secrets.change == "rise-and-fall" else rise


def _enumerate_paths(plan: Plan, number: int) -> Found:
    """Find the largest change over every path and every output of a short day."""
    body, secrets = plan.body, plan.task.secrets
    assert isinstance(body, OnlineMask)
    assert isinstance(secrets, Events)
    day, law = body.days[number], law_of(body.days[number])
    paths = [(path, chance) for path, chance in _possible_paths(day) if chance > 0]
    weights = np.array([chance for _, chance in paths])
    pairs = zip((event for event, _ in secrets.pairs), secrets.against(), strict=True)
    facts = np.array(
        [
            [[happens(e, [day.states[x] for x in path], law) for path, _ in paths] for e in pair]
            for pair in pairs
        ],
        dtype=np.float64,
    )
    before = facts @ weights
    best: Found = (-math.inf, None)
    for outputs, likely in _output_likelihoods(body, [path for path, _ in paths]):
        in_time("the audit")
        joint = weights * likely
        if not joint.sum() > 0:
            continue
        after = facts @ joint / joint.sum()
        for i in range(len(facts)):
            value = _change_of_belief(secrets, before[i], after[i])
            if value > best[0]:
                best = value, _witness(plan, number, secrets, i, outputs, before[i], after[i])
    return best


def _possible_paths(day: DayChain) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield every path that is possible under the chain, with its probability."""
    found: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    for slot in range(day.slots):
        found = [
            ((*path, x), chance * float(p))
            for path, chance in found
            for x, p in enumerate(day.transition[slot - 1, path[-1]] if path else day.initial)
            if p > 0
        ]
    yield from found


def _output_likelihoods(
    body: OnlineMask, paths: list[tuple[int, ...]]
) -> Iterator[tuple[tuple[str | None, ...], Floats]]:
    """Yield every output with its likelihood given each path, by the published policy."""
    program = body.program()
    waiting: list[tuple[Any, tuple[str | None, ...], Floats, Ints]] = [
        (program.begin(), (), np.ones(len(paths)), np.zeros(len(paths), dtype=np.int64))
    ]
    table = np.array(paths)
    while waiting:
        held, outputs, likely, memory = waiting.pop()
        slot = len(outputs)
        if slot == body.slots:
            yield outputs, likely
            continue
        here = program.arrive(held, slot, read=True)
        codes = program.allowed(here, slot)
        memory = program.memory.steps[slot][memory, table[:, slot]]
        chances = codes[memory, table[:, slot]] * GRAIN
        for output in [None, *np.flatnonzero(codes.any(axis=0)).tolist()]:
            chance = 1 - chances if output is None else chances * (table[:, slot] == output)
            name = None if output is None else body.states[output]
            after = program.after(here, codes, output)
            waiting.append((after, (*outputs, name), likely * chance, memory))


def _enumerate_outputs(plan: Plan, number: int, secrets: Events) -> Found:
    """Find the largest change over every possible output of a short day, for any machine."""
    best: Found = (-math.inf, None)
    day = _model_day(plan, number)
    for outputs in product((None, *day.states), repeat=day.slots):
        in_time("the audit")
        try:
            best = max(best, _largest_change(plan, number, secrets, outputs), key=_amount)
        except InputError:  # the outputs cannot occur
            continue
    return best


def _sample_outputs(plan: Plan, number: int, secrets: Events) -> Found:
    """Find the largest change over outputs drawn from the model: a lower bound."""
    day, rng = _model_day(plan, number), np.random.default_rng(number)
    best: Found = (-math.inf, None)
    for turn in range(SAMPLED_HISTORIES):
        if turn and time_over():  # fewer histories are a lower bound too
            break
        best = max(
            best,
            _largest_change(plan, number, secrets, _random_output(plan, day, rng)),
            key=_amount,
        )
    return best


def _largest_change(plan: Plan, number: int, secrets: Events, outputs: Output) -> Found:
    """Return the largest change that some prefix of these outputs causes, and where."""
    named = [event for event, _ in secrets.pairs]
    curve = event_beliefs(plan, outputs, [*named, *secrets.against()], number)
    found: Found = (-math.inf, None)
    for slot, i in np.ndindex(len(curve) - 1, len(named)):
        pair = [i, len(named) + i]
        value = _change_of_belief(secrets, curve[0, pair], curve[slot + 1, pair])
        if value > found[0]:
            before, after = curve[0, pair], curve[slot + 1, pair]
            witness = _witness(plan, number, secrets, i, outputs[: slot + 1], before, after)
            found = value, witness
    return found


def _random_output(plan: Plan, day: DayChain, rng: np.random.Generator) -> list[str | None]:
    """Return the output of one random day of the model under any plan."""
    source = SeededRng(int(rng.integers(2**62)))
    machine: Any = plan.body
    state, outputs = machine.init(), list[str | None]()
    for x in day.sample(source):
        state, output = advance(plan, state, day.states[x], source)
        outputs.append(output)
    return outputs


def sample_days(plan: Plan, seed: int = 1) -> tuple[Floats, Floats]:
    """Return release rates (slots, contexts) and beliefs (days, slots, events) of random days."""
    body, secrets = plan.body, plan.task.secrets
    assert isinstance(body, OnlineMask)
    assert isinstance(secrets, Events)
    rng, day = np.random.default_rng(seed), body.days[0]
    rates, curves = [], []
    for _ in range(max(3, min(24, MAX_SAMPLED_SLOTS // day.slots))):
        history = list(histories(body.program(), rng))
        rates.append([chance[:-1] for _, chance, _ in history])
        outputs = [(*body.states, None)[output] for *_, output in history]
        curves.append(event_beliefs(plan, outputs, secrets.all_events())[1:])
    order = [body.states.index(name) for name in plan.task.query.states]
    return np.mean(rates, axis=0)[:, order], np.array(curves)


def _witness(
    plan: Plan,
    number: int,
    secrets: Events,
    pair: int,
    output: Any,
    before: Floats,
    after: Floats,
) -> StreamWitness:
    """Return the report of one output that changes a belief."""
    event, other = secrets.pairs[pair][0], secrets.against()[pair]
    return StreamWitness(
        model=number,
        law=plan.task.family[number].describe(),
        subject="",
        facts=(f"having been {event.describe()}", f"having been {other.describe()}"),
        output=tuple(output),
        before=(float(before[0]), float(before[1])),
        after=(float(after[0]), float(after[1])),
    )
