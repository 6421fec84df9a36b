"""Entries bounded in stretches against every mechanism, against the plain recursion of two states
in 50-digit decimals, and against steps one by one; with stretches far wider than any in use."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest

from shoal.chains.lift import side as sides, stretch
from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.side import LiftSide, future_side, past_side
from shoal.chains.lift.solver import FixedPoint
from shoal.chains.lift.step import EntryMetric, behind
from shoal.chains.model import stationary_law
from shoal.core.codec import Floats
from shoal.core.walk import Powers
from tests.oracle.test_lift import chain_law, random_rows, worst_mechanism

WIDE = {"LONGEST": 1.0, "MOVED": 50.0, "WIDER": 1, "BY_GROUP": 0.2, "TRIED_AFTER": 2}


@pytest.fixture(params=["as used", "wide", "tried at once"])
def in_stretches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every chain is followed in stretches, also where steps one by one are cheap."""
    monkeypatch.setattr(sides, "EXPENSIVE_STEPS", 0.0)
    monkeypatch.setattr(sides, "SHORT_CHAINS", 1)
    if request.param != "as used":
        for name, value in WIDE.items():
            monkeypatch.setattr(stretch, name, value)
    if request.param == "tried at once":
        monkeypatch.setattr(stretch, "TRIED_AFTER", 1)
        monkeypatch.setattr(stretch, "ABOVE_LAST", 0.3)
    return str(request.param)


