"""Stored suppression plans, edited and signed anew: a re-check believes the tables alone."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import DayChain, Plan, SensitiveContexts
from shoal.contexts.checks.task import machine_states, rise_of
from shoal.contexts.machine import HistoryMask, SegmentMask, SimulatableMask, VectorMask
from shoal.contexts.search.beliefs import prepare
from shoal.contexts.search.memory import Remembering
from tests.contexts.enumeration import highest_rise, random_chain
from tests.contexts.test_every_output import body_policy

DELTA = Fraction(1, 5)
INITIAL = [0.3, 0.4, 0.3]
STICKY = [[[0.6, 0.2, 0.2], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]]] * 3
LOOSE = [[[0.5, 0.2, 0.3], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]] * 3
KINDS = {
    "simulatable": "mask-simulatable",
    "probabilistic": "mask-probabilistic",
    "hybrid": "mask-hybrid",
    "adaptive": "mask-adaptive",
    "optimal": "mask-optimal",
    "family": "mask-adaptive",
    "labels": "mask-adaptive",
}


@cache
def plan_of(kind: str) -> Plan:
    labels = {"a": ["home", "clinic"]} if kind == "labels" else None
    name = "clinic" if labels else "a"
    at = {name: [1]} if kind == "simulatable" else None  # else it shows nothing, which is true
    secrets = SensitiveContexts.of(() if at else name, moments=at, labels=labels)
    chains = (STICKY, LOOSE) if kind == "family" else (STICKY,)
    days = [DayChain.of(chain, initial=INITIAL, states=["a", "b", "c"]) for chain in chains]
    return shoal.mask(days, secrets, delta=DELTA, check=KINDS[kind])


def forged(plan: Plan, edit: Callable[[dict[str, Any]], None]) -> Plan:
    """The plan with its document edited and the fingerprint made to fit."""
    document = json.loads(shoal.dumps(plan))
    edit(document["value"])
    text = json.dumps(document["value"], sort_keys=True, separators=(",", ":"))
    document["fingerprint"] = hashlib.sha256(text.encode()).hexdigest()
    found = shoal.loads(json.dumps(document))
    assert isinstance(found, Plan)
    return found


def caught(plan: Plan, edit: Callable[[dict[str, Any]], None]) -> bool:
    """Whether the forgery cannot be loaded or re-checked, or measures more than it promises."""
    try:
        false = forged(plan, edit)
        return not shoal.verify_promise(false) <= float(false.guarantee.amount) * (1 + 1e-12)
    except shoal.ShoalError:
        return True


def tables(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The arrays of suppression probabilities in a stored machine."""
    found = [body["codes"]] if "codes" in body else []
    return found + (tables(body["tail"]) if "tail" in body else [])


def show_everything(value: dict[str, Any]) -> None:
    body = value["body"]
    for codes in tables(body):
        codes["values"] = [0] * len(codes["values"])
    if "table" in body:
        slots, size = body["table"]["shape"]
        body["table"]["values"] = [t for t in range(slots) for _ in range(size)]


