"""Lengths of time as people write them: "10min", "90s", "1h30min"."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from shoal.core.errors import InputError

MILLISECONDS = {
    "ms": 1,
    "s": 1000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|min|s|h|d|w)")


def parse_duration(text: str, field: str = "gap") -> timedelta:
    """The length of time `text` names: one or more numbers, each with ms, s, min, h, d or w.

    Exact to the microsecond; a finer fraction, 0, and a number without a unit are refused.
    """
    milliseconds, place = Fraction(0), 0
    while part := _PART.match(text, place):
        milliseconds += Fraction(part[1]) * MILLISECONDS[part[2]]
        place = part.end()
    microseconds = milliseconds * 1000
    if text[place:].strip() or not microseconds or microseconds.denominator != 1:
        raise InputError(
            f"{field} is {text!r}; it must be a length of time above 0 such as '90s', '10min', "
            "'1h30min' or '1d' (units: ms, s, min, h, d, w)"
        )
    try:
        return timedelta(microseconds=int(microseconds))
    except OverflowError:
        raise InputError(f"{field} is {text!r}; it must be below a thousand million days") from None
