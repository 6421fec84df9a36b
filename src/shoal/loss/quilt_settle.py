"""Where the law of a chain's entries stops changing, with a proved bound on what still moves."""

from __future__ import annotations

import math

from shoal.loss.influence import future_top
from shoal.loss.kernels import TINY, UNIT, log_bounds
from shoal.loss.quilt_nodes import ChainNodes, Settled

CLOSE = 2.0  # a many-step law this narrow (projective diameter) contracts by tanh(1/2) < 0.47


def contraction(chain: ChainNodes, farthest: int = 1 << 26) -> tuple[int, float] | None:
    """A number of steps n and tanh(D/4) < 0.47, D the projective diameter of the n-step law.

    Between entries whose supports have settled. None when no number of steps has a finite D: a
    power that is not positive by (k-1)²+1 periods never is (Wielandt). None, too, when the chain
    is slower than `farthest` steps.
    """
    if chain.cycle is None:
        return None
    start, size = chain.cycle, len(chain.secrets(chain.cycle))
    steps = chain.period
    while steps <= farthest:
        diameter = future_top(chain.logs(start, steps), chain.secrets(start))
        if diameter <= CLOSE:
            future = chain.future(start, steps)
            diameter = float((future + future.T).max())
        if diameter <= CLOSE:
            return steps, math.tanh(diameter / 4.0)
        if math.isinf(diameter) and steps >= chain.period * ((size - 1) ** 2 + 1):
            return None
        steps *= 2
    return None


def settle(chain: ChainNodes, tolerance: float, last: int | None) -> Settled | None:
    """Where the laws stop changing: the first entry from which `slack` is at most `tolerance`.

    Let H be Hilbert's metric, H(u, v) = max over x, x' of log u(x)v(x') / (u(x')v(x)), which is
    the largest difference between two law ratios. A step never increases H, and n steps multiply
    it by at most tau (Birkhoff); (n, tau) = chain.mixing, from `contraction`. With π the limit law,
    H(m, π) <= H(m, mPⁿ)/(1 - tau), so every later entry of the same phase is within
    2 H(m, mPⁿ)/(1 - tau). When rounding keeps that above the tolerance the value reached is
    returned. None when the laws do not settle by `last`.
    """
    if chain.mixing is None:
        return None
    steps, factor = chain.mixing
    previous, node = math.inf, chain.cycle or 0
    while last is None or node <= last:
        slack = _slack(chain, node, steps, factor)
        if slack <= tolerance or (slack < 1e-6 and slack > 0.9 * previous):
            return Settled(node, slack)
        previous, node = slack, node + steps
    return None


def _slack(chain: ChainNodes, node: int, steps: int, factor: float) -> float:
    law = chain.law(node)
    moved = law @ chain.walk.kernel(node, steps).values
    values = chain.secrets(node)
    if min(law[values].min(), moved[values].min()) < TINY:
        return math.inf
    width = len(law) + 2
    present = log_bounds(law[values], law[values] > 0, 1)
    later = log_bounds(moved[values], moved[values] > 0, (steps + 1) * width)
    change = later.upper - present.upper
    spread = float(change.max() - change.min()) + 2.0 * (present.error + later.error)
    return 2.0 * spread / (1.0 - factor) + 4.04 * (chain.roundings(node) + 1) * width * UNIT
