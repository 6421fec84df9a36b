"""Chains from data: counts, smoothing, groups, order, and the private fit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from shoal.chains.fit import (
    TRANSITION_SENSITIVITY,
    fit_chain,
    fit_groups,
    fit_order,
    fit_private,
    transition_counts,
)
from shoal.core.charge import AsEntryDP
from shoal.core.errors import DataError, InputError
from shoal.core.records import Sequences, sequences
from shoal.noise.primitives import SeededRng

AB = ("a", "b")
DATA = sequences([["a", "a", "b", "a"], ["b"], ["b", "b", "a"]], AB)


def test_transitions_are_counted_inside_chains_only() -> None:
    assert transition_counts(DATA).tolist() == [[1, 1], [2, 1]]
    joined = sequences(["a", "a", "b", "a", "b", "b", "b", "a"], AB)
    assert transition_counts(joined).tolist() == [[1, 2], [2, 2]]


def test_the_fit_is_maximum_likelihood() -> None:
    chain = fit_chain(DATA, length=50)
    np.testing.assert_allclose(chain.transition, [[1 / 2, 1 / 2], [2 / 3, 1 / 3]], rtol=1e-15)
    np.testing.assert_allclose(chain.initial, [4 / 7, 3 / 7], rtol=1e-12)
    assert (chain.states, chain.length, chain.stationary) == (AB, 50, True)


def test_smoothing_is_added_to_every_count() -> None:
    chain = fit_chain(DATA, smoothing="1/2")
    np.testing.assert_allclose(chain.transition, [[0.5, 0.5], [0.625, 0.375]], rtol=1e-15)
    empirical = fit_chain(DATA, smoothing=1, initial="empirical")
    np.testing.assert_allclose(empirical.initial, [2 / 5, 3 / 5], rtol=1e-15)


def test_states_without_a_row_are_refused_by_name() -> None:
    ends = sequences([["a", "a", "b"]], AB)
    with pytest.raises(DataError, match=r"state 'b' occurs only at the end of chains.*smoothing"):
        fit_chain(ends)
    with pytest.raises(DataError, match=r"state 'c' never occurs in the data.*leave it out"):
        fit_chain(sequences([["a", "b", "a"]], ("a", "b", "c")))
    np.testing.assert_allclose(fit_chain(ends, smoothing=1).transition[1], [0.5, 0.5])
    with pytest.raises(DataError, match="no chain holds two entries in a row"):
        fit_chain(sequences([["a"], ["b"]], AB), smoothing=1)


def test_separate_parts_need_an_empirical_start() -> None:
    apart = sequences([["a", "a"], ["b", "b"], ["b", "b"]], AB)
    with pytest.raises(DataError, match=r"parts that never reach each other.*initial='empirical'"):
        fit_chain(apart)
    chain = fit_chain(apart, initial="empirical")
    np.testing.assert_allclose(chain.initial, [1 / 3, 2 / 3])
    assert chain.transition.tolist() == [[1, 0], [0, 1]]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="smoothing is -1; it must be 0 or more"):
        fit_chain(DATA, smoothing=-1)
    with pytest.raises(InputError, match="initial is 'uniform'; it must be 'stationary' or"):
        fit_chain(DATA, initial="uniform")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="order is 0"):
        fit_order(DATA, 0)
    with pytest.raises(InputError, match=r"order 13 on 2 states has 8192 tuples; at most 4096"):
        fit_order(DATA, 13)


def test_groups_share_states_and_are_named_in_refusals() -> None:
    other = sequences([["b", "a", "b"]], AB)
    chains = fit_groups({"old": DATA, "young": other}, smoothing=1, length=9)
    assert list(chains) == ["old", "young"]
    assert chains["old"] == fit_chain(DATA, smoothing=1, length=9)
    assert chains["young"] == fit_chain(other, smoothing=1, length=9)
    with pytest.raises(DataError, match="group 'young': state 'b' occurs only"):
        fit_groups({"old": DATA, "young": sequences([["a", "a", "b"]], AB)})
    with pytest.raises(DataError, match="group 'young' has states"):
        fit_groups({"old": DATA, "young": sequences([["a", "b"]], ("b", "a"))})
    with pytest.raises(InputError, match="groups is empty"):
        fit_groups({})


def test_order_two_counts_pairs() -> None:
    data = sequences([["a", "a", "b", "b", "a", "a", "a", "b", "a", "b"], ["b", "b", "b"]], AB)
    chain = fit_order(data, 2, length=30)
    expected = [[1 / 3, 2 / 3], [1 / 2, 1 / 2], [1 / 2, 1 / 2], [1 / 2, 1 / 2]]
    np.testing.assert_allclose(chain.conditional, expected, rtol=1e-15)
    tuples = chain.on_tuples()
    np.testing.assert_allclose(tuples.initial @ tuples.transition, tuples.initial, atol=1e-12)
    start = fit_order(data, 2, initial="empirical")
    assert start.initial.tolist() == [0.5, 0, 0, 0.5]


@pytest.mark.parametrize("initial", ["stationary", "empirical"])
def test_order_one_is_the_ordinary_fit(initial: str) -> None:
    chain = fit_chain(DATA, smoothing=1, initial=initial)  # type: ignore[arg-type]
    order = fit_order(DATA, 1, smoothing=1, initial=initial)  # type: ignore[arg-type]
    np.testing.assert_array_equal(order.conditional, chain.transition)
    np.testing.assert_allclose(order.initial, chain.initial, rtol=1e-12)


def test_tuples_without_a_row_are_refused() -> None:
    with pytest.raises(DataError, match=r"1 of 4 tuples .*, the first is \(b, b\); use smoothing"):
        fit_order(sequences([["a", "a", "b", "a", "b", "a", "a"]], AB), 2)
    with pytest.raises(DataError, match="no chain is longer than order 4"):
        fit_order(DATA, 4, smoothing=1)


def test_private_counts_carry_exactly_the_noise_of_the_promise() -> None:
    fit = fit_private(DATA, eta="1/2", rng=SeededRng(5), length=70)
    assert fit.scale == TRANSITION_SENSITIVITY / Fraction(1, 2) == 8
    assert fit.composition == AsEntryDP(Fraction(1, 2))
    raised = np.maximum(fit.counts, 1)
    np.testing.assert_allclose(fit.chain.transition, raised / raised.sum(axis=1, keepdims=True))
    assert (fit.chain.states, fit.chain.length) == (AB, 70)
    assert not fit.secure
    assert "The noise was seeded" in fit.describe()
    assert "eta = 0.5" in fit.describe()
    assert "does not by itself hide an entry from somebody who knows how" in fit.describe()


def test_private_noise_has_its_spread_and_no_bias() -> None:
    draws = np.array([fit_private(DATA, eta=2, rng=SeededRng(i)).counts for i in range(1500)])
    noise = (draws - transition_counts(DATA)).ravel()
    # discrete Laplace of scale 2: E|Z| = 1/sinh(1/2) = 1.919, standard deviation 2.80
    assert abs(noise.mean()) < 5 * 2.80 / np.sqrt(len(noise))
    assert np.abs(noise).mean() == pytest.approx(1 / np.sinh(0.5), rel=0.06)


def test_private_fits_approach_the_truth_as_eta_grows() -> None:
    exact = fit_chain(DATA).transition
    fit = fit_private(DATA, eta=1000)
    np.testing.assert_allclose(fit.chain.transition, exact)
    assert fit.secure
    assert "seeded" not in fit.describe()


def test_rows_stay_positive_however_bad_the_noise() -> None:
    for seed in range(20):
        fit = fit_private(DATA, eta="0.01", floor="0.5", rng=SeededRng(seed))
        assert (fit.chain.transition > 0).all()
        assert not fit.counts.flags.writeable


def test_private_settings_are_checked() -> None:
    for eta in (0, -1, float("inf")):
        with pytest.raises(InputError, match="eta is"):
            fit_private(DATA, eta=eta)
    with pytest.raises(InputError, match="floor is 0; it must be greater than 0"):
        fit_private(DATA, eta=1, floor=0)
    with pytest.raises(InputError, match=r"eta is .*nothing is left to fit"):
        fit_private(DATA, eta=Fraction(1, 10**17))


def test_changing_one_entry_moves_the_counts_by_at_most_four() -> None:
    rng = np.random.default_rng(0)
    worst = 0
    for _ in range(300):
        chains = [rng.integers(0, 3, size=n) for n in rng.integers(1, 6, size=3)]
        changed: list[npt.NDArray[np.int64]] = [chain.copy() for chain in chains]
        where = int(rng.integers(3))
        changed[where][int(rng.integers(len(changed[where])))] = rng.integers(3)
        before, after = (
            transition_counts(Sequences(("a", "b", "c"), tuple(data))) for data in (chains, changed)
        )
        worst = max(worst, int(np.abs(before - after).sum()))
    assert worst == TRANSITION_SENSITIVITY
