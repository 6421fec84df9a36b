"""What every fit must keep, whatever the data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings, strategies as st

from shoal.chains.fit import fit_chain, fit_order, fit_private, transition_counts
from shoal.chains.fit_check import check_fit
from shoal.core.codec import as_read_only
from shoal.core.records import Sequences
from shoal.noise.primitives import SeededRng

STATES = ("a", "b", "c")
chains = st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=5).filter(
    lambda data: any(len(chain) >= 2 for chain in data)
)


def records(data: list[list[int]]) -> Sequences:
    return Sequences(STATES, tuple(as_read_only(chain, np.int64) for chain in data))


@given(chains)
def test_counts_are_those_of_a_plain_loop(data: list[list[int]]) -> None:
    expected = np.zeros((3, 3), dtype=np.int64)
    for chain in data:
        for before, after in pairwise(chain):
            expected[before, after] += 1
    np.testing.assert_array_equal(transition_counts(records(data)), expected)


@given(chains, st.permutations([0, 1, 2]))
def test_relabelling_relabels_the_fit(data: list[list[int]], order: list[int]) -> None:
    chain = fit_chain(records(data), smoothing=1)
    swapped = fit_chain(records([[order[x] for x in chain] for chain in data]), smoothing=1)
    np.testing.assert_allclose(swapped.transition[np.ix_(order, order)], chain.transition)
    np.testing.assert_allclose(swapped.initial[order], chain.initial, atol=1e-12)


@given(chains, st.integers(1, 3))
def test_order_m_counts_are_those_of_a_plain_loop(data: list[list[int]], order: int) -> None:
    counts = np.ones((3**order, 3))
    for chain in data:
        for start in range(len(chain) - order):
            row = 0
            for x in chain[start : start + order]:
                row = 3 * row + x
            counts[row, chain[start + order]] += 1
    if counts.sum() == 3 ** (order + 1):
        return  # nothing long enough: refused, see the unit tests
    fitted = fit_order(records(data), order, smoothing=1)
    np.testing.assert_allclose(fitted.conditional, counts / counts.sum(axis=1, keepdims=True))


@given(chains, st.integers(0, 10**6))
@settings(max_examples=50)
def test_one_changed_entry_moves_the_private_counts_by_at_most_four(
    data: list[list[int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    changed = [list(chain) for chain in data]
    filled = [i for i, chain in enumerate(changed) if chain]
    where = int(rng.choice(filled))
    changed[where][int(rng.integers(len(changed[where])))] = int(rng.integers(3))
    # equal seeds draw equal noise, so what differs is the counts alone
    before, after = (
        fit_private(records(part), eta=1, rng=SeededRng(seed)).counts for part in (data, changed)
    )
    assert np.abs(before - after).sum() <= 4


@given(chains)
def test_no_chain_predicts_better_than_the_fit(data: list[list[int]]) -> None:
    given_data = records(data)
    smoothed = check_fit(given_data, fit_chain(given_data, smoothing=1))
    assert smoothed.excess_bits >= 0
    assert smoothed.bits_per_step >= 0
    for test in (smoothed.order_two, smoothed.drift_within, smoothed.drift_across):
        assert test.statistic >= 0
        assert 0 <= test.p_value <= 1
    assert smoothed.describe()
