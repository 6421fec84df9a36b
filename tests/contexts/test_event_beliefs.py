"""Beliefs in events along an output, for every kind of check, against all paths listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shoal
from shoal.contexts.attack import attack_contexts, attack_events, context_beliefs, run_day
from shoal.contexts.audit.events import event_beliefs, happens
from shoal.contexts.audit.memories import UNREAD
from shoal.contexts.audit.sweep import FINE, ConstantRng
from shoal.contexts.audit.witness import suppression_chance
from shoal.contexts.stream import advance
from shoal.core.plan import Plan
from shoal.events.automaton import law_of
from tests.event_oracle import happens as said, paths, random_chain, random_event

CHECKS = (
    "mask-sensitive",
    "mask-probabilistic",
    "mask-simulatable",
    "mask-adaptive",
    "mask-optimal",
)
DAY = shoal.DayChain.of(
    [[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.1, 0.25, 0.65]],
    initial=[0.1, 0.4, 0.5],
    slots=4,
    states=["clinic", "home", "work"],
)
EVENTS = (shoal.visit("clinic"), shoal.stay("home", 2), shoal.sequence("home", "clinic"))


class _Advanced:
    """The plan's machine as streams run it: it knows the model after a slot not read."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def step(self, state: object, observed: object, rng: object) -> object:
        return advance(self.plan, state, observed, rng)  # type: ignore[arg-type]


def by_paths(plan: Plan, outputs: list[str | None]) -> tuple[np.ndarray, np.ndarray]:
    """P(E | outputs) and P(X_t = j | outputs), running the machine along every path."""
    held, slots = np.zeros(len(EVENTS)), np.zeros((DAY.slots, DAY.size))
    for path, weight in paths(DAY.initial, DAY.transition):
        names, chance, state = [DAY.states[x] for x in path], weight, plan.start().state
        for name, output in zip(names, outputs, strict=True):
            if output == UNREAD:
                state = advance(plan, state, None, ConstantRng(0))[0]
                continue
            hidden = suppression_chance(_Advanced(plan), state, name)  # type: ignore[arg-type]
            chance *= hidden if output is None else (1 - hidden) * (output == name)
            if chance == 0:
                break
            word = ConstantRng(0 if output is None else FINE - 1)
            state = advance(plan, state, name, word)[0]
        if chance > 0:
            held += chance * np.array([said(event, names) for event in EVENTS])
            slots[np.arange(DAY.slots), path] += chance
    return held / slots[0].sum(), slots / slots[0].sum()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("unread", [(), (1,), (0, 2)])
def test_beliefs_after_a_day_are_those_of_all_paths(check: str, unread: tuple[int, ...]) -> None:
    plan = shoal.mask(DAY, shoal.SensitiveContexts.of("clinic"), delta=0.15, check=check)
    rng = shoal.SeededRng(7)
    for _ in range(3):
        day = [None if t in unread else DAY.states[x] for t, x in enumerate(DAY.sample(rng))]
        shown = run_day(plan, day, rng)
        outputs = [UNREAD if c is None else o for c, o in zip(day, shown, strict=True)]
        truth, slots = by_paths(plan, outputs)
        found = event_beliefs(plan, outputs, EVENTS)
        assert found[-1] == pytest.approx(truth, abs=1e-9)
        assert found[0] == pytest.approx([event.prior(DAY) for event in EVENTS], abs=1e-12)
        assert context_beliefs(plan, outputs) == pytest.approx(slots, abs=1e-9)


@pytest.mark.parametrize(
    "options", [{"delta": 0.1}, {"epsilon": 0.7}, {"delta": 0.1, "lower": True}]
)
def test_audit_of_a_short_day_is_the_enumeration(options: dict[str, Any]) -> None:
    plan = shoal.mask(DAY, shoal.Events.of(*EVENTS), **options)
    audit = shoal.audit(plan)
    amount = next(iter(options.values()))
    assert audit.lower == audit.upper
    assert 0.8 * amount < audit.lower <= amount * (1 + 1e-9)
    assert audit.witness is not None
    highest = 0.0
    for seed in range(20):
        rng = shoal.SeededRng(seed)
        outputs = run_day(plan, [DAY.states[x] for x in DAY.sample(rng)], rng)
        curve = event_beliefs(plan, outputs, EVENTS)
        change = curve - curve[0]
        if "epsilon" in options:
            with np.errstate(divide="ignore"):
                odds = np.log(curve / (1 - curve))
            change = np.abs(odds - odds[0])
        highest = max(highest, float(change.max()))
    assert highest <= audit.upper + 1e-9


def test_audit_of_a_long_day_follows_histories() -> None:
    day = shoal.DayChain.of(DAY.transition[0], initial=DAY.initial, states=DAY.states, slots=16)
    plan = shoal.mask(day, shoal.Events.of(shoal.visit("clinic", between=(3, 9))), delta=0.1)
    audit = shoal.audit(plan)
    assert 0 < audit.lower <= audit.upper == pytest.approx(0.1)


@pytest.mark.parametrize("seed", range(30))
def test_the_auditor_reads_events_as_the_oracle_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    initial, transition = random_chain(rng, 3, 5)
    law = law_of(shoal.DayChain.of(transition, initial=initial))
    event = random_event(rng, 3, 5, 2)
    for _ in range(20):
        path = [str(x) for x in rng.integers(0, 3, 5)]
        assert happens(event, path, law) == said(event, path)


def test_a_stream_that_hides_slots_may_give_the_visit_away() -> None:
    """Each slot within delta, while the belief in having been there at all moves on its own."""
    day = shoal.DayChain.of(
        [[0.0, 0.5, 0.5], [0.3, 0.35, 0.35], [0.3, 0.35, 0.35]],
        initial=[0.0, 0.5, 0.5],
        slots=12,
        states=["clinic", "home", "work"],
    )
    plan = shoal.mask(day, shoal.SensitiveContexts.of("clinic"), delta=0.3, check="mask-adaptive")
    most = 0.0
    for seed in range(40):
        rng = shoal.SeededRng(seed)
        curves = attack_contexts(plan, [day.states[x] for x in day.sample(rng)], rng)
        assert curves.highest_rise()[1] <= 0.3 + 1e-9
        (visit,) = curves.events
        most = max(most, abs(float(visit.after[-1]) - visit.before))
    assert most > 0.02


def test_attack_on_an_event_stream_stays_within_its_bound() -> None:
    day = shoal.DayChain.of(DAY.transition[0], initial=DAY.initial, states=DAY.states, slots=10)
    event = shoal.visit("clinic", between=(2, 8))
    plan = shoal.mask(day, shoal.Events.of(event), delta=0.1)
    naive = 0.0
    for seed in range(10):
        rng = shoal.SeededRng(seed)
        contexts = [None if t == 4 else day.states[x] for t, x in enumerate(day.sample(rng))]
        curves = attack_events(plan, contexts, rng)
        (curve,) = curves.events
        assert float(curve.after.max()) <= curve.before + 0.1 + 1e-9
        naive = max(naive, float(curve.naive.max()) - curve.before)
    assert naive > 0.2
