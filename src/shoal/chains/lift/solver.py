"""A bound that its own step maps below itself: found by Newton's method, certified by the step.

The image of a bound hangs on few of its entries, with slopes that are not negative and add up to 1
at most (shoal.additive.cone_slopes). So the fixed point is sought by solving a sparse linear
system per evaluation; and, because the inverse of that system is not negative either, a bound
raised along (I - J)^-1 1 lies above its image, which is then checked by the rigorous step. Where
Newton's method is lost, plain steps and extrapolation lead on. A bound is a matrix over pairs of
states with diagonal 0, or a list of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.codec import Floats

WINDOW = 8  # plain steps between two extrapolations
CYCLES = 60  # extrapolations before giving up
NEARBY = (1e-2, 1e-3, 1e-4, 1e-5)  # relative changes at which Newton's method is tried in turn
CLOSE = 1e-9  # relative change at which iterates count as settled
MARGINS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5)  # of the largest entry, tried in turn
MANY = 64  # states beyond which a step takes long, and these two are
COARSE = (1e-4, 1e-3)  # MARGINS: a tenth of a per cent of noise is not worth seconds
NEARBY_ENOUGH = 3e-5  # CLOSE, for the steps that lower a bound that holds already
LISTED = (1e-6, 1e-5, 1e-4)  # MARGINS of listed pairs, whose sums along ways are what counts
EVALUATIONS = 16  # of the slopes before giving up,
FEWER = 8  # and where margins are coarse: some chains of many states only go round in circles
PLAIN = 2  # plain steps after one that led away
SETTLED = 1e-2  # of the margin: how near a point above its image must be to that margin,
ABOVE = 0.9  # and where margins are coarse or pairs are listed: it still lies above its image
FINE = 1e-5  # margins beyond this are coarse
LEAP = (
    2.0  # times a settled sum of listed pairs: beyond lies another fixed point, far above the least
)
MOST = 1e3  # larger bounds are not sought
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
        warm = start.any() and (len(start) <= MANY or change([start, step(start)]) <= NEARBY[0] / 2)
        found = _by_newton(step, at, start, enough) if warm else None  # lost from nowhere
        if found is not None:
            return found
        for close in NEARBY:
            start = _settle(step, start, enough, close)
            found = _enlarged(step, start) if len(start) > MANY else None
            if found is not None:
                return found
            found = _by_newton(step, at, start, enough) if np.isfinite(start).all() else None
            if found is not None:
                return found
    return _certified_near(step, _settle(step, start, enough, CLOSE))


def _enlarged(step: Step, guess: Floats) -> Floats | None:
    """The image of a slightly larger guess that lies above it; None where none does."""
    for share in COARSE:
        larger = guess * (1.0 + share)
        mapped = step(larger)
        if (mapped <= larger).all():
            return _lowered(step, mapped)
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
            current = _extrapolated(path)
    return safe


def change(path: Sequence[Floats]) -> float:
    """Largest relative change of the last step, over finite entries; inf before any step."""
    if len(path) < 2:
        return np.inf
    finite = np.isfinite(path[-1]) & np.isfinite(path[-2])
    moved = np.abs(path[-1][finite] - path[-2][finite]).max(initial=0.0)
    scale = path[-1][finite].max(initial=0.0)
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
                    return _lowered(step, mapped)
                path.append(mapped + extra)
            bound = _extrapolated(path)
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
            return _lowered(step, mapped)
        bound = near
    return None


def _lowered(step: Step, valid: Floats) -> Floats:
    """A valid bound after as many steps as still lower it: each step keeps it valid."""
    for _ in range(WINDOW * WINDOW):
        before, valid = valid, np.minimum(valid, step(valid))
        if change([before, valid]) <= (CLOSE if len(valid) <= MANY else NEARBY_ENOUGH):
            break
    return valid


def _margins(bound: Floats) -> tuple[float, ...]:
    if bound.ndim == 1:
        return LISTED
    return MARGINS if len(bound) <= MANY else COARSE


def newton(
    at: Callable[[Floats], Tangent | None], start: Floats, enough: float, margin: float
) -> Floats | None:
    """A point above its image by `margin` of its largest entry; None if not found soon.

    Where a step of Newton's leads away, plain steps smooth what it broke.
    """
    bound, before, plain = start, np.inf, 0
    coarse = margin > FINE or start.ndim == 1
    for _ in range(FEWER if coarse else EVALUATIONS):
        here = at(bound)
        if here is None:
            return None
        top = float(here.image.max())
        residual = here.image + margin_like(bound, margin * top) - bound
        moved = float(np.abs(residual).max())
        if moved <= (ABOVE if coarse else SETTLED) * margin * top:
            return bound
        plain = PLAIN if plain == 0 and moved > before / 2.0 else max(plain - 1, 0)
        before = moved
        change = residual if plain else here.solve(residual, SOLVED)
        if change is None:
            return None
        bound = np.maximum(bound + change, 0.0)
        if not bound.max() <= min(enough, MOST):
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
