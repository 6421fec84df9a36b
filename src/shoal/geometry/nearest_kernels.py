"""Compiled search for the nearest of some lattice points; importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FAR = 2**30  # farther than any two coordinates
NARROW = 2**15
ROOM = 8  # a box of at most this many cells a state is filled in cell by cell
SMALL = 64  # sides of a box in which every row is compared with every other
INDEX_BITS = 15  # of a state, below its squared distance: together 28 bits in such a box
NOBODY = np.int32(2**30)


@njit(cache=True)
def stand_ins(points: Any, order: Any, members: Any) -> Any:
    """For every state the nearest member, ties by index; `order` sorts points lexicographically."""
    west, east = points[order[0], 0], points[order[-1], 0]
    south, north = points[0, 1], points[0, 1]
    for state in range(len(points)):
        south, north = min(south, points[state, 1]), max(north, points[state, 1])
    width, height = east - west + 1, north - south + 1
    if max(width, height) <= SMALL and len(points) <= 2**INDEX_BITS:
        return by_comparison(points, members, west, south, width, height)
    # the narrow sides keep the products of a row's parabolas below 2^48
    if max(width, height) <= NARROW and width * height <= ROOM * len(points):
        return by_raster(points, members, west, south, width, height)
    return by_columns(points, order, members)


@njit(cache=True)
def by_columns(points: Any, order: Any, members: Any) -> Any:
    """Stand-ins of scattered points.

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
    heights: Any, rows: Any, start: int, stop: int, y: int, across: Any, best: Any, winner: Any
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


@njit(cache=True)
def by_comparison(points: Any, members: Any, west: int, south: int, width: int, height: int) -> Any:
    """Stand-ins of points in a small box: nearest along its columns, then along its rows.

    A member is known by its squared distance and, below that, its index, in one number: the
    smallest is the nearest, ties by index.
    """
    columns = np.full((width, height), NOBODY, dtype=np.int32)
    for state in range(len(points) - 1, -1, -1):  # backwards: the lowest index stays
        if members[state]:
            columns[points[state, 0] - west, points[state, 1] - south] = state
    rows = np.ascontiguousarray(_least_over_rows(columns).T)
    nearest = _least_over_rows(rows)
    chosen = np.arange(len(points))
    for state in range(len(points)):
        if not members[state]:
            key = nearest[points[state, 1] - south, points[state, 0] - west]
            chosen[state] = key & (2**INDEX_BITS - 1)
    return chosen


@njit(cache=True)
def _least_over_rows(keys: Any) -> Any:
    """In each column, for every row, the least over all rows of key + gap².

    All rows that are `gap` apart at once: slow in principle, but the processor takes a dozen at
    a time.
    """
    rows, columns = keys.shape
    flat = keys.reshape(-1)
    least = flat.copy()
    for gap in range(1, rows):
        far, size = (gap * gap) << INDEX_BITS, (rows - gap) * columns
        _lower(least[:size], flat[-size:], far)
        _lower(least[-size:], flat[:size], far)
    return least.reshape(rows, columns)


@njit(cache=True)
def _lower(least: Any, keys: Any, far: int) -> None:
    """least = min(least, keys + far), in 32 bits."""
    for k in range(len(least)):
        key = np.int32(keys[k] + np.int32(far))
        least[k] = key if key < least[k] else least[k]


@njit(cache=True)
def by_raster(points: Any, members: Any, west: int, south: int, width: int, height: int) -> Any:
    """Stand-ins of points that fill much of a small box, in time proportional to the box.

    In every column the nearest member above or below; then along each row the lowest of the
    parabolas (x - column)² + height² (Felzenszwalb & Huttenlocher 2012), on integers.
    """
    who = np.full((height, width), -1, dtype=np.int64)
    for state in range(len(points) - 1, -1, -1):  # backwards: the lowest index stays
        if members[state]:
            who[points[state, 1] - south, points[state, 0] - west] = state
    lowest, squared = _along_columns(who)
    nearest = np.empty((height, width), dtype=np.int64)
    columns, above, below = np.empty((3, width), dtype=np.int64)
    for row in range(height):
        _along_row(lowest[row], squared[row], nearest[row], columns, above, below)
    chosen = np.arange(len(points))
    for state in range(len(points)):
        if not members[state]:
            chosen[state] = nearest[points[state, 1] - south, points[state, 0] - west]
    return chosen


@njit(cache=True)
def _along_columns(who: Any) -> tuple[Any, Any]:
    """In each column the nearest member of every cell, ties by index, and its distance squared."""
    height, width = who.shape
    found = np.full((height, width), -1, dtype=np.int64)
    squared = np.full((height, width), np.int64(FAR) * FAR)
    rows = np.full(width, -1, dtype=np.int64)
    for row in range(height):
        for column in range(width):
            if who[row, column] >= 0:
                rows[column] = row
            if rows[column] >= 0:
                found[row, column] = who[rows[column], column]
                squared[row, column] = (row - rows[column]) * (row - rows[column])
    rows[:] = -1
    for row in range(height - 1, -1, -1):
        for column in range(width):
            if who[row, column] >= 0:
                rows[column] = row
            if rows[column] >= 0:
                other = who[rows[column], column]
                gap = (row - rows[column]) * (row - rows[column])
                tied = gap == squared[row, column] and other < found[row, column]
                if gap < squared[row, column] or tied:
                    found[row, column], squared[row, column] = other, gap
    return found, squared


@njit(cache=True)
def _along_row(
    found: Any, squared: Any, nearest: Any, columns: Any, above: Any, below: Any
) -> None:
    """Writes the winner of every cell of a row to `nearest`, ties by index.

    Parabola k of the envelope is lowest from above[k] / below[k] on. One is dropped only if the
    next takes over strictly before it begins, so that all that tie at a cell are there.
    """
    top = -1
    for column in range(len(found)):
        if found[column] < 0:
            continue
        while top >= 0:
            rise = squared[column] + column * column
            rise -= squared[columns[top]] + columns[top] * columns[top]
            run = 2 * (column - columns[top])
            if top == 0 or rise * below[top] >= above[top] * run:
                break
            top -= 1
        top += 1
        columns[top] = column
        if top > 0:
            above[top], below[top] = rise, run
    at = 0
    for cell in range(len(found)):
        while at < top and above[at + 1] <= cell * below[at + 1]:
            at += 1
        winner, back = found[columns[at]], at
        while back > 0 and above[back] == cell * below[back]:
            back -= 1
            winner = min(winner, found[columns[back]])
        nearest[cell] = winner
