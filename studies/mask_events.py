"""Event promises against per-slot promises on days of contexts: what is shown, what is told."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice
from statistics import fmean
from typing import NamedTuple

import numpy as np

from shoal.contexts.attack import attack_contexts, run_day
from shoal.contexts.audit.events import event_beliefs
from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.events.event import TimeEvent, visit
from shoal.events.secrets import Events
from shoal.noise.primitives import SeededRng
from shoal.places.events import event_curve
from shoal.places.machine import machine_of
from shoal.places.policy import PolicyGraph
from shoal.places.queries import EventWatch
from shoal.places.rows import LAPLACE_ROW as NOISE, log_odds
from shoal.places.stream import LocationStream
from studies.location_traces import Town, Track, towns
from studies.mask_study import choose_sensitive, halves
from studies.mask_traces import Person, people
from studies.report import Report, Table

DELTAS = (Fraction(1, 10), Fraction(1, 5))
EPSILON = Fraction(1)
PEOPLE = 3  # of each source, so that the study takes minutes
EVENT_EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2))
NEAR_KM, WINDOW, SLOTS, TRACKS = 0.5, (8, 24), 32, 4
DRAWN = 4  # random days of a person for what a stream tells


class Case(NamedTuple):
    """One person: the chain of the days, and the event of having been somewhere that day."""

    day: DayChain
    place: str
    event: TimeEvent


def run() -> Report:
    """A table per source: shares of slots shown, and the highest beliefs in the visit."""
    tables = [_table(source, persons) for source, persons in people(("places",))]
    tables += [_streams(town) for town in islice(towns(), 2)]
    return Report(
        name="mask-events",
        source="not in the papers: event secrets (contexts/mask_online.md).",
        tables=tuple(tables),
        figures=(),
    )


def _streams(town: Town) -> Table:
    """Streams of places: the error against ε_E, and what a stream without events gives away."""
    busiest = town.query.values[int(town.chain.initial.argmax())]
    near = np.linalg.norm(town.query.values - busiest, axis=1) <= NEAR_KM
    names = [town.query.states[k] for k in np.flatnonzero(near)]
    events = Events.of(visit(names, between=WINDOW))
    policy = PolicyGraph.within(town.query, town.radius_km)
    rows = []
    for amount in (None, *EVENT_EPSILONS):
        held = policy if amount is None else policy.watching(events, amount, slots=SLOTS)
        task = Task(query=town.query, secrets=held, family=(town.chain,))
        plan = NOISE.calibrate(task, EPSILON)
        asked = EventWatch.of(events, 1, slots=SLOTS)
        runs = [_streamed(plan, asked, track) for track in town.tracks[:TRACKS]]
        off, skipped, told = (fmean(column) for column in zip(*runs, strict=True))
        name = "each step alone" if amount is None else f"event, ε_E = {float(amount):g}"
        rows.append((name, off, 100 * skipped, told))
    return Table(
        title=f"{town.name}: within {NEAR_KM} km of the busiest cell in steps {WINDOW[0]} to "
        f"{WINDOW[1]}, ε = 1 a step",
        columns=("promise", "error of the estimate, km", "steps without output, in %", "log-odds"),
        rows=tuple(rows),
        notes=(
            f"means over {TRACKS} tracks of {SLOTS} steps; log-odds: how far the stream moved "
            "those of the event, at most on the way",
        ),
    )


def _streamed(plan: Plan, asked: EventWatch, track: Track) -> tuple[float, float, float]:
    """Of one real track: mean error of the estimate, share of steps skipped, log-odds moved."""
    query, stream = machine_of(plan).query, LocationStream.begin(plan)
    rng, off, outputs = SeededRng(1), [], []
    for place in track.states[:SLOTS].tolist():
        stream, release = stream.read(query.states[place], rng=rng)
        off.append(float(np.linalg.norm(np.array(release.estimate) - query.values[place])))
        outputs.append(release.z)
    odds = log_odds(event_curve(plan, outputs, asked)[:, 0])
    skipped = fmean(float(z is None) for z in outputs)
    return fmean(off), skipped, float(np.abs(odds - odds[0]).max())


def cases(persons: list[Person]) -> list[Case]:
    """Those for whom the visit is neither impossible nor certain, with a smoothed chain."""
    found = []
    for person in persons:
        day, _ = halves(person, smoothing=1.0)
        place = choose_sensitive(person, 1, 6)[0]
        event = visit(place)
        if 0.02 < event.prior(day) < 0.9:
            found.append(Case(day, place, event))
    return found[:PEOPLE]


def _table(source: str, persons: list[Person]) -> Table:
    known = cases(persons)
    rows: list[tuple[str, float | None, float | None, float | None]] = []
    for delta in DELTAS:
        name = f"δ = {float(delta):g}"
        seeing = [mask(c.day, Events.of(c.event), delta=delta) for c in known]
        blind = [mask(c.day, Events.of(c.event), delta=delta, memory="none") for c in known]
        slots = [
            mask(c.day, SensitiveContexts.of(c.place), delta=delta, seconds=1, clock=None)
            for c in known
        ]
        rows.append((f"event, {name}", _shown(seeing), *_told(known, seeing)))
        rows.append((f"event, context alone, {name}", _shown(blind), *_told(known, blind)))
        rows.append((f"each slot, {name}", _shown(slots), *_told(known, slots)))
    odds = [mask(c.day, Events.of(c.event), epsilon=EPSILON) for c in known]
    rows.append(("event, ε = 1", _shown(odds), *_told(known, odds)))
    rows.append(("naive: the place is hidden", None, *_naive(known)))
    prior = fmean(c.event.prior(c.day) for c in known)
    return Table(
        title=f"{source}, {len(known)} people: was at one place at some time of the day",
        columns=("promise", "slots shown, in %", "highest rise", "mean change at the end"),
        rows=tuple(rows),
        notes=(f"mean prior of the visit {prior:.2f}; rises over {DRAWN} random days a person",),
    )


def _shown(plans: list[Plan]) -> float:
    return 100 * fmean(-plan.cost / (plan.task.family[0].tied or 1) for plan in plans)


def _told(known: list[Case], plans: list[Plan]) -> tuple[float, float]:
    """The highest rise of the belief in the visit, and its mean size at the end of a day."""
    highest, ends = 0.0, []
    for number, (case, plan) in enumerate(zip(known, plans, strict=True)):
        rng = SeededRng(number)
        for _ in range(DRAWN):
            outputs = run_day(plan, [case.day.states[x] for x in case.day.sample(rng)], rng)
            curve = event_beliefs(plan, outputs, [case.event])[:, 0]
            highest = max(highest, float((curve - curve[0]).max()))
            ends.append(abs(float(curve[-1] - curve[0])))
    return highest, float(np.mean(ends))


def _naive(known: list[Case]) -> tuple[float, float]:
    highest, ends = 0.0, []
    for number, case in enumerate(known):
        plan = mask(case.day, SensitiveContexts.of(case.place), delta=0.5, check="mask-simulatable")
        rng = SeededRng(number)
        for _ in range(DRAWN):
            day = [case.day.states[x] for x in case.day.sample(rng)]
            try:
                curve = attack_contexts(plan, day, rng).events[0]
            except InputError:
                continue
            highest = max(highest, float(curve.naive.max()) - curve.before)
            ends.append(abs(float(curve.naive[-1]) - curve.before))
    return highest, float(np.mean(ends))
