"""The contract of a row: what every mechanism promises on every task it accepts.

Every pair of a row and a task here makes a plan; on all other tasks a row is only held to its
refusal being a sentence.
"""

from __future__ import annotations

import pytest

from shoal.core.errors import Refused
from shoal.core.plan import Additive
from shoal.mechanisms.choice import choose
from shoal.mechanisms.table import MECHANISMS
from shoal.testing import CHECKS, check_proof, check_refusal
from tests.contract.tasks import OWN, TASKS, amounts, plan_of

ROWS = sorted(name for name, row in MECHANISMS.items() if not row.retired)
# one worker per row, which keeps the plans it has made
EVERYWHERE = pytest.mark.parametrize(
    ("row", "name"),
    [
        pytest.param(row, name, marks=pytest.mark.xdist_group(row))
        for row in ROWS
        for name in OWN[row]
    ],
)


@pytest.mark.parametrize("check", CHECKS)
@EVERYWHERE
def test_a_row_keeps_the_contract(row: str, name: str, check: str) -> None:
    plans = [plan_of(row, name, amount) for amount in amounts(name)]
    assert [plan.guarantee.amount for plan in plans] == list(amounts(name))
    assert CHECKS[check](plans) is None


@pytest.mark.parametrize("row", ROWS)
def test_a_refusal_is_a_sentence(row: str) -> None:
    refused = [name for name in TASKS if name not in OWN[row]]
    assert refused or row == "laplace"
    for name in refused:
        check_refusal(row, TASKS[name], amounts(name)[1])


@EVERYWHERE
def test_the_order_of_the_states_changes_nothing(row: str, name: str) -> None:
    plan, turned = plan_of(row, name), plan_of(row, name, turned=True)
    if isinstance(plan.body, Additive) or plan.guarantee.notion == "delta-privacy":
        loss = MECHANISMS[row].loss
        assert turned.cost == pytest.approx(plan.cost, rel=1e-9)
        assert loss(turned) == pytest.approx(loss(plan), rel=1e-9)


@pytest.mark.parametrize("row", ROWS)
def test_the_proof_lies_beside_the_row(row: str) -> None:
    check_proof(row)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_tasks_of_its_own(row: str) -> None:
    assert MECHANISMS[row].name == row
    assert len(OWN[row]) >= 2


@pytest.mark.parametrize("name", TASKS)
def test_best_is_the_cheapest_proved_plan_of_the_notion_asked_for(name: str) -> None:
    task = TASKS[name]
    fit = []
    for row in (row for row in ROWS if name in OWN[row]):
        plan = plan_of(row, name)
        gives = plan.guarantee.proved and plan.guarantee.gives(task.secrets.notion)
        if gives and not MECHANISMS[row].narrows(task):
            fit.append(plan)
    if not fit:
        notion = task.secrets.notion
        with pytest.raises(Refused, match=f"no mechanism gives {notion} for this task"):
            choose(task, amounts(name)[1])
        return
    choice = choose(task, amounts(name)[1])
    assert choice.plan.guarantee.proved
    assert choice.plan.guarantee.gives(task.secrets.notion)
    assert choice.plan.cost == min(plan.cost for plan in fit)
    assert list(choice.alternatives) == list(MECHANISMS)
    assert choice.plan.mechanism != "laplace"
