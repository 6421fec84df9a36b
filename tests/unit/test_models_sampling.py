"""Random sequences have the law of their model; each test errs once in a million seeds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.chains.model import MarkovChain
from shoal.core.charge import categorical, uniforms
from shoal.core.errors import InputError
from shoal.networks.table import JointTable
from shoal.noise.primitives import SeededRng
from tests.oracle.enumeration import chain_law, table_law

ERROR_RATE = 1e-6


class FixedRng:
    """Words chosen by the test."""

    secure = False

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


def p_value(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """Chi-square probability of counts at least this far from the law."""
    from scipy.stats import chisquare

    assert set(counts) <= set(law), "an impossible outcome was drawn"
    total = sum(counts.values())
    observed = [counts[outcome] for outcome in law]
    expected = np.array([law[outcome] * total for outcome in law])
    return float(chisquare(observed, expected * (total / expected.sum())).pvalue)


CHAINS = {
    "stationary": MarkovChain.of([[0.9, 0.1], [0.4, 0.6]]),
    "zeros": MarkovChain.of(
        [[0.5, 0.5, 0.0], [0.0, 0.4, 0.6], [0.7, 0.0, 0.3]], initial=[0.2, 0.0, 0.8], length=3
    ),
    "per step": MarkovChain.of(
        [[[0.8, 0.2], [0.3, 0.7]], [[0.5, 0.5], [0.0, 1.0]]], initial=[0.5, 0.5], length=3
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_sampled_sequences_have_the_law_of_the_chain(name: str) -> None:
    chain, rng = CHAINS[name], SeededRng(20)
    counts = Counter(tuple(chain.sample(3, rng).tolist()) for _ in range(6000))
    assert p_value(counts, chain_law(chain, 3)) > ERROR_RATE


def test_another_law_is_told_apart() -> None:
    chain, rng = CHAINS["stationary"], SeededRng(20)
    counts = Counter(tuple(chain.sample(3, rng).tolist()) for _ in range(6000))
    wrong = MarkovChain.of([[0.85, 0.15], [0.4, 0.6]])
    assert p_value(counts, chain_law(wrong, 3)) < ERROR_RATE


def test_sampled_outcomes_have_the_law_of_the_table() -> None:
    table = JointTable.of([[0.1, 0.2, 0.0], [0.3, 0.15, 0.25]])
    rng = SeededRng(3)
    counts = Counter(tuple(int(v) for v in table.sample(rng)) for _ in range(6000))
    assert p_value(counts, table_law(table)) > ERROR_RATE


def test_equal_seeds_give_equal_sequences() -> None:
    chain = CHAINS["stationary"]
    one, two = (chain.sample(50, SeededRng(9)) for _ in range(2))
    assert one.tolist() == two.tolist()
    assert chain.sample(50, SeededRng(10)).tolist() != one.tolist()


def test_a_sample_is_no_longer_than_the_chain() -> None:
    assert len(CHAINS["zeros"].sample(3, SeededRng(1))) == 3
    with pytest.raises(InputError, match="length is 4; this chain covers at most 3 entries"):
        CHAINS["zeros"].sample(4, SeededRng(1))


def test_uniforms_are_in_the_half_open_interval() -> None:
    low, high = uniforms(2, FixedRng(0, 2**64 - 1))
    assert low == 0.0
    assert high == 1.0 - 2.0**-53


def test_states_of_probability_0_are_never_drawn() -> None:
    law = np.array([0.0, 0.3, 0.0, 0.7, 0.0])
    for uniform in (0.0, 0.3, np.nextafter(0.3, 0), np.nextafter(0.3, 1), 1.0 - 2.0**-53):
        assert law[categorical(law, float(uniform))] > 0
    assert categorical(np.array([0.5, 0.5]), 0.5) == 1
    # rounding of the cumulative sum must not let the last slice fall off
    tenths = np.full(10, 0.1)
    assert categorical(np.append(tenths, 0.0), 1.0 - 2.0**-53) == 9
