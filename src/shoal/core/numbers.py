"""Exact numbers: what users type becomes a rational and stays one."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from numbers import Integral, Real
from typing import SupportsIndex

from shoal.core.errors import InputError

Number = int | float | Decimal | Fraction | str
SMALLEST, LARGEST = Fraction(1, 10**300), Fraction(10**300)  # what doubles hold, with room


def exact(value: Number, field: str) -> Fraction:
    """The rational a person means by `value`: 0.1 is 1/10, not its nearest double.

    Floats, NumPy's too, go through their shortest decimal form. Refuses what is not a finite
    number.
    """
    if isinstance(value, bool):
        raise InputError(f"{field} is {value}; it must be a number")
    try:
        if isinstance(value, Integral):
            return Fraction(int(value))  # a NumPy integer inside a Fraction would wrap
        decimal = isinstance(value, Real | Decimal) and not isinstance(value, Fraction)
        written = str(value) if decimal or isinstance(value, str) else None
        if written is None:
            return Fraction(value)
        _check_exponent(written)
        return Fraction(written)
    except (ValueError, TypeError, ZeroDivisionError):
        raise InputError(f"{field} is {value!r}; it must be a finite number") from None


def _check_exponent(written: str) -> None:
    """Refuse "1e999999999" before its digits fill the memory."""
    _, _, exponent = written.lower().partition("e")
    if exponent and abs(int(exponent)) > 1000:
        raise ValueError("exponent out of range")


def positive(value: Number, field: str) -> Fraction:
    """`exact(value)`, refused unless greater than 0 and within the range of floats."""
    number = exact(value, field)
    if number <= 0:
        raise InputError(f"{field} is {value}; it must be greater than 0")
    if not SMALLEST <= number <= LARGEST:
        raise InputError(f"{field} is {value}; it must be between 1e-300 and 1e300")
    return number


def whole(value: SupportsIndex, field: str, *, least: int = 1) -> int:
    """`value` as a Python integer; refused when it is not a whole number of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise InputError(f"{field} is {value!r}; it must be a whole number of at least {least}")
    return number


def common_step(values: Iterable[Fraction]) -> Fraction:
    """The largest g > 0 of which every value is an integer multiple; 1 when all are 0."""

    def gcd(a: Fraction, b: Fraction) -> Fraction:
        denominator = math.lcm(a.denominator, b.denominator)
        numerator = math.gcd(int(a * denominator), int(b * denominator))
        return Fraction(numerator, denominator)

    step = reduce(gcd, values, Fraction(0))
    return abs(step) if step else Fraction(1)


def finite(value: float) -> float | None:
    """A number that JSON has; None stands for infinity and for what is no number."""
    return value if math.isfinite(value) else None


def ratio(value: Fraction) -> str:
    """The rational as "p/q", always with both parts."""
    return f"{value.numerator}/{value.denominator}"


def significant(value: float | Fraction, digits: int = 4) -> str:
    """`value` in words a person reads: four significant digits, no exponent in everyday ranges."""
    number = float(value)
    if number == 0 or not math.isfinite(number):
        return f"{abs(number) if number == 0 else number:g}"  # never -0
    if 1e-4 <= abs(number) < 1e7:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(number))))
        text = f"{number:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{number:.{digits - 1}e}"
