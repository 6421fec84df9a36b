"""Laws every quilt kernel obeys, on random chains."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from shoal.chains.model import stationary_law
from shoal.chains.quilt.influence_matrix import influence_matrix_loss, influence_matrix_scale
from shoal.chains.quilt.nodes import future_log_ratio
from shoal.chains.quilt.scale import (
    any_initial_loss,
    any_initial_scale,
    bound_loss,
    bound_scale,
    chain_constants,
    interval_constants,
    interval_loss,
    interval_scale,
    quilt_loss,
    quilt_scale,
    two_state,
    worst_corners,
)
from shoal.core.codec import Floats
from shoal.core.walk import Kernel, KernelSegments, Powers, kernel_logs
from tests.quilt_enumeration import random_rows

seeds = st.integers(0, 2**32 - 1)
epsilons = st.sampled_from([0.2, 0.5, 1.0, 3.0])
EASY = settings(max_examples=40, deadline=None)


def chain_of(seed: int, zeros: float = 0.3) -> tuple[Floats, Floats]:
    """A chain with 2 to 4 states, some sticky, some with zeros, from an odd initial law."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    lazy = float(rng.choice([0.0, 0.5, 0.9]))
    moves = random_rows(rng, (size, size), float(rng.choice([0.0, zeros])))
    transition = lazy * np.eye(size) + (1 - lazy) * moves
    if rng.random() < 0.3 and (transition > 0).all():
        return transition, stationary_law(transition)
    return transition, random_rows(rng, (1, size), float(rng.choice([0.0, 0.5])))[0]


def plain_scores(transition: Floats, initial: Floats, length: int, epsilon: float) -> list[float]:
    """Algorithm 3 for every node with tables of all lags, no pruning; no zeros allowed."""
    powers = [np.linalg.matrix_power(transition, n) for n in range(length)]
    laws = [initial @ power for power in powers]
    future = [_gap(np.log(power)) for power in powers[1:]]
    scores = []
    for node in range(length):
        sides = [
            [
                *(
                    (a, _gap(np.log((laws[node - a][:, None] * powers[a] / laws[node]).T)))
                    for a in range(1, node + 1)
                ),
                (node + 1, np.zeros_like(transition)),
            ],
            [
                *((b, future[b - 1]) for b in range(1, length - node)),
                (length - node, np.zeros_like(transition)),
            ],
        ]
        best = math.inf
        for (a, before), (b, after) in itertools.product(*sides):
            moved = max(0.0, float((before + after).max()))
            if moved < epsilon:
                best = min(best, (a + b - 1) / (epsilon - moved))
        scores.append(best)
    return scores


def _gap(logs: Floats) -> Floats:
    return np.asarray((logs[:, None, :] - logs[None, :, :]).max(axis=-1))


@EASY
@given(seeds, epsilons, st.sampled_from([1, 5, 40, 300]))
def test_more_epsilon_is_never_more_noise(seed: int, epsilon: float, length: int) -> None:
    chain = *chain_of(seed), length
    less = quilt_scale(*chain, epsilon).sigma
    assert quilt_scale(*chain, 1.1 * epsilon).sigma <= less * (1 + 1e-9)
    assert less <= length / epsilon * (1 + 1e-14)


@EASY
@given(seeds, epsilons, st.sampled_from([3, 40, 2000, None]), st.sampled_from([None, 2, 9]))
def test_the_promise_holds_at_the_scale_found(
    seed: int, epsilon: float, length: int | None, reach: int | None
) -> None:
    transition, initial = chain_of(seed)
    own = quilt_scale(transition, initial, length, epsilon, reach).sigma
    everyone = any_initial_scale(transition, length, epsilon, reach).sigma
    assert everyone >= own * (1 - 1e-9)
    if math.isfinite(own):
        assert quilt_loss(transition, initial, length, 1 / own, reach) <= epsilon
    if math.isfinite(everyone):
        assert any_initial_loss(transition, length, 1 / everyone, reach) <= epsilon


@EASY
@given(seeds, epsilons, st.sampled_from([5, 60]))
def test_names_of_states_do_not_matter(seed: int, epsilon: float, length: int) -> None:
    transition, initial = chain_of(seed)
    order = np.random.default_rng(seed).permutation(len(initial))
    renamed = transition[np.ix_(order, order)], initial[order]
    expected = quilt_scale(transition, initial, length, epsilon).sigma
    assert quilt_scale(*renamed, length, epsilon).sigma == pytest.approx(expected, rel=1e-9)
    expected = any_initial_scale(transition, length, epsilon).sigma
    assert any_initial_scale(renamed[0], length, epsilon).sigma == pytest.approx(expected, rel=1e-9)


@EASY
@given(seeds, epsilons)
def test_longer_chains_never_need_less(seed: int, epsilon: float) -> None:
    transition, initial = chain_of(seed)
    scales = [
        quilt_scale(transition, initial, length, epsilon).sigma
        for length in (1, 2, 7, 33, 120, 5000, None)
    ]
    for shorter, longer in itertools.pairwise(scales):
        assert longer >= shorter * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(seeds, epsilons, st.integers(33, 45))
def test_long_chain_methods_find_the_true_maximum(seed: int, epsilon: float, length: int) -> None:
    transition, initial = chain_of(seed, zeros=0.0)
    initial = 0.9 * initial + 0.1 / len(initial)
    expected = max(plain_scores(transition, initial, length, epsilon))
    found = quilt_scale(transition, initial, length, epsilon).sigma
    assert found == pytest.approx(expected, rel=1e-9)
    assert found >= expected * (1 - 1e-13)


