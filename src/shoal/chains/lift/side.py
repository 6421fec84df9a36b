"""What the entries on one side of a node can tell about it, for every number of them.

D_n grows with n. Iterates from below only guess its limit; what is returned has been checked:
either image(bound) ≤ bound, or bound is the image of such a bound. Anything else is infinite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shoal.additive.cone import CEILING, Rule, closure, leak, slopes, tighten
from shoal.chains.lift.solver import MANY, Tangent, certified_fixed_point, change
from shoal.chains.lift.step import (
    LAGS,
    Ahead,
    Behind,
    EntryMetric,
    History,
    Steps,
    View,
    image,
    next_bound,
    off_diagonal,
)
from shoal.chains.walk import Kernel, Powers
from shoal.core.codec import Bools, Floats, Ints

WORTH = 1e-5  # a lag joins the fixed point only if it lowers some pair by this share
SETTLED = 1e-7  # relative change at which pairs keep the lags they have
LAG_ROUNDS = 12  # times the set of useful lags may grow, or pairs may change theirs
LEAST = 16  # states from which on slopes are worth their price
BRIEF = (1e-2, 1e-3, 2)  # WORTH, SETTLED and LAG_ROUNDS of many states: any lags give a bound

ROUNDS = 24  # pairs that may turn out to be the worst, one after another
ABOVE = 1e-4  # share by which the one number lies above what these pairs need
FORGOTTEN = 1e-9  # laws this near each other show the same at any longer lag


@dataclass(frozen=True, slots=True, eq=False)
class FixedPoint:
    """A bound of D_n for all n, inf where none was certified, and the lags it rests on.

    searched says that these lags were looked for among all.
    """

    bound: Floats
    lags: tuple[int, ...]
    searched: bool = False

    @classmethod
    def unknown(cls, size: int) -> FixedPoint:
        """No bound at all."""
        return cls(off_diagonal(size, np.inf), (1,))

    def scaled(self, factor: float) -> FixedPoint:
        """A guess at the limit for a metric `factor` times as large."""
        return replace(self, bound=self.bound * factor)


def limit(
    ahead: Ahead,
    entry: EntryMetric,
    rule: Rule,
    start: FixedPoint | None = None,
    enough: float = CEILING,
) -> FixedPoint:
    """sup over n of D_n for a homogeneous side: certified, inf where it is not.

    `start` is a guess that may save time. Entries that grow past `enough` are given up as
    infinite, and so are pairs with an impossible value. Rounds up.
    """

    many = len(ahead.pairs) > MANY
    alike = off_diagonal(len(ahead.pairs), entry.eta)
    near = start is None and bool((entry.metrics[0] == alike).all())
    if many and ahead.dense and (rule == "largest" or near):
        flat = _one_number(ahead, entry, start, enough)
        if rule == "largest" or np.isinf(flat.bound).any():
            return flat
        start = FixedPoint(flat.bound, (1,))
    if start is None and rule == "cone":
        start = _from_neighbours(ahead, entry, enough)
    guess = np.where(ahead.pairs, 0.0, np.inf)
    np.fill_diagonal(guess, 0.0)
    lags: tuple[int, ...] = (1,)
    if start is not None and np.isfinite(start.bound[ahead.pairs]).all():
        guess, lags = guess + np.where(ahead.pairs, start.bound, 0.0), start.lags

    def found(lag_of: Ints | None, guess: Floats, enough: float) -> Floats:
        def step(bound: Floats) -> Floats:
            return image(bound, lags, ahead, entry, rule, lag_of)

        def tangent_at(bound: Floats) -> Tangent | None:
            return tangent(bound, lags, ahead, entry, rule, lag_of)

        smooth = len(guess) >= LEAST and np.isfinite(guess).all()
        return certified_fixed_point(step, guess, enough, tangent_at if smooth else None)

    chosen = None
    if len(lags) > 1 and len(guess) >= LEAST:
        chosen = _best_lags(guess, lags, ahead, entry, rule)[1]
    bound = found(chosen, guess, enough)
    _, settled, rounds = _lag_search(len(guess))
    known = many and start is not None and start.searched and np.isfinite(bound).all()
    for _ in range(0 if known else rounds):
        before = bound
        useful, chosen, bound = _scan(bound, lags, ahead, entry, rule)
        same = chosen is None or change([before, bound]) <= settled  # each pair has its best lag
        if (useful == lags and same) or (many and bound.max() >= before.max() * (1.0 - settled)):
            lags = useful
            break
        lags = useful
        bound = np.minimum(bound, found(chosen, bound, np.inf))
    return FixedPoint(bound, lags, searched=True)


def _from_neighbours(ahead: Ahead, entry: EntryMetric, enough: float) -> FixedPoint | None:
    """Where few states follow each: what neighbours certify for all pairs, a little too much."""
    beside = ahead.beside(entry.metrics[0])
    known = None if beside is None else beside.bound(entry.metrics[0], enough)
    if beside is None or known is None:
        return None
    return FixedPoint(beside.everywhere(known), (1,))


def _one_number(
    ahead: Ahead, entry: EntryMetric, start: FixedPoint | None, enough: float
) -> FixedPoint:
    """`limit` by the largest rule where every state may follow every other.

    There G counts by its largest entry alone, so the bound sought is one number, g, above
    every entry of its own image. It follows from the few pairs that are worst at their best
    lags; all others only have to stay below g, at whichever lag, which is then checked for all.
    """
    size, most = len(ahead.pairs), float(entry.metrics[0].max())
    lags = [1] if start is None else list(start.lags)
    farthest, pairs = ahead.laws(lags[-1]).gained, list[PairAtLags]()
    for _ in range(ROUNDS):
        x, other = divmod(int(farthest.argmax()), size)
        pairs.append(PairAtLags.of(ahead.kernel(1).values, x, other, entry.eta, enough))
        level = _least_level(pairs, most, enough)
        if level is None:
            return FixedPoint.unknown(size)
        lags = sorted({pair.best(most + level)[1] for pair in pairs})
        bound = off_diagonal(size, np.inf)
        for lag in lags:  # pairs below the level already are not looked at again
            price = entry.at(lag)[1]
            part = np.where(bound > level, bound, -np.inf)
            tighten(part, price, ahead.laws(lag), off_diagonal(size, most + level), "largest")
            bound = np.where(bound > level, part, bound)
        if bound.max() <= level:
            return FixedPoint(bound, tuple(lags))
        farthest = bound
    return FixedPoint.unknown(size)


def tangent(
    bound: Floats,
    lags: tuple[int, ...],
    view: View,
    entry: EntryMetric,
    rule: Rule,
    lag_of: Ints | None = None,
) -> Tangent | None:
    """`step.image` of a finite bound with its slopes; None where some pair has none."""
    from scipy.sparse import csr_array

    size, found = len(bound), None
    for lag in lags:
        metric, price = entry.at(lag)
        wanted = np.ones(bound.shape, np.bool_) if lag_of is None else lag_of == lag
        here = slopes(view.laws(lag), metric + bound, rule, wanted)
        if here is None:
            return None
        here[0][:] += price
        if found is None:
            found = here
            continue
        won = here[0] < found[0]
        found[0][won], found[1][won], found[2][won] = here[0][won], here[1][won], here[2][won]
    assert found is not None  # there is at least one lag
    best, places, shares = found
    np.fill_diagonal(best, 0.0)
    places[np.arange(size), np.arange(size)] = -1
    real = places >= 0
    starts = np.concatenate([[0], np.cumsum(real.sum(axis=2).ravel())])
    matrix = csr_array((shares[real], places[real], starts), shape=(size**2, size**2))
    return Tangent(best, matrix)


@dataclass(frozen=True, slots=True, eq=False)
class PairAtLags:
    """The laws of the entries 1, 2, … steps from two values (rows), and the prices of these lags.

    What it says is not rounded: it only tells a search where to look.
    """

    first: Floats
    second: Floats
    prices: Floats

    @classmethod
    def of(cls, step: Floats, x: int, other: int, eta: float, enough: float) -> PairAtLags:
        count = LAGS if eta <= 0.0 else min(LAGS, 1 + int(enough / eta))
        rows, laws = np.eye(len(step))[[x, other]], []
        for _ in range(count):
            rows = rows @ step
            laws.append(rows)
            if np.abs(rows[0] - rows[1]).max() <= FORGOTTEN * rows.min():
                break
        both = np.array(laws)
        return cls(both[:, 0], both[:, 1], eta * np.arange(float(len(both))))

    def best(self, growth: float) -> tuple[float, int]:
        """What the pair shows at the lag that shows least, and that lag."""
        raised, gaps = np.expm1(growth), self.first - self.second
        excess = np.zeros(len(gaps))
        while True:
            rises = gaps > excess[:, None] * self.second
            gained, held = (
                np.where(rises, gaps, 0.0).sum(1),
                np.where(rises, self.second, 0.0).sum(1),
            )
            better = raised * gained / (1.0 + raised * held)
            if not (better > excess * (1.0 + 1e-12)).any():
                break
            excess = np.maximum(excess, better)
        shown = self.prices + np.log1p(excess)
        return float(shown.min()), int(shown.argmin()) + 1


def _least_level(pairs: list[PairAtLags], most: float, enough: float) -> float | None:
    """A little more than the least g at which no pair shows more than g; None beyond `enough`."""

    def fits(level: float) -> bool:
        return all(pair.best(most + level)[0] <= level for pair in pairs)

    low, high = 0.0, max(most, 1e-300)
    while not fits(high):
        low, high = high, 2.0 * high
        if high > 2.0 * enough:
            return None
    while high - low > ABOVE * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high * (1.0 + ABOVE)


def _scan(
    bound: Floats, lags: tuple[int, ...], ahead: Ahead, entry: EntryMetric, rule: Rule
) -> tuple[tuple[int, ...], Ints | None, Floats]:
    """The lags known to help and those found to, with a valid bound lowered by all of them.

    Where states are many each pair goes on with the lag that served it best alone.
    """
    best, chosen = bound.copy(), None
    if len(bound) >= LEAST:
        told, chosen = _best_lags(bound, lags, ahead, entry, rule)
        best = np.minimum(best, told)
    useful, worth = set(lags), _lag_search(len(bound))[0]
    for lag in range(1, LAGS + 1):
        metric, price = entry.at(lag)
        endless = np.isinf(best) & ahead.pairs
        if price >= best[np.isfinite(best)].max():
            if not endless.any():
                break
            if not (endless & _nested(ahead.kernel(lag))).any():
                continue
        if chosen is not None and lag in lags:
            continue  # looked at already
        before = best.copy()
        tighten(best, price, ahead.laws(lag), metric + bound, rule)
        won = best < before * (1.0 - worth)
        if lag in useful or won.any():
            useful.add(lag)
            if chosen is not None:
                chosen[won] = lag
        else:
            best = before  # what covers later entries looks back as far as the lags that are named
    return tuple(sorted(useful)), chosen, best


def _lag_search(states: int) -> tuple[float, float, int]:
    """How far lags are looked for: see WORTH, SETTLED and LAG_ROUNDS."""
    return (WORTH, SETTLED, LAG_ROUNDS) if states <= MANY else BRIEF


def _best_lags(
    bound: Floats, lags: tuple[int, ...], ahead: Ahead, entry: EntryMetric, rule: Rule
) -> tuple[Floats, Ints]:
    """The image by all of the lags, and for each pair the lag it is from."""
    best, chosen = off_diagonal(len(bound), np.inf), np.full(bound.shape, lags[0])
    for lag in lags:
        metric, price = entry.at(lag)
        before = best.copy()
        tighten(best, price, ahead.laws(lag), metric + bound, rule)
        chosen[best < before] = lag
    return best, chosen


def _nested(kernel: Kernel) -> Bools:
    """Pairs x, x' such that everything x can lead to, x' can lead to as well."""
    possible = kernel.possible.astype(np.float32)
    return np.asarray(possible @ (1.0 - possible).T < 0.5)


# One side of a node: numbers of entries one by one, and one bound for all beyond.


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
