"""The event lift's program against its own primal, HiGHS and long chains."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shoal
from shoal.chains.events.answers import event_laws, events_lift, pairs_given
from shoal.chains.events.kernels import lower_pairs
from shoal.chains.events.lift import EventLift

Rows = np.ndarray


def random_program(rng: np.random.Generator) -> tuple[Rows, Rows, Rows]:
    """Two laws with zeros and entries over many orders of magnitude, and a matrix of moves."""

    def law(size: int) -> Rows:
        row = rng.dirichlet(np.full(size, rng.choice([0.02, 0.1, 1.0, 10.0])))
        row[rng.random(size) < 0.2] = 0.0
        row[row < 1e-100] = 0.0
        return row / row.sum() if row.sum() > 0 else np.full(size, 1 / size)

    above, below = (int(size) for size in rng.integers(1, 9, 2))
    moves = rng.random((above, below)) * rng.choice([0.1, 1.0, 3.0, 30.0, 100.0])
    return law(above), law(below), moves


def solved(p: Rows, q: Rows, moves: Rows, memory: Rows) -> float:
    best = np.full((1, 1), 500.0)
    lower_pairs(best, 0.0, p[None], q[None], np.exp(moves), memory)
    return float(best[0, 0])


def test_the_certificate_meets_an_admissible_choice() -> None:
    """u and w are admissible, so their ratio is a lower bound; the certificate an upper one."""
    rng = np.random.default_rng(0)
    for _ in range(1500):
        p, q, moves = random_program(rng)
        memory = np.zeros((1, 1, len(q)))
        for _ in range(2):  # from nothing, then from a neighbour's optimum
            found = solved(p, q, moves, memory)
            taken = q > 0
            w = memory[0, 0][taken]
            u = (np.exp(moves[:, taken]) * w).min(axis=1)
            reached = math.log((p * u).sum() / (q[taken] * w).sum())
            assert reached - 1e-12 <= found <= reached + 1e-9
            moves = moves * 1.01


def test_the_program_is_the_one_of_a_public_solver() -> None:
    from scipy.optimize import linprog

    rng = np.random.default_rng(1)
    for _ in range(60):
        above, below = (int(size) for size in rng.integers(1, 6, 2))
        p, q = rng.dirichlet(np.ones(above)), rng.dirichlet(np.ones(below))
        moves = rng.random((above, below))
        rows = []
        for y in range(above):
            for z in range(below):
                row = np.zeros(above + below)
                row[y], row[above + z] = 1.0, -math.exp(moves[y, z])
                rows.append(row)
        done = linprog(
            -np.concatenate([p, np.zeros(below)]),
            A_ub=np.array(rows),
            b_ub=np.zeros(len(rows)),
            A_eq=[np.concatenate([np.zeros(above), q])],
            b_eq=[1.0],
        )
        assert solved(p, q, moves, np.zeros((1, 1, below))) == pytest.approx(
            math.log(-done.fun), abs=1e-6
        )


@pytest.mark.parametrize("seed", range(6))
def test_long_plain_stretches_are_covered_by_the_lift_of_the_chain(seed: int) -> None:
    """Near the step-by-step bound with all its anchors, and never below the loss of a count."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 4))
    transition = 0.6 * np.eye(size) + 0.4 * rng.dirichlet(np.ones(size), size=size)
    initial = rng.dirichlet(np.ones(size)) if seed % 2 else "stationary"
    chain = shoal.MarkovChain.of(transition, initial=initial, length=120)
    secrets = shoal.Events.of(shoal.visit("0", between=(50, 58)))
    lift = events_lift(chain, secrets).lifts[0]
    assert (lift.head, lift.tail) == (37, 70)
    step_by_step = EventLift(*pairs_given(chain, secrets)[0], lift.metric)
    assert (step_by_step.head, step_by_step.tail) == (0, 119)
    query = shoal.count(chain.states, "0")
    for eta in (0.02, 0.2):
        found = lift.loss(eta).value
        assert found <= step_by_step.loss(eta).value * 1.001
        assert found >= event_laws(chain, query, secrets).loss(1 / eta) - 1e-9


def test_more_eta_never_tells_less_and_the_largest_eta_fits() -> None:
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=60)
    lift = events_lift(chain, shoal.Events.of(shoal.at_least("1", 3, between=(20, 40))))
    losses = [lift.loss(eta) for eta in (0.01, 0.02, 0.1, 0.5, 2.0)]
    assert losses == sorted(losses)
    for epsilon in (0.1, 1.0, 5.0):
        eta = lift.largest(epsilon).eta
        assert epsilon * (1 - 1e-4) <= lift.loss(eta) <= epsilon


def test_a_window_too_dear_to_follow_counts_as_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=120)
    secrets = shoal.Events.of(shoal.visit("1", between=(50, 58)))
    tight = events_lift(chain, secrets).loss(0.05)
    monkeypatch.setattr("shoal.chains.events.lift.PATIENCE", 0.0)
    coarse = EventLift(
        *pairs_given(chain, secrets)[0],
        events_lift(chain, secrets).lifts[0].metric,
        events_lift(chain, secrets).lifts[0].plain,
    ).loss(0.05)
    assert coarse.anchors == (None, None)
    assert tight < coarse.value < 120 * 0.05
    assert coarse.value >= (70 - 37 + 1) * 0.05
