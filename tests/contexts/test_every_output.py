"""Every check on random small chains, held against enumeration of all paths and outputs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.contexts.attack import context_beliefs
from shoal.contexts.checks.task import contexts_of, first_day, machine_states
from shoal.contexts.day import DayChain
from shoal.contexts.machine import HistoryMask, SegmentMask, SimulatableMask, VectorMask
from shoal.contexts.search.adaptive import search_segments
from shoal.contexts.search.beliefs import decoded
from shoal.contexts.search.memory import fine_decoded
from shoal.contexts.search.window import search_windows
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS, verify_promise
from tests.contexts.enumeration import (
    Policy,
    expected_releases,
    highest_prefix_rise,
    highest_rise,
    joint,
    last_release,
    random_chain,
    vector,
)

NOT_HERE = ("mask-sensitive", "mask-online")  # not proved, and for events
CHECKS = [name for name in MECHANISMS if name.startswith("mask-") and name not in NOT_HERE]


def mask_task(initial: Any, transition: Any, sensitive: list[str], **rest: Any) -> Task:
    day = DayChain.of(transition, initial=initial)
    secrets = SensitiveContexts.of(sensitive, **rest)
    return Task(query=CurrentState(day.states), secrets=secrets, family=(day,))


def policy_of(plan: Plan) -> Policy:
    """The suppression probabilities a plan's machine really uses, as a function of the past."""
    order = machine_states(plan.body)
    turn = [order.index(name) for name in plan.task.query.states]
    policy = body_policy(plan.body)
    return lambda t, path, shown: policy(t, tuple(turn[state] for state in path), shown)


def body_policy(body: Any) -> Policy:
    """The same on the contexts in the machine's own order."""
    if isinstance(body, VectorMask):
        return vector(decoded(body.codes))
    if isinstance(body, SimulatableMask):

        def waiting(t: int, path: tuple[int, ...], shown: tuple[int, ...]) -> float:
            origin, state = last_release(path, shown)
            return 0.0 if body.table[origin + 1, state] == t else 1.0

        return waiting
    if isinstance(body, HistoryMask):
        return remembering(body)
    assert isinstance(body, SegmentMask)
    tables = {origin: decoded(codes) for origin, codes in body.policies().items()}

    def segment(t: int, path: tuple[int, ...], shown: tuple[int, ...]) -> float:
        origin = last_release(path, shown)
        table = tables.get(origin, np.empty((0, 0)))
        row = t - origin[0] - 1
        return float(table[row, path[-1]]) if row < len(table) else 1.0

    return segment


def remembering(body: HistoryMask) -> Policy:
    """The policy of a machine that remembers sensitive visits."""
    plans, base = body.policies(), int(body.digits.max()) + 1

    def policy(t: int, path: tuple[int, ...], shown: tuple[int, ...]) -> float:
        origin = last_release(path, shown)
        plan, past = plans.get(origin), t - origin[0] - 1
        if plan is None:
            return 1.0
        if past < len(plan.codes):
            history = 0
            for state in path[origin[0] + 1 : t]:
                history = history * base + int(body.digits[state])
            return float(fine_decoded(plan.codes[past])[history, path[-1]])
        return float(decoded(plan.tail)[past, path[-1]]) if past < len(plan.tail) else 1.0

    return policy


def instances() -> list[tuple[Any, Any, list[str], Fraction]]:
    rng = np.random.default_rng(5)
    found = []
    for number in range(12):
        states, slots = int(rng.integers(2, 5)), int(rng.integers(1, 5))
        initial, transition = random_chain(
            rng, states=states, slots=slots, sparse=0.4 * (number % 2)
        )
        count = int(rng.integers(1, states))
        sensitive = [str(s) for s in rng.choice(states, size=count, replace=False)]
        found.append((initial, transition, sensitive, Fraction(1 + number % 3, 10)))
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_no_output_and_no_prefix_ever_raises_a_belief_beyond_delta(check: str) -> None:
    for initial, transition, sensitive, delta in instances():
        task = mask_task(initial, transition, sensitive)
        plan = MECHANISMS[check].calibrate(task, delta)
        policy = policy_of(plan)
        secrets = [(t, int(s)) for t in range(len(transition) + 1) for s in sensitive]
        rise = highest_rise(initial, transition, policy, secrets)
        assert rise <= float(delta) * (1 + 1e-10)
        assert rise == pytest.approx(verify_promise(plan), abs=1e-11)
        prefix = highest_prefix_rise(initial, transition, policy, secrets)
        assert prefix <= float(delta) * (1 + 1e-10)
        releases = expected_releases(initial, transition, policy)
        assert releases == pytest.approx(-plan.cost, abs=1e-9)


