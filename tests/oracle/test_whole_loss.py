"""The compiled loss of whole chains against laws written out, and against the other evaluation."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.audit.exact import audit_noise
from shoal.chains.audit import sums
from shoal.chains.exact.sums import chain_sum
from shoal.chains.exact.whole import whole_loss
from shoal.chains.exact.windows import sum_loss
from shoal.chains.model import MarkovChain
from shoal.core.task import EachEntry
from shoal.mechanisms.mixture import mixture_loss
from shoal.mechanisms.queries import count


def chain(rng: np.random.Generator, states: int, *, zeros: float) -> tuple[Any, Any]:
    weight = rng.random((states + 1, states)) * (rng.random((states + 1, states)) >= zeros)
    weight[weight.sum(axis=1) == 0, 0] = 1.0
    rows = weight / weight.sum(axis=1, keepdims=True)
    return rows[0], rows[1:]


def written_out(
    initial: Any, matrices: Any, weights: list[int], length: int, scale: float
) -> float:
    """The loss from the law of every path."""
    laws: dict[tuple[int, int], dict[int, float]] = {}
    for path in product(range(len(initial)), repeat=length):
        chance = float(initial[path[0]])
        for t in range(1, length):
            chance *= float(matrices[t - 1 if len(matrices) > 1 else 0][path[t - 1], path[t]])
        if chance > 0:
            total = sum(weights[x] for x in path)
            for entry, value in enumerate(path):
                law = laws.setdefault((entry, value), {})
                law[total] = law.get(total, 0.0) + chance
    worst = 0.0
    values = np.arange(0, max(weights) * length + 1, dtype=np.float64)
    for entry in range(length):
        rows = [law for (i, _), law in sorted(laws.items()) if i == entry]
        table = np.array([[law.get(int(v), 0.0) for v in values] for law in rows])
        worst = max(worst, mixture_loss(table / table.sum(axis=1)[:, None], scale, values=values))
    return worst


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_it_is_the_loss_of_the_laws_written_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    states, length = int(rng.integers(2, 4)), int(rng.integers(1, 6))
    initial, matrix = chain(rng, states, zeros=0.4 * (seed % 2))
    weights = [0, *rng.integers(0, 4, size=states - 1).tolist()]
    scale = float(rng.choice([0.3, 1.0, 7.0]))
    task = chain_sum(initial, matrix, weights, length)
    found = whole_loss(task, scale)
    if found is None:
        return
    truth = written_out(initial, matrix[None], weights, length, scale)
    assert found.value == pytest.approx(truth, abs=1e-10)
    assert found.node + found.after + 1 == length


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), shorter=st.booleans())
def test_both_evaluations_agree_and_neither_is_below_the_truth(seed: int, shorter: bool) -> None:
    rng = np.random.default_rng(seed)
    states, length = int(rng.integers(2, 5)), int(rng.integers(2, 30))
    initial, matrix = chain(rng, states, zeros=0.4 * (seed % 3 == 0))
    matrices = (
        matrix if shorter or seed % 2 else rng.dirichlet(np.ones(states), (length - 1, states))
    )
    weights = rng.integers(0, 3, size=states).tolist()
    task = chain_sum(initial, matrices, weights, length, shorter=shorter)
    for scale in (0.5, 2.0, 20.0):
        found = whole_loss(task, scale)
        if found is not None:
            assert found.value == pytest.approx(sum_loss(task, scale).value, abs=1e-10)
            at = whole_loss(chain_sum(initial, matrices, weights, length, shorter=shorter), scale)
            assert at == found


def test_it_says_where_its_tables_end() -> None:
    """Tails below exp(-300) need logarithms; a secret of probability 1e-250 too."""
    initial, matrix = np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.4, 0.6]])
    assert whole_loss(chain_sum(initial, matrix, [0, 1], 100), 0.1) is None
    rare = np.array([1 - 1e-250, 1e-250])
    assert whole_loss(chain_sum(rare, np.eye(2), [0, 1], 3), 1.0) is None
    assert whole_loss(chain_sum(initial, matrix, [1, 1], 10), 1.0) is None
    assert whole_loss(chain_sum(None, matrix, [0, 1], 10), 1.0) is None
    assert whole_loss(chain_sum(initial, matrix, [0, 1], None), 1.0) is None


@pytest.mark.parametrize("scale", [0.5, 3.0, 20.0])
def test_an_audit_is_the_same_with_and_without_it(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upper end by either evaluation, the lower one by a third: all agree."""
    law = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=60)
    query = count(law.states, "1")
    quick = audit_noise(query, EachEntry(), law, scale=scale)
    monkeypatch.setattr(sums, "COMPILED_FROM", math.inf)
    slow = audit_noise(query, EachEntry(), law, scale=scale)
    assert quick.exact
    assert slow.exact
    assert quick.upper == pytest.approx(slow.upper, rel=1e-11)
    assert quick.witness is not None
    assert quick.witness.log_ratio == pytest.approx(quick.upper, rel=1e-9)
