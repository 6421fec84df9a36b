"""The lift of chains of any length: a bound that its own step maps below itself.

D_n grows with n. Iterates from below only guess its limit; what is returned has been checked:
either image(bound) ≤ bound, or bound is the image of such a bound. Anything else is infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.loss.cone import CEILING, Bools, Floats, Rule, lower
from shoal.loss.kernels import Kernel
from shoal.loss.lift_step import LAGS, EntryMetric, image, off_diagonal
from shoal.loss.lift_walk import Ahead

WINDOW = 8  # plain steps between two extrapolations
CYCLES = 60  # extrapolations before giving up
CLOSE = 1e-9  # relative change at which iterates count as settled
MARGINS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)  # of the largest entry, tried in turn
WORTH = 1e-3  # a lag joins the fixed point only if it lowers some pair by this share
ROUNDS = 6  # times the set of useful lags may grow

Step = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """A bound of D_n for all n, inf where none was certified, and the lags it rests on."""

    bound: Floats
    lags: tuple[int, ...]


def limit(
    ahead: Ahead,
    entry: EntryMetric,
    rule: Rule,
    start: Floats | None = None,
    enough: float = CEILING,
) -> Limit:
    """sup over n of D_n for a homogeneous side: certified, inf where it is not.

    `start` is a guess that may save time. Entries that grow past `enough` are given up as
    infinite, and so are pairs with an impossible value. Rounds up.
    """
    guess = np.where(ahead.pairs, 0.0, np.inf)
    if start is not None:
        guess += np.where(np.isfinite(start), start, 0.0)
    np.fill_diagonal(guess, 0.0)

    def with_lags(lags: tuple[int, ...]) -> Step:
        return lambda bound: image(bound, lags, ahead, entry, rule)

    lags: tuple[int, ...] = (1,)
    step = with_lags(lags)
    bound = _certified_near(step, _settle(step, guess, enough))
    for _ in range(ROUNDS):
        useful, bound = _scan(bound, lags, ahead, entry, rule)
        if useful == lags:
            break
        lags = useful
        step = with_lags(lags)
        bound = np.minimum(bound, _certified_near(step, _settle(step, bound, np.inf)))
    return Limit(bound, lags)


def _settle(step: Step, start: Floats, enough: float) -> Floats:
    """A guess at the least fixed point from below, inf where it seems to have none."""
    current = start
    for _ in range(CYCLES):
        path = [current]
        for _ in range(WINDOW):
            path.append(step(path[-1]))
        last = path[-1]
        endless = (last > enough) & (last >= path[-2]) & np.isfinite(current)
        if endless.any():
            current = np.where(endless, np.inf, last)
        elif _change(path) <= CLOSE:
            return last
        else:
            current = _extrapolated(path)
    return last


def _change(path: Sequence[Floats]) -> float:
    """Largest relative change of the last step, over finite entries."""
    finite = np.isfinite(path[-1]) & np.isfinite(path[-2])
    moved = np.abs(path[-1][finite] - path[-2][finite]).max()
    scale = path[-1][finite].max()
    return float(moved / scale) if moved > 0.0 else 0.0


def _extrapolated(path: Sequence[Floats]) -> Floats:
    """Where the path seems to lead: reduced rank extrapolation, kept within sane reach."""
    finite = np.isfinite(path).all(axis=0)
    points = np.array([point[finite] for point in path])
    moves = np.diff(points, axis=0)
    weights = np.linalg.lstsq(np.diff(moves, axis=0).T, -moves[0], rcond=1e-12)[0]
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
                    return mapped
                path.append(mapped + extra)
            bound = _extrapolated(path)
    return off_diagonal(len(guess), np.inf)


def _scan(
    bound: Floats, lags: tuple[int, ...], ahead: Ahead, entry: EntryMetric, rule: Rule
) -> tuple[tuple[int, ...], Floats]:
    """The lags known to help and those found to, with a valid bound lowered by all of them."""
    best = bound.copy()
    useful = set(lags)
    for lag in range(1, LAGS + 1):
        metric, price = entry.at(lag)
        endless = np.isinf(best) & ahead.pairs
        if price >= best[np.isfinite(best)].max():
            if not endless.any():
                break
            if not (endless & _nested(ahead.kernel(lag))).any():
                continue
        before = best.copy()
        lower(best, price, ahead.laws(lag), metric + bound, rule)
        if (best < before * (1.0 - WORTH)).any():
            useful.add(lag)
    return tuple(sorted(useful)), best


def _nested(kernel: Kernel) -> Bools:
    """Pairs x, x' such that everything x can lead to, x' can lead to as well."""
    possible = kernel.possible.astype(np.float32)
    return np.asarray(possible @ (1.0 - possible).T < 0.5)
