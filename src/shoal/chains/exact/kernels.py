"""Compiled: convolutions and sweeps of many laws of different widths.

Imported only by covers with millions of numbers: importing takes longer than small ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from shoal.core.codec import Bools, Floats, Ints


@nb.njit(cache=True)
def steepest_ratio(
    laws: Floats, possible: Bools, keep: float
) -> tuple[float, int, int, int, int, float, float]:
    """The largest D_x(u)/D_x'(u), its group, x, x', u, and the least and largest density seen.

    D is laws (groups, secrets, values) smoothed by keep^|distance|: one sweep each way. Outputs
    beyond a group's last value add nothing and are skipped. 0/0 is no constraint, c/0 infinite.
    """
    groups, secrets, count = laws.shape
    density = np.empty((secrets, count))
    best, group, top, bottom, output = -1.0, 0, 0, 0, 0
    least, most = np.inf, 0.0
    for g in range(groups):
        width = _width(laws[g], possible[g])
        for x in range(secrets):
            if possible[g, x]:
                smooth(laws[g, x], width, keep, density[x])
        for j in range(width):
            high, low, above, below = extremes(density[:, j], possible[g])
            if high > 0.0:
                most, least = max(most, high), min(least, low if low > 0.0 else high)
                ratio = high / low if low > 0.0 else np.inf
                if ratio > best:
                    best, group, top, bottom, output = ratio, g, above, below, j
    return best, group, top, bottom, output, least, most


@nb.njit(cache=True)
def _width(laws: Floats, possible: Bools) -> int:
    """How many values there are up to the last one with any mass."""
    last = 0
    for x in range(len(laws)):
        if possible[x]:
            for j in range(laws.shape[1] - 1, last, -1):
                if laws[x, j] > 0.0:
                    last = j
                    break
    return last + 1


@nb.njit(cache=True)
def smooth(law: Floats, width: int, keep: float, out: Floats) -> None:
    """Into out: Σ_i law[i] keep^|j - i|."""
    carried = 0.0
    for j in range(width):
        carried = carried * keep + law[j]
        out[j] = carried
    carried = 0.0
    for j in range(width - 1, -1, -1):
        out[j] += carried
        carried = (carried + law[j]) * keep


@nb.njit(cache=True)
def extremes(values: Floats, possible: Bools) -> tuple[float, float, int, int]:
    """The largest and the least of the possible values, and where they are."""
    high, low, above, below = -1.0, np.inf, 0, 0
    for x in range(len(values)):
        if possible[x]:
            if values[x] > high:
                high, above = values[x], x
            if values[x] < low:
                low, below = values[x], x
    return high, low, above, below


@nb.njit(cache=True)
def convolved_rows(left: Floats, right: Floats) -> Floats:
    """Σ_c left[row, c] right[row, u - c], without the zeros at the end of each row."""
    rows, places = left.shape
    count = right.shape[1]
    out = np.zeros((rows, places + count - 1))
    for row in range(rows):
        width = count
        while width > 1 and right[row, width - 1] == 0.0:
            width -= 1
        for place in range(places):
            factor = left[row, place]
            if factor > 0.0:
                for j in range(width):
                    out[row, place + j] += factor * right[row, j]
    return out


# Compiled: bounds for the past and the future of a node by themselves; imports numba.
#
# Everything is a product or a sum of non-negative numbers, so every entry keeps its relative
# accuracy. Probabilities below FLUSHED become 0 (subnormal arithmetic is slow), which is far below
# rounding while every smoothed density is above exp(-300).


FLUSHED = 1e-154
VALUES_TOGETHER = 1024  # values of the sum worked on together, so that they stay near the processor


class Moves(NamedTuple):
    """A matrix M[x, y] = left[x]·right[y] + a few entries more, those of row x in `source` (which
    y) and `factor` from first[x] up to first[x + 1]."""

    left: Floats
    right: Floats
    first: Ints
    source: Ints
    factor: Floats


@nb.njit(cache=True)
def bridge_table(matrix: Floats, moves: Moves, weights: Ints, steps: int) -> Floats:
    """P(X_steps = z, sum strictly between = c | X_0 = x), (x, z, c); `moves` is `matrix`
    transposed."""
    size, reach = len(matrix), _largest_weight(weights)
    width = (steps - 1) * reach + 1
    table, wide = np.zeros((size, size, width)), np.zeros((size, width + 2 * reach))
    nothing = np.zeros(reach + 1)
    for x in range(size):
        for z in range(size):
            table[x, z, 0] = matrix[x, z]
        count = 1
        for _ in range(steps - 1):
            _widen(table[x], count, reach, nothing, wide)
            count += reach
            _mix(wide, count, reach, moves, weights, table[x])
    return table


@nb.njit(cache=True)
def _largest_weight(weights: Ints) -> int:
    largest = 0
    for weight in weights:
        largest = max(largest, weight)
    return largest


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
def held_future(table: Floats, weights: Ints, keep: float, chosen: Ints) -> Floats:
    """max over z, u of D_x(u)/D_x'(u), the entry's own weight included, as `_compare` has them.

    D_x is the law table[x, z] moved by weights[x] and smoothed by keep^|distance|. 0/0 is no
    constraint, c/0 infinite.
    """
    size, _, width = table.shape
    total = width + _largest_weight(weights)
    law, density = np.zeros(total), np.zeros((size, total))
    best = np.zeros((2, len(chosen), size))
    for z in range(size):
        for x in range(size):
            _clear(law)
            _add(law[weights[x] : weights[x] + width], table[x, z], 1.0)
            smooth(law, total, keep, density[x])
        _compare(density, total, chosen, best)
    return best


@nb.njit(cache=True)
def held_past(table: Floats, held: Bools, keep: float, chosen: Ints) -> Floats:
    """The same over the y held, D_x the law table[y, x] smoothed."""
    size, _, width = table.shape
    density = np.zeros((size, width))
    best = np.zeros((2, len(chosen), size))
    for y in range(size):
        if held[y]:
            for x in range(size):
                smooth(table[y, x], width, keep, density[x])
            _compare(density, width, chosen, best)
    return best


@nb.njit(cache=True)
def whole_side(
    moves: Moves,
    start: Floats,
    weights: Ints,
    counts: int,
    powers: Floats,
    own: bool,
    chosen: Ints,
) -> Floats:
    """max over u of D_x(u)/D_x'(u) for 0 .. counts-1 entries on one side, nothing held.

    The densities follow from one number of entries to the next by themselves: one entry more
    moves them by its weight and mixes them by `moves` (rows: the state wanted, columns: the
    state next to it). Beyond the sums that are possible they fall by powers[j] = exp(-decay·j).
    `start` is the total of each state at first; `own` moves each state by its own weight before
    the comparison. Returns what `_compare` has for each number of entries.
    """
    size, reach = len(weights), _largest_weight(weights)
    width = (counts - 1) * reach + 1
    near, wide = np.zeros((size, width)), np.zeros((size, width + 2 * reach))
    ratios, moved = np.zeros((counts, 2, len(chosen), size)), np.zeros((size, width + reach))
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
            _compare(moved, count + reach, chosen, ratios[entries])
        else:
            _compare(near, count, chosen, ratios[entries])
        if entries + 1 < counts:
            count += reach
            _mix(wide, count, reach, moves, weights, near)
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
def _mix(wide: Floats, count: int, reach: int, moves: Moves, weights: Ints, out: Floats) -> None:
    """out[x, u] = Σ_y M[x, y] D_y(u - weights[y]), D_y as widened, M the matrix of `moves`."""
    common = np.zeros(VALUES_TOGETHER)
    shared = moves.left.max() > 0.0
    for begin in range(0, count, VALUES_TOGETHER):
        end = min(begin + VALUES_TOGETHER, count)
        several = common[: end - begin]
        if shared:
            _clear(several)
            for y in range(len(weights)):
                first = begin + reach - weights[y]
                _add(several, wide[y, first : first + end - begin], moves.right[y])
        for x in range(len(weights)):
            _clear(out[x, begin:end])
            if shared:
                _add(out[x, begin:end], several, moves.left[x])
            for place in range(moves.first[x], moves.first[x + 1]):
                y = moves.source[place]
                first = begin + reach - weights[y]
                _add(out[x, begin:end], wide[y, first : first + end - begin], moves.factor[place])
            _flush(out[x, begin:end])


@nb.njit(cache=True)
def _compare(density: Floats, count: int, chosen: Ints, best: Floats) -> None:
    """Into best[0, r, x] the largest D_x/D_c, into best[1, r, x] the largest D_c/D_x, c the state
    chosen[r]; 0/0 is 0, c/0 infinite. Where all are chosen the first says everything."""
    size = len(density)
    inverse = np.empty(VALUES_TOGETHER)
    for begin in range(0, count, VALUES_TOGETHER):
        end = min(begin + VALUES_TOGETHER, count)
        for place in range(len(chosen)):
            lost = _invert_row(density[chosen[place]], begin, end, inverse)
            for x in range(size):
                found = _largest_product(density[x], inverse, begin, end, lost)
                best[0, place, x] = max(best[0, place, x], found)
        if len(chosen) < size:
            for x in range(size):
                lost = _invert_row(density[x], begin, end, inverse)
                for place in range(len(chosen)):
                    found = _largest_product(density[chosen[place]], inverse, begin, end, lost)
                    best[1, place, x] = max(best[1, place, x], found)


@nb.njit(cache=True)
def _invert_row(row: Floats, begin: int, end: int, inverse: Floats) -> bool:
    """Into inverse: 1/row from begin to end; whether some of them are infinite."""
    lost = False
    for c in range(begin, end):
        if row[c] > 0.0:
            inverse[c - begin] = 1.0 / row[c]
        else:
            lost = True
            inverse[c - begin] = np.inf
    return lost


@nb.njit(cache=True)
def _largest_product(row: Floats, inverse: Floats, begin: int, end: int, lost: bool) -> float:
    """The largest row[c]·inverse[c - begin]; zeros of the row count as 0 with any inverse."""
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


# Compiled: the loss of a sum over a whole chain, node by node; importing this imports numba.
#
# Tables hold plain probabilities, products and sums of non-negative numbers only, so that every
# entry keeps its relative accuracy; entries below FLUSHED become 0 (subnormal arithmetic is slow),
# which is far below rounding while every smoothed density is above exp(-300).


EQUAL = 1 + 1e-11  # ratios that differ by rounding only


@nb.njit(cache=True)
def pasts(
    initial: Floats, matrices: Floats, weights: Ints, first_weights: Ints, length: int, width: int
) -> Floats:
    """P(X_i = x, sum of the entries before = c), (nodes, states, sums)."""
    size = initial.size
    table = np.zeros((length, size, width))
    table[0, :, 0] = initial
    known = 1
    for node in range(length - 1):
        step = matrices[node if len(matrices) > 1 else 0]
        own = first_weights if node == 0 else weights
        for x in range(size):
            for y in range(size):
                if step[x, y] > 0:
                    _add_whole(table[node + 1, y], table[node, x], step[x, y], own[x], known)
        known += own.max()
        _flush_whole(table[node + 1])
    return table


@nb.njit(cache=True)
def futures(matrices: Floats, weights: Ints, length: int, width: int) -> Floats:
    """P(sum of the r entries after = c | X = x), (r, states, sums); the last r end the chain."""
    size = weights.size
    table = np.zeros((length, size, width))
    table[0, :, 0] = 1.0
    known = 1
    for rest in range(length - 1):
        step = matrices[length - 2 - rest if len(matrices) > 1 else 0]
        for x in range(size):
            for y in range(size):
                if step[x, y] > 0:
                    _add_whole(table[rest + 1, x], table[rest, y], step[x, y], weights[y], known)
        known += weights.max()
        _flush_whole(table[rest + 1])
    return table


@nb.njit(cache=True)
def _add_whole(out: Floats, row: Floats, factor: float, shift: int, count: int) -> None:
    for c in range(count):
        out[c + shift] += factor * row[c]


@nb.njit(cache=True)
def _flush_whole(table: Floats) -> None:
    rows, count = table.shape
    for x in range(rows):
        for c in range(count):
            if table[x, c] < FLUSHED:
                table[x, c] = 0.0


@nb.njit(cache=True)
def worst_law(
    past: Floats,
    future: Floats,
    weights: Ints,
    first_weights: Ints,
    label: Ints,
    possible: Bools,
    keep: float,
    shorter: bool,
) -> tuple[float, int, int, int, int, int, float, float, float]:
    """The largest D_x(u)/D_x'(u) over nodes, lengths, secrets and outputs, and where.

    Returns the ratio, node, entries after it, x, x', u, the least and largest density seen, and
    the least probability of a possible secret. `possible` is (nodes, secrets).
    """
    length, size, width = past.shape
    secrets = possible.shape[1]
    laws, density = np.zeros((secrets, width)), np.zeros((secrets, width))
    best, best_kept, least, most = -1.0, -1.0, np.inf, 0.0
    node, after, top, bottom, output = 0, 0, 0, 0, 0
    reach, first_reach = weights.max(), first_weights.max()
    chance = _chances(past, label, secrets)
    for entries in range(length, 0 if shorter else length - 1, -1):  # the longest data first
        for i in range(entries):
            rest = entries - 1 - i
            before = 1 if i == 0 else first_reach + (i - 1) * reach + 1
            behind = rest * reach + 1
            total = before + behind - 1 + (first_reach if i == 0 else reach)
            own = first_weights if i == 0 else weights
            laws[:, :total] = 0.0
            for x in range(size):
                _convolve(laws[label[x]], past[i, x], future[rest, x], own[x], before, behind)
            for s in range(secrets):
                if possible[i, s]:
                    laws[s, :total] /= chance[i, s]
                    smooth(laws[s], total, keep, density[s])
            for u in range(total):
                high, low, above, below = extremes(density[:, u], possible[i])
                if high <= 0.0:
                    continue
                most, least = max(most, high), min(least, low)
                if high > best * low:
                    best = high / low if low > 0.0 else np.inf
                    if best > best_kept * EQUAL:  # among equals the first one is returned
                        best_kept = best
                        node, after, top, bottom, output = i, rest, above, below, u
    rarest = np.inf
    for i in range(length):
        for s in range(secrets):
            if possible[i, s]:
                rarest = min(rarest, chance[i, s])
    return best, node, after, top, bottom, output, least, most, rarest


@nb.njit(cache=True)
def _chances(past: Floats, label: Ints, secrets: int) -> Floats:
    """P(secret of node i), (nodes, secrets)."""
    length, size, _ = past.shape
    chance = np.zeros((length, secrets))
    for i in range(length):
        for x in range(size):
            chance[i, label[x]] += past[i, x].sum()
    return chance


@nb.njit(cache=True)
def _convolve(
    out: Floats, left: Floats, right: Floats, shift: int, places: int, count: int
) -> None:
    """out[shift + a + b] += left[a] right[b]; the shorter row outside."""
    if places > count:
        left, right, places, count = right, left, count, places
    for a in range(places):
        factor = left[a]
        if factor > 0.0:
            for b in range(count):
                out[shift + a + b] += factor * right[b]
