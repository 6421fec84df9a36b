"""Which theorem adds which charges: every rule, every refusal, and the least of them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shoal.chains.model import MarkovChain
from shoal.core.charge import AsEntryDP, PerStep, SameQuilts
from shoal.core.errors import CannotCompose, Refused
from shoal.core.task import EachEntry, Model
from shoal.events.pairs import Event, SecretPairs
from shoal.ledger.rules import RULES, any_total, compose, parallel, standard_conversions
from shoal.ledger.totals import Conversions, Total, tallied
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import count
from shoal.networks.table import JointTable
from tests.ledger_plans import (
    CHAIN,
    ENDLESS,
    MATRIX,
    TENTH,
    alone,
    carrying,
    conversions,
    group,
    laplace,
    with_eta,
)


def test_etas_add_exactly_and_are_converted_once() -> None:
    calls: list[Fraction] = []
    total = compose(
        [carrying(AsEntryDP(TENTH)), carrying(AsEntryDP(2 * TENTH))], conversions(3.0, calls=calls)
    )
    assert calls == [Fraction(3, 10)]
    assert total.eta == Fraction(3, 10)
    assert total.amount == Fraction(3.0 * 0.3)
    assert (total.notion, total.rule, total.charges) == ("pufferfish", "lift", 2)
    assert "0.3" in total.explanation
    assert "0.9" in total.explanation


def test_a_single_charge_costs_its_own_guarantee() -> None:
    total = compose([carrying(AsEntryDP(TENTH), amount=Fraction(1, 5))], conversions(3.0))
    assert (total.rule, total.amount, total.eta) == ("own guarantee", Fraction(1, 5), TENTH)


def test_a_single_charge_costs_less_when_the_lift_proves_less() -> None:
    total = compose([carrying(AsEntryDP(TENTH), amount=Fraction(1))], conversions(3.0))
    assert (total.rule, total.amount) == ("lift", Fraction(3.0 * 0.1))


def test_a_single_charge_that_adds_to_nothing_still_has_its_guarantee() -> None:
    assert compose([alone()], conversions()).rule == "own guarantee"


def test_ordinary_dp_is_told_in_the_notion_the_secrets_ask_for() -> None:
    one = compose([laplace("0.1")], conversions(3.0))
    assert (one.notion, one.rule, one.eta) == ("pufferfish", "lift", TENTH)
    endless = compose([laplace("0.1", ENDLESS)], conversions(math.inf))
    assert (endless.notion, endless.amount) == ("entry-dp", TENTH)


def test_group_epsilons_add() -> None:
    total = compose([group("0.5"), group("0.25")], conversions(1000.0))
    assert (total.notion, total.rule) == ("group", "group")
    assert total.amount == Fraction(3, 4)


def test_every_eta_is_a_group_epsilon_times_the_entries_that_are_tied() -> None:
    total = compose([group("0.5"), laplace("0.1")], conversions(1000.0))
    assert total.amount == Fraction(1, 2) + 20 * TENTH


def test_group_promises_are_brought_to_the_largest_tied_group() -> None:
    total = compose([group("1"), group("0.1", MarkovChain.of(MATRIX, length=50))], conversions(99))
    # what costs 1 for 20 entries costs 50/20 for 50
    assert (total.rule, total.amount) == ("group", Fraction(50, 20) + TENTH)


def test_quilt_plans_add_by_the_sum_over_shared_quilts() -> None:
    plans = [
        carrying(SameQuilts("q", eta), AsEntryDP(eta), amount=Fraction(1))
        for eta in (Fraction(1, 7), Fraction(1, 9))
    ]
    total = compose(plans, conversions(99, quilts=2.485))
    assert (total.rule, total.amount) == ("same quilts", Fraction(2.485))


@pytest.mark.parametrize("epsilons", [(1, 1, 1), (1, 2), (0.25, 4)])
def test_quilt_plans_never_cost_more_than_the_number_times_the_largest(
    epsilons: tuple[float, ...],
) -> None:
    query = count(["0", "1"], "1")
    plans = [
        calibrate(query, EachEntry(), CHAIN, epsilon=epsilon, mechanism="markov-quilt")
        for epsilon in epsilons
    ]
    quilts = standard_conversions().composed_loss(plans)
    assert quilts <= len(plans) * max(epsilons) * (1 + 1e-9)
    assert compose(plans).amount <= Fraction(quilts)


def test_quilt_plans_of_different_quilts_do_not_add_as_such() -> None:
    plans = [carrying(SameQuilts(key, Fraction(1, 7))) for key in "qr"]
    with pytest.raises(CannotCompose, match="not all made from the same Markov quilts"):
        compose(plans, conversions(quilts=1.0))


def test_the_least_of_the_shared_rules_wins() -> None:
    plans = [carrying(SameQuilts("q", TENTH), AsEntryDP(TENTH), amount=Fraction(1))] * 2
    assert compose(plans, conversions(2.5, quilts=1.2)).rule == "lift"
    assert compose(plans, conversions(2.5, quilts=0.4)).rule == "same quilts"
    assert compose(plans, conversions(500.0)).rule == "lift"


def test_steps_of_one_policy_add_over_a_sequence() -> None:
    steps = [carrying(PerStep(Fraction(1, 3)), promise="policy")] * 3
    total = compose(steps, conversions())
    assert (total.notion, total.rule, total.amount) == ("policy", "per step", Fraction(1))


def test_steps_under_different_models_do_not_add() -> None:
    steps = [
        carrying(PerStep(TENTH), promise="policy", family=[CHAIN]),
        carrying(PerStep(TENTH), promise="policy", family=[ENDLESS]),
    ]
    with pytest.raises(CannotCompose, match="different policies or models"):
        compose(steps, conversions())


def test_different_families_are_converted_each_and_the_worst_counts() -> None:
    other = MarkovChain.of([[0.5, 0.5], [0.5, 0.5]])
    seen: list[tuple[tuple[Model, ...], Fraction]] = []

    def leakage(family: tuple[Model, ...], eta: Fraction) -> float:
        seen.append((family, eta))
        return (5.0 if family == (ENDLESS,) else 2.0) * float(eta)

    plans = [carrying(AsEntryDP(TENTH)), carrying(AsEntryDP(TENTH), family=[other])]
    total = compose(plans, Conversions(leakage, lambda plans: math.inf))
    assert {family for family, _ in seen} == {(ENDLESS,), (other,)}
    assert {eta for _, eta in seen} == {2 * TENTH}
    assert total.amount == Fraction(5.0 * 0.2)
    assert "worst of 2 families" in total.explanation


def test_an_infinite_lift_cannot_compose_and_says_what_to_do() -> None:
    with pytest.raises(CannotCompose, match=r"lift of eta = 0\.2 is infinite") as caught:
        compose([laplace("0.1", ENDLESS)] * 2, conversions(math.inf))
    assert any("one vector query" in way for way in caught.value.ways_out)
    assert any("new period" in way for way in caught.value.ways_out)
    assert any("length" in way for way in caught.value.ways_out)


def test_a_lift_that_refuses_the_family_gives_its_own_reason() -> None:
    def refuse(family: tuple[Model, ...], eta: Fraction) -> float:
        raise Refused("two numbers are not a transition matrix")

    with pytest.raises(CannotCompose, match="two numbers are not a transition matrix"):
        compose([laplace("0.1", ENDLESS)] * 2, Conversions(refuse, lambda plans: math.inf))


def test_nothing_shared_cannot_compose_and_gives_every_reason() -> None:
    with pytest.raises(CannotCompose, match="no eta") as caught:
        compose([alone("the same day twice"), laplace("1", ENDLESS)], conversions())
    assert "the same day twice" in caught.value.reason
    assert all(rule.name in caught.value.reason for rule in RULES)


def test_the_same_release_twice_of_a_plan_that_is_alone_cannot_compose() -> None:
    with pytest.raises(CannotCompose, match="may reveal anything"):
        compose([alone()] * 2, conversions())


def test_a_claimed_guarantee_counts_for_nothing_but_its_eta_does() -> None:
    claimed = carrying(AsEntryDP(TENTH), proved=False, amount=Fraction(1, 100))
    assert compose([claimed], conversions(3.0)).rule == "lift"
    with pytest.raises(CannotCompose, match="claimed, not proved"):
        compose([replace(claimed, composition=())], conversions(3.0))


def test_named_pairs_of_events_are_not_lifted_but_covered_by_the_group() -> None:
    table = JointTable.of(np.full((2, 2, 2), 1 / 8))
    secrets = SecretPairs.of([(Event.of("a", {"X1": "0"}), Event.of("b", {"X1": "1"}))])
    plans = [carrying(AsEntryDP(TENTH), family=[table], secrets=secrets)] * 2
    total = compose(plans, conversions(1.0))
    assert (total.rule, total.amount) == ("group", 3 * 2 * TENTH)


def test_charges_about_different_states_are_not_about_the_same_data() -> None:
    states = ["rest", "run"]
    chain, query = MarkovChain.of(MATRIX, states=states, length=20), count(states, "run")
    plans = [laplace("0.1"), calibrate(query, EachEntry(), chain, epsilon=1, mechanism="group")]
    with pytest.raises(CannotCompose, match="different sets of states"):
        compose(plans, conversions())


def test_the_cheap_rules_spare_the_lift() -> None:
    calls: list[Fraction] = []
    assert any_total(tallied([laplace("0.1")] * 5), conversions(calls=calls)).rule == "group"
    assert calls == []
    with pytest.raises(CannotCompose):
        any_total(tallied([alone()] * 2), conversions())


def test_no_charges_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="nothing has been spent"):
        compose([], conversions())


def test_a_tally_counts_equal_plans() -> None:
    tally = tallied([laplace("0.1"), laplace("0.2"), laplace("0.1")])
    assert {plan.guarantee.amount: count for plan, count in tally} == {TENTH: 2, 2 * TENTH: 1}


def total_of(notion: str, amount: str, eta: Fraction | None = None) -> Total:
    return Total(
        notion=notion, amount=Fraction(amount), rule="r", eta=eta, charges=2, explanation="because"
    )


def test_independent_parts_keep_the_largest() -> None:
    parts = [total_of("pufferfish", "0.5", TENTH), total_of("pufferfish", "0.75", 2 * TENTH)]
    total = parallel(parts)
    assert (total.amount, total.notion, total.charges) == (Fraction(3, 4), "pufferfish", 4)
    assert total.eta == 2 * TENTH
    assert parallel([parts[0], total_of("pufferfish", "1")]).eta is None


def test_independent_days_keep_the_largest_delta() -> None:
    days = [total_of("delta-privacy", "0.1"), total_of("delta-privacy", "0.2")]
    assert parallel(days).amount == Fraction(1, 5)


def test_independent_parts_are_told_in_a_notion_all_of_them_give() -> None:
    mixed = [total_of("group", "1"), total_of("pufferfish", "0.5")]
    assert (parallel(mixed).notion, parallel(mixed).amount) == ("pufferfish", Fraction(1))
    with pytest.raises(CannotCompose, match="entry-dp, pufferfish"):
        parallel([total_of("entry-dp", "1"), total_of("pufferfish", "1")])
    with pytest.raises(ValueError, match="nothing has been spent"):
        parallel([])


def test_long_rationals_stay_exact() -> None:
    total = compose([with_eta(Fraction(1, 3)), with_eta(Fraction(1, 7))], conversions())
    assert total.eta == Fraction(10, 21)
