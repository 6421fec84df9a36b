"""Days of more slots than "best" searches in every way: what is tried, warned of, and found."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.contexts.checks import rows
from shoal.contexts.day import DayChain
from shoal.contexts.search import adaptive, limits, pacing
from shoal.contexts.search.adaptive import block_diagonal, releases_backward
from shoal.contexts.search.beliefs import (
    Day,
    jointly_releasable,
    law_after_release,
    prepare,
    segment_rise,
)
from shoal.contexts.search.limits import Effort, SlowSearch
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.errors import Refused
from shoal.mechanisms.table import verify_promise

DELTA = Fraction(1, 10)
CLINIC = SensitiveContexts.of("0")


def lasting(slots: int) -> DayChain:
    """Contexts that last: what a silence tells is forgotten after a dozen slots."""
    law = np.array([0.05, 0.6, 0.35])
    stay = np.array([0.8, 0.95, 0.9])[:, None]
    moves = stay * np.eye(3) + (1 - stay) * law
    return DayChain.of(moves, initial=law, slots=slots)


def arrays(day: DayChain) -> Day:
    shares = np.zeros((day.slots, day.size))
    shares[:, 0] = 1.0
    return prepare(day.initial, day.transition, shares, 0.1)


def shown_with(day: Day, reserve: Any) -> float:
    """The mean number of slots shown by one forward pass after each release, all of it private."""
    from shoal.contexts.search import segment_kernels as kernels

    shown = jointly_releasable((day,))
    side = block_diagonal((day,), shown)
    value, hidden, spent = np.zeros(shown.shape), np.ones(shown.shape), np.zeros(1)
    waiting = np.zeros((day.size, *shown.shape))
    for slot, state in releases_backward(shown):
        habit = kernels.SpendingRule(
            np.ones(day.slots), np.ones(shown.shape), waiting[state], reserve
        )
        found = kernels.forward_pass(side, (slot, state), value, habit, 1e-6, hidden, spent)
        assert segment_rise(day, slot, state, hidden) <= 0.1 * (1 + 1e-12)
        table, law = hidden[slot + 1 :], law_after_release(day, (slot, state))
        again = kernels.policy_value(law, day.moves, slot, value, table)
        assert again == pytest.approx(found, rel=1e-9, abs=1e-6)
        kernels.fill_wait_values(day.moves, slot, value, hidden, waiting[state])
        if slot >= 0:
            value[slot, state] = found
    return found


def test_what_is_kept_of_a_bound_lets_a_stream_go_on_after_a_silence() -> None:
    day = arrays(lasting(150))
    spent_at_once = shown_with(day, np.zeros(150))
    kept = shown_with(day, pacing.reserves_of(150)[pacing.PACES - len(pacing.RESERVES)])
    assert kept > 1.3 * spent_at_once


@pytest.mark.parametrize("looks", [5, 60, 400, 4000])
@pytest.mark.parametrize("check", ["best", "mask-adaptive"])
def test_a_long_day_is_private_whenever_the_clock_ends_its_search(
    looks: int, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONG_DAY", 20)
    monkeypatch.setattr(pacing, "LONG_DAY", 20)
    monkeypatch.setattr(adaptive, "LONG_DAY", 20)
    now = [0.0]

    def clock() -> float:
        now[0] += 1e-3
        return now[0]

    plan = rows.mask(
        lasting(30), CLINIC, delta=DELTA, check=check, seconds=looks * 1e-3, clock=clock
    )
    assert verify_promise(plan) <= 0.1 * (1 + 1e-12)
    assert plan.mechanism in ("mask-adaptive", "mask-simulatable")
    if looks == 4000:
        assert -plan.cost > 3


def test_best_leaves_out_the_checks_that_do_not_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONG_DAY", 20)
    monkeypatch.setattr(pacing, "LONG_DAY", 20)
    monkeypatch.setattr(adaptive, "LONG_DAY", 20)
    plan = rows.mask(lasting(30), CLINIC, delta=DELTA, seconds=1, clock=None)
    assert plan.mechanism == "mask-adaptive"
    with (
        limits.time_limit(1, clock=None),
        pytest.raises(Refused, match="mask-optimal is not tried for days of more than 20 slots"),
    ):
        limits.refuse_long_days("mask-optimal", 30)
    with limits.time_limit(1, "mask-optimal", clock=None):
        limits.refuse_long_days("mask-optimal", 30)
    with limits.time_limit(1, clock=None):
        limits.refuse_long_days("mask-optimal", 20)


def test_the_budget_is_shared_among_the_checks_that_are_tried() -> None:
    tried = ["mask-simulatable", "mask-adaptive"]
    with limits.time_limit(11, clock=lambda: 0.0, among=tried):
        assert limits.effort_for("mask-adaptive").work == pytest.approx(10 * limits.SPEED)
        assert limits.effort_for("mask-adaptive").seconds() == pytest.approx(
            11 * limits.LIMITS.search_share
        )
        assert limits.effort_for("mask-simulatable").seconds() == pytest.approx(
            limits.LIMITS.search_share
        )


def test_a_search_that_may_take_long_warns_before_it_begins() -> None:
    work = 20 * limits.SPEED
    with pytest.warns(SlowSearch, match="1,440 slots of 5 contexts may take 40 s"):
        limits.warn_if_slow(1440, 5, Effort(work))
    with pytest.warns(SlowSearch, match="may take 35 s"):
        limits.warn_if_slow(1440, 5, Effort(60 * limits.SPEED, clock=lambda: 0.0, ends=35.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limits.warn_if_slow(288, 19, Effort(work))
        limits.warn_if_slow(1440, 5, Effort(work, clock=lambda: 0.0, ends=25.0))


def test_seconds_put_aside_for_the_finished_plan_are_not_spent() -> None:
    effort = Effort(clock=lambda: 2.0, ends=10.0)
    assert effort.seconds() == 8.0
    effort.reserved = 5.0
    assert effort.seconds() == 3.0
    effort.reserved = 9.0
    assert effort.late()