def show_a_little_more(value: dict[str, Any]) -> None:
    body = value["body"]
    for codes in tables(body):
        always = 65535 if codes["$array"].endswith("16") else 2**32 - 1
        codes["values"] = [c // 2 if c < always else int(0.9 * always) for c in codes["values"]]
    if "table" in body:
        show_everything(value)


def promise_less(value: dict[str, Any]) -> None:
    value["guarantee"]["amount"] = {"$fraction": "1/50"}


def name_more_secrets(value: dict[str, Any]) -> None:
    value["task"]["secrets"]["contexts"] = ["a", "b", "c"]
    value["task"]["secrets"]["labels"] = []


def promise_another_notion(value: dict[str, Any]) -> None:
    value["guarantee"]["notion"] = "pufferfish"


def promise_another_adversary(value: dict[str, Any]) -> None:
    value["guarantee"]["over"] = "everything, for everybody"


def compose_with_all(value: dict[str, Any]) -> None:
    value["composition"] = []


def certify_no_rise(value: dict[str, Any]) -> None:
    value["certificate"]["rise"] = 0.0


def certify_more_releases(value: dict[str, Any]) -> None:
    value["certificate"]["releases"] += 0.01
    value["cost"] -= 0.01


def cost_less(value: dict[str, Any]) -> None:
    value["cost"] -= 0.01


def follow_another_chain(value: dict[str, Any]) -> None:
    """A day on which the contexts hardly change: what is shown tells what was not."""
    for day in value["task"]["family"]:
        matrix = [0.98, 0.01, 0.01, 0.01, 0.98, 0.01, 0.01, 0.01, 0.98]
        day["transition"]["values"] = matrix * 3


FORGERIES = [
    show_everything,
    show_a_little_more,
    promise_less,
    name_more_secrets,
    promise_another_notion,
    promise_another_adversary,
    compose_with_all,
    certify_no_rise,
    certify_more_releases,
    cost_less,
    follow_another_chain,
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_forged_passes(kind: str) -> None:
    assert not caught(plan_of(kind), lambda value: None)


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_plan_catches_a_forgery(
    kind: str, forgery: Callable[[dict[str, Any]], None]
) -> None:
    assert caught(plan_of(kind), forgery)


def test_an_optimal_plan_that_shows_everything_measures_what_it_tells() -> None:
    """It was re-checked with 0: no table had been visited by the program."""
    plan = plan_of("optimal")
    assert isinstance(plan.body, HistoryMask)
    body = forged(plan, show_everything).body
    rise = rise_of(plan.task, DELTA, body)
    prior = min((np.array(INITIAL) @ np.linalg.matrix_power(STICKY[0], t))[0] for t in range(4))
    assert rise == pytest.approx(1 - prior, abs=1e-12)


def forge_of(field: str, value: Any, *inside: str) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        at = document["body"]
        for name in inside:
            at = at[name]
        at[field] = value if not isinstance(at[field], dict) else {**at[field], "values": value}

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (forge_of("digits", [0, -1, 0]), "digits must hold"),
        (forge_of("windows", [9] * 99), "cannot be built|windows|reshape"),
        (forge_of("starts", [0] * 99), "cannot be built|starts|reshape"),
        (forge_of("slots", 3, "tail"), "windows|starts|belongs to another task|outside the day"),
    ],
)
def test_tables_that_do_not_fit_are_refused_in_a_sentence(edit: Any, message: str) -> None:
    with pytest.raises(shoal.ShoalError, match=message):
        shoal.verify_promise(forged(plan_of("optimal"), edit))


def test_tables_about_other_states_measure_infinity() -> None:
    other = forge_of("states", ["a", "b", "z"], "tail")
    assert shoal.verify_promise(forged(plan_of("optimal"), other)) == math.inf


def random_machine(rng: np.random.Generator, states: tuple[str, ...], slots: int) -> Any:
    """Any table whatever, of each kind of machine."""
    size = len(states)

    def codes(*shape: int, always: int = 65535, dtype: Any = np.uint16) -> Any:
        level = rng.integers(0, always, size=shape)
        sure = rng.random(shape)
        return np.where(sure < 0.3, always, np.where(sure < 0.5, 0, level)).astype(dtype)

    kind = rng.integers(4)
    if kind == 0:
        return VectorMask(states, codes(slots, size))
    if kind == 1:
        return SimulatableMask(states, rng.integers(0, slots + 1, size=(slots + 1, size)))
    origins = [(-1, 0), *((t, j) for t in range(slots) for j in range(size) if rng.random() < 0.7)]
    rows = [int(rng.integers(0, slots - t)) for t, _ in origins]
    table = {o: codes(count, size) for o, count in zip(origins, rows, strict=True)}
    segments = SegmentMask.of(states, slots, table)
    if kind == 2:
        return segments
    digits = rng.integers(0, 3, size=size)  # whatever states they lump together
    base = int(digits.max()) + 1
    kept = [o for o in origins if rng.random() < 0.7]
    windows = [int(rng.integers(0, slots - t)) for t, _ in kept]
    sizes = [size * sum(base**m for m in range(window)) for window in windows]
    fine = codes(sum(sizes), always=2**32 - 1, dtype=np.uint32)
    places = np.array(kept, dtype=np.int64).reshape(-1, 2)
    return HistoryMask(
        segments, digits, places, np.array(windows, dtype=np.int64), np.cumsum([0, *sizes]), fine
    )


