"""The least scale, and the loss of a scale, of sums over slow chains: past and future apart.

Outputs beyond all answers say how small the answer can be (`Ends`), and which window brings the
bound that close; so as a rule one window is built and evaluated at one scale.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from shoal.loss.exact_apart import Apart, Bound
from shoal.loss.exact_blocks import step_over
from shoal.loss.exact_ends import crossing

SHARES = (0.25, 100.0, 1e3, 1e4, 1e5)  # tolerances tried one after the other, in units of it
CLOSE = 100.0  # tolerances: an answer this near the least possible is not looked into further
RAISED = 1e-7  # relative accuracy of a scale that outputs between the ends decide


class Found(NamedTuple):
    """A scale and its loss from windows of `size`, and how far it may be above the least one.

    `excess` is relative for a scale asked for, absolute for a loss asked for.
    """

    scale: float
    bound: Bound
    size: int
    excess: float


def apart_scale(apart: Apart, epsilon: float, floor: float, tolerance: float) -> Found | None:
    """The smallest scale from `floor` on whose bound is at most epsilon; None when none is found.

    No scale below that of `Ends` keeps the promise, so one evaluation just above it is enough
    where the ends decide. Rounds up: the scale returned was evaluated.
    """
    step = apart.task.step
    within = epsilon * (1 - 2.0**-43)  # so that looking again, with its own rounding, meets epsilon
    least = max(apart.ends.least_scale(epsilon), floor)
    if not math.isfinite(least):
        return None
    for share in SHARES:
        scale = least * (1 + share * tolerance)
        size = apart.size_for(step_over(step, scale), within)
        if size is not None:
            bound = apart.loss(size, step_over(step, scale))
            if bound.value > within:
                scale, bound = _raised(apart, size, within, scale)
            if math.isfinite(scale):
                return Found(scale, bound, size, scale / least - 1)
    return None


def apart_loss(apart: Apart, scale: float, enough: float, tolerance: float) -> Found | None:
    """The bound of one scale, within `tolerance` of what the ends lose, or at most `enough`.

    Where neither can be reached, the nearest window that can be afforded. None without any.
    """
    decay = step_over(apart.task.step, scale)
    least = apart.ends.loss(decay)
    for share in SHARES:
        target = max(least + max(share, 1.0) * tolerance, enough)
        size = apart.size_for(decay, target)
        if size is not None:
            bound = apart.loss(size, decay)
            if bound.value > target and apart.affordable(size + size // 2):
                size += size // 2
                bound = apart.loss(size, decay)
            if math.isfinite(bound.value):
                return Found(scale, bound, size, bound.value - least)
    return None


def _raised(apart: Apart, size: int, within: float, scale: float) -> tuple[float, Bound]:
    """The least scale above `scale` at which windows of `size` are enough, within 1e-7."""
    step = apart.task.step

    def loss(at: float) -> float:
        return apart.loss(size, step_over(step, at)).value

    if not math.isfinite(loss(scale)):
        return math.inf, Bound(math.inf)
    _, upper = crossing(loss, within, scale, RAISED)
    if not math.isfinite(upper):
        return math.inf, Bound(math.inf)
    return upper, apart.loss(size, step_over(step, upper))
