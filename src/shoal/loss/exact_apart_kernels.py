"""Compiled: bounds for the past and the future of a node by themselves; imports numba.

Everything is a product or a sum of non-negative numbers, so every entry keeps its relative
accuracy. Probabilities below FLUSHED become 0 (subnormal arithmetic is slow), which is far below
rounding while every smoothed density is above exp(-300).
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from shoal.loss.exact_kernels import smooth

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
FLUSHED = 1e-154
CHUNK = 1024  # values of the sum worked on together, so that they stay near the processor


@nb.njit(cache=True)
def bridge_table(matrix: Floats, weights: Ints, steps: int) -> Floats:
    """P(X_steps = z, sum strictly between = c | X_0 = x), (x, z, c)."""
    size, reach = len(matrix), _largest(weights)
    width = (steps - 1) * reach + 1
    table, spare = np.zeros((size, size, width)), np.zeros((size, width))
    for x in range(size):
        known, onward = table[x], spare
        if steps % 2 == 0:  # so that the last step ends in the table
            known, onward = spare, table[x]
        for z in range(size):
            known[z, 0] = matrix[x, z]
        count = 1
        for _ in range(steps - 1):
            _onward(known, count, matrix, weights, count + reach, onward)
            known, onward = onward, known
            count += reach
    return table


@nb.njit(cache=True)
def _largest(weights: Ints) -> int:
    largest = 0
    for weight in weights:
        largest = max(largest, weight)
    return largest


@nb.njit(cache=True)
def _onward(
    known: Floats, count: int, matrix: Floats, weights: Ints, total: int, out: Floats
) -> None:
    """One entry more: out[z, c] = Σ_y matrix[y, z] known[y, c - weights[y]] for c below total."""
    size = len(matrix)
    for begin in range(0, total, CHUNK):
        end = min(begin + CHUNK, total)
        for z in range(size):
            _clear(out[z, begin:end])
            for y in range(size):
                first, last = max(begin, weights[y]), min(end, weights[y] + count)
                if matrix[y, z] > 0.0 and first < last:
                    source = known[y, first - weights[y] : last - weights[y]]
                    _add(out[z, first:last], source, matrix[y, z])
            _flush(out[z, begin:end])


@nb.njit(cache=True)
def _clear(row: Floats) -> None:
    for c in range(len(row)):
        row[c] = 0.0


@nb.njit(cache=True)
def _add(out: Floats, row: Floats, factor: float) -> None:
    for c in range(len(row)):
        out[c] += factor * row[c]


@nb.njit(cache=True)
def _flush(row: Floats) -> None:
    for c in range(len(row)):
        row[c] = row[c] if row[c] >= FLUSHED else 0.0


@nb.njit(cache=True)
def held_future(table: Floats, weights: Ints, keep: float) -> Floats:
    """max over z, u of D_x(u)/D_x'(u), the entry's own weight included.

    D_x is the law table[x, z] moved by weights[x] and smoothed by keep^|distance|. 0/0 is no
    constraint, c/0 infinite.
    """
    size, _, width = table.shape
    total = width + _largest(weights)
    law, density = np.zeros(total), np.zeros((size, total))
    best = np.zeros((size, size))
    for z in range(size):
        for x in range(size):
            _clear(law)
            _add(law[weights[x] : weights[x] + width], table[x, z], 1.0)
            smooth(law, total, keep, density[x])
        _compare(density, total, best)
    return best


@nb.njit(cache=True)
def held_past(table: Floats, held: Bools, keep: float) -> Floats:
    """max over the y held and u of D_x(u)/D_x'(u), D_x the law table[y, x] smoothed."""
    size, _, width = table.shape
    density = np.zeros((size, width))
    best = np.zeros((size, size))
    for y in range(size):
        if held[y]:
            for x in range(size):
                smooth(table[y, x], width, keep, density[x])
            _compare(density, width, best)
    return best


