"""Compiled loops of the greedy search for suppression probabilities; importing this imports numba.

Rows hold K(origin → t, j), scaled by a power of two per slot. A value that would vanish although
its path is possible is kept at FLOOR, and nothing is decided on values below UNSAFE: a candidate
that would need them is turned down, so that underflow can cost releases but never a constraint.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from shoal.contexts.search.beliefs import Origin
from shoal.core.codec import Bools, Floats, Ints

FLOOR = 1e-290  # a normal double; positive masses stay at or above it
UNSAFE = 1e-270  # far above what FLOOR may add up to
FAR_ABOVE_FLOOR = 1e-280  # products above it are far from FLOOR


class SuppressedDay(NamedTuple):
    """A day, its secrets, and a suppression vector in evaluation.

    suppression[t, j] are probabilities and released[t, j] says whether j is ever released at t; its
    last row is the end of the day. table[t, j, c]·2^scale[t, c] = K(secret c → t, j).
    """

    initial: Floats
    moves: Floats
    suppression: Floats
    released: Bools
    when: Ints
    who: Ints
    bound: Floats
    table: Floats
    scale: Ints


@njit(cache=True, error_model="numpy")
def extend_row(day: SuppressedDay, origin: Origin, since: int, row: Floats, power: Ints) -> None:
    """Recompute row[t] and power[t] in place for t > since, from an origin (slot, state).

    row[t, j]·2^power[t] = P(suppressed strictly between, X_t = j | origin).
    """
    moves, (slot, state) = day.moves, origin
    slots, size = moves.shape[0], moves.shape[1]
    first = since
    if since <= slot:
        first = slot + 1
        row[first] = day.initial if slot < 0 else moves[slot, state]
        power[first] = 0
        _rescale(row, power, first)
    for t in range(first, slots):
        row[t + 1] = 0.0
        for k in range(size):
            weight = row[t, k] * day.suppression[t, k]
            if weight <= 0:
                continue
            for j in range(size):
                part = weight * moves[t, k, j]
                if part < FAR_ABOVE_FLOOR and moves[t, k, j] > 0:
                    part = max(part, FLOOR)
                row[t + 1, j] += part
        power[t + 1] = power[t]
        _rescale(row, power, t + 1)


@njit(cache=True, error_model="numpy")
def _rescale(row: Floats, power: Ints, t: int) -> None:
    """Scale row[t] in place so that its largest entry lies in [1/2, 1), and count the power.

    Positive entries stay at FLOOR or above.
    """
    largest = 0.0
    for j in range(row.shape[1]):
        largest = max(largest, row[t, j])
    if largest > 0:
        shift = math.frexp(largest)[1]
        for j in range(row.shape[1]):
            if row[t, j] > 0:
                row[t, j] = max(math.ldexp(row[t, j], -shift), FLOOR)
        power[t] += shift


@njit(cache=True, error_model="numpy")
def extend_secrets(day: SuppressedDay, since: int) -> None:
    """Recompute the table of the secrets and their scale in place for t > since."""
    _, moves, suppression, _, when, who, _, table, power = day
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    weight = np.empty((size, count))
    for t in range(max(since, 0), slots):
        known = int(np.searchsorted(when, t, side="right"))
        fresh = int(np.searchsorted(when, t, side="left"))
        least = 1.0
        for k in range(size):
            for c in range(fresh):
                weight[k, c] = table[t, k, c] * suppression[t, k]
                if weight[k, c] > 0:
                    least = min(least, weight[k, c])
        for j in range(size):
            for c in range(count):
                table[t + 1, j, c] = 0.0
            for k in range(size):
                if moves[t, k, j] > 0:
                    _add_scaled(table[t + 1, j], weight[k], moves[t, k, j], fresh, least)
            for c in range(fresh, known):
                table[t + 1, j, c] = moves[t, who[c], j]
        for c in range(known):
            power[t + 1, c] = power[t, c] if c < fresh else 0
        _rescale_secrets(table[t + 1], power[t + 1], known)


@njit(cache=True, error_model="numpy")
def _add_scaled(out: Floats, weight: Floats, step: float, count: int, least: float) -> None:
    """Add weight·step to `out` in place; positive products stay at FLOOR or above.

    `least` is the smallest positive weight.
    """
    if least * step > FAR_ABOVE_FLOOR:
        for c in range(count):
            out[c] += weight[c] * step
        return
    for c in range(count):
        if weight[c] > 0:
            out[c] += max(weight[c] * step, FLOOR)


@njit(cache=True, error_model="numpy")
def _rescale_secrets(table: Floats, power: Ints, known: int) -> None:
    """Scale each secret's column into [1/2, 1) in place and add its power of two to `power`."""
    for c in range(known):
        largest = 0.0
        for j in range(table.shape[0]):
            largest = max(largest, table[j, c])
        if largest <= 0:
            continue
        shift = math.frexp(largest)[1]
        factor = math.ldexp(1.0, -shift) if -1000 < shift < 1000 else 0.0
        for j in range(table.shape[0]):
            if table[j, c] > 0:
                scaled = table[j, c] * factor if factor > 0 else math.ldexp(table[j, c], -shift)
                table[j, c] = max(scaled, FLOOR)
        power[c] += shift


