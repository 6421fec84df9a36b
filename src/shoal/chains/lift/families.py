"""How far the odds of an earlier entry can differ between two values, under any law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shoal.chains.lift.side import (
    LiftLoss,
    LiftSide,
    Searched,
    deciding_nodes,
    future_side,
    limit_worth,
    past_side,
)
from shoal.chains.lift.solver import FixedPoint, certified_fixed_point
from shoal.chains.lift.step import Ahead, Behind, EntryMetric, behind, off_diagonal
from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError
from shoal.core.progress import in_time
from shoal.core.walk import Powers, kernel_logs, next_support
from shoal.mechanisms.cone import CEILING, Memory, Rule, bearable_rule


class Odds:
    """Which states a chain can be in after t steps from anywhere, and the spreads δ of its powers.

    stable is the first t from which on the reachable states stay the same.
    """

    def __init__(self, walk: Powers) -> None:
        """Keep the walk, and find the states that can be reached after 0, 1, 2, … entries.

        The supports only shrink; `stable` is the number of entries after which they stay the same.
        """
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

    def least_bound(self, entries: int, growths: Floats, eta: float, lags: int) -> Floats:
        """min over a = 1 … lags of  (a-1)·eta + L(g_a, δ_a), for a node with `entries` before it.

        g_a = growths[a-1] bounds how far the function of the entry a steps back can grow.
        """
        if entries - lags >= self.stable:
            spreads = self._stack_lags(lags)
        else:
            spreads = np.array([self.spread(a, entries - a) for a in range(1, lags + 1)])
        prices = eta * np.arange(lags)[:, None, None]
        shown = prices + two_odds(growths[:lags, None, None], spreads)
        return np.asarray(shown.min(axis=0))

    def largest(self, growth: Floats, before: int) -> float:
        """The largest growth between states possible after `before` steps."""
        reach = self.reach(before)
        return float(growth[np.ix_(reach, reach)].max())

    def _stack_lags(self, lags: int) -> Floats:
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
            self._spreads[key] = self._lag_range(*key)
        return self._spreads[key]

    def _lag_range(self, lag: int, before: int) -> Floats:
        """Return δ: how far the odds of an entry `lag` earlier can differ between two values.

        (states, states), in log-ratio, over the states reachable after `before` entries. Rounds up.
        Infinite for two values one of which excludes an earlier state that the other allows.
        """
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


# The lift of all chains with one transition matrix, with any law of the first entry.
#
# The future does not depend on the first entry's law. Of the past, two bounds hold for every law:
#
# * Compare X_{i-a} given X_i = x and x'. Its odds between two sets differ by at most e^δ,
# δ_a(x,x') = log max P^a(y,x) P^a(z,x') / (P^a(z,x) P^a(y,x')), and v by at most e^g, so the
# log-ratio is at most L(g, δ), tanh(L/4) = tanh(g/4) tanh(δ/4): the lag-a term with the worst law.
# * Split by the first entry: given X_1 = s the past is that of a chain that starts in s, and the
# law   of s itself is compared at full length: max_s D^{X_1 = s}(x,x') + L(tη, δ_t), t entries
# back.
#
# Both are computed and the smaller counts. Proof: shoal/mechanisms/lift.md. Rounds up.


ENTRIES_FOLLOWED = 256  # entries back that are followed one by one
WORTH = 2_000  # entries the second bound may follow, over all states; beyond, it is left out


@dataclass(frozen=True, eq=False)
class AnyInitialLift(Searched):
    """A transition matrix and a metric per unit of eta, ready for any eta and any first law."""

    transition: Floats
    metric: EntryMetric
    length: int | None

    @classmethod
    def of(
        cls, transition: npt.ArrayLike, metric: npt.ArrayLike | EntryMetric, length: int | None
    ) -> AnyInitialLift:
        """The lift of the family given by plain arrays, checked for shape."""
        matrix = np.asarray(transition, dtype=np.float64)
        entry = metric if isinstance(metric, EntryMetric) else EntryMetric.of(metric)
        if matrix.ndim != 2 or matrix.shape != entry.metrics[0].shape:
            raise InputError(
                f"transition has shape {matrix.shape} and metric {entry.metrics[0].shape}; "
                "both must be square and of one size"
            )
        return cls(matrix, entry, length)

    @cached_property
    def rule(self) -> Rule:
        return bearable_rule(self.transition)

    @property
    def size(self) -> int:
        return len(self.transition)

    @property
    def unit(self) -> float:
        return self.metric.eta

    def endless(self) -> AnyInitialLift:
        """The same family at any length."""
        return self if self.length is None else AnyInitialLift(self.transition, self.metric, None)

    def loss(
        self,
        eta: float = 1.0,
        rule: Rule | None = None,
        start: LiftLoss | None = None,
        enough: float = CEILING,
        memory: Memory | None = None,
    ) -> LiftLoss:
        """The largest loss over all first laws, at metric · eta. Rounds up.

        A value is a secret at a node if some first law makes it possible there.
        """
        rule, memory = rule or self.rule, Memory() if memory is None else memory
        entry = self.metric.scaled_by(eta)
        count = None if self.length is None else self.length - 1
        enough = limit_worth(self.size, count, entry.eta, enough)
        guess = None if start is None else start.guesses(eta, rule)[0]
        ahead = self._ahead.remembering(memory["future"])
        future = future_side(ahead, entry, count, rule, guess, enough)
        starts = [past.remembering(memory, f"from {s}") for s, past in enumerate(self._starts)]
        sides = [past_side(past, entry, count, rule, None, enough) for past in starts]
        past = self._past(entry, count, sides, enough)
        others = np.inf if count is None else count * entry.eta
        worst = LiftLoss.none(rule, eta, others, future.limit, past.limit)
        for node in deciding_nodes(self.length, future, past):
            after = None if count is None else count - node
            before = None if count is None and node > past.last else node
            possible = self._odds.reach(node)
            worst = worst.or_at(node, possible, entry.metrics[0], future.at(after), past.at(before))
        return worst

    @cached_property
    def _ahead(self) -> Ahead:
        return Ahead(Powers.of(self.transition))

    @cached_property
    def _odds(self) -> Odds:
        return Odds(Powers.of(self.transition))

    @cached_property
    def _starts(self) -> list[Behind]:
        """The pasts of the chains that start in each state; none when that is too much work."""
        size = len(self.transition)
        count = None if self.length is None else self.length - 1
        walk = Powers.of(self.transition)
        starts = [behind(np.eye(size)[s], walk, count) for s in range(size)]
        return starts if sum(start.last for start in starts) <= WORTH else []

    def _past(
        self, entry: EntryMetric, count: int | None, sides: list[LiftSide], enough: float
    ) -> LiftSide:
        """D_t over all first laws: step by step up to STEPS, then one bound for all t."""
        size, metric = len(self.transition), entry.metrics[0]
        explicit = [off_diagonal(size, 0.0)]
        growths = [self._odds.largest(metric, 0)]
        for t in range(
            1, (ENTRIES_FOLLOWED if count is None else min(count, ENTRIES_FOLLOWED)) + 1
        ):
            bound = off_diagonal(size, t * entry.eta * (1.0 + 2.0**-52))
            lags = min(t, 2 + int(explicit[-1].max() / entry.eta)) if entry.eta > 0.0 else 1
            candidate = self._odds.least_bound(t, np.array(growths[::-1]), entry.eta, lags)
            bound = np.minimum(np.minimum(bound, candidate), self._split(t, sides, entry))
            explicit.append(bound)
            growths.append(self._odds.largest(metric + bound, t))
        endless = FixedPoint.unknown(size)
        if count is None or count > ENTRIES_FOLLOWED:
            endless = FixedPoint(self._bound_beyond(explicit, sides, entry, enough), (1,))
        return LiftSide(np.array(explicit), entry.eta, endless, off_diagonal(size, np.inf), 0.0)

    def _split(self, t: int, sides: list[LiftSide], entry: EntryMetric) -> Floats:
        """max over s of D^{X_1 = s} + L(tη, δ_t); inf when the second bound is left out."""
        size = len(self.transition)
        if not sides:
            return off_diagonal(size, np.inf)
        inside = np.zeros((size, size))
        for side, start in zip(sides, self._starts, strict=True):
            here = start.support(t)
            inside = np.maximum(inside, np.where(both(here), side.at(t), 0.0))
        return inside + two_odds(t * entry.eta, self._odds.spread(t, 0))

    def _bound_beyond(
        self, explicit: list[Floats], sides: list[LiftSide], entry: EntryMetric, enough: float
    ) -> Floats:
        """A bound for every t beyond those followed, by either of the two bounds."""
        odds, last = self._odds, len(explicit) - 1
        lags = last - odds.stable
        reached = both(odds.reach(last))

        def step(bound: Floats) -> Floats:
            in_time("the lift")
            growth = np.full(lags, odds.largest(entry.metrics[0] + bound, last))
            candidate = odds.least_bound(last, growth, entry.eta, lags)
            return np.where(reached, candidate, 0.0)

        if lags < 1:
            return self._split_beyond(last, sides)
        seen = np.where(reached, np.max(explicit[-lags - 1 :], axis=0), 0.0)
        found = certified_fixed_point(step, np.where(reached, explicit[-1], 0.0), enough)
        if not (seen <= found).all():
            found = np.maximum(found, seen) * (1.0 + 1e-9)
            found = found if (step(found) <= found).all() else off_diagonal(len(found), np.inf)
        return np.minimum(found, self._split_beyond(last, sides))

    def _split_beyond(self, last: int, sides: list[LiftSide]) -> Floats:
        """The second bound for every t > last: δ only falls with t, and L(g, δ) ≤ δ."""
        size = len(self.transition)
        if not sides or any(start.settled is None for start in self._starts):
            return off_diagonal(size, np.inf)
        inside = np.zeros((size, size))
        for side, start in zip(sides, self._starts, strict=True):
            for t in range(last + 1, side.last + 1):
                inside = np.maximum(inside, np.where(both(start.support(t)), side.at(t), 0.0))
            later = np.where(both(start.possible[-1]), side.limit.bound, 0.0)
            inside = np.maximum(inside, later)
        return inside + self._odds.spread(last, 0)
