"""Entries of a chain and their max-influence: how far the law of others moves when one changes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError
from shoal.core.walk import (
    DIGITS_LOST,
    UNIT,
    KernelSegments,
    LogBounds,
    Powers,
    PowerWalk,
    kernel_logs,
    log_bounds,
    next_support,
)

# a many-step law this narrow (projective diameter) contracts by tanh(1/2) < 0.47
NARROW_DIAMETER = 2.0


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
        if diameter <= NARROW_DIAMETER:
            future = chain.future(start, steps)
            diameter = float((future + future.T).max())
        if diameter <= NARROW_DIAMETER:
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
        slack = _forgetting_slack(chain, node, steps, factor)
        if slack <= tolerance or (slack < 1e-6 and slack > 0.9 * previous):
            return Settled(node, slack)
        previous, node = slack, node + steps
    return None


def _forgetting_slack(chain: ChainNodes, node: int, steps: int, factor: float) -> float:
    """Return by how much the log-law of `node` may still move after `steps` more entries. Rounds
    up.

    The changes of `steps` entries shrink by `factor` at every repetition. Infinite where
    probabilities are too small to bound the rounding.
    """
    law = chain.law(node)
    moved = law @ chain.walk.kernel(node, steps).values
    values = chain.secrets(node)
    if min(law[values].min(), moved[values].min()) < DIGITS_LOST:
        return math.inf
    width = len(law) + 2
    present = log_bounds(law[values], law[values] > 0, 1)
    later = log_bounds(moved[values], moved[values] > 0, (steps + 1) * width)
    change = later.upper - present.upper
    spread = float(change.max() - change.min()) + 2.0 * (present.error + later.error)
    return 2.0 * spread / (1.0 - factor) + 4.04 * (chain.roundings(node) + 1) * width * UNIT


# The nodes of one chain as quilt problems: influences of every quilt, shared between nodes.


LONGEST_CYCLE = 4096  # steps after which supports that do not repeat count as never repeating


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
        """Keep the chain's matrices and follow the supports of its entries from the initial
        law on.
        """
        self.homogeneous = transition.ndim == 2
        self.walk: PowerWalk = (
            Powers.of(transition) if self.homogeneous else KernelSegments(transition)
        )
        self.mixing: tuple[int, float] | None = None
        self.settled: Settled | None = None
        self.cycle: int | None = None
        self.period = 1
        self._transition = transition
        self._laws = [initial]
        self._supports = self._follow(initial > 0)
        self._keys = [support.tobytes() for support in self._supports]
        self._values = [np.flatnonzero(support) for support in self._supports]
        self._logs: dict[int, LogBounds] = {}
        self._future: dict[tuple[int, bytes], Floats] = {}
        self._past: dict[tuple[int, bytes, bytes], Floats] = {}

    def secrets(self, node: int) -> Indices:
        """The values entry `node` can take."""
        return self._values[self._stored_entry(node)]

    def law(self, node: int) -> Floats:
        """The law of entry `node`, which may underflow to 0 on possible values."""
        while len(self._laws) <= node:
            self._laws.append(self._laws[-1] @ self._matrix(len(self._laws) - 1))
        return self._laws[node]

    def roundings(self, node: int) -> int:
        """How many steps of rounding the law of entry `node` can show.

        Steps n and factor tau of `mixing`: an error of the law shrinks by tau in n steps, so that
        never more than about n(1 + 1/(1-tau)) steps of it are left.
        """
        if self.mixing is None:
            return node
        steps, factor = self.mixing
        return min(node, (self.cycle or 0) + math.ceil(steps * (1.0 + 1.0 / (1.0 - factor))))

    def law_ratio(self, node: int) -> Floats:
        """log P(X_i = x') - log P(X_i = x) over the values of i = node. Rounds up."""
        ratio: Floats = self.law_ratios(range(node, node + 1))[0]
        return ratio

    def law_ratios(self, nodes: range) -> Floats:
        """The law ratio of each of some consecutive nodes with the same values. Rounds up."""
        slack = 0.0
        if self.settled is not None and nodes[-1] >= self.settled.first:
            if nodes[0] < self.settled.first:
                middle = self.settled.first - nodes[0]
                parts = self.law_ratios(nodes[:middle]), self.law_ratios(nodes[middle:])
                return np.concatenate(parts)
            first, slack = self.settled.first, self.settled.slack
            places = [first + (node - first) % self.period for node in nodes]
        else:
            places = list(nodes)
        laws = np.array([self.law(place) for place in places])
        support = self._supports[self._stored_entry(nodes[0])]
        return law_log_ratios(laws, support, self.roundings(max(places))) + slack

    def future(self, node: int, lag: int) -> Floats:
        """F of the end-point `lag` steps after `node`."""
        where = lag, self._keys[self._stored_entry(node)]
        found = self._future.get(where)
        if found is None:
            found = future_log_ratio(self.logs(node, lag), self.secrets(node))
            if self.homogeneous:
                self._future[where] = found
        return found

    def past(self, node: int, lag: int) -> Floats:
        """L of the end-point `lag` steps before `node`."""
        origin, place = self._stored_entry(node - lag), self._stored_entry(node)
        where = lag, self._keys[origin], self._keys[place]
        found = self._past.get(where)
        if found is None:
            logs = self.logs(node - lag, lag)
            found = past_log_ratio(logs, self._values[origin], self._values[place])
            if self.homogeneous:
                self._past[where] = found
        return found

    def logs(self, start: int, steps: int) -> LogBounds:
        """Logarithms of the law of entry start+steps given entry `start`."""
        found = self._logs.get(steps)
        if found is None:
            found = kernel_logs(self.walk.kernel(start, steps))
            if self.homogeneous:
                self._logs[steps] = found
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

    def _stored_entry(self, node: int) -> int:
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
        self._secrets = chain.secrets(node)
        self._law_ratio: Floats | None = None
        self._past: dict[int, Floats] = {}
        self._future: dict[int, Floats] = {}

    def __call__(self, left: int | None, right: int | None) -> float:
        """Return the influence on the entries `left` before and `right` after the node.

        None stands for a side without an end-point. In log-ratio; rounds up.
        """
        if left is None:
            return 0.0 if right is None else self._right_only(right)
        moved = self._before(left)
        if right is not None:
            moved = moved + self._future_law(right)
        return largest(moved)

    def _right_only(self, lag: int) -> float:
        top = future_top(self._chain.logs(self._node, lag), self._secrets)
        return top * (1.0 + 4.0 * UNIT)

    def _future_law(self, lag: int) -> Floats:
        found = self._future.get(lag)
        if found is None:
            found = self._future[lag] = self._chain.future(self._node, lag)
        return found

    def _before(self, lag: int) -> Floats:
        found = self._past.get(lag)
        if found is None:
            found = self._past[lag] = self._chain.past(self._node, lag) + self._ratio()
        return found

    def _ratio(self) -> Floats:
        if self._law_ratio is None:
            self._law_ratio = self._chain.law_ratio(self._node)
        return self._law_ratio


Indices = npt.NDArray[np.intp]

BLOCK = 1 << 21  # numbers held at once while comparing rows


def max_influence(transition: Floats, initial: Floats, node: int, quilt: Iterable[int]) -> float:
    """How far the quilt's law can move, in log-ratio, when X[node] changes.

    max over x, x', q of  log P(X_Q = q | X_i = x) - log P(X_Q = q | X_i = x'),
    with i = node and Q = quilt, both counted from 0. `transition` is (k, k) or one matrix per
    step. Only the nearest quilt node on each side matters: the others are independent of X_i
    given it. Values X_i never takes are not secrets and values of probability 0 are not in Q's
    range. Rounds up; inf when some q is possible under x and impossible under x'.
    Song, Wang & Chaudhuri 2017, Definition 4.1 and Eq. (5).
    """
    nodes = sorted(set(quilt))
    if node in nodes or (nodes and nodes[0] < 0) or node < 0:
        raise InputError(f"quilt is {nodes} for node {node}; nodes count from 0 and exclude it")
    before = [other for other in nodes if other < node]
    after = [other for other in nodes if other > node]
    left, right = node - before[-1] if before else None, after[0] - node if after else None
    return NodeInfluence(ChainNodes(transition, initial), node)(left, right)


def future_log_ratio(logs: LogBounds, secrets: Indices) -> Floats:
    """F(x, x') = max over y of log P(X_{i+b} = y | X_i = x) - log P(X_{i+b} = y | X_i = x').

    `logs` are those of the b-step law after X_i; x, x' run over `secrets`. Rounds up; 0/0 is no
    constraint, c/0 is inf. At least 0, and non-increasing in b (data processing).
    """
    return _largest_gap(logs.upper[secrets], logs.lower[secrets], logs.error)


def past_log_ratio(logs: LogBounds, origins: Indices, secrets: Indices) -> Floats:
    """L(x, x') = max over y in origins of log P(X_i = x | X_{i-a} = y) - log P(X_i = x' | …).

    `logs` are those of the a-step law before X_i. The reversed log-ratio B(x, x') of Eq. (5) is L
    plus `law_log_ratios`. Rounds up; 0/0 is no constraint, c/0 is inf.
    """
    columns = np.ix_(origins, secrets)
    return _largest_gap(logs.upper[columns].T, logs.lower[columns].T, logs.error)


def future_top(logs: LogBounds, secrets: Indices) -> float:
    """The largest F(x, x') over all pairs, without the table of pairs."""
    upper, lower = logs.upper[secrets].max(axis=0), logs.lower[secrets].min(axis=0)
    with np.errstate(invalid="ignore"):
        gap = np.fmax.reduce(upper - lower, initial=0.0)
    return float(gap) + 2.0 * logs.error


def law_log_ratios(laws: Floats, support: Bools, steps: int) -> Floats:
    """r(x, x') = log P(X_i = x') - log P(X_i = x) over the values of X_i, one table a law.

    `laws` (one a row, all with this support) are at most `steps` products from the initial law.
    Rounds up; inf where underflow leaves P(X_i = x) without digits.
    """
    values = laws[:, support]
    logs = log_bounds(values, values >= 0.0, (steps + 1) * (len(support) + 2))
    gap = logs.upper[:, None, :] - logs.lower[:, :, None]
    return np.asarray(gap + 2.0 * logs.error)


def largest(moved: Floats) -> float:
    """The largest entry, at least 0 (x = x' always gives 0). Rounds up the sums behind it."""
    return max(0.0, float(moved.max()) * (1.0 + 4.0 * UNIT)) if moved.size else 0.0


def _largest_gap(upper: Floats, lower: Floats, error: float) -> Floats:
    """max over y of upper[x, y] - lower[x', y], for all x and x', raised by the error."""
    count, width = upper.shape
    result = np.empty((count, count))
    # y comes first: reducing the slowest axis is several times faster
    above, below = np.ascontiguousarray(upper.T), np.ascontiguousarray(lower.T)
    rows = max(1, BLOCK // max(1, count * width))
    with np.errstate(invalid="ignore"):  # -inf - (-inf) is 0/0: fmax passes over it
        for first in range(0, count, rows):
            gap = above[:, first : first + rows, None] - below[:, None, :]
            result[first : first + rows] = np.fmax.reduce(gap, axis=0, initial=-math.inf)
    return np.asarray(result + 2.0 * error)
