"""What replaced slower code for speed, against definitions that share none of it."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from shoal.chains.exact.sums import chain_sum, reached_in, supports_at
from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.step import image
from shoal.chains.model import communicating_classes
from shoal.core.codec import Floats
from shoal.mechanisms.cone import STATES_BY_CORNERS, leak, prepare
from shoal.mechanisms.queries import LatticeWeights


def program(p: Floats, q: Floats, growth: Floats) -> float:
    """log max p·v with q·v = 1 and v_y ≤ e^G(y,z) v_z, by a linear program."""
    size = len(p)
    rows = [
        np.eye(size)[y] - np.exp(growth[y, z]) * np.eye(size)[z]
        for y in range(size)
        for z in range(size)
        if y != z
    ]
    found = linprog(
        -p,
        A_ub=np.array(rows) if rows else None,
        b_ub=np.zeros(len(rows)) if rows else None,
        A_eq=q[None],
        b_eq=[1.0],
    )
    return float(np.log(-found.fun))


@pytest.mark.parametrize("seed", range(30))
def test_corners_hold_what_the_program_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, STATES_BY_CORNERS + 1))
    law = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0, 5.0])), 3)
    growth = rng.random((size, size)) * 10.0 ** rng.uniform(-2, 0.7)
    if seed % 3 == 0:  # many constraints tight at once
        growth = np.round(growth, 1)
    np.fill_diagonal(growth, 0.0)
    found = leak(prepare(law), growth, "cone")
    for x, other in combinations(range(3), 2):
        wanted = program(law[x], law[other], growth)
        assert found[x, other] == pytest.approx(wanted, rel=1e-6, abs=1e-9)
        assert found[x, other] >= wanted - 1e-9


def test_a_corner_is_never_below_a_function_of_that_growth() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        size = int(rng.integers(2, STATES_BY_CORNERS + 1))
        law = rng.dirichlet(np.full(size, 0.5), 2)
        logs = rng.normal(size=(200, size)) * 10.0 ** rng.uniform(-7, 1)
        growth = (logs[:, :, None] - logs[:, None, :]).max(axis=0)
        ratios = (law[0] @ np.exp(logs.T)) / (law[1] @ np.exp(logs.T))
        assert leak(prepare(law), growth, "cone")[0, 1] >= np.log(ratios.max())


@pytest.mark.parametrize("seed", range(12))
def test_supports_far_away_are_those_of_every_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    edges = rng.random((size, size)) < 0.3
    edges[np.arange(size), rng.permutation(size)] = True  # periods, transient states, classes
    matrix = edges / edges.sum(axis=1, keepdims=True)
    start = np.eye(size)[0]
    task = chain_sum(start, matrix, np.arange(size), 10**8, shorter=True)
    law, rows, power = start > 0, [], np.eye(size)
    for step in range(60):
        rows.append(law)
        assert np.array_equal(reached_in(edges, step), power > 0)
        law, power = np.asarray(edges[law].any(axis=0)), np.minimum(power @ edges, 1.0)
    places = np.array([59, 0, 3, 17, 58])
    assert np.array_equal(supports_at(task, places), np.array(rows)[places])
    cycle = supports_at(task, np.array([10**8, 10**8 + 60 * 59 * 58]))  # a multiple of any period
    assert cycle.any(axis=1).all()


def test_classes_are_those_that_reach_each_other() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 9, 130):
        edges = rng.random((size, size)) < 1.2 / size
        reach = np.eye(size, dtype=bool) | edges
        for middle in range(size):
            reach |= reach[:, [middle]] & reach[[middle]]
        names = sorted(
            {tuple(np.flatnonzero(reach[x] & reach[:, x]).tolist()) for x in range(size)}
        )
        assert list(communicating_classes(edges.astype(float))) == names


def test_weights_in_lattice_steps_are_the_weights() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        size, axes, digits = (int(n) for n in rng.integers(1, (5, 4, 18)))
        top, below = rng.integers(-(10**digits), 10**digits, (size, axes)), rng.integers(1, 999)
        weights = [[Fraction(int(value), int(below)) for value in row] for row in top]
        found = LatticeWeights.of(weights)
        gaps = (
            sum((abs(a - b) for a, b in zip(x, y, strict=True)), Fraction(0))
            for x, y in combinations(weights, 2)
        )
        assert found.lipschitz == max(gaps, default=Fraction(0))
        assert [[n * found.step for n in row] for row in found.multiples] == weights


def test_a_lag_of_its_own_for_each_pair_is_a_bound_too() -> None:
    rng = np.random.default_rng(2)
    size = 17
    chain = 0.6 * np.eye(size) + 0.4 * rng.dirichlet(np.full(size, 0.5), size)
    lift = ChainLift.of(np.full(size, 1 / size), chain, 1 - np.eye(size), None)
    entry, bound = lift.metric.scaled_by(0.3), lift.loss(0.3).future_limit.bound
    lags = (1, 2, 3)
    each = {lag: image(bound, (lag,), lift._ahead, entry, "caps") for lag in lags}
    lag_of = rng.integers(1, 4, (size, size))
    chosen = image(bound, lags, lift._ahead, entry, "caps", lag_of)
    wanted = np.select([lag_of == lag for lag in lags], [each[lag] for lag in lags])
    assert chosen == pytest.approx(wanted, rel=1e-12)
    assert image(bound, lags, lift._ahead, entry, "caps") == pytest.approx(
        np.min(list(each.values()), axis=0), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(6))
def test_caps_that_pass_over_states_that_hardly_differ_hold_the_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = 7
    near = rng.dirichlet(np.ones(size)) * np.exp(10.0 ** -(seed + 1.0) * rng.normal(size=(3, size)))
    law = 0.5 * near / near.sum(axis=1, keepdims=True) + 0.5 * np.eye(3, size)
    growth = 0.2 + 0.1 * rng.random((size, size))  # obeys the triangle inequality
    np.fill_diagonal(growth, 0.0)
    found = leak(prepare(law), growth, "caps")
    for x, other in combinations(range(3), 2):
        assert found[x, other] >= program(law[x], law[other], growth) - 1e-9
        assert found[x, other] <= growth.max()
