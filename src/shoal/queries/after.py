"""Post-processing that is free: functions of a release alone, so no privacy is spent.

Each takes a release and returns one with the name of what was done added to `processed`.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.core.errors import InputError
from shoal.core.numbers import Number, exact, whole
from shoal.core.release import Release


def non_negative(release: Release) -> Release:
    """The release with negative values raised to 0."""
    return release.after("non-negative", tuple(max(v, Fraction(0)) for v in release.answer.exact))


def consistent(release: Release, total: int) -> Release:
    """Whole, non-negative counts that add up to the public `total`, closest to the release.

    The projection onto the simplex of that size, then rounded by largest remainder.
    """
    total = whole(total, "total", least=0)
    projected = project(release.answer.exact, Fraction(total))
    floors = [value.numerator // value.denominator for value in projected]
    left = total - sum(floors)
    by_remainder = sorted(range(len(projected)), key=lambda i: (floors[i] - projected[i], i))
    counts = [floor + (i in by_remainder[:left]) for i, floor in enumerate(floors)]
    return release.after("consistent", tuple(Fraction(count) for count in counts))


def simplex(release: Release, total: Number = 1) -> Release:
    """Non-negative values that add up to `total`, closest to the release in squared distance."""
    return release.after("simplex", project(release.answer.exact, exact(total, "total")))


def project(values: tuple[Fraction, ...], total: Fraction) -> tuple[Fraction, ...]:
    """The point of {v ≥ 0, Σv = total} nearest to `values`, in exact rationals.

    v_i = max(values_i - shift, 0), the shift found by keeping the largest j values for the largest
    j at which all kept ones stay positive.
    """
    if total < 0:
        raise InputError(f"total is {total}; it must not be negative")
    running, shift = Fraction(0), Fraction(0)
    for kept, value in enumerate(sorted(values, reverse=True), start=1):
        running += value
        candidate = (running - total) / kept
        if kept == 1 or value > candidate:
            shift = candidate
    return tuple(max(value - shift, Fraction(0)) for value in values)
