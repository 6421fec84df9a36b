"""Compiled loops of the greedy search for suppression probabilities; importing this imports numba.

Rows hold K(origin → t, j), scaled by a power of two per slot. A value that would vanish although
its path is possible is kept at FLOOR, and nothing is decided on values below UNSAFE: a candidate
that would need them is turned down, so that underflow can cost releases but never a constraint.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

FLOOR = 1e-290  # a double with all its digits: whatever is possible is at least this
UNSAFE = 1e-270  # far above what FLOOR may add up to
SMALL = 1e-280  # products above it are far from FLOOR


@njit(cache=True, error_model="numpy")
def extend_row(
    initial: Any, moves: Any, hidden: Any, origin: Any, since: int, row: Any, power: Any
) -> None:
    """Recomputes row[t], power[t] for t > since, from the origin (slot, state); slot -1 is start.

    row[t, j]·2^power[t] = P(suppressed strictly between, X_t = j | origin).
    """
    slots, size = moves.shape[0], moves.shape[1]
    slot, state = origin
    first = since
    if since <= slot:
        first = slot + 1
        for j in range(size):
            row[first, j] = initial[j] if slot < 0 else moves[slot, state, j]
        power[first] = 0
        _rescale(row, power, first)
    for t in range(first, slots):
        for j in range(size):
            row[t + 1, j] = 0.0
        for k in range(size):
            weight = row[t, k] * hidden[t, k]
            if weight <= 0:
                continue
            for j in range(size):
                part = weight * moves[t, k, j]
                if part < SMALL and moves[t, k, j] > 0:
                    part = max(part, FLOOR)
                row[t + 1, j] += part
        power[t + 1] = power[t]
        _rescale(row, power, t + 1)


@njit(cache=True, error_model="numpy")
def _rescale(row: Any, power: Any, t: int) -> None:
    largest = 0.0
    for j in range(row.shape[1]):
        largest = max(largest, row[t, j])
    if largest > 0:
        shift = math.frexp(largest)[1]
        for j in range(row.shape[1]):
            if row[t, j] > 0:
                row[t, j] = max(math.ldexp(row[t, j], -shift), FLOOR)
        power[t] += shift


class SecretRows(NamedTuple):
    """The secrets of a day, and table[t, j, c]·2^scale[t, c] = K(secret c → t, j)."""

    when: Any
    who: Any
    bound: Any
    table: Any
    scale: Any


@njit(cache=True, error_model="numpy")
def extend_secrets(moves: Any, hidden: Any, secrets: Any, since: int) -> None:
    """Recomputes the table of the secrets, and their scale, for t > since."""
    when, who, _, table, power = secrets
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    weight = np.empty((size, count))
    for t in range(max(since, 0), slots):
        known = np.searchsorted(when, t, side="right")
        fresh = np.searchsorted(when, t, side="left")
        least = 1.0
        for k in range(size):
            for c in range(fresh):
                weight[k, c] = table[t, k, c] * hidden[t, k]
                if weight[k, c] > 0:
                    least = min(least, weight[k, c])
        for j in range(size):
            for c in range(count):
                table[t + 1, j, c] = 0.0
            for k in range(size):
                if moves[t, k, j] > 0:
                    _add(table[t + 1, j], weight[k], moves[t, k, j], fresh, least)
            for c in range(fresh, known):
                table[t + 1, j, c] = moves[t, who[c], j]
        for c in range(known):
            power[t + 1, c] = power[t, c] if c < fresh else 0
        _rescale_secrets(table[t + 1], power[t + 1], known)


@njit(cache=True, error_model="numpy")
def _add(out: Any, weight: Any, step: float, count: Any, least: float) -> None:
    """out += weight·step, what is not 0 kept at FLOOR; `least` is the smallest positive weight."""
    if least * step > SMALL:
        for c in range(count):
            out[c] += weight[c] * step
        return
    for c in range(count):
        if weight[c] > 0:
            out[c] += max(weight[c] * step, FLOOR)


@njit(cache=True, error_model="numpy")
def _rescale_secrets(table: Any, power: Any, known: Any) -> None:
    """Each secret's largest value brought into [1/2, 1), the power of two noted."""
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
def _carried(row: Any, hidden: Any, secrets: Any, c: int) -> float:
    """K(origin → secret c)·p: what of the secret is still hidden, in the scale of its slot."""
    place = secrets.when[c], secrets.who[c]
    value = row[place] * hidden[place]
    return max(value, FLOOR) if value > 0 else 0.0


@njit(cache=True, error_model="numpy")
def _factors(
    row: Any, power: Any, hidden: Any, secrets: Any, t: int, first: Any, last: Any, out: Any
) -> None:
    """out[c] · table[t, j, c] = K(origin → secret c)·p·K(c → t, j), in the scale of slot t."""
    for c in range(first, last):
        exponent = power[secrets.when[c]] + secrets.scale[t, c] - power[t]
        out[c] = math.ldexp(_carried(row, hidden, secrets, c), exponent)


