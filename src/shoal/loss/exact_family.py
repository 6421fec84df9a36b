"""The worst initial law of a chain: it puts its weight on one or two states."""

from __future__ import annotations

import math

import numpy as np

from shoal.loss.mixture import NOTHING, Floats, Worst

BISECTIONS = 54


def two_point_worst(density: Floats, starts: Floats, offset: Floats | None) -> Worst:
    """The largest log-ratio between two secrets over outputs AND over all initial laws q.

    density[g, y, x, u] = log A_y(x), the joint density of output u and secret x from first state
    y; starts[g, y, x] = log B_y(x), the probability of x from y. The ratio is
    (Σ q_y A_y(x) / Σ q_y B_y(x)) · (Σ q_y B_y(x') / Σ q_y A_y(x')). Where its first factor is
    held at a value, q lies on a slice of the simplex whose corners have at most two non-zero
    entries, and the second factor, a ratio of linear functions, is largest at a corner: so the
    supremum over q is over pairs of first states. Each pair is solved by `two_point`.
    Secrets impossible from every y are left out.
    """
    given = density - np.where(starts > -math.inf, starts, math.nan)[..., None]
    best = NOTHING
    for secret in range(given.shape[2]):
        for other in range(given.shape[2]):
            extra = 0.0 if offset is None else float(offset[secret, other])
            if secret == other or extra == -math.inf:
                continue
            found = _worst_pair(
                given[:, :, secret],
                given[:, :, other],
                starts[:, :, secret],
                starts[:, :, other],
                best.value - extra,
            )
            if found.value + extra > best.value:
                best = found._replace(value=found.value + extra, secret=secret, other=other)
    return best


def two_point(top: Floats, bottom: Floats, top_start: Floats, bottom_start: Floats) -> Floats:
    """log sup over r ≥ 0 of (A1 + r A2)(B1' + r B2') / ((B1 + r B2)(A1' + r A2')), row by row.

    Columns are the two first states; top = log A/B, bottom = log A'/B'. λ bounds the ratio when
    the quadratic λ·denominator - numerator is nowhere negative on r ≥ 0. With r rescaled so that
    the outer coefficients of the denominator are 1, that says λ ≥ f0, f∞ (the two pure laws) and
    λ C - G ≥ -2 sqrt((λ - f0)(λ - f∞)), C = κ + 1/κ, G = sqrt(f0 f∞)(η + 1/η). The left side
    less the right grows with λ: bisect between max(f0, f∞) and G/C, keep the upper end.

    A secret impossible from one of the two states (nan) frees the laws given x and given x' from
    each other: then the answer is the largest quotient that exists. Rounds up within 1e-15 of
    the bracket.
    """
    with np.errstate(invalid="ignore"):
        free = no_nan(np.fmax.reduce(top, axis=1) - np.fmin.reduce(bottom, axis=1))
    tied = np.isfinite(top).all(axis=1) & np.isfinite(bottom).all(axis=1)
    if not tied.any():
        return free
    top, bottom = top[tied], bottom[tied]
    weight = top_start[tied] - bottom_start[tied]
    ends = top - bottom
    peak = ends.max(axis=1)
    log_c = _log_cosh2(_half_gap(weight - bottom))
    log_g = (ends.sum(axis=1) / 2 - peak) + _log_cosh2(_half_gap(weight + top))
    free[tied] = peak + _least_excess(ends - peak[:, None], log_c, log_g)
    return free


def no_nan(values: Floats) -> Floats:
    """nan (an impossible secret, or 0/0) as no constraint."""
    return np.where(np.isnan(values), -math.inf, values)


def _least_excess(ends: Floats, log_c: Floats, log_g: Floats) -> Floats:
    """The least L ≥ 0 with exp(L) C - G ≥ -2 sqrt((e^L - f0)(e^L - f∞)), f = exp(ends) ≤ 1.

    Divided by e^L C, so that nothing overflows where it matters.
    """
    bound = np.maximum(log_g - log_c, 0.0)
    low, high = np.zeros_like(bound), bound.copy()
    with np.errstate(over="ignore"):
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            room = np.expm1(ends - middle[:, None]).prod(axis=1)
            enough = np.expm1(bound - middle) <= 2 * np.sqrt(np.maximum(room, 0)) * np.exp(-log_c)
            high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    return np.asarray(high)


def _worst_pair(
    top: Floats, bottom: Floats, top_start: Floats, bottom_start: Floats, known: float
) -> Worst:
    """The largest value for one ordered pair of secrets, if above `known`.

    top[g, y, u] = log A_y(x)/B_y(x), nan where B_y(x) = 0; bottom the same for x'. Only outputs
    whose free bound (any y for x, any other for x') beats the best so far are solved.
    """
    with np.errstate(invalid="ignore"):
        free = no_nan(np.fmax.reduce(top, axis=1) - np.fmin.reduce(bottom, axis=1))
        single = no_nan(np.fmax.reduce(top - bottom, axis=1))
    place = np.unravel_index(int(np.argmax(single)), single.shape)
    best = Worst(float(single[place]), int(place[0]), 0, 0, int(place[1]))
    groups, outputs = np.nonzero(free > max(known, best.value))
    for one, two in zip(*np.tril_indices(top.shape[1], -1), strict=True):
        if groups.size == 0:
            return best
        where = (groups[:, None], np.array([[one, two]]), outputs[:, None])
        values = two_point(top[where], bottom[where], top_start[where[:2]], bottom_start[where[:2]])
        found = int(np.argmax(values))
        if values[found] > best.value:
            best = Worst(float(values[found]), int(groups[found]), 0, 0, int(outputs[found]))
            alive = free[groups, outputs] > max(known, best.value)
            groups, outputs = groups[alive], outputs[alive]
    return best


def _half_gap(columns: Floats) -> Floats:
    return np.asarray((columns[:, 0] - columns[:, 1]) / 2)


def _log_cosh2(values: Floats) -> Floats:
    """log(e^v + e^-v)."""
    return np.asarray(np.logaddexp(values, -values))
