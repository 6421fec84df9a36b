"""Pairs of rows of a sparse law, worked through state by state; importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, error_model="numpy")
def taken(rows: Any) -> tuple[Any, Any]:
    """Which states each row can take, in index order, and how many."""
    states = np.empty(rows.shape, dtype=np.int16)
    count = np.zeros(len(rows), dtype=np.int64)
    for x in range(len(rows)):
        for state in range(rows.shape[1]):
            if rows[x, state] > 0.0:
                states[x, count[x]] = state
                count[x] += 1
    return states, count


@njit(cache=True, error_model="numpy")
def rank_pairs(upper: Any, lower: Any, order: Any, count: Any) -> None:
    """For rows x of `upper` and x' of `lower` the states either can take, by falling ratio.

    Writes order[x, x', :count[x, x']], ties by index; what comes after means nothing.
    """
    own, owned = taken(upper)
    other, others = taken(lower)
    ratios = np.empty(upper.shape[1])
    for x in range(len(upper)):
        for y in range(len(lower)):
            i, j, size = 0, 0, 0
            while i < owned[x] or j < others[y]:
                ahead = j == others[y] or (i < owned[x] and own[x, i] <= other[y, j])
                state = own[x, i] if ahead else other[y, j]
                i += int(i < owned[x] and own[x, i] == state)
                j += int(j < others[y] and other[y, j] == state)
                ratio = upper[x, state] / lower[y, state]
                place = size
                while place > 0 and ratios[place - 1] < ratio:
                    ratios[place] = ratios[place - 1]
                    order[x, y, place] = order[x, y, place - 1]
                    place -= 1
                ratios[place], order[x, y, place] = ratio, state
                size += 1
            count[x, y] = size


@njit(cache=True, error_model="numpy")
def gain_pairs(upper: Any, lower: Any, gained: Any, held: Any) -> None:
    """Σ (p-p') and Σ p' over the states with p > p', for every pair of rows."""
    own, owned = taken(upper)
    for x in range(len(upper)):
        for y in range(len(lower)):
            more, kept = 0.0, 0.0
            for i in range(owned[x]):
                p, q = upper[x, own[x, i]], lower[y, own[x, i]]
                if p > q:
                    more += p - q
                    kept += q
            gained[x, y], held[x, y] = more, kept
