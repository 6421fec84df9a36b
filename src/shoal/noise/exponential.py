"""Certified bounds on exp(-r) for rational r, as integers."""

from __future__ import annotations

from fractions import Fraction


def exp_bounds(rate: Fraction, precision: int) -> tuple[int, int]:
    """Integers (low, high) with low <= 2^precision exp(-rate) <= high, high - low at most 2.

    With y = rate / 2^m <= 1: the Taylor sum of exp(y) has positive terms, so rounding each term
    down (up, plus a bound on the tail) gives a lower (upper) bound; then 1/exp(y), squared m times.
    Lower bounds are rounded down and upper bounds up at every step. rate must not be negative.
    """
    if rate < 0:
        raise ValueError(f"rate is {rate}; it must be 0 or more (exp(-rate) is a probability)")
    if rate >= precision:
        return 0, 1  # exp(-rate) <= exp(-precision) < 2^-precision
    halvings = (rate.numerator // rate.denominator).bit_length()  # floor(rate) < 2^halvings
    guard = halvings + precision.bit_length() + 8
    working = precision + guard
    low, high = _reciprocal_exp(rate / 2**halvings, working)
    for _ in range(halvings):
        low = low * low >> working
        high = _ceil_shift(high * high, working)
    return low >> guard, _ceil_shift(high, guard)


def _reciprocal_exp(exponent: Fraction, working: int) -> tuple[int, int]:
    """Bounds on 2^working exp(-y), y = exponent in [0, 1]."""
    scaled, divisor = exponent.numerator << working, exponent.denominator
    low_y, high_y = scaled // divisor, -(-scaled // divisor)
    one = 1 << working
    low_term = high_term = low_sum = high_sum = one
    k = 0
    while high_term > 1:
        k += 1
        low_term = (low_term * low_y >> working) // k
        high_term = -(-_ceil_shift(high_term * high_y, working) // k)
        low_sum += low_term
        high_sum += high_term
    # y <= 1, so every later term is at most half the one before it: the tail is below the last.
    high_sum += high_term
    return (one << working) // high_sum, -(-(one << working) // low_sum)


def _ceil_shift(value: int, bits: int) -> int:
    return -(-value >> bits)
