"""Rounding directions and exactness of the noise's arithmetic, on random rationals."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from hypothesis import given, settings, strategies as st

from shoal.noise.laplace import WORD_BITS, LatticeLaplace, make_digit
from shoal.noise.primitives import (
    STEPS_PER_SCALE,
    WIDEST_RATIO,
    SeededRng,
    exp_bounds,
    lattice_step,
    round_up,
    snap,
)

positive = st.fractions(min_value=Fraction(1, 10**18), max_value=10**18)
moderate = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6, max_denominator=10**6)
floats = st.floats(min_value=5e-324, allow_infinity=False)


@given(st.one_of(positive, floats), st.integers(2, 60))
def test_round_up_never_shrinks_and_hardly_grows(scale: Fraction | float, bits: int) -> None:
    exact, rounded = Fraction(scale), round_up(scale, bits)
    assert exact <= rounded
    assert rounded - exact < exact / 2 ** (bits - 1)
    if rounded != exact:
        assert rounded.denominator.bit_count() == 1
        significant = rounded.numerator // (rounded.numerator & -rounded.numerator)
        assert significant <= 2**bits
    assert round_up(rounded, bits) == rounded


@given(positive, st.none() | positive)
def test_the_step_is_natural_or_a_power_of_two(scale: Fraction, natural: Fraction | None) -> None:
    lattice = lattice_step(scale, natural)
    if lattice.added_sensitivity == 0:
        assert natural is not None
        assert lattice.step == natural
        assert scale / natural <= WIDEST_RATIO
    else:
        assert natural is None or scale / natural > WIDEST_RATIO
        assert lattice.added_sensitivity == lattice.step
        assert lattice.step.numerator.bit_count() == lattice.step.denominator.bit_count() == 1
        assert lattice.step <= scale / STEPS_PER_SCALE < 2 * lattice.step


@given(st.fractions(), st.fractions(), positive)
def test_snapping_moves_by_half_a_step_and_a_pair_by_one(
    x: Fraction, y: Fraction, step: Fraction
) -> None:
    near_x, near_y = snap([x, y], step)
    assert abs(near_x * step - x) <= step / 2
    assert abs(near_x - near_y) * step <= abs(x - y) + step
    assert [near_x, near_y] == [round(x / step), round(y / step)]


@given(st.fractions(min_value=0, max_value=2000), st.integers(8, 300))
def test_exp_bounds_enclose_tightly(rate: Fraction, precision: int) -> None:
    low, high = exp_bounds(rate, precision)
    assert 0 <= low <= high <= low + 2
    with localcontext() as context:
        context.prec = 1200
        exponent = Decimal(rate.numerator) / Decimal(rate.denominator)
        exact = (-exponent).exp() * 2**precision
        assert low <= exact <= high


@given(moderate, st.integers(0, 6), st.booleans())
@settings(max_examples=50, deadline=None)
def test_tables_agree_with_bounds_on_single_breaks(rate: Fraction, width: int, last: bool) -> None:
    digit = make_digit(rate, 0, width, last=last)
    for j in range(1, digit.breaks.size):
        low, high = digit.break_bounds(j, WORD_BITS)
        assert low <= digit.breaks[j - 1] <= high
        assert high - low <= 1


@given(moderate, moderate, st.fractions(min_value=0, max_value=Fraction(999_999, 1_000_000)))
@settings(max_examples=50, deadline=None)
def test_quantile_is_minimal(scale: Fraction, step: Fraction, confidence: Fraction) -> None:
    x = LatticeLaplace(scale, step).quantile(confidence)
    m = int(x / step)
    assert m * step == x
    with localcontext() as context:
        context.prec = 60
        r = Decimal((step / scale).numerator) / Decimal((step / scale).denominator)
        tail = 1 - Decimal(confidence.numerator) / Decimal(confidence.denominator)

        def beyond(count: int) -> Decimal:
            return 2 * (-r * (count + 1)).exp() / (1 + (-r).exp())

        margin = 1 + Decimal(10) ** -40
        assert beyond(m) <= tail * margin
        assert m == 0 or beyond(m - 1) * margin > tail


@given(moderate, st.integers(0, 200), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_draws_are_reproducible_integers(scale: Fraction, count: int, seed: int) -> None:
    noise = LatticeLaplace(scale, Fraction(1))
    drawn = noise.draw(count, SeededRng(seed)).tolist()
    assert len(drawn) == count
    assert all(type(z) is int for z in drawn)
    assert drawn == noise.draw(count, SeededRng(seed)).tolist()
