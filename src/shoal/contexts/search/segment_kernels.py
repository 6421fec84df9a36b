"""Compiled loops of the adaptive check: the best policy from one release to the next.

A policy is built forward in time and can stop anywhere. After every slot the state of affairs is
a law `a` over the current state, given that all was suppressed since the release, and for each
secret c and state j the belief E(j, c) an output that shows j now would cause. Kept throughout:

    room(c) = Σ_j a(j) (bound(c) - E(j, c)) ≥ 0  for every secret, past or future,

which says that suppressing the rest of the day is safe. Showing j with probability x takes
x·a(j)·(bound(c) - E(j, c)) from the room of every secret, which is never negative where showing j
is allowed at all. So every private policy is a way to spend the room, and any way of spending it
without going below 0 is private. A bound may be taken lower than it is, and given back later: what
is found after a long silence lives on that. Importing this imports numba.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from shoal.contexts.search.kernels import enter_secrets, still_open

COIN_LEVELS = 65536.0  # as in `beliefs`
THIN = 1e-200  # a suppressed rest below this is not decided upon


class Habit(NamedTuple):
    """How a forward pass spends: at slot t at most pace[t] of the room.

    No state is shown with more than caps[t, j]; waiting[t, j] is what follows its suppression: it
    is shown only when that is better. Of the bound of a secret of k slots ago reserve[k] is left.
    """

    pace: Any
    caps: Any
    waiting: Any
    reserve: Any


@njit(cache=True, error_model="numpy")
def forward_pass(
    day: Any, origin: Any, value: Any, habit: Any, stop: float, hidden: Any, spent: Any
) -> float:
    """Fills hidden[t, j] after the release `origin` with a private policy; its expected releases.

    `day` is `Arrays` (`beliefs`), `habit` a `Habit`. value[t, j] is what follows a release of j at
    t. Ends, all suppressed, when what is left is worth less than `stop`. The multiplications are
    added to spent[0].
    """
    slot, state = origin
    pace, caps, waiting, reserve = habit
    initial, moves, when, who, bound, future, shown, copies, _ = day
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    hidden[slot + 1 :] = 1.0
    law = law_after(initial, moves, slot, state, shown, copies)
    known = np.searchsorted(when, slot, side="right")
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
            limits = _gaps(t, law, belief, future[t], day, secret, past, reserve, gap)
            gains, limited = (value[t], waiting[t]), rooms[:, :limits]
            left = _spend(law, gap, limited, shown[t], gains, share, caps[t], hidden[t], copies)
            spent[0] += 6 * size * limits
        for j in range(size):
            total += mass * law[j] * (1.0 - hidden[t, j]) * (1.0 + value[t, j])
        mass *= left
        if t == slots - 1 or left <= THIN or mass * (slots - t) < stop:
            break
        spent[0] += _step(law, hidden[t], moves[t], belief, fresh, past)
        belief, fresh = fresh, belief
        past = still_open(law, 0.0, belief, secret, past, settled)
    return total


@njit(cache=True, error_model="numpy")
def _step(law: Any, hidden: Any, matrix: Any, belief: Any, fresh: Any, past: int) -> Any:
    """One slot on: the law given suppression, and the beliefs it carries, by the reversed chain.

    Returns the number of multiplications.
    """
    size, used = law.size, 0
    weight = np.empty(size)
    for k in range(size):
        weight[k] = law[k] * hidden[k]
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
def law_after(initial: Any, moves: Any, slot: int, state: int, shown: Any, copies: int) -> Any:
    """The law of the slot after a release, or of the first one, for each chain that knows it."""
    if slot < 0:
        return initial.copy()
    if copies == 1:
        return moves[slot, state].copy()
    law = np.zeros(initial.size)
    for place in range(state, initial.size, initial.size // copies):
        if shown[slot, place]:
            law += moves[slot, place]
    return law


@njit(cache=True, error_model="numpy")
def _spend(
    law: Any,
    gap: Any,
    rooms: Any,
    shown: Any,
    gains: Any,
    share: float,
    caps: Any,
    hidden: Any,
    copies: int,
) -> float:
    """Chooses hidden[j] of one slot, best gain for its room first; returns the mass left.

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
            worth[j] = _worth(j, law, gap, scarcity, shown, gains, copies)
    for _ in range(contexts):
        best = np.argmax(worth)
        if worth[best] <= 0:
            break
        worth[best] = -1.0
        chance = _afford(caps[best], int(best), law, gap, room, copies)
        for j in range(best, size, contexts):
            hidden[j] = 1.0 - chance
            for c in range(limits):
                room[c] -= law[j] * chance * gap[j, c]
    return _settle(law, gap, room, hidden)


