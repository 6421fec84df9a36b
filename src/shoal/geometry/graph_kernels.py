"""A fixed graph on lattice points under a changing constraint, in compiled code; imports numba.

Computes the hull of the edges between members, the edges added for exposed states, and the member
that stands in for each state outside. Stateless functions of integer arrays. Flat bodies and
repairs by area or error are reported as not ready, and the caller computes them in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from shoal.core.codec import Ints, as_read_only
from shoal.geometry.kernels import (
    difference_outline,
    grown_outline,
    inside,
    norm_parts,
    symmetric_outline,
)

EDGES_FEWER = 8  # the members' own edges are scanned when they are this many times fewer than all


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
    """Like `alive_by_scan`, from the listed members' own edges: cheaper when they are few."""
    for place in range(len(listed)):
        state = listed[place]
        for k in range(pointers[state], pointers[state + 1]):
            if members[others[k]]:
                alive[group_of[k]] = True
    return len(alive)


@njit(cache=True)
def hull_of_groups(alive: Any, looked: int, ranks: Any, vectors: Any) -> Any:
    """The vertices of conv{±v of living groups}; vectors are sorted, ranks lead into them."""
    chosen = np.sort(ranks[:looked][alive[:looked]])
    return symmetric_outline(vectors[chosen])


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


# The steps for one constraint: hull, repair, stand-ins, η.


# The arrays of a graph, by their place in `bound`. Groups of edges are in layer order: group g has
# edges STARTS[g]..STARTS[g+1] of (FIRST, SECOND) and the difference VECTORS[RANKS[g]]. The same
# edges by state are in POINTERS, OTHERS and GROUPS.
POINTS, ORDER, LAYERS, STARTS, FIRST, SECOND, RANKS, VECTORS, POINTERS, OTHERS, GROUPS = range(11)
BY_NEAREST, PARTNERS = 11, 12  # of the repair: 1 or 0, and partners by state, -1: none


def bound(arrays: Sequence[Ints]) -> Ints:
    """Arrays one after the other in a single one, which begins with where each starts.

    Compiled code pays for every array that it is handed, on small maps more than for using it.
    """
    sizes = [len(arrays) + 1, *(array.size for array in arrays)]
    return as_read_only(np.concatenate([np.cumsum(sizes), *map(np.ravel, arrays)]), np.int64)


@njit(cache=True)
def part(sheet: Any, number: int) -> Any:
    """An array that was bound, in one dimension."""
    return sheet[sheet[number] : sheet[number + 1]]


@njit(cache=True)
def edge_hull(members: Any, listed: Any, graph: Any) -> Any:
    """The vertices of conv{±(f(s) - f(s')) : ss' an edge of listed members}."""
    vectors = part(graph, VECTORS).reshape(-1, 2)
    pointers, others = part(graph, POINTERS), part(graph, OTHERS)
    alive = np.zeros(len(vectors), dtype=np.bool_)
    own = 0
    for state in listed:
        own += pointers[state + 1] - pointers[state]
    if own * EDGES_FEWER < len(others):
        groups = part(graph, GROUPS)
        looked = alive_by_adjacency(members, listed, pointers, others, groups, alive)
    else:
        first, second = part(graph, FIRST), part(graph, SECOND)
        layers, starts = part(graph, LAYERS), part(graph, STARTS)
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
    kept = np.zeros(len(alone), dtype=np.bool_)
    for place in range(len(alone)):
        kept[place] = is_exposed(vertices, points, listed, alone[place])
    return alone[kept]


