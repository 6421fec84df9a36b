"""Compiled loops that evaluate beliefs under suppression; importing this imports numba.

The mass of each state is a mantissa and an exponent of its own, so that runs of hundreds of
suppressed slots and transitions of 10^-300 neither underflow nor lose digits: a state is impossible
exactly when its mantissa is 0. Scaling by powers of two is exact, so errors are those of the sums
and products alone (contexts/checks/mask_rounding.md).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from shoal.contexts.search.beliefs import IMPOSSIBLE_EXPONENT, Arrays, Codes
from shoal.core.codec import Bools, Floats, Ints

UNDERFLOW_EXPONENT = -1100  # a double of 1 scaled by this power of two is 0
SAFE_SUM = 1e-200  # sums above it have lost nothing that matters to the terms that underflowed


@njit(cache=True, error_model="numpy")
def mark_releases(
    law: Bools, moves: Floats, slot: int, codes: Codes, always: int, seen: Bools
) -> None:
    """Mark in seen[t, j], in place, the releases that can follow one at `slot`.

    `law` is a mask of the states that the slot after it can hold; code `always` stands for 1. Masks
    instead of masses: nothing underflows.
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
def scale_law(law: Floats) -> tuple[Floats, Ints]:
    """Return mantissas in [1/2, 1) and exponents of a law.

    Where the law is 0 they are 0 and IMPOSSIBLE_EXPONENT.
    """
    mantissa, power = np.zeros(law.size), np.full(law.size, IMPOSSIBLE_EXPONENT)
    for j in range(law.size):
        if law[j] > 0.0:
            mantissa[j], power[j] = math.frexp(law[j])
    return mantissa, power


@njit(cache=True, error_model="numpy")
def raise_highest_beliefs(
    day: Arrays, slot: int, state: int, suppression: Floats, highest: Floats
) -> None:
    """Raise highest[c] in place to the highest belief in secret c between a release and the next.

    `day` is `Arrays` (`beliefs`), of which no bound is read. Beliefs are carried forward through
    the reversed chain, B(j, k) = P(X_{t-1} = k | X_t = j, suppressed): a product of stochastic
    matrices, in which nothing cancels. A secret that no possible state puts above highest[c] is
    dropped: later beliefs in it are averages of those.
    """
    moves, when, who = day.moves, day.when, day.who
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    law, power = scale_law(day.initial if slot < 0 else moves[slot, state])
    after, raised = np.empty(size), np.empty(size, dtype=np.int64)
    for c in range(count):
        if when[c] == slot and who[c] == state:
            highest[c] = 1.0
    known, past = int(np.searchsorted(when, slot, side="right")), 0
    secret = np.empty(count, dtype=np.int64)
    belief, fresh = np.zeros((size, count)), np.zeros((size, count))
    for t in range(slot + 1, slots + 1):
        if t > slot + 1:
            advance_beliefs(
                law, power, suppression[t - 1], moves[t - 1], belief, past, after, raised, fresh
            )
            law, after, power, raised = after, law, raised, power
            belief, fresh = fresh, belief
        known, past = enter_secrets(t, when, who, known, belief, secret, past)
        for j in range(size):
            if law[j] > 0.0 and (t == slots or suppression[t, j] < 1):
                for index in range(past):
                    c = secret[index]
                    highest[c] = max(highest[c], belief[j, index])
        past = keep_open_secrets(law, 0.0, belief, secret, past, highest)


@njit(cache=True, error_model="numpy")
def enter_secrets(
    t: int, when: Ints, who: Ints, known: int, belief: Floats, secret: Ints, past: int
) -> tuple[int, int]:
    """Append the secrets of slot t to the followed ones, certain in their own states.

    Returns how many secrets begin by t, and how many are followed.
    """
    while known < when.size and when[known] == t:
        for j in range(belief.shape[0]):
            belief[j, past] = 1.0 if j == who[known] else 0.0
        secret[past] = known
        past += 1
        known += 1
    return known, past


@njit(cache=True, error_model="numpy")
def keep_open_secrets(
    law: Floats, never: float, belief: Floats, secret: Ints, past: int, highest: Floats
) -> int:
    """Move secrets that a possible state puts above `highest` to the front; return their number.

    A state is possible when its entry of `law` is above `never`. Beliefs in the past are carried
    on as averages, so what no state exceeds now none will: such a secret is done with.
    """
    index = 0
    while index < past:
        above = False
        for j in range(law.size):
            if law[j] > never and belief[j, index] > highest[secret[index]]:
                above = True
                break
        if above:
            index += 1
            continue
        past -= 1
        secret[index] = secret[past]
        for j in range(law.size):
            belief[j, index] = belief[j, past]
    return past


