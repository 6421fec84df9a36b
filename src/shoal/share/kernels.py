"""Compiled search for the frontier of what may be shown; importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)
def pairs_fit(logs: Any, error: float, spent: Any, limits: Any, caps: Any) -> bool:
    """Return whether showing a leg from one state keeps every ordered pair within its limits.

    `logs[l, h]` is the log-likelihood of the state under law l given the hidden crossing h, within
    `error`. `spent`, `limits` and `caps` are matrices over ordered pairs.
    """
    count = spent.shape[0]
    for law in range(logs.shape[0]):
        for h in range(count):
            if not np.isfinite(logs[law, h]):
                return False
    for h in range(count):
        for other in range(count):
            if h == other:
                continue
            charge = 0.0
            for law in range(logs.shape[0]):
                charge = max(charge, logs[law, h] - logs[law, other] + error)
            if charge > caps[h, other] or spent[h, other] + charge > limits[h, other]:
                return False
    return True


@njit(cache=True)
def charge_of(logs: Any, error: float) -> Any:
    """Return the charges of ordered pairs for a leg that is shown from one state."""
    count = logs.shape[1]
    found = np.zeros((count, count))
    for h in range(count):
        for other in range(count):
            if h != other:
                for law in range(logs.shape[0]):
                    difference = logs[law, h] - logs[law, other] + error
                    found[h, other] = max(found[h, other], difference)
    return found


@njit(cache=True)
def search_frontier(
    indptr: Any,
    indices: Any,
    begun: Any,
    hidden: Any,
    ends: Any,
    always: bool,
    quick: Any,
    logs: Any,
    error: float,
    spent: Any,
    limits: Any,
    caps: Any,
) -> tuple[Any, bool]:
    """Return the mask of good states that a walk from `begun` can meet first, and the goal's.

    Walks go along the arcs of (indptr, indices) through bad states. `hidden` states are bad.
    `quick[i]` is +1 for a state known to be good, -1 for one known to be bad, 0 otherwise.
    `ends` are the states in which walks reach the goal. With `always` they stand for the goal
    itself and are good; otherwise a bad end means that the goal alone may be shown. The second
    value says whether the goal lies on the frontier.
    """
    size = len(quick)
    seen = np.zeros(size, dtype=np.bool_)
    frontier = np.zeros(size, dtype=np.bool_)
    queue = np.empty(size, dtype=np.int64)
    first, after, goal = 0, 0, False
    for state in begun:
        if not seen[state]:
            seen[state] = True
            queue[after] = state
            after += 1
    while first < after:
        state = queue[first]
        first += 1
        good = False
        if ends[state] and always:
            good = True
            goal = True
        elif not hidden[state] and quick[state] >= 0:
            good = quick[state] > 0 or pairs_fit(logs[state], error, spent, limits, caps)
        if good:
            frontier[state] = True
            continue
        if ends[state]:
            goal = True
        for k in range(indptr[state], indptr[state + 1]):
            following = indices[k]
            if not seen[following]:
                seen[following] = True
                queue[after] = following
                after += 1
    return frontier, goal


@njit(cache=True)
def stopping_values(
    indptr: Any, before: Any, chances: Any, metres: Any, stop: Any, end: Any, sweeps: int
) -> Any:
    """Return the value of each crossing when a leg is followed backwards and may be cut.

    At a crossing a leg may be cut, for `stop`, or followed to the crossing before: before[k] with
    chances[k], which adds metres[k], for k from indptr[i] to indptr[i + 1]. At hidden crossings
    `end` is finite and ends the leg. Values rise from below by at most `sweeps` rounds.
    """
    size = len(stop)
    values = np.empty(size)
    for i in range(size):
        values[i] = end[i] if np.isfinite(end[i]) else max(stop[i], -1e9)
    for _ in range(sweeps):
        change = 0.0
        for i in range(size):
            if np.isfinite(end[i]) or indptr[i] == indptr[i + 1]:
                continue
            onward = 0.0
            for k in range(indptr[i], indptr[i + 1]):
                onward += chances[k] * (metres[k] + values[before[k]])
            better = max(onward, stop[i])
            change = max(change, abs(better - values[i]))
            values[i] = better
        if change < 1.0:
            break
    return values
