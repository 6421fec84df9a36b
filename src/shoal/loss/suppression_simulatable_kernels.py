"""Compiled search for the next release of the simulatable check; importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.loss.suppression_kernels import enter_secrets, reverse_beliefs, row_from, still_open


@njit(cache=True, error_model="numpy")
def next_release(day: Any, slot: int, state: int, earliest: int) -> Any:
    """The first slot from `earliest` on whose state may be shown whatever it is; T when none.

    `day` is the `Arrays` of suppression_arrays, of which `ahead` and `future` are not read. Every
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
            reverse_beliefs(logs[t - 1], ones[t - 1], moves[t - 1], logs[t], belief, fresh, 0, past)
            belief, fresh = fresh, belief
        known, past = enter_secrets(t, when, who, known, belief, secret, past)
        past = still_open(logs[t], -np.inf, belief, secret, past, bound)
        if t >= earliest and open_at[t] and past == 0:
            return t
    return slots
