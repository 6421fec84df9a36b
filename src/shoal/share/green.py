"""Rows of Green's function with certified bounds: sums of the weights of all walks.

G(a, b) = sum over walks from a to b of the product of their weights = (I - W)^-1 [a, b].

Such sums fall below every float (e^-800), so they are computed in scaled coordinates: state b is
multiplied by 2^m(b), a power of two near the inverse of the best walk from the hidden places to b.
Powers of two are exact, and every ratio that a charge needs is a ratio of entries of one column.

Nothing a solver says is believed. A row x = e + x W is bracketed by vectors with
x_high >= e + x_high W and x_low <= e + x_low W, checked with directed rounding. Because the
spectral radius of W is below 1 (some u > 0 has W u < u, which is checked too), the first is above
the true row and the second below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import Refused

if TYPE_CHECKING:
    from scipy.sparse import csr_array

UNIT = 2.0**-53  # largest relative error of one rounding
WIDEST = 1e-6  # relative width above which a bracket is useless
FLOOR = 2.0**-660  # added everywhere to rows of goals, which fall below every float
SUBSTITUTIONS = 40  # rounds that close the bounds of first arrivals; usually two are enough
LEAST_SHARE = 2.0**-1000  # stands for smaller powers of two in upper bounds
FAR_APART = 2.0**900  # largest ratio of two entries of a row: underflows stay below one rounding
DIVERGES = (
    "the weights of all walks do not add up to a finite sum, so the model has no routes; "
    "lower the weights (a smaller cost scale)"
)


class Bracket(NamedTuple):
    """Certified bounds of rows in scaled coordinates: `low` <= true row <= `high`."""

    low: Floats
    high: Floats


class Green:
    """Certified rows of Green's function of one law, for walks that begin at `sources`.

    `reached` marks the states that walks from the sources can reach; all others have sum 0.
    """

    def __init__(self, matrix: csr_array, sources: Ints) -> None:
        from scipy.sparse import csc_array, csr_array, identity
        from scipy.sparse.linalg import splu

        self.exponents, self.reached = _exponents(matrix, sources)
        self.kept: Ints = np.flatnonzero(self.reached)
        inner = csr_array(matrix)[self.kept][:, self.kept].tocoo()
        shift = self.exponents[self.kept]
        scaled = np.ldexp(inner.data, shift[inner.col] - shift[inner.row])
        if scaled.size and scaled.min() < LEAST_SHARE:
            raise Refused(
                "a one-way road leads from far away straight to a hidden place, and its scaled "
                "weight falls below the floats; leave that road out, or cut it by crossings"
            )
        shape = (len(self.kept), len(self.kept))
        # transposed, so that a row of the sums is the solution of a system with this matrix
        self._step = csr_array((scaled, (inner.col, inner.row)), shape=shape)
        degree = int(np.diff(self._step.indptr).max(initial=0))
        self._margin = (degree + 8) * 2 * UNIT
        try:
            self._solver = splu(
                csc_array(identity(shape[0]) - self._step),
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError:
            raise Refused(DIVERGES) from None
        self._check_radius()

    def _check_radius(self) -> None:
        """Refuse unless some u > 0 has W u < u, which proves that all sums are finite."""
        u = self._solver.solve(np.ones(len(self.kept)), trans="T")
        u = self._solver.solve(u, trans="T")  # then u - W u is a share of u, not lost in rounding
        after = self._step.T @ u
        if not (np.isfinite(u).all() and (u > 0).all() and (after * (1 + self._margin) < u).all()):
            raise Refused(DIVERGES)

    def rows(self, starts: Floats) -> Bracket:
        """Return bounds of the rows of walks that begin with the weights `starts`, per state.

        `starts` has one row per walk's beginning, in unscaled coordinates and exact.
        """
        begun = np.ldexp(starts[:, self.kept], -self.exponents[self._anchor(starts)][:, None])
        begun = np.ldexp(begun, self.exponents[self.kept][None, :])
        return self._spread(self._certified(begun.T))

    def goal_rows(self, states: Ints) -> Bracket:
        """Return bounds of the rows of walks that begin at each of `states`, scaled by them.

        Entries too small for floats are bounded by 0 and a tiny number.
        """
        begun = np.full((len(self.kept), len(states)), FLOOR)
        place = np.searchsorted(self.kept, states)
        begun[place, np.arange(len(states))] += 1.0
        both = self._certified(np.column_stack([begun, np.ones(len(self.kept))]))
        floor = both.high[:, -1:] * (FLOOR * (1 + 4 * UNIT))
        low = np.maximum(both.low[:, :-1] - floor, 0.0) * (1 - 4 * UNIT)
        return self._spread(Bracket(low, both.high[:, :-1]))

    def _anchor(self, starts: Floats) -> Ints:
        """The state by whose exponent each row of beginnings is scaled: its first one."""
        return np.asarray([int(np.flatnonzero(row)[0]) for row in starts])

    def _spread(self, found: Bracket) -> Bracket:
        """Rows over all states, from columns over the states that are reached."""
        spread = []
        for part in found:
            whole = np.zeros((part.shape[1], len(self.reached)))
            whole[:, self.kept] = part.T
            spread.append(whole)
        return Bracket(*spread)

    def _certified(self, begun: Floats) -> Bracket:
        """Bounds of the solutions x of x = begun + step x, one per column; refused if too wide."""
        x = self._solver.solve(begun)
        again = self._solver.solve(x)
        width = 64 * self._margin
        while width < WIDEST:
            high = x + width * again
            low = np.maximum(x - width * again, 0.0)
            if _near(high) and self._is_above(high, begun) and self._is_below(low, begun):
                return Bracket(low, high)
            width *= 8
        raise Refused(
            "sums over all walks cannot be bounded on this map in double precision; cut roads "
            "into equal pieces or lower the weights"
        )

    def _is_above(self, x: Floats, begun: Floats) -> bool:
        """Whether x >= begun + step x for sure."""
        bound = (begun + self._step @ x) * (1 + self._margin)
        return bool((np.isfinite(x) & (x >= bound)).all())

    def _is_below(self, x: Floats, begun: Floats) -> bool:
        """Whether x <= begun + step x for sure."""
        return bool((x <= (begun + self._step @ x) * (1 - self._margin)).all())


def _near(x: Floats) -> bool:
    """Whether the positive entries of each column are close enough for relative bounds."""
    least = np.where(x > 0, x, np.inf).min(axis=0)
    return bool(np.isfinite(x).all() and (x.max(axis=0) <= FAR_APART * least).all())


def _exponents(matrix: csr_array, sources: Ints) -> tuple[Ints, Bools]:
    """Return the power of two that scales each state, and which states are reached.

    The power is that of the heaviest walk from the nearest source.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    lengths = csr_array(matrix).astype(float)
    lengths.data = -np.log2(lengths.data)
    far = dijkstra(lengths, indices=np.unique(sources), min_only=True)
    reached = np.isfinite(far)
    return np.where(reached, np.rint(np.where(reached, far, 0.0)), 0.0).astype(np.int64), reached


