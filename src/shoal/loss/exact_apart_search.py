"""The least scale, and the loss of a scale, of sums over slow chains: past and future apart.

Outputs beyond all answers say how small the answer can be (`Ends`), and which window brings the
bound that close; so as a rule one window is built and evaluated at one scale.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from shoal.loss.crossing import crossing
from shoal.loss.exact_apart import Apart, Bound
from shoal.loss.exact_blocks import step_over

SHARES = (0.01, 0.5, 100.0, 1e3, 1e4, 1e5, 1e6)  # tried in turn, in units of the tolerance
CLOSE = 1000.0  # tolerances: an answer this near the least possible is not looked into further
RAISED = 1e-7  # relative accuracy of a scale that outputs between the ends decide


class Found(NamedTuple):
    """A scale and its loss from windows of `size`, and how far it may be above the least one.

    `excess` is relative for a scale asked for, absolute for a loss asked for.
    """

    scale: float
    bound: Bound
    size: int
    excess: float


def apart_scale(apart: Apart, epsilon: float, least: float, tolerance: float) -> Found | None:
    """The smallest scale from `least` on whose bound is at most epsilon; None when none is found.

    With `least` from `Ends` no smaller scale keeps the promise, so one evaluation just above it
    is enough where the ends decide. Rounds up: the scale returned was evaluated.
    """
    step = apart.task.step
    within = epsilon * (1 - 2.0**-43)  # so that looking again, with its own rounding, meets epsilon
    for share in SHARES:
        scale = least * (1 + share * tolerance)
        size = apart.size_for(step_over(step, scale), within)
        if size is not None:
            scale, bound = _raised(apart, size, within, scale)
            if math.isfinite(scale):
                return Found(scale, bound, size, scale / least - 1)
    return None


def apart_loss(
    apart: Apart, scale: float, least: float, enough: float, tolerance: float
) -> Found | None:
    """The bound of one scale: at most `enough`, or within `tolerance` of what the ends lose.

    `least` is what the ends lose. Where neither can be reached, the nearest window that can be
    afforded. None without any.
    """
    decay = step_over(apart.task.step, scale)
    targets = [least + share * tolerance for share in SHARES]
    for target in [enough, *targets] if enough > least else targets:
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
    """The least scale from `scale` on at which windows of `size` are enough, within 1e-7.

    Nodes far from both ends cost little to look at: they are raised first.
    """
    step = apart.task.step

    def inside(at: float) -> float:
        return apart.held_loss(size, step_over(step, at))

    def everywhere(at: float) -> float:
        return apart.loss(size, step_over(step, at)).value

    if within < inside(scale) < math.inf:
        scale = crossing(inside, within, scale, RAISED)[1]
    bound = apart.loss(size, step_over(step, scale)) if scale < math.inf else Bound(math.inf)
    if bound.value <= within or bound.value == math.inf:
        return (scale if bound.value < math.inf else math.inf), bound
    scale = crossing(everywhere, within, scale, RAISED)[1]
    return scale, apart.loss(size, step_over(step, scale)) if scale < math.inf else bound
