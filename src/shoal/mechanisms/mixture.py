"""Where a loss that falls with the scale comes down to a budget: by bisection, or by secants.

Secants take a fifth of the evaluations where the loss is smooth. Every scale that is returned was
itself evaluated, so that no promise rests on the loss between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError, Refused
from shoal.core.progress import OutOfTime, time_over


def smallest_scale(
    loss_of_scale: Callable[[float], float], epsilon: float, lower: float, upper: float
) -> float:
    """The smallest scale from lower to upper with loss at most epsilon, within 1e-13, rounded up.

    `loss_of_scale` must not increase (a wider Laplace is a narrower one plus independent noise).
    The scale returned was itself evaluated and met epsilon. `lower` is returned when it is
    enough, as when no noise is needed at all or `upper` is below it; inf when even `upper` is not.
    """
    if not lower > 0:
        raise InputError(f"the least scale is {lower}; it must be positive")
    above = loss_of_scale(lower)
    if above <= epsilon:
        return lower
    below = loss_of_scale(upper) if lower < upper else math.inf
    if not below <= epsilon:
        return math.inf
    return narrow_bracket(loss_of_scale, epsilon, (lower, above), (upper, below), 1e-13)[1]


def crossing(
    falling: Callable[[float], float], level: float, guess: float, accuracy: float
) -> tuple[float, float]:
    """Where a function that falls crosses `level`: a place above it and one at or below it.

    They differ by at most `accuracy`, relatively, and the function was evaluated at both. The
    first is 0 when no place above the level was found, the second inf when none below was.
    """
    low = high = guess
    above = below = falling(guess)
    while below > level:
        low, above, high = high, below, high * 4
        if high > guess * 2.0**60:
            return low, math.inf
        below = falling(high)
    while above <= level:
        high, below, low = low, above, low / 4
        if low < guess * 2.0**-60:
            return 0.0, high
        above = falling(low)
    return narrow_bracket(falling, level, (low, above), (high, below), accuracy)


def narrow_bracket(
    falling: Callable[[float], float],
    level: float,
    left: tuple[float, float],
    right: tuple[float, float],
    accuracy: float,
) -> tuple[float, float]:
    """The ends of a bracket that differ by at most `accuracy`, relatively; both were evaluated.

    `left` and `right` are a place above `level` and one at or below it, each with its value. By
    secant steps between logarithms, just beyond the root on either side in turn; every third step
    halves the bracket, so that it shrinks for any function. Wider when the time is over.
    """
    (low, above), (high, below) = left, right
    turn = 0
    while high > low * (1 + accuracy) and not time_over():
        middle = math.sqrt(low) * math.sqrt(high)
        if turn % 3 < 2 and 0 < below < above < math.inf:
            share = math.log(above / level) / math.log(above / below)
            beyond = accuracy * (0.4 if turn % 3 == 0 else -0.4)
            middle = low * (high / low) ** share * (1 + beyond)
        if not low < middle < high:
            middle = math.sqrt(low) * math.sqrt(high)
        try:
            found = falling(middle)
        except OutOfTime:  # both ends of the bracket were evaluated
            break
        if found > level:
            low, above = middle, found
        else:
            high, below = middle, found
        turn += 1
    return low, high


# The loss of Laplace noise on a query with finitely many values: a finite maximum.


# Densities are added up as plain doubles while every one of them is known to stay above
# exp(-600); what underflow can lose is then 1e-60 of each. Beyond that, in logarithms.
DEEPEST_LINEAR = 600.0
NO_NOISE = 64.0  # lattice noise of scale step/64 is zero but for 3e-28: as good as none
LARGEST_LAW_TABLE = 20_000_000  # numbers a table of laws of several coordinates may hold


class TooLarge(Refused):
    """The laws have more values than can be computed; the message says the limit."""


class WorstOutput(NamedTuple):
    """The largest log-ratio of a set of laws and where it is reached, as indices."""

    value: float
    group: int = 0
    secret: int = 0
    other: int = 0
    output: int = 0


NOTHING = WorstOutput(-math.inf)


def mixture_loss(
    laws: npt.ArrayLike,
    scale: float,
    *,
    step: float = 1.0,
    values: npt.ArrayLike | None = None,
    pairs: npt.ArrayLike | None = None,
    logs: bool = False,
) -> float:
    """The largest log-ratio of F + Laplace(scale) between two secrets, over all outputs.

    max over (x, x') in pairs and u of  log Σ_c P(c|x) K(u-c) - log Σ_c P(c|x') K(u-c), with
    K(v) = exp(-|v|/scale) and P(c|x) = laws[x, j] at c = step·j, or at c = values[j] (increasing).
    Between neighbouring support points the ratio is monotone, so u runs over the support; ±∞ give
    the same as its ends. `pairs` is a boolean (m, m) table of ordered pairs, all by default; a
    row that is all zero is not a secret. `logs` says that `laws` holds logarithms.

    Rounds up: the answer is at least the true supremum of the laws as given. It costs
    O(m n log n); sums are never truncated, so tails of any size keep their say.
    """
    table = np.atleast_2d(np.asarray(laws, dtype=np.float64))
    lattice = step * np.arange(table.shape[-1], dtype=np.float64)
    grid: Floats = lattice if values is None else np.asarray(values, np.float64)
    _refuse_bad_laws(table, grid, scale, logs)
    possible = np.asarray((table > (-math.inf if logs else 0.0)).any(axis=1))
    allowed = None if pairs is None else np.where(np.asarray(pairs, np.bool_), 0.0, -math.inf)
    positions = (grid - grid[0]) / scale
    return worst_of(
        table[None], positions, logs=logs, possible=possible[None], offset=allowed
    ).value


def lattice_loss(
    laws: npt.ArrayLike, decay: Fraction, *, pairs: npt.ArrayLike | None = None, logs: bool = False
) -> float:
    """The loss of lattice noise with mass ∝ exp(-decay·|j|) on a query with values 0, 1, 2, …

    The same maximum as `mixture_loss` with scale 1/decay, with equality: between two support
    points the ratio is monotone on the lattice too, and every support point is on the lattice.
    A noise lattice finer than the support is covered in the same way (decay per support step).
    Rounds up, the conversion of `decay` included.
    """
    upward = math.nextafter(float(decay), math.inf)
    return mixture_loss(laws, 1.0, step=upward, pairs=pairs, logs=logs)


def worst_of(
    laws: Floats,
    positions: Floats,
    *,
    logs: bool = False,
    possible: Bools | None = None,
    offset: Floats | None = None,
    roundings: float = 0.0,
    depth: float | None = None,
) -> WorstOutput:
    """The largest of  offset[x, x'] + log D_x(u) - log D_x'(u)  over groups, pairs and outputs.

    D is `laws` (groups, secrets, values) smoothed by exp(-|distance|) over `positions` (values
    divided by the scale). `possible` (groups, secrets) leaves out secrets that never happen; an
    offset of -inf leaves out a pair. 0/0 is no constraint, c/0 is infinite. Rounds up by the
    bound of this evaluation, plus `roundings` relative errors of 2^-53 in each entry of `laws`.
    `depth` is -log of the smallest total of a law that is not identically zero, when known.
    """
    span = float(max(positions[-1], -positions[0], positions[-1] - positions[0]))
    if not logs and span + (depth_of(laws) if depth is None else depth) > DEEPEST_LINEAR:
        with np.errstate(divide="ignore"):
            laws, logs = np.log(laws), True
    density = smooth_laws(laws, positions, logs=logs)
    if not logs:
        with np.errstate(divide="ignore"):
            density = np.log(density)
    found = steepest(density, possible, offset)
    if not math.isfinite(found.value):
        return found
    slack = evaluation_slack(span, laws.shape[-1], largest_finite(density))
    return found._replace(value=found.value + slack + roundings * 2.0**-52)


def vector_loss(
    laws: npt.ArrayLike,
    scale: float,
    *,
    steps: npt.ArrayLike = 1.0,
    pairs: npt.ArrayLike | None = None,
) -> float:
    """The largest log-ratio of F + independent Laplace(scale) per coordinate, over all outputs.

    laws[x, j1, .., jd] = P(F = (steps_1 j1, .., steps_d jd) | x). In each coordinate by itself
    the ratio is monotone between neighbouring support coordinates (fix the others: both densities
    are mixtures of K), so the supremum is on the GRID of support coordinates, its faces standing
    for ±∞; support points alone are not enough. Rounds up. TooLarge beyond 2e7 numbers.
    """
    table = np.asarray(laws, dtype=np.float64)
    if table.size > LARGEST_LAW_TABLE:
        raise TooLarge(
            f"the laws have {table.size} numbers; at most {LARGEST_LAW_TABLE} are handled"
        )
    if not (scale > 0 and math.isfinite(scale)) or not (table >= 0).all():
        raise InputError("laws must be probabilities, and scale positive and finite")
    allowed = None if pairs is None else np.where(np.asarray(pairs, np.bool_), 0.0, -math.inf)
    apart = np.broadcast_to(np.asarray(steps, dtype=np.float64), table.ndim - 1)
    decays = np.array([step_over(float(step), scale) for step in apart])
    possible = table.reshape(len(table), -1).any(axis=1)
    return grid_worst(table[None], decays, np.asarray(possible)[None], allowed, False, 0.0).value


def grid_worst(
    table: Floats,
    decays: Floats,
    possible: Bools,
    offset: Floats | None,
    logs: bool,
    roundings: float,
) -> WorstOutput:
    """Smooth (groups, secrets, *grid) axis by axis, then compare the secrets at every point."""
    counts = table.shape[2:]
    span = float(decays @ (np.array(counts) - 1))
    if not logs and span + depth_of(table.reshape(*table.shape[:2], -1)) > DEEPEST_LINEAR:
        with np.errstate(divide="ignore"):
            table, logs = np.log(table), True
    slack = 0.0
    for axis, (decay, count) in enumerate(zip(decays.tolist(), counts, strict=True)):
        positions = decay * np.arange(count, dtype=np.float64)
        moved = smooth_laws(np.moveaxis(table, axis + 2, -1), positions, logs=logs)
        table = np.moveaxis(moved, -1, axis + 2)
        slack += evaluation_slack(span, count, largest_finite(table) if logs else span)
    flat = np.ascontiguousarray(table).reshape(*table.shape[:2], -1)
    if not logs:
        with np.errstate(divide="ignore"):
            flat = np.log(flat)
    found = steepest(flat, possible, offset)
    slack += evaluation_slack(span, max(counts), largest_finite(flat)) + roundings * 2.0**-52
    return found._replace(value=found.value + slack) if math.isfinite(found.value) else found


def largest_finite(values: Floats) -> float:
    """The largest absolute value that is finite, 0 when there is none."""
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    if math.isfinite(low) and math.isfinite(high):
        return max(-low, high)
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def smooth_laws(laws: Floats, positions: Floats, *, logs: bool = False) -> Floats:
    """Σ_j laws[..., j] exp(-|positions[u] - positions[j]|) at every u; logarithms when `logs`.

    Two sweeps, each by doubling: with S_K(u) the sum over the K nearest points on one side,
    S_2K(u) = S_K(u) + exp(-(p_u - p_{u-K})) S_K(u-K). No subtraction: relative accuracy is kept.
    """
    left = _swept(laws, positions, logs)
    right = _swept(laws[..., ::-1], -positions[::-1], logs)[..., ::-1]
    gap = positions[1:] - positions[:-1]
    if logs:
        left[..., :-1] = np.logaddexp(left[..., :-1], right[..., 1:] - gap)
    else:
        left[..., :-1] += right[..., 1:] * np.exp(-gap)
    return left


def evaluation_slack(span: float, count: int, largest_log: float) -> float:
    """What rounding inside `worst_of` can hide, with `count` values over `span` scales.

    Each of the log2(count) doublings adds three roundings and one exponential whose argument is
    at most `span`; a logarithm of size L is off by L·2^-53. The factor 2^-50 is four times that.
    """
    return 2.0**-50 * (1 + count.bit_length()) * (4.0 + span + largest_log)


def step_over(step: float, scale: float) -> float:
    """step / scale, rounded up: more decay is less noise."""
    return math.nextafter(step / scale, math.inf)


def depth_of(laws: Floats) -> float:
    """-log of the smallest total of a law: how deep its smoothed density can start."""
    totals = laws.sum(axis=-1)
    return -math.log(float(totals[totals > 0].min(initial=1.0)))


def _swept(laws: Floats, positions: Floats, logs: bool) -> Floats:
    """Σ over j ≤ u of laws[..., j] exp(-(positions[u] - positions[j])), a fresh array."""
    out = np.array(laws, dtype=np.float64)
    reach, count = 1, out.shape[-1]
    while reach < count:
        gap = positions[reach:] - positions[:-reach]
        if logs:
            out[..., reach:] = np.logaddexp(out[..., reach:], out[..., :-reach] - gap)
        else:
            out[..., reach:] += out[..., :-reach] * np.exp(-gap)
        reach *= 2
    return out


def steepest(density: Floats, possible: Bools | None, offset: Floats | None) -> WorstOutput:
    """The largest difference of log densities between two possible secrets."""
    if possible is not None and not possible.all():
        density = np.where(possible[..., None], density, np.nan)
    if offset is None:
        return _largest_range(density)
    best = NOTHING
    for other in range(density.shape[1]):
        rows = np.flatnonzero(offset[:, other] > -math.inf)
        if rows.size == 0:
            continue
        gaps = _gap(density[:, rows], density[:, other : other + 1])
        gaps += np.where(gaps > -math.inf, offset[rows, other, None], 0.0)
        found = _worst_output(gaps, other)
        if found.value > best.value:
            best = found._replace(secret=int(rows[found.secret]))
    return best


def _largest_range(density: Floats) -> WorstOutput:
    """The largest difference over all pairs: highest minus lowest at each output."""
    top, bottom = np.fmax.reduce(density, axis=1), np.fmin.reduce(density, axis=1)
    found = _worst_output(_gap(top, bottom)[:, None, :], 0)
    if found.value == -math.inf:
        return NOTHING
    column = density[found.group, :, found.output]
    return found._replace(secret=int(np.nanargmax(column)), other=int(np.nanargmin(column)))


def _gap(top: Floats, bottom: Floats) -> Floats:
    """top - bottom with 0/0 (-inf less -inf) and impossible secrets (nan) as no constraint."""
    with np.errstate(invalid="ignore"):
        gap = np.asarray(np.subtract(top, bottom))
        settled = math.isfinite(float(gap.sum()))
    if not settled:  # only then may there be something to replace
        gap[np.isnan(gap)] = -math.inf
    return gap


def _worst_output(gaps: Floats, other: int) -> WorstOutput:
    place = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
    group, secret, output = (int(index) for index in place)
    return WorstOutput(float(gaps[group, secret, output]), group, secret, other, output)


def _refuse_bad_laws(table: Floats, grid: Floats, scale: float, logs: bool) -> None:
    """Refuse a scale, laws or positions that the evaluation cannot use.

    The scale must be positive and finite. The laws must be numbers, not negative unless they are
    logarithms. The positions must increase, one for each column of the laws.
    """
    problems: list[tuple[Any, str]] = [
        (scale > 0 and math.isfinite(scale), f"scale is {scale}; it must be positive and finite"),
        (not np.isnan(table).any(), "laws hold nan; they must be numbers"),
        (logs or (table >= 0).all(), "laws hold negative numbers; they must be probabilities"),
        (grid.shape == table.shape[-1:], "values needs one number per column of laws"),
        ((np.diff(grid) > 0).all(), "values must increase (and step be positive)"),
    ]
    for fine, message in problems:
        if not fine:
            raise InputError(message)


# The worst initial law of a chain: it puts its weight on one or two states.


BISECTIONS = 54


def two_point_worst(density: Floats, starts: Floats, offset: Floats | None) -> WorstOutput:
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
) -> WorstOutput:
    """The largest value for one ordered pair of secrets, if above `known`.

    top[g, y, u] = log A_y(x)/B_y(x), nan where B_y(x) = 0; bottom the same for x'. Only outputs
    whose free bound (any y for x, any other for x') beats the best so far are solved.
    """
    with np.errstate(invalid="ignore"):
        free = no_nan(np.fmax.reduce(top, axis=1) - np.fmin.reduce(bottom, axis=1))
        single = no_nan(np.fmax.reduce(top - bottom, axis=1))
    place = np.unravel_index(int(np.argmax(single)), single.shape)
    best = WorstOutput(float(single[place]), int(place[0]), 0, 0, int(place[1]))
    groups, outputs = np.nonzero(free > max(known, best.value))
    for one, two in zip(*np.tril_indices(top.shape[1], -1), strict=True):
        if groups.size == 0:
            return best
        where = (groups[:, None], np.array([[one, two]]), outputs[:, None])
        values = two_point(top[where], bottom[where], top_start[where[:2]], bottom_start[where[:2]])
        found = int(np.argmax(values))
        if values[found] > best.value:
            best = WorstOutput(float(values[found]), int(groups[found]), 0, 0, int(outputs[found]))
            alive = free[groups, outputs] > max(known, best.value)
            groups, outputs = groups[alive], outputs[alive]
    return best


def _half_gap(columns: Floats) -> Floats:
    return np.asarray((columns[:, 0] - columns[:, 1]) / 2)


def _log_cosh2(values: Floats) -> Floats:
    """log(e^v + e^-v)."""
    return np.asarray(np.logaddexp(values, -values))
