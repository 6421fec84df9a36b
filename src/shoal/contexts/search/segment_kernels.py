"""Compiled loops of the adaptive check: the best policy from one release to the next.

A policy is built forward in time and can stop anywhere. After every slot the state of affairs is
a law `a` over the current state, given that all was suppressed since the release, and for each
secret c and state j the belief E(j, c) an output that releases j now would cause. Kept throughout:

    room(c) = Σ_j a(j) (bound(c) - E(j, c)) ≥ 0  for every secret, past or future,

which says that suppressing the rest of the day is safe. Showing j with probability x takes
x·a(j)·(bound(c) - E(j, c)) from the room of every secret, which is never negative where releasing j
is allowed at all. So every private policy is a way to spend the room, and any way of spending it
without going below 0 is private. A bound may be taken lower than it is, and given back later: what
is found after a long silence lives on that. Importing this imports numba.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from shoal.contexts.search.beliefs import Arrays, Origin
from shoal.contexts.search.kernels import enter_secrets, keep_open_secrets
from shoal.core.codec import Bools, Floats, Ints

COIN_LEVELS = 65536.0  # as in `beliefs`
SMALLEST_MASS = 1e-200  # a suppressed rest below this is not decided upon


class SpendingRule(NamedTuple):
    """How a forward pass spends: at slot t at most pace[t] of the room.

    No state is released with more than caps[t, j]; waiting[t, j] is what follows its suppression:
    it is released only when that is better. Of the bound of a secret of k slots ago reserve[k] is
    left.
    """

    pace: Floats
    caps: Floats
    waiting: Floats
    reserve: Floats


@njit(cache=True, error_model="numpy")
def forward_pass(
    day: Arrays,
    origin: Origin,
    value: Floats,
    rule: SpendingRule,
    stop: float,
    suppression: Floats,
    spent: Floats,
) -> float:
    """Fill suppression[t, j] after `origin` with a private policy; return its expected releases.

    `day` is `Arrays` (`beliefs`), `rule` a `SpendingRule`. value[t, j] is what follows a release of
    j at t. Ends, all suppressed, when what is left is worth less than `stop`. The multiplications
    are added to spent[0].
    """
    slot, state = origin
    pace, caps, waiting, reserve = rule
    initial, moves, when, who, bound, future, releasable, copies, _ = day
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    suppression[slot + 1 :] = 1.0
    law = law_after(initial, moves, slot, state, releasable, copies)
    known = int(np.searchsorted(when, slot, side="right"))
    belief, fresh = np.zeros((size, count)), np.zeros((size, count))
    gap, rooms = np.empty((size, count)), np.empty((2, count))
    secret = np.empty(count, dtype=np.int64)
    settled = bound * (1.0 - 1e-12)
    mass, total, past = 1.0, 0.0, 0
    for t in range(slot + 1, slots):
        known, past = enter_secrets(t, when, who, known, belief, secret, past)
        share = 1.0 if t == slots - 1 else pace[t]
        left = 1.0
        if share > 0:
            limits = _fill_gaps(t, law, belief, future[t], day, secret, past, reserve, gap)
            gains, limited = (value[t], waiting[t]), rooms[:, :limits]
            left = _spend_room(
                law, gap, limited, releasable[t], gains, share, caps[t], suppression[t], copies
            )
            spent[0] += 6 * size * limits
        for j in range(size):
            total += mass * law[j] * (1.0 - suppression[t, j]) * (1.0 + value[t, j])
        mass *= left
        if t == slots - 1 or left <= SMALLEST_MASS or mass * (slots - t) < stop:
            break
        spent[0] += _advance(law, suppression[t], moves[t], belief, fresh, past)
        belief, fresh = fresh, belief
        past = keep_open_secrets(law, 0.0, belief, secret, past, settled)
    return total


@njit(cache=True, error_model="numpy")
def _advance(
    law: Floats, suppression: Floats, matrix: Floats, belief: Floats, fresh: Floats, past: int
) -> int:
    """Advance law and beliefs one slot in place, given suppression, by the reversed chain.

    Returns the number of multiplications.
    """
    size, used = law.size, 0
    weight = np.empty(size)
    for k in range(size):
        weight[k] = law[k] * suppression[k]
    total = 0.0
    for j in range(size):
        law[j] = 0.0
        for c in range(past):
            fresh[j, c] = 0.0
        for k in range(size):
            law[j] += weight[k] * matrix[k, j]
        if law[j] > 0:
            for k in range(size):
                part = weight[k] * matrix[k, j] / law[j]
                if part > 0:
                    used += past
                    for c in range(past):
                        fresh[j, c] += part * belief[k, c]
        total += law[j]
    for j in range(size):
        law[j] /= total
    return used + 2 * size * size


@njit(cache=True, error_model="numpy")
def law_after(
    initial: Floats, moves: Floats, slot: int, state: int, releasable: Bools, copies: int
) -> Floats:
    """Return the law of the slot after a release, summed over the chains that allow it.

    The initial law for slot -1.
    """
    if slot < 0:
        return initial.copy()
    law = np.zeros(initial.size)
    if copies == 1:
        law += moves[slot, state]
        return law
    for index in range(state, initial.size, initial.size // copies):
        if releasable[slot, index]:
            law += moves[slot, index]
    return law


@njit(cache=True, error_model="numpy")
def _spend_room(
    law: Floats,
    gap: Floats,
    rooms: Floats,
    releasable: Bools,
    gains: tuple[Floats, Floats],
    share: float,
    caps: Floats,
    suppression: Floats,
    copies: int,
) -> float:
    """Choose suppression[j] of one slot, best gain per room first; return the mass left.

    `gains` are what follows a release and what follows suppression; `rooms` is there to work in.
    """
    room, scarcity = rooms
    size, limits = law.size, room.size
    contexts = size // copies
    room[:] = 0.0
    for j in range(size):
        for c in range(limits):
            room[c] += law[j] * gap[j, c]
    for c in range(limits):
        scarcity[c] = 1.0 / max(room[c], 1e-300)
        room[c] = max(room[c], 0.0) * share
    worth = np.full(contexts, -1.0)
    for j in range(contexts):
        if caps[j] > 0:
            worth[j] = _gain_per_room(j, law, gap, scarcity, releasable, gains, copies)
    for _ in range(contexts):
        best = np.argmax(worth)
        if worth[best] <= 0:
            break
        worth[best] = -1.0
        chance = _largest_chance(caps[best], int(best), law, gap, room, copies)
        for j in range(best, size, contexts):
            suppression[j] = 1.0 - chance
            for c in range(limits):
                room[c] -= law[j] * chance * gap[j, c]
    return _verify_rest(law, gap, room, suppression)


@njit(cache=True, error_model="numpy")
def _fill_gaps(
    t: int,
    law: Floats,
    belief: Floats,
    future: Floats,
    day: Arrays,
    secret: Ints,
    past: int,
    reserve: Floats,
    gap: Floats,
) -> int:
    """Fill gap[j, m] = bound(c) - E(j, c) for the secrets that limit this slot; count them.

    0 where state and secret are of different chains. A secret with no negative gap limits
    nothing: after any release the room left of it is a sum of non-negative terms. Of the bound
    of a secret of k slots ago the share reserve[k] is kept for later slots.
    """
    when, who, ahead = day.when, day.who, day.ahead[t]
    contexts = law.size // day.copies
    size, found = law.size, 0
    for m in range(past + ahead[0]):
        c = secret[m] if m < past else ahead[1 + m - past]
        tight, limit = False, day.bound[c] * (1.0 - reserve[max(t - when[c], 0)])
        for j in range(size):
            gap[j, found] = limit - (belief[j, m] if m < past else future[j, c])
            if contexts < size and who[c] // contexts != j // contexts:
                gap[j, found] = 0.0
            tight = tight or (law[j] > 0 and gap[j, found] < 1e-12 * limit)
        if tight:
            found += 1
    return found


@njit(cache=True, error_model="numpy")
def _gain_per_room(
    context: int,
    law: Floats,
    gap: Floats,
    scarcity: Floats,
    releasable: Bools,
    gains: tuple[Floats, Floats],
    copies: int,
) -> float:
    """Return the gain per room of the scarcest secret; -1 when the release breaks a bound."""
    use, gain, mass = 0.0, 0.0, 0.0
    for j in range(context, law.size, law.size // copies):
        if law[j] <= 0:
            continue
        if not releasable[j]:
            return -1.0
        mass += law[j]
        gain += law[j] * (1.0 + gains[0][j] - gains[1][j])
        for c in range(scarcity.size):
            if gap[j, c] < 0:
                return -1.0
            use = max(use, law[j] * gap[j, c] * scarcity[c])
    return gain / (use + 1e-9 * mass) if gain > 1e-12 * mass else -1.0


@njit(cache=True, error_model="numpy")
def _largest_chance(
    most: float, context: int, law: Floats, gap: Floats, room: Floats, copies: int
) -> float:
    """Return the largest multiple of 1/65536, up to `most`, for which the room is enough."""
    for j in range(context, law.size, law.size // copies):
        for c in range(room.size):
            need = law[j] * gap[j, c]
            if need * most > room[c] + 1e-13 * law[j]:
                most = max(room[c], 0.0) / need
    level = math.floor(most * COIN_LEVELS + 1e-9)
    return level / COIN_LEVELS if level >= 2 else 0.0


@njit(cache=True, error_model="numpy")
def _verify_rest(law: Floats, gap: Floats, rest: Floats, suppression: Floats) -> float:
    """Raise suppression[j] in place until Σ a(j) suppression(j) gap(j, c) ≥ 0.

    Returns the mass left.

    Differences lose all digits when almost everything is released, so the rest is summed again.
    """
    for attempt in range(4):
        left = 0.0
        for j in range(law.size):
            left += law[j] * suppression[j]
        rest[:] = 0.0
        for j in range(law.size):
            mass = law[j] * suppression[j]
            if mass > 0:
                for c in range(rest.size):
                    rest[c] += mass * gap[j, c]
        if (left == 0.0 or left > SMALLEST_MASS) and (
            rest >= 0.0
        ).all():  # also with no secret at all
            return left
        for j in range(law.size):
            if suppression[j] < 1:
                chance = (
                    math.floor((1.0 - suppression[j]) * (1.0 - 2.0**-10) * COIN_LEVELS)
                    / COIN_LEVELS
                )
                suppression[j] = 1.0 - chance if attempt < 2 and chance * COIN_LEVELS >= 2 else 1.0
    return 1.0


@njit(cache=True, error_model="numpy")
def fill_wait_values(
    moves: Floats, slot: int, value: Floats, suppression: Floats, waiting: Floats
) -> None:
    """Fill waiting[t, j], the expected releases after j is suppressed at t under this policy."""
    slots, size = moves.shape[0], moves.shape[1]
    waiting[slots - 1] = 0.0
    for t in range(slots - 2, slot, -1):
        for j in range(size):
            total = 0.0
            for k in range(size):
                later = (1.0 - suppression[t + 1, k]) * (1.0 + value[t + 1, k])
                total += moves[t, j, k] * (later + suppression[t + 1, k] * waiting[t + 1, k])
            waiting[t, j] = total


@njit(cache=True, error_model="numpy")
def policy_value(
    law: Floats, moves: Floats, slot: int, value: Floats, suppression: Floats
) -> float:
    """Return the expected releases of a policy after `slot`; `law` is that of the next slot.

    suppression[k, j] is for the slot k + 1 after it; slots beyond its rows are suppressed.
    """
    total, size = 0.0, law.size
    before, after = law.copy(), np.empty(size)
    for k in range(suppression.shape[0]):
        t = slot + 1 + k
        after[:] = 0.0
        for j in range(size):
            total += before[j] * (1.0 - suppression[k, j]) * (1.0 + value[t, j])
            weight = before[j] * suppression[k, j]
            if weight > 0.0:
                for i in range(size):
                    after[i] += weight * moves[t, j, i]
        before, after = after, before
    return total


WIN_DECAY = 0.99  # what the win of a pace still counts after the next one


@njit(cache=True, error_model="numpy")
def find_best_policy(
    day: Arrays,
    origin: Origin,
    value: Floats,
    paces: Floats,
    reserves: Floats,
    passes: int,
    stop: float,
    offset: int,
    rule: SpendingRule,
    wins: Floats,
    best: Floats,
    spent: Floats,
) -> float:
    """Fill `best` with the best policy that `passes` forward passes find; return its value.

    Starts from `rule`, which worked one slot later, then tries each of `paces`, each with its row
    of `reserves`, without caps,
    first with waiting worth nothing and then worth what the last policy made of it; what is left
    goes into single changes. The habit becomes that of the best policy. One pace in turn is tried
    first, then those that won most: wins[v] counts, and is kept up.
    """
    moves, slot = day.moves, origin[0]
    pace, caps, waiting, reserve = rule
    slots, size = moves.shape[0], moves.shape[1]
    suppression = np.ones((slots, size))
    kept = waiting.copy()
    free = np.ones((slots, size))
    best[:] = 1.0
    highest = forward_pass(day, origin, value, rule, stop, best, spent)
    winner, passes = -1, passes - 1
    order = np.argsort(-wins)
    early = offset % paces.shape[0]
    for turn in range(-1, paces.shape[0]):
        variant = order[turn] if turn >= 0 else early
        if turn >= 0 and variant == early:
            continue
        waiting[:] = 0.0
        for _ in range(2):
            if passes > 0:
                passes -= 1
                tried = SpendingRule(paces[variant], free, waiting, reserves[variant])
                found = forward_pass(day, origin, value, tried, stop, suppression, spent)
                if found > highest * (1 + 1e-12):
                    highest, best[:], kept[:], winner = found, suppression, waiting, variant
                fill_wait_values(moves, slot, value, suppression, waiting)
    if winner >= 0:
        pace[:], caps[:], reserve[:] = paces[winner], 1.0, reserves[winner]
        wins *= WIN_DECAY
        wins[winner] += 1.0
    begun = SpendingRule(pace, caps, kept, reserve)
    highest = _improve_by_coordinates(
        day, origin, value, begun, stop, best, highest, passes, offset, spent
    )
    fill_wait_values(moves, slot, value, best, waiting)
    return highest


@njit(cache=True, error_model="numpy")
def _improve_by_coordinates(
    day: Arrays,
    origin: Origin,
    value: Floats,
    rule: SpendingRule,
    stop: float,
    best: Floats,
    highest: float,
    passes: int,
    offset: int,
    spent: Floats,
) -> float:
    """Change one pace or cap at a time and keep what helps; return the value reached.

    Ends when the passes are used up, or when a whole round of changes did not help.
    """
    pace, caps, fresh, _ = rule
    slot = origin[0]
    slots, size = caps.shape[0], caps.shape[1] // day.copies
    length = slots - 1 - slot
    suppression = np.ones(caps.shape)
    idle, step = 0, 0
    while passes > 0 and idle < 20 * length * size and length > 0:
        step += 1
        idle += 1
        turn = offset + step // 2
        at = slot + 1 + turn // 5 % length
        which = turn // (5 * length) % size
        table = pace if step % 2 == 0 else caps[:, which]
        if step % 2 == 1 and not day.releasable[at, which]:
            continue
        before = table[at]
        table[at] = (turn % 5) / 4.0
        if table[at] == before:
            continue
        passes -= 1
        found = forward_pass(day, origin, value, rule, stop, suppression, spent)
        if found > highest * (1 + 1e-9):
            if found > highest * (1 + 1e-5):
                idle = 0
            highest, best[:] = found, suppression
            fill_wait_values(day.moves, slot, value, suppression, fresh)
        else:
            table[at] = before
    return highest
