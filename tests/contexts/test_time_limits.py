"""Time limits of the checks: with a clock that is turned by hand, and by counting the work."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.contexts.checks.rows import compare_checks, mask
from shoal.contexts.day import DayChain
from shoal.contexts.search import limits
from shoal.contexts.search.adaptive import (
    next_releases,
    occurring_segments,
    reachable_origins,
    search_segments,
    segments_rise,
)
from shoal.contexts.search.beliefs import prepare, segment_rise
from shoal.contexts.search.greedy import keeps_every_bound, prior_order, search_vector
from shoal.contexts.search.limits import SPEED, Effort, SearchEnded
from shoal.contexts.search.pacing import Pacing, affordable_passes, likeliest_states
from shoal.contexts.search.window import search_windows
from shoal.contexts.secrets import SensitiveContexts
from shoal.contexts.stream import goes_on
from shoal.core.errors import Refused
from shoal.mechanisms.table import MECHANISMS, verify_promise

CHECKS = list(limits.WORK_SHARES)
TENTHS = np.arange(11) / 10
CLINIC = SensitiveContexts.of("0")
DELTA = Fraction(1, 10)
TICK = 1e-3


class Turned:
    """A clock that goes on by `step` seconds each time somebody looks at it."""

    def __init__(self, step: float) -> None:
        self.step, self.now, self.looks = step, 0.0, 0
        self.after = 0  # looks after `ends`
        self.ends = np.inf

    def __call__(self) -> float:
        self.now += self.step
        self.looks += 1
        self.after += self.now > self.ends
        return self.now


def sticky(states: int = 5, slots: int = 10, seed: int = 3) -> DayChain:
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(states, 0.5), size=(slots - 1, states))
    initial = rng.dirichlet(np.ones(states))
    return DayChain.of(0.4 * moves + 0.6 * np.eye(states), initial=initial)


def arrays(day: DayChain, delta: float = 0.1) -> Any:
    shares = np.zeros((day.slots, day.size))
    shares[:, 0] = 1.0
    return prepare(day.initial, day.transition, shares, delta)


@pytest.mark.parametrize("check", [*CHECKS, "best"])
@pytest.mark.parametrize("looks", [1, 5, 20, 60, 150, 400, 1500])
def test_whenever_the_clock_ends_a_search_the_plan_is_private(check: str, looks: int) -> None:
    """The limit runs out after so many looks at the clock, wherever in the search that is."""
    clock = Turned(TICK)
    plan = mask(sticky(), CLINIC, delta=DELTA, check=check, seconds=looks * TICK, clock=clock)
    assert verify_promise(plan) <= 0.1 * (1 + 1e-12)
    assert check in (plan.mechanism, "best")
    certificate: Any = plan.certificate
    assert certificate.rise <= 0.1 * (1 + 1e-12)
    assert -plan.cost <= certificate.most + 1e-9


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("looks", [5, 40, 200])
def test_little_is_done_after_the_time_is_over(check: str, looks: int) -> None:
    """Every unit of work looks at the clock first, so looks after the end count the units left."""
    clock = Turned(TICK)
    clock.ends = (looks + 1) * TICK
    mask(sticky(), CLINIC, delta=DELTA, check=check, seconds=looks * TICK, clock=clock)
    assert clock.after <= 25


def test_a_late_search_ends_with_what_the_simpler_checks_show() -> None:
    """Out of time in the middle of the adaptive search: the hybrid plan, under the asked name."""
    day = sticky()
    whole = mask(day, CLINIC, delta=DELTA, check="mask-adaptive", seconds=5, clock=None)
    hybrid = mask(day, CLINIC, delta=DELTA, check="mask-hybrid", seconds=5, clock=None)
    assert whole.cost < hybrid.cost - 0.1
    shown = [
        -mask(day, CLINIC, delta=DELTA, check="mask-adaptive", seconds=5, clock=Turned(step)).cost
        for step in (0.1, 1e-6)
    ]
    assert shown[0] < -whole.cost
    assert shown[1] == pytest.approx(-whole.cost, rel=0.02)


def test_a_clock_that_never_ends_anything_changes_no_plan() -> None:
    for check in [*CHECKS, "best"]:
        counted = mask(sticky(), CLINIC, delta=DELTA, check=check, seconds=1, clock=None)
        timed = mask(sticky(), CLINIC, delta=DELTA, check=check, seconds=1, clock=lambda: 0.0)
        assert timed.cost <= counted.cost + 1e-9
        assert verify_promise(timed) <= 0.1 * (1 + 1e-12)


def test_equal_counted_work_gives_equal_plans_and_more_of_it_is_used() -> None:
    plans = [mask(sticky(), CLINIC, delta=DELTA, seconds=s, clock=None) for s in (0.001, 0.001, 2)]
    assert plans[0] == plans[1]
    assert plans[2].cost <= plans[0].cost + 1e-9


def test_checks_side_by_side_are_ordered_as_they_should_be() -> None:
    found = compare_checks(sticky(), CLINIC, CHECKS, delta=DELTA, seconds=1)
    shown = {name: -plan.cost for name, plan in found.items()}
    assert shown["mask-hybrid"] == pytest.approx(
        max(shown["mask-probabilistic"], shown["mask-simulatable"])
    )
    assert shown["mask-adaptive"] >= shown["mask-hybrid"] - 1e-9
    assert shown["mask-optimal"] >= shown["mask-adaptive"] - 1e-6
    assert all(verify_promise(plan) <= 0.1 * (1 + 1e-12) for plan in found.values())


def test_a_limit_is_shared_out_and_time_that_is_not_used_is_passed_on() -> None:
    with limits.time_limit(100, clock=lambda: 0.0):
        for check, share in limits.WORK_SHARES.items():
            assert limits.effort_for(check).work == pytest.approx(100 * share * SPEED)
        last = limits.effort_for("mask-optimal")
        assert last.seconds() == pytest.approx(100 * limits.LIMITS.search_share)
    with limits.time_limit(100, "mask-hybrid", clock=None):
        assert limits.effort_for("mask-hybrid").work == pytest.approx(100 * SPEED)
        assert limits.effort_for("mask-hybrid").seconds() == np.inf
    assert limits.effort_for("mask-adaptive").work == limits.SECONDS * SPEED


def test_what_checks_share_is_found_once_inside_a_limit_and_never_outside() -> None:
    found: list[int] = []

    def find() -> int:
        found.append(1)
        return len(found)

    with limits.time_limit(1, clock=None):
        assert [limits.compute_once("key", find) for _ in range(3)] == [1, 1, 1]
        assert limits.compute_once("other", find) == 2
    assert [limits.compute_once("key", find) for _ in range(2)] == [3, 4]


def test_an_effort_counts_work_and_seconds() -> None:
    time = [0.0]
    effort = Effort(1000.0, clock=lambda: time[0], ends=10.0)
    assert effort.left() == 1000.0
    effort.spend(400)
    effort.gauge.note(400, 8.0)  # 50 a second
    time[0] = 8.0
    assert effort.left() == pytest.approx(100)
    half = effort.part(0.5)
    assert (half.work, half.seconds()) == (300.0, 1.0)
    assert effort.without(50).seconds() == pytest.approx(1.0)
    effort.on_time()
    time[0] = 10.0
    assert effort.over()
    assert effort.late()
    with pytest.raises(SearchEnded):
        effort.on_time()
    assert Effort(5.0).seconds() == np.inf
    assert not Effort(0.0).late()
    assert Effort(0.0).over()
    effort.gauge.note(0.0, 1.0)
    assert effort.gauge.speed == 50
    effort.gauge.note(200, 1.0)  # between what was known and what was seen last
    assert effort.gauge.speed == pytest.approx(100)
    quick = Effort(1.0)
    quick.gauge.note(1e12, 1.0)
    assert quick.gauge.speed == SPEED


def test_a_busy_machine_looks_at_fewer_states_the_likeliest() -> None:
    prior, shown = np.arange(1.0, 13.0).reshape(3, 4), np.ones((3, 4), dtype=np.bool_)
    shown[2, 3] = False
    effort = Effort(clock=lambda: 0.0, ends=1.0)
    assert (likeliest_states(prior, shown, effort) == shown).all()
    effort.gauge.note(3e6, 1.0)
    few = likeliest_states(prior, shown, effort)
    assert 0 < few.sum() < 11
    assert not few[2, 3]
    assert prior[few].min() > prior[shown & ~few].max()
    effort.gauge.speed = 1.0
    assert not likeliest_states(prior, shown, effort).any()


def test_what_a_late_search_does_not_come_to_is_never_shown() -> None:
    """The day is searched backwards: late, its first slots are suppressed and the rest is kept."""
    day = arrays(sticky())
    whole = search_segments(day, 0.1, work=1e9)
    cut = 0
    for looks in range(40, 400, 20):
        effort = Effort(1e9, clock=Turned(1.0), ends=float(looks))
        effort.gauge.note = lambda work, seconds: None  # type: ignore[method-assign]
        try:
            found = search_segments(day, 0.1, work=effort)
        except SearchEnded:
            continue
        reached = reachable_origins(day, found)
        first = min((slot for slot, _ in found if slot >= 0), default=day.slots)
        assert all(slot < 0 or slot >= first for slot, _ in reached)
        assert segments_rise(day, found) <= 0.1 * (1 + 1e-12)
        cut += 0 < len(found) < len(whole)
    assert cut


def test_checks_whose_turn_comes_too_late_say_so() -> None:
    time = [0.0]
    with limits.time_limit(1, clock=lambda: time[0]):
        limits.start_turn("mask-simulatable")
        time[0] = 2.0
        with pytest.raises(Refused, match="the time limit of 1 s was over before its turn"):
            limits.start_turn("mask-adaptive")
    time[0] = 0.0
    with limits.time_limit(1, clock=lambda: time[0]):
        time[0] = 2.0
        assert limits.start_turn("mask-adaptive").late()


def test_a_search_that_is_late_says_so_and_a_greedy_one_keeps_what_it_has() -> None:
    day = arrays(sticky())
    with pytest.raises(SearchEnded):
        search_segments(day, 0.1, work=Effort(1e9, clock=Turned(1.0), ends=20.0))
    hidden = search_vector(
        day, prior_order(day), TENTHS, work=Effort(1e12, clock=Turned(1.0), ends=30.0)
    )
    whole = search_vector(day, prior_order(day), TENTHS)
    assert keeps_every_bound(day, hidden)
    assert (hidden < 1).sum() <= (whole < 1).sum()
    assert (search_vector(day, prior_order(day), TENTHS, work=0.0) == 1).all()


def test_the_simulatable_table_of_a_clock_is_that_of_counted_work_where_it_matters() -> None:
    states, slots = 4, 8
    moves = np.zeros((slots - 1, states, states))
    moves[:, :, 1:] = 1 / 3
    moves[4, 1, :2] = 0.5, 0.5  # the secret state can be reached once a day
    moves[4, 1, 2:] = 0.0
    day = arrays(DayChain.of(moves, initial=np.full(states, 0.25)), 0.3)
    plain = next_releases(day)
    timed = next_releases(day, Effort(clock=lambda: 0.0, ends=1.0))
    assert (timed[0] == plain[0]).all()
    assert ((timed == plain) | (timed == slots)).all()
    assert (timed < slots).any()
    late = next_releases(day, Effort(clock=Turned(1.0), ends=1.0))
    assert (late == slots).all()


def test_passes_keep_within_the_work() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        costs, weights = rng.uniform(1, 100, 40), rng.uniform(0, 1, 40)
        work = float(10 ** rng.uniform(0, 6))
        assert affordable_passes(costs, weights, work) @ costs <= work * (1 + 1e-9)
    assert affordable_passes(np.ones(3), np.ones(3), -1.0).tolist() == [0, 0, 0]


def test_pacing_spends_the_work_and_keeps_passes_for_the_last_origin() -> None:
    effort = Effort(1e9)
    origins = [(9 - k // 4, k % 4) for k in range(40)] + [(-1, 0)]
    pacing = Pacing(origins, np.append(np.full(40, 0.2), 1.0), (10, 4), 16.0, effort)
    given = []
    for place in range(41):
        given.append(pacing.at(place))
        pacing.note(place, 3.0 * given[-1] * pacing.cost[place])  # dearer than thought
    assert effort.spent <= 1.1e9
    poor = Pacing(origins, np.append(np.full(40, 0.2), 1.0), (10, 4), 16.0, Effort(1.0))
    few = [poor.at(place) for place in range(41)]
    assert few[:-1] == [1] * 40  # counted work that is far too little: one pass each all the same
    assert few[-1] > 1
    late = Effort(1.0, clock=lambda: 0.0, ends=1.0)
    hurried = Pacing(origins, np.append(np.full(40, 0.2), 1.0), (10, 4), 16.0, late)
    assert [hurried.at(place) for place in range(40)] == [0] * 40
    assert hurried.at(40) > 0


def test_rises_below_a_level_are_not_told_apart_and_those_above_are_exact() -> None:
    rng = np.random.default_rng(8)
    for seed in range(6):
        day = arrays(sticky(4, 7, seed))
        hidden = np.where(rng.random((7, 4)) < 0.5, rng.random((7, 4)), 1.0)
        hidden[day.when, day.who] = 1.0
        exact = segment_rise(day, -1, 0, hidden)
        for least in (0.0, exact / 2, exact, exact + 0.1):
            found = segment_rise(day, -1, 0, hidden, least)
            assert found == pytest.approx(max(least, exact), abs=1e-14)


def test_every_proved_check_has_a_share() -> None:
    others = {"mask-sensitive", "mask-online"}  # not proved, and for events
    names = {name for name in MECHANISMS if name.startswith("mask-")} - others
    assert set(limits.WORK_SHARES) == names
    assert sum(limits.WORK_SHARES.values()) == pytest.approx(1.0)


def test_a_stream_goes_on_with_the_plan_it_began_with() -> None:
    """A limit may end the next search elsewhere; another promise, or a broken one, is refused."""
    first, second = (
        mask(sticky(), CLINIC, delta=DELTA, check="mask-adaptive", seconds=s, clock=None)
        for s in (0.001, 1)
    )
    assert first != second
    assert goes_on(first, second)
    assert goes_on(second, second)
    other = mask(sticky(), CLINIC, delta=Fraction(1, 5), check="mask-adaptive", seconds=1)
    assert not goes_on(other, second)
    naive = mask(sticky(), CLINIC, delta=DELTA, check="mask-sensitive")
    broken = replace(second, body=naive.body)
    assert not goes_on(broken, second)


def test_a_clock_that_does_not_end_anything_lets_the_last_slots_be_shown() -> None:
    """Releases after which nothing follows have no table, and are shown all the same."""
    day = sticky(3, 4)
    counted = mask(day, CLINIC, delta=DELTA, check="mask-optimal", seconds=3, clock=None)
    timed = mask(day, CLINIC, delta=DELTA, check="mask-optimal", seconds=3, clock=lambda: 0.0)
    assert "solved for every segment" in counted.certificate.theorem
    assert "solved for every segment" in timed.certificate.theorem
    assert timed.cost == pytest.approx(counted.cost, abs=1e-6)


def test_a_plan_that_was_cut_short_is_not_called_the_optimum() -> None:
    for step in (0.05, 0.2, 0.5):
        plan = mask(
            sticky(3, 4), CLINIC, delta=DELTA, check="mask-optimal", seconds=1, clock=Turned(step)
        )
        assert "solved for every segment" not in plan.certificate.theorem


def test_a_day_that_is_long_for_its_work_is_searched_all_the_same() -> None:
    day = arrays(sticky(6, 40))
    little, much = (
        occurring_segments(day, search_segments(day, 0.1, work=w)).expected for w in (1.0, 1e9)
    )
    assert 0.3 * much < little <= much + 1e-9


def test_programs_over_some_of_the_states_are_not_called_the_optimum() -> None:
    day = arrays(sticky(3, 4))
    base = search_segments(day, 0.1, work=1e8)
    some = {origin: table for origin, table in base.items() if origin[0] != 1}
    assert len(some) < len(base)
    exact = []
    for tables in (base, some):
        effort = Effort(clock=lambda: 0.0, ends=1.0)
        found = search_windows(day, 0.1, tables, programs=10**6, nodes=10**6, work=effort)
        exact.append(found.exact)
    assert exact == [True, False]


def test_loading_is_no_part_of_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process loads compiled loops for a second or more before its first search."""
    time = [0.0]
    monkeypatch.setattr(limits, "load_compiled", lambda: time.__setitem__(0, 50.0))
    with limits.time_limit(10, "mask-adaptive", clock=lambda: time[0]):
        found = limits.effort_for("mask-adaptive").seconds()
        assert found == pytest.approx(10 * limits.LIMITS.search_share)
    time[0] = 0.0
    with limits.time_limit(10, clock=None):
        assert time[0] == 0.0