@njit(cache=True, error_model="numpy")
def advance_beliefs(
    law: Floats,
    power: Ints,
    suppression: Floats,
    matrix: Floats,
    belief: Floats,
    past: int,
    after: Floats,
    raised: Ints,
    fresh: Floats,
) -> None:
    """Fill in the masses one slot later, given suppression, and the beliefs they carry.

    after[j]·2^raised[j] = Σ_k law[k] 2^power[k] suppression[k] matrix[k, j]; fresh[j, c] = Σ_k B(j,
    k) belief[k, c], where B(j, k) are the terms of that sum divided by it.
    """
    size = law.size
    linear, weight = np.zeros(size), np.empty(size)
    top = IMPOSSIBLE_EXPONENT
    for k in range(size):
        if law[k] > 0.0 and suppression[k] > 0.0:
            top = max(top, power[k])
    for k in range(size):
        if law[k] > 0.0 and suppression[k] > 0.0:
            linear[k] = math.ldexp(
                law[k] * suppression[k], int(max(power[k] - top, UNDERFLOW_EXPONENT))
            )
    for j in range(size):
        scale, total = top, 0.0
        for k in range(size):
            weight[k] = linear[k] * matrix[k, j]
            total += weight[k]
        if total <= SAFE_SUM:
            scale, total = _scale_weights(law, power, suppression, matrix, j, weight)
        after[j], raised[j] = 0.0, IMPOSSIBLE_EXPONENT
        if total > 0.0:
            mantissa, shift = math.frexp(total)
            after[j], raised[j] = mantissa, scale + shift
        for c in range(past):
            fresh[j, c] = 0.0
        for k in range(size):
            share = weight[k] / total if total > 0.0 else 0.0
            if share > 0.0:
                for c in range(past):
                    fresh[j, c] += share * belief[k, c]


@njit(cache=True, error_model="numpy")
def _scale_weights(
    law: Floats, power: Ints, suppression: Floats, matrix: Floats, j: int, weight: Floats
) -> tuple[int, float]:
    """Fill `weight` with the scaled terms law[k] 2^power[k] suppression[k] matrix[k, j].

    Returns the exponent of the scale, that of the largest term, and the sum of the scaled terms;
    the sum is 0 when no term is possible.
    """
    top = IMPOSSIBLE_EXPONENT
    exponent = np.full(law.size, IMPOSSIBLE_EXPONENT)
    for k in range(law.size):
        weight[k] = 0.0
        if law[k] > 0.0 and suppression[k] > 0.0 and matrix[k, j] > 0.0:
            coin, lower = math.frexp(suppression[k])
            move, shift = math.frexp(matrix[k, j])
            weight[k] = law[k] * coin * move
            exponent[k] = power[k] + lower + shift
            top = max(top, exponent[k])
    total = 0.0
    for k in range(law.size):
        if weight[k] > 0.0:
            weight[k] = math.ldexp(weight[k], int(max(exponent[k] - top, UNDERFLOW_EXPONENT)))
            total += weight[k]
    return top, total


@njit(cache=True, error_model="numpy")
def next_release(day: Arrays, slot: int, state: int, earliest: int) -> int:
    """Return the first slot from `earliest` on that may be released in any state; T if none.

    `day` is `Arrays` (`beliefs`), of which `ahead` and `future` are not read. Every
    state reachable then must be releasable, and with all suppressed in between no belief
    about the slots between may exceed its bound, whichever state is released.
    """
    moves, when, releasable = day.moves, day.when, day.releasable
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    law, power = scale_law(day.initial if slot < 0 else moves[slot, state])
    after, raised = np.empty(size), np.empty(size, dtype=np.int64)
    possible = law > 0.0
    last, open_at, ones = -1, np.zeros(slots, dtype=np.bool_), np.ones(size)
    for t in range(slot + 1, slots):
        open_at[t] = not (possible & ~releasable[t]).any()
        last = t if open_at[t] else last
        reached = np.zeros(size, dtype=np.bool_)
        for k in range(size):
            if possible[k]:
                reached |= moves[t, k] > 0
        possible = reached
    known, past = int(np.searchsorted(when, slot, side="right")), 0
    belief, fresh = np.zeros((size, count)), np.zeros((size, count))
    secret = np.empty(count, dtype=np.int64)
    for t in range(slot + 1, last + 1):
        if t > slot + 1:
            advance_beliefs(law, power, ones, moves[t - 1], belief, past, after, raised, fresh)
            law, after, power, raised = after, law, raised, power
            belief, fresh = fresh, belief
        known, past = enter_secrets(t, when, day.who, known, belief, secret, past)
        past = keep_open_secrets(law, 0.0, belief, secret, past, day.bound)
        if t >= earliest and open_at[t] and past == 0:
            return int(t)
    return int(slots)
