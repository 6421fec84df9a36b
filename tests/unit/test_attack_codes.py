"""Several released numbers as one code: what it stands for, and how narrow it is."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shoal.attacks.codes import (
    best_split,
    encode_sums,
    likelihood_given_rest,
    likelihoods_of_summands,
    sum_law,
    total_law,
)
from shoal.core.errors import Refused


def test_a_code_stands_for_the_numbers_of_any_data() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        entries, values, count = (int(n) for n in rng.integers(1, 4, 3))
        rows = rng.integers(-3, 4, (entries, values, count)) * int(rng.integers(1, 4))
        extra = rows @ rng.integers(-2, 3, (count, 2))  # two numbers the others determine
        rows = np.concatenate([rows, extra], axis=2)[..., rng.permutation(count + 2)]
        code = encode_sums(rows)
        numbers = code.numbers()
        assert len(code.shape) <= count
        for path in itertools.product(range(values), repeat=entries):
            place = sum(int(code.added[t, x]) for t, x in enumerate(path))
            answer = sum(rows[t, x] for t, x in enumerate(path))
            assert numbers[place].tolist() == answer.tolist(), seed


def test_a_histogram_needs_one_digit_fewer_than_it_has_bars() -> None:
    bars = np.broadcast_to(np.eye(4, dtype=np.int64), (10, 4, 4))
    assert encode_sums(bars).shape == (11, 11, 11)
    both = np.concatenate([bars, bars[..., :1] * 7 + bars[..., 1:2]], axis=2)
    assert encode_sums(both).width == 11**3
    nothing = encode_sums(np.full((3, 2, 2), 5))
    assert nothing.width == 1
    assert nothing.numbers().tolist() == [[15, 15]]


def random_law(rng: np.random.Generator, size: int) -> np.ndarray:
    law = np.where(rng.random(size) < 0.3, 0.0, rng.random(size))
    law[rng.integers(size)] += 0.1
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(law / law.sum()))


def test_sums_of_independent_numbers_match_listing() -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        laws = [random_law(rng, int(n)) for n in rng.integers(1, 6, rng.integers(1, 5))]
        width = sum(len(law) - 1 for law in laws) + 1
        likelihood = np.where(rng.random(width) < 0.2, -math.inf, rng.normal(size=width))
        total = np.zeros(width)
        told = [np.zeros(len(law)) for law in laws]
        best = np.full(width, -math.inf)
        for parts in itertools.product(*(range(len(law)) for law in laws)):
            log = math.fsum(float(law[i]) for law, i in zip(laws, parts, strict=True))
            total[sum(parts)] += math.exp(log)
            best[sum(parts)] = max(best[sum(parts)], log)
            for k, i in enumerate(parts):
                if laws[k][i] > -math.inf:
                    told[k][i] += math.exp(log - laws[k][i] + likelihood[sum(parts)])
        assert np.exp(total_law(laws)) == pytest.approx(total, abs=1e-12)
        assert total_law(laws, best=True) == pytest.approx(best, abs=1e-9)
        for law, found, expected in zip(
            laws, likelihoods_of_summands(laws, likelihood), told, strict=True
        ):
            possible = law > -math.inf
            assert np.exp(found[possible]) == pytest.approx(expected[possible], abs=1e-12)
        place = int(np.argmax(best))
        parts = tuple(best_split(laws, place))
        assert sum(parts) == place
        log = math.fsum(float(law[i]) for law, i in zip(laws, parts, strict=True))
        assert log == pytest.approx(best[place])


def test_nothing_underflows() -> None:
    deep = np.array([0.0, -2000.0])
    assert sum_law(deep, deep).tolist() == pytest.approx([0, -2000 + math.log(2), -4000])
    found = likelihood_given_rest(deep, np.array([-3000.0, -math.inf, 0.0]))
    assert found.tolist() == pytest.approx([-3000, -2000])


def test_codes_that_would_wrap_around_are_refused() -> None:
    with pytest.raises(Refused, match="too large for an attack"):
        encode_sums(np.array([[[0], [2**61]]]))
    wide = np.array([[[0, 0], [1, 2**40]], [[0, 0], [2**40, 1]]])
    with pytest.raises(Refused, match="too many values together"):
        encode_sums(wide)
