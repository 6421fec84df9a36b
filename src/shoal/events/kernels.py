"""Compiled loops of the simplex; importing this module imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

PIVOT_TOLERANCE = 1e-11  # of reduced costs and pivots; rows are scaled to 1 before
IDLE = 30  # pivots without gain after which the first column enters instead of the best


@njit(cache=True, error_model="numpy")
def pivoted(
    table: Any, values: Any, reduced: Any, bounds: Any, point: Any, multipliers: Any, limit: int
) -> bool:
    """Pivot until no column gains; write the point and a multiplier per row in place.

    Basic variables are values - table·others, the others at 0 or, where `high`, at their bound.
    """
    count, size = table.shape
    outside = np.arange(size)
    inside = np.arange(size, size + count)
    high = np.zeros(size, dtype=np.bool_)
    idle, optimal = 0, False
    for _ in range(limit):
        column = _entering(reduced, high, outside, idle >= IDLE)
        if column < 0:
            optimal = True
            break
        sign = -1.0 if high[column] else 1.0
        step, row = _leaving(table, values, bounds, inside, column, sign, idle >= IDLE)
        own = bounds[outside[column]]
        if own <= step:
            for i in range(count):
                values[i] -= table[i, column] * sign * own
            high[column] = not high[column]
            idle = 0
            continue
        if row < 0:
            break  # unbounded; every variable of use is bounded
        idle = 0 if step > PIVOT_TOLERANCE else idle + 1
        entering, begun = outside[column], own if high[column] else 0.0
        high[column] = table[row, column] * sign < 0
        for i in range(count):
            values[i] -= table[i, column] * sign * step
        values[row] = begun + sign * step
        _exchange(table, reduced, row, column)
        outside[column], inside[row] = inside[row], entering
    for i in range(count):
        if inside[i] < size:
            point[inside[i]] = max(values[i], 0.0)
    for j in range(size):
        if outside[j] >= size:
            multipliers[outside[j] - size] = max(-reduced[j], 0.0)
        elif high[j]:
            point[outside[j]] = bounds[outside[j]]
    return optimal


@njit(cache=True, error_model="numpy")
def _entering(reduced: Any, high: Any, outside: Any, first: bool) -> int:
    """The column of largest gain, or the first variable that gains; -1 for none."""
    best, chosen = PIVOT_TOLERANCE, -1
    for j in range(len(reduced)):
        gain = -reduced[j] if high[j] else reduced[j]
        if gain <= PIVOT_TOLERANCE:
            continue
        if first:
            if chosen < 0 or outside[j] < outside[chosen]:
                chosen = j
        elif gain > best:
            best, chosen = gain, j
    return chosen


@njit(cache=True, error_model="numpy")
def _leaving(
    table: Any, values: Any, bounds: Any, inside: Any, column: int, sign: float, first: bool
) -> tuple[float, int]:
    """How far the entering variable may go, and the row that stops it; of equals the largest
    pivot, for accuracy, or the first variable."""
    least, chosen = np.inf, -1
    for i in range(len(values)):
        slope = table[i, column] * sign
        if slope > PIVOT_TOLERANCE:
            room = max(values[i], 0.0) / slope
        elif slope < -PIVOT_TOLERANCE:
            room = max(bounds[inside[i]] - values[i], 0.0) / -slope
        else:
            continue
        if room < least * (1 - 1e-12) or chosen < 0:
            least, chosen = room, i
        elif room <= least * (1 + 1e-12):
            better = inside[i] < inside[chosen]
            if not first:
                better = abs(slope) > abs(table[chosen, column])
            if better:
                chosen = i
    return least, chosen


@njit(cache=True, error_model="numpy")
def _exchange(table: Any, reduced: Any, row: int, column: int) -> None:
    """The table with the variables of a row and a column exchanged."""
    count, size = table.shape
    pivot = table[row, column]
    for j in range(size):
        table[row, j] /= pivot
    table[row, column] = 1.0 / pivot
    for i in range(count):
        factor = table[i, column]
        if i != row and factor != 0.0:
            table[i, column] = 0.0
            for j in range(size):
                table[i, j] -= factor * table[row, j]
    cost = reduced[column]
    reduced[column] = 0.0
    for j in range(size):
        reduced[j] -= cost * table[row, j]
