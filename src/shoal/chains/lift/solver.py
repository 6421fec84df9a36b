"""A bound that its own step maps below itself: found by Newton's method, certified by the step.

The image of a bound hangs on few of its entries, with slopes that are not negative and add up to 1
at most (shoal.mechanisms.cone_slopes). So the fixed point is sought by solving a sparse linear
system per evaluation; and, because the inverse of that system is not negative either, a bound
raised along (I - J)^-1 1 lies above its image, which is then checked by the rigorous step. Where
Newton's method is lost, plain steps and extrapolation lead on. A bound is a matrix over pairs of
states with diagonal 0, or a list of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.chains.lift.step import LAGS, Ahead, EntryMetric, View, image, off_diagonal
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.progress import in_time
from shoal.core.walk import Kernel
from shoal.mechanisms.cone import CEILING, Growth, Rule, slopes, tighten

WINDOW = 8  # plain steps between two extrapolations
CYCLES = 60  # extrapolations before giving up
NEARBY = (1e-2, 1e-3, 1e-4, 1e-5)  # relative changes at which Newton's method is tried in turn
ITERATES_SETTLED = 1e-9  # relative change at which iterates count as settled
MARGINS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)  # of the largest entry, tried in turn
MANY_STATES = 64  # states beyond which a step takes long, and these two are
COARSE = (1e-4, 1e-3)  # MARGINS: a tenth of a per cent of noise is not worth seconds
NEARBY_ENOUGH = 3e-5  # CLOSE, for the steps that lower a bound that holds already
LISTED = (1e-6, 1e-5, 1e-4)  # MARGINS of listed pairs, whose sums along ways are what counts
EVALUATIONS = 16  # of the slopes before giving up,
FEWER = 8  # and where margins are coarse: some chains of many states only go round in circles
PLAIN = 2  # plain steps after one that led away
POINT_SETTLED = 1e-2  # of the margin: how near a point above its image must be to that margin,
ABOVE = 0.9  # and where margins are coarse or pairs are listed: it still lies above its image
FINE = 1e-5  # margins beyond this are coarse
# times a settled sum of listed pairs: beyond lies another fixed point, far above the least
LEAP = 2.0
LARGEST_BOUND = 1e3  # larger bounds are not sought
SOLVED = 1e-3  # relative residual of the linear systems on the way
REPEATS = 250  # products with the slopes, half as many steps, before a linear system is given up

Step = Callable[[Floats], Floats]
TangentAt = Callable[[Floats], "Tangent | None"]


@dataclass(frozen=True, slots=True, eq=False)
class Tangent:
    """The image of a bound, not rounded, and how it moves with the bound's entries."""

    image: Floats
    slopes: Any  # a sparse matrix over pairs

    def solve(self, residual: Floats, accuracy: float) -> Floats | None:
        """(I - slopes)^-1 residual, or None where that was not found."""
        from scipy.sparse.linalg import LinearOperator, bicgstab

        size = residual.size
        system = LinearOperator((size, size), matvec=lambda v: v - self.slopes @ v)
        found, code = bicgstab(system, residual.ravel(), rtol=accuracy, maxiter=REPEATS)
        if code != 0 or not np.isfinite(found).all():
            return None
        return np.asarray(found.reshape(residual.shape))


def certified_fixed_point(
    step: Step, start: Floats, enough: float, at: TangentAt | None = None
) -> Floats:
    """A bound near the least fixed point of an increasing step that lies above its image, or the
    image of one; inf where none was found. `start` is where the search begins; with the tangent of
    the step it is Newton's."""

    if at is not None:
        warm = start.any() and (
            len(start) <= MANY_STATES or change([start, step(start)]) <= NEARBY[0] / 2
        )
        found = _by_newton(step, at, start, enough) if warm else None  # lost from nowhere
        if found is not None:
            return found
        for close in NEARBY:
            start = _settle(step, start, enough, close)
            found = _enlarge_guess(step, start) if len(start) > MANY_STATES else None
            if found is not None:
                return found
            found = _by_newton(step, at, start, enough) if np.isfinite(start).all() else None
            if found is not None:
                return found
    return _certified_near(step, _settle(step, start, enough, ITERATES_SETTLED))


def _enlarge_guess(step: Step, guess: Floats) -> Floats | None:
    """The image of a slightly larger guess that lies above it; None where none does."""
    for share in COARSE:
        larger = guess * (1.0 + share)
        mapped = step(larger)
        if (mapped <= larger).all():
            return _lower_bound_steps(step, mapped)
    return None


