"""One whole step of a planar K-norm location stream in compiled code; importing this imports numba.

Arrays in, arrays out, nothing kept. Whatever the plain machine decides exactly or repairs is not
decided here: the step is handed back with a status instead, before anything was released.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.diamond_kernels import diamond
from shoal.geometry.layers_kernels import (
    alive_by_adjacency,
    alive_by_scan,
    hull_of_groups,
    hull_of_members,
    without_neighbour,
)
from shoal.geometry.nearest_kernels import stand_ins
from shoal.geometry.planar_kernels import inside
from shoal.loss.location_kernels import threshold
from shoal.noise.knorm_kernels import ACCEPTED, REJECTED, norm_of, plane_attempt

READY, CLOSE_SET, NOBODY, EXPOSED, FLAT = 0, 1, 2, 3, 4
TINY = 1e-250  # sums above it have lost nothing that matters to terms that underflowed
FEW = 8  # members' own edges are scanned when they are this many times fewer than all


@njit(cache=True)
def predict(pointers: Any, sources: Any, weights: Any, belief: Any, support: Any) -> Any:
    """(prior, possible): p⁻ = p⁺ M and the states reachable from `support`.

    The transposed matrix in sparse rows: row j lists the states that lead to j.
    """
    size = len(pointers) - 1
    prior = np.empty(size)
    possible = np.empty(size, dtype=np.bool_)
    for j in range(size):
        total, reached = 0.0, False
        for k in range(pointers[j], pointers[j + 1]):
            source = sources[k]
            total += weights[k] * belief[source]
            reached = reached or support[source]
        prior[j], possible[j] = total, reached
    return prior, possible


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
def drawn(vertices: Any, epsilon: float, words: Any) -> tuple[int, int, int, int]:
    """(verdict, x, y, place): the first attempt, of three words each, that is not rejected.

    UNDECIDED at `place`: that attempt must be finished exactly. REJECTED: all were.
    """
    shares, outwards = diamond(vertices)
    for place in range(len(words)):
        verdict, x, y = plane_attempt(words[place], epsilon, shares, outwards, vertices)
        if verdict != REJECTED:
            return verdict, x, y, place
    return REJECTED, 0, 0, len(words)


@njit(cache=True)
def updated(
    prior: Any, points: Any, answering: Any, vertices: Any, epsilon: float, x: int, y: int
) -> tuple[Any, float, float]:
    """(posterior, mean of x, mean of y) after output (x, y); means not a number when all underflow.

    State s answers with points[answering[s]]. The smallest norm is taken out, so that the largest
    weight is 1; below TINY the sum has lost digits, and the caller works in logarithms.
    """
    size = len(prior)
    far = np.empty(size)
    nearest = np.inf
    for state in range(size):
        if answering[state] == state:
            far[state] = norm_of(vertices, x - points[state, 0], y - points[state, 1])
            nearest = min(nearest, far[state])
    posterior = np.empty(size)
    total, mean_x, mean_y = 0.0, 0.0, 0.0
    for state in range(size):
        weight = prior[state]
        if weight > 0.0:
            weight *= math.exp(epsilon * (nearest - far[answering[state]]))
            total += weight
            mean_x += weight * points[state, 0]
            mean_y += weight * points[state, 1]
        posterior[state] = weight
    if total < TINY:
        return posterior, np.nan, np.nan
    posterior /= total
    return posterior, mean_x / total, mean_y / total


@njit(cache=True)
def prepared(moves: Any, graph: Any, belief: Any, support: Any, share: float) -> Any:
    """(status, prior, possible, members, vertices): all that is public before the draw.

    moves = (pointers, sources, weights) of the transposed chain; graph = (complete, points, order,
    layers, starts, first, second, ranks, vectors, pointers, others, group_of); share = 1 - δ, or
    above 1 for the support. The vertices mean something with status READY only.
    """
    prior, possible = predict(moves[0], moves[1], moves[2], belief, support)
    points = graph[1]
    vertices = np.zeros((0, 2), dtype=np.int64)
    members = possible
    if share <= 1.0:
        least, clear = threshold(prior, share)
        if not clear:
            return CLOSE_SET, prior, possible, members, vertices
        members = possible & (prior >= least)
    listed = np.flatnonzero(members)
    if len(listed) < 2:
        return NOBODY, prior, possible, members, vertices
    vertices = constrained_hull(members, listed, graph)
    if len(vertices) < 3:
        return FLAT, prior, possible, members, vertices
    if not graph[0]:
        alone = without_neighbour(members, listed, graph[9], graph[10])
        if anybody_exposed(vertices, points, listed, alone):
            return EXPOSED, prior, possible, members, vertices
    return READY, prior, possible, members, vertices


@njit(cache=True)
def finished(
    graph: Any, prior: Any, members: Any, vertices: Any, epsilon: float, place: int, x: int, y: int
) -> Any:
    """(z, posterior, mean): the noise (x, y) added to the answer of `place`, and Bayes' rule."""
    points, order = graph[1], graph[2]
    answering = np.arange(len(points))
    if not members.all():
        answering = stand_ins(points, order, members)
    z = np.array([x + points[answering[place], 0], y + points[answering[place], 1]])
    posterior, east, north = updated(prior, points, answering, vertices, epsilon, z[0], z[1])
    return z, posterior, np.array([east, north])


@njit(cache=True)
def whole_step(
    moves: Any,
    graph: Any,
    belief: Any,
    support: Any,
    share: float,
    epsilon: float,
    place: int,
    words: Any,
) -> Any:
    """(status, verdict, attempt, z, posterior, possible, mean): from the prior to the estimate.

    All of it is there with status READY and verdict ACCEPTED; otherwise nothing was released.
    """
    status, prior, possible, members, vertices = prepared(moves, graph, belief, support, share)
    if status != READY:
        return status, REJECTED, 0, np.zeros(2, dtype=np.int64), prior, possible, np.zeros(2)
    verdict, x, y, attempt = drawn(vertices, epsilon, words)
    if verdict != ACCEPTED:
        return status, verdict, attempt, np.zeros(2, dtype=np.int64), prior, possible, np.zeros(2)
    z, posterior, mean = finished(graph, prior, members, vertices, epsilon, place, x, y)
    return status, verdict, attempt, z, posterior, possible, mean
