"""Compiled search for the nearest of some lattice points; importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FAR = 2**30  # farther than any two coordinates


@njit(cache=True)
def stand_ins(points: Any, order: Any, members: Any) -> Any:
    """For every state the nearest member, ties by index; `order` sorts points lexicographically.

    Members are kept in columns of equal first coordinate. From a state's own column the search
    goes left and right until the columns alone are farther than the best found.
    """
    rows = order[members[order]]
    heights, starts, places = _columns(points, rows)
    last = len(places)
    chosen = np.arange(len(points))
    right = 0
    winner = rows[0]
    for k in range(len(order)):
        state = order[k]
        x, y = points[state, 0], points[state, 1]
        while right < last and places[right] < x:
            right += 1
        if members[state]:
            winner = state
            continue
        # the member nearest to the point before this one is a good first guess
        across, along = points[winner, 0] - x, points[winner, 1] - y
        best = across * across + along * along
        low, high = right - 1, right
        while low >= 0 or high < last:
            gap_low = x - places[low] if low >= 0 else np.int64(FAR)
            gap_high = places[high] - x if high < last else np.int64(FAR)
            gap = min(gap_low, gap_high)
            if gap * gap > best:
                break
            column = high if gap_high <= gap_low else low
            best, winner = _in_column(
                heights, rows, starts[column], starts[column + 1], y, gap * gap, best, winner
            )
            if gap_high <= gap_low:
                high += 1
            else:
                low -= 1
        chosen[state] = winner
    return chosen


@njit(cache=True)
def _columns(points: Any, rows: Any) -> tuple[Any, Any, Any]:
    """Of sorted members: second coordinates, where each column starts, and its coordinate."""
    heights = np.empty(len(rows), dtype=np.int64)
    starts = np.empty(len(rows) + 1, dtype=np.int64)
    places = np.empty(len(rows), dtype=np.int64)
    count = 0
    for k in range(len(rows)):
        x = points[rows[k], 0]
        heights[k] = points[rows[k], 1]
        if k == 0 or places[count - 1] != x:
            starts[count], places[count] = k, x
            count += 1
    starts[count] = len(rows)
    return heights, starts[: count + 1], places[:count]


@njit(cache=True)
def _in_column(
    heights: Any, rows: Any, start: int, stop: int, y: int, across: int, best: int, winner: int
) -> tuple[int, int]:
    """(squared distance, state) of the best so far and this column, ties by index."""
    low, high = start, stop
    if heights[stop - 1] < y:
        low = stop  # above the whole column, as most states far from a compact set are
    elif heights[start] >= y:
        high = start
    while low < high:
        middle = (low + high) // 2
        if heights[middle] < y:
            low = middle + 1
        else:
            high = middle
    if low < stop:  # the first at its height, so the lowest index of those that share it
        distance = across + (heights[low] - y) * (heights[low] - y)
        if distance < best or (distance == best and rows[low] < winner):
            best, winner = distance, rows[low]
    if low > start:
        below = low - 1
        distance = across + (y - heights[below]) * (y - heights[below])
        if distance <= best:
            while below > start and heights[below - 1] == heights[below]:
                below -= 1
            if distance < best or rows[below] < winner:
                best, winner = distance, rows[below]
    return best, winner