def _settle(step: Step, start: Floats, enough: float, close: float) -> Floats:
    """A guess at the least fixed point from below, inf where it seems to have none."""
    path = [start]
    current, safe = start, start
    for _ in range(CYCLES):
        moved = change(path)
        path = [current, step(current)]
        if current is not safe and change(path) > moved:
            path = [safe, step(safe)]  # the extrapolation led away
        while len(path) <= WINDOW:
            path.append(step(path[-1]))
        safe = path[-1]
        endless = (safe > enough) & (safe >= path[-2]) & np.isfinite(path[0])
        if endless.any():
            safe = current = np.where(endless, np.inf, safe)
            path = [safe]
        elif change(path) <= close:
            break
        else:
            current = _extrapolate(path)
    return safe


def change(path: Sequence[Floats]) -> float:
    """Largest relative change of the last step, over finite entries; inf before any step."""
    if len(path) < 2:
        return np.inf
    finite = np.isfinite(path[-1]) & np.isfinite(path[-2])
    moved = np.abs(path[-1][finite] - path[-2][finite]).max(initial=0.0)
    scale = path[-1][finite].max(initial=0.0)
    return float(moved / scale) if moved > 0.0 else 0.0


def _extrapolate(path: Sequence[Floats]) -> Floats:
    """Where the path seems to lead: reduced rank extrapolation, kept within sane reach."""
    finite = np.isfinite(path).all(axis=0)
    points = np.array([point[finite] for point in path])
    moves = np.diff(points, axis=0)
    turns = np.diff(moves, axis=0)  # by its products: far quicker than lstsq on all pairs
    weights = np.linalg.lstsq(turns @ turns.T, -turns @ moves[0], rcond=1e-14)[0]
    target = points[0] + weights @ moves[:-1]
    least = points[-1] if (moves >= 0.0).all() else np.zeros_like(target)
    target = np.clip(target, least, 3.0 * points[-1])
    straight = (moves[-1] > 1e-6 * points[-1]) & (moves[-1] >= (1.0 - 1e-9) * moves[0])
    result = path[-1].copy()
    result[finite] = np.where(straight, 3.0 * points[-1], target)
    return result


def _certified_near(step: Step, guess: Floats) -> Floats:
    """The image of a bound near the guess that lies above its image; inf where none was found.

    The fixed point of step + margin lies above its image by exactly that margin, in whatever
    direction the step expands; so that is what is sought, with ever larger margins.
    """
    scale = float(guess[np.isfinite(guess)].max(initial=0.0))
    if np.isinf(guess).all():
        return margin_like(guess, np.inf)
    bound = guess
    for margin in _margins(guess):
        extra = margin_like(guess, margin * scale)
        for _ in range(2):
            path = [bound]
            for _ in range(WINDOW):
                mapped = step(path[-1])
                if (mapped <= path[-1]).all():
                    return _lower_bound_steps(step, mapped)
                path.append(mapped + extra)
            bound = _extrapolate(path)
    return margin_like(guess, np.inf)


def _by_newton(step: Step, at: TangentAt, start: Floats, enough: float) -> Floats | None:
    """The image of a bound that was found to lie above it; None where none was found soon."""
    bound = start
    for margin in _margins(start):
        near = newton(at, bound, enough, margin)
        if near is None:
            return None
        mapped = step(near)
        if (mapped <= near).all():
            return _lower_bound_steps(step, mapped)
        bound = near
    return None


def _lower_bound_steps(step: Step, valid: Floats) -> Floats:
    """A valid bound after as many steps as still lower it: each step keeps it valid."""
    for _ in range(WINDOW * WINDOW):
        before, valid = valid, np.minimum(valid, step(valid))
        if change([before, valid]) <= (
            ITERATES_SETTLED if len(valid) <= MANY_STATES else NEARBY_ENOUGH
        ):
            break
    return valid


def _margins(bound: Floats) -> tuple[float, ...]:
    if bound.ndim == 1:
        return LISTED
    return MARGINS if len(bound) <= MANY_STATES else COARSE


def newton(
    at: Callable[[Floats], Tangent | None], start: Floats, enough: float, margin: float
) -> Floats | None:
    """A point above its image by `margin` of its largest entry; None if not found soon.

    Where a step of Newton's leads away, plain steps smooth what it broke.
    """
    bound, before, plain = start, np.inf, 0
    coarse = margin > FINE or start.ndim == 1
    for _ in range(FEWER if coarse else EVALUATIONS):
        in_time("the lift")
        here = at(bound)
        if here is None:
            return None
        top = float(here.image.max())
        residual = here.image + margin_like(bound, margin * top) - bound
        moved = float(np.abs(residual).max())
        if moved <= (ABOVE if coarse else POINT_SETTLED) * margin * top:
            return bound
        plain = PLAIN if plain == 0 and moved > before / 2.0 else max(plain - 1, 0)
        before = moved
        change = residual if plain else here.solve(residual, SOLVED)
        if change is None:
            return None
        bound = np.maximum(bound + change, 0.0)
        if not bound.max() <= min(enough, LARGEST_BOUND):
            return None
        if bound.ndim == 1 and bound.sum() > LEAP * start.sum():
            return None
    return None


