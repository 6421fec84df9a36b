"""Numbers: what a person types is the rational they mean."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.core.errors import InputError
from shoal.core.numbers import common_step, exact, positive, significant, whole


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (1, Fraction(1)),
        (0.1, Fraction(1, 10)),
        (1e-7, Fraction(1, 10**7)),
        (Decimal("0.30"), Fraction(3, 10)),
        ("1/3", Fraction(1, 3)),
        ("2.5", Fraction(5, 2)),
        (Fraction(7, 9), Fraction(7, 9)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.float32(0.1), Fraction(1, 10)),
        (np.int64(3), Fraction(3)),
        (10**400, Fraction(10**400)),
        ("1e400", Fraction(10**400)),
        ("-2.5E-3", Fraction(-1, 400)),
    ],
)
def test_what_is_typed_is_what_is_meant(typed: Any, meant: Fraction) -> None:
    assert exact(typed, "epsilon") == meant


def test_numpy_integers_cannot_wrap_inside_a_fraction() -> None:
    typed: Any = np.int64(2**62)
    number = exact(typed, "weight")
    assert type(number.numerator) is int
    assert number * 8 == 2**65


@pytest.mark.parametrize("epsilon", [0, -1, 0.0, "-1/2", Fraction(0)])
def test_amounts_must_be_greater_than_0(epsilon: Any) -> None:
    with pytest.raises(InputError, match=f"epsilon is {epsilon}; it must be greater than 0"):
        positive(epsilon, "epsilon")


@pytest.mark.parametrize(
    "typed",
    [float("nan"), float("inf"), -float("inf"), Decimal("NaN"), Decimal("sNaN"), "one", "1/0", ""],
    ids=str,
)
def test_what_is_no_finite_number_is_refused_by_name(typed: Any) -> None:
    with pytest.raises(InputError, match=r"error is .*; it must be a finite number"):
        exact(typed, "error")


@pytest.mark.parametrize("typed", ["1e999999999", Decimal("1E-999999999"), "1e" + "9" * 5000])
def test_numbers_too_long_to_write_out_are_refused_at_once(typed: Any) -> None:
    with pytest.raises(InputError, match=r"weight is .*; it must be a finite number"):
        exact(typed, "weight")


@pytest.mark.parametrize("typed", [True, False, None, [1], 1j, object()])
def test_what_is_no_number_is_refused(typed: Any) -> None:
    with pytest.raises(InputError, match=r"epsilon is .*; it must be a"):
        exact(typed, "epsilon")


@pytest.mark.parametrize("typed", ["1e400", "1e-400"])
def test_amounts_outside_the_range_of_floats_are_refused(typed: str) -> None:
    with pytest.raises(InputError, match=f"epsilon is {typed}; it must be between 1e-300 and 1e3"):
        positive(typed, "epsilon")


@pytest.mark.parametrize("typed", [0, -3, 2.5, 2.0, "3", None, True, float("nan")])
def test_whole_numbers_are_whole_and_large_enough(typed: Any) -> None:
    with pytest.raises(InputError, match=r"length is .*; it must be a whole number of at least 1"):
        whole(typed, "length")


def test_whole_numbers_become_python_integers() -> None:
    assert whole(np.int32(7), "length") == 7
    assert type(whole(np.int32(7), "length")) is int
    assert whole(0, "total", least=0) == 0


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([Fraction(1, 2), Fraction(1, 3)], Fraction(1, 6)),
        ([Fraction(4), Fraction(6)], Fraction(2)),
        ([Fraction(-3, 4), Fraction(0)], Fraction(3, 4)),
        ([Fraction(0), Fraction(0)], Fraction(1)),
        ([], Fraction(1)),
    ],
)
def test_the_common_step_is_the_largest(values: list[Fraction], step: Fraction) -> None:
    assert common_step(values) == step


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1, "1"),
        (Fraction(1, 3), "0.3333"),
        (1234.5678, "1,235"),
        (0.00012345, "0.0001234"),
        (12345678.0, "1.235e+07"),
        (1e-9, "1.000e-09"),
        (-2.5, "-2.5"),
        (float("inf"), "inf"),
        (999.96, "1,000"),
        (100, "100"),
    ],
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    assert significant(value) == text
