"""The choice of lattice on worked examples, and every refusal."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest

from shoal.noise.primitives import Lattice, lattice_step, round_up, snap


def test_small_denominators_are_kept() -> None:
    for scale in (Fraction(1, 3), Fraction(10**15), Fraction(7, 2**40), 0.5, 3.0, 1e12):
        assert round_up(scale) == Fraction(scale)


def test_other_scales_grow_a_little() -> None:
    assert round_up(0.1, bits=4) == Fraction(13, 128)  # 12/128 < 0.1 < 13/128
    assert round_up(Fraction(1, 3), bits=2) == Fraction(1, 3)
    assert round_up(Fraction(1, 5), bits=2) == Fraction(1, 4)
    assert round_up(5e-324) >= Fraction(5e-324) > 0


def test_values_on_a_lattice_keep_it() -> None:
    for scale in (Fraction(1, 10**6), Fraction(10**12), Fraction(2**54)):
        lattice = lattice_step(scale, Fraction(1))
        assert lattice == Lattice(step=Fraction(1), added_sensitivity=Fraction(0))
        assert lattice.explain() == "values are multiples of 1 already: nothing is rounded"


@pytest.mark.parametrize("natural", [None, Fraction(1, 2**80)])
def test_other_values_are_rounded_to_a_thousandth_of_the_scale(natural: Fraction | None) -> None:
    lattice = lattice_step(Fraction(3), natural)
    assert lattice.step == Fraction(1, 512)
    assert lattice.added_sensitivity == Fraction(1, 512)
    assert lattice.added_error == Fraction(1, 1024)
    assert lattice.explain() == (
        "values are rounded to multiples of 1/512: each moves by at most 1/1024, "
        "and each coordinate adds 1/512 to the sensitivity"
    )


def test_the_step_of_a_power_of_two_is_exactly_a_1024th() -> None:
    assert lattice_step(Fraction(1024), None).step == 1
    assert lattice_step(Fraction(1023), None).step == Fraction(1, 2)


def test_a_natural_step_just_too_fine_is_given_up() -> None:
    assert lattice_step(Fraction(2**54), Fraction(1)).step == 1
    assert lattice_step(Fraction(2**54 + 1), Fraction(1)).step == 2**44


def test_ties_go_to_even() -> None:
    halves = [Fraction(k, 2) for k in range(-5, 6)]
    assert snap(halves, Fraction(1)) == [-2, -2, -2, -1, 0, 0, 0, 1, 2, 2, 2]
    assert snap(halves, Fraction(1, 2)) == list(range(-5, 6))


def test_integers_of_numpy_do_not_wrap() -> None:
    largest = np.array([2**63 - 1, -(2**63)], dtype=np.int64)
    assert snap(cast(Any, largest), Fraction(1, 2**10)) == [(2**63 - 1) * 1024, -(2**63) * 1024]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: round_up(0.0), "scale is 0; it must be above 0"),
        (lambda: round_up(-1.5), "scale is -3/2; it must be above 0"),
        (lambda: round_up(float("inf")), "scale is inf; it must be finite"),
        (lambda: round_up(float("nan")), "scale is nan; it must be finite"),
        (lambda: round_up(1.0, bits=1), "bits is 1; it must be at least 2"),
        (lambda: lattice_step(Fraction(0), None), "scale is 0; it must be above 0"),
        (lambda: lattice_step(cast(Any, 0.5), None), "scale is 0.5; it must be an exact rational"),
        (lambda: lattice_step(Fraction(1), Fraction(-1)), "natural is -1; it must be above 0"),
        (lambda: snap([1], Fraction(0)), "step is 0; it must be above 0"),
        (lambda: snap([cast(Any, 0.5)], Fraction(1)), "a value to snap is not an exact rational"),
    ],
)
def test_refusals_name_field_value_and_rule(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_refused_value_is_not_shown() -> None:
    with pytest.raises(ValueError, match="exact rational") as refusal:
        snap([cast(Any, 0.123456)], Fraction(1))
    assert "0.123456" not in str(refusal.value)
