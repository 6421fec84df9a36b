"""Quilt kernels against enumeration of the whole joint law of small chains."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shoal.chains.quilt.influence_matrix import influence_matrix_loss, influence_matrix_scale
from shoal.chains.quilt.nodes import ChainNodes, NodeInfluence, max_influence
from shoal.chains.quilt.scale import (
    MixingInfluence,
    QuiltResult,
    any_initial_loss,
    any_initial_scale,
    chain_constants,
    quilt_loss,
    quilt_scale,
)
from shoal.core.codec import Floats
from tests.quilt_enumeration import influence, joint_law, loss, node_scores, random_rows


def random_chain(seed: int) -> tuple[Floats, Floats, int, int | None, float]:
    """(transition, initial, length, reach, epsilon): zeros, odd starts, one matrix per step."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 5))
    length = int(rng.integers(1, 7 if size < 4 else 5))
    zeros = float(rng.choice([0.0, 0.4]))
    stepwise = length > 1 and rng.random() < 0.3
    shape = (length - 1, size, size) if stepwise else (size, size)
    initial = random_rows(rng, (1, size), float(rng.choice([0.0, 0.5])))[0]
    reach = None if rng.random() < 0.6 else int(rng.integers(1, 4))
    return (
        random_rows(rng, shape, zeros),
        initial,
        length,
        reach,
        float(rng.choice([0.2, 1.0, 5.0])),
    )


