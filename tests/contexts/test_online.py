"""The online check against all outputs of small days, listed one by one.

The oracle lists private paths, reads events from their words, and multiplies the coins of the
published policy; it shares no belief, automaton or certificate with the code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.contexts.online import OnlineMask
from shoal.core.charge import SystemRng
from shoal.events.automaton import compile_events, law_of, possible
from shoal.events.cuts import future_of, improved
from shoal.events.filter import GRAIN, Program, program_of
from shoal.events.secrets import Events
from tests.event_oracle import happens, paths, random_chain, random_event

KINDS = ("rise", "fall", "odds", "pairs", "none", "family", "mixture", "missing", "ahead")


class Instance:
    """A random day, or several, with events, an amount, and the slots that are read."""

    def __init__(self, seed: int, kind: str) -> None:
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        self.size, self.slots = int(rng.integers(2, 4)), int(rng.integers(2, 5))
        if self.size == 3:
            self.slots = min(self.slots, 3)
        chains = 2 if kind in ("family", "mixture") else 1
        count = 1 if kind in ("rise", "ahead", "mixture") else int(rng.integers(1, 3))
        while True:
            drawn = [random_chain(rng, self.size, self.slots) for _ in range(chains)]
            self.days = [shoal.DayChain.of(t, initial=i) for i, t in drawn]
            events = [random_event(rng, self.size, self.slots) for _ in range(count)]
            if kind == "pairs":
                other = random_event(rng, self.size, self.slots)
                self.secrets = Events.of((events[0], other))
            else:
                self.secrets = Events.of(*events)
            if all(self._open(day) for day in self.days):
                break
        if kind not in ("odds", "pairs"):
            self.secrets = self.secrets.as_rise(lower=kind == "fall")
        amounts = [0.5, 1.0, 2.0] if kind in ("odds", "pairs") else [0.02, 0.1, 0.3]
        self.amount = Fraction(str(rng.choice(amounts)))
        self.memory = "none" if kind == "none" or rng.random() < 0.15 else "events"
        self.mixture = (0.3, 0.7) if kind == "mixture" else ()
        read = rng.random(self.slots) < 0.6 if kind == "missing" else np.ones(self.slots)
        self.read = [bool(r) for r in read]
        self.ahead = kind == "ahead"

    def _open(self, day: shoal.DayChain) -> bool:
        """Whether the events can happen and fail to."""
        law = law_of(day)
        named = [e for pair in self.secrets.pairs for e in pair if e is not None]
        can, fails = possible(compile_events(named, law), law)
        return bool(can.all() and fails.all())

    def program(self) -> Program:
        laws = [law_of(day) for day in self.days]
        made = program_of(laws, self.secrets, self.amount, memory=self.memory, mixture=self.mixture)
        if self.ahead and self.memory == "events":
            made = future_of(made, improved(made, 4)[0])
        return made

    def laws(self) -> list[list[tuple[tuple[int, ...], float]]]:
        """Every member of the family, and the mixture, as a list of paths and chances."""
        members = [list(paths(day.initial, day.transition)) for day in self.days]
        if self.mixture:
            both = [(p, w * c) for w, m in zip(self.mixture, members, strict=True) for p, c in m]
            members.append(both)
        return members


def every_output(program: Program, read: Sequence[bool]) -> list[tuple[list[Any], list[Any]]]:
    """Every history of outputs that some context could lead to, with its (codes, guess) a slot."""
    found: list[tuple[list[Any], list[Any]]] = []

    def grow(held: Any, slot: int, outputs: list[Any], policy: list[Any]) -> None:
        if slot == program.slots:
            found.append((outputs, policy))
            return
        guess = program.guess(held, slot)
        here = program.arrive(held, slot, read=read[slot])
        if not read[slot]:
            grow(here, slot + 1, [*outputs, "unread"], [*policy, (None, guess)])
            return
        codes = program.allowed(here, slot)
        assert (codes <= (1 - 2.0**-12) / GRAIN).all()
        shown = np.flatnonzero(codes.any(axis=0)).tolist()
        for output in [None, *shown]:
            after = program.after(here, codes, output)
            grow(after, slot + 1, [*outputs, output], [*policy, (codes, guess)])

    grow(program.begin(), 0, [], [])
    return found


def likelihood(
    program: Program, path: Sequence[int], outputs: list[Any], policy: list[Any]
) -> float:
    """P(outputs | private path): the coins of the policy, memory followed along the path."""
    chance, memory = 1.0, 0
    for slot, (x, output, (codes, guess)) in enumerate(zip(path, outputs, policy, strict=True)):
        unread = output == "unread"
        memory = int(program.memory.steps[slot][memory, guess if unread else x])
        if unread:
            continue
        shown = float(codes[memory, x]) * GRAIN
        chance *= (1 - shown) if output is None else shown * (output == x)
    return chance


def worst_excess(instance: Instance) -> tuple[float, float]:
    """How far any possible output goes beyond a bound, relatively; and the mean number shown."""
    program, secrets = instance.program(), instance.secrets
    amount, states = float(instance.amount), instance.days[0].states
    worst, mean = -1.0, 0.0
    histories = every_output(program, instance.read)
    for number, law in enumerate(instance.laws()):
        facts = [
            [
                [happens(e, [states[x] for x in path]) for path, _ in law]
                for e in (event, ~event if other is None else other)
            ]
            for event, other in secrets.pairs
        ]
        weights = np.array([chance for _, chance in law])
        table = np.array(facts, dtype=np.float64)  # (pairs, 2, paths)
        prior = table @ weights
        for outputs, policy in histories:
            joint = weights * [likelihood(program, path, outputs, policy) for path, _ in law]
            total = joint.sum()
            if number == 0:
                mean += total * sum(isinstance(output, int) for output in outputs)
            if total <= 0:
                continue
            after = table @ joint
            for p, (event, other) in zip(prior, after, strict=True):
                if secrets.change == "odds":
                    factor = math.exp(amount)
                    sides = [
                        (event, factor * p[0] / p[1] * other),
                        (other, factor * p[1] / p[0] * event),
                    ]
                else:
                    sides = [(event, (p[0] + amount) * total)]
                    if secrets.change == "rise-and-fall":
                        sides.append(((p[0] - amount) * total, event))
                worst = max(worst, *((over - under) / total for over, under in sides))
    return worst, mean


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_no_output_goes_beyond_the_bound(kind: str, seed: int) -> None:
    assert worst_excess(Instance(seed, kind))[0] <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", range(20))
def test_no_output_of_many_days_goes_beyond_the_bound(kind: str, part: int) -> None:
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        assert worst_excess(Instance(seed, kind))[0] <= 1e-12


def test_the_oracle_sees_a_bound_that_is_not_kept() -> None:
    """Control: a policy made for a larger amount is beyond the smaller one."""
    beyond = 0
    for seed in range(12):
        instance = Instance(seed, "rise")
        wide = Instance(seed, "rise")
        wide.amount = instance.amount * 2
        instance.program = wide.program  # type: ignore[method-assign]
        beyond += worst_excess(instance)[0] > 1e-6
    assert beyond >= 4


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_person_does_the_belief_stays_bounded(seed: int) -> None:
    """Off the model too: no output the machine can emit ends the law, or breaks the bound."""
    instance = Instance(seed, "fall")
    mask = OnlineMask(tuple(instance.days), instance.secrets, instance.amount)
    rng, program = np.random.default_rng(seed), mask.program()
    for _ in range(6):
        state = mask.init()
        for slot in range(instance.slots):
            observed = rng.choice([*mask.states, "elsewhere"])
            state, _ = mask.step(state, observed, SystemRng())
            for track, held in zip(program.tracks, state.held, strict=True):
                assert held.alive
                q = held.pairs[:, 0]
                over = (track.over[slot][:, q] * held.mass).sum(axis=(1, 2))
                under = (track.under[slot][:, q] * held.mass).sum(axis=(1, 2))
                assert (over <= under * (1 + 1e-11)).all()


def test_a_stored_and_resumed_stream_is_the_uninterrupted_one() -> None:
    for seed, kind in ((1, "family"), (3, "missing"), (5, "ahead")):
        instance = Instance(seed, kind)
        plan = shoal.mask(
            instance.days, Events.of(*(e for e, _ in instance.secrets.pairs)), delta=0.1
        )
        one = other = shoal.ContextStream.begin(plan)
        rng = np.random.default_rng(seed)
        for slot in range(instance.slots):
            observed = rng.choice(instance.days[0].states) if instance.read[slot] else None
            words = shoal.SeededRng(seed * 100 + slot), shoal.SeededRng(seed * 100 + slot)
            one, first = one.read(observed, rng=words[0])
            other, second = other.read(observed, rng=words[1])
            other = shoal.loads(shoal.dumps(other))
            assert first == second
            assert one.state == other.state


def test_secrets_that_ask_for_falls_too_are_given_them() -> None:
    """Either way of asking; a plan for rises alone let a belief of .8 fall to 0."""
    day = shoal.DayChain.of([[[0.6, 0.4], [0.3, 0.7]]], initial=[0.5, 0.5])
    event = shoal.visit(["1"])
    asked = shoal.mask(day, Events.of(event), delta=0.1, lower=True)
    own = shoal.mask(day, Events.of(event).as_rise(lower=True), delta=0.1)
    for plan in (asked, own):
        assert plan.task.secrets.change == "rise-and-fall"  # type: ignore[attr-defined]
    assert asked.fingerprint == own.fingerprint
