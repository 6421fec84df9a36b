"""The optimal check against linear programs over whole paths, and exactly in whole numbers."""

from __future__ import annotations

import json
import os
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import DayChain, Plan, SensitiveContexts
from shoal.contexts.checks.rows import EXACT
from shoal.contexts.checks.task import MaskCertificate
from tests.contexts.enumeration import expected_releases, highest_rise
from tests.contexts.optimum import optimum, tree_optimum
from tests.contexts.test_every_output import policy_of

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "mask_optimum.json"
NEAR = 1e-6  # releases of a day


def planned(initial: Any, transition: Any, sensitive: list[int], delta: float) -> Plan:
    day = DayChain.of(transition, initial=initial)
    secrets = SensitiveContexts.of([str(s) for s in sensitive])
    return shoal.mask(day, secrets, delta=delta, check="mask-optimal")


def true_rise(plan: Plan, sensitive: list[int]) -> Fraction:
    """The highest rise in whole numbers, of the chain and the tables as they are stored."""
    day, policy = plan.task.family[0], policy_of(plan)
    assert isinstance(day, DayChain)
    initial = [Fraction(float(p)) for p in day.initial]
    transition = [
        [[Fraction(float(p)) for p in row] for row in matrix] for matrix in day.transition
    ]
    secrets = [(t, s) for t in range(day.slots) for s in sensitive]
    rise = highest_rise(initial, transition, lambda *at: Fraction(float(policy(*at))), secrets)
    return Fraction(rise)


def random_day(rng: np.random.Generator, *, most: int = 5) -> tuple[Any, Any, list[int], float]:
    """Up to 4 contexts and `most` slots: skewed, rounded and with zeros at times."""
    size, slots = int(rng.integers(2, 5)), int(rng.integers(2, most + 1))

    def rows(*shape: int) -> Any:
        weight = rng.random(shape) ** rng.choice([1, 3])
        weight = np.round(weight, 1) if rng.random() < 0.3 else weight
        weight = weight * (rng.random(shape) > 0.3) if rng.random() < 0.4 else weight
        weight[weight.sum(axis=-1) == 0, ..., 0] = 1.0
        return weight / weight.sum(axis=-1, keepdims=True)

    initial, transition = rows(1, size)[0], rows(slots - 1, size, size)
    count = int(rng.integers(1, size + (rng.random() < 0.2)))
    sensitive = sorted(rng.choice(size, size=count, replace=False).tolist())
    return initial, transition, sensitive, float(rng.choice([0.01, 0.05, 0.1, 0.2, 0.25, 0.3]))


def shortfall(initial: Any, transition: Any, sensitive: list[int], delta: float) -> float:
    """How far the plan is below the optimum; it says so, and keeps its promise."""
    plan = planned(initial, transition, sensitive, delta)
    assert shoal.verify_promise(plan) <= delta * (
        1 + 1e-12
    )  # segments without a window may meet it
    short = optimum(initial, transition, sensitive, delta) + plan.cost
    assert short <= NEAR or EXACT not in plan.certificate.theorem
    return short


def test_the_programs_of_segments_are_the_program_over_the_tree_of_outputs() -> None:
    """The oracle itself: backwards over segments against one program over all outputs."""
    rng = np.random.default_rng(4)
    for size, slots in ((2, 2), (2, 3), (3, 2), (2, 3)):
        initial = rng.dirichlet(np.ones(size))
        transition = rng.dirichlet(np.ones(size), size=(slots - 1, size))
        whole = tree_optimum(initial, transition, [0], 0.1)
        assert optimum(initial, transition, [0], 0.1) == pytest.approx(whole, abs=1e-7)