@njit(cache=True)
def partner_of(state: int, members: Any, points: Any, listed: Any, partners: Any) -> int:
    """Return the preferred partner if it is a member, else the nearest member; ties by index."""
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
def repair_hull(
    vertices: Any, exposed: Any, members: Any, points: Any, listed: Any, partners: Any
) -> tuple[Any, Any]:
    """(vertices, added): the body and the edges when every exposed state is joined to another.

    As `protect_together` does with repair "nearest": in index order, exposure checked again
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
        above, below = norm_parts(vertices, corners[k, 0], corners[k, 1])
        ratio = float(above) / float(below)
        # two conversions and a quotient lose at most 1.5 units in the last place
        norm = np.nextafter(ratio * (1 + 2.0**-51), np.inf)
        largest = max(largest, np.nextafter(epsilon * norm, np.inf))
    return largest


@njit(cache=True)
def stage_parts(graph: Any, members: Any, epsilon: float) -> Any:
    """(ready, vertices, before, exposed, added, answering, answers, joined, spread) of C = members.

    `graph` holds the points, their order, the arrays of a HullIndex and how to repair, bound in
    the order of the numbers above; a graph without vectors is complete. `before` are the vertices
    without the edges `added` for the states `exposed`. Not ready, with the other results undefined:
    fewer than two members, a flat hull, or a repair that is not by the nearest.
    """
    points, order = part(graph, POINTS).reshape(-1, 2), part(graph, ORDER)
    answering, listed = np.arange(len(points)), np.flatnonzero(members)
    before = np.zeros((0, 2), dtype=np.int64)
    exposed, added = np.zeros(0, dtype=np.int64), before
    joins = len(part(graph, VECTORS)) > 0
    if len(listed) > 1 and joins:
        before = edge_hull(members, listed, graph)
    elif len(listed) > 1:
        before = hull_of_members(members, order, points)
    vertices, corners, joined, ready = before, before, True, len(before) >= 3
    if ready and joins:
        alone = without_neighbour(members, listed, part(graph, POINTERS), part(graph, OTHERS))
        exposed, joined = exposed_among(alone, before, points, listed), len(alone) < len(listed)
        ready = len(exposed) == 0 or part(graph, BY_NEAREST)[0] == 1
        if ready and len(exposed):
            partners = part(graph, PARTNERS)
            vertices, added = repair_hull(before, exposed, members, points, listed, partners)
        corners = hull_of_members(members, order, points)
    if not ready:
        return False, vertices, before, exposed, added, answering, before, False, 0.0
    if len(listed) < len(points):
        answering = stand_ins(points, order, members)
    answers = points[answering]
    spread = largest_loss(vertices, corners, epsilon)
    return True, vertices, before, exposed, added, answering, answers, joined, spread


# The nearest member of every lattice point.


BEYOND_COORDINATES = 2**30  # farther than any two coordinates
NARROW = 2**15
ROOM = 8  # a box of at most this many cells a state is filled in cell by cell
SMALL_BOX = 64  # sides of a box in which every row is compared with every other
INDEX_BITS = 15  # of a state, below its squared distance: together 28 bits in such a box
NO_MEMBER = np.int32(2**30)


@njit(cache=True)
def stand_ins(points: Any, order: Any, members: Any) -> Any:
    """For every state the nearest member, ties by index; `order` sorts points lexicographically."""
    west, east = points[order[0], 0], points[order[-1], 0]
    south, north = points[0, 1], points[0, 1]
    for state in range(len(points)):
        south, north = min(south, points[state, 1]), max(north, points[state, 1])
    width, height = east - west + 1, north - south + 1
    if max(width, height) <= SMALL_BOX and len(points) <= 2**INDEX_BITS:
        return by_comparison(points, members, west, south, width, height)
    # the narrow sides keep the products of a row's parabolas below 2^48
    if max(width, height) <= NARROW and width * height <= ROOM * len(points):
        return by_raster(points, members, west, south, width, height)
    return by_sweep(points, order, members)


@njit(cache=True)
def by_sweep(points: Any, order: Any, members: Any) -> Any:
    """Stand-ins of scattered points.

    From a state's index in the order the search visits the members to its left and right until
    first coordinates alone are farther than the best found.
    """
    rows = order[members[order]]
    chosen = np.arange(len(points))
    right, winner = 0, rows[0]  # how many members come before a state
    for state in order:
        x, y = points[state, 0], points[state, 1]
        if members[state]:
            right, winner = right + 1, state
            continue
        # the member nearest to the point before this one is a good first guess
        across, along = points[winner, 0] - x, points[winner, 1] - y
        best = across * across + along * along
        low, high = right - 1, right
        while low >= 0 or high < len(rows):
            gap_low = x - points[rows[low], 0] if low >= 0 else np.int64(BEYOND_COORDINATES)
            gap_high = (
                points[rows[high], 0] - x if high < len(rows) else np.int64(BEYOND_COORDINATES)
            )
            gap = min(gap_low, gap_high)
            if gap * gap > best:
                break
            other = rows[high] if gap_high <= gap_low else rows[low]
            along = points[other, 1] - y
            distance = gap * gap + along * along
            if distance < best or (distance == best and other < winner):
                best, winner = distance, other
            if gap_high <= gap_low:
                high += 1
            else:
                low -= 1
        chosen[state] = winner
    return chosen


@njit(cache=True)
def by_comparison(points: Any, members: Any, west: int, south: int, width: int, height: int) -> Any:
    """Stand-ins of points in a small box: nearest along its columns, then along its rows.

    A member is known by its squared distance and, below that, its index, in one number: the
    smallest is the nearest, ties by index.
    """
    columns = np.full((width, height), NO_MEMBER, dtype=np.int32)
    for state in range(len(points) - 1, -1, -1):  # backwards: the lowest index stays
        if members[state]:
            columns[points[state, 0] - west, points[state, 1] - south] = state
    rows = np.ascontiguousarray(_least_over_rows(columns).T)
    nearest = _least_over_rows(rows)
    chosen = np.arange(len(points))
    for state in range(len(points)):
        if not members[state]:
            key = nearest[points[state, 1] - south, points[state, 0] - west]
            chosen[state] = key & (2**INDEX_BITS - 1)
    return chosen


@njit(cache=True)
def _least_over_rows(keys: Any) -> Any:
    """In each column, for every row, the least over all rows of key + gap².

    All rows that are `gap` apart at once: slow in principle, but the processor takes a dozen at
    a time.
    """
    rows, columns = keys.shape
    flat = keys.reshape(-1)
    least = flat.copy()
    for gap in range(1, rows):
        far, size = (gap * gap) << INDEX_BITS, (rows - gap) * columns
        _lower(least[:size], flat[-size:], far)
        _lower(least[-size:], flat[:size], far)
    return least.reshape(rows, columns)


@njit(cache=True)
def _lower(least: Any, keys: Any, far: int) -> None:
    """least = min(least, keys + far), in 32 bits."""
    for k in range(len(least)):
        key = np.int32(keys[k] + np.int32(far))
        least[k] = key if key < least[k] else least[k]


@njit(cache=True)
def by_raster(points: Any, members: Any, west: int, south: int, width: int, height: int) -> Any:
    """Stand-ins of points that fill much of a small box, in time proportional to the box.

    In every column the nearest member above or below; then along each row the lowest of the
    parabolas (x - column)² + height² (Felzenszwalb & Huttenlocher 2012), on integers.
    """
    lowest = np.full((height, width), -1, dtype=np.int64)
    squared = np.full((height, width), np.int64(BEYOND_COORDINATES) * BEYOND_COORDINATES)
    for state in range(len(points) - 1, -1, -1):  # backwards: the lowest index stays
        if members[state]:
            row, column = points[state, 1] - south, points[state, 0] - west
            lowest[row, column], squared[row, column] = state, 0
    _along_columns(lowest, squared)
    _along_columns(lowest[::-1], squared[::-1])
    nearest = np.empty((height, width), dtype=np.int64)
    columns, above, below = np.empty((3, width), dtype=np.int64)
    for row in range(height):
        _along_row(lowest[row], squared[row], nearest[row], columns, above, below)
    chosen = np.arange(len(points))
    for state in range(len(points)):
        if not members[state]:
            chosen[state] = nearest[points[state, 1] - south, points[state, 0] - west]
    return chosen


@njit(cache=True)
def _along_columns(found: Any, squared: Any) -> None:
    """Writes the last member before it in its column to every cell that has none as near.

    `squared` is how far that is, 0 where `found` holds a member; ties by index.
    """
    rows = np.full(found.shape[1], -1, dtype=np.int64)
    for row in range(len(found)):
        for column in range(len(rows)):
            last = rows[column]
            if squared[row, column] == 0:
                rows[column] = row
            elif last >= 0:
                other, gap = found[last, column], (row - last) * (row - last)
                tied = gap == squared[row, column] and other < found[row, column]
                if gap < squared[row, column] or tied:
                    found[row, column], squared[row, column] = other, gap


@njit(cache=True)
def _along_row(
    found: Any, squared: Any, nearest: Any, columns: Any, above: Any, below: Any
) -> None:
    """Writes the winner of every cell of a row to `nearest`, ties by index.

    Parabola k of the envelope is lowest from above[k] / below[k] on. One is dropped only if the
    next takes over strictly before it begins, so that all that tie at a cell are there.
    """
    top = -1
    for column in range(len(found)):
        if found[column] < 0:
            continue
        while top >= 0:
            rise = squared[column] + column * column
            rise -= squared[columns[top]] + columns[top] * columns[top]
            run = 2 * (column - columns[top])
            if top == 0 or rise * below[top] >= above[top] * run:
                break
            top -= 1
        top += 1
        columns[top] = column
        if top > 0:
            above[top], below[top] = rise, run
    at = 0
    for cell in range(len(found)):
        while at < top and above[at + 1] <= cell * below[at + 1]:
            at += 1
        winner, back = found[columns[at]], at
        while back > 0 and above[back] == cell * below[back]:
            back -= 1
            winner = min(winner, found[columns[back]])
        nearest[cell] = winner
