"""The check of a fit: does it notice what it should, and say what to do?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from shoal.chains.fit import fit_chain, fit_order, transition_counts
from shoal.chains.fit_check import FitCheck, OrderComparison, check_fit, compare
from shoal.chains.model import MarkovChain
from shoal.core.codec import Ints, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.records import Sequences, sequences
from shoal.noise.primitives import SeededRng

CHAIN = MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=("a", "b"))


def sampled(chain: MarkovChain, length: int, count: int = 1, seed: int = 0) -> Sequences:
    chains = tuple(
        as_read_only(chain.sample(length, SeededRng(seed + i)), np.int64) for i in range(count)
    )
    return Sequences(chain.states, chains)


def checked(data: Sequences) -> FitCheck:
    return check_fit(data, fit_chain(data))


def test_the_statistic_is_that_of_contingency_tables() -> None:
    rng = np.random.default_rng(1)
    context, group, following = rng.integers(0, 3, (3, 400))
    following = np.where(rng.random(400) < 0.3, group, following)
    test = compare(context, group, following)
    statistic, degrees = 0.0, 0
    for c in range(3):
        table = np.zeros((3, 3))
        np.add.at(table, (group[context == c], following[context == c]), 1)
        part = chi2_contingency(table, correction=False, lambda_="log-likelihood")
        statistic += part.statistic
        degrees += part.dof
    assert test.statistic == pytest.approx(statistic, rel=1e-10)
    assert test.degrees == degrees == 12
    assert test.observations == 400
    gain = max(test.statistic - test.degrees, 0) / (2 * 400 * math.log(2))
    assert test.gain_bits == pytest.approx(gain)
    assert test.gain_bits > 0


def test_a_gain_must_be_significant_and_large_to_be_noticed() -> None:
    def compared(p_value: float, gain_bits: float) -> OrderComparison:
        return OrderComparison(9.0, 4, p_value, gain_bits, 100)

    assert compared(0.001, 0.011).noticeable(1.0)
    assert not compared(0.001, 0.009).noticeable(1.0)
    assert not compared(0.02, 0.5).noticeable(1.0)


def test_degrees_count_only_what_was_seen() -> None:
    # in context 0 group 1 and follower 2 never occur; context 1 has one group: no parameter
    context: Ints = np.array([0, 0, 0, 0, 1, 1])
    group: Ints = np.array([0, 2, 0, 2, 1, 1])
    following: Ints = np.array([0, 0, 1, 1, 0, 2])
    test = compare(context, group, following)
    assert (test.degrees, test.statistic, test.p_value) == (1, 0.0, 1.0)
    nothing = compare(context[:0], group[:0], following[:0])
    assert (nothing.degrees, nothing.p_value, nothing.gain_bits) == (0, 1.0, 0.0)
    assert not nothing.reliable


def test_log_likelihood_and_bits_by_hand() -> None:
    data = sequences(["a", "a", "b", "a"], ("a", "b"))
    found = check_fit(data, CHAIN)
    assert found.transitions == 3
    assert found.log_likelihood == pytest.approx(math.log(0.8 * 0.2 * 0.3))
    assert found.bits_per_step == pytest.approx(2 / 3)  # a -> a or b evenly, b -> a surely
    best = math.log(0.25)
    assert found.excess_bits == pytest.approx((best - math.log(0.048)) / (3 * math.log(2)))
    assert found.smallest_row == ("b", 1)
    assert (found.unseen, found.possible) == (1, 4)


def test_the_likelihood_ratio_is_that_of_the_two_fits() -> None:
    data = sampled(CHAIN, 3000)
    found = checked(data)
    path = data.chains[0]
    two = np.log(fit_order(data, 2).conditional)[path[:-2] * 2 + path[1:-1], path[2:]].sum()
    inner = Sequences(data.states, (path[1:],))
    one = np.log(fit_chain(inner).transition)[path[1:-1], path[2:]].sum()
    assert found.order_two.statistic == pytest.approx(2 * (two - one), rel=1e-9)
    assert found.order_two.degrees == 2


def test_a_chain_of_order_one_passes() -> None:
    found = checked(sampled(CHAIN, 2000, 20))
    words = found.describe()
    assert "order 1 is enough" in words
    assert words.count("are alike") == 2
    assert "noticeably" not in words
    assert found.excess_bits == 0


def test_p_values_are_uniform_under_the_model() -> None:
    values = np.array(
        [
            [test.p_value for test in (found.order_two, found.drift_within, found.drift_across)]
            for found in (checked(sampled(CHAIN, 300, 4, seed=10 * i)) for i in range(120))
        ]
    )
    # 120 uniform draws: the share below 1/2 is within 0.23 of it but for one in a million
    assert np.abs((values < 0.5).mean(axis=0) - 0.5).max() < 0.23
    assert (values < 0.01).mean() < 0.05


def test_memory_of_order_two_is_noticed() -> None:
    # alternates in pairs: the entry before last decides
    base = np.tile([0, 0, 1, 1], 500)
    flips = np.random.default_rng(0).random(2000) < 0.05
    data = Sequences(("a", "b"), (as_read_only(base ^ flips, np.int64),))
    found = checked(data)
    assert found.order_two.p_value < 1e-10
    assert found.order_two.gain_bits > 0.3
    assert "order 2 predicts noticeably better" in found.describe()
    assert "consider fit_order(data, 2)" in found.describe()


def test_a_tiny_deviation_is_significant_but_called_small() -> None:
    # order 2 with a hair's difference: 0.80 or 0.82 after the same last entry
    rng = np.random.default_rng(3)
    path = [0, 0]
    for u in rng.random(200_000):
        stay = 0.80 + 0.02 * (path[-2] == path[-1])
        path.append(path[-1] if u < stay else 1 - path[-1])
    found = checked(Sequences(("a", "b"), (as_read_only(path, np.int64),)))
    assert found.order_two.p_value < 1e-4
    assert "too little to matter" in found.describe()
    assert "tiny deviations show" in found.describe()


def test_drift_inside_chains_and_between_them_are_told_apart() -> None:
    slow, fast = (MarkovChain.of([[1 - p, p], [p, 1 - p]], states=("a", "b")) for p in (0.1, 0.5))
    first, second = sampled(slow, 400, 20), sampled(fast, 400, 20, seed=100)
    between = checked(Sequences(("a", "b"), first.chains + second.chains))
    assert between.drift_across.p_value < 1e-10
    assert between.drift_within.p_value > 1e-3
    assert "half of all data differ noticeably" in between.describe()
    joined = tuple(np.concatenate(pair) for pair in zip(first.chains, second.chains, strict=True))
    within = checked(Sequences(("a", "b"), joined))
    assert within.drift_within.p_value < 1e-10
    assert within.drift_across.p_value > 1e-3
    assert "half of each chain differ noticeably" in within.describe()
    assert "one chain per period" in within.describe()


def test_one_chain_is_compared_once() -> None:
    assert checked(sampled(CHAIN, 500)).describe().count("Drift:") == 1


def test_seen_but_impossible_and_unreachable_are_told() -> None:
    data = sequences([["c", "a", "b", "a", "b", "b", "a", "a"]], ("a", "b", "c"))
    matrix = np.array([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    barred = MarkovChain.of(matrix, states=data.states)
    found = check_fit(data, barred)
    assert found.impossible == (("a", "a"),)
    assert found.log_likelihood == -math.inf
    assert found.excess_bits == math.inf
    assert found.unreachable == ("c",)  # a stationary start never takes it
    words = found.describe()
    assert "such as 'a' to 'a'; fit again, with smoothing above 0" in words
    assert "the chain never takes 'c'" in words
    assert check_fit(data, fit_chain(data, initial="empirical")).unreachable == ()


def test_thin_rows_and_thin_data_are_told() -> None:
    data = sequences([["a", "b", "a", "a", "b", "b", "a"]], ("a", "b"))
    words = checked(data).describe()
    assert "its row is a guess" in words
    assert "Do not lean on this" in words
    alone = checked(sequences([["a", "b"], ["b", "a"]], ("a", "b")))
    assert "too few different steps" in alone.describe()


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(DataError, match="encode the data with the chain's states"):
        check_fit(sequences(["a", "b"], ("b", "a")), CHAIN)
    with pytest.raises(DataError, match="there is nothing to check"):
        check_fit(sequences([["a"], ["b"]], ("a", "b")), CHAIN)
    stack = MarkovChain(
        states=CHAIN.states, transition=CHAIN.transition[None], initial=CHAIN.initial, length=2
    )
    with pytest.raises(InputError, match="one matrix per step"):
        check_fit(sequences(["a", "b"], ("a", "b")), stack)


def test_counts_add_up() -> None:
    data = sampled(CHAIN, 100, 3)
    assert checked(data).transitions == transition_counts(data).sum() == 297
