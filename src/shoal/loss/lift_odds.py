"""How far the odds of an earlier entry can differ between two values, whatever its law."""

from __future__ import annotations

import numpy as np

from shoal.loss.cone import Bools, Floats
from shoal.loss.kernels import Powers, kernel_logs, next_support


class Odds:
    """Which states a chain can be in after t steps from anywhere, and the spreads δ of its powers.

    stable is the first t from which on the reachable states stay the same.
    """

    def __init__(self, walk: Powers) -> None:
        self._walk = walk
        self._spreads: dict[tuple[int, int], Floats] = {}
        self._stack: Floats = np.empty((0, walk.size, walk.size))
        transition = walk.kernel(0, 1).values
        self._reach = [np.ones(walk.size, dtype=np.bool_)]
        while True:
            wider = next_support(self._reach[-1], transition)
            if np.array_equal(wider, self._reach[-1]):
                break
            self._reach.append(wider)
        self.stable = len(self._reach) - 1

    def reach(self, steps: int) -> Bools:
        """The states that some first law makes possible after `steps` steps."""
        return self._reach[min(steps, self.stable)]

    def told(self, entries: int, growths: Floats, eta: float, lags: int) -> Floats:
        """min over a = 1 … lags of  (a-1)·eta + L(g_a, δ_a), for a node with `entries` before it.

        g_a = growths[a-1] bounds how far the function of the entry a steps back can grow.
        """
        if entries - lags >= self.stable:
            spreads = self._stacked(lags)
        else:
            spreads = np.array([self.spread(a, entries - a) for a in range(1, lags + 1)])
        prices = eta * np.arange(lags)[:, None, None]
        shown = prices + two_odds(growths[:lags, None, None], spreads)
        return np.asarray(shown.min(axis=0))

    def largest(self, growth: Floats, before: int) -> float:
        """The largest growth between states possible after `before` steps."""
        reach = self.reach(before)
        return float(growth[np.ix_(reach, reach)].max())

    def _stacked(self, lags: int) -> Floats:
        """δ_1, …, δ_lags over the states that stay reachable, kept together."""
        kept = self._stack
        if len(kept) < lags:
            more = range(len(kept) + 1, max(lags, 2 * len(kept)) + 1)
            kept = np.array([*kept, *(self.spread(a, self.stable) for a in more)])
            self._stack = kept
        return kept[:lags]

    def spread(self, lag: int, before: int) -> Floats:
        """δ(x,x') = log max over y, z of P^lag(y,x) P^lag(z,x') / (P^lag(z,x) P^lag(y,x')).

        y and z range over the states possible after `before` steps; those that lead to neither
        value drop out. inf when some state leads to one value only. Rounds up.
        """
        key = lag, min(before, self.stable)
        if key not in self._spreads:
            self._spreads[key] = self._spread(*key)
        return self._spreads[key]

    def _spread(self, lag: int, before: int) -> Floats:
        kernel = self._walk.kernel(0, lag)
        logs = kernel_logs(kernel)
        rows = self.reach(before)
        upper, lower = logs.upper[rows], logs.lower[rows]
        either = kernel.possible[rows]
        either = either[:, :, None] | either[:, None, :]
        with np.errstate(invalid="ignore"):
            high = np.where(either, upper[:, :, None] - lower[:, None, :], -np.inf).max(axis=0)
            low = np.where(either, lower[:, :, None] - upper[:, None, :], np.inf).min(axis=0)
            gap = high - low
        spread = np.where(np.isnan(gap), np.inf, gap + 4.0 * logs.error * (gap != 0.0))
        spread[~either.any(axis=0)] = 0.0
        np.fill_diagonal(spread, 0.0)
        return spread


def two_odds(growth: Floats | float, spread: Floats) -> Floats:
    """L(g, δ) with tanh(L/4) = tanh(g/4)·tanh(δ/4): the most two laws with odds within e^δ show.

    e^{L/2} = (1 + e^{(g+δ)/2}) / (e^{g/2} + e^{δ/2}). Rounds up; L(inf, δ) = δ, L(g, inf) = g.
    """
    half, other = np.broadcast_arrays(np.asarray(growth) / 2.0, spread / 2.0)
    near, small = np.minimum(half, 20.0), np.minimum(other, 20.0)
    excess = np.expm1(near) * np.expm1(small) / (np.exp(near) + np.exp(small))
    top, low = np.minimum(np.maximum(half, other), 1e6), np.minimum(np.minimum(half, other), 1e6)
    # beyond 20 the smaller exponential decides: 1 + e^{g/2 + δ/2} over e^top (1 + e^{low - top})
    large = low + np.log1p(np.exp(-top - low)) - np.log1p(np.exp(low - top))
    value = np.where(top > 20.0, large + 1e-12, np.log1p(excess)) * (2.0 + 4e-14)
    least = np.minimum(2.0 * half, 2.0 * other)
    return np.asarray(np.where(np.isinf(least), np.inf, np.minimum(value, least)))


def both(states: Bools) -> Bools:
    """Pairs of which both states are marked."""
    return np.asarray(states[:, None] & states[None, :])
