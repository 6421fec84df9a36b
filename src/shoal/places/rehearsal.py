"""Streams of made-up walks: what they would show, and what they would tell of events.

Walks are drawn from the model and released with predictable noise: no data is looked at, and equal
plans give equal figures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from shoal.core.charge import Rng, categorical, uniforms
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import Secrets, as_events
from shoal.noise.primitives import SeededRng
from shoal.places.events import event_curve, guard_of
from shoal.places.machine import LocationMachine, machine_of
from shoal.places.packed import LocationState
from shoal.places.watch import EventWatch

SEED = 0
STEPS = 96  # of all walks together: a step whose constraint is new takes a tenth of a second
MOST_WALKS = 4


class Rehearsal(NamedTuple):
    """What made-up walks came to; beliefs are those of somebody who knows the chain and the plan.

    `skipped` is the share of steps that showed nothing, `epsilon` the mean over all steps, `error`
    the root mean square error of the estimate, in the query's unit. Of each event `before` is its
    prior, `low` and `high` the ends of what was believed, `told` the largest change of its
    log-odds.
    """

    steps: int
    skipped: float
    epsilon: float
    error: float
    before: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    told: tuple[float, ...]


def rehearsed(plan: Plan, watch: EventWatch) -> Rehearsal:
    """Streams of `plan`, and what they tell of the events of `watch`, its own or others."""
    machine, rng = machine_of(plan), SeededRng(SEED)
    length = min(watch.law(machine.chain).length, STEPS)
    spent, errors, curves = [], [], []
    for _ in range(max(1, min(MOST_WALKS, STEPS // length))):
        walk = walked(machine, length, rng)
        outputs = []
        for place, release in zip(walk, _released(plan, walk, rng), strict=True):
            outputs.append(release.z)
            guarantee = release.guarantee
            spent.append(0.0 if guarantee is None else float(guarantee.amount))
            errors.append(((np.array(release.estimate) - machine.query.values[place]) ** 2).sum())
        curves.append(event_curve(plan, outputs, watch))
    curve = np.concatenate(curves)
    odds = log_odds(curve)
    return Rehearsal(
        len(spent),
        float(np.mean([each == 0 for each in spent])),
        float(np.mean(spent)),
        float(np.sqrt(np.mean(errors))),
        tuple(curve[0].tolist()),
        tuple(curve.min(axis=0).tolist()),
        tuple(curve.max(axis=0).tolist()),
        tuple(np.abs(odds - odds[0]).max(axis=0).tolist()),
    )


def log_odds(beliefs: Floats) -> Floats:
    """log P/(1 - P); infinite where somebody is sure."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(beliefs) - np.log1p(-beliefs))


def unwatched(plan: Plan) -> Plan:
    """The same plan without its promise about events: what an ordinary stream of it would do."""
    machine = machine_of(plan)
    policy: Any = replace(machine.places.policy, watch=None)
    places = policy if machine.places.notion == "policy" else replace(machine.places, policy=policy)
    task = replace(plan.task, secrets=places)
    rules = tuple(rule for rule in plan.composition if not rule.promises)
    return replace(plan, task=task, body=replace(machine, places=places), composition=rules)


def asked(plan: Plan, secrets: Secrets) -> EventWatch:
    """The watch that asks `plan` about events, or about those that a policy watches.

    Events alone have the slots and clock of the plan's own watch, if it has one.
    """
    machine, events = machine_of(plan), as_events(secrets)
    found: EventWatch | None = getattr(secrets, "watch", None)  # of a policy or a location set
    if events is not None:
        own = machine.watch
        found = EventWatch.of(events, 1) if own is None else replace(own, events=events)
    if found is None:
        raise Refused(
            f"what {plan.mechanism} tells about {secrets.subject} is not computed; ask about "
            "events, such as those of a spec with [[secrets.event]]"
        )
    found.check(machine.chain)
    return found


def walked(machine: LocationMachine, steps: int, rng: Rng) -> list[int]:
    """One random sequence of states of the machine's chain, whatever kind it is."""
    motion = machine.runtime.motion
    belief, places = motion.begin(), []
    for step, draw in enumerate(uniforms(steps, rng)):
        belief = motion.predict(step, belief) if step else belief
        hidden = categorical(belief, float(draw))
        places.append(int(motion.at(step)[hidden]))
        belief = np.zeros(motion.hidden)
        belief[hidden] = 1.0  # what comes next depends on where one is
    return places


def _released(plan: Plan, walk: list[int], rng: Rng) -> list[Any]:
    """What a stream of the plan shows of a walk."""
    machine, names = machine_of(plan), machine_of(plan).query.states
    state: LocationState = machine.init()
    found: list[Any] = []
    if machine.watch is None:
        for place in walk:
            state, release = machine.step(state, names[place], rng)
            found.append(release)
        return found
    guard = guard_of(plan, machine.watch)
    held = guard.begin()
    for place in walk:
        state, release, held = guard.step(state, held, place, rng)
        found.append(release)
    return found
