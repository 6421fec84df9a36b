"""The lift of chains of any length: a bound that its own step maps below itself.

D_n grows with n. Iterates from below only guess its limit; what is returned has been checked:
either image(bound) ≤ bound, or bound is the image of such a bound. Anything else is infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.additive.cone import CEILING, Rule, tighten
from shoal.chains.lift.laws import Ahead
from shoal.chains.lift.newton import LEAST, Tangent, newton, tangent
from shoal.chains.lift.step import LAGS, EntryMetric, image, off_diagonal
from shoal.chains.walk import Kernel
from shoal.core.codec import Bools, Floats, Ints

WINDOW = 8  # plain steps between two extrapolations
CYCLES = 60  # extrapolations before giving up
NEARBY = (1e-2, 1e-3, 1e-4)  # relative changes at which Newton's method is tried in turn
CLOSE = 1e-9  # relative change at which iterates count as settled
MARGINS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)  # of the largest entry, tried in turn
WORTH = 1e-5  # a lag joins the fixed point only if it lowers some pair by this share
SETTLED = 1e-7  # relative change at which pairs keep the lags they have
LAG_ROUNDS = 12  # times the set of useful lags may grow, or pairs may change theirs
MANY = 64  # states beyond which a round takes seconds, and these three are
BRIEF = (1e-2, 1e-4, 2)  # WORTH, SETTLED and LAG_ROUNDS: any lags give a bound, near the least here

Step = Callable[[Floats], Floats]
TangentAt = Callable[[Floats], Tangent | None]


@dataclass(frozen=True, slots=True, eq=False)
class FixedPoint:
    """A bound of D_n for all n, inf where none was certified, and the lags it rests on."""

    bound: Floats
    lags: tuple[int, ...]

    @classmethod
    def unknown(cls, size: int) -> FixedPoint:
        """No bound at all."""
        return cls(off_diagonal(size, np.inf), (1,))

    def scaled(self, factor: float) -> FixedPoint:
        """A guess at the limit for a metric `factor` times as large."""
        return FixedPoint(self.bound * factor, self.lags)


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

        many = len(guess) >= LEAST and np.isfinite(guess).all()
        return certified_fixed_point(step, guess, enough, tangent_at if many else None)

    chosen = None
    if len(lags) > 1 and len(guess) >= LEAST:
        chosen = _best_lags(guess, lags, ahead, entry, rule)[1]
    bound = found(chosen, guess, enough)
    _, settled, rounds = _lag_search(len(guess))
    for _ in range(rounds):
        before = bound
        useful, chosen, bound = _scan(bound, lags, ahead, entry, rule)
        same = chosen is None or _change([before, bound]) <= settled  # each pair has its best lag
        if useful == lags and same:
            break
        lags = useful
        bound = np.minimum(bound, found(chosen, bound, np.inf))
    return FixedPoint(bound, lags)


def certified_fixed_point(
    step: Step, start: Floats, enough: float, at: TangentAt | None = None
) -> Floats:
    """A bound near the least fixed point of an increasing step that lies above its image, or the
    image of one; inf where none was found. `start` is where the search begins; with the tangent of
    the step it is Newton's."""
    if at is not None:
        found = _by_newton(step, at, start, enough) if start.any() else None  # lost from nowhere
        if found is not None:
            return found
        for close in NEARBY:
            start = _settle(step, start, enough, close)
            found = _by_newton(step, at, start, enough) if np.isfinite(start).all() else None
            if found is not None:
                return found
    return _certified_near(step, _settle(step, start, enough, CLOSE))


def _settle(step: Step, start: Floats, enough: float, close: float) -> Floats:
    """A guess at the least fixed point from below, inf where it seems to have none."""
    path = [start]
    current, safe = start, start
    for _ in range(CYCLES):
        moved = _change(path)
        path = [current, step(current)]
        if current is not safe and _change(path) > moved:
            path = [safe, step(safe)]  # the extrapolation led away
        while len(path) <= WINDOW:
            path.append(step(path[-1]))
        safe = path[-1]
        endless = (safe > enough) & (safe >= path[-2]) & np.isfinite(path[0])
        if endless.any():
            safe = current = np.where(endless, np.inf, safe)
            path = [safe]
        elif _change(path) <= close:
            break
        else:
            current = _extrapolated(path)
    return safe


def _change(path: Sequence[Floats]) -> float:
    """Largest relative change of the last step, over finite entries; inf before any step."""
    if len(path) < 2:
        return np.inf
    finite = np.isfinite(path[-1]) & np.isfinite(path[-2])
    moved = np.abs(path[-1][finite] - path[-2][finite]).max()
    scale = path[-1][finite].max()
    return float(moved / scale) if moved > 0.0 else 0.0


def _extrapolated(path: Sequence[Floats]) -> Floats:
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
    scale = float(guess[np.isfinite(guess)].max())
    bound = guess
    for margin in MARGINS:
        extra = off_diagonal(len(guess), margin * scale)
        for _ in range(2):
            path = [bound]
            for _ in range(WINDOW):
                mapped = step(path[-1])
                if (mapped <= path[-1]).all():
                    return _lowered(step, mapped)
                path.append(mapped + extra)
            bound = _extrapolated(path)
    return off_diagonal(len(guess), np.inf)


def _by_newton(step: Step, at: TangentAt, start: Floats, enough: float) -> Floats | None:
    """The image of a bound that was found to lie above it; None where none was found soon."""
    bound = start
    for margin in MARGINS:
        near = newton(at, bound, enough, margin)
        if near is None:
            return None
        mapped = step(near)
        if (mapped <= near).all():
            return _lowered(step, mapped)
        bound = near
    return None


def _lowered(step: Step, valid: Floats) -> Floats:
    """A valid bound after as many steps as still lower it: each step keeps it valid."""
    for _ in range(WINDOW * WINDOW):
        before, valid = valid, np.minimum(valid, step(valid))
        if _change([before, valid]) <= CLOSE:
            break
    return valid


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
