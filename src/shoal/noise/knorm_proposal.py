"""The product law that lattice K-norm noise is drawn from, before rejection.

In coordinates w = y T, T unimodular, the diamond {w : Σ rate_j |w_j| <= 1} contains K, so that
Σ rate_j |w_j| <= |y|_K everywhere, and discrete Laplace draws of rates ε rate_j dominate the law
wanted. T reduces K's inertia form (Lagrange and Gauss in the plane, compiled in geometry; the same
pair by pair in more dimensions), which makes the diamond fit slivers too: about half of the draws
are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoal.core.value import Floats, Ints, locked
from shoal.geometry.body import Body
from shoal.geometry.reach import facet_reach

MOST_ROUNDS = 200  # of reduction; stopping early costs acceptance, never exactness


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """`shares` are the rates in w coordinates, `outwards` the inverse of T: y = w @ outwards.

    `exact` are the rates where floats only come near them; in the plane the shares are exact, and
    it is None: draws seldom need the rates as fractions, and most proposals are used once.
    """

    shares: Floats
    outwards: Ints
    exact: tuple[Fraction, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", locked(self.shares))
        object.__setattr__(self, "outwards", locked(self.outwards, np.int64))

    @property
    def rates(self) -> tuple[Fraction, ...]:
        """The rates as fractions."""
        return tuple(map(Fraction, self.shares.tolist())) if self.exact is None else self.exact

    def outward(self, inner: Sequence[int]) -> Ints:
        """y = w @ outwards as one row, in Python's integers when they need more than 62 bits."""
        columns = self.outwards.T.tolist()
        row = [sum(w * t for w, t in zip(inner, column, strict=True)) for column in columns]
        fits = all(abs(value) < 2**62 for value in row)
        return np.array([row], dtype=np.int64 if fits else object).reshape(1, len(row))

    def height(self, inner: Sequence[int]) -> Fraction:
        """Σ rate_j |w_j|."""
        terms = (rate * abs(w) for rate, w in zip(self.rates, inner, strict=True))
        return sum(terms, Fraction(0))


def proposal_for(body: Body) -> Proposal:
    """A proposal whose diamond contains the body in force."""
    match body.dimension:
        case 0:
            return _proposal((), np.zeros((0, 0), dtype=np.int64))
        case 1:
            rate = Fraction(1, int(abs(body.flat[0, 0])))
            return _proposal((rate,), np.eye(1, dtype=np.int64))
        case 2:
            from shoal.geometry.diamond_kernels import diamond

            return Proposal(*diamond(body.flat))
    return _several(body)


def _several(body: Body) -> Proposal:
    """The proposal in three dimensions or more, under the body of its facets."""
    assert body.facets is not None
    inertia = np.array([[float(value) for value in row] for row in body.moments.second])
    inwards, outwards = reduced(inertia)
    corners = body.flat.astype(object) @ np.array(inwards, dtype=object).T
    widest = np.abs(corners).max(axis=0)
    rates = [Fraction(1, int(width)) for width in widest]
    reach = facet_reach(body.facets, rates, inwards)
    return _proposal(tuple(rate / reach for rate in rates), np.array(outwards, dtype=np.int64))


def _proposal(rates: tuple[Fraction, ...], outwards: Ints) -> Proposal:
    return Proposal(np.array([float(rate) for rate in rates]), outwards, rates)


def reduced(inertia: Floats) -> tuple[list[list[int]], list[list[int]]]:
    """Rows t_j of T, short and nearly orthogonal under t·inertia·t, and T's inverse transposed.

    Lagrange's step on every pair until nothing changes. Floats only choose the steps: T is a
    product of integer shears, unimodular whatever they are.
    """
    d = len(inertia)
    rows, inverse = np.eye(d, dtype=int).tolist(), np.eye(d, dtype=int).tolist()
    for _ in range(MOST_ROUNDS):
        changed = False
        for i in range(d):
            for j in range(d):
                times = _shear(inertia, rows[j], rows[i]) if i != j else 0
                if times:
                    rows[j] = [a - times * b for a, b in zip(rows[j], rows[i], strict=True)]
                    inverse[i] = [
                        a + times * b for a, b in zip(inverse[i], inverse[j], strict=True)
                    ]
                    changed = True
        if not changed:
            break
    return rows, inverse


def _shear(inertia: Floats, row: list[int], by: list[int]) -> int:
    """How often `by` is taken from `row`; 0 unless that shortens it clearly."""
    own = np.array(by, dtype=np.float64)
    times = round(float(own @ inertia @ row) / float(own @ inertia @ own))
    left = np.array(row, dtype=np.float64) - times * own
    shorter = float(left @ inertia @ left) < (1 - 1e-9) * float(row @ inertia @ np.array(row))
    return times if shorter else 0
