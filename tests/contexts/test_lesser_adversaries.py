"""Adversaries who know less than the chain, held against enumeration of outputs and of labels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from shoal.audit import result
from shoal.audit.exact import audit
from shoal.audit.result import LesserAdversary
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from tests.contexts.enumeration import joint, random_chain
from tests.contexts.test_every_output import policy_of

DELTA = Fraction(1, 5)
LABELS = {"0": ["s", "y"], "1": ["x", "s"], "2": ["s", "z", "w"]}
CHECKS = ("mask-simulatable", "mask-probabilistic", "mask-adaptive", "mask-optimal")


def plan_of(day: DayChain, secrets: SensitiveContexts, check: str) -> Plan:
    task = Task(query=CurrentState(day.states), secrets=secrets, family=(day,))
    return calibrate_and_check(MECHANISMS[check], task, DELTA)


def random_days(count: int, slots: int = 3) -> list[DayChain]:
    rng = np.random.default_rng(31)
    laws = [random_chain(rng, states=4, slots=slots, sparse=0.3 * (k % 2)) for k in range(count)]
    return [DayChain.of(law[1], initial=law[0]) for law in laws]


def beliefs(plan: Plan, day: DayChain) -> list[Any]:
    """(slots, states) beliefs after each output, by writing out all paths."""
    found = []
    for paths in joint(day.initial, day.transition, policy_of(plan)).values():
        table = np.zeros((day.slots, day.size))
        for path, weight in paths.items():
            table[np.arange(day.slots), path] += weight
        found.append(table / table[0].sum())
    return found


def adversary(plan: Plan, knows: str) -> LesserAdversary:
    return next(one for one in audit(plan).adversaries if one.knows == knows)


@pytest.mark.parametrize("check", CHECKS)
def test_whoever_is_unsure_of_labels_learns_no_more_than_delta(check: str) -> None:
    """Theorem 7: for every way to weigh the labels, the belief in the context rises by δ at most.

    The rise is linear in the weights, so certainty about every state is the worst: 2^3 cases.
    """
    for day in random_days(6):
        secrets = SensitiveContexts.of("s", labels=LABELS)
        plan = plan_of(day, secrets, check)
        worst = fair = 0.0
        for after, slot in product(beliefs(plan, day), range(day.slots)):
            change = (after - day.marginals())[slot, :3]
            for certain in product((0.0, 1.0), repeat=3):
                worst = max(worst, float(np.array(certain) @ change))
            fair = max(fair, float(np.array([1 / 2, 1 / 2, 1 / 3]) @ change))
        assert worst <= float(DELTA) * (1 + 1e-9)
        assert adversary(plan, result.LABELS_LC1).rise == pytest.approx(worst, abs=1e-10)
        assert adversary(plan, result.LABELS_LC2).rise == pytest.approx(fair, abs=1e-10)


def test_without_its_share_a_state_tells_too_much() -> None:
    """Mutation: each state held to δ instead of δ/μ breaks the promise about the context."""
    broken = 0
    for day in random_days(6):
        states = SensitiveContexts.of(["0", "1", "2"])
        plan = plan_of(day, states, "mask-adaptive")
        told = replace(
            plan, task=replace(plan.task, secrets=SensitiveContexts.of("s", labels=LABELS))
        )
        broken += adversary(told, result.LABELS_LC1).rise > float(DELTA) * 1.01
    assert broken >= 4


def test_states_that_cannot_occur_at_a_slot_take_no_share() -> None:
    day = DayChain.of([], initial=[0.5, 0.0, 0.2, 0.3])
    secrets = SensitiveContexts.of("s", labels=LABELS)
    assert secrets.shares(day).tolist() == [[2.0, 2.0, 2.0, 0.0]]
    groups = SensitiveContexts.of(groups=[["0", "2"]])
    assert groups.shares(day).tolist() == [[2.0, 0.0, 2.0, 0.0]]


@pytest.mark.parametrize("check", CHECKS)
def test_a_published_chain_makes_frequencies_as_good_as_the_chain(check: str) -> None:
    """Theorem 6: belief before from the frequencies, belief after from the chain."""
    for day in random_days(4):
        plan = plan_of(day, SensitiveContexts.of("0"), check)
        frequencies = day.without_memory().marginals()
        assert frequencies == pytest.approx(day.marginals())
        worst = max(
            float((after - frequencies)[slot, 0])
            for after, slot in product(beliefs(plan, day), range(day.slots))
        )
        found = adversary(plan, result.PUBLISHED)
        assert found.rise == pytest.approx(max(worst, 0.0), abs=1e-10)
        assert found.covered
        assert found.rise <= float(DELTA) * (1 + 1e-9)


def test_frequencies_alone_are_measured_by_their_own_law() -> None:
    for day in random_days(4):
        plan = plan_of(day, SensitiveContexts.of("0"), "mask-probabilistic")
        alone = day.without_memory()
        worst = max(
            float((after - alone.marginals())[slot, 0])
            for after, slot in product(beliefs(plan, alone), range(day.slots))
        )
        found = adversary(plan, result.FREQUENCIES)
        assert found.rise == pytest.approx(max(worst, 0.0), abs=1e-10)
        assert found.covered
        assert found.rise <= float(DELTA) * (1 + 1e-9)


def test_frequencies_alone_may_mislead_beyond_delta_where_the_past_counts() -> None:
    """Why the chain must be published: an adaptive plan promises nothing to who ignores it."""
    rises = []
    for day in random_days(12, slots=4):
        plan = plan_of(day, SensitiveContexts.of("0"), "mask-adaptive")
        found = adversary(plan, result.FREQUENCIES)
        assert not found.covered
        rises.append(found.rise)
    assert max(rises) > float(DELTA) * 1.01


def test_example_6_is_covered_with_its_labels_and_broken_without() -> None:
    """One of two equally likely states is s, y or z to the adversary: 1/6 becomes at most 5/12."""
    day = DayChain.of([], initial=[0.5, 0.5], states=["first", "x"])
    secrets = SensitiveContexts.of("s", labels={"first": ["s", "y", "z"]})
    task = Task(query=CurrentState(day.states), secrets=secrets, family=(day,))
    plan = calibrate_and_check(MECHANISMS["mask-probabilistic"], task, Fraction(1, 4))
    found = adversary(plan, result.LABELS_LC2)
    assert found.before == pytest.approx(1 / 6)
    assert found.after is not None
    assert found.after <= 1 / 6 + 1 / 4
    # in every world the same states are suppressed alike, so a gap tells nothing about the label
    assert adversary(plan, result.LABELS_LC1).rise <= 0.25 * (1 + 1e-9)


def test_long_days_name_the_output_that_tells_each_of_them_most() -> None:
    day = random_days(1, slots=9)[0]
    plan = plan_of(day, SensitiveContexts.of("s", labels=LABELS), "mask-adaptive")
    found = audit(plan).adversaries
    assert [one.challenge for one in found] == ["nothing to learn", "LC2", "LC1"]
    assert all(one.exact and len(one.output or ()) == 9 for one in found)
    assert all(one.rise <= float(DELTA) * (1 + 1e-9) for one in found)


def test_labels_are_checked() -> None:
    day = random_days(1)[0]
    with pytest.raises(InputError, match="'q'"):
        plan_of(day, SensitiveContexts.of("q", labels=LABELS), "mask-adaptive")
    with pytest.raises(InputError, match="labels names the state '7'"):
        plan_of(day, SensitiveContexts.of("s", labels={**LABELS, "7": ["s"]}), "mask-adaptive")
    with pytest.raises(InputError, match="labels has no context for '0'"):
        SensitiveContexts.of("s", labels={"0": []})