def test_more_knowing_checks_show_more() -> None:
    for initial, transition, sensitive, delta in instances():
        task = mask_task(initial, transition, sensitive)
        costs = {name: MECHANISMS[name].calibrate(task, delta).cost for name in CHECKS}
        best = min(costs["mask-simulatable"], costs["mask-probabilistic"])
        assert costs["mask-hybrid"] == best
        assert costs["mask-adaptive"] <= costs["mask-hybrid"] + 1e-9
        if "mask-optimal" in costs:
            assert costs["mask-optimal"] <= costs["mask-adaptive"] + 1e-9


def test_masking_only_what_is_sensitive_is_measured_and_not_promised() -> None:
    initial, transition, sensitive, delta = instances()[0]
    task = mask_task(initial, transition, sensitive)
    plan = MECHANISMS["mask-sensitive"].calibrate(task, delta)
    assert not plan.guarantee.proved
    secrets = [(t, int(s)) for t in range(len(transition) + 1) for s in sensitive]
    rise = highest_rise(initial, transition, policy_of(plan), secrets)
    assert verify_promise(plan) == pytest.approx(rise)
    assert rise > float(delta)


def test_a_weakened_plan_fails_its_check() -> None:
    """Mutation: every suppression probability a little lower, and the loss must see it."""
    initial, transition, sensitive, delta = instances()[4]
    task = mask_task(initial, transition, sensitive)
    plan = MECHANISMS["mask-adaptive"].calibrate(task, delta)
    body = plan.body
    assert isinstance(body, SegmentMask)
    codes = np.where(body.codes < 65535, body.codes // 2, 60000).astype(np.uint16)
    weaker = SegmentMask(body.states, body.slots, body.origins, body.starts, codes)
    assert verify_promise(replace(plan, body=weaker)) > float(delta)


def test_groups_bound_the_belief_in_some_member() -> None:
    rng = np.random.default_rng(8)
    for _ in range(5):
        initial, transition = random_chain(rng, states=4, slots=3)
        task = mask_task(initial, transition, [], groups=[["0", "1"]])
        plan = MECHANISMS["mask-adaptive"].calibrate(task, Fraction(1, 5))
        outputs = joint(initial, transition, policy_of(plan))
        for slot in range(3):
            prior = sum(w for g in outputs.values() for p, w in g.items() if p[slot] < 2)
            for paths in outputs.values():
                belief = sum(w for p, w in paths.items() if p[slot] < 2) / sum(paths.values())
                assert belief - prior <= 0.2 * (1 + 1e-10)


def test_moments_are_secret_at_their_slots_only() -> None:
    initial, transition = np.array([0.5, 0.5]), np.array([[[0.5, 0.5], [0.5, 0.5]]])
    task = mask_task(initial, transition, [], moments={"0": [1]})
    plan = MECHANISMS["mask-probabilistic"].calibrate(task, Fraction(1, 4))
    body = plan.body
    assert isinstance(body, VectorMask)
    assert body.codes[0].tolist() == [0, 0]
    assert body.states == ("0", "1")
    assert body.codes[1, 0] == 65535
    assert body.codes[1, 1] / 65536 == pytest.approx(1 / 3, abs=0.1)


@pytest.mark.parametrize("nodes", [4, 13, 1500])
def test_a_window_shorter_than_the_segment_is_private_and_its_beliefs_are_exact(nodes: int) -> None:
    """Histories are told apart for some slots only, then a table without memory takes over."""
    rng = np.random.default_rng(3)
    for _ in range(3):
        initial, transition = random_chain(rng, states=3, slots=4)
        task = mask_task(initial, transition, ["0"])
        day = first_day(task, Fraction(1, 10))
        found = search_windows(
            day, 0.1, search_segments(day, 0.1, work=1e6), programs=100, nodes=nodes
        )
        body = HistoryMask.of(contexts_of(task), 4, found.policies, found.digits)
        plan = replace(MECHANISMS["mask-optimal"].calibrate(task, Fraction(1, 10)), body=body)
        outputs = joint(initial, transition, policy_of(plan))
        rise = highest_rise(initial, transition, policy_of(plan), [(t, 0) for t in range(4)])
        assert rise <= 0.1 * (1 + 1e-10)
        assert expected_releases(initial, transition, policy_of(plan)) == pytest.approx(
            found.expected
        )
        for shown, paths in outputs.items():
            beliefs = context_beliefs(plan, [None if x < 0 else str(x) for x in shown])
            total = sum(paths.values())
            for slot in range(4):
                truth = sum(w for path, w in paths.items() if path[slot] == 0) / total
                assert beliefs[slot, 0] == pytest.approx(truth, abs=1e-10)