@nb.njit(cache=True)
def whole_side(
    matrix: Floats, start: Floats, weights: Ints, counts: int, powers: Floats, own: bool
) -> Floats:
    """max over u of D_x(u)/D_x'(u) for 0 .. counts-1 entries on one side, nothing held.

    The densities follow from one number of entries to the next by themselves: one entry more
    moves them by its weight and mixes them by `matrix` (rows: the state wanted, columns: the
    state next to it). Beyond the sums that are possible they fall by powers[j] = exp(-decay·j).
    `start` is the total of each state at first; `own` moves each state by its own weight before
    the comparison. Returns the ratios (counts, k, k).
    """
    size, reach = len(matrix), _largest(weights)
    width = (counts - 1) * reach + 1
    near, wide = np.zeros((size, width)), np.zeros((size, width + 2 * reach))
    ratios, moved = np.zeros((counts, size, size)), np.zeros((size, width + reach))
    for x in range(size):
        near[x, 0] = start[x]
    count = 1
    for entries in range(counts):
        _widen(near, count, reach, powers, wide)
        if own:
            for x in range(size):
                begin = reach - weights[x]
                _clear(moved[x])
                _add(moved[x, : count + reach], wide[x, begin : begin + count + reach], 1.0)
            _compare(moved, count + reach, ratios[entries])
        else:
            _compare(near, count, ratios[entries])
        if entries + 1 < counts:
            count += reach
            _mix(wide, count, reach, matrix, weights, near)
    return ratios


@nb.njit(cache=True)
def _widen(near: Floats, count: int, reach: int, powers: Floats, wide: Floats) -> None:
    """The densities with `reach` values more at both ends."""
    for x in range(len(near)):
        for c in range(count):
            wide[x, reach + c] = near[x, c]
        for j in range(1, reach + 1):
            wide[x, reach - j] = near[x, 0] * powers[j]
            wide[x, reach + count - 1 + j] = near[x, count - 1] * powers[j]


@nb.njit(cache=True)
def _mix(wide: Floats, count: int, reach: int, matrix: Floats, weights: Ints, out: Floats) -> None:
    """out[x, u] = Σ_y matrix[x, y] D_y(u - weights[y]), D_y as widened."""
    size = len(matrix)
    for begin in range(0, count, CHUNK):
        end = min(begin + CHUNK, count)
        for x in range(size):
            _clear(out[x, begin:end])
            for y in range(size):
                if matrix[x, y] > 0.0:
                    first = begin + reach - weights[y]
                    _add(out[x, begin:end], wide[y, first : first + end - begin], matrix[x, y])


@nb.njit(cache=True)
def _compare(density: Floats, count: int, best: Floats) -> None:
    """Into best[x, x']: the largest density[x]/density[x']; 0/0 is 0, c/0 infinite."""
    size = len(density)
    inverse = np.empty(CHUNK)
    for begin in range(0, count, CHUNK):
        end = min(begin + CHUNK, count)
        for other in range(size):
            row = density[other]
            lost = False
            for c in range(begin, end):
                if row[c] > 0.0:
                    inverse[c - begin] = 1.0 / row[c]
                else:
                    lost = True
                    inverse[c - begin] = np.inf
            for x in range(size):
                if x != other:
                    found = _steepest(density[x], inverse, begin, end, lost)
                    best[x, other] = max(best[x, other], found)


@nb.njit(cache=True)
def _steepest(row: Floats, inverse: Floats, begin: int, end: int, lost: bool) -> float:
    """The largest row[c]·inverse[c - begin]; zeros of the row count as 0 whatever the inverse."""
    if lost:
        found = 0.0
        for c in range(begin, end):
            if row[c] > 0.0:
                found = max(found, row[c] * inverse[c - begin])
        return found
    one, two, three, four = 0.0, 0.0, 0.0, 0.0  # independent maxima: the processor overlaps them
    whole = begin + (end - begin) // 4 * 4
    for c in range(begin, whole, 4):
        a, b = row[c] * inverse[c - begin], row[c + 1] * inverse[c - begin + 1]
        d, e = row[c + 2] * inverse[c - begin + 2], row[c + 3] * inverse[c - begin + 3]
        one, two = (a if a > one else one), (b if b > two else two)
        three, four = (d if d > three else three), (e if e > four else four)
    for c in range(whole, end):
        one = max(one, row[c] * inverse[c - begin])
    return max(one, two, three, four)