@njit(cache=True, error_model="numpy")
def _mass_with_secret(row: Floats, day: SuppressedDay, c: int) -> float:
    """Return K(origin → secret c)·p, the mass that passes the secret suppressed.

    It has the scale of the secret's slot.
    """
    entry = day.when[c], day.who[c]
    value = row[entry] * day.suppression[entry]
    return max(value, FLOOR) if value > 0 else 0.0


@njit(cache=True, error_model="numpy")
def _fill_factors(
    row: Floats, power: Ints, day: SuppressedDay, t: int, first: int, last: int, out: Floats
) -> None:
    """Fill out[c] so that out[c]·table[t, j, c] = K(origin → secret c)·p·K(c → t, j).

    Values have the scale of slot t.
    """
    for c in range(first, last):
        exponent = power[day.when[c]] + day.scale[t, c] - power[t]
        out[c] = math.ldexp(_mass_with_secret(row, day, c), int(exponent))


@njit(cache=True, error_model="numpy")
def _any_released(released: Bools, row: Floats) -> bool:
    """Return whether a state with positive mass may be released."""
    return bool((released & (row > 0)).any())


@njit(cache=True, error_model="numpy")
def _release_breaks_bound(
    whole: float, day: SuppressedDay, t: int, j: int, factor: Floats, first: int, last: int
) -> bool:
    """Return whether a release of j at t breaks a bound; `whole` is the row's entry for it.

    Division-free: K(i→s)·p·K(s→j) > bound·K(i→j).
    """
    for c in range(first, last):
        if factor[c] * day.table[t, j, c] > day.bound[c] * whole:
            return True
    return whole < UNSAFE and last > first


@njit(cache=True, error_model="numpy")
def breaks_any_bound(row: Floats, power: Ints, slot: int, after: int, day: SuppressedDay) -> bool:
    """Return whether an output from an origin to a release after slot `after` breaks a bound."""
    slots, size = row.shape[0] - 1, row.shape[1]
    first = int(np.searchsorted(day.when, slot, side="right"))
    factor = np.empty(day.when.size)
    for t in range(after + 1, slots + 1):
        if not _any_released(day.released[t], row[t]):
            continue
        last = int(np.searchsorted(day.when, t, side="left"))
        _fill_factors(row, power, day, t, first, last, factor)
        for j in range(size):
            whole = row[t, j]
            if (
                whole > 0
                and day.released[t, j]
                and _release_breaks_bound(whole, day, t, j, factor, first, last)
            ):
                return True
    return False


@njit(cache=True, error_model="numpy")
def day_breaks_any_bound(day: SuppressedDay) -> bool:
    """Return whether any output between two releases, the start or the end breaks a bound."""
    slots, size = day.moves.shape[0], day.moves.shape[1]
    row = np.zeros((slots + 1, size))
    power = np.zeros(slots + 1, dtype=np.int64)
    for slot in range(-1, slots):
        for state in range(size if slot >= 0 else 1):
            if slot < 0 or day.released[slot, state]:
                extend_row(day, (slot, state), -2, row, power)
                if breaks_any_bound(row, power, slot, slot, day):
                    return True
    return False


@njit(cache=True, error_model="numpy")
def largest_release_chance(
    row: Floats,
    power: Ints,
    slot: int,
    entry: tuple[int, int],
    star: Floats,
    star_power: Ints,
    day: SuppressedDay,
    largest: float,
    least: float,
) -> float:
    """Return the largest release probability, at most `most`, of `entry` that an origin allows.

    0 when the release itself breaks a bound. Every bound of outputs across the entry is linear in
    x: bound·D - N - x(bound·D1 - N1) ≥ 0, where D1 and N1 are the parts of D and N whose path goes
    through the entry. Returns a value below `least` as soon as that is certain. `star` and
    `star_power` are the row of the entry itself.
    """
    when, bound, table, releasable = day.when, day.bound, day.table, day.released
    slots, size = row.shape[0] - 1, row.shape[1]
    here, state = entry
    through = row[here, state]
    if through <= 0:
        return largest
    first = int(np.searchsorted(when, slot, side="right"))
    before = int(np.searchsorted(when, here, side="left"))
    until = int(np.searchsorted(when, here, side="right"))
    factor, through_c = np.empty(when.size), np.zeros(when.size)
    _fill_factors(row, power, day, here, first, before, through_c)
    if _release_breaks_bound(through, day, here, state, through_c, first, before):
        return 0.0
    for c in range(first, before):  # of secrets before its slot, the part of N through `entry`
        through_c[c] *= table[here, state, c]
    for t in range(here + 1, slots + 1):
        if not _any_released(releasable[t], star[t]):
            continue
        last = int(np.searchsorted(when, t, side="left"))
        _fill_factors(row, power, day, t, first, last, factor)
        for c in range(until, last):
            carried = through * _mass_with_secret(star, day, c)
            exponent = power[here] + star_power[when[c]] + day.scale[t, c] - power[t]
            through_c[c] = math.ldexp(carried, int(exponent))
        ratio = math.ldexp(1.0, int(power[here] + star_power[t] - power[t]))
        for j in range(size):
            if not releasable[t, j] or row[t, j] <= 0 or star[t, j] <= 0:
                continue
            onward = star[t, j] * ratio
            for c in range(first, last):
                part = through_c[c] * (onward if c < until else table[t, j, c])
                used = bound[c] * through * onward - part
                left = bound[c] * row[t, j] - factor[c] * table[t, j, c]
                if used > 0 and left < largest * used:
                    largest = max(left, 0.0) / used
            if largest < least:
                return largest
    return largest