def margin_like(bound: Floats, value: float) -> Floats:
    """The value for every pair of a bound."""
    margin = np.full(bound.shape, value)
    if bound.ndim == 2:
        np.fill_diagonal(margin, 0.0)
    return margin


# What the entries on one side of a node can tell about it, for every number of them.
#
# D_n grows with n. Iterates from below only guess its limit; what is returned has been checked:
# either image(bound) ≤ bound, or bound is the image of such a bound. Anything else is infinite.


WORTH = 1e-5  # a lag joins the fixed point only if it lowers some pair by this share
LAGS_SETTLED = 1e-7  # relative change at which pairs keep the lags they have
LAG_ROUNDS = 12  # times the set of useful lags may grow, or pairs may change theirs
GUESSED = 4.0  # larger bounds of the largest rule are no guess at those of the cone
SLOPES_PAY = 16  # states from which on slopes are worth their price
LAGS_OF_ALL_SIZES = (*range(2, 25), 28, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512)
MOST_LAGS_KEPT = 16  # more useful lags than this are reduced to those that are best for some pair
BRIEF = (1e-2, 1e-3, 2)  # WORTH, LAGS_SETTLED and LAG_ROUNDS of many states: any lags give a bound

ROUNDS = 24  # pairs that may turn out to be the worst, one after another
OVER = 1e-4  # share by which the one number lies above what these pairs need
LAWS_ALIKE = 1e-9  # laws this near each other show the same at any longer lag


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

    def scaled_by(self, factor: float) -> FixedPoint:
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

    many = len(ahead.pairs) > MANY_STATES
    near = start is None and entry.alike
    if many and ahead.dense and (rule == "largest" or near):
        flat = _one_number(ahead, entry, start, enough)
        if rule == "largest" or np.isinf(flat.bound).any():
            return flat
        start = FixedPoint(flat.bound, (1,))
    if start is None and rule == "cone":
        start = _from_neighbours(ahead, entry, enough)
        if start is None and near and len(ahead.pairs) >= SLOPES_PAY:
            start = limit(ahead, entry, "largest", enough=min(enough, GUESSED))
            start = FixedPoint(start.bound, (1,))
    guess = np.where(ahead.pairs, 0.0, np.inf)
    np.fill_diagonal(guess, 0.0)
    lags: tuple[int, ...] = (1,)
    if start is not None and np.isfinite(start.bound[ahead.pairs]).all():
        guess, lags = guess + np.where(ahead.pairs, start.bound, 0.0), start.lags

    def find_limit(lag_of: Ints | None, guess: Floats, enough: float) -> Floats:
        """Return a proved upper bound of the fixed point, from `guess` on; (states, states).

        Stops once the bound is at most `enough`. With `lag_of` each pair uses its own lag alone.
        """

        def step(bound: Floats) -> Floats:
            in_time("the lift")
            return image(bound, lags, ahead, entry, rule, lag_of)

        def tangent_at(bound: Floats) -> Tangent | None:
            return tangent(bound, lags, ahead, entry, rule, lag_of)

        smooth = len(guess) >= SLOPES_PAY and np.isfinite(guess).all()
        return certified_fixed_point(step, guess, enough, tangent_at if smooth else None)

    chosen = None
    if len(lags) > 1 and len(guess) >= SLOPES_PAY:
        chosen = _best_lags(guess, lags, ahead, entry, rule)[1]
    bound = find_limit(chosen, guess, enough)
    _, settled, rounds = _lag_search(len(guess))
    known = many and start is not None and start.searched and np.isfinite(bound).all()
    tried = set(lags)
    for _ in range(0 if known else rounds):
        before = bound
        useful, chosen, bound = _scan(bound, lags, tried, ahead, entry, rule)
        same = chosen is None or change([before, bound]) <= settled  # each pair has its best lag
        if (useful == lags and same) or (many and bound.max() >= before.max() * (1.0 - settled)):
            lags = useful
            break
        lags = useful
        bound = np.minimum(bound, find_limit(chosen, bound, np.inf))
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
        growth = Growth(off_diagonal(size, most + level))
        for lag in lags:  # pairs below the level already are not looked at again
            price = entry.at(lag)[1]
            part = np.where(bound > level, bound, -np.inf)
            tighten(part, price, ahead.laws(lag), growth, "largest")
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
        """Return the laws of both states after 1, 2, … steps, while they differ noticeably.

        At most LAGS steps, and no more than `enough` allows at a cost of `eta` each.
        """
        count = LAGS if eta <= 0.0 else min(LAGS, 1 + int(enough / eta))
        rows, laws = np.eye(len(step))[[x, other]], []
        for _ in range(count):
            rows = rows @ step
            laws.append(rows)
            if np.abs(rows[0] - rows[1]).max() <= LAWS_ALIKE * rows.min():
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
    while high - low > OVER * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high * (1.0 + OVER)


