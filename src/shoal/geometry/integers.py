"""Exact integer arrays: int64 where it provably suffices, Python's integers elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError

Integers = npt.NDArray[Any]  # int64, or Python integers (dtype object)

POINT_LIMIT = 2**28  # coordinates of points in lattice units
BODY_LIMIT = 2**29  # coordinates of a body: differences of points
VECTOR_LIMIT = 2**31  # vectors whose norm in the plane int64 decides


def integer_rows(values: npt.ArrayLike, field: str) -> Integers:
    """`values` as an (n, d) array of integers; refused when a coordinate is not a whole number."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"{field} has shape {array.shape}; it must be (count, dimension)")
    if array.dtype == object:
        return array
    fractional = array.dtype.kind not in "iu" and bool(array.size)
    if fractional and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise InputError(f"{field} must be whole numbers of lattice steps; snap them first")
    return array.astype(np.int64)


def largest(values: Integers) -> int:
    """The largest coordinate in size, 0 when there is none."""
    return int(max(abs(values.max()), abs(values.min()))) if values.size else 0


def check_size(values: Integers, field: str, limit: int) -> Integers:
    """`values` as int64; refused when a coordinate exceeds `limit`."""
    size = largest(values)
    if size > limit:
        raise InputError(
            f"{field} reach {size} lattice steps; the largest allowed is {limit} "
            "(use a coarser lattice)"
        )
    return values.astype(np.int64)


def product(left: Integers, right: Integers) -> Integers:
    """left @ right exactly: int64 when no sum can leave 63 bits, else Python's integers."""
    if largest(left) * largest(right) * max(1, left.shape[-1]) < 2**62:
        return np.asarray(left.astype(np.int64) @ right.astype(np.int64))
    return np.asarray(left.astype(object) @ right.astype(object))
