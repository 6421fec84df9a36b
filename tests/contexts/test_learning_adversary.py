"""An adversary who learns a day chain from its outputs: each step against enumeration."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from shoal.audit import result
from shoal.audit.exact import audit
from shoal.contexts.attack import expected_steps, fit_to_outputs, rises_while_learning, run_day
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import Refused
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS
from shoal.noise.primitives import SeededRng
from tests.contexts.enumeration import random_chain

DELTA = Fraction(1, 5)


def day_of(seed: int, slots: int = 3) -> DayChain:
    initial, transition = random_chain(np.random.default_rng(seed), states=3, slots=slots)
    return DayChain.of(transition, initial=initial)


def plan_of(day: DayChain, check: str):  # type: ignore[no-untyped-def]
    task = Task(query=CurrentState(day.states), secrets=SensitiveContexts.of("0"), family=(day,))
    return MECHANISMS[check].calibrate(task, DELTA)


def test_expected_steps_are_those_of_all_paths() -> None:
    rng = np.random.default_rng(3)
    day = day_of(1, slots=4)
    likelihood = rng.random((5, 4, 3))
    truth = np.zeros((3, 3, 3))
    for own in likelihood:
        one = np.zeros_like(truth)
        total = 0.0
        for path in product(range(3), repeat=4):
            chance = float(day.initial[path[0]]) * own[0, path[0]]
            for t in range(3):
                chance *= float(day.transition[t, path[t], path[t + 1]]) * own[t + 1, path[t + 1]]
            total += chance
            for t in range(3):
                one[t, path[t], path[t + 1]] += chance
        truth += one / total
    found = expected_steps(likelihood, np.asarray(day.initial), np.asarray(day.transition))
    assert found == pytest.approx(truth)


@pytest.mark.parametrize("check", ["mask-probabilistic", "mask-adaptive"])
def test_nothing_watched_is_frequencies_alone(check: str) -> None:
    day = day_of(2)
    plan = plan_of(day, check)
    ((believed, known),) = rises_while_learning(plan, [0], 1)
    alone = next(one for one in audit(plan).adversaries if one.knows == result.FREQUENCIES)
    assert believed == pytest.approx(max(alone.rise, 0.0), abs=1e-10)
    assert known <= float(DELTA) * (1 + 1e-9)


def test_watching_long_enough_is_knowing_the_chain() -> None:
    """Everything shown: counting transitions of 3,000 days comes close to the chain."""
    day = day_of(5)
    task = Task(query=CurrentState(day.states), secrets=SensitiveContexts.of("0"), family=(day,))
    plan = MECHANISMS["mask-probabilistic"].calibrate(task, Fraction(99, 100))
    rng = SeededRng(7)
    outputs = [run_day(plan, [day.states[i] for i in day.sample(rng)], rng) for _ in range(3000)]
    held = fit_to_outputs(plan, outputs, day.without_memory())
    before = np.abs(day.without_memory().transition - day.transition).max()
    after = np.abs(held.transition - day.transition).max()
    assert after < 0.1
    assert after < 0.3 * before
    assert held.states == day.states


def test_hidden_visits_cannot_be_followed_from_outside() -> None:
    plan = plan_of(day_of(2), "mask-optimal")
    with pytest.raises(Refused, match="observer cannot follow mask-optimal"):
        rises_while_learning(plan, [1], 1)
