"""Somebody else's functions: what leaks is found in whatever they return, and failures are told."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from shoal.audit.black_box import FunctionBox, RandomisedQuery, parallel
from shoal.audit.statistical import Estimate, audit_black_box
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import InputError, Refused
from shoal.core.task import EachEntry, Task
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import MECHANISMS
from shoal.mechanisms.variables import variable_sum
from shoal.networks.table import JointTable

CHAIN = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit", "walk"], length=30)
COIN = MarkovChain.of([[0.5, 0.5], [0.5, 0.5]], states=["sit", "walk"], length=1)
Rng = np.random.Generator


def audited(release: Any, **options: Any) -> Estimate:
    asked: dict[str, Any] = {"claimed": 1, "draws": 8000, "lengths": (1, 2), **options}
    return audit_black_box(release, EachEntry(), asked.pop("model", CHAIN), **asked)


def silent(data: list[str], rng: Rng) -> float | None:
    return None if data[0] == "walk" and rng.random() < 0.5 else float(rng.normal())


def no_number(data: list[str], rng: Rng) -> float:
    return math.nan if data[0] == "walk" and rng.random() < 0.5 else float(rng.normal())


def infinite(data: list[str], rng: Rng) -> float:
    return math.inf if data[0] == "walk" and rng.random() < 0.5 else float(rng.normal())


def one_value(data: list[str], rng: Rng) -> float:
    return 0.25 if data[0] == "walk" and rng.random() < 0.1 else float(rng.normal())


def after_the_point(data: list[str], rng: Rng) -> float:
    return float(rng.integers(0, 1000)) + (0.25 if data[0] == "walk" else 0.75)


def parity(data: list[str], rng: Rng) -> list[float]:
    return [*rng.laplace(0, 100, 2), 2.0 * rng.integers(0, 50) + data.count("walk") % 2]


def radius(data: list[str], rng: Rng) -> list[float]:
    angle, far = rng.uniform(0, 2 * math.pi), 1 + (data[0] == "walk")
    return [far * math.cos(angle), far * math.sin(angle)]


def last_of_many(data: list[str], rng: Rng) -> list[float]:
    return [*rng.normal(size=20), float(rng.laplace(data[0] == "walk", 1 / 3))]


def beside_huge_numbers(data: list[str], rng: Rng) -> list[float]:
    return [1e308 * float(rng.normal()), float(rng.laplace(data[0] == "walk", 0.2))]


@pytest.mark.parametrize(
    "release",
    [
        silent,
        no_number,
        infinite,
        one_value,
        after_the_point,
        parity,
        radius,
        last_of_many,
        beside_huge_numbers,
    ],
)
def test_leaks_of_any_shape_are_found(release: Callable[..., Any]) -> None:
    found = audited(release)
    assert found.violated
    assert "nan" not in found.describe()


def test_a_box_that_rarely_prints_the_truth_is_found() -> None:
    """Once in a thousand, among noise that covers everything: 100,000 draws show 0.5 mostly."""

    def rarely(data: list[str], rng: Rng) -> float:
        return 1000.0 * data.count("walk") if rng.random() < 1e-3 else float(rng.laplace(0, 50))

    tried = [
        audited(rarely, model=COIN, claimed=0.5, draws=100_000, lengths=(1,), seed=seed)
        for seed in range(4)
    ]
    found = [one for one in tried if one.violated]
    assert len(found) >= 3
    assert all("exactly" in one.event or "at least" in one.event for one in found)


@pytest.mark.parametrize("constant", [math.nan, math.inf, 0.0, "1.5"])
def test_constants_tell_nothing(constant: Any) -> None:
    found = audited(lambda data: constant)
    assert found.lower == 0
    assert not found.violated


class OwnGenerator:
    """A mechanism that draws from a generator it carries with it."""

    epsilon = 1.0

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def randomise(self, value: float) -> float:
        return float(value + self._rng.laplace())


def test_copies_of_a_generator_are_not_taken_for_independent() -> None:
    """Sent to two processes, the same noise came again in every chunk: 25 of 40 false alarms."""
    walks = count(CHAIN.states, "walk")
    assert not parallel(FunctionBox(RandomisedQuery(OwnGenerator(1), walks), CHAIN.states))
    alarms = 0
    for seed in range(12):
        release = RandomisedQuery(OwnGenerator(seed), walks)
        found = audit_black_box(
            release, EachEntry(), COIN, draws=8000, confidence=0.9, seed=seed, workers=2
        )
        alarms += found.exceeded  # the true loss is the claim
    assert alarms <= 5  # more has probability below 1e-3 at the stated 10 %


def test_seeded_functions_give_the_same_answer_on_any_number_of_processes() -> None:
    assert parallel(FunctionBox(one_value, CHAIN.states))
    assert audited(one_value) == audited(one_value, workers=2)
    assert not parallel(FunctionBox(lambda data, rng: rng.normal(), CHAIN.states))


def test_progress_is_told_up_to_the_draws() -> None:
    told: list[tuple[int, int]] = []
    audited(one_value, progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {8000}
    done = [count for count, _ in told]
    assert done == sorted(done)
    assert 0.95 * 8000 <= done[-1] <= 8000


def failing(data: list[str], rng: Rng) -> float:
    if rng.random() < 0.01:
        raise KeyError("boom")
    return 1.0


def changing() -> Callable[[list[str]], list[float]]:
    calls: list[int] = []

    def release(data: list[str]) -> list[float]:
        calls.append(1)
        return [1.0] * (1 if len(calls) <= 1000 else 2)

    return release


@pytest.mark.parametrize(
    ("release", "message"),
    [
        (failing, r"failed with KeyError: 'boom' \(its data was \['"),
        (lambda: 1.0, r"the black box takes \(\); it must take one list"),
        (lambda data, other: 1.0, r"the black box takes \(data, other\)"),
        (lambda data: "abc", "it returned 'abc'"),
        (lambda data: {"a": 1}, "must return a number"),
        (lambda data: [], "returned no number"),
        (lambda data, rng: [1.0] * int(rng.integers(1, 3)), "the same number of numbers"),
        (changing(), "returned 1 numbers for 1 entries and then 2"),
        (3, "release is a int"),
    ],
    ids=["raises", "no data", "two data", "text", "mapping", "empty", "ragged", "changing", "int"],
)
def test_failures_are_told_in_a_sentence(release: Any, message: str) -> None:
    options = {"draws": 80_000, "lengths": (1,)} if message.startswith("returned 1") else {}
    with pytest.raises(InputError, match=message) as refused:
        audited(release, **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"workers": 0}, "workers is 0"),
        ({"draws": 1e4}, "draws is 10000.0"),
        ({"lengths": (0,)}, "a length is 0"),
        ({"claimed": 0}, "claimed is 0"),
        ({"claimed": math.nan}, "claimed is nan"),
        ({"confidence": math.nan}, "confidence is nan"),
    ],
)
def test_bad_options_are_told_in_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audited(one_value, **options)


def test_secrets_that_cannot_be_drawn_are_refused() -> None:
    fact = Event.of("a fact", {"X1": "1"})
    with pytest.raises(InputError, match="the variables of a series are its slots"):
        audit_black_box(one_value, SecretPairs.of([(fact, fact)]), CHAIN, claimed=1)
    with pytest.raises(InputError, match="sampling is for single entries"):
        audit_black_box(one_value, SensitiveContexts.of(["walk"]), CHAIN, claimed=1)


def test_a_stream_is_not_sampled() -> None:
    day = DayChain.of([[[0.5, 0.5], [0.5, 0.5]]], initial=[0.5, 0.5], states=["home", "out"])
    secrets = SensitiveContexts.of(["out"])
    task = Task(query=CurrentState(day.states), secrets=secrets, family=(day,))
    plan = MECHANISMS["mask-simulatable"].calibrate(task, 0.1)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="plan for streams"):
        audit_black_box(plan, EachEntry(), CHAIN)


def test_labels_of_another_query_do_no_harm() -> None:
    found = audited(lambda data, rng: [1.0, float(rng.normal())], labels=("walks",), unit="steps")
    assert "output 2" in found.event or "anything" in found.event


def test_variables_with_values_of_their_own_are_drawn_with_them() -> None:
    """The second of two variables was handed over with the values of the first."""
    table = JointTable.of(
        [[0.4, 0.1], [0.1, 0.4]],
        variables=["rain", "mood"],
        domains=[["dry", "wet"], ["good", "bad"]],
    )
    seen: set[tuple[str, ...]] = set()

    def watched(data: list[str]) -> int:
        seen.add(tuple(data))
        return data.count("bad")

    assert audit_black_box(watched, EachEntry(), table, claimed=1, draws=4000).violated
    assert seen == set(product(("dry", "wet"), ("good", "bad")))
    with pytest.raises(InputError, match="variable 'mood' also takes 'good'"):
        audit_black_box(watched, EachEntry(), table, claimed=1, states=("dry", "wet"))
    query = variable_sum(table, {"rain": {"wet": 1}, "mood": {"bad": 1}})
    plan = calibrate(query, EachEntry(), table, epsilon=1, mechanism="exact")
    found = audit_black_box(plan, EachEntry(), table, draws=4000)
    assert 0.5 < found.lower < 1
