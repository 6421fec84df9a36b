"""Odd arguments of the public functions end in a sentence, never in a bare error of Python."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal

CHAIN: Any = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states="ab", length=6)
QUERY: Any = shoal.count("ab", "b")
EACH: Any = shoal.EachEntry()
SILENT = lambda eta: lambda entries: 0.0  # noqa: E731
WRONG: list[Any] = [None, 5, "abc", [None], [CHAIN, None], CHAIN.states, 1j]


def told(call: Any) -> str:
    with pytest.raises(shoal.ShoalError) as error:
        call()
    sentence = str(error.value)
    assert "\n" not in sentence
    assert ";" in sentence, sentence  # the rule, or the way out
    return sentence


@pytest.mark.parametrize("family", WRONG, ids=repr)
def test_what_is_no_model(family: Any) -> None:
    for call in (
        lambda: shoal.calibrate(QUERY, EACH, family, epsilon=1),
        lambda: shoal.epsilon_for(QUERY, EACH, family, error=5),
        lambda: shoal.leakage(family, 1),
        lambda: shoal.lift(SILENT, family, epsilon=1),
    ):
        assert "is no model" in told(call)


@pytest.mark.parametrize("value", [None, "x", [1], 1j, float("nan"), 0, -1, True, "1e999999999"])
def test_what_is_no_amount(value: Any) -> None:
    task = shoal.Task(query=QUERY, secrets=EACH, family=(CHAIN,))
    told(lambda: shoal.mechanisms.choose(task, value))
    told(lambda: shoal.leakage(CHAIN, value))
    told(lambda: shoal.lift(SILENT, CHAIN, epsilon=value))
    told(lambda: shoal.epsilon_for(QUERY, EACH, CHAIN, error=value))
    told(lambda: shoal.epsilon_for(QUERY, EACH, CHAIN, error=5, confidence=value))


def test_a_choice_takes_whatever_is_a_number() -> None:
    task = shoal.Task(query=QUERY, secrets=EACH, family=(CHAIN,))
    amounts: list[Any] = [Fraction(1, 10), 0.1, "0.1", np.float64(0.1)]
    assert len({shoal.mechanisms.choose(task, amount, "group").plan for amount in amounts}) == 1


@pytest.mark.parametrize("value", [None, 5, "", "BEST", ["lift"]])
def test_what_is_no_mechanism(value: Any) -> None:
    assert "it must be 'best' or one of" in told(
        lambda: shoal.calibrate(QUERY, EACH, CHAIN, epsilon=1, mechanism=value)
    )


@pytest.mark.parametrize("value", [None, CHAIN, "plan", {}])
def test_what_is_no_plan_or_task(value: Any) -> None:
    assert "the plan is of type" in told(lambda: shoal.verify_promise(value))
    assert "the task is of type" in told(lambda: shoal.mechanisms.choose(value, Fraction(1)))


def test_what_is_no_external_mechanism() -> None:
    factory: Any = 5
    assert "factory is of type int" in told(lambda: shoal.lift(factory, CHAIN, epsilon=1))
    made: Any = lambda eta: "count"  # noqa: E731
    assert "is of type str" in told(lambda: shoal.lift(made, CHAIN, epsilon=1))
    plan, wrong = shoal.lift(SILENT, CHAIN, epsilon=1), Fraction(1)
    assert "is of type Fraction" in told(lambda: shoal.attach(plan, wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", ["text", None, float("nan"), float("inf"), [1.0, None], {}])
def test_an_external_answer_that_is_no_number_is_not_released(answer: Any) -> None:
    plan = shoal.lift(lambda eta: lambda entries: answer, CHAIN, epsilon=1)
    assert "did not answer with a finite number" in told(lambda: plan.release(["a", "b"]))


def test_an_external_answer_may_be_an_array() -> None:
    plan = shoal.lift(lambda eta: lambda entries: np.array([1.5, 2.0]), CHAIN, epsilon=1)
    assert plan.release(["a", "b"]).values == (1.5, 2.0)


def test_states_are_handed_over_as_numbers_only_when_all_are() -> None:
    seen: list[Any] = []

    def noted(entries: list[Any]) -> int:
        seen.extend(entries)
        return 0

    for states in (["0", "-1"], ["2", "\u00b2"]):  # a superscript is a digit to Python, no number
        chain = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=states, length=6)
        plan = shoal.lift(lambda eta: noted, chain, epsilon=1)
        plan.release(states)
    assert seen == [0, -1, "2", "\u00b2"]


# events that never happen


def pairs(*where: dict[str, str]) -> shoal.SecretPairs:
    first, second = (shoal.Event.of(f"fact {i}", fact) for i, fact in enumerate(where))
    return shoal.SecretPairs.of([(first, second)])


@pytest.mark.parametrize("states", ["ab", "abc"])
@pytest.mark.parametrize("relative", [False, True])
def test_secrets_that_never_happen_need_hardly_any_noise(states: str, relative: bool) -> None:
    """X1 is always "a": no output tells apart two facts of which one, or none, can be true."""
    law = np.zeros((len(states),) * 2)
    law[0, :] = 1 / len(states)
    table = shoal.JointTable.of(law, domains=[list(states)] * 2)
    length = {"relative": True, "length": 2} if relative else {}
    for secrets in (
        pairs({"X1": "b"}, {"X1": "a"}),
        pairs({"X1": "b"}, {"X1": "b", "X2": "a"}),
    ):
        for query in (shoal.count(states, "b"), shoal.histogram(states, **length)):  # type: ignore[arg-type]
            for mechanism in ("best", "exact", "wasserstein", "group"):
                plan = shoal.calibrate(query, secrets, table, epsilon=1, mechanism=mechanism)
                assert shoal.verify_promise(plan) <= 1
            assert shoal.calibrate(query, secrets, table, epsilon=1).cost < 0.1
    certain = np.zeros_like(law)
    certain[0, 1] = 1.0
    fixed = shoal.JointTable.of(certain, domains=[list(states)] * 2)
    assert shoal.calibrate(shoal.histogram(states), EACH, fixed, epsilon=1).cost < 0.1
