"""Song, Wang & Chaudhuri 2017: two statements that are unsound as printed, found out.

ERRATA 001: the gap without multiplicity (Lemma C.2, Algorithm 4), and vertex cuts as quilts.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.audit.case import product_peak
from shoal.chains.model import MarkovChain, spectral_gap, stationary_law
from shoal.chains.quilt.scale import bound_scale
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from tests.errata.printed import breach_law, printed_gap, vertex_cut_scale


def cycle(size: int) -> Floats:
    """A cycle whose last state stays with probability 1/2."""
    matrix = np.roll(np.eye(size), 1, axis=1)
    matrix[-1] = 0
    matrix[-1, 0] = matrix[-1, -1] = 0.5
    return matrix


def test_the_mixing_lemma_fails_where_an_eigenvalue_is_repeated() -> None:
    """3-cycle: the deviation after 4 steps is 1, the printed bound says 0.8925."""
    matrix = np.array([[0, 1, 0], [0, 0, 1], [0.5, 0, 0.5]])
    law = stationary_law(matrix)
    gap = printed_gap(matrix, law)
    assert gap == pytest.approx(0.75)
    bound = math.exp(-gap * 4 / 2) / law.min()
    deviation = np.abs(np.linalg.matrix_power(matrix, 4) / law - 1).max()
    assert deviation == pytest.approx(1.0)
    assert bound == pytest.approx(0.8925206405937207)
    assert deviation > bound
    assert spectral_gap(matrix) == 0.0


@pytest.mark.parametrize(
    ("size", "length", "node", "pair", "epsilon", "scale", "loss"),
    [
        (6, 80, 40, (0, 3), 2.0, 14.72236496579576, 2.0803131453600865),
        (12, 200, 100, (0, 6), 1.0, 37.72982266242511, 3.273277572288122),
    ],
)
def test_the_printed_gap_breaks_the_promise(
    size: int,
    length: int,
    node: int,
    pair: tuple[int, int],
    epsilon: float,
    scale: float,
    loss: float,
) -> None:
    """Noise by the printed gap, on a query that tells the two values of one entry apart."""
    matrix = cycle(size)
    law = stationary_law(matrix)
    printed = bound_scale(float(law.min()), printed_gap(matrix, law), length, epsilon).sigma
    assert printed == pytest.approx(scale, rel=1e-6)
    weights = _telling_weights(matrix, law, length, node - 1, pair)
    laws = [breach_law(matrix, law, length, node - 1, weights, value) for value in pair]
    width = max(map(len, laws))
    table = np.array([np.pad(row, (0, width - len(row))) for row in laws])
    with np.errstate(divide="ignore"):
        peak = product_peak(np.arange(width)[:, None], np.log(table), 1 / printed)
    print(f"{size}-cycle: claimed {epsilon}, measured {peak.value:.4f}")
    assert peak.value == pytest.approx(loss, rel=1e-5)
    assert peak.value > epsilon


def test_shoal_refuses_the_cycle() -> None:
    chain = MarkovChain.of(cycle(12), length=200)
    task = Task(query=count(chain.states, "0"), secrets=EachEntry(), family=(chain,))
    with pytest.raises(Refused, match="gap 0"):
        calibrate_and_check(MECHANISMS["markov-quilt-bound"], task, task.query.lattice)


def test_a_vertex_cut_through_a_collider_is_no_quilt() -> None:
    """i -> c_j <- r_j, c_j = i xor r_j flipped with probability 0.2; 4.590 is lost at 4."""
    law = np.full((2,) * 9, 0.5**5)
    for outcome in np.ndindex(*law.shape):
        for j in range(4):
            odd = outcome[0] != outcome[1 + j]
            law[outcome] *= 0.8 if outcome[5 + j] == odd else 0.2
    parents = [[], [], [], [], [], [0, 1], [0, 2], [0, 3], [0, 4]]
    scale, influence = vertex_cut_scale(law, parents, 4.0)
    assert influence == pytest.approx(0.0, abs=1e-12)
    assert scale == pytest.approx(0.3825985547586256)
    answers = np.zeros(law.shape, dtype=np.int64)
    for j in range(4):
        shape = [1] * 9
        shape[1 + j] = 2
        other = [1] * 9
        other[5 + j] = 2
        answers = answers + (np.arange(2).reshape(shape) != np.arange(2).reshape(other))
    laws = np.array(
        [np.bincount(answers[value].ravel(), law[value].ravel(), 5) for value in (0, 1)]
    )
    peak = product_peak(np.arange(5)[:, None], np.log(laws / laws.sum(axis=1)[:, None]), 1 / scale)
    print(f"collider: claimed 4, measured {peak.value:.4f}")
    assert peak.value == pytest.approx(4.589761393513449, rel=1e-9)


def _telling_weights(
    matrix: Floats, law: Floats, length: int, node: int, pair: tuple[int, int]
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """w_t(x) = 1 where P(X_t = x | X_node = a) > P(X_t = x | X_node = b)."""
    reverse = (law[:, None] * matrix).T / law[:, None]
    rows = []
    for place in range(length):
        step = matrix if place >= node else reverse
        power = np.linalg.matrix_power(step, abs(place - node))
        rows.append((power[pair[0]] > power[pair[1]] + 1e-15).astype(np.int64))
    return np.array(rows)