def _scan(
    bound: Floats,
    lags: tuple[int, ...],
    tried: set[int],
    ahead: Ahead,
    entry: EntryMetric,
    rule: Rule,
) -> tuple[tuple[int, ...], Ints | None, Floats]:
    """The lags known to help and those found to, with a valid bound lowered by all of them.

    Where states are many each pair goes on with the lag that served it best alone, and lags are
    sought between those that serve some pair and those beside them: `tried` grows.
    """
    best, chosen = bound.copy(), None
    if len(bound) >= SLOPES_PAY:
        lag_bound, chosen = _best_lags(bound, lags, ahead, entry, rule)
        best = np.minimum(best, lag_bound)
    useful, worth = set(lags), _lag_search(len(bound))[0]
    growths = entry.grown_by(bound)
    few = chosen is not None and bool(np.isfinite(best[ahead.pairs]).all())
    for lag in _between(lags, tried) if few else range(1, LAGS + 1):
        in_time("the lift")
        tried.add(lag)
        shown = min(lag, len(growths))
        price = (lag - shown) * entry.eta
        endless = np.isinf(best) & ahead.pairs
        if price >= best[np.isfinite(best)].max():
            if not endless.any():
                break
            if not (endless & _nested_supports(ahead.kernel(lag))).any():
                continue
        if chosen is not None and lag in lags:
            continue  # looked at already
        before = best.copy()
        tighten(best, price, ahead.laws(lag), growths[shown - 1], rule)
        won = best < before * (1.0 - worth)
        if lag in useful or won.any():
            useful.add(lag)
            if chosen is not None:
                chosen[won] = lag
        else:
            best = before  # what covers later entries looks back as far as the lags that are named
    kept = tuple(sorted(useful))
    if chosen is None and len(kept) > MOST_LAGS_KEPT:
        kept, best = _without_idle_lags(bound, best, kept, ahead, entry, rule)
    return kept, chosen, best


def _without_idle_lags(
    bound: Floats,
    lowered: Floats,
    lags: tuple[int, ...],
    ahead: Ahead,
    entry: EntryMetric,
    rule: Rule,
) -> tuple[tuple[int, ...], Floats]:
    """Drop the lags that are best for no pair; return the others and the image of `bound` by them.

    On a chain that forgets slowly each lag is a little better than the one before, so a scan in
    order keeps hundreds. With S the best lag of each pair the image by S is the image by all lags.
    Where that is at most `bound` it lies above its own image by S, as a certified bound must.
    Elsewhere all lags and `lowered` are returned.
    """
    mapped, best = _best_lags(bound, lags, ahead, entry, rule)
    if not (mapped <= bound).all():
        return lags, lowered
    finite = np.isfinite(mapped) & ~np.eye(len(mapped), dtype=np.bool_)
    return tuple(np.unique(best[finite]).tolist()) or lags[:1], mapped


def _between(lags: tuple[int, ...], tried: set[int]) -> list[int]:
    """The lags to try next: some of all sizes, then those half-way to the ones beside each."""
    if tried <= {1}:
        return list(LAGS_OF_ALL_SIZES)
    known = sorted({*tried, *lags, LAGS + 1})
    found = set[int]()
    for lag in lags:
        place = known.index(lag)
        below, above = known[place - 1] if place else 0, known[place + 1]
        found |= {(below + lag + 1) // 2, (lag + above) // 2}
    return sorted(found - set(known) - {0})


def _lag_search(states: int) -> tuple[float, float, int]:
    """How far lags are looked for: see WORTH, LAGS_SETTLED and LAG_ROUNDS."""
    return (WORTH, LAGS_SETTLED, LAG_ROUNDS) if states <= MANY_STATES else BRIEF


def _best_lags(
    bound: Floats, lags: tuple[int, ...], ahead: Ahead, entry: EntryMetric, rule: Rule
) -> tuple[Floats, Ints]:
    """The image by all of the lags, and for each pair the lag it is from."""
    best, chosen = off_diagonal(len(bound), np.inf), np.full(bound.shape, lags[0])
    growths = entry.grown_by(bound)
    for lag in lags:
        shown = min(lag, len(growths))
        before = best.copy()
        price = (lag - shown) * entry.eta
        tighten(best, price, ahead.laws(lag), growths[shown - 1], rule)
        chosen[best < before] = lag
    return best, chosen


def _nested_supports(kernel: Kernel) -> Bools:
    """Pairs x, x' such that everything x can lead to, x' can lead to as well."""
    possible = kernel.possible.astype(np.float32)
    return np.asarray(possible @ (1.0 - possible).T < 0.5)
