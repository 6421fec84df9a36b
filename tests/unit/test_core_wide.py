"""Numbers with exponents of their own, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.core.walk import LEAST_NORMAL, Wide, is_exact_in_doubles, product

DRAW = np.random.default_rng(3)


def numbers(*shape: int) -> np.ndarray:
    """Doubles of any size, subnormal ones and zeros among them."""
    sizes = 10.0 ** DRAW.uniform(-323, 0, shape)
    return np.where(DRAW.random(shape) < 0.2, 0.0, sizes)


def fraction(value: Wide) -> Fraction:
    return Fraction(float(value.part)) * Fraction(2) ** max(int(value.power), -(2**20))


def log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def test_products_and_sums_keep_their_digits_and_their_support() -> None:
    tables = [numbers(6, 5) for _ in range(40)]
    found = product([Wide.of(table) for table in tables])
    total = found.total(1)
    for row in range(6):
        expected = [
            math.prod((Fraction(float(t[row, c])) for t in tables), start=Fraction(1))
            for c in range(5)
        ]
        for c in range(5):
            one = found.map_layout(lambda table, at=(row, c): table[at])  # type: ignore[misc]
            assert bool(one.possible) == (expected[c] > 0)
            assert abs(fraction(one) - expected[c]) <= Fraction(1, 2**46) * expected[c]
        summed = total.map_layout(lambda table, at=row: table[at])  # type: ignore[misc]
        assert abs(fraction(summed) - sum(expected)) <= Fraction(1, 2**45) * sum(expected)


def test_sums_of_two_and_quotients() -> None:
    one, two, three = (Wide.of(numbers(200)).times(Wide.of(numbers(200))) for _ in range(3))
    added, shares, logs = one.plus(two), one.over(three), one.log_over(three)
    for i in range(200):
        a, b, c = (fraction(w.map_layout(lambda t, at=i: t[at])) for w in (one, two, three))  # type: ignore[misc]
        s = fraction(added.map_layout(lambda t, at=i: t[at]))  # type: ignore[misc]
        assert abs(s - a - b) <= Fraction(1, 2**51) * (a + b)
        if not a or not c:
            assert shares[i] == 0.0
            assert logs[i] == (-math.inf if not a else math.inf)
            continue
        assert logs[i] == pytest.approx(log(a) - log(c), abs=1e-12 * (1 + abs(logs[i])))
        if LEAST_NORMAL <= a / c < Fraction(10) ** 300:
            assert abs(Fraction(float(shares[i])) - a / c) <= Fraction(1, 2**51) * (a / c)


def test_equal_numbers_are_no_distance_apart() -> None:
    one = Wide.of(numbers(50))
    assert set(one.log_over(one).tolist()) <= {0.0, -math.inf}


def test_whole_numbers_of_any_length() -> None:
    several = [0, 1, 3**900, math.factorial(400)]
    found = Wide.whole(several)
    assert found.possible.tolist() == [False, True, True, True]
    for value, logarithm in zip(several[1:], found.log()[1:], strict=True):
        assert logarithm == pytest.approx(math.log(value), rel=1e-14)


def test_doubles_hold_a_law_when_what_is_possible_keeps_its_digits() -> None:
    law = np.array([1.0, LEAST_NORMAL, 0.0])
    assert is_exact_in_doubles(law, np.array([True, True, False]))
    assert not is_exact_in_doubles(law / 2, np.array([True, True, False]))
    assert not is_exact_in_doubles(np.array([math.nan]), np.array([True]))