CASES = {
    "three contexts of which one is nearly never entered": (
        [0, 1, 0],
        [
            [[1, 0, 0], [1e-8, 0, 1 - 1e-8], [0, 0, 1]],
            [[0, 0, 1], [1, 0, 0], [0, 0.001, 0.999]],
            [[0, 0, 1], [0, 0, 1], [0, 0.9, 0.1]],
        ],
        [0, 2],
        0.25,
    ),
    "a repair that gave up": (
        [0.33, 0.67],
        [[[0.04, 0.96], [0.69, 0.31]], [[0.31, 0.69], [0.4, 0.6]]],
        [0],
        0.1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_days_on_which_the_check_was_wrong_are_private_and_optimal(case: Any) -> None:
    _, _, sensitive, delta = case
    assert shortfall(*case) <= NEAR
    plan = planned(*case)
    assert EXACT in plan.certificate.theorem
    assert true_rise(plan, sensitive) <= Fraction(delta)
    outcome = shoal.audit(plan)
    assert outcome.upper <= delta * (1 + 1e-9)


@pytest.mark.parametrize("found", json.loads(GOLDEN.read_text()), ids=lambda found: found["id"])
def test_stored_optima_are_reached(found: dict[str, Any]) -> None:
    given, sensitive = found["input"], [0]
    delta = given["bounds"][0][1] - found["expected"]["prior"][0]
    plan = planned(given["initial"], given["transitions"], sensitive, round(delta, 12))
    best = found["expected"]["expected_releases"]
    assert -plan.cost == pytest.approx(best, abs=found["tolerance"])
    assert EXACT in plan.certificate.theorem


def test_random_days_are_within_a_millionth_of_the_optimum() -> None:
    rng = np.random.default_rng(15)
    for _ in range(6):
        assert shortfall(*random_day(rng, most=4)) <= NEAR


def test_beliefs_keep_delta_exactly_in_whole_numbers() -> None:
    """Not to a tolerance: on the chain and the tables as stored, where a program was used."""
    rng = np.random.default_rng(16)
    for _ in range(6):
        initial, transition, sensitive, delta = random_day(rng, most=3)
        plan = planned(initial, transition, sensitive, delta)
        rise = true_rise(plan, sensitive)
        assert rise <= Fraction(delta)
        assert isinstance(plan.certificate, MaskCertificate)
        assert float(rise) == pytest.approx(plan.certificate.rise, abs=1e-12)
        releases = expected_releases(initial, transition, policy_of(plan))
        assert releases == pytest.approx(-plan.cost, abs=1e-9)


def extreme_day(rng: np.random.Generator) -> tuple[Any, Any, list[int], float]:
    """Probabilities of 1e-300, 1e-150 and 1e-8 beside common ones and zeros."""
    size = int(rng.integers(2, 4))
    slots = int(rng.integers(2, 5 if size == 2 else 4))
    tiny = rng.choice([5e-324, 1e-300, 1e-200, 1e-155, 1e-150, 1e-100, 1e-16, 1e-8], size=3)

    def row() -> Any:
        weight = rng.choice([0.0, 1.0, 0.5, 0.1, *tiny], size=size)
        most = int(rng.integers(size))
        weight[most] = 0.0
        weight *= 0.9 / weight.sum() if weight.sum() >= 1 else 1.0
        weight[most] = 1.0 - weight.sum()
        return weight

    initial = row()
    transition = np.array([[row() for _ in range(size)] for _ in range(slots - 1)])
    sensitive = sorted(rng.choice(size, size=int(rng.integers(1, size)), replace=False).tolist())
    return initial, transition, sensitive, float(rng.choice([1e-6, 0.01, 0.1, 0.25, 0.5]))


def attack_extremes(rng: np.random.Generator) -> None:
    """Every check keeps delta in whole numbers, where products of probabilities underflow."""
    initial, transition, sensitive, delta = extreme_day(rng)
    day = DayChain.of(transition, initial=initial)
    secrets = SensitiveContexts.of([str(s) for s in sensitive])
    for check in ("mask-simulatable", "mask-probabilistic", "mask-adaptive", "mask-optimal"):
        plan = shoal.mask(day, secrets, delta=delta, check=check)
        rise = float(true_rise(plan, sensitive))
        # a re-check also counts releases that only slots not read lead to
        assert rise - 1e-9 <= shoal.verify_promise(plan) <= delta * (1 + 1e-12)
        assert isinstance(plan.certificate, MaskCertificate)
        assert plan.certificate.rise == pytest.approx(rise, abs=1e-9)


UNDERFLOWS = [  # found by `attack_extremes`: an exhaustive search of vectors that underflowed
    ([0.5, 0.5], [[[1e-200, 1], [1, 1e-200]], [[0.1, 0.9], [1e-300, 1]], [[1e-300, 1], [0, 1]]]),
    ([1 - 1e-150, 1e-150], [[[1 - 1e-150, 1e-150], [1e-150, 1 - 1e-150]]] * 3),
    ([1e-150, 1], [[[0.5, 0.5], [1e-160, 1]], [[0.3, 0.7], [1e-155, 1]], [[0.5, 0.5], [0.5, 0.5]]]),
]


@pytest.mark.parametrize(("initial", "transition"), UNDERFLOWS)
@pytest.mark.parametrize("delta", [1e-6, 0.1])
def test_probabilities_that_underflow_when_multiplied(
    initial: Any, transition: Any, delta: float
) -> None:
    day = DayChain.of(transition, initial=initial)
    for sensitive in ([0], [1]):
        plan = shoal.mask(day, SensitiveContexts.of([str(sensitive[0])]), delta=delta)
        assert float(true_rise(plan, sensitive)) <= delta * (1 + 1e-12)


def test_extreme_probabilities_are_neither_lost_nor_a_crash() -> None:
    rng = np.random.default_rng(17)
    for _ in range(5):
        attack_extremes(rng)


@pytest.mark.slow
def test_extreme_probabilities_are_neither_lost_nor_a_crash_for_long() -> None:
    rng = np.random.default_rng(18)
    ends = time.process_time() + float(os.environ.get("SHOAL_ATTACK_SECONDS", "600"))
    while time.process_time() < ends:
        attack_extremes(rng)


@pytest.mark.slow
def test_a_thousand_random_days_are_within_a_millionth_of_the_optimum(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng(2)
    short = [shortfall(*random_day(rng)) for _ in range(1000)]
    with capsys.disabled():
        print(f"\n1000 random days: {max(short):.3g} releases short of the optimum at worst")
    assert max(short) <= NEAR
