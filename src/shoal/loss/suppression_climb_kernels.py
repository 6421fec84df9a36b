"""Compiled search for the best policy of one segment; importing this imports numba.

Forward passes with different paces, then single changes of a pace or of a cap on a state. A `day`
is the `Arrays` of suppression_arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.loss.suppression_segment_kernels import forward_pass, wait_values

FORGOTTEN = 0.99  # what the win of a pace still counts after the next one


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
    wins: Any,
    best: Any,
    spent: Any,
) -> float:
    """Fills `best` with the best policy that `passes` forward passes find; returns its value.

    Starts from `pace`, `caps` and `waiting`, which worked one slot later, then tries each of
    `paces` without caps, first with waiting worth nothing and then worth what the last policy
    made of it; what is left goes into single changes. The three become those of the best policy.
    One pace in turn is tried first, then those that won most: wins[v] counts, and is kept up.
    """
    moves = day.moves
    slots, size = moves.shape[0], moves.shape[1]
    hidden = np.ones((slots, size))
    kept = waiting.copy()
    free = np.ones((slots, size))
    best[:] = 1.0
    highest = forward_pass(day, slot, state, value, waiting, pace, caps, stop, best, spent)
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
                found = forward_pass(
                    day, slot, state, value, waiting, paces[variant], free, stop, hidden, spent
                )
                if found > highest * (1 + 1e-12):
                    highest, best[:], kept[:], winner = found, hidden, waiting, variant
                wait_values(moves, slot, value, hidden, waiting)
    if winner >= 0:
        pace[:], caps[:] = paces[winner], 1.0
        wins *= FORGOTTEN
        wins[winner] += 1.0
    highest = _climb(
        day, slot, state, value, kept, pace, caps, stop, best, highest, passes, offset, spent
    )
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
    spent: Any,
) -> float:
    """Changes one pace or one cap at a time, in turn, keeps what helps; returns the value.

    Ends when the passes are used up, or when a whole round of changes did not help.
    """
    slots, size = caps.shape[0], caps.shape[1] // day.copies
    length = slots - 1 - slot
    hidden = np.ones(caps.shape)
    fresh = waiting.copy()
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
        found = forward_pass(day, slot, state, value, fresh, pace, caps, stop, hidden, spent)
        if found > highest * (1 + 1e-9):
            if found > highest * (1 + 1e-5):
                idle = 0
            highest, best[:] = found, hidden
            wait_values(day.moves, slot, value, hidden, fresh)
        else:
            table[at] = before
    return highest
