"""Compiled loops that evaluate beliefs under suppression; importing this imports numba.

Laws are kept as logarithms relative to a power of two per slot, so that runs of hundreds of
suppressed slots and transitions of 10^-300 neither underflow nor lose digits: a state is
impossible exactly when its logarithm is -inf.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

LN2 = math.log(2.0)
SAFE = 1e-250  # sums above it have lost nothing that matters to the terms that underflowed


@njit(cache=True, error_model="numpy")
def advance(logs: Any, hidden: Any, matrix: Any, out: Any) -> int:
    """Logarithms of the law one slot later, given suppression; returns the power of two taken out.

    out[j] = log Σ_k e^{logs[k]} hidden[k] matrix[k, j] - e·log 2, e chosen so that the largest
    lies in [-log 2, 0].
    """
    size = logs.size
    weight, rest = np.empty(size), np.empty(size)
    for k in range(size):
        weight[k] = math.exp(logs[k]) * hidden[k]
    largest = -np.inf
    for j in range(size):
        total = 0.0
        for k in range(size):
            total += weight[k] * matrix[k, j]
        if total > SAFE:
            out[j] = math.log(total)
        else:
            top, total = _log_weights(logs, hidden, matrix, j, rest)
            out[j] = top + math.log(total) if total > 0 else -np.inf
        largest = max(largest, out[j])
    if largest == -np.inf:
        return 0
    power = math.ceil(largest / LN2)
    for j in range(size):
        out[j] -= power * LN2
    return power


@njit(cache=True, error_model="numpy")
def row_from(
    initial: Any, moves: Any, slot: int, state: int, suppression: Any, logs: Any, powers: Any
) -> None:
    """Fills logs[t], powers[t] for slot < t ≤ T: the suppressed law from a release, or "start"."""
    slots, size = moves.shape[0], moves.shape[1]
    unit = np.full(size, -np.inf)
    ones = np.ones(size)
    if slot < 0:
        for j in range(size):
            logs[0, j] = math.log(initial[j]) if initial[j] > 0 else -np.inf
        powers[0] = 0
    else:
        unit[state] = 0.0
        powers[slot + 1] = advance(unit, ones, moves[slot], logs[slot + 1])
    for t in range(slot + 1, slots):
        powers[t + 1] = powers[t] + advance(logs[t], suppression[t], moves[t], logs[t + 1])


@njit(cache=True, error_model="numpy")
def memoryless_highest(day: Any, suppression: Any) -> Any:
    """The highest belief in each secret over all outputs of one suppression vector.

    `day` is `Arrays` (`beliefs`), `shown` being the states that are possible. Only outputs
    (release, suppressed …, release) matter, "start" and "end" being releases.
    """
    initial, moves, when, who = day.initial, day.moves, day.when, day.who
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    after = np.empty((count, slots + 1, size))
    scale = np.empty((count, slots + 1), dtype=np.int64)
    for c in range(count):
        row_from(initial, moves, when[c], who[c], suppression, after[c], scale[c])
    highest = np.full(count, -np.inf)
    logs = np.empty((slots + 1, size))
    powers = np.empty(slots + 1, dtype=np.int64)
    for slot in range(-1, slots):
        for state in range(size if slot >= 0 else 1):
            if slot >= 0 and not (day.shown[slot, state] and suppression[slot, state] < 1):
                continue
            row_from(initial, moves, slot, state, suppression, logs, powers)
            for c in range(count):
                if when[c] == slot and who[c] == state:
                    highest[c] = 0.0
                elif when[c] > slot:
                    _between(
                        logs, powers, after[c], scale[c], when[c], who[c], suppression, highest, c
                    )
    return np.exp(highest)


@njit(cache=True, error_model="numpy")
def _between(
    logs: Any,
    powers: Any,
    after: Any,
    scale: Any,
    slot: int,
    state: int,
    suppression: Any,
    highest: Any,
    c: int,
) -> None:
    """highest[c] becomes the largest log-belief in (slot, state) over the releases after it."""
    slots, size = after.shape[0] - 1, after.shape[1]
    hidden = suppression[slot, state]
    if logs[slot, state] == -np.inf or hidden <= 0:
        return
    left = logs[slot, state] + math.log(hidden)
    best = highest[c]
    for t in range(slot + 1, slots + 1):
        shift = left + (powers[slot] + scale[t] - powers[t]) * LN2
        for j in range(size):
            if logs[t, j] > -np.inf and (t == slots or suppression[t, j] < 1):
                best = max(best, shift + after[t, j] - logs[t, j])
    highest[c] = best


@njit(cache=True, error_model="numpy")
def mark_releases(law: Any, moves: Any, slot: int, codes: Any, always: int, seen: Any) -> None:
    """Marks in seen[t, j] the releases that can follow one at `slot`; booleans hide no underflow.

    `law` says what the slot after it can hold; code `always` suppresses for certain.
    """
    size = law.size
    for step in range(codes.shape[0]):
        t = slot + 1 + step
        after = np.zeros(size, dtype=np.bool_)
        for k in range(size):
            if not law[k]:
                continue
            if codes[step, k] < always:
                seen[t, k] = True
            if codes[step, k] > 0 and t + 1 < moves.shape[0]:
                for j in range(size):
                    if moves[t, k, j] > 0:
                        after[j] = True
        law = after


@njit(cache=True, error_model="numpy")
def segment_highest(day: Any, slot: int, state: int, suppression: Any, highest: Any) -> None:
    """Raises highest[c] to the highest belief in secret c after a release, until the next one.

    `day` is `Arrays` (`beliefs`), of which no bound is read. Beliefs are carried forward through
    the reversed chain, B(j, k) = P(X_{t-1} = k | X_t = j, suppressed): a product of stochastic
    matrices, in which nothing cancels. A secret that no possible state puts above highest[c] is
    dropped: later beliefs in it are averages of those.
    """
    moves, when, who = day.moves, day.when, day.who
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    logs, after = np.full(size, -np.inf), np.empty(size)
    for j in range(size):
        chance = day.initial[j] if slot < 0 else moves[slot, state, j]
        logs[j] = math.log(chance) if chance > 0 else -np.inf
    for c in range(count):
        if when[c] == slot and who[c] == state:
            highest[c] = 1.0
    known, past = np.searchsorted(when, slot, side="right"), 0
    secret = np.empty(count, dtype=np.int64)
    belief, fresh = np.zeros((size, count)), np.zeros((size, count))
    for t in range(slot + 1, slots + 1):
        if t > slot + 1:
            hidden = suppression[t - 1]
            advance(logs, hidden, moves[t - 1], after)
            reverse_beliefs(logs, hidden, moves[t - 1], after, belief, fresh, past)
            belief, fresh = fresh, belief
            logs[:] = after
        known, past = enter_secrets(t, when, who, known, belief, secret, past)
        for j in range(size):
            if logs[j] > -np.inf and (t == slots or suppression[t, j] < 1):
                for place in range(past):
                    c = secret[place]
                    highest[c] = max(highest[c], belief[j, place])
        past = still_open(logs, -np.inf, belief, secret, past, highest)


@njit(cache=True, error_model="numpy")
def enter_secrets(
    t: int, when: Any, who: Any, known: Any, belief: Any, secret: Any, past: int
) -> Any:
    """Puts the secrets of slot t behind the `past` ones, certain in their own states.

    Returns how many secrets begin by t, and how many are past.
    """
    while known < when.size and when[known] == t:
        for j in range(belief.shape[0]):
            belief[j, past] = 1.0 if j == who[known] else 0.0
        secret[past] = known
        past += 1
        known += 1
    return known, past


@njit(cache=True, error_model="numpy")
def still_open(law: Any, never: float, belief: Any, secret: Any, past: int, highest: Any) -> int:
    """Moves the secrets that a possible state puts above `highest` to the front; their number.

    A state is possible when its entry of `law` is above `never`. Beliefs in the past are carried
    on as averages, so what no state exceeds now none will: such a secret is done with.
    """
    place = 0
    while place < past:
        above = False
        for j in range(law.size):
            if law[j] > never and belief[j, place] > highest[secret[place]]:
                above = True
                break
        if above:
            place += 1
            continue
        past -= 1
        secret[place] = secret[past]
        for j in range(law.size):
            belief[j, place] = belief[j, past]
    return past


@njit(cache=True, error_model="numpy")
def reverse_beliefs(
    logs: Any, hidden: Any, matrix: Any, after: Any, belief: Any, fresh: Any, past: int
) -> None:
    """fresh[j, c] = Σ_k B(j, k) belief[k, c], B from its logarithms, each row summing to 1."""
    size = logs.size
    linear = np.empty(size)
    for k in range(size):
        linear[k] = math.exp(logs[k]) * hidden[k]
    weight = np.empty(size)
    for j in range(size):
        for c in range(past):
            fresh[j, c] = 0.0
        if after[j] == -np.inf or not past:
            continue
        total = 0.0
        for k in range(size):
            weight[k] = linear[k] * matrix[k, j]
            total += weight[k]
        if total <= SAFE:
            _, total = _log_weights(logs, hidden, matrix, j, weight)
        for k in range(size):
            share = weight[k] / total
            if share > 0:
                for c in range(past):
                    fresh[j, c] += share * belief[k, c]


@njit(cache=True, error_model="numpy")
def _log_weights(logs: Any, hidden: Any, matrix: Any, j: int, weight: Any) -> Any:
    """log of the largest term of Σ_k e^{logs[k]} hidden[k] matrix[k, j], and the sum over it.

    `weight` becomes the terms relative to the largest; the sum is 0 when all are impossible.
    """
    top = -np.inf
    for k in range(logs.size):
        weight[k] = -np.inf
        if logs[k] > -np.inf and hidden[k] > 0 and matrix[k, j] > 0:
            weight[k] = logs[k] + math.log(hidden[k]) + math.log(matrix[k, j])
            top = max(top, weight[k])
    total = 0.0
    for k in range(logs.size):
        weight[k] = math.exp(weight[k] - top) if top > -np.inf else 0.0
        total += weight[k]
    return top, total


# Compiled search for the next release of the simulatable check; importing this imports numba.


@njit(cache=True, error_model="numpy")
def next_release(day: Any, slot: int, state: int, earliest: int) -> Any:
    """The first slot from `earliest` on whose state may be shown whatever it is; T when none.

    `day` is `Arrays` (`beliefs`), of which `ahead` and `future` are not read. Every
    state reachable then must be releasable, and with all suppressed in between no belief
    about the slots between may exceed its bound, whichever state is shown.
    """
    moves, when, who, bound, shown = day.moves, day.when, day.who, day.bound, day.shown
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    ones = np.ones((slots, size))
    logs = np.empty((slots + 1, size))
    powers = np.empty(slots + 1, dtype=np.int64)
    row_from(day.initial, moves, slot, state, ones, logs, powers)
    last = -1
    open_at = np.ones(slots, dtype=np.bool_)
    for t in range(slot + 1, slots):
        for j in range(size):
            if logs[t, j] > -np.inf and not shown[t, j]:
                open_at[t] = False
        last = t if open_at[t] else last
    known = np.searchsorted(when, slot, side="right")
    belief = np.zeros((size, count))
    fresh = np.zeros((size, count))
    secret = np.empty(count, dtype=np.int64)
    past = 0
    for t in range(slot + 1, last + 1):
        if t > slot + 1:
            reverse_beliefs(logs[t - 1], ones[t - 1], moves[t - 1], logs[t], belief, fresh, past)
            belief, fresh = fresh, belief
        known, past = enter_secrets(t, when, who, known, belief, secret, past)
        past = still_open(logs[t], -np.inf, belief, secret, past, bound)
        if t >= earliest and open_at[t] and past == 0:
            return t
    return slots
