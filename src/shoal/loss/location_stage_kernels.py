"""Stages of planar K-norm streams in compiled code; importing this imports numba.

Arrays in, arrays out, nothing kept. Whatever must be repaired is not decided here: it is handed
back, and the caller goes the plain way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from shoal.core.value import Ints, locked
from shoal.geometry.layers_kernels import (
    alive_by_adjacency,
    alive_by_scan,
    hull_of_groups,
    hull_of_members,
    without_neighbour,
)
from shoal.geometry.nearest_kernels import stand_ins
from shoal.geometry.planar_kernels import cone_of, cross, inside

# the arrays of a graph, by their place in `bound`
POINTS, ORDER, LAYERS, STARTS, FIRST, SECOND, RANKS, VECTORS, POINTERS, OTHERS, GROUPS = range(11)
FEW = 8  # members' own edges are scanned when they are this many times fewer than all


def bound(arrays: Sequence[Ints]) -> Ints:
    """Arrays one after the other in a single one, which begins with where each starts.

    Compiled code pays for every array that it is handed, on small maps more than for using it.
    """
    sizes = [len(arrays) + 1, *(array.size for array in arrays)]
    return locked(np.concatenate([np.cumsum(sizes), *map(np.ravel, arrays)]), np.int64)


@njit(cache=True)
def part(sheet: Any, number: int) -> Any:
    """An array that was bound, in one dimension."""
    return sheet[sheet[number] : sheet[number + 1]]


@njit(cache=True)
def constrained_hull(members: Any, listed: Any, graph: Any) -> Any:
    """The vertices of the sensitivity hull of the members, as HullIndex finds them."""
    points, order = part(graph, POINTS).reshape(-1, 2), part(graph, ORDER)
    vectors = part(graph, VECTORS).reshape(-1, 2)
    if len(vectors) == 0:
        return hull_of_members(members, order, points)
    pointers, others = part(graph, POINTERS), part(graph, OTHERS)
    alive = np.zeros(len(vectors), dtype=np.bool_)
    own = 0
    for k in range(len(listed)):
        own += pointers[listed[k] + 1] - pointers[listed[k]]
    if own * FEW < len(others):
        groups = part(graph, GROUPS)
        looked = alive_by_adjacency(members, listed, pointers, others, groups, alive)
    else:
        layers, starts = part(graph, LAYERS), part(graph, STARTS)
        first, second = part(graph, FIRST), part(graph, SECOND)
        looked = alive_by_scan(members, layers, starts, first, second, alive)
    return hull_of_groups(alive, looked, part(graph, RANKS), vectors)


@njit(cache=True)
def anybody_exposed(vertices: Any, points: Any, listed: Any, alone: Any) -> bool:
    """Whether one of the states left alone has no other member within the body."""
    for place in range(len(alone)):
        state = alone[place]
        near = False
        for k in range(len(listed)):
            if listed[k] != state:
                x = points[listed[k], 0] - points[state, 0]
                y = points[listed[k], 1] - points[state, 1]
                if inside(vertices, x, y):
                    near = True
                    break
        if not near:
            return True
    return False


@njit(cache=True)
def largest_loss(vertices: Any, corners: Any, epsilon: float) -> float:
    """max over corners v of ε |v|_K, rounded up as `LatticeKNorm.log_ratios` does."""
    largest = 0.0
    for k in range(len(corners)):
        x, y = corners[k, 0], corners[k, 1]
        i = cone_of(vertices, x, y)
        j = i + 1 if i + 1 < len(vertices) else 0
        ax, ay = vertices[i, 0], vertices[i, 1]
        bx, by = vertices[j, 0], vertices[j, 1]
        ratio = float(cross(x, y, bx - ax, by - ay)) / float(cross(ax, ay, bx, by))
        # two conversions and a quotient lose at most 1.5 units in the last place
        norm = np.nextafter(ratio * (1 + 2.0**-51), np.inf)
        largest = max(largest, np.nextafter(epsilon * norm, np.inf))
    return largest


@njit(cache=True)
def stage_parts(graph: Any, members: Any, epsilon: float) -> Any:
    """(ready, vertices, answering, answers, joined, spread) of a constraint C = members.

    `graph` holds the points, their order and the arrays of a HullIndex, bound in the order of the
    numbers above; a graph without vectors is complete. Not ready, and the rest means nothing:
    fewer than two members, a flat hull, or somebody exposed.
    """
    points, order = part(graph, POINTS).reshape(-1, 2), part(graph, ORDER)
    answering = np.arange(len(points))
    listed = np.flatnonzero(members)
    vertices = np.zeros((0, 2), dtype=np.int64)
    if len(listed) > 1:
        vertices = constrained_hull(members, listed, graph)
    if len(vertices) < 3:
        return False, vertices, answering, vertices, False, 0.0
    corners, joined = vertices, True
    if len(part(graph, VECTORS)):
        alone = without_neighbour(members, listed, part(graph, POINTERS), part(graph, OTHERS))
        if anybody_exposed(vertices, points, listed, alone):
            return False, vertices, answering, vertices, False, 0.0
        joined = len(alone) < len(listed)
        corners = hull_of_members(members, order, points)
    if len(listed) < len(points):
        answering = stand_ins(points, order, members)
    answers = np.empty((len(points), 2), dtype=np.int64)
    for state in range(len(points)):
        answers[state, 0] = points[answering[state], 0]
        answers[state, 1] = points[answering[state], 1]
    return True, vertices, answering, answers, joined, largest_loss(vertices, corners, epsilon)
