"""Choosing, calibrating and the budget an accuracy needs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import shoal.mechanisms.choice
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Task
from shoal.mechanisms import exact
from shoal.mechanisms.budgets import epsilon_for
from shoal.mechanisms.choice import NOISE_NOT_WORTH_TIME, calibrate, choose
from shoal.mechanisms.queries import count, histogram
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check, row_named, verify_promise
from shoal.testing import with_scale
from tests.contract.tasks import TASKS

CHAIN = MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states="ab", length=20)
QUERY = count("ab", "b")
TASK = Task(query=QUERY, secrets=EachEntry(), family=(CHAIN,))


@pytest.mark.parametrize("epsilon", [0, -1, float("inf"), float("nan"), "x", None, True])
def test_budgets_that_are_none_are_refused(epsilon: Any) -> None:
    with pytest.raises(InputError, match=r"epsilon is .*; it must be"):
        calibrate(QUERY, EachEntry(), CHAIN, epsilon=epsilon)


def test_a_budget_is_kept_exactly() -> None:
    assert calibrate(QUERY, EachEntry(), CHAIN, epsilon=0.1).guarantee.amount == Fraction(1, 10)


def test_a_family_may_be_one_model_or_several() -> None:
    one = calibrate(QUERY, EachEntry(), CHAIN, epsilon=1)
    listed = calibrate(QUERY, EachEntry(), [CHAIN], epsilon=1)
    assert one == listed


def test_a_named_row_is_used_whatever_its_standing() -> None:
    plan = calibrate(QUERY, EachEntry(), CHAIN, epsilon=1, mechanism="laplace")
    assert plan.mechanism == "laplace"
    assert plan.guarantee.notion == "entry-dp"
    assert choose(TASK, Fraction(1), "group").alternatives == {}


def test_an_unknown_row_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"mechanism is 'magic'; it must be 'best' or one of \['"):
        row_named("magic")
    with pytest.raises(InputError, match="mechanism is 'magic'"):
        calibrate(QUERY, EachEntry(), CHAIN, epsilon=1, mechanism="magic")


def test_a_named_row_that_does_not_apply_says_why() -> None:
    with pytest.raises(Refused, match="group does not apply: a model of any length ties unlimited"):
        calibrate(QUERY, EachEntry(), replace(CHAIN, length=None), epsilon=1, mechanism="group")


def test_when_nothing_applies_every_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: MECHANISMS[name] for name in ("laplace", "group")}
    monkeypatch.setattr(shoal.mechanisms.table, "MECHANISMS", rows)
    with pytest.raises(Refused, match=r"no mechanism gives pufferfish for this task \(group: a"):
        choose(TASKS["any-length"], Fraction(1))


def test_a_row_that_breaks_its_promise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    row = MECHANISMS["group"]

    def too_little(task: Task, amount: Fraction) -> Plan:
        plan = row.calibrate(task, amount)
        return with_scale(plan, plan.body.noise.scale * 999 / 1000)  # type: ignore[union-attr]

    broken = row._replace(calibrate=too_little)
    with pytest.raises(PromiseBroken, match=r"group promised 1 and its own check measures 1\.001"):
        calibrate_and_check(broken, TASK, Fraction(1))
    monkeypatch.setitem(shoal.mechanisms.table.MECHANISMS, "group", broken)
    with pytest.raises(PromiseBroken):
        choose(TASK, Fraction(1), "group")
    choice = choose(TASK, Fraction(1))
    assert choice.plan.mechanism != "group"
    told = choice.alternatives["group"]
    assert isinstance(told, str)
    assert told.startswith("group promised 1 and its own check measures 1.001")


def test_a_row_that_says_more_than_it_proves_is_caught() -> None:
    row = MECHANISMS["lift"]

    def wider(task: Task, amount: Fraction) -> Plan:
        plan = row.calibrate(task, amount)
        return replace(plan, guarantee=replace(plan.guarantee, notion="group"))

    with pytest.raises(PromiseBroken, match="Its mechanism lift says: no output changes the odds"):
        calibrate_and_check(row._replace(calibrate=wider), TASK, Fraction(1))


LIMITS: dict[str, BaseException] = {
    "a limit": Refused("lift does not apply: the model has 9 states; at most 8 are handled"),
    "a field": InputError("the network has 2e+09 outcomes; a table holds at most 16777216"),
    "memory": MemoryError(),
    "numbers": OverflowError("int too large to convert to float"),
}


@pytest.mark.parametrize("over", LIMITS)
@pytest.mark.parametrize("where", ["refuse", "calibrate", "loss"])
def test_a_row_over_its_limit_never_ends_the_choice(
    over: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beyond(*_: object) -> Any:
        raise LIMITS[over]

    steps: dict[str, Any] = {where: beyond}
    broken = MECHANISMS["lift"]._replace(**steps)
    rows = {"lift": broken, "group": MECHANISMS["group"]}
    monkeypatch.setattr(shoal.mechanisms.table, "MECHANISMS", rows)
    choice = choose(TASK, Fraction(1))
    assert choice.plan.mechanism == "group"
    told = choice.alternatives["lift"]
    assert isinstance(told, str)
    assert told[0].islower()
    assert not told.startswith("lift does not apply")
    with pytest.raises((Refused, InputError), match=r"at most|than there are"):
        choose(TASK, Fraction(1), "lift")
    monkeypatch.setattr(shoal.mechanisms.table, "MECHANISMS", {"lift": broken})
    with pytest.raises((Refused, InputError), match=r"at most|than there are"):
        choose(TASK, Fraction(1))


def test_ties_in_cost_go_to_the_earlier_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = MECHANISMS["group"]

    def renamed(task: Task, amount: Fraction) -> Plan:
        return replace(row.calibrate(task, amount), mechanism="twin")

    twin = row._replace(name="twin", calibrate=renamed)
    for order in ((twin, row), (row, twin)):
        rows = {entry.name: entry for entry in order}
        monkeypatch.setattr(shoal.mechanisms.table, "MECHANISMS", rows)
        choice = choose(TASK, Fraction(1))
        assert list(choice.alternatives) == list(rows)
        assert choice.plan.mechanism == order[0].name


def test_an_unproved_row_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    row = MECHANISMS["group"]

    def claimed(task: Task, amount: Fraction) -> Plan:
        plan = row.calibrate(task, amount)
        promise = replace(plan.guarantee, proved=False, caveat="a test")
        return replace(with_scale(plan, Fraction(20)), guarantee=promise, cost=0.0)

    rows = {"claimed": row._replace(name="claimed", calibrate=claimed), "group": row}
    monkeypatch.setattr(shoal.mechanisms.table, "MECHANISMS", rows)
    choice = choose(TASK, Fraction(1))
    assert choice.plan.guarantee.proved
    assert isinstance(choice.alternatives["claimed"], Plan)


def test_a_finished_plan_can_be_checked_again() -> None:
    plan = calibrate(QUERY, EachEntry(), CHAIN, epsilon=2, mechanism="group")
    assert verify_promise(plan) == pytest.approx(2.0)
    assert verify_promise(with_scale(plan, Fraction(5))) == pytest.approx(4.0)


@pytest.mark.parametrize("error", [1, 5, 20, 300])
@pytest.mark.parametrize("mechanism", ["group", "best"])
def test_the_budget_for_an_accuracy_is_enough_and_hardly_more(error: int, mechanism: str) -> None:
    epsilon = epsilon_for(QUERY, EachEntry(), CHAIN, error=error, mechanism=mechanism)
    plan = calibrate(QUERY, EachEntry(), CHAIN, epsilon=epsilon, mechanism=mechanism)
    reached = plan.error()
    assert reached is not None
    assert reached.bound <= error
    less = calibrate(QUERY, EachEntry(), CHAIN, epsilon=epsilon * 98 / 100, mechanism=mechanism)
    missed = less.error()
    assert missed is not None
    assert missed.bound > error


def test_more_confidence_needs_more_budget() -> None:
    budgets = [
        epsilon_for(histogram("ab"), EachEntry(), CHAIN, error=30, confidence=c, mechanism="group")
        for c in (0.5, 0.95, 0.999)
    ]
    assert budgets == sorted(set(budgets))


@pytest.mark.parametrize("error", [0, -1, float("nan"), "x"])
def test_an_error_that_is_none_is_refused(error: Any) -> None:
    with pytest.raises(InputError, match=r"error is .*; it must be"):
        epsilon_for(QUERY, EachEntry(), CHAIN, error=error)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 1.5, float("nan")])
def test_a_confidence_is_between_0_and_1(confidence: float) -> None:
    with pytest.raises(InputError, match=r"confidence is .*; it must be between 0 and 1"):
        epsilon_for(QUERY, EachEntry(), CHAIN, error=1, confidence=confidence)


def test_an_error_out_of_reach_is_refused() -> None:
    with pytest.raises(Refused, match="error 1e-09 entries is out of reach even at epsilon ="):
        epsilon_for(QUERY, EachEntry(), replace(CHAIN, length=10**9), error=1e-9, mechanism="group")


SLOW = MarkovChain.of(
    [[0.995, 0.005, 0.0], [0.002, 0.99, 0.008], [0.0, 0.004, 0.996]], states="abc"
)


def test_rows_that_cannot_do_better_are_left_out_with_a_sentence() -> None:
    task = Task(query=count("abc", "b"), secrets=EachEntry(), family=(SLOW,))
    quick, full = (choose(task, Fraction(1), prune=prune) for prune in (True, False))
    assert quick.plan == full.plan
    assert quick.plan.mechanism == "exact"
    assert list(quick.alternatives) == list(full.alternatives)
    assert quick.alternatives["lift"] == (
        "not calibrated: it would not need noticeably less noise than exact"
    )
    assert quick.alternatives["mask-hybrid"] == full.alternatives["mask-hybrid"]
    assert isinstance(full.alternatives["lift"], Plan)
    costs = [plan.cost for plan in full.alternatives.values() if isinstance(plan, Plan)]
    fit = [cost for cost in costs if cost > full.alternatives["lift"].cost / 2]  # no entry-level DP
    least = exact.least_cost(task, Fraction(1))
    assert least is not None
    assert least <= min(fit) * (1 + 1e-9)
    assert quick.plan.cost <= min(fit) * (1 + NOISE_NOT_WORTH_TIME)
    assert calibrate(count("abc", "b"), EachEntry(), SLOW, epsilon=1) == quick.plan


def test_nothing_is_left_out_where_the_least_noise_is_not_known() -> None:
    assert exact.least_cost(TASK, Fraction(1)) is None
    assert exact.least_cost(replace(TASK, query=histogram("ab")), Fraction(1)) is None
    pruned, full = (choose(TASK, Fraction(1), prune=prune) for prune in (True, False))
    assert pruned.plan == full.plan
    left = {
        name: why
        for name, why in pruned.alternatives.items()
        if isinstance(full.alternatives[name], Plan) and not isinstance(why, Plan)
    }
    quilts = {"markov-quilt", "markov-quilt-bound"}
    assert set(left) <= {"wasserstein", "lift", "optimal-table", *quilts}
    assert left["wasserstein"] == (
        "not calibrated: it never needs less noise than exact; ask for it by name"
    )


@pytest.mark.parametrize("name", sorted(TASKS))
def test_mechanisms_that_cannot_win_do_not_change_the_choice(name: str) -> None:
    """What is left out costs more than the plan chosen, and refusals are the same."""
    try:
        full = choose(TASKS[name], Fraction(1, 2))
    except Refused:
        with pytest.raises(Refused):
            choose(TASKS[name], Fraction(1, 2), prune=True)
        return
    pruned = choose(TASKS[name], Fraction(1, 2), prune=True)
    assert pruned.plan == full.plan
    for row, found in pruned.alternatives.items():
        other = full.alternatives[row]
        if isinstance(other, str):
            assert found == other or str(found).startswith("not calibrated")
        elif isinstance(found, Plan):
            assert found == other
        elif other.guarantee.proved and not MECHANISMS[row].narrows(other.task):
            assert other.cost >= full.plan.cost * (1 - NOISE_NOT_WORTH_TIME)


def test_a_mechanism_is_not_calibrated_beside_one_that_beats_it() -> None:
    def never(*_: object) -> Any:
        raise AssertionError("it was calibrated")

    beaten = MECHANISMS["markov-quilt"]._replace(calibrate=never)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shoal.mechanisms.table,
            "MECHANISMS",
            {"lift": MECHANISMS["lift"], "markov-quilt": beaten},
        )
        assert choose(TASK, Fraction(1), prune=True).plan.mechanism == "lift"
        with pytest.raises(AssertionError, match="it was calibrated"):
            choose(TASK, Fraction(1))
