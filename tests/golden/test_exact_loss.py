"""Reference losses and scales of exact counts: MATHS section 2 and enumerated short chains."""

from __future__ import annotations

import json
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shoal.chains.exact.sums import chain_sum
from shoal.chains.exact.windows import least_scale, sum_loss
from shoal.mechanisms.mixture import mixture_loss

COUNTS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "exact_counts.json").read_text()
)["cases"]

FIRST = ([1.0, 0.0], [[0.9, 0.1], [0.4, 0.6]])
SECOND = ([0.9, 0.1], [[0.8, 0.2], [0.3, 0.7]])


@pytest.mark.parametrize("length", [100, 10_000])
@pytest.mark.parametrize(
    ("chain", "epsilon", "scale"),
    [
        (FIRST, 0.2, 15.3903),
        (FIRST, 1.0, 3.33641),
        (FIRST, 5.0, 0.536468),
        (SECOND, 0.2, 15.1122),
        (SECOND, 1.0, 3.02391),
        (SECOND, 5.0, 0.407505),
    ],
)
def test_the_running_example_of_100_entries_and_more(
    chain: tuple[list[float], list[list[float]]], epsilon: float, scale: float, length: int
) -> None:
    found = least_scale(chain_sum(*chain, [0, 1], length), epsilon)
    assert found.scale == pytest.approx(scale, rel=5e-6)
    assert found.loss.value <= epsilon
    assert (found.loss.window is None) == (length == 100)


@pytest.mark.parametrize("case", COUNTS, ids=lambda case: str(case["id"]))
def test_enumerated_counts(case: dict[str, Any]) -> None:
    states = len(case["initial"])
    weights = [int(state == case["state"]) for state in range(states)]
    task = chain_sum(case["initial"], case["transitions"], weights, case["length"])
    loss = sum_loss(task, 1.0).value
    assert loss == pytest.approx(case["loss_at_scale_1"], abs=1e-9)
    assert loss >= case["loss_at_scale_1"] - 1e-13
    found = least_scale(task, case["epsilon"])
    assert found.scale == pytest.approx(case["scale"], rel=1e-8)
    assert found.loss.value <= case["epsilon"]


def test_a_negatively_correlated_chain_needs_far_less_than_the_lift() -> None:
    # MATHS section 3: exact 3.37 against 15.11 for the lift, T = 30
    found = least_scale(chain_sum([0.4, 0.6], [[0.1, 0.9], [0.6, 0.4]], [0, 1], 30), 0.2)
    assert found.scale == pytest.approx(3.37, abs=0.005)


def test_three_bits_of_which_one_is_the_xor_of_the_others() -> None:
    # MATHS section 6: the sum of D1, D2, D1 xor D2 has loss 1.434 at scale 1 and 3.325 at 1/2
    laws = [[0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0]]
    assert mixture_loss(laws, 1.0) == pytest.approx(1.434, abs=5e-4)
    assert mixture_loss(laws, 0.5) == pytest.approx(3.325, abs=5e-4)


def test_a_vertex_cut_through_colliders_really_loses_too_much() -> None:
    # golden 001.graphcut: c_j = i xor r_j flipped with chance .2, F = sum of c_j xor r_j. Given i,
    # each c_j xor r_j is a coin of its own: 1 with chance .8 when i = 1, with .2 when i = 0.
    laws = [[comb(4, c) * p**c * (1 - p) ** (4 - c) for c in range(5)] for p in (0.8, 0.2)]
    assert mixture_loss(laws, 0.3825985547586256) == pytest.approx(4.589761393513449, abs=1e-9)


@pytest.mark.parametrize(
    ("states", "length", "scale", "loss"),
    [
        (6, 80, 14.72236496579576, 2.0803131453600865),
        (12, 200, 37.72982266242511, 3.273277572288122),
    ],
)
def test_the_printed_gap_really_loses_too_much_on_a_slow_cycle(
    states: int, length: int, scale: float, loss: float
) -> None:
    # golden 001.approx.breach: a cycle with one self-loop of 1/2; w_t(x) = 1 where x is likelier
    # at time t under the first secret
    matrix = np.roll(np.eye(states), 1, axis=1)
    matrix[-1] = 0.5 * (np.eye(states)[0] + np.eye(states)[-1])
    start = np.ones(states)
    start[-1] = 2.0
    laws = _worst_weights(matrix, start / start.sum(), length, (0, states // 2))
    assert mixture_loss(laws, scale) == pytest.approx(loss, abs=1e-6)


def _worst_weights(
    matrix: npt.NDArray[np.float64],
    start: npt.NDArray[np.float64],
    length: int,
    pair: tuple[int, int],
) -> npt.NDArray[np.float64]:
    """The laws of the sum given the middle entry, with the worst weights in {0, 1}."""
    middle, states = length // 2 - 1, len(matrix)
    ahead = [np.linalg.matrix_power(matrix, n) for n in range(length)]
    back = matrix.T * start / start[:, None]  # the reversed chain, from its own stationary law
    behind = [np.linalg.matrix_power(back, n) for n in range(length)]
    laws = []
    for secret in pair:
        sides = []
        for step, powers, steps in ((matrix, ahead, length - 1 - middle), (back, behind, middle)):
            table = np.zeros((states, length + 1))
            table[secret, 0] = 1.0
            for n in range(1, steps + 1):
                table = step.T @ table
                likelier = powers[n][pair[0]] > powers[n][pair[1]]
                table[likelier, 1:] = table[likelier, :-1]
                table[likelier, 0] = 0.0
            sides.append(table.sum(axis=0))
        own = int(secret == pair[0])
        laws.append(np.concatenate([np.zeros(own), np.convolve(*sides), np.zeros(1 - own)]))
    return np.array(laws)
