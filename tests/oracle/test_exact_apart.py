"""Past and future apart: never below the loss written out, and equal where the ends decide."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest

from shoal.chains.exact import cover, past_future, windows
from shoal.chains.exact.cover import NodeBlocks, follow
from shoal.chains.exact.extreme_outputs import Ends
from shoal.chains.exact.past_future import PastFutureBound, apart_loss, apart_scale
from shoal.chains.exact.sums import ChainSum, bridges, chain_sum, separable, walked_sum
from shoal.chains.exact.windows import least_scale, sum_loss, window_loss
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.mechanisms.mixture import crossing, step_over
from shoal.mechanisms.queries import count
from tests.oracle.test_exact_loss import chain_truth, random_rows

ROUND = 1e-9


def lazy(rng: np.random.Generator, size: int, stay: tuple[float, float]) -> Floats:
    """A chain that stays where it is with a probability between the two of `stay`."""
    rows = rng.dirichlet(np.ones(size), size=size)
    np.fill_diagonal(rows, 0.0)
    rows /= rows.sum(axis=1, keepdims=True)
    kept = rng.uniform(*stay, size=size)
    return np.asarray(np.diag(kept) + (1 - kept)[:, None] * rows)


def task_of(
    initial: Floats, matrix: Floats, weights: list[int], length: int | None
) -> tuple[ChainSum, PastFutureBound]:
    task = chain_sum(initial, matrix, weights, length, shorter=True)
    assert separable(task)
    return task, PastFutureBound(task, follow(task))


def stationary(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.matrix_power(matrix, 1 << 20)[0])


@pytest.mark.parametrize("seed", range(40))
def test_never_below_the_loss_of_any_length_written_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length = 2 + seed % 2, int(rng.integers(2, 6))
    matrix = random_rows(rng, (1, size, size), ["dense", "zeros", "sharp"][seed % 3])
    initial = random_rows(rng, (size,), ["zeros", "dense"][seed % 2])
    weights = [int(w) for w in rng.integers(0, 4, size=size)]
    if len(set(weights)) == 1:
        weights[0] += 1
    scale = float(rng.choice([0.4, 1.0, 4.0, 20.0]))
    task, apart = task_of(initial, matrix[0], weights, length)
    decay = step_over(task.step, scale)
    losses = [chain_truth(initial, matrix, weights, n, scale) for n in range(1, length + 1)]
    for window in (1, 2, length // 2, length, length + 3):
        bound = apart.loss(max(window, 1), decay).value
        assert max(losses) <= bound + 1e-12
    assert Ends(task).loss(1 / (scale / task.step)) <= max(losses) + ROUND


@pytest.mark.parametrize("seed", range(12))
def test_windows_of_any_length_cover_longer_chains_and_never_grow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = lazy(rng, 2 + seed % 3, (0.3, 0.9))
    initial = stationary(matrix) if seed % 2 else rng.dirichlet(np.ones(len(matrix)))
    weights = list(range(len(matrix)))
    scale = float(rng.choice([2.0, 6.0, 20.0]))
    task, apart = task_of(initial, matrix, weights, None)
    decay = step_over(task.step, scale)
    bounds = [apart.loss(window, decay).value for window in (4, 8, 16, 32, 64)]
    truths = [
        sum_loss(chain_sum(initial, matrix, weights, n), scale).value for n in (1, 2, 5, 20, 40)
    ]
    assert all(later <= earlier + ROUND for earlier, later in pairwise(bounds))
    assert max(truths) <= bounds[-1] + ROUND
    assert apart.ends.loss(decay) <= bounds[-1] + ROUND


class Windows(NodeBlocks):
    """A cover that knows windows with both sides together only."""

    apart = None


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_lazy_chains_need_what_windows_find(seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = lazy(rng, 2 + seed % 3, (0.5, 0.7))
    initial = stationary(matrix) if seed % 2 else rng.dirichlet(np.ones(len(matrix)))
    weights = [[0, 1, 0, 0], [0, 1, 2, 3], [2, 0, 0, 1]][seed % 3][: len(matrix)]
    task, apart = task_of(initial, matrix, weights, None)
    found = apart_scale(apart, epsilon, apart.ends.least_scale(epsilon), 1e-6)
    windows = least_scale(task, epsilon, cover=Windows(task))
    assert found is not None
    assert windows.loss.settled
    assert found.scale * (1 - found.excess) <= windows.scale * (1 + 1e-9)
    assert windows.scale <= found.scale * (1 + 1e-6)
    assert found.excess <= 1e-3
    assert found.bound.value <= epsilon


@pytest.mark.parametrize("length", [None, 60, 400])
def test_a_slow_chain_is_settled_and_no_smaller_scale_keeps_the_promise(length: int | None) -> None:
    rng = np.random.default_rng(3)
    matrix = lazy(rng, 4, (0.97, 0.99))
    task, apart = task_of(stationary(matrix), matrix, [0, 1, 3, 0], length)
    found = least_scale(task, 1.0, cover=NodeBlocks(task, apart))
    assert found.loss.settled
    assert found.loss.value <= 1.0
    assert apart.ends.loss(step_over(task.step, found.scale * (1 - 2e-6))) > 1.0
    again = sum_loss(task, found.scale, enough=1.0, cover=NodeBlocks(task, apart))
    assert again.value <= 1.0
    assert again.settled
    if length == 60:  # short enough for every length to be written out
        whole = [
            sum_loss(chain_sum(task.initial, matrix, [0, 1, 3, 0], n), found.scale).value
            for n in (1, 30, 59, 60)
        ]
        assert max(whole) <= 1.0 + ROUND
        assert max(whole) >= 1.0 - 1e-5


def test_a_slow_chain_takes_windows_apart_by_itself() -> None:
    matrix = lazy(np.random.default_rng(5), 6, (0.98, 0.995))
    task = chain_sum(stationary(matrix), matrix, [1, 0, 0, 0, 0, 0], None, shorter=True)
    cover = NodeBlocks(task)
    assert cover.apart is not None
    found = least_scale(task, 1.0, cover=cover)
    assert found.loss.settled
    assert found.loss.window is not None
    assert found.loss.window > 315  # where windows with both sides together had to stop


def test_chains_that_forget_fast_keep_their_windows() -> None:
    fast = chain_sum([0.5, 0.5], [[0.9, 0.1], [0.4, 0.6]], [0, 1], None, shorter=True)
    assert NodeBlocks(fast).apart is None


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": [[False, True], [False, False]]},
        {"label": [0, 0]},
        {"first_weights": [0, 2]},
        {"shorter": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_has_a_form_of_its_own_is_not_taken_apart(change: dict[str, object]) -> None:
    rows = [[0.999, 0.001], [0.001, 0.999]]
    form = {"shorter": True, **change}
    task = chain_sum([0.5, 0.5], rows, [0, 1], 5000, **form)  # type: ignore[arg-type]
    assert not separable(task)
    assert not separable(chain_sum(None, rows, [0, 1], None))


def test_a_value_that_is_impossible_at_first_stays_a_secret_later() -> None:
    # state 1 cannot be the first one; held states and later nodes must still tell it from 0
    matrix = np.array([[0.95, 0.05], [0.1, 0.9]])
    initial = np.array([1.0, 0.0])
    task, apart = task_of(initial, matrix, [0, 1], 5)
    losses = [chain_truth(initial, matrix[None], [0, 1], n, 1.0) for n in range(1, 6)]
    for window in (1, 2, 5):
        assert max(losses) <= apart.loss(window, step_over(task.step, 1.0)).value + 1e-12


def test_chains_with_a_period_are_infinite_with_a_held_state() -> None:
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    _, apart = task_of(np.array([0.5, 0.5]), swap, [0, 1], None)
    assert apart.loss(8, 1.0).value == math.inf
    assert apart.size_for(1.0, 3.0) is None
    assert apart_loss(apart, 1.0, 0.5, 3.0, 1e-6) is None


def test_values_too_rare_for_doubles_are_left_to_logarithms() -> None:
    matrix = np.array([[0.99, 0.01], [0.02, 0.98]])
    _, apart = task_of(np.array([1.0, 1e-320]), matrix, [0, 1], 50)
    assert apart.loss(50, 0.5).value == math.inf
    _, apart = task_of(np.array([0.5, 0.5]), matrix, [0, 1], None)
    assert apart.loss(64, 8.0).value == math.inf  # 64 entries of 8 scales each: below exp(-300)


def test_crossing_brackets_the_place_it_finds() -> None:
    for level in (1e-3, 0.7, 40.0):
        low, high = crossing(lambda x: 3 / x, level, 1.0, 1e-10)
        assert low < 3 / level <= high <= low * (1 + 1e-10)
        assert 3 / high <= level < 3 / low
    assert crossing(lambda x: 0.0, 1.0, 1.0, 1e-10)[0] == 0.0
    assert crossing(lambda x: 2.0, 1.0, 1.0, 1e-10)[1] == math.inf


def test_a_promise_of_the_whole_chain_is_met_again_where_windows_fall_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix = lazy(np.random.default_rng(8), 3, (0.9, 0.95))
    initial, pairs = np.array([0.7, 0.2, 0.1]), ~np.eye(3, dtype=np.bool_)
    task = chain_sum(initial, matrix, [0, 1, 2], 9, shorter=True, pairs=pairs)
    scale = least_scale(task, 0.5).scale
    monkeypatch.setattr("shoal.chains.exact.cover.WHOLE_WORK", 0)
    assert window_loss(task, scale, 2).value > 0.5
    assert sum_loss(task, scale, enough=0.5).value <= 0.5


@pytest.mark.parametrize("seed", range(12))
def test_pairs_bounded_by_way_of_a_few_states_give_the_loss_of_all_pairs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    size, length = 3 + seed % 3, 4
    kind = ["dense", "zeros"][seed % 2]
    jumps = rng.uniform(0.05, 0.3) if seed % 4 < 2 else 0.0
    matrix = (1 - jumps) * random_rows(rng, (1, size, size), kind) + jumps / size
    initial = random_rows(rng, (size,), "zeros")
    weights = [3, *(int(w) for w in rng.integers(0, 3, size=size - 1))]
    task, every = task_of(initial, matrix[0], weights, length)
    monkeypatch.setattr(past_future, "STATES_ALL_PAIRS", 0)
    monkeypatch.setattr(past_future, "REFERENCES", 1)
    scale = float(rng.choice([0.5, 2.0, 20.0]))
    losses = [chain_truth(initial, matrix, weights, n, scale) for n in range(1, length + 1)]
    for window in (1, 2, length):
        some = PastFutureBound(task, follow(task))
        found = some.loss(window, step_over(task.step, scale))
        full = every.loss(window, step_over(task.step, scale)).value
        assert max(losses) <= found.value + 1e-12
        assert found.value == full or found.value == pytest.approx(full, abs=1e-11)


def test_the_tables_of_a_chain_that_jumps_are_those_of_its_whole_matrix() -> None:
    rng = np.random.default_rng(2)
    near = np.abs(np.subtract.outer(np.arange(30), np.arange(30))) <= 1
    walk = near / near.sum(axis=1, keepdims=True)
    jumping = 0.9 * walk + 0.1 * rng.dirichlet(np.ones(30))
    for matrix, few in ((jumping, True), (walk, True), (lazy(rng, 30, (0.5, 0.9)), False)):
        task, apart = task_of(stationary(matrix), matrix, [1, 0, 2] + [0] * 27, None)
        steps = apart._moves(False)
        assert (steps.cost < 180) is few
        assert apart._dense is not few
        whole = np.outer(steps.moves.left, steps.moves.right)
        for row in range(30):
            part = slice(*steps.moves.first[row : row + 2])
            whole[row, steps.moves.source[part]] += steps.moves.factor[part]
        assert ((whole > 0) == (task.matrices[0] > 0)).all()
        assert np.allclose(whole, task.matrices[0], rtol=2.0**-48, atol=0.0)
        expected = bridges(task, np.zeros(1, np.int64), 7, logs=False)[0]
        assert np.allclose(apart._bridge(7), expected, rtol=1e-13, atol=1e-150)


@pytest.mark.parametrize("stay", [(0.0, 0.2), (0.3, 0.9)], ids=["restless", "lazy"])
def test_windows_that_converged_are_no_wider_than_the_lift(stay: tuple[float, float]) -> None:
    rng = np.random.default_rng(11)
    met = 0
    for _ in range(6):
        matrix = lazy(rng, 5, stay)
        chain = MarkovChain.of(matrix)
        query = count(chain.states, chain.states[0])
        _, apart = task_of(stationary(matrix), matrix, [1, 0, 0, 0, 0], None)
        least = apart.ends.least_scale(1.0)
        found = past_future._widest_scale(apart, 1.0 - 1e-12, least, 1e-6)
        lifted = chain.lift(query)
        assert not isinstance(lifted, str)
        if found is not None and found.converged:
            met += 1
            assert found.scale * float(lifted.largest(1.0).eta) <= 1.0 + 1e-5
    assert met


def order_two(rng: np.random.Generator, jumps: float) -> OrderChain:
    rows = (1 - jumps) * rng.dirichlet(np.ones(2), size=4) + jumps / 2
    return OrderChain(
        states=("a", "b"), order=2, conditional=rows, initial=rng.dirichlet(np.ones(4)), length=5
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_ends_of_a_longer_memory_are_below_the_loss_and_reached_beyond_all_answers(
    seed: int,
) -> None:
    chain = order_two(np.random.default_rng(seed), 0.1)
    task = walked_sum(chain.walk(), np.array([0, 1]))
    scale = [0.7, 3.0, 15.0][seed % 3]
    decay = step_over(task.step, scale)
    written, beyond = tuple_truth(chain, scale)
    ends = Ends(task).loss(decay)
    assert ends <= written + 1e-9
    assert ends == pytest.approx(beyond, abs=1e-9)
    assert sum_loss(task, scale).value == pytest.approx(written, abs=1e-9)


def tuple_truth(chain: OrderChain, scale: float) -> tuple[float, float]:
    """Every path of every length written out: the loss of a count of "b" about the entries from
    the second on, over all outputs and beyond all answers; the first has a law of its own too."""
    worst = ends = 0.0
    for length in range(2, (chain.length or 0) + 1):
        laws: dict[tuple[int, int], Floats] = {}
        for path in product(range(2), repeat=length):
            mass = chain.initial[2 * path[0] + path[1]]
            for place in range(2, length):
                mass *= chain.conditional[2 * path[place - 2] + path[place - 1], path[place]]
            for entry, value in enumerate(path):
                law = laws.setdefault((entry, value), np.zeros(length + 1))
                law[sum(path)] += mass
        outputs = np.arange(length + 1)
        noise = np.exp(-np.abs(np.subtract.outer(outputs, outputs)) / scale)
        for entry in range(length):
            one, two = (noise @ laws[entry, v] / laws[entry, v].sum() for v in range(2))
            told = np.abs(np.log(one / two))
            worst = max(worst, float(told.max()))
            if entry:
                ends = max(ends, float(told[0]), float(told[-1]))
    return worst, ends


def test_windows_ended_by_their_work_say_how_far_they_may_be_above_the_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.15, 0.85]])
    chain = OrderChain(
        states=("a", "b"), order=2, conditional=rows, initial=np.full(4, 0.25), length=3000
    )
    task = walked_sum(chain.walk(), np.array([0, 1]))
    monkeypatch.setattr(cover, "QUICK", 0)
    settled = least_scale(task, 1.0)
    assert settled.loss.settled
    assert settled.above == 0.0
    monkeypatch.setattr(windows, "MOST_WINDOW_WORK", NodeBlocks(task).window_work(41))
    ended = least_scale(task, 1.0)
    assert not ended.loss.settled
    assert ended.near_least
    assert 0 < ended.above <= windows.MODEST
    least = Ends(task).least_scale(1.0)
    assert ended.scale == pytest.approx(least * (1 + ended.above), rel=1e-12)
    assert least <= settled.scale <= ended.scale
    again = sum_loss(task, ended.scale, enough=1.0, first=ended.loss.window)
    assert again.window == ended.loss.window
    assert again.value <= 1.0
