"""Who is exposed under a constraint, and how to repair it.

Everything is decided on integers: answers are in lattice steps, `members` are the states of the
constraint C as booleans.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.core.value import Ints
from shoal.geometry.body import Body, symmetric_hull
from shoal.secrets.policy import PolicyGraph, Truths
from shoal.secrets.policy_index import PolicyIndex

Shape = Callable[[Body], Body]  # from the sensitivity hull to the body of the noise in force


class Protected(NamedTuple):
    """A repaired policy: the edges that were added, and the hulls without and with them.

    `body` is the body of the noise in force, which holds `hull`. `exposed` are the states that
    had nobody within the noise before the repair. With a single state left nothing is added and
    nothing is protected.
    """

    added: Ints
    before: Body
    hull: Body
    body: Body
    exposed: Ints


def same(hull: Body) -> Body:
    """The body of K-norm noise: the sensitivity hull itself."""
    return hull


def cross_polytope(hull: Body) -> Body:
    """The body of Laplace noise: {x : |x|_1 ≤ S}, S the l1 sensitivity of the hull.

    Xiao & Xiong 2016, Theorem 5.1.
    """
    return symmetric_hull(hull.l1_radius * np.eye(hull.ambient, dtype=np.int64))


def exposed_states(index: PolicyIndex, members: Truths, body: Body) -> Ints:
    """The members with degree of protection 1: no other member's answer lies in f(s) + K.

    A state with an edge has its neighbour inside K, so only states left alone are looked at.
    """
    alone = index.alone(members).tolist()
    kept = [s for s in alone if degree(index.points, members, body, s) == 1]
    return np.array(kept, dtype=np.int64)


def degree(points: Ints, members: Truths, body: Body, state: int) -> int:
    """DoP: how many members' answers lie in f(state) + K, boundary and the state itself included.

    Xiao & Xiong 2016, Definition 5.2, with the body of the noise in force.
    """
    return int(body.contains(points[members] - points[state]).sum())


def degrees(points: Ints, members: Truths, body: Body) -> dict[int, int]:
    """The degree of protection of every member."""
    return {int(s): degree(points, members, body, int(s)) for s in np.flatnonzero(members)}


def protect(
    index: PolicyIndex, members: Truths, shape: Shape = same, hull: Body | None = None
) -> Protected:
    """The policy under the constraint, repaired until nobody is exposed.

    Exposed states in index order, exposure checked again after every edge; each is joined to its
    partner, or to the nearest member, or to the one of least area (ties by error) or of least
    error; the last ties by index. `hull` is where to begin, when more than G ∩ C must hold.
    Xiao & Xiong 2016, Algorithms 1 and 3 (with |Σ det|/2).
    """
    points = index.points
    before = index.hull(members) if hull is None else hull
    hull, body = before, shape(before)
    exposed = exposed_states(index, members, body)
    added: list[tuple[int, int]] = []
    for state in exposed.tolist() if members.sum() > 1 else ():
        if degree(points, members, body, state) > 1:
            continue  # an edge added for another state protects this one too
        other = _partner(index.policy, points, members, hull, shape, state)
        hull = symmetric_hull(np.vstack([hull.vertices, points[state] - points[other]]))
        body = shape(hull)
        added.append((min(state, other), max(state, other)))
    edges = np.array(added, dtype=np.int64).reshape(-1, 2)
    return Protected(edges, before, hull, body, exposed)


def join_all(index: PolicyIndex, members: Truths) -> Protected:
    """The policy with an edge for every member that has none, whoever lies near.

    For outputs that follow the graph itself: nothing else protects a state that is left alone.
    In index order, skipping those that an added edge has joined already.
    """
    before = index.hull(members)
    hull, joined = before, set[int]()
    alone = index.alone(members)
    added: list[tuple[int, int]] = []
    for state in alone.tolist() if members.sum() > 1 else ():
        if state in joined:
            continue
        other = _partner(index.policy, index.points, members, hull, same, state)
        hull = symmetric_hull(np.vstack([hull.vertices, index.points[state] - index.points[other]]))
        added.append((min(state, other), max(state, other)))
        joined |= {state, other}
    edges = np.array(added, dtype=np.int64).reshape(-1, 2)
    return Protected(edges, before, hull, hull, alone)


def _partner(
    policy: PolicyGraph, points: Ints, members: Truths, hull: Body, shape: Shape, state: int
) -> int:
    """Whom to join an exposed state to."""
    if policy.partners is not None:
        wished = int(policy.partners[state])
        if wished >= 0 and members[wished]:
            return wished
    others = np.flatnonzero(members)
    others = others[others != state]
    moves = points[others] - points[state]
    if policy.repair == "nearest":
        return int(others[(moves**2).sum(axis=1).argmin()])  # argmin takes the lowest index
    area_first = policy.repair == "least-area"
    best: dict[tuple[int, ...], tuple[Fraction, Fraction]] = {}

    def cost(move: Ints) -> tuple[Fraction, Fraction]:
        key = max(tuple(move.tolist()), tuple((-move).tolist()))  # v and -v cost the same
        if key not in best:
            grown = shape(symmetric_hull(np.vstack([hull.vertices, move])))
            error = grown.mse(1)
            best[key] = (grown.content if area_first else error, error)
        return best[key]

    costs = [cost(move) for move in moves]
    return int(others[min(range(len(costs)), key=costs.__getitem__)])
