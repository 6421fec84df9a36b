"""A fixed point of the lift by Newton's method: few evaluations where plain steps take hundreds.

The image of a bound hangs on few of its entries, with slopes that are not negative and add up to 1
at most (shoal.additive.cone_slopes). So the fixed point is sought by solving a sparse linear system
per evaluation; and, because the inverse of that system is not negative either, a bound raised
along (I - J)^-1 1 lies above its image, which is then checked by the rigorous step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.additive.cone import Rule, slopes
from shoal.chains.lift.step import EntryMetric, View, off_diagonal
from shoal.core.codec import Floats, Ints

LEAST = 16  # states from which on plain steps are dearer
EVALUATIONS = 16  # before giving up,
FEWER = 8  # and where margins are coarse: some chains of many states only go round in circles
PLAIN = 2  # plain steps after one that led away
SETTLED = 1e-2  # of the margin: how near a point above its image must be to that margin,
ABOVE = 0.9  # and where margins are coarse: any such point still lies above its image
FINE = 1e-5  # margins beyond this are coarse
MOST = 1e3  # larger bounds are not sought
SOLVED = 1e-3  # relative residual of the linear systems on the way
REPEATS = 250  # products with the slopes, half as many steps, before a linear system is given up

Step = Callable[[Floats], Floats]


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


def newton(
    at: Callable[[Floats], Tangent | None], start: Floats, enough: float, margin: float
) -> Floats | None:
    """A point above its image by `margin` of its largest entry; None if not found soon.

    Where a step of Newton's leads away, plain steps smooth what it broke.
    """
    bound, before, plain = start, np.inf, 0
    coarse = margin > FINE
    for _ in range(FEWER if coarse else EVALUATIONS):
        here = at(bound)
        if here is None:
            return None
        top = float(here.image.max())
        residual = here.image + off_diagonal(len(bound), margin * top) - bound
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
    return None