@njit(cache=True, error_model="numpy")
def _any_shown(shown: Any, row: Any) -> Any:
    return (shown & (row > 0)).any()


@njit(cache=True, error_model="numpy")
def breached(
    row: Any, power: Any, slot: int, after: int, hidden: Any, shown: Any, secrets: Any
) -> bool:
    """Whether an output (origin at `slot`, …, release after slot `after`) breaks a bound.

    Division-free: K(i→s)·p·K(s→j) > bound·K(i→j).
    """
    when, _, bound, table, _ = secrets
    slots, size = row.shape[0] - 1, row.shape[1]
    first = np.searchsorted(when, slot, side="right")
    factor = np.empty(when.size)
    for t in range(after + 1, slots + 1):
        if not _any_shown(shown[t], row[t]):
            continue
        last = np.searchsorted(when, t, side="left")
        _factors(row, power, hidden, secrets, t, first, last, factor)
        for j in range(size):
            whole = row[t, j]
            if whole <= 0 or not shown[t, j]:
                continue
            for c in range(first, last):
                if factor[c] * table[t, j, c] > bound[c] * whole:
                    return True
            if whole < UNSAFE and last > first:
                return True
    return False


@njit(cache=True, error_model="numpy")
def any_breach(
    initial: Any, moves: Any, hidden: Any, shown: Any, possible: Any, secrets: Any
) -> bool:
    """Whether some output (release or start, ⊥ …, release or end) breaks a bound."""
    slots, size = moves.shape[0], moves.shape[1]
    row = np.zeros((slots + 1, size))
    power = np.zeros(slots + 1, dtype=np.int64)
    for slot in range(-1, slots):
        for state in range(size if slot >= 0 else 1):
            if slot >= 0 and not (shown[slot, state] and possible[slot, state]):
                continue
            extend_row(initial, moves, hidden, (slot, state), -2, row, power)
            if breached(row, power, slot, slot, hidden, shown, secrets):
                return True
    return False


@njit(cache=True, error_model="numpy")
def released_here(row: Any, power: Any, slot: int, place: Any, hidden: Any, secrets: Any) -> bool:
    """Whether showing `place` = (slot, state) after the origin breaks no bound before it."""
    when, _, bound, table, scale = secrets
    t, j = place
    whole = row[t, j]
    if whole <= 0:
        return True
    first = np.searchsorted(when, slot, side="right")
    last = np.searchsorted(when, t, side="left")
    if whole < UNSAFE and last > first:
        return False
    for c in range(first, last):
        exponent = power[when[c]] + scale[t, c] - power[t]
        factor = math.ldexp(_carried(row, hidden, secrets, c), exponent)
        if factor * table[t, j, c] > bound[c] * whole:
            return False
    return True


@njit(cache=True, error_model="numpy")
def room(
    row: Any,
    power: Any,
    slot: int,
    place: Any,
    star: Any,
    lift: Any,
    hidden: Any,
    shown: Any,
    secrets: Any,
    most: float,
    least: float,
) -> float:
    """The largest release probability x ≤ most of `place` that outputs across it allow.

    Every bound is linear in x: bound·D - N - x(bound·D1 - N1) ≥ 0, D1 and N1 being the parts of
    D and N whose path goes through `place`. Returns below `least` as soon as that is certain.
    star, lift: the row of `place` itself.
    """
    when, _, bound, table, scale = secrets
    slots, size = row.shape[0] - 1, row.shape[1]
    here, state = place
    through = row[here, state]
    if through <= 0:
        return most
    first = np.searchsorted(when, slot, side="right")
    until = np.searchsorted(when, here, side="right")
    factor = np.empty(when.size)
    through_c = np.zeros(when.size)
    before = np.searchsorted(when, here, side="left")
    _factors(row, power, hidden, secrets, here, first, before, through_c)
    for c in range(first, before):  # of secrets before its slot, the part of N through `place`
        through_c[c] *= table[here, state, c]
    for t in range(here + 1, slots + 1):
        if not _any_shown(shown[t], star[t]):
            continue
        last = np.searchsorted(when, t, side="left")
        _factors(row, power, hidden, secrets, t, first, last, factor)
        for c in range(until, last):
            carried = through * _carried(star, hidden, secrets, c)
            exponent = power[here] + lift[when[c]] + scale[t, c] - power[t]
            through_c[c] = math.ldexp(carried, exponent)
        ratio = math.ldexp(1.0, power[here] + lift[t] - power[t])
        for j in range(size):
            if not shown[t, j] or row[t, j] <= 0 or star[t, j] <= 0:
                continue
            onward = star[t, j] * ratio
            for c in range(first, last):
                part = through_c[c] * (onward if c < until else table[t, j, c])
                used = bound[c] * through * onward - part
                left = bound[c] * row[t, j] - factor[c] * table[t, j, c]
                if used > 0 and left < most * used:
                    most = max(left, 0.0) / used
            if most < least:
                return most
    return most
