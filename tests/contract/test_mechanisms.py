"""The contract of a row: what every mechanism promises on every task it accepts.

Every pair of a row and a task here makes a plan; on all other tasks a row is only held to its
refusal being a sentence.
"""

from __future__ import annotations

import functools
import math
from importlib.util import find_spec
from pathlib import Path

import pytest

from shoal.additive.choice import LOSS_TOLERANCE, MECHANISMS, calibrated, choose
from shoal.core.errors import Refused
from shoal.core.guarantee import AsEntryDP
from shoal.core.plan import Additive, Plan
from shoal.core.registry import dumps, families, loads
from tests.contract.tasks import OWN, TASKS, amounts, plan_of
from tests.toys import with_scale

ROWS = sorted(MECHANISMS)
# one worker per row, which keeps the plans it has made
EVERYWHERE = pytest.mark.parametrize(
    ("row", "name"),
    [
        pytest.param(row, name, marks=pytest.mark.xdist_group(row))
        for row in ROWS
        for name in OWN[row]
    ],
)


@functools.cache
def loss_of(plan: Plan) -> float:
    """What the plan's own row measures, once for equal plans."""
    return MECHANISMS[plan.mechanism].loss(plan)


def is_sentence(reason: str) -> bool:
    """One line that starts in lower case and says something."""
    return reason[:1].islower() and "\n" not in reason and len(reason) >= 20


@EVERYWHERE
def test_the_promise_is_kept_at_every_amount(row: str, name: str) -> None:
    for amount in amounts(name):
        plan = plan_of(row, name, amount)
        kept = 0 <= loss_of(plan) <= float(amount) * (1 + LOSS_TOLERANCE)
        assert kept or not plan.guarantee.proved
        assert plan.guarantee.amount == amount
        assert plan.mechanism == row


@pytest.mark.parametrize("row", ROWS)
def test_a_refusal_is_a_sentence(row: str) -> None:
    mechanism = MECHANISMS[row]
    refused = [name for name in TASKS if name not in OWN[row]]
    assert refused or row == "laplace"
    for name in refused:
        with pytest.raises(Refused) as told:
            calibrated(mechanism, TASKS[name], amounts(name)[1])
        assert is_sentence(str(told.value)), told.value
        early = mechanism.refuse(TASKS[name])
        assert early is None or is_sentence(early), early


@EVERYWHERE
def test_a_plan_survives_storage(row: str, name: str) -> None:
    plan = plan_of(row, name)
    again = loads(dumps(plan))
    assert again == plan
    assert again.explain() == plan.explain()


@EVERYWHERE
def test_calibration_is_deterministic(row: str, name: str) -> None:
    plan = plan_of(row, name)
    assert MECHANISMS[row].calibrate(TASKS[name], amounts(name)[1]) == plan


@EVERYWHERE
def test_more_epsilon_is_never_noisier(row: str, name: str) -> None:
    cost, scale = math.inf, math.inf
    for amount in amounts(name):
        plan = plan_of(row, name, amount)
        if isinstance(plan.body, Additive):
            assert plan.cost <= cost * (1 + 1e-9)
            cost = plan.cost
            assert float(plan.body.noise.scale) <= scale * (1 + 1e-9)
            scale = float(plan.body.noise.scale)


@EVERYWHERE
def test_the_order_of_the_states_changes_nothing(row: str, name: str) -> None:
    plan, turned = plan_of(row, name), plan_of(row, name, turned=True)
    if isinstance(plan.body, Additive) or plan.guarantee.notion == "delta-privacy":
        assert turned.cost == pytest.approx(plan.cost, rel=1e-9)
        assert loss_of(turned) == pytest.approx(loss_of(plan), rel=1e-9)


@EVERYWHERE
def test_the_check_looks_at_the_noise_itself(row: str, name: str) -> None:
    plan = plan_of(row, name)
    if not isinstance(plan.body, Additive):
        return
    weaker = with_scale(plan, plan.body.noise.scale / 2)
    assert loss_of(weaker) > loss_of(plan)


@EVERYWHERE
def test_an_additive_plan_counts_as_entry_level_privacy(row: str, name: str) -> None:
    plan = plan_of(row, name)
    assert plan.composition
    if isinstance(plan.body, Additive):
        lipschitz = plan.task.query.lipschitz
        assert AsEntryDP(lipschitz / plan.body.noise.scale) in plan.composition


@EVERYWHERE
def test_the_plan_explains_itself(row: str, name: str) -> None:
    plan = plan_of(row, name)
    text = plan.explain()
    for part in (
        plan.task.query.describe(),
        plan.task.secrets.describe(),
        plan.task.family[0].describe(),
        plan.guarantee.describe(),
        plan.body.describe(),
        plan.certificate.theorem,
        *plan.certificate.assumptions,
        *(rule.describe() for rule in plan.composition),
    ):
        assert part.rstrip(".") in text
    assert plan.certificate.assumptions
    assert ("CLAIMED, NOT PROVED" in text) == (not plan.guarantee.proved)


@EVERYWHERE
def test_noise_is_on_a_lattice_that_holds_every_answer(row: str, name: str) -> None:
    plan = plan_of(row, name)
    if isinstance(plan.body, Additive):
        ratio = plan.body.query.lattice / plan.body.noise.step
        assert ratio.denominator == 1
        assert plan.body.query == plan.task.query


@pytest.mark.parametrize("row", ROWS)
def test_the_proof_lies_beside_the_row(row: str) -> None:
    place = next(family.rows[row] for family in families() if row in family.rows)
    module = find_spec(place.partition(":")[0])
    assert module is not None
    proof = Path(str(module.origin)).parent / f"{row.replace('-', '_')}.md"
    assert proof.is_file(), f"{row} has no proof file {proof.name}"
    assert len(proof.read_text()) > 400


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
        if plan.guarantee.proved and plan.guarantee.gives(task.secrets.notion):
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
