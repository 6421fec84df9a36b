"""A simplex for tiny programs that start at a feasible point, and whose every iterate is one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats

PIVOTS = 20  # times the number of rows and columns: what random programs need is about one


class Solved(NamedTuple):
    """A feasible point, its value, and a multiplier for each row."""

    point: Floats
    value: float
    multipliers: Floats
    optimal: bool


def maximise(gain: Floats, rows: Floats, limits: Floats, most: Floats) -> Solved:
    """max gain·x over rows·x ≤ limits, 0 ≤ x ≤ most, for limits ≥ 0, so that x = 0 is feasible.

    A tableau with bounds on the variables (`kernels`); the column of largest gain enters, and after
    a run of pivots without gain the first one does (Bland), so that it ends. Stopped early it
    returns the feasible point it has come to. Up to rounding: whoever needs a row kept checks it.
    Rows are to be scaled to about 1.
    """
    from shoal.events.kernels import pivoted

    count, size = rows.shape
    point, multipliers = np.zeros(size), np.zeros(count)
    table = np.array(rows, dtype=np.float64, order="C")
    values, reduced = np.maximum(limits, 0.0), np.array(gain, dtype=np.float64)
    bounds = np.concatenate([most, np.full(count, np.inf)])
    optimal = pivoted(
        table, values, reduced, bounds, point, multipliers, PIVOTS * (count + size + 1)
    )
    return Solved(point, float(gain @ point), multipliers, bool(optimal))