class Arrivals(NamedTuple):
    """Walks that stop at their first arrival: bounds per end state, and of all ends together."""

    low: Floats
    high: Floats
    total_low: Floats
    total_high: Floats


def arrivals(rows: Bracket, goal_rows: Bracket, ends: Ints, exponents: Ints) -> Arrivals | None:
    """Return bounds of the sums of walks that stop at their first arrival at a goal.

    f solves f(t) + sum over t' of f(t') (G(t', t) - [t' = t]) = G(h, t) over the end states t.
    Substitution closes the bounds; None where it does not (ends that lead to each other almost
    surely, or a goal that some walk's beginning does not reach). Totals are scaled by the least
    exponent of the ends.
    """
    high = rows.high[:, ends] * (1 + 8 * UNIT)
    low = np.zeros_like(high)
    more = Bracket(goal_rows.low[:, ends].copy(), goal_rows.high[:, ends].copy())
    own = np.arange(len(ends))
    once = Bracket(np.maximum(more.low[own, own], 1.0), more.high[own, own].copy())
    more.low[own, own] = more.high[own, own] = 0.0
    pad = 1 + (len(ends) + 8) * 2 * UNIT
    for _ in range(SUBSTITUTIONS):
        rest = rows.low[:, ends] / pad - (high @ more.high) * pad
        new_low = np.maximum(low, np.maximum(rest, 0.0) / once.high / pad)
        rest = rows.high[:, ends] * pad - (low @ more.low) / pad
        new_high = np.minimum(high, np.maximum(rest, 0.0) / once.low * pad)
        if np.array_equal(new_low, low) and np.array_equal(new_high, high):
            break
        low, high = new_low, new_high
    total_low, total_high = end_totals(Bracket(low, high), ends, exponents)
    closed = (total_low > 0) & (total_high - total_low <= WIDEST * total_high)
    return Arrivals(low, high, total_low, total_high) if closed.all() else None


def end_totals(found: Bracket, ends: Ints, exponents: Ints) -> Bracket:
    """Return bounds of sums over end states, scaled by the least exponent among them."""
    share = np.ldexp(1.0, exponents[ends].min() - exponents[ends])
    pad = 1 + (len(ends) + 4) * UNIT
    return Bracket(found.low @ share / pad, found.high @ np.maximum(share, LEAST_SHARE) * pad)
