"""Rises of belief in decimals of 50 digits, for plans that lie on their bound.

A segment is evaluated in doubles, and a bound of the rounding is added (`relative_error`). What
searches find keeps its bound all the same. A plan that another version stored, or whose beliefs
reach the bound exactly, may lie closer to it than that: only then are its segments evaluated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache

import numpy as np

from shoal.contexts.search.beliefs import (
    Day,
    computed_limits,
    law_after_release,
    memoryless_rise,
    relative_error,
    vector_releases,
)
from shoal.core.codec import Floats

TIE_TOLERANCE = 1e-12  # relative: rises this little above delta are taken for it, as by `loss`
DECIMAL_DIGITS = 50
UP = Context(prec=DECIMAL_DIGITS, rounding=ROUND_CEILING, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
DOWN = Context(prec=DECIMAL_DIGITS, rounding=ROUND_FLOOR, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
Segment = tuple[int, int, Floats]  # the slot and state of a release (-1: "start"), what is hidden
Moves = Callable[[int], list[list[tuple[int, Decimal]]]]


def vector_rise(day: Day, suppression: Floats, delta: float) -> float:
    """Return `memoryless_rise`, settled in decimals where doubles cannot tell it from delta."""
    segments = ((*origin, suppression) for origin in vector_releases(day, suppression))
    return settle_rise(day, segments, memoryless_rise(day, suppression), delta)


def settle_rise(day: Day, segments: Iterable[Segment], rise: float, delta: float) -> float:
    """Return `rise`, or a smaller upper bound of what `segments` raise beliefs by, in decimals.

    `rise` is the highest of `segment_rise`. Decimals are used where it exceeds delta by no more
    than doubles may be off. Secrets that doubles show to stay within delta are skipped.
    """
    off = 2.0 * relative_error(day.slots, day.size) * float(day.share.max(initial=0.0))
    if not delta * (1 + TIE_TOLERANCE) < rise <= delta * (1 + TIE_TOLERANCE) + off:
        return rise
    from shoal.contexts.search import kernels

    moves = decimal_moves(day)
    priors = _lower_priors(day, moves)
    floor, found = computed_limits(day, delta), Decimal(delta)
    for slot, state, suppression in segments:
        highest = floor.copy()
        kernels.raise_highest_beliefs(day.arrays, slot, state, suppression, highest)
        for c in np.flatnonzero(highest > floor).tolist():
            when, who = int(day.when[c]), int(day.who[c])
            belief = _upper_belief(day, moves, (slot, state, suppression), when, who)
            above = UP.subtract(min(belief, Decimal(1)), priors[when][who])
            found = max(found, UP.multiply(above, Decimal(float(day.share[c]))))
    nearest = float(found)
    return nearest if Decimal(nearest) >= found else math.nextafter(nearest, math.inf)


def decimal_moves(day: Day) -> Moves:
    """Return, by slot, the states that each state may move to, and their chances as decimals."""

    @lru_cache(maxsize=2048)
    def rows(t: int) -> list[list[tuple[int, Decimal]]]:
        return [
            [(j, Decimal(chance)) for j, chance in enumerate(row) if chance]
            for row in day.moves[t].tolist()
        ]

    return rows


def _lower_priors(day: Day, moves: Moves) -> list[list[Decimal]]:
    """Return P(X_t = j) rounded down, by path weights, since rows sum to 1 only nearly."""
    first = [Decimal(chance) for chance in day.initial.tolist()]
    most, laws, rest = first, [first], [[Decimal(1)] * day.size]
    for t in range(day.slots - 1):
        laws.append(_advance_law(laws[-1], moves(t), DOWN))
        most = _advance_law(most, moves(t), UP)
        rest.append([Decimal(0)] * day.size)
        for k, row in enumerate(moves(day.slots - 2 - t)):
            for j, chance in row:
                rest[-1][k] = DOWN.fma(rest[-2][j], chance, rest[-1][k])
    total = Decimal(0)
    for mass in most:
        total = UP.add(total, mass)
    return [
        [DOWN.divide(DOWN.multiply(mass, left), total) for mass, left in zip(*both, strict=True)]
        for both in zip(laws, reversed(rest), strict=True)
    ]


def _upper_belief(day: Day, moves: Moves, segment: Segment, when: int, who: int) -> Decimal:
    """Return the highest belief in state `who` at slot `when` in a segment, rounded up."""
    slot, state, suppression = segment
    if when == slot:
        return Decimal(int(who == state))
    low = high = [Decimal(chance) for chance in law_after_release(day, (slot, state)).tolist()]
    best = Decimal(0)
    for t in range(slot + 1, day.slots + 1):
        if t == when:
            high = [mass if j == who else Decimal(0) for j, mass in enumerate(high)]
        if t >= when:
            beliefs = {j: UP.divide(high[j], mass) for j, mass in enumerate(low) if mass}
            releasable = (b for j, b in beliefs.items() if t == day.slots or suppression[t, j] < 1)
            best = max(best, *releasable, Decimal(0))
            if max(beliefs.values(), default=best) <= best:  # later ones are averages of these
                break
        if t < day.slots:
            chances = [Decimal(chance) for chance in suppression[t].tolist()]
            low = _advance_law(map(DOWN.multiply, low, chances), moves(t), DOWN)
            high = _advance_law(map(UP.multiply, high, chances), moves(t), UP)
    return best


def _advance_law(
    law: Iterable[Decimal], rows: list[list[tuple[int, Decimal]]], rounding: Context
) -> list[Decimal]:
    """Return the law one slot later, each sum of products rounded in one direction."""
    out = [Decimal(0)] * len(rows)
    for mass, row in zip(law, rows, strict=True):
        for j, chance in row if mass else ():
            out[j] = rounding.fma(mass, chance, out[j])
    return out
