"""Checks on families of day chains, held against enumeration under every member."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.audit.exact import audit
from shoal.contexts.attack import context_beliefs
from shoal.contexts.day import DayChain
from shoal.contexts.machine import SegmentMask, VectorMask
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms.choice import choose
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check, verify_promise
from tests.contexts.enumeration import (
    expected_releases,
    highest_prefix_rise,
    highest_rise,
    random_chain,
)
from tests.contexts.test_every_output import policy_of

PROVED = ("mask-simulatable", "mask-probabilistic", "mask-hybrid", "mask-adaptive")
DELTA = Fraction(3, 20)


def days(rng: np.random.Generator, count: int, *, sparse: float, apart: float) -> list[DayChain]:
    """Day chains a little or much apart, with zeros of their own."""
    states, slots = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    base = random_chain(rng, states=states, slots=slots, sparse=sparse)
    found = []
    for _ in range(count):
        other = random_chain(rng, states=states, slots=slots, sparse=sparse)
        mixed = [(1 - apart) * a + apart * b for a, b in zip(base, other, strict=True)]
        found.append(DayChain.of(mixed[1], initial=mixed[0]))
    return found


def task_of(family: list[DayChain], sensitive: str = "0") -> Task:
    return Task(
        query=CurrentState(family[0].states),
        secrets=SensitiveContexts.of(sensitive),
        family=tuple(family),
    )


def families() -> list[Task]:
    rng = np.random.default_rng(11)
    return [
        task_of(days(rng, 2 + number % 2, sparse=0.4 * (number % 2), apart=(0.1, 0.4, 1.0)[kind]))
        for number in range(4)
        for kind in range(3)
    ]


def rises(plan: Plan) -> list[Any]:
    """The highest rise under each member, over all outputs and their prefixes."""
    found = []
    for day in plan.task.family:
        assert isinstance(day, DayChain)
        secrets = [(t, 0) for t in range(day.slots)]
        law = (day.initial, day.transition)
        whole = highest_rise(*law, policy_of(plan), secrets)
        found.append(max(whole, highest_prefix_rise(*law, policy_of(plan), secrets)))
    return found


@pytest.mark.parametrize("check", PROVED)
def test_no_member_lets_a_belief_rise_beyond_delta(check: str) -> None:
    for task in families():
        plan = calibrate_and_check(MECHANISMS[check], task, DELTA)
        highest = max(rises(plan))
        assert highest <= float(DELTA) * (1 + 1e-10)
        assert verify_promise(plan) == pytest.approx(highest, abs=1e-11)
        least = min(
            expected_releases(day.initial, day.transition, policy_of(plan))
            for day in task.family
            if isinstance(day, DayChain)
        )
        assert -plan.cost == pytest.approx(least, abs=1e-9)


def test_checks_for_one_member_alone_break_another() -> None:
    """The reason for all this: what is private under one chain need not be under its neighbour."""
    broken = 0
    for task in families():
        alone = calibrate_and_check(MECHANISMS["mask-adaptive"], task_of([task.family[0]]), DELTA)  # type: ignore[list-item]
        broken += verify_promise(replace(alone, task=task)) > float(DELTA) * (1 + 1e-9)
    assert broken >= 6


def test_the_adaptive_check_is_never_below_the_hybrid() -> None:
    for task in families():
        costs = {name: MECHANISMS[name].calibrate(task, DELTA).cost for name in PROVED}
        assert costs["mask-hybrid"] == min(costs["mask-simulatable"], costs["mask-probabilistic"])
        assert costs["mask-adaptive"] <= costs["mask-hybrid"] + 1e-9


def test_a_member_twice_changes_little_and_one_alone_nothing() -> None:
    for task in families()[:3]:
        day = task.family[0]
        one, twice = task_of([day]), task_of([day, day])  # type: ignore[list-item]
        for check in ("mask-simulatable", "mask-probabilistic"):
            single = MECHANISMS[check].calibrate(one, DELTA)
            double = MECHANISMS[check].calibrate(twice, DELTA)
            assert double.cost == pytest.approx(single.cost, rel=1e-9)
        single = MECHANISMS["mask-adaptive"].calibrate(one, DELTA)
        double = MECHANISMS["mask-adaptive"].calibrate(twice, DELTA)
        assert double.cost <= 0.9 * single.cost


def test_the_best_check_is_chosen_and_the_optimal_one_refused() -> None:
    task = families()[0]
    found = choose(task, DELTA)
    assert found.plan.guarantee.proved
    assert "any of the 2 chains" in found.plan.guarantee.over
    assert "several day chains" in str(found.alternatives["mask-optimal"])
    with pytest.raises(Refused, match="several day chains"):
        choose(task, DELTA, "mask-optimal")


def test_days_of_different_lengths_are_refused() -> None:
    short = DayChain.of([], initial=[0.5, 0.5])
    long = DayChain.of([[0.5, 0.5], [0.5, 0.5]], initial=[0.5, 0.5], slots=3)
    reason = MECHANISMS["mask-adaptive"].refuse(task_of([short, long]))
    assert reason is not None
    assert "[1, 3] slots" in reason


@pytest.mark.parametrize("check", ["mask-probabilistic", "mask-adaptive"])
def test_a_weakened_family_plan_is_found_out(check: str) -> None:
    """Mutation: less suppression, and both the loss and the audit must see it."""
    task = families()[1]
    plan = MECHANISMS[check].calibrate(task, DELTA)
    body = plan.body
    assert isinstance(body, SegmentMask | VectorMask)
    codes = np.where(body.codes < 65535, body.codes // 2, 60000).astype(np.uint16)
    weaker = replace(plan, body=replace(body, codes=codes))
    assert verify_promise(weaker) > float(DELTA)
    assert audit(weaker).violated
    assert not audit(plan).violated


def test_an_audit_looks_at_every_member() -> None:
    """The chain that suffers is named, wherever it stands in the family."""
    rng = np.random.default_rng(5)
    family = days(rng, 3, sparse=0.0, apart=1.0)
    for turn in range(3):
        task = task_of(family[turn:] + family[:turn])
        plan = MECHANISMS["mask-sensitive"].calibrate(task, DELTA)
        found = audit(plan)
        each = rises(plan)
        assert found.lower == pytest.approx(max(each), abs=1e-10)
        assert found.witness is not None
        assert found.witness.model == int(np.argmax(each))


def test_beliefs_are_those_of_the_chain_an_adversary_holds() -> None:
    family = [
        DayChain.of([], initial=[0.5, 0.5], states=["s", "x"]),
        DayChain.of([], initial=[0.2, 0.8], states=["s", "x"]),
    ]
    task = Task(
        query=CurrentState(("s", "x")), secrets=SensitiveContexts.of("s"), family=tuple(family)
    )
    plan = MECHANISMS["mask-probabilistic"].calibrate(task, Fraction(1, 4))
    body = plan.body
    assert isinstance(body, VectorMask)
    hidden = body.codes[0, body.states.index("x")] / 65536
    for adversary, prior in enumerate((0.5, 0.2)):
        belief = context_beliefs(plan, [None], adversary)[0, 0]
        assert belief == pytest.approx(prior / (prior + (1 - prior) * hidden))
        assert belief <= prior + 0.25 + 1e-9


@pytest.mark.parametrize("check", [*PROVED, "mask-optimal"])
def test_the_order_of_contexts_changes_nothing(check: str) -> None:
    """Contexts written in another order: the same plan, to the last bit of its cost."""
    rng = np.random.default_rng(2)
    for number in range(4):
        initial, transition = random_chain(rng, states=4, slots=4, sparse=0.3 * (number % 2))
        names = ("home", "work", "gym", "bar")
        turn = rng.permutation(4)
        plain = DayChain.of(transition, initial=initial, states=names)
        turned = DayChain.of(
            transition[:, turn][:, :, turn],
            initial=initial[turn],
            states=[names[i] for i in turn],
        )
        found = [
            MECHANISMS[check].calibrate(
                Task(
                    query=CurrentState(day.states),
                    secrets=SensitiveContexts.of("gym"),
                    family=(day,),
                ),
                DELTA,
            )
            for day in (plain, turned)
        ]
        assert found[0].cost == found[1].cost
        assert found[0].body == found[1].body


def test_renaming_contexts_that_differ_changes_nothing() -> None:
    rng = np.random.default_rng(9)
    initial, transition = random_chain(rng, states=4, slots=4)
    costs = []
    for names in (("a", "b", "c", "d"), ("z", "b", "y", "a")):
        day = DayChain.of(transition, initial=initial, states=names)
        task = Task(
            query=CurrentState(day.states), secrets=SensitiveContexts.of(names[2]), family=(day,)
        )
        costs.append([MECHANISMS[check].calibrate(task, DELTA).cost for check in PROVED])
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)
