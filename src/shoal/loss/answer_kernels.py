"""Compiled: what every mechanism that reads one number can tell between two laws of it."""

from __future__ import annotations

import math

import numba as nb
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
ROUNDING = 2.0**-51  # twice the rounding of a sum of two numbers, relative to their sizes


@nb.njit(cache=True)
def certified(top: Floats, bottom: Floats, level: float, growth: float, slack: float) -> bool:
    """Whether Σ top·g ≤ level · Σ bottom·g for every g > 0 that changes by at most `growth` a step.

    With h(c) the largest Σ_{j ≤ c} (top - level·bottom)(j) g(j) over such g with g(c) = 1, h(c) is
    (top - level·bottom)(c) plus h(c-1)·growth, or h(c-1)/growth when that is larger: when h < 0.
    Roundings are added, and `slack` is the relative error of the laws: True is never wrong.
    """
    h = 0.0
    for c in range(len(top)):
        more, less = top[c] * (1.0 + slack), level * bottom[c] * (1.0 - slack)
        carried = h * growth if h > 0.0 else h / growth
        h = (more - less) + carried
        h += ROUNDING * (more + less + abs(carried) + abs(h))
    return h <= 0.0


@nb.njit(cache=True)
def told(top: Floats, bottom: Floats, rate: float, slack: float, accuracy: float) -> float:
    """The least log level that is `certified`, within `accuracy`, rounded up."""
    growth = math.exp(rate) * (1.0 + ROUNDING)
    low = math.log(top.sum()) - math.log(bottom.sum())
    high = low + 2.0 * rate * (len(top) - 1) + 4.0 * slack + 1e-9
    if not certified(top, bottom, math.exp(high), growth, slack):
        return math.inf
    while high - low > accuracy:
        middle = (low + high) / 2
        if certified(top, bottom, math.exp(middle), growth, slack):
            high = middle
        else:
            low = middle
    return high
