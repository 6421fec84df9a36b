"""Compiled loops of the adaptive check: the best policy from one release to the next.

A policy is built forward in time and can stop anywhere. After every slot the state of affairs is
a law `a` over the current state, given that all was suppressed since the release, and for each
secret c and state j the belief E(j, c) an output that shows j now would cause. Kept throughout:

    room(c) = Σ_j a(j) (bound(c) - E(j, c)) ≥ 0  for every secret, past or future,

which says that suppressing the rest of the day is safe. Showing j with probability x takes
x·a(j)·(bound(c) - E(j, c)) from the room of every secret, which is never negative where showing j
is allowed at all. So every private policy is a way to spend the room, and any way of spending it
without going below 0 is private. Importing this imports numba.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

LEVELS = 65536.0
THIN = 1e-200  # a suppressed rest below this is not decided upon


@njit(cache=True, error_model="numpy")
def forward_pass(
    day: Any,
    slot: int,
    state: int,
    value: Any,
    waiting: Any,
    pace: Any,
    caps: Any,
    stop: float,
    hidden: Any,
) -> float:
    """Fills hidden[t, j] for t > slot with a private policy; returns its expected releases.

    day = (initial, moves, when, who, bound, future, shown). value[t, j] is what follows a release
    of j at t, waiting[t, j] what follows its suppression: a state is shown only when that is
    better. At slot t at most pace[t] of the room is spent, and no state is shown with more
    than caps[t, j]. Ends, all suppressed, when what is left is worth less than `stop`.
    """
    initial, moves, when, _, bound, future, shown = day
    slots, size, count = moves.shape[0], moves.shape[1], when.size
    hidden[slot + 1 :] = 1.0
    law = initial.copy() if slot < 0 else moves[slot, state].copy()
    first = np.searchsorted(when, slot, side="right")
    belief = np.zeros((size, count))
    fresh = np.zeros((size, count))
    mass, total, known = 1.0, 0.0, first
    for t in range(slot + 1, slots):
        while known < count and when[known] == t:
            for j in range(size):
                belief[j, known] = future[t, j, known]
            known += 1
        share = 1.0 if t == slots - 1 else pace[t]
        left = 1.0
        if share > 0:
            left = _spend(
                law,
                belief,
                future[t],
                bound,
                first,
                known,
                shown[t],
                value[t],
                waiting[t],
                share,
                caps[t],
                hidden[t],
            )
        for j in range(size):
            total += mass * law[j] * (1.0 - hidden[t, j]) * (1.0 + value[t, j])
        mass *= left
        if t == slots - 1 or left <= THIN or mass * (slots - t) < stop:
            break
        _step(law, hidden[t], moves[t], belief, fresh, first, known)
        belief, fresh = fresh, belief
    return total


@njit(cache=True, error_model="numpy")
def _step(
    law: Any, hidden: Any, matrix: Any, belief: Any, fresh: Any, first: Any, known: Any
) -> None:
    """One slot on: the law given suppression, and the beliefs it carries, by the reversed chain."""
    size = law.size
    weight = np.empty(size)
    for k in range(size):
        weight[k] = law[k] * hidden[k]
    total = 0.0
    for j in range(size):
        law[j] = 0.0
        for c in range(first, known):
            fresh[j, c] = 0.0
        for k in range(size):
            law[j] += weight[k] * matrix[k, j]
        if law[j] > 0:
            for k in range(size):
                part = weight[k] * matrix[k, j] / law[j]
                if part > 0:
                    for c in range(first, known):
                        fresh[j, c] += part * belief[k, c]
        total += law[j]
    for j in range(size):
        law[j] /= total


@njit(cache=True, error_model="numpy")
def _spend(
    law: Any,
    belief: Any,
    future: Any,
    bound: Any,
    first: Any,
    known: Any,
    shown: Any,
    value: Any,
    waiting: Any,
    share: float,
    caps: Any,
    hidden: Any,
) -> float:
    """Chooses hidden[j] of one slot, best gain for its room first; returns the mass left."""
    size, count = law.size, bound.size
    gap = np.empty((size, count))
    room = np.zeros(count)
    for j in range(size):
        for c in range(first, known):
            gap[j, c] = bound[c] - belief[j, c]
        for c in range(known, count):
            gap[j, c] = bound[c] - future[j, c]
        for c in range(first, count):
            room[c] += law[j] * gap[j, c]
    scarcity = np.empty(count)
    for c in range(first, count):
        scarcity[c] = 1.0 / max(room[c], 1e-300)
    worth = np.full(size, -1.0)
    for j in range(size):
        gain = 1.0 + value[j] - waiting[j]
        if law[j] > 0 and shown[j] and caps[j] > 0 and gain > 1e-12:
            worth[j] = _worth(gain, gap[j], scarcity, first)
    for c in range(first, count):
        room[c] = max(room[c], 0.0) * share
    for _ in range(size):
        best = np.argmax(worth)
        if worth[best] <= 0:
            break
        worth[best] = -1.0
        hidden[best] = 1.0 - _afford(caps[best], law[best], gap[best], room, first)
        for c in range(first, count):
            room[c] -= law[best] * (1.0 - hidden[best]) * gap[best, c]
    return _settle(law, gap, first, hidden)


@njit(cache=True, error_model="numpy")
def _worth(gain: float, gap: Any, scarcity: Any, first: Any) -> float:
    """Gain per room of the scarcest secret; -1 when showing the state breaks a bound itself."""
    use, least = 0.0, 0.0
    for c in range(first, gap.size):
        use = max(use, gap[c] * scarcity[c])
        least = min(least, gap[c])
    return gain / (use + 1e-9) if least >= 0 else -1.0


@njit(cache=True, error_model="numpy")
def _afford(most: float, mass: float, gap: Any, room: Any, first: Any) -> float:
    """The largest multiple of 1/65536 up to `most` for which the room lasts."""
    for c in range(first, gap.size):
        need = mass * gap[c]
        if need * most > room[c] + 1e-13 * mass:
            most = max(room[c], 0.0) / need
    level = math.floor(most * LEVELS + 1e-9)
    return level / LEVELS if level >= 2 else 0.0


@njit(cache=True, error_model="numpy")
def _settle(law: Any, gap: Any, first: Any, hidden: Any) -> float:
    """The mass left, after looking directly at what is left: Σ a(j) hidden(j) gap(j, c) ≥ 0.

    Differences lose all digits when almost everything is shown, so the rest is summed anew; when
    it breaks a bound, less is shown.
    """
    for attempt in range(4):
        left = 0.0
        for j in range(law.size):
            left += law[j] * hidden[j]
        rest = np.zeros(gap.shape[1])
        for j in range(law.size):
            mass = law[j] * hidden[j]
            if mass > 0:
                for c in range(first, gap.shape[1]):
                    rest[c] += mass * gap[j, c]
        if (left == 0.0 or left > THIN) and (rest >= 0.0).all():  # also with no secret at all
            return left
        for j in range(law.size):
            if hidden[j] < 1:
                show = math.floor((1.0 - hidden[j]) * (1.0 - 2.0**-10) * LEVELS) / LEVELS
                hidden[j] = 1.0 - show if attempt < 2 and show * LEVELS >= 2 else 1.0
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
def best_segment(
    day: Any,
    slot: int,
    state: int,
    value: Any,
    paces: Any,
    passes: int,
    stop: float,
    offset: int,
    pace: Any,
    caps: Any,
    waiting: Any,
    best: Any,
) -> float:
    """Fills `best` with the best policy that `passes` forward passes find; returns its value.

    Starts from `pace`, `caps` and `waiting`, which worked one slot later, then tries each of
    `paces` without caps, first with waiting worth nothing and then worth what the last policy
    made of it; what is left goes into single changes. The three become those of the best policy.
    """
    moves = day[1]
    slots, size = moves.shape[0], moves.shape[1]
    hidden = np.ones((slots, size))
    kept = waiting.copy()
    free = np.ones((slots, size))
    best[:] = 1.0
    highest = forward_pass(day, slot, state, value, waiting, pace, caps, stop, best)
    winner, passes = -1, passes - 1
    for variant in range(paces.shape[0]):
        waiting[:] = 0.0
        for _ in range(2):
            if passes > 0:
                passes -= 1
                found = forward_pass(
                    day, slot, state, value, waiting, paces[variant], free, stop, hidden
                )
                if found > highest * (1 + 1e-12):
                    highest, best[:], kept[:], winner = found, hidden, waiting, variant
                wait_values(moves, slot, value, hidden, waiting)
    if winner >= 0:
        pace[:], caps[:] = paces[winner], 1.0
    highest = _climb(day, slot, state, value, kept, pace, caps, stop, best, highest, passes, offset)
    wait_values(moves, slot, value, best, waiting)
    return highest


@njit(cache=True, error_model="numpy")
def _climb(
    day: Any,
    slot: int,
    state: int,
    value: Any,
    waiting: Any,
    pace: Any,
    caps: Any,
    stop: float,
    best: Any,
    highest: float,
    passes: int,
    offset: int,
) -> float:
    """Changes one pace or one cap at a time, in turn, keeps what helps; returns the value.

    Ends when the passes are used up, or when a whole round of changes did not help.
    """
    slots, size = caps.shape
    length = slots - 1 - slot
    hidden = np.ones((slots, size))
    fresh = waiting.copy()
    idle, step = 0, 0
    while passes > 0 and idle < 20 * length * size and length > 0:
        step += 1
        idle += 1
        turn = offset + step // 2
        at = slot + 1 + turn // 5 % length
        which = turn // (5 * length) % size
        table = pace if step % 2 == 0 else caps[:, which]
        if step % 2 == 1 and not day[6][at, which]:
            continue
        before = table[at]
        table[at] = (turn % 5) / 4.0
        if table[at] == before:
            continue
        passes -= 1
        found = forward_pass(day, slot, state, value, fresh, pace, caps, stop, hidden)
        if found > highest * (1 + 1e-9):
            if found > highest * (1 + 1e-5):
                idle = 0
            highest, best[:] = found, hidden
            wait_values(day[1], slot, value, hidden, fresh)
        else:
            table[at] = before
    return highest


@njit(cache=True, error_model="numpy")
def policy_value(day: Any, slot: int, state: int, value: Any, hidden: Any) -> float:
    """Expected releases after a release, of a policy given for the slots after it."""
    moves = day[1]
    law = day[0].copy() if slot < 0 else moves[slot, state].copy()
    total = 0.0
    for t in range(slot + 1, moves.shape[0]):
        for j in range(law.size):
            total += law[j] * (1.0 - hidden[t, j]) * (1.0 + value[t, j])
        law = (law * hidden[t]) @ moves[t]
    return total
