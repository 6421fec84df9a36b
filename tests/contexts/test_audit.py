"""Every check of context streams audited: short days by every output, long ones release by release.

Both are held against the mechanism's own evaluation, which shares no code with either.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.audit.exact import audit
from shoal.contexts.audit.witness import suppression_chance
from shoal.contexts.day import DayChain
from shoal.contexts.machine import VectorMask
from shoal.contexts.search import limits
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import Refused
from shoal.core.plan import Machine, Plan
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check, verify_promise

CHECKS = sorted(n for n in MECHANISMS if n.startswith("mask-") and n != "mask-online")
SOUND = [name for name in CHECKS if name != "mask-sensitive"]


def random_task(rng: np.random.Generator, *, long: bool = False) -> Task:
    """A day of 1 to 4 slots on 2 or 3 contexts (12 to 40 on 2 to 5), some moves impossible."""
    size, slots = int(rng.integers(2, 4)), int(rng.integers(1, 5))
    if long:
        size, slots = int(rng.integers(2, 6)), int(rng.integers(12, 41))
    rows = rng.dirichlet(np.ones(size), (slots, size))
    rows = np.where(rng.random(rows.shape) < 0.2, 0.0, rows)
    rows = np.where(rows.sum(axis=-1, keepdims=True) == 0, 1 / size, rows)
    rows /= rows.sum(axis=-1, keepdims=True)
    if long and rng.random() < 0.5:
        rows[1:] = 0.3 * rows[1:] + 0.7 * np.eye(size)
    day = DayChain.of(rows[1:], initial=rows[0, 0], states=[f"c{i}" for i in range(size)])
    return Task(query=CurrentState(day.states), secrets=SensitiveContexts.of(["c0"]), family=(day,))


def plans(row: str, wanted: int, seed: int) -> list[Plan]:
    rng = np.random.default_rng(seed)
    found: list[Plan] = []
    for _ in range(40 * wanted):
        delta = Fraction(int(rng.integers(1, 10)), 20)
        task = random_task(rng)
        try:
            mechanism = MECHANISMS[row]
            sound = row in SOUND
            plan = (
                calibrate_and_check(mechanism, task, delta)
                if sound
                else mechanism.calibrate(task, delta)
            )
        except Refused:
            continue
        found.append(plan)
        if len(found) == wanted:
            return found
    raise AssertionError(f"{row} accepted {len(found)} tasks")


def check(row: str, wanted: int, seed: int) -> None:
    rises = []
    for plan in plans(row, wanted, seed):
        found = audit(plan)
        assert found.exact
        own = max(verify_promise(plan), 0.0)
        # the optimal check evaluates only the secrets that delta could leave breached, and
        # also releases that cannot come up
        same = own == pytest.approx(found.loss, abs=1e-9)
        assert same or (row == "mask-optimal" and own <= found.loss + 1e-6)
        assert found.holds, f"{row} on {plan.task.family} at {plan.guarantee.amount}"
        rises.append(found.loss / float(plan.guarantee.amount))
    print(f"{row:20} {wanted:4} audits, rise / delta: mean {np.mean(rises):.4f}, "
          f"largest {max(rises):.9f}")  # fmt: skip


@pytest.mark.parametrize("row", SOUND)
def test_no_check_lets_a_belief_rise_further(row: str) -> None:
    check(row, 30, seed=30)


@pytest.mark.slow
@pytest.mark.parametrize("row", SOUND)
def test_no_check_lets_a_belief_rise_further_in_many(row: str) -> None:
    check(row, 200, seed=31)


def test_hiding_only_what_is_sensitive_is_found_out() -> None:
    broken = 0
    for plan in plans("mask-sensitive", 30, seed=32):
        found = audit(plan)
        broken += found.violated
        assert found.violated == (verify_promise(plan) > float(plan.guarantee.amount) + 1e-9)
    assert broken > 20


def check_long(row: str, wanted: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval that is a point, the mechanism's own value in it, and the promise above it."""
    monkeypatch.setattr("shoal.contexts.audit.sweep.MAX_DECISIONS_ASKED", 300)
    rng = np.random.default_rng(seed)
    rises = []
    for _ in range(wanted):
        delta = Fraction(int(rng.integers(1, 10)), 20)
        task = random_task(rng, long=True)
        with limits.time_limit(Fraction(1, 50), row, clock=None):
            plan = MECHANISMS[row].calibrate(task, delta)
        found = audit(plan)
        assert found.exact
        assert found.witness is None or len(found.witness.output) >= 12
        assert not any("own evaluation" in note for note in found.not_checked)
        own = max(verify_promise(plan), 0.0)
        same = own == pytest.approx(found.loss, abs=1e-9)
        assert same or (row == "mask-optimal" and own <= found.loss + 1e-6)  # as above
        assert found.holds or row not in SOUND
        assert found.violated == (found.loss > float(delta) * (1 + 1e-9))
        rises.append(found.loss / float(delta))
    print(f"{row:20} {wanted:4} long audits, rise / delta: mean {np.mean(rises):.4f}, "
          f"largest {max(rises):.9f}")  # fmt: skip


