"""Compiled: the loss of a sum over a whole chain, node by node; importing this imports numba.

Tables hold plain probabilities, products and sums of non-negative numbers only, so that every
entry keeps its relative accuracy; entries below FLUSHED become 0 (subnormal arithmetic is slow),
which is far below rounding while every smoothed density is above exp(-300).
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from shoal.loss.exact_kernels import extremes, smooth

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
FLUSHED = 1e-154
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
                    _add(table[node + 1, y], table[node, x], step[x, y], own[x], known)
        known += own.max()
        _flush(table[node + 1])
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
                    _add(table[rest + 1, x], table[rest, y], step[x, y], weights[y], known)
        known += weights.max()
        _flush(table[rest + 1])
    return table


@nb.njit(cache=True)
def _add(out: Floats, row: Floats, factor: float, shift: int, count: int) -> None:
    for c in range(count):
        out[c + shift] += factor * row[c]


@nb.njit(cache=True)
def _flush(table: Floats) -> None:
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
    best, told, least, most = -1.0, -1.0, np.inf, 0.0
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
                    if best > told * EQUAL:  # among equals the first one is told
                        told = best
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
