"""The nodes of one chain as quilt problems: influences of every quilt, shared between nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.core.value import Floats
from shoal.loss.influence import (
    Indices,
    future_log_ratio,
    largest,
    law_log_ratio,
    past_log_ratio,
)
from shoal.loss.kernels import UNIT, Bools, Powers, Segments, Walk, log_bounds, next_support

LONGEST_CYCLE = 4096  # steps after which supports that do not repeat count as never repeating
CLOSE = 2.0  # a many-step law this narrow (projective diameter) contracts by tanh(1/2) < 0.47


@dataclass(frozen=True, slots=True)
class Settled:
    """From entry `first` on, law ratios a period apart differ by at most `slack`."""

    first: int
    slack: float


class ChainNodes:
    """One chain (transition, initial law): supports, laws and influences, each computed once.

    `transition` is (k, k), or one matrix per step. Supports of a homogeneous chain repeat from
    entry `cycle` on with period `period`; `cycle` is None when no repetition was found.
    """

    def __init__(self, transition: Floats, initial: Floats) -> None:
        self.homogeneous = transition.ndim == 2
        self.walk: Walk = Powers(transition) if self.homogeneous else Segments(transition)
        self.settled: Settled | None = None
        self.cycle: int | None = None
        self.period = 1
        self._transition = transition
        self._laws = [initial]
        self._supports = self._follow(initial > 0)
        self._keys = [support.tobytes() for support in self._supports]
        self._values = [np.flatnonzero(support) for support in self._supports]
        self._future: dict[tuple[int, bytes], Floats] = {}
        self._past: dict[tuple[int, bytes, bytes], Floats] = {}

    def secrets(self, node: int) -> Indices:
        """The values entry `node` can take."""
        return self._values[self._place(node)]

    def law(self, node: int) -> Floats:
        """The law of entry `node`, which may underflow to 0 on possible values."""
        while len(self._laws) <= node:
            self._laws.append(self._laws[-1] @ self._matrix(len(self._laws) - 1))
        return self._laws[node]

    def law_ratio(self, node: int) -> Floats:
        """log P(X_i = x') - log P(X_i = x) over the values of i = node. Rounds up."""
        slack = 0.0
        if self.settled is not None and node >= self.settled.first:
            slack = self.settled.slack
            node = self.settled.first + (node - self.settled.first) % self.period
        support = self._supports[self._place(node)]
        return law_log_ratio(self.law(node), support, node, self.secrets(node)) + slack

    def future(self, node: int, lag: int) -> Floats:
        """F of the end-point `lag` steps after `node`."""
        where = lag, self._keys[self._place(node)]
        found = self._future.get(where)
        if found is None:
            found = future_log_ratio(self.walk.kernel(node, lag), self.secrets(node))
            if self.homogeneous:
                self._future[where] = found
        return found

    def past(self, node: int, lag: int) -> Floats:
        """L of the end-point `lag` steps before `node`."""
        origin, place = self._place(node - lag), self._place(node)
        where = lag, self._keys[origin], self._keys[place]
        found = self._past.get(where)
        if found is None:
            kernel = self.walk.kernel(node - lag, lag)
            found = past_log_ratio(kernel, self._values[origin], self._values[place])
            if self.homogeneous:
                self._past[where] = found
        return found

    def certain(self, length: int) -> int | None:
        """The last entry before `length` that is known to take one value, where supports repeat."""
        known = [t for t, values in enumerate(self._values[:length]) if len(values) == 1]
        return max(known, default=None)

    def _matrix(self, step: int) -> Floats:
        matrix: Floats = self._transition if self.homogeneous else self._transition[step]
        return matrix

    def _follow(self, support: Bools) -> list[Bools]:
        """Supports of the entries, up to the first repetition on a homogeneous chain."""
        supports, seen = [support], {support.tobytes(): 0}
        steps = LONGEST_CYCLE if self.homogeneous else len(self._transition)
        for step in range(steps):
            support = next_support(support, self._matrix(step))
            first = seen.setdefault(support.tobytes(), step + 1)
            if self.homogeneous and first <= step:
                self.cycle, self.period = first, step + 1 - first
                break
            supports.append(support)
        return supports

    def _place(self, node: int) -> int:
        """The stored entry with the same support as `node`."""
        if self.cycle is None or node < self.cycle:
            return node
        return self.cycle + (node - self.cycle) % self.period


class NodeInfluence:
    """e({i-a, i+b} | X_i) of one node i as a function of the lags; None is an absent end-point.

    max over x, x' of B_a(x, x') + F_b(x, x'), with B_a = L_a + law ratio. Rounds up.
    """

    def __init__(self, chain: ChainNodes, node: int) -> None:
        self._chain, self._node = chain, node
        self._law_ratio: Floats | None = None
        self._past: dict[int, Floats] = {}
        self._future: dict[int, Floats] = {}

    def __call__(self, left: int | None, right: int | None) -> float:
        if left is None:
            return 0.0 if right is None else largest(self._after(right))
        before = self._before(left)
        return largest(before if right is None else before + self._after(right))

    def _after(self, lag: int) -> Floats:
        found = self._future.get(lag)
        if found is None:
            found = self._future[lag] = self._chain.future(self._node, lag)
        return found

    def _before(self, lag: int) -> Floats:
        found = self._past.get(lag)
        if found is None:
            if self._law_ratio is None:
                self._law_ratio = self._chain.law_ratio(self._node)
            found = self._chain.past(self._node, lag) + self._law_ratio
            self._past[lag] = found
        return found


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
        future = chain.future(start, steps)
        diameter = float((future + future.T).max()) if future.size else 0.0
        if diameter <= CLOSE:
            return steps, math.tanh(diameter / 4.0)
        if math.isinf(diameter) and steps >= chain.period * ((size - 1) ** 2 + 1):
            return None
        steps *= 2
    return None


def settle(chain: ChainNodes, tolerance: float, last: int | None) -> Settled | None:
    """Where the laws stop changing: the first entry from which `slack` is at most `tolerance`.

    Let H be Hilbert's metric, H(u, v) = max over x, x' of log u(x)v(x') / (u(x')v(x)), which is the
    largest difference between two law ratios. A step never increases H, and n steps multiply it
    by at most tau (Birkhoff). With π the limit law, H(m, π) <= H(m, mPⁿ)/(1 - tau), so every later
    entry of the same phase is within 2 H(m, mPⁿ)/(1 - tau). When rounding keeps that above the
    tolerance the smallest value reached is returned. None when the laws do not settle by `last`.
    """
    found = contraction(chain)
    if found is None or chain.cycle is None:
        return None
    steps, factor = found
    previous, node = math.inf, chain.cycle
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
    if min(law[values].min(), moved[values].min()) < 1e-280:
        return math.inf
    width = len(law) + 2
    present = log_bounds(law[values], law[values] > 0, 1)
    later = log_bounds(moved[values], moved[values] > 0, (steps + 1) * width)
    change = later.upper - present.upper
    spread = float(change.max() - change.min()) + 2.0 * (present.error + later.error)
    return 2.0 * spread / (1.0 - factor) + 4.04 * (node + 1) * width * UNIT
