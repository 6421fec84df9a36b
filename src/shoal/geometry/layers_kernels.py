"""Compiled hulls of a fixed graph under a changing constraint; importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.planar_kernels import difference_outline, symmetric_outline


@njit(cache=True)
def group_alive(members: Any, first: Any, second: Any, start: int, stop: int) -> bool:
    """Whether one of the edges start..stop has both its ends among the members."""
    edge = start
    while edge < stop and not (members[first[edge]] and members[second[edge]]):
        edge += 1
    return edge < stop


@njit(cache=True)
def alive_by_scan(
    members: Any, layers: Any, starts: Any, first: Any, second: Any, alive: Any
) -> int:
    """Marks the groups of edges with a living edge, layer by layer; how many were looked at.

    Layers are peeled from the outside, so a layer that lives as a whole has all deeper ones in
    its hull: the scan stops there.
    """
    for layer in range(len(layers) - 1):
        whole = True
        for group in range(layers[layer], layers[layer + 1]):
            alive[group] = group_alive(members, first, second, starts[group], starts[group + 1])
            whole = whole and alive[group]
        if whole:
            return int(layers[layer + 1])
    return int(layers[-1])


@njit(cache=True)
def alive_by_adjacency(
    members: Any, listed: Any, pointers: Any, others: Any, group_of: Any, alive: Any
) -> int:
    """The same from the listed members' own edges: cheaper when they are few."""
    for place in range(len(listed)):
        state = listed[place]
        for k in range(pointers[state], pointers[state + 1]):
            if members[others[k]]:
                alive[group_of[k]] = True
    return len(alive)


@njit(cache=True)
def hull_of_groups(alive: Any, looked: int, ranks: Any, vectors: Any) -> Any:
    """The vertices of conv{±v of living groups}; vectors are sorted, ranks lead into them."""
    count = 0
    for group in range(looked):
        count += alive[group]
    chosen = np.empty(count, dtype=np.int64)
    count = 0
    for group in range(looked):
        if alive[group]:
            chosen[count] = ranks[group]
            count += 1
    chosen.sort()
    half = np.empty((count, 2), dtype=np.int64)
    for k in range(count):
        half[k, 0], half[k, 1] = vectors[chosen[k], 0], vectors[chosen[k], 1]
    return symmetric_outline(half)


@njit(cache=True)
def hull_of_members(members: Any, order: Any, points: Any) -> Any:
    """The vertices of conv{p - q : p, q members}; `order` sorts the points lexicographically.

    Of the members with one first coordinate only the lowest and the highest can be extreme.
    """
    kept = np.empty((len(order), 2), dtype=np.int64)
    count, in_column = 0, 0
    for place in range(len(order)):
        state = order[place]
        if not members[state]:
            continue
        x, y = points[state, 0], points[state, 1]
        if count and kept[count - 1, 0] == x:
            in_column += 1
            if in_column > 2:
                count -= 1
        else:
            in_column = 1
        kept[count, 0], kept[count, 1] = x, y
        count += 1
    return difference_outline(kept[:count])


@njit(cache=True)
def without_neighbour(members: Any, states: Any, pointers: Any, others: Any) -> Any:
    """Of the listed states those with no edge to a member."""
    kept = np.empty(len(states), dtype=np.int64)
    count = 0
    for place in range(len(states)):
        state = states[place]
        joined = False
        for k in range(pointers[state], pointers[state + 1]):
            if members[others[k]]:
                joined = True
                break
        if not joined:
            kept[count] = state
            count += 1
    return kept[:count]
