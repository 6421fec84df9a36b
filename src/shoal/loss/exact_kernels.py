"""Compiled: convolutions and sweeps of many laws of different widths.

Imported only by covers with millions of numbers: importing takes longer than small ones.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


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
