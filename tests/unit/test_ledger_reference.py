"""Totals with this library's own lift and quilt sum, against the numbers known for them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from shoal.chains.model import MarkovChain
from shoal.core.errors import CannotCompose, OverBudget
from shoal.core.plan import Plan
from shoal.core.task import EachEntry
from shoal.ledger import compose, open_ledger
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import count

MATRIX = [[0.9, 0.1], [0.4, 0.6]]
DATA = [0, 1] * 5


def made(mechanism: str, epsilon: str, length: int | None) -> Plan:
    chain = MarkovChain.of(MATRIX, length=length)
    query = count(chain.states, 1)
    return calibrate(query, EachEntry(), chain, epsilon=epsilon, mechanism=mechanism)


@pytest.mark.parametrize(("epsilon", "joint"), [("0.2", 0.40800), ("0.5", 1.04005)])
def test_two_exact_counts_cost_what_their_joint_release_loses(epsilon: str, joint: float) -> None:
    """MATHS section 2: the same count twice on T = 10; the sum of the epsilons would be too low."""
    plan = made("exact", epsilon, 10)
    total = compose([plan, plan])
    assert total.rule == "lift"
    assert float(total.amount) == pytest.approx(joint, abs=2e-4)
    assert total.amount > 2 * plan.guarantee.amount


def test_two_quilt_plans_cost_less_than_the_papers_rule() -> None:
    """MATHS section 1, T = 100: at 1 and 2 by their quilts 2.485 (the paper's rule: 4)."""
    plans = [made("markov-quilt", epsilon, 100) for epsilon in ("1", "2")]
    from shoal.mechanisms.quilt import composed_loss

    assert composed_loss(plans) == pytest.approx(2.485, abs=2e-3)
    assert compose(plans).amount <= Fraction(2.486)


def test_two_quilt_plans_at_one_are_cheaper_by_the_lift() -> None:
    """MATHS section 1: 0.496."""
    total = compose([made("markov-quilt", "1", 100)] * 2)
    assert total.rule == "lift"
    assert float(total.amount) == pytest.approx(0.496, abs=2e-3)


def test_every_additive_plan_adds_to_every_other() -> None:
    names = ("laplace", "group", "exact", "markov-quilt", "lift")
    plans = [made(name, "0.5", 10) for name in names]
    total = compose(plans)
    assert total.eta == sum(loss_eta(plan) for plan in plans)
    assert total.notion in ("pufferfish", "group")


def loss_eta(plan: Plan) -> Fraction:
    from shoal.mechanisms.plans import laplace_body

    return laplace_body(plan).eta


def test_one_lifted_plan_spends_its_whole_limit_and_not_more(tmp_path: Path) -> None:
    plan = made("lift", "1", 10)
    with open_ledger(tmp_path / "budget.db") as ledger:
        ledger.limit("1", unit="epsilon")
        plan.release(DATA, ledger=ledger, subject="u")
        with pytest.raises(OverBudget) as caught:
            made("lift", "0.01", 10).release(DATA, ledger=ledger, subject="u")
    assert Fraction(caught.value.spent) <= 1


def test_a_chain_that_never_forgets_has_no_total_at_any_length() -> None:
    still = MarkovChain.of([[1.0, 0.0], [0.0, 1.0]], initial=[0.5, 0.5])
    query = count(still.states, 1)
    plan = calibrate(query, EachEntry(), still, epsilon="0.1", mechanism="laplace")
    assert compose([plan]).notion == "entry-dp"
    with pytest.raises(CannotCompose, match="infinite"):
        compose([plan, plan])