@pytest.mark.parametrize("seed", range(60))
def test_every_node_of_a_random_chain(seed: int) -> None:
    transition, initial, length, reach, epsilon = random_chain(seed)
    expected = node_scores(transition, initial, length, epsilon, reach)
    found = quilt_scale(transition, initial, length, epsilon, reach)
    assert found.scores == pytest.approx(expected, rel=1e-9)
    assert found.sigma >= max(expected) * (1 - 1e-15)
    assert quilt_loss(transition, initial, length, 1 / found.sigma, reach) <= epsilon
    for eta in (0.1, 1.0):
        evaluated = quilt_loss(transition, initial, length, eta, reach)
        assert evaluated == pytest.approx(loss(transition, initial, length, eta, reach), rel=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_long_chain_methods_on_short_chains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same chains through the code that long ones take: settled nodes, skipped nodes."""
    monkeypatch.setattr("shoal.chains.quilt.scale.SHORT_CHAIN", 0)
    transition, initial, length, reach, epsilon = random_chain(seed)
    expected = max(node_scores(transition, initial, length, epsilon, reach))
    found = quilt_scale(transition, initial, length, epsilon, reach)
    assert found.sigma == pytest.approx(expected, rel=1e-9)
    assert found.sigma >= expected * (1 - 1e-15)
    assert quilt_loss(transition, initial, length, 1 / found.sigma, reach) <= epsilon
    assert_runs_protect(transition, initial, length, epsilon, found)


def assert_runs_protect(
    transition: Floats, initial: Floats, length: int, epsilon: float, found: QuiltResult
) -> None:
    """Every node is in exactly one run, whose quilt is enough for it."""
    chain, seen = ChainNodes(transition, initial), []
    for run in found.runs:
        assert run.last is not None
        for node in range(run.first, run.last + 1, run.step):
            seen.append(node)
            assert node - (run.left or 0) >= 0
            assert node + (run.right or 0) < length
            nearby = (run.left or node + 1) + (run.right or length - node) - 1
            moved = NodeInfluence(chain, node)(run.left, run.right)
            assert nearby / found.sigma + moved <= epsilon * (1 + 1e-12)
    assert sorted(seen) == list(range(length))


@pytest.mark.parametrize("seed", range(40))
def test_influence_on_sets_of_nodes(seed: int) -> None:
    """Any set, one-sided or not, more than one node a side: only the nearest ones matter."""
    transition, initial, length, _, _ = random_chain(seed)
    joint = joint_law(transition, initial, length)
    for node in range(length):
        others = [other for other in range(length) if other != node]
        for count in range(min(4, length)):
            for quilt in itertools.combinations(others, count):
                expected = influence(joint, node, quilt, len(initial))
                found = max_influence(transition, initial, node, quilt)
                assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
                assert found >= expected * (1 - 1e-14)


def test_an_entry_is_not_in_its_own_quilt() -> None:
    with pytest.raises(ValueError, match="nodes count from 0 and exclude it"):
        max_influence(np.eye(2), np.array([0.5, 0.5]), 1, [0, 1])


def test_what_is_impossible_for_one_value_only_is_infinite() -> None:
    transition = np.array([[0.5, 0.5], [0.0, 1.0]])
    assert max_influence(transition, np.array([0.5, 0.5]), 0, [1]) == math.inf
    assert max_influence(transition, np.array([0.0, 1.0]), 0, [1]) < 1e-12


def test_underflow_is_not_impossibility() -> None:
    """0 → 1 has mass 1e-300 a step: five steps underflow, yet the value stays possible."""
    transition = np.array([[1.0 - 1e-300, 1e-300, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])
    initial = np.array([0.5, 0.0, 0.5])
    assert max_influence(transition, initial, 3, [4]) == math.inf
    assert quilt_scale(transition, initial, 6, 1.0).sigma == pytest.approx(6.0, rel=1e-9)


def test_lost_digits_count_as_impossible() -> None:
    """P²(0, 2) is about 3e-322, of which a double keeps two digits: too few to divide by."""
    transition = np.array(
        [[1.0 - 1e-160, 1e-160, 0.0], [1.0 - 3e-162, 0.0, 3e-162], [0.5, 0.25, 0.25]]
    )
    assert max_influence(transition, np.full(3, 1 / 3), 0, [2]) == math.inf


@pytest.mark.parametrize("seed", range(12))
def test_every_initial_law_is_a_supremum(seed: int) -> None:
    """No initial law exceeds the formula, and laws close to a single state approach it."""
    rng = np.random.default_rng(seed)
    size, length = int(rng.integers(2, 4)), int(rng.integers(2, 6))
    transition = random_rows(rng, (size, size), 0.0 if seed % 2 else 0.3)
    family = any_initial_influences(transition, length)
    approached = dict.fromkeys(family, 0.0)
    starts = [random_rows(rng, (1, size), 0.3)[0] for _ in range(6)]
    starts += [np.where(np.arange(size) == y, 1.0 - 1e-7, 1e-7 / (size - 1)) for y in range(size)]
    for initial in starts:
        joint = joint_law(transition, initial / initial.sum(), length)
        for (node, left, right), bound in family.items():
            ends = [node - left] if left else []
            ends += [node + right] if right else []
            found = influence(joint, node, ends, size)
            assert found <= bound + 1e-9
            approached[node, left, right] = max(approached[node, left, right], found)
    for quilt, bound in family.items():
        assert approached[quilt] == pytest.approx(bound, abs=1e-4) or approached[quilt] > 10.0


def any_initial_influences(
    transition: Floats, length: int
) -> dict[tuple[int, int | None, int | None], float]:
    """Appendix C.4 in plain NumPy, for every node and quilt."""
    powers = [np.linalg.matrix_power(transition, n) for n in range(length)]
    table: dict[tuple[int, int | None, int | None], float] = {}
    for node in range(length):
        secrets = np.flatnonzero(powers[node].any(axis=0))
        for left, right in itertools.product(
            [None, *range(1, node + 1)], [None, *range(1, length - node)]
        ):
            moved = np.zeros((len(secrets), len(secrets)))
            if left is not None:
                reached = powers[node - left].any(axis=0)
                moved = moved + gap(powers[left][reached][:, secrets].T)
                moved = moved + gap(powers[node][:, secrets].T).T
            if right is not None:
                moved = moved + gap(powers[right][secrets])
            table[node, left, right] = max(0.0, float(moved.max()))
    return table


def gap(rows: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rows)
        differences = logs[:, None, :] - logs[None, :, :]
    return np.asarray(np.fmax.reduce(differences, axis=-1, initial=-np.inf))


@pytest.mark.parametrize("seed", range(30))
def test_scale_and_loss_for_every_initial_law(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    size, length = int(rng.integers(2, 4)), int(rng.integers(1, 16))
    lazy = float(rng.choice([0.0, 0.5, 0.9]))
    transition = lazy * np.eye(size)
    transition += (1 - lazy) * random_rows(rng, (size, size), float(rng.choice([0.0, 0.35])))
    epsilon, eta = float(rng.choice([0.3, 1.0, 5.0])), 0.2
    scores, losses = [], []
    table = any_initial_influences(transition, length)
    for node in range(length):
        mine = [
            ((left or node + 1) + (right or length - node) - 1, moved)
            for (owner, left, right), moved in table.items()
            if owner == node
        ]
        scores.append(min(n / (epsilon - e) if e < epsilon else math.inf for n, e in mine))
        losses.append(min(n * eta + e for n, e in mine))
    found = any_initial_scale(transition, length, epsilon)
    assert found.sigma == pytest.approx(max(scores), rel=1e-9)
    assert any_initial_loss(transition, length, eta) == pytest.approx(max(losses), rel=1e-9)
    assert any_initial_loss(transition, length, 1 / found.sigma) <= epsilon


@pytest.mark.parametrize("seed", range(20))
def test_mixing_bounds_every_influence(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    size = int(rng.integers(2, 5))
    transition = random_rows(rng, (size, size), float(rng.choice([0.0, 0.3])))
    known = chain_constants(transition)
    if known.refusal is not None:
        return
    bound = MixingInfluence(known.pi_min, known.gap)
    for initial in (known.law, random_rows(rng, (1, size), 0.5)[0]):
        for left, right in itertools.product([None, 2, 5, 9, 20], repeat=2):
            node = left or 0
            ends = [0] if left else []
            ends += [node + right] if right else []
            assert max_influence(transition, initial, node, ends) <= bound(left, right) + 1e-12


@pytest.mark.parametrize("seed", range(40))
def test_influence_matrix_bounds_entry_level_mechanisms(seed: int) -> None:
    """E[f | X_i = x] / E[f | X_i = x'] for f that changes by e^eta an entry: at most half of it."""
    rng = np.random.default_rng(300 + seed)
    size, length = int(rng.integers(2, 4)), int(rng.integers(1, 6))
    transition = 0.6 / size + 0.4 * random_rows(rng, (size, size), 0.0)
    initial = random_rows(rng, (1, size), 0.3)[0]
    eta = float(rng.choice([0.1, 1.0]))
    bound = influence_matrix_loss(transition, initial, length, eta)
    joint = joint_law(transition, initial, length)
    for _ in range(10):
        weights = rng.random((length, size)).round()
        density = {
            path: math.exp(eta * sum(weights[t, x] for t, x in enumerate(path))) for path in joint
        }
        for node in range(length):
            values = np.zeros((2, size))
            for path, mass in joint.items():
                values[:, path[node]] += mass, mass * density[path]
            means = np.log(values[1, values[0] > 0] / values[0, values[0] > 0])
            assert float(np.ptp(means)) <= bound / 2 * (1 + 1e-9)


def test_influence_matrix_refuses_zeros() -> None:
    """P = I: each entry is fixed by its neighbours, so Γ = 0, yet one entry reveals them all."""
    found = influence_matrix_scale(np.eye(2), np.array([0.5, 0.5]), 10, 1.0)
    assert found.refusal == "some transition between possible values has probability 0"
    assert found.scale == math.inf
