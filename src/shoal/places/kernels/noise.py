"""Stages of planar K-norm streams in compiled code; importing this imports numba.

Arrays in, arrays out, nothing kept. Flat bodies and repairs by area or error are not decided
here: they are handed back, and the caller goes the plain way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from shoal.core.codec import Ints, locked
from shoal.geometry.kernels import (
    alive_by_adjacency,
    alive_by_scan,
    cone_of,
    cross,
    grown_outline,
    hull_of_groups,
    hull_of_members,
    inside,
    without_neighbour,
)
from shoal.geometry.nearest_kernels import stand_ins

# the arrays of a graph, by their place in `bound`
POINTS, ORDER, LAYERS, STARTS, FIRST, SECOND, RANKS, VECTORS, POINTERS, OTHERS, GROUPS = range(11)
BY_NEAREST, PARTNERS = 11, 12  # of the repair: 1 or 0, and who is wished for, -1 for nobody
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
def is_exposed(vertices: Any, points: Any, listed: Any, state: int) -> bool:
    """Whether no other member than the state itself lies within the body around it."""
    wide, tall = np.int64(0), np.int64(0)
    for k in range(len(vertices) // 2):
        wide, tall = max(wide, abs(vertices[k, 0])), max(tall, abs(vertices[k, 1]))
    for k in range(len(listed)):
        x = points[listed[k], 0] - points[state, 0]
        y = points[listed[k], 1] - points[state, 1]
        if abs(x) <= wide and abs(y) <= tall and listed[k] != state and inside(vertices, x, y):
            return False
    return True


@njit(cache=True)
def exposed_among(alone: Any, vertices: Any, points: Any, listed: Any) -> Any:
    """Of the states left alone those that are exposed, in their order."""
    kept = np.empty(len(alone), dtype=np.int64)
    count = 0
    for place in range(len(alone)):
        kept[count] = alone[place]
        count += int(is_exposed(vertices, points, listed, alone[place]))
    return kept[:count].copy()


@njit(cache=True)
def partner_of(state: int, members: Any, points: Any, listed: Any, partners: Any) -> int:
    """The partner that is wished for, if it is a member, else the nearest member, ties by index."""
    if len(partners) and partners[state] >= 0 and members[partners[state]]:
        return int(partners[state])
    nearest, least = -1, np.int64(2**62)
    for k in range(len(listed)):
        x = points[listed[k], 0] - points[state, 0]
        y = points[listed[k], 1] - points[state, 1]
        if listed[k] != state and x * x + y * y < least:
            nearest, least = listed[k], x * x + y * y
    return nearest


@njit(cache=True)
def repaired(
    vertices: Any, exposed: Any, members: Any, points: Any, listed: Any, partners: Any
) -> tuple[Any, Any]:
    """(vertices, added): the body and the edges when every exposed state is joined to another.

    As `policy_repair.protect` does with repair "nearest": in index order, exposure checked again
    after every edge.
    """
    added = np.empty((len(exposed), 2), dtype=np.int64)
    count = 0
    for place in range(len(exposed)):
        state = exposed[place]
        if not is_exposed(vertices, points, listed, state):
            continue  # an edge added for another state protects this one too
        other = partner_of(state, members, points, listed, partners)
        x, y = points[state, 0] - points[other, 0], points[state, 1] - points[other, 1]
        vertices = grown_outline(vertices, x, y)
        added[count, 0], added[count, 1] = min(state, other), max(state, other)
        count += 1
    return vertices, added[:count].copy()


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
    """(ready, vertices, before, exposed, added, answering, answers, joined, spread) of C = members.

    `graph` holds the points, their order, the arrays of a HullIndex and how to repair, bound in
    the order of the numbers above; a graph without vectors is complete. `before` are the vertices
    without the edges `added` for the states `exposed`. Not ready, and the rest means nothing:
    fewer than two members, a flat hull, or a repair that is not by the nearest.
    """
    points, order = part(graph, POINTS).reshape(-1, 2), part(graph, ORDER)
    answering, listed = np.arange(len(points)), np.flatnonzero(members)
    before = np.zeros((0, 2), dtype=np.int64)
    exposed, added = np.zeros(0, dtype=np.int64), before
    if len(listed) > 1:
        before = constrained_hull(members, listed, graph)
    vertices, corners, joined, ready = before, before, True, len(before) >= 3
    if ready and len(part(graph, VECTORS)):
        alone = without_neighbour(members, listed, part(graph, POINTERS), part(graph, OTHERS))
        exposed, joined = exposed_among(alone, before, points, listed), len(alone) < len(listed)
        ready = len(exposed) == 0 or part(graph, BY_NEAREST)[0] == 1
        if ready and len(exposed):
            partners = part(graph, PARTNERS)
            vertices, added = repaired(before, exposed, members, points, listed, partners)
        corners = hull_of_members(members, order, points)
    if not ready:
        return False, vertices, before, exposed, added, answering, before, False, 0.0
    if len(listed) < len(points):
        answering = stand_ins(points, order, members)
    answers = np.empty((len(points), 2), dtype=np.int64)
    for state in range(len(points)):
        answers[state, 0] = points[answering[state], 0]
        answers[state, 1] = points[answering[state], 1]
    spread = largest_loss(vertices, corners, epsilon)
    return True, vertices, before, exposed, added, answering, answers, joined, spread


# Mass carried to the nearest places that have room; importing this imports numba.


@njit(cache=True)
def all_carried(mass: Any, room: Any, first: Any, second: Any, growth: Any) -> bool:
    """Whether all mass finds room: carried from first[k] to second[k] it grows by growth[k] ≥ 1.

    Mass stays where it lies as far as there is room, then goes along the pairs in their order,
    which is by growth. Writes to both arrays. Rounding is the caller's: room is given with a
    margin of as many roundings as there are subtractions.
    """
    left = 0
    for place in range(len(mass)):
        kept = min(mass[place], room[place])
        mass[place] -= kept
        room[place] -= kept
        left += mass[place] > 0.0
    for k in range(len(first)):
        if left == 0:
            return True
        source, target = first[k], second[k]
        if mass[source] > 0.0 and room[target] > 0.0:
            needed = mass[source] * growth[k]
            if needed <= room[target]:
                room[target] -= needed
                mass[source] = 0.0
                left -= 1
            else:
                mass[source] -= room[target] / growth[k]
                room[target] = 0.0
                left -= mass[source] <= 0.0
    return left == 0