def compare(rng: np.random.Generator) -> None:
    """The rise of a random machine on a random day, against every path and output."""
    size, slots = int(rng.integers(2, 4)), int(rng.integers(1, 5))
    initial, transition = random_chain(rng, states=size, slots=slots, sparse=0.3)
    day = DayChain.of(transition, initial=initial)
    secrets = SensitiveContexts.of(["0"])
    task = shoal.Task(query=shoal.contexts.CurrentState(day.states), secrets=secrets, family=(day,))
    order = tuple(rng.permutation(day.states).tolist())
    body = random_machine(rng, order, slots)
    assert machine_states(body) == order
    turn = [order.index(name) for name in day.states]
    policy = body_policy(body)

    def hides(t: int, path: tuple[int, ...], shown: tuple[int, ...]) -> float:
        return float(policy(t, tuple(turn[state] for state in path), shown))

    truth = highest_rise(initial, transition, hides, [(t, 0) for t in range(slots)])
    assert rise_of(task, Fraction(1, 10), body) == pytest.approx(float(truth), abs=1e-11)


def test_any_table_whatever_is_measured_as_what_it_tells() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        compare(rng)


def exact_row(rng: np.random.Generator, size: int) -> Any:
    """Multiples of 2^-52 that add up to 1, and at times something of 2^-900 beside them."""
    cuts = np.sort(rng.integers(0, 2**52 + 1, size=size - 1))
    row = np.diff(np.concatenate([[0], cuts, [2**52]])) / 2**52
    return np.where((row == 0) | (rng.random(size) < 0.1), row + 2.0**-900, row)


def test_windows_round_up() -> None:
    """Never below the truth in whole numbers, not even in the last digit, nor far above it."""
    rng = np.random.default_rng(9)
    for _ in range(25):
        size, slots = int(rng.integers(2, 4)), int(rng.integers(2, 5))
        initial = exact_row(rng, size)
        transition = [[exact_row(rng, size) for _ in range(size)] for _ in range(slots - 1)]
        day = DayChain.of(np.array(transition), initial=initial)
        secrets = SensitiveContexts.of("0")
        task = shoal.Task(
            query=shoal.contexts.CurrentState(day.states), secrets=secrets, family=(day,)
        )
        digits = np.arange(size)
        plans = {}
        for slot, state in [(-1, 0), *((t, j) for t in range(slots - 1) for j in range(size))]:
            codes = [
                rng.integers(2**20, 2**32, size=(size**m, size)) for m in range(slots - 1 - slot)
            ]
            hidden = [np.where(digits == 0, 2**32 - 1, c).astype(np.uint32) for c in codes]
            plans[slot, state] = Remembering(tuple(hidden), np.empty((0, size), np.uint16))
        body = HistoryMask.of(day.states, slots, plans, digits)
        policy = body_policy(body)
        exact = [[[Fraction(float(p)) for p in row] for row in matrix] for matrix in transition]
        truth = highest_rise(
            [Fraction(float(p)) for p in initial],
            exact,
            lambda *at, policy=policy: Fraction(float(policy(*at))),
            [(t, 0) for t in range(slots)],
        )
        rise = rise_of(task, Fraction(1, 10), body)
        assert 0 <= Fraction(rise) - truth <= Fraction(1, 10**12)


def moved(law: list[Fraction], matrix: list[list[Fraction]]) -> list[Fraction]:
    columns = zip(*matrix, strict=True)
    return [sum((p * q for p, q in zip(law, c, strict=True)), Fraction(0)) for c in columns]


def test_priors_are_rounded_down() -> None:
    rng = np.random.default_rng(11)
    transition = np.array([[exact_row(rng, 3) for _ in range(3)] for _ in range(60)])
    initial = exact_row(rng, 3)
    day = prepare(initial, transition, np.ones((61, 3)), 0.1, everything=True)
    law = [Fraction(float(p)) for p in initial]
    exact = [law]
    for matrix in transition.tolist():
        law = moved(law, [[Fraction(p) for p in row] for row in matrix])
        exact.append(law)
    low = day.least_prior
    for c, (t, j) in enumerate(zip(day.when, day.who, strict=True)):
        assert Fraction(float(low[c])) <= exact[t][j]


@pytest.mark.slow
def test_any_table_whatever_is_measured_as_what_it_tells_for_long() -> None:
    rng = np.random.default_rng(8)
    for _ in range(3000):
        compare(rng)
