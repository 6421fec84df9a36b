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

    def lower(self, best: Floats, lag: int, before: int, growth: Floats, price: float) -> None:
        """best becomes min(best, price + L(g, δ_lag)) in place, g the largest growth.

        The entry `lag` back has `before` entries before it, which limits the states it can take.
        """
        reach = self.reach(before)
        largest = float(growth[np.ix_(reach, reach)].max())
        np.minimum(best, price + two_odds(largest, self.spread(lag, before)), out=best)

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


def two_odds(growth: float, spread: Floats) -> Floats:
    """L(g, δ) with tanh(L/4) = tanh(g/4)·tanh(δ/4): the most two laws with odds within e^δ show.

    e^{L/2} = (1 + e^{(g+δ)/2}) / (e^{g/2} + e^{δ/2}). Rounds up; L(inf, δ) = δ, L(g, inf) = g.
    """
    if np.isinf(growth):
        return spread
    half, other = growth / 2.0, np.minimum(spread, 1400.0) / 2.0
    far = np.maximum(half, other) > 20.0
    small = np.where(far, 0.0, other)
    near_half = min(half, 20.0)
    excess = np.expm1(near_half) * np.expm1(small) / (np.exp(near_half) + np.exp(small))
    direct = 2.0 * np.log1p(excess)
    large = 2.0 * (np.logaddexp(0.0, half + other) - np.logaddexp(half, other))
    value = np.where(far, large + 1e-12, direct) * (1.0 + 1e-14)
    return np.minimum(np.minimum(value, growth), spread)


def both(states: Bools) -> Bools:
    """Pairs of which both states are marked."""
    return np.asarray(states[:, None] & states[None, :])