@pytest.mark.parametrize("row", CHECKS)
def test_long_days_are_measured_without_the_mechanism(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_long(row, 30, 34, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("row", CHECKS)
def test_many_long_days_are_measured_without_the_mechanism(
    row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_long(row, 200, 35, monkeypatch)


def clinic() -> Task:
    day = DayChain.of(
        [[[0.5, 0.5, 0.0], [0.4, 0.5, 0.1], [0.0, 1.0, 0.0]]] * 2,
        initial=[0.5, 0.5, 0.0],
        states=["home", "street", "clinic"],
        slot_minutes=60,
        start_minute=480,
    )
    return Task(
        query=CurrentState(day.states), secrets=SensitiveContexts.of(["clinic"]), family=(day,)
    )


def test_the_witness_is_a_stream_in_words() -> None:
    plan = MECHANISMS["mask-sensitive"].calibrate(clinic(), Fraction(1, 10))
    found = audit(plan)
    assert found.violated
    text = found.describe()
    assert "promises delta-privacy, delta = 0.1" in text
    assert "–" in text
    assert "raises the belief in 'clinic' at slot" in text
    assert "to 100 %" in text
    assert found.as_json()["worst_case"]["after"] == pytest.approx([1.0, 0.0])
    assert None in found.as_json()["worst_case"]["output"]


def test_a_machine_that_may_remember_more_is_left_to_its_mechanism(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = calibrate_and_check(MECHANISMS["mask-simulatable"], clinic(), Fraction(1, 10))
    whole = audit(plan)
    monkeypatch.setattr("shoal.contexts.audit.rise.MAX_BRANCHES", 1)
    monkeypatch.setattr("shoal.contexts.audit.rise.tables_of", lambda body: None)
    found = audit(plan)
    assert found.loss == pytest.approx(whole.loss, abs=1e-9)
    assert found.witness is None
    assert "own evaluation" in found.not_checked[0]


@pytest.mark.parametrize("code", [0, 1, 12345, 65534, 65535])
def test_a_machine_is_asked_for_its_probabilities(code: int) -> None:
    mask = VectorMask(("a", "b"), np.full((2, 2), code, dtype=np.uint16))
    expected = 1.0 if code == 65535 else code / 65536
    assert suppression_chance(mask, mask.init(), "a") == expected


@pytest.mark.parametrize("code", [0, 5, 70_000, 2**31, 2**32 - 2, 2**32 - 1])
def test_a_machine_with_finer_chances_is_asked_too(code: int) -> None:
    class Fine:
        def init(self) -> int:
            return 0

        def step(self, state: int, observed: Any, rng: Any) -> tuple[int, str | None]:
            low = int(rng.words(1)[0]) & (2**32 - 1)
            return 0, None if low < code or code == 2**32 - 1 else observed

        def describe(self) -> str:
            return "fine"

    machine: Machine = Fine()
    expected = 1.0 if code == 2**32 - 1 else code / 2**32
    assert suppression_chance(machine, 0, "a") == expected
