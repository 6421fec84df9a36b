"""Pairs of rows compared state by state, against a plain search over all sorted prefixes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.core.codec import Bools, Floats
from shoal.mechanisms import cone
from shoal.mechanisms.cone import leak, prepare


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


def growth_of(seed: int, size: int, scale: float) -> Floats:
    gaps = np.random.default_rng(seed).random((size, size)) * scale
    growth = np.maximum(gaps, gaps.T)
    np.fill_diagonal(growth, 0.0)
    return growth


def by_prefixes(p: Floats, q: Floats, growth: Floats, rule: str) -> float:
    """Λ by the largest entry or by the caps of every prefix, as cone.py states them."""
    met = np.flatnonzero((p > 0) | (q > 0))
    with np.errstate(divide="ignore"):
        ratio = p[met] / q[met]
    order = np.argsort(-ratio, kind="stable")
    met, ratio = met[order], ratio[order]
    p, q, growth = p[met], q[met], growth[np.ix_(met, met)]
    most = 0.0
    for j in range(1, int((p > q).sum()) + 1):
        inside, off = slice(0, j), slice(j, None)
        last = ratio[j - 1]
        if j < len(p) and ratio[j] >= last * (1 - 1e-14):
            continue  # a prefix ends between two levels
        if rule == "largest":
            raised = np.expm1(growth.max())
            up = raised * (p - q)[inside].sum() / (1 + raised * q[inside].sum())
            most = max(most, up)
            continue
        rise = np.expm1(growth[inside, off].max(axis=1, initial=0.0))
        up = ((p - q)[inside] * rise).sum() / (1 + (q[inside] * rise).sum())
        keep = np.exp(-growth[inside, off].max(axis=0, initial=0.0))
        base = q[inside].sum() + (q[off] * keep).sum()
        down = ((q - p)[off] * (1 - keep)).sum() / base if base > 0 else np.inf
        most = max(most, min(up, down, last - 1))
    return float(np.log1p(most))


@pytest.mark.parametrize("rule", ["caps", "largest"])
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.1, 1.0, 30.0]))
@settings(max_examples=6, deadline=None)
def test_sparse_laws_leak_what_their_prefixes_show(
    rule: cone.Rule, seed: int, scale: float
) -> None:
    law, possible = sparse_law(seed)
    growth = growth_of(seed, len(law), scale)
    laws = prepare(law, possible=possible)
    found = leak(laws, growth, rule)
    for x, other in np.random.default_rng(seed).integers(len(law) - 1, size=(300, 2)):
        truth = by_prefixes(laws.upper[x], laws.lower[other], growth, rule) * (x != other)
        assert found[x, other] == pytest.approx(truth, rel=1e-11, abs=1e-12)
        assert found[x, other] >= truth


@pytest.mark.parametrize("rule", ["caps", "largest"])
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.01, 1.0, 30.0]))
@settings(max_examples=6, deadline=None)
def test_dense_laws_leak_what_their_prefixes_show(rule: cone.Rule, seed: int, scale: float) -> None:
    """Rows that agree on most states, so that few of them lead."""
    rng = np.random.default_rng(seed)
    law = np.full((20, 20), 0.02) + np.eye(20) * rng.random(20)
    law[rng.random(law.shape) < 0.1] += rng.random()
    law /= law.sum(axis=1, keepdims=True)
    growth = growth_of(seed, 20, scale)
    found = leak(prepare(law), growth, rule)
    for x, other in np.ndindex(20, 20):
        truth = by_prefixes(law[x], law[other], growth, rule)
        assert found[x, other] == pytest.approx(truth, rel=1e-11, abs=1e-12)
        assert found[x, other] >= truth


def test_sparse_laws_gain_the_same_state_by_state() -> None:
    law, possible = sparse_law(3)
    laws = prepare(law, possible=possible)
    assert len(law) >= cone.MANY_ROWS
    gained, held = cone.two_valued(laws.upper, laws.lower)
    assert np.allclose(laws.gained, gained, rtol=1e-13, atol=0)
    assert np.allclose(laws.held, held, rtol=1e-13, atol=0)
    assert np.array_equal(laws.gained > 0, gained > 0)