@EASY
@given(seeds, epsilons, st.integers(33, 60))
def test_one_matrix_repeated_is_one_matrix(seed: int, epsilon: float, length: int) -> None:
    transition, initial = chain_of(seed)
    repeated = np.broadcast_to(transition, (length - 1, *transition.shape))
    expected = quilt_scale(transition, initial, length, epsilon).sigma
    assert quilt_scale(repeated, initial, length, epsilon).sigma == pytest.approx(
        expected, rel=1e-9
    )


@EASY
@given(seeds, epsilons, st.sampled_from([10, 300, None]))
def test_the_exact_search_never_loses_to_the_bound(
    seed: int, epsilon: float, length: int | None
) -> None:
    transition, initial = chain_of(seed)
    known = chain_constants(transition)
    assume(known.refusal is None)
    bound = bound_scale(known.pi_min, known.gap, length, epsilon).sigma
    assert quilt_scale(transition, initial, length, epsilon).sigma <= bound * (1 + 1e-9)
    assert any_initial_scale(transition, length, epsilon).sigma <= bound * (1 + 1e-9)
    if math.isfinite(bound):
        assert bound_loss(known.pi_min, known.gap, length, 1 / bound) <= epsilon


@EASY
@given(seeds)
def test_influence_falls_with_the_lag(seed: int) -> None:
    transition, _ = chain_of(seed)
    walk, secrets = Powers(transition), np.arange(len(transition))
    tables = [future_log_ratio(kernel_logs(walk.kernel(0, lag)), secrets) for lag in range(1, 12)]
    for near, far in itertools.pairwise(tables):
        assert (far <= near + 1e-12).all()


@EASY
@given(seeds, st.integers(2, 40))
def test_products_do_not_depend_on_their_order(seed: int, steps: int) -> None:
    transition, _ = chain_of(seed)
    direct = Kernel.of(transition)
    for _ in range(steps - 1):
        direct = direct.then(Kernel.of(transition))
    stack = np.broadcast_to(transition, (steps + 7, *transition.shape))
    for kernel in (Powers(transition).kernel(0, steps), KernelSegments(stack).kernel(5, steps)):
        assert kernel.steps == steps
        assert (kernel.possible == direct.possible).all()
        assert kernel.values == pytest.approx(direct.values, rel=1e-12)


stays = st.floats(0.02, 0.98)


@EASY
@given(stays, stays, stays, stays, epsilons, st.sampled_from([1, 6, 50, None]))
def test_a_rectangle_of_chains_is_worst_at_a_corner(
    a: float, b: float, c: float, d: float, epsilon: float, length: int | None
) -> None:
    low, high = (min(a, b), min(c, d)), (max(a, b), max(c, d))
    worst = interval_scale(low, high, length, epsilon)
    assert worst.corner in worst_corners(low, high)
    bound = bound_scale(*interval_constants(low, high), length, epsilon).sigma
    assert worst.result.sigma <= bound * (1 + 1e-9)
    for s, t in itertools.product((0.0, 0.3, 1.0), repeat=2):
        inside = low[0] + s * (high[0] - low[0]), low[1] + t * (high[1] - low[1])
        member = any_initial_scale(two_state(*inside), length, epsilon).sigma
        assert member <= worst.result.sigma * (1 + 1e-9)
    if math.isfinite(worst.result.sigma):
        assert interval_loss(low, high, length, 1 / worst.result.sigma) <= epsilon


@EASY
@given(stays, stays, st.floats(0.0, 0.3), st.floats(0.0, 0.3), st.integers(1, 30))
def test_two_state_influence_is_monotone_on_each_side_of_independence(
    p0: float, p1: float, up0: float, up1: float, lag: int
) -> None:
    """The lemma behind the corners, pair by pair: it grows where p0 + p1 >= 1, else it falls."""
    more = min(p0 + up0, 1.0), min(p1 + up1, 1.0)
    sums = p0 + p1, sum(more)
    assume(sums[0] >= 1.0 or sums[1] <= 1.0)
    tables = [
        future_log_ratio(kernel_logs(Powers(two_state(*pair)).kernel(0, lag)), np.arange(2))
        for pair in ((p0, p1), more)
    ]
    smaller, larger = tables if sums[0] >= 1.0 else tables[::-1]
    assert (larger >= smaller - 1e-9).all()


def test_bad_rectangles_are_named() -> None:
    with pytest.raises(ValueError, match="stay probabilities need 0 <= low <= high <= 1"):
        worst_corners((0.6, 0.2), (0.5, 0.3))


@EASY
@given(seeds, st.sampled_from([2, 30, 3000, None]))
def test_influence_matrix_scale_and_loss_agree(seed: int, length: int | None) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 4))
    transition = 0.7 / size + 0.3 * random_rows(rng, (size, size), 0.0)
    initial = random_rows(rng, (1, size), 0.3)[0]
    found = influence_matrix_scale(transition, initial, length, 0.7)
    assume(found.refusal is None)
    assert influence_matrix_loss(transition, initial, length, 1 / found.scale) <= 0.7
    endless = influence_matrix_scale(transition, initial, None, 0.7)
    if endless.refusal is None:
        assert endless.scale >= found.scale * (1 - 1e-9)
