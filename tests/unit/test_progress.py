"""Long work says how far it is, to whoever listens; a wanted accuracy is found in few tries."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import shoal
from shoal.attacks.beliefs import attack, released
from shoal.core.progress import doing, heard, report_progress
from shoal.mechanisms import budgets, choice
from shoal.networks import large
from shoal.records.domain import RecordDomain
from shoal.records.sources import FriendModel
from tests.networks.models import lattice

CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.2, 0.8]], states="ab", length=60)


def test_work_is_heard_inside_and_nowhere_else() -> None:
    said: list[tuple[int, int]] = []
    report_progress(1, 2)
    with heard(lambda done, total: said.append((done, total))):
        report_progress(3, 4)
        with heard(lambda done, total: said.append((-done, total))):
            report_progress(5, 6)
        report_progress(7, 8)
    report_progress(9, 9)
    assert said == [(3, 4), (-5, 6), (7, 8)]


def test_an_attack_and_a_choice_tell_how_far_they_are() -> None:
    said: list[tuple[int, int]] = []
    with heard(lambda done, total: said.append((done, total))):
        plan = shoal.calibrate(shoal.count("ab", "a"), shoal.EachEntry(), CHAIN, epsilon=1)
        rows = len(said)
        attack(CHAIN, [released(plan, plan.release(["a", "b"] * 30, rng=1))], 60)
    assert rows in (0, len(shoal.MECHANISMS))
    shares = [done / total for done, total in said[rows:]]
    assert len(shares) > 8
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_work_says_in_words_what_is_being_done() -> None:
    """Networks and records name their steps; nobody hears words who did not ask for them."""
    said: list[str] = []
    net, query = lattice(3, 0.123), shoal.count("01", "1")
    domain = RecordDomain.points([0, 1, 2], states="abc")
    ties = FriendModel(b=0.5, c=1.0).ties(domain, 3, [(0, 1), (1, 2)])
    with heard(lambda done, total: None, said.append):
        shoal.calibrate(query, shoal.EachEntry(), net, epsilon=1, mechanism="markov-quilt")
        shoal.calibrate(query, shoal.EachEntry(), net, epsilon=1, mechanism="exact")
        large.LargeSums(net, query).loss(3.0)
        plan = shoal.calibrate(
            shoal.count("abc", "c"), shoal.EachEntry(), ties, epsilon=1, mechanism="group"
        )
        shoal.audit(plan)
        with heard(lambda done, total: None):
            doing("nothing that is heard", 1, 2)
    assert "the search for quilts of 9 variables: 4 of 9 done" in said
    assert "the search for laws of a sum over 9 variables: 8 of 9 done" in said
    assert "the law of the sum over the network: 3 of 6 done" in said
    assert any(words.startswith("the search for joint laws of 3 records: 1 of ") for words in said)
    assert not any("nothing" in words for words in said)


@pytest.mark.parametrize("error", [0.5, 4, 30])
@pytest.mark.parametrize("mechanism", ["best", "group", "lift"])
def test_the_least_budget_is_the_least_and_found_in_few_tries(
    error: float, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Fraction] = []
    first = choice.choose

    def counted(task: Any, amount: Any, *rest: Any, **more: Any) -> Any:
        tried.append(amount)
        return first(task, amount, *rest, **more)

    monkeypatch.setattr(budgets, "choose", counted)
    wish: dict[str, Any] = {"mechanism": mechanism}
    asked = (shoal.count("ab", "a"), shoal.EachEntry(), CHAIN)
    found = budgets.epsilon_for(*asked, error=error, **wish)
    tries, place = len(tried), budgets.BUDGETS.index(found)
    # noise in steps has no scale from which a budget could be guessed: some doublings, then halves
    guessed = shoal.calibrate(*asked, epsilon=found, **wish).mechanism != "steps"
    assert tries <= (6 if guessed else 20)
    bounds = [
        shoal.calibrate(*asked, epsilon=budgets.BUDGETS[at], **wish).error()
        for at in (place - 1, place)
    ]
    assert bounds[0] is not None
    assert bounds[1] is not None
    assert bounds[1].bound <= error < bounds[0].bound
