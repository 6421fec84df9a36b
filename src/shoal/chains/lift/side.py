"""What the entries on one side of a node can tell about it, for every number of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.additive.cone import CEILING, Rule, closure, leak
from shoal.chains.lift.fixed_point import FixedPoint, limit
from shoal.chains.lift.laws import Ahead, Behind, Steps
from shoal.chains.lift.step import EntryMetric, History, image, next_bound, off_diagonal
from shoal.chains.walk import Powers
from shoal.core.codec import Floats

SPAN = 64  # a chain this many times longer than the leak reaches is as good as endless
NEAR = 1e-6  # relative distance to the limit at which explicit steps stop
SHORT = (
    32  # entries up to which each number of them is followed, in milliseconds, and no limit sought
)
ENDLESS = 256  # explicit steps when there is no finite limit
WORK = 1e10  # entries × states³ beyond which steps one by one take minutes: the limit serves alone
MEMORY = 4_000_000  # numbers kept for explicit steps
WAIT = 8  # steps between two tries to cover all later entries


@dataclass(frozen=True, slots=True, eq=False)
class LiftSide:
    """D_n for n = 0, 1, …: step by step up to N, and one bound for all n beyond.

    Beyond N an entry is bounded by its limit (certified for every n) where that is finite, else
    by onward + (n - N - 1)·slope, which grows as fast as the last step did (see `_onward`), and
    where that is not known either by n·eta: constant or linear in n.
    """

    explicit: Floats
    eta: float
    limit: FixedPoint
    onward: Floats
    slope: float

    @property
    def last(self) -> int:
        return len(self.explicit) - 1

    def at(self, entries: int | None) -> Floats:
        """D_n for n = entries, or a bound for all n. Rounds up."""
        bound = self.limit.bound
        if entries is None:
            return bound
        if entries <= self.last:
            row: Floats = self.explicit[entries]
            return row
        size = len(bound)
        whole = off_diagonal(size, entries * self.eta)
        grown = self.onward + off_diagonal(size, (entries - self.last - 1) * self.slope)
        beyond = np.where(np.isfinite(bound), bound, grown)
        return np.where(np.isfinite(beyond), beyond, whole) * (1.0 + 2.0**-51)


def deciding_nodes(length: int | None, future: LiftSide, past: LiftSide) -> list[int]:
    """The nodes among which the worst one is.

    Where neither side is explicit the bounds are constant or linear in the position, so the two
    ends of that stretch stand for it; at any length its first node does.
    """
    if length is None:
        return list(range(past.last + 2))
    early = range(min(past.last + 2, length))
    late = range(max(0, length - future.last - 2), length)
    return sorted({*early, *late})


def future_side(
    ahead: Ahead,
    entry: EntryMetric,
    count: int | None,
    rule: Rule,
    start: FixedPoint | None = None,
    enough: float = CEILING,
) -> LiftSide:
    """D_n of a homogeneous chain for n up to `count` entries on one side; None for any number."""
    settled = FixedPoint.unknown(len(ahead.pairs))
    if count is None or count > SHORT:
        settled = limit(ahead, entry, rule, start, enough)
    bound = settled.bound
    none = off_diagonal(len(bound), 0.0)
    history = History(none)
    explicit = [none]
    for n in range(1, _explicit_steps(bound, ahead, entry, count) + 1):
        step = np.minimum(bound, next_bound(n, history, ahead, entry, rule))
        history.append(step)
        explicit.append(step)
        if (step >= bound * (1.0 - NEAR))[ahead.pairs].all():
            break
    onward, slope = _onward(explicit[-1], bound, ahead, entry, rule)
    return LiftSide(np.array(explicit), entry.eta, settled, onward, slope)


def stepwise_future(steps: Steps, entry: EntryMetric, count: int, rule: Rule) -> LiftSide:
    """D_n of a chain with one matrix per step: n entries follow node count - n."""
    size = steps.walk.size
    explicit = [off_diagonal(size, 0.0)]
    history = History(explicit[0])
    for n in range(1, count + 1):
        history.append(next_bound(n, history, steps.at(count - n), entry, rule))
        explicit.append(history.bounds[-1])
    return LiftSide(
        np.array(explicit), entry.eta, FixedPoint.unknown(size), off_diagonal(size, np.inf), 0.0
    )


def past_side(
    past: Behind,
    entry: EntryMetric,
    count: int | None,
    rule: Rule,
    start: FixedPoint | None = None,
    enough: float = CEILING,
) -> LiftSide:
    """D_t of the past for t up to `count` entries before a node; None for any number.

    From a stationary start this is the future of the reversed chain. From another start, steps
    are taken one by one until the law has settled and a bound that the settled step maps below
    itself covers every step it looks back on.
    """
    if past.settled == 0 and past.reversal is not None:
        return future_side(past.reversal, entry, count, rule, start, enough)
    size = past.walk.size
    settled = FixedPoint.unknown(size)
    if past.reversal is not None and (count is None or count > SHORT):
        settled = limit(past.reversal, entry, rule, start, enough)
    explicit = [off_diagonal(size, 0.0)]
    history = History(explicit[0])
    for t in range(1, _steps_back(past, settled, count) + 1):
        history.append(next_bound(t, history, past.at(t), entry, rule))
        explicit.append(history.bounds[-1])
        covered = _covering(explicit, past, settled, entry, rule)
        if covered is not None:
            return LiftSide(np.array(explicit), entry.eta, covered, covered.bound, 0.0)
    onward, slope = off_diagonal(size, np.inf), 0.0
    if past.reversal is not None and past.settled is not None and len(explicit) > past.settled:
        onward, slope = _onward(explicit[-1], onward, past.reversal, entry, rule)
    return LiftSide(np.array(explicit), entry.eta, FixedPoint.unknown(size), onward, slope)


def _explicit_steps(bound: Floats, ahead: Ahead, entry: EntryMetric, count: int | None) -> int:
    """How many steps are worth taking one by one."""
    if count is None:
        return 0
    if not np.isfinite(bound[ahead.pairs]).all():
        return min(count, ENDLESS)
    if count * len(bound) ** 3 > WORK:
        return 0
    reach = SPAN * bound[ahead.pairs].max() / entry.eta if entry.eta > 0.0 else 0.0
    return count if count <= max(reach, ENDLESS) else 0


def _steps_back(past: Behind, settled: FixedPoint, count: int | None) -> int:
    """How many entries the past may be followed one by one."""
    if not isinstance(past.walk, Powers):
        return past.last
    room = max(ENDLESS, MEMORY // past.walk.size**2)
    if past.settled is None:
        return 0 if count is None else min(count, past.last, room)
    more = past.settled + max(settled.lags) + ENDLESS
    return min(more if count is None else count, more, room)


def _covering(
    explicit: list[Floats], past: Behind, settled: FixedPoint, entry: EntryMetric, rule: Rule
) -> FixedPoint | None:
    """A bound for this and every later entry, once the settled law covers all it looks back on."""
    longest = max(settled.lags)
    if past.settled is None or past.reversal is None:
        return None
    if len(explicit) - 1 - longest < past.settled:
        return None
    pairs = past.reversal.pairs
    if not np.isfinite(settled.bound[pairs]).all():
        return None
    seen = np.where(pairs, np.max(explicit[-longest - 1 :], axis=0), np.inf)
    np.fill_diagonal(seen, 0.0)
    if (seen <= settled.bound).all():
        return settled
    candidate = np.maximum(seen, settled.bound) * (1.0 + NEAR)
    if len(explicit) % WAIT:
        return None
    mapped = image(candidate, settled.lags, past.reversal, entry, rule)
    return FixedPoint(candidate, settled.lags) if (mapped <= candidate).all() else None


def _onward(
    last: Floats, bound: Floats, ahead: Ahead, entry: EntryMetric, rule: Rule
) -> tuple[Floats, float]:
    """D_{N+1} and a slope such that D_{N+j} ≤ D_{N+1} + (j-1)·slope for every j ≥ 1.

    With Γ the closure of E + D_N, and c the most that E + Λ(Γ) exceeds Γ, every rule has
    Λ(Γ + c) ≤ Λ(Γ) + c, so the bound E + D may grow by c a step and no faster; nor can it grow
    faster than η, which is what the farthest entry alone can add.
    """
    if np.isfinite(bound[ahead.pairs]).all():
        return bound, 0.0
    metric, _ = entry.at(1)
    growth = np.where(ahead.pairs, metric + last, np.inf)
    np.fill_diagonal(growth, 0.0)
    growth = closure(growth)
    step = leak(ahead.laws(1), growth, rule)
    excess = (metric + step)[ahead.pairs] - growth[ahead.pairs]
    return step, min(max(0.0, float(excess.max())), entry.eta) * (1.0 + 2.0**-50)
