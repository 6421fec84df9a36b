"""Sparse laws ranked pair by pair, against the sort of whole rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.additive import cone
from shoal.additive.cone import leak, prepare
from shoal.core.codec import Bools, Floats


def sparse_law(seed: int, size: int = 70) -> tuple[Floats, Bools]:
    """Few states a row, many equal ratios, an empty row, entries that underflowed."""
    rng = np.random.default_rng(seed)
    law = np.zeros((size, size))
    for x in range(size - 1):
        reached = rng.choice(size, rng.integers(1, 9), replace=False)
        law[x, reached] = rng.choice([1.0, 1.0, 2.0, 3.0, 1e-110, rng.random()], len(reached))
    possible = law > 0
    law /= np.maximum(law.sum(axis=1, keepdims=True), 1e-300)
    law[law < 1e-105] = 0.0
    return law, possible


@pytest.mark.parametrize("rule", ["caps", "largest"])
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 1.0, 30.0]))
@settings(max_examples=12, deadline=None)
def test_sparse_laws_leak_the_same_either_way(rule: cone.Rule, seed: int, scale: float) -> None:
    law, possible = sparse_law(seed)
    gaps = np.random.default_rng(seed).random(law.shape) * scale
    growth = np.maximum(gaps, gaps.T)
    np.fill_diagonal(growth, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        quick = prepare(law, possible=possible)
        found = leak(quick, growth, rule)
        patch.setattr(cone, "MANY_ROWS", 10**9)
        plain = prepare(law, possible=possible)
        expected = leak(plain, growth, rule)
    assert np.array_equal(found, expected)
    assert np.allclose(quick.gained, plain.gained, rtol=1e-13, atol=0)
    assert np.allclose(quick.held, plain.held, rtol=1e-13, atol=0)
    assert np.array_equal(quick.gained > 0, plain.gained > 0)
    counts = quick.ranking[1]
    assert np.array_equal(counts, plain.ranking[1])
    told = np.arange(len(law)) < counts[..., None]
    assert np.array_equal(quick.ranking[0][told], plain.ranking[0][told])


def test_dense_and_small_laws_are_sorted_as_whole_rows() -> None:
    assert cone._sparse(sparse_law(0)[0])
    assert not cone._sparse(sparse_law(0, 40)[0])
    assert not cone._sparse(np.full((70, 70), 1 / 70))