def slow_chain(rng: np.random.Generator, size: int, stay: float) -> Floats:
    rows = rng.dirichlet(np.full(size, 0.5), size=size) + 1e-3
    return np.asarray(stay * np.eye(size) + (1 - stay) * rows / rows.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("in_stretches")
def test_never_below_the_worst_mechanism(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length = (2, 6) if seed % 2 else (3, 4)
    step = random_rows(rng, size, size, zeros=seed % 4 == 0)
    initial = random_rows(rng, 1, size, zeros=seed % 3 == 0)[0]
    eta = float(rng.choice([0.05, 0.3, 1.0]))
    lift = ChainLift.of(initial, step, eta * (1 - np.eye(size)), length)
    worst = worst_mechanism(chain_law(initial, [step] * (length - 1)), eta)
    assert lift.loss(1.0, "cone").value >= worst * (1 - 1e-7)


def two_states(initial: Floats, step: Floats, eta: float, count: int) -> list[list[Decimal]]:
    """D_t(0,1) and D_t(1,0) of the past, with nothing but the definition: exact for two states."""
    with localcontext() as context:
        context.prec = 50
        law = [Decimal(float(p)) for p in initial]
        rows = [[Decimal(float(p)) for p in row] for row in step]
        growth, told = Decimal(eta).exp(), [[Decimal(0), Decimal(0)]]
        for _ in range(count):
            after = [law[0] * rows[0][x] + law[1] * rows[1][x] for x in (0, 1)]
            back = [[law[y] * rows[y][x] / after[x] for y in (0, 1)] for x in (0, 1)]
            up = [growth * one.exp() for one in told[-1]]  # v_0/v_1 and v_1/v_0 at the most
            ends = [(up[0], Decimal(1)), (Decimal(1), up[1])]
            told.append([max(shown(back[x], back[1 - x], end) for end in ends) for x in (0, 1)])
            law = after
        return told


def shown(first: list[Decimal], second: list[Decimal], v: tuple[Decimal, Decimal]) -> Decimal:
    above, below = (p[0] * v[0] + p[1] * v[1] for p in (first, second))
    return (above / below).ln()


def past_of(initial: Floats, step: Floats, eta: float, count: int | None) -> LiftSide:
    entry = EntryMetric.of(eta * (1 - np.eye(len(step))))
    return past_side(behind(initial, Powers.of(step), count), entry, count, "cone")


@pytest.mark.parametrize("seed", range(10))
def test_two_states_in_decimals(seed: int, in_stretches: str) -> None:
    rng = np.random.default_rng(100 + seed)
    step = slow_chain(rng, 2, float(rng.choice([0.5, 0.95, 0.99])))
    start = [1e-9, 1e-3, 0.5][seed % 3]
    initial, eta, count = np.array([start, 1 - start]), [0.001, 0.02, 0.5][seed % 3], 300
    truth = np.array(two_states(initial, step, eta, count), dtype=float)
    for length in (None, count):
        side = past_of(initial, step, eta, length)
        assert side.ends is not None
        bound = np.array([[side.at(t)[0, 1], side.at(t)[1, 0]] for t in range(count + 1)])
        assert (bound >= truth * (1 - 1e-9) - 1e-13).all()
        if in_stretches == "as used" and length is not None:
            assert bound.max() <= truth.max() * 1.1


@pytest.mark.parametrize("kind", ["point", "tilted", "a start that never comes back"])
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_little_above_steps_one_by_one(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(200 + seed)
    step = slow_chain(rng, 5, 0.97)
    if kind == "a start that never comes back":
        step = np.pad(step, ((0, 1), (0, 1)))
        step[5] = [*rng.dirichlet(np.ones(5)), 0.0]
    size = len(step)
    initial = np.eye(size)[size - 1] if kind != "tilted" else np.arange(1.0, 6.0) / 15.0
    for length in (None, 150, 4_000):
        lift = ChainLift.of(initial, step, 1 - np.eye(size), length)
        plain = lift.loss(0.01)
        with monkeypatch.context() as patch:
            patch.setattr(sides, "EXPENSIVE_STEPS", 0.0)
            found = lift.loss(0.01)
        assert found.stretched
        assert not plain.stretched
        assert plain.value * (1 - 1e-6) <= found.value <= plain.value * 1.03


@pytest.mark.parametrize("count", [40, 200, 900])
def test_a_short_future_in_stretches(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    step = slow_chain(np.random.default_rng(7), 5, 0.995)
    lift = ChainLift.of(stationary_law(step), step, 1 - np.eye(5), count + 1)
    entry = EntryMetric.of(0.004 * (1 - np.eye(5)))
    plain = future_side(lift._ahead, entry, count, "cone")
    monkeypatch.setattr(sides, "EXPENSIVE_STEPS", 0.0)
    found = future_side(lift._ahead, entry, count, "cone")
    assert plain.ends is None
    assert found.ends is not None
    for n in range(count + 1):
        assert (found.at(n) >= plain.at(n) * (1 - 1e-6)).all()
        assert (found.at(n) <= plain.at(n) + 0.03 * plain.at(count).max()).all()
    assert found.at(count).max() <= plain.at(count).max() * 1.02


def test_what_lies_beyond_covers_every_later_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound found long before the law has settled holds to the end."""
    monkeypatch.setattr(sides, "EXPENSIVE_STEPS", 0.0)
    step = slow_chain(np.random.default_rng(3), 4, 0.98)
    side = past_of(np.eye(4)[0], step, 0.01, None)
    followed = behind(np.eye(4)[0], Powers.of(step), None)
    assert followed.settled is not None
    assert side.last < followed.settled
    monkeypatch.setattr(sides, "EXPENSIVE_STEPS", np.inf)
    plain = past_of(np.eye(4)[0], step, 0.01, None)
    for t in range(side.last + 1, followed.settled + 50):
        assert (side.at(t) >= plain.at(t) * (1 - 1e-6)).all()


def test_no_bound_from_a_start_whose_law_never_settles() -> None:
    """A chain of period two, and one that may stay where it began, fall back on what they had."""
    swaps = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    entry = EntryMetric.of(0.01 * (1 - np.eye(3)))
    periodic = behind(np.eye(3)[0], Powers.of(swaps), 500)
    unknown = FixedPoint.unknown(3)
    assert stretch.stretched_past(periodic, entry, 500, "cone", unknown) is None
    leaves = np.array([[0.9, 0.1, 0.0], [0.0, 0.5, 0.5], [0.0, 0.4, 0.6]])
    leaving = behind(np.eye(3)[0], Powers.of(leaves), 500)
    assert leaving.arrived is None
    assert stretch.stretched_past(leaving, entry, 500, "cone", unknown) is None
