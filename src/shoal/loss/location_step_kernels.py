"""The parts of a planar K-norm location step in compiled code; importing this imports numba.

Arrays in, arrays out, nothing kept. Whatever must be decided exactly, repaired or formed in
logarithms is not decided here: it is handed back, and the caller goes the plain way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.layers_kernels import (
    alive_by_adjacency,
    alive_by_scan,
    hull_of_groups,
    hull_of_members,
    without_neighbour,
)
from shoal.geometry.nearest_kernels import stand_ins
from shoal.geometry.planar_kernels import cone_of, cross, inside
from shoal.loss.location_kernels import count_inside
from shoal.noise.knorm_kernels import norm_of

TINY = 1e-250  # sums above it have lost nothing that matters to terms that underflowed
FEW = 8  # members' own edges are scanned when they are this many times fewer than all


@njit(cache=True)
def predict(pointers: Any, sources: Any, weights: Any, belief: Any) -> Any:
    """p⁻ = p⁺ M, from the transposed matrix in sparse rows: row j lists what leads to j."""
    prior = np.empty(len(pointers) - 1)
    for j in range(len(prior)):
        total = 0.0
        for k in range(pointers[j], pointers[j + 1]):
            total += weights[k] * belief[sources[k]]
        prior[j] = total
    return prior


@njit(cache=True)
def constrained_hull(members: Any, listed: Any, graph: Any) -> Any:
    """The vertices of the sensitivity hull of the members, as HullIndex finds them."""
    complete, points, order, layers, starts, first, second = graph[:7]
    ranks, vectors, pointers, others, group_of = graph[7:]
    if complete:
        return hull_of_members(members, order, points)
    alive = np.zeros(len(vectors), dtype=np.bool_)
    own = 0
    for k in range(len(listed)):
        own += pointers[listed[k] + 1] - pointers[listed[k]]
    if own * FEW < len(others):
        looked = alive_by_adjacency(members, listed, pointers, others, group_of, alive)
    else:
        looked = alive_by_scan(members, layers, starts, first, second, alive)
    return hull_of_groups(alive, looked, ranks, vectors)


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

    graph = (complete, points, order, layers, starts, first, second, ranks, vectors, pointers,
    others, group_of). Not ready, and the rest means nothing: fewer than two members, a flat hull,
    or somebody exposed.
    """
    points, order = graph[1], graph[2]
    answering = np.arange(len(points))
    listed = np.flatnonzero(members)
    vertices = np.zeros((0, 2), dtype=np.int64)
    if len(listed) > 1:
        vertices = constrained_hull(members, listed, graph)
    if len(vertices) < 3:
        return False, vertices, answering, vertices, False, 0.0
    corners, joined = vertices, True
    if not graph[0]:
        alone = without_neighbour(members, listed, graph[9], graph[10])
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


@njit(cache=True)
def updated(
    prior: Any, points: Any, answering: Any, vertices: Any, epsilon: float, x: int, y: int
) -> tuple[Any, float, float]:
    """(belief, total, best): p⁻(s) e^{w(s) - max w} of every state, their sum, the best weight.

    w(s) = -ε |z - f(s')|_K with z = (x, y) and s' = answering[s]; the maximum is over states of
    positive prior, `best` over the members. The belief is divided by its sum unless that is below
    TINY: then digits were lost, and the caller works in logarithms.
    """
    size = len(prior)
    weights = np.empty(size)
    best = -np.inf
    for state in range(size):
        if answering[state] == state:
            norm = norm_of(vertices, x - points[state, 0], y - points[state, 1])
            weights[state] = -epsilon * norm
            best = max(best, weights[state])
    highest = -np.inf
    for state in range(size):
        if prior[state] > 0.0:
            highest = max(highest, weights[answering[state]])
    belief = np.zeros(size)
    total = 0.0
    for state in range(size):
        if prior[state] > 0.0:
            belief[state] = prior[state] * math.exp(weights[answering[state]] - highest)
            total += belief[state]
    if total >= TINY:
        belief /= total
    return belief, total, best


@njit(cache=True)
def mean_and_spread(belief: Any, values: Any) -> tuple[float, float, float]:
    """(mean, mean, √E|f(s) - mean|²) of planar values under a belief."""
    east, north = 0.0, 0.0
    for state in range(len(belief)):
        east += belief[state] * values[state, 0]
        north += belief[state] * values[state, 1]
    square = 0.0
    for state in range(len(belief)):
        x, y = values[state, 0] - east, values[state, 1] - north
        square += belief[state] * (x * x + y * y)
    return east, north, math.sqrt(square)


@njit(cache=True)
def largest_places(values: Any, count: int) -> Any:
    """The places of the largest values, the largest first, ties by index."""
    top = np.empty(min(count, len(values)), dtype=np.int64)
    filled = 0
    for place in range(len(values)):
        if filled == len(top) and values[place] <= values[top[-1]]:
            continue
        filled = min(filled + 1, len(top))
        at = filled - 1
        while at > 0 and values[place] > values[top[at - 1]]:
            top[at] = top[at - 1]
            at -= 1
        top[at] = place
    return top


@njit(cache=True)
def absorbed(
    prior: Any,
    points: Any,
    values: Any,
    stage: Any,
    epsilon: float,
    x: int,
    y: int,
    shown: int,
) -> Any:
    """(total, belief, single, best, east, north, spread, top, degree) after output (x, y).

    stage = (members, answering, vertices). With `total` below TINY only `best` means something.
    `single` is the belief in single precision; `degree` is that of the most probable state, 0
    when it is no member.
    """
    members, answering, vertices = stage
    belief, total, best = updated(prior, points, answering, vertices, epsilon, x, y)
    single = belief.astype(np.float32)
    east, north, spread = mean_and_spread(belief, values)
    top = largest_places(belief, shown)
    degree = count_inside(vertices, points, members, top[0]) if members[top[0]] else 0
    return total, belief, single, best, east, north, spread, top, degree


@njit(cache=True)
def updated_rows(
    priors: Any, points: Any, answering: Any, vertices: Any, epsilon: float, zs: Any
) -> tuple[Any, Any]:
    """(beliefs, totals): `updated` for many streams at one stage, one a row."""
    beliefs, totals = np.empty(priors.shape), np.empty(len(priors))
    for row in range(len(priors)):
        beliefs[row], totals[row], _ = updated(
            priors[row], points, answering, vertices, epsilon, zs[row, 0], zs[row, 1]
        )
    return beliefs, totals
