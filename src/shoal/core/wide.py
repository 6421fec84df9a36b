"""Non-negative numbers that never underflow: a double each, with an exponent of its own.

What is possible is decided by supports. A product of two hundred numbers of .02 is 0 in a double
and not 0 in the world, so laws that are products of many factors are kept here: a number is 0
exactly when it is impossible, and has a small relative error otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats
from shoal.core.errors import InputError, Refused

Powers = npt.NDArray[np.int64]
LEAST = sys.float_info.min  # the least double with all its digits
NEVER = -(2**60)  # the power of 0: below any other, and two of them can be added
LOST = 1e-290  # smaller entries may have lost digits to underflow, or all of them
FARTHEST = 2100  # halvings after which any double is 0


class TooUnlikely(InputError, Refused):
    """Something possible is too unlikely for a double, and must not become impossible."""


@dataclass(frozen=True, slots=True, eq=False)
class Wide:
    """part · 2^power, entry by entry; part is 0 or in [1/2, 1)."""

    part: Floats
    power: Powers

    @classmethod
    def of(cls, values: npt.ArrayLike, power: npt.ArrayLike = 0) -> Wide:
        """values · 2^power, exactly; values must not be negative."""
        part, shift = np.frexp(np.asarray(values, dtype=np.float64))
        moved = shift.astype(np.int64) + np.asarray(power, np.int64)
        return cls(np.asarray(part), np.asarray(np.where(part > 0, moved, NEVER)))

    @classmethod
    def whole(cls, numbers: Iterable[int]) -> Wide:
        """A row of whole numbers of any length, one rounding each."""
        listed = [(number, max(number.bit_length() - 64, 0)) for number in numbers]
        tops = [float(number >> shift) for number, shift in listed]
        return cls.of(tops, [shift for _, shift in listed])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.part.shape

    @property
    def possible(self) -> npt.NDArray[np.bool_]:
        """Where the numbers are not 0."""
        return np.asarray(self.part > 0)

    def arranged(self, how: Callable[[npt.NDArray[np.generic]], object]) -> Wide:
        """The same numbers in another order or shape: `how` picks, moves or reshapes an array."""
        return Wide(np.asarray(how(self.part)), np.asarray(how(self.power)))

    def times(self, other: Wide) -> Wide:
        """The products, one rounding each."""
        return Wide.of(self.part * other.part, self.power + other.power)

    def plus(self, other: Wide) -> Wide:
        """The sums, two roundings each."""
        top = np.maximum(self.power, other.power)
        return Wide.of(_lowered(self, top) + _lowered(other, top), top)

    def total(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Wide:
        """The sum along some axes, a rounding for each number and one more."""
        top = self.power.max(axis=axis, keepdims=True, initial=NEVER)
        added = _lowered(self, top).sum(axis=axis, keepdims=True)
        found = Wide.of(added, top)
        if keepdims:
            return found
        gone = tuple(range(self.part.ndim)) if axis is None else axis
        return found.arranged(lambda values: np.squeeze(values, axis=gone))

    def over(self, other: Wide) -> Floats:
        """The quotients as doubles, one rounding each where they are at least LEAST; 0/0 is 0."""
        share = np.divide(
            self.part,
            other.part,
            out=np.zeros(np.broadcast_shapes(self.shape, other.shape)),
            where=other.part > 0,
        )
        far = np.clip(self.power - other.power, -FARTHEST, FARTHEST)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.ldexp(share, np.where(share > 0, far, 0)))

    def doubles(self) -> Floats:
        """The numbers as doubles: 0 also where they are too small for one."""
        return self.over(Wide.of(np.ones(())))

    def log_over(self, other: Wide) -> Floats:
        """log self - log other: -inf where self is 0, inf where only other is.

        Off by less than 2^-51 (1 + |result|), and 0 where the two are equal.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(self.part / other.part) + (self.power - other.power) * _LOG_2
        there, against = np.broadcast_arrays(self.possible, other.possible)
        return np.asarray(np.where(there, np.where(against, found, np.inf), -np.inf))

    def log(self) -> Floats:
        """Natural logarithms, -inf where impossible; off by less than 2^-51 (1 + |log|)."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.part) + np.where(self.possible, self.power, 0) * _LOG_2)


def product(factors: list[Wide]) -> Wide:
    """The product of some arrays, broadcast against each other."""
    return reduce(Wide.times, factors, Wide.of(np.ones(())))


def held(law: Floats, possible: npt.NDArray[np.bool_]) -> bool:
    """Whether doubles hold a law: everything possible keeps its digits."""
    return bool((law[possible] >= LEAST).all())  # false for nan too


_LOG_2 = float(np.log(2.0))


def _lowered(numbers: Wide, top: Powers) -> Floats:
    """numbers / 2^top, with top no smaller than their powers; what is far below counts as 0."""
    return np.asarray(np.ldexp(numbers.part, np.maximum(numbers.power - top, -FARTHEST)))
