"""The public contract finds what is broken: each check is shown a row that breaks just it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import shoal
from shoal.core.family import families
from shoal.core.plan import Plan
from shoal.mechanisms.plans import Mechanism
from shoal.mechanisms.table import MECHANISMS
from shoal.testing import check_family, check_mechanism, check_refusal, with_scale
from tests.contract.tasks import OWN, TASKS, amounts

TASK = TASKS["count"]


@pytest.fixture
def planted() -> Iterator[Callable[[Callable[[Plan], Plan]], str]]:
    """Puts a row into the table whose plans are those of `group`, changed."""
    real = MECHANISMS["group"]

    def plant(change: Callable[[Plan], Plan]) -> str:
        def calibrate(task: Any, amount: Fraction) -> Plan:
            return change(real.calibrate(task, amount))

        MECHANISMS["group"] = real._replace(calibrate=calibrate)
        return "group"

    yield plant
    MECHANISMS["group"] = real


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_every_family_keeps_the_contract(family: Any) -> None:
    quick = {row: [TASKS[OWN[row][0]]] for row in family.mechanisms if OWN[row]}
    deltas = family.name == "contexts"
    some = amounts("count" if not deltas else next(iter(OWN["mask-hybrid"])))[1:2]
    check_family(family.name, quick, amounts=some)


def test_a_family_or_a_row_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(shoal.InputError, match="family is 'weather'; it must be one of"):
        check_family("weather", {})
    with pytest.raises(shoal.InputError, match="mechanism is 'weather'; it must be"):
        check_mechanism("weather", [TASK])
    with pytest.raises(shoal.InputError, match="nothing to try 'group' on"):
        check_mechanism("group", [])
    with pytest.raises(AssertionError, match=r"no task tries the row\(s\) .*laplace"):
        check_family("mechanisms", {})


def test_a_row_that_takes_what_it_should_refuse_is_told() -> None:
    with pytest.raises(AssertionError, match="group takes a task it should refuse"):
        check_refusal("group", TASK)


def test_plans_that_break_their_promise_never_reach_the_contract(
    planted: Callable[[Callable[[Plan], Plan]], str],
) -> None:
    row = planted(lambda plan: with_scale(plan, Fraction(1)))
    with pytest.raises(shoal.PromiseBroken):
        check_mechanism(row, [TASK])


def test_more_budget_for_more_noise_is_found(
    planted: Callable[[Callable[[Plan], Plan]], str],
) -> None:
    def noisier(plan: Plan) -> Plan:
        factor = 1 + 1000 * Fraction(plan.guarantee.amount) ** 2
        body: Any = plan.body
        wide = with_scale(plan, body.noise.scale * factor)
        rules = MECHANISMS["group"].rules(wide)
        return replace(wide, cost=plan.cost * float(factor), composition=rules)

    with pytest.raises(AssertionError, match="order of budgets: a larger budget is noisier"):
        check_mechanism(planted(noisier), [TASK])


def test_a_row_that_decides_by_chance_is_found(
    planted: Callable[[Callable[[Plan], Plan]], str],
) -> None:
    seen: list[int] = []

    def changing(plan: Plan) -> Plan:
        seen.append(1)
        return replace(plan, cost=plan.cost + len(seen))

    with pytest.raises(AssertionError, match="determinism: calibrating twice gives two plans"):
        check_mechanism(planted(changing), [TASK], amounts=[1])


def test_a_loss_that_does_not_look_at_the_noise_is_found() -> None:
    real = MECHANISMS["group"]
    MECHANISMS["group"] = real._replace(loss=lambda plan: float(plan.guarantee.amount))
    try:
        with pytest.raises(AssertionError, match="re-check: half the noise has no larger loss"):
            check_mechanism("group", [TASK], amounts=[Fraction(9, 7)])
    finally:
        MECHANISMS["group"] = real


def test_the_row_is_a_named_tuple_of_functions() -> None:
    assert isinstance(MECHANISMS["group"], Mechanism)
