"""The lift of a crowd whose probabilities lie far apart: the same each time, and kept by plans."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.core.task import EachEntry, Task
from shoal.mechanisms.cone import round_up_eta
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.contagion import Contagion
from shoal.networks.entry_lift import ContagionLift
from shoal.networks.table import JointTable
from tests.oracle.test_attack_extremes import crowd


@pytest.mark.parametrize("epsilon", ["0.1", "1", "5", "50"])
def test_the_plan_of_any_crowd_keeps_its_promise(epsilon: str) -> None:
    """`calibrated` evaluates the finished plan again, on a lift that was asked other things."""
    for seed in range(40):
        model = crowd(np.random.default_rng(seed))[0]
        query = count(model.states, "ill")
        task = Task(query=query, secrets=EachEntry(), family=(model,))
        plan = calibrate_and_check(MECHANISMS["lift"], task, Fraction(epsilon))
        scale = float(plan.body.noise.scale)  # type: ignore[union-attr]
        assert scale * float(epsilon) <= model.tied * (1 + 1e-6)


def test_the_answer_does_not_depend_on_what_was_asked_before() -> None:
    for seed in range(40):
        model = crowd(np.random.default_rng(seed))[0]
        asked = ContagionLift(model)
        for eta in (4.0, 0.3, 30.0, 1.0, 0.999999999999):
            fresh = ContagionLift(model).loss(eta)
            assert asked.loss(eta).value == fresh.value, (seed, eta)
            assert fresh.value >= 0
        near = asked.loss(math.nextafter(1.0, 0.0)).value
        assert near <= asked.loss(1.0).value, seed


@pytest.mark.parametrize("epsilon", ["1", "5"])
def test_the_plan_of_any_table_keeps_its_promise(epsilon: str) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        law = 10.0 ** -rng.integers(0, 20, 8).astype(float)
        table = JointTable.of((law / law.sum()).reshape(2, 2, 2))
        task = Task(query=count(("0", "1"), "1"), secrets=EachEntry(), family=(table,))
        plan = calibrate_and_check(MECHANISMS["lift"], task, Fraction(epsilon))
        assert float(plan.body.noise.scale) * float(epsilon) <= 3 * (1 + 1e-6)  # type: ignore[union-attr]


def test_an_eta_is_raised_by_less_than_a_billionth() -> None:
    for eta in (0.1, 1.0, 3.3e-9, 7e12, 1 - 2.0**-53):
        assert eta <= round_up_eta(eta) <= eta * (1 + 2e-9)
        assert round_up_eta(round_up_eta(eta)) == round_up_eta(eta)


def test_a_table_of_no_extremes_at_a_large_budget() -> None:
    """Λ at 150 is e^150 against doubles: its search must not end in a broken promise."""
    law = np.array(
        [
            0.050089093096812025,
            0.032333092555741114,
            0.026593036422152855,
            0.5,
            0.15232302427301037,
            0.07825938727701753,
            0.05020456766564264,
            0.11019779870962354,
        ]
    )
    model = Contagion.from_edges(
        "abc", [("a", "b"), ("b", "c")], {}, tables={"a": law.reshape(2, 2, 2)}
    )
    task = Task(query=count(model.states, "ill"), secrets=EachEntry(), family=(model,))
    plan = calibrate_and_check(MECHANISMS["lift"], task, Fraction(50))
    assert float(plan.body.noise.scale) < 3 / 50  # type: ignore[union-attr]