@njit(cache=True, error_model="numpy")
def _gaps(
    t: int,
    law: Any,
    belief: Any,
    future: Any,
    day: Any,
    secret: Any,
    past: int,
    reserve: Any,
    gap: Any,
) -> int:
    """Fills gap[j, m] = bound(c) - E(j, c) for the secrets that limit this slot; their number.

    0 where state and secret are of different chains. A secret with no negative gap limits
    nothing: whatever is shown, the room left of it is a sum of what is not negative. Of the bound
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
def _worth(
    context: int, law: Any, gap: Any, scarcity: Any, shown: Any, gains: Any, copies: int
) -> float:
    """Gain per room of the scarcest secret; -1 when showing the context breaks a bound itself."""
    use, gain, mass = 0.0, 0.0, 0.0
    for j in range(context, law.size, law.size // copies):
        if law[j] <= 0:
            continue
        if not shown[j]:
            return -1.0
        mass += law[j]
        gain += law[j] * (1.0 + gains[0][j] - gains[1][j])
        for c in range(scarcity.size):
            if gap[j, c] < 0:
                return -1.0
            use = max(use, law[j] * gap[j, c] * scarcity[c])
    return gain / (use + 1e-9 * mass) if gain > 1e-12 * mass else -1.0


@njit(cache=True, error_model="numpy")
def _afford(most: float, context: int, law: Any, gap: Any, room: Any, copies: int) -> float:
    """The largest multiple of 1/65536 up to `most` for which the room lasts."""
    for j in range(context, law.size, law.size // copies):
        for c in range(room.size):
            need = law[j] * gap[j, c]
            if need * most > room[c] + 1e-13 * law[j]:
                most = max(room[c], 0.0) / need
    level = math.floor(most * COIN_LEVELS + 1e-9)
    return level / COIN_LEVELS if level >= 2 else 0.0


@njit(cache=True, error_model="numpy")
def _settle(law: Any, gap: Any, rest: Any, hidden: Any) -> float:
    """The mass left, after looking directly at what is left: Σ a(j) hidden(j) gap(j, c) ≥ 0.

    Differences lose all digits when almost everything is shown, so the rest is summed anew; when
    it breaks a bound, less is shown.
    """
    for attempt in range(4):
        left = 0.0
        for j in range(law.size):
            left += law[j] * hidden[j]
        rest[:] = 0.0
        for j in range(law.size):
            mass = law[j] * hidden[j]
            if mass > 0:
                for c in range(rest.size):
                    rest[c] += mass * gap[j, c]
        if (left == 0.0 or left > THIN) and (rest >= 0.0).all():  # also with no secret at all
            return left
        for j in range(law.size):
            if hidden[j] < 1:
                show = math.floor((1.0 - hidden[j]) * (1.0 - 2.0**-10) * COIN_LEVELS) / COIN_LEVELS
                hidden[j] = 1.0 - show if attempt < 2 and show * COIN_LEVELS >= 2 else 1.0
    return 1.0


@njit(cache=True, error_model="numpy")
def wait_values(moves: Any, slot: int, value: Any, hidden: Any, waiting: Any) -> None:
    """waiting[t, j]: expected releases after j was suppressed at t, under this policy."""
    slots, size = moves.shape[0], moves.shape[1]
    waiting[slots - 1] = 0.0
    for t in range(slots - 2, slot, -1):
        for j in range(size):
            total = 0.0
            for k in range(size):
                later = (1.0 - hidden[t + 1, k]) * (1.0 + value[t + 1, k])
                total += moves[t, j, k] * (later + hidden[t + 1, k] * waiting[t + 1, k])
            waiting[t, j] = total


@njit(cache=True, error_model="numpy")
def policy_value(law: Any, moves: Any, slot: int, value: Any, hidden: Any) -> float:
    """Expected releases of a policy for the slots after `slot`; `law` is that of the next one.

    hidden[k, j] is for the slot k + 1 after it; slots beyond its rows are suppressed.
    """
    total, size = 0.0, law.size
    before, after = law.copy(), np.empty(size)
    for k in range(hidden.shape[0]):
        t = slot + 1 + k
        after[:] = 0.0
        for j in range(size):
            total += before[j] * (1.0 - hidden[k, j]) * (1.0 + value[t, j])
            weight = before[j] * hidden[k, j]
            if weight > 0.0:
                for i in range(size):
                    after[i] += weight * moves[t, j, i]
        before, after = after, before
    return total


PACE_FORGOTTEN = 0.99  # what the win of a pace still counts after the next one


@njit(cache=True, error_model="numpy")
def best_segment(
    day: Any,
    origin: Any,
    value: Any,
    paces: Any,
    reserves: Any,
    passes: int,
    stop: float,
    offset: int,
    habit: Any,
    wins: Any,
    best: Any,
    spent: Any,
) -> float:
    """Fills `best` with the best policy that `passes` forward passes find; returns its value.

    Starts from `habit`, which worked one slot later, then tries each of `paces`, each with its row
    of `reserves`, without caps,
    first with waiting worth nothing and then worth what the last policy made of it; what is left
    goes into single changes. The habit becomes that of the best policy. One pace in turn is tried
    first, then those that won most: wins[v] counts, and is kept up.
    """
    moves, slot = day.moves, origin[0]
    pace, caps, waiting, reserve = habit
    slots, size = moves.shape[0], moves.shape[1]
    hidden = np.ones((slots, size))
    kept = waiting.copy()
    free = np.ones((slots, size))
    best[:] = 1.0
    highest = forward_pass(day, origin, value, habit, stop, best, spent)
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
                tried = Habit(paces[variant], free, waiting, reserves[variant])
                found = forward_pass(day, origin, value, tried, stop, hidden, spent)
                if found > highest * (1 + 1e-12):
                    highest, best[:], kept[:], winner = found, hidden, waiting, variant
                wait_values(moves, slot, value, hidden, waiting)
    if winner >= 0:
        pace[:], caps[:], reserve[:] = paces[winner], 1.0, reserves[winner]
        wins *= PACE_FORGOTTEN
        wins[winner] += 1.0
    begun = Habit(pace, caps, kept, reserve)
    highest = _climb(day, origin, value, begun, stop, best, highest, passes, offset, spent)
    wait_values(moves, slot, value, best, waiting)
    return highest


@njit(cache=True, error_model="numpy")
def _climb(
    day: Any,
    origin: Any,
    value: Any,
    habit: Any,
    stop: float,
    best: Any,
    highest: float,
    passes: int,
    offset: int,
    spent: Any,
) -> float:
    """Changes one pace or one cap at a time, in turn, keeps what helps; returns the value.

    Ends when the passes are used up, or when a whole round of changes did not help.
    """
    pace, caps, fresh, _ = habit
    slot = origin[0]
    slots, size = caps.shape[0], caps.shape[1] // day.copies
    length = slots - 1 - slot
    hidden = np.ones(caps.shape)
    idle, step = 0, 0
    while passes > 0 and idle < 20 * length * size and length > 0:
        step += 1
        idle += 1
        turn = offset + step // 2
        at = slot + 1 + turn // 5 % length
        which = turn // (5 * length) % size
        table = pace if step % 2 == 0 else caps[:, which]
        if step % 2 == 1 and not day.shown[at, which]:
            continue
        before = table[at]
        table[at] = (turn % 5) / 4.0
        if table[at] == before:
            continue
        passes -= 1
        found = forward_pass(day, origin, value, habit, stop, hidden, spent)
        if found > highest * (1 + 1e-9):
            if found > highest * (1 + 1e-5):
                idle = 0
            highest, best[:] = found, hidden
            wait_values(day.moves, slot, value, hidden, fresh)
        else:
            table[at] = before
    return highest
