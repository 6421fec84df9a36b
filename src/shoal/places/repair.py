"""One policy on one set of answers, asked again and again for what is left of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.core.codec import Bools, Ints
from shoal.core.errors import InputError
from shoal.geometry.body import Body, difference_body, symmetric_hull
from shoal.places.policy import PolicyGraph, surrogates

if TYPE_CHECKING:
    from shoal.geometry.body import HullIndex


class PolicyIndex:
    """Hulls, states left alone and stand-ins of a policy under any constraint C = members.

    In the plane answers come from a compiled index in microseconds, in other dimensions from the
    definitions; both are exact. `points` are the answers in lattice steps. `edges` is that index
    and `order` sorts the points; None outside the plane.
    """

    def __init__(self, policy: PolicyGraph, points: Ints) -> None:
        self.policy = policy
        self.points = points
        self.edges: HullIndex | None = None
        self._pairs: HullIndex | None = None
        self.order: Ints | None = None
        if points.shape[1] == 2:
            from shoal.geometry.body import hull_index, lexicographic

            one_group = np.zeros(len(points), dtype=np.int64)
            self.edges = hull_index(points, policy.edges, policy.groups)
            self._pairs = hull_index(points, np.empty((0, 2), np.int64), one_group)
            self.order = lexicographic(points)

    def hull(self, members: Bools) -> Body:
        """K = conv{f(s) - f(s') : ss' an edge of G ∩ C}; the point {0} when there is none.

        Cliques go through the hull of their points. Xiao & Xiong 2016, Definition 5.1.
        """
        if self.edges is not None:
            return self.edges.body(members)
        return plain_hull(self.policy, self.points, members)

    def spread(self, members: Bools) -> Ints:
        """The vertices of conv{f(s) - f(s') : s, s' ∈ C}, joined or not."""
        if self._pairs is not None:
            return self._pairs.vertices(members)
        return difference_body(self.points[members]).vertices

    def alone(self, members: Bools) -> Ints:
        """The members that nothing joins to another member, in index order."""
        if self.edges is not None:
            return self.edges.alone(members)
        return self.policy.alone(members)

    def stand_ins(self, members: Bools) -> Ints:
        """The member that answers for each state: itself or the nearest, ties by index."""
        if members.all():
            return np.arange(len(members))
        if self.order is None or not members.any():
            return surrogates(self.points, members)
        from shoal.geometry.body import nearest_members

        return nearest_members(self.points, members, self.order)


def plain_hull(policy: PolicyGraph, points: Ints, members: Bools) -> Body:
    """The hull of G ∩ C straight from the edges, in any dimension."""
    kept = policy.edges[members[policy.edges[:, 0]] & members[policy.edges[:, 1]]]
    groups = np.where(members, policy.groups, -1)
    names = np.unique(groups[groups >= 0])
    if len(names) == 1 and not len(kept):
        return difference_body(points[groups >= 0])
    parts = [points[kept[:, 0]] - points[kept[:, 1]]]
    parts += [difference_body(points[groups == name]).vertices for name in names]
    return symmetric_hull(np.concatenate(parts))


# Who is exposed under a constraint, and how to repair it.
#
# Everything is decided on integers: answers are in lattice steps, `members` are the states of the
# constraint C as booleans.


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


def exposed_states(index: PolicyIndex, members: Bools, body: Body) -> Ints:
    """The members with degree of protection 1: no other member's answer lies in f(s) + K.

    A state with an edge has its neighbour inside K, so only states left alone are looked at.
    """
    alone = index.alone(members).tolist()
    kept = [s for s in alone if degree(index.points, members, body, s) == 1]
    return np.array(kept, dtype=np.int64)


def degree(points: Ints, members: Bools, body: Body, state: int) -> int:
    """DoP: how many members' answers lie in f(state) + K, boundary and the state itself included.

    Xiao & Xiong 2016, Definition 5.2, with the body of the noise in force.
    """
    return int(body.contains(points[members] - points[state]).sum())


def degrees(points: Ints, members: Bools, body: Body) -> dict[int, int]:
    """The degree of protection of every member."""
    return {int(s): degree(points, members, body, int(s)) for s in np.flatnonzero(members)}


class StepQuestion(NamedTuple):
    """One question of a step: the policy on its answers, and what kind of noise it gets.

    `shape` leads from the hull to the body of the noise; None when outputs follow the graph
    itself, so that only an edge protects. `hull` is where to begin, when more than G ∩ C must hold.
    """

    policy: PolicyIndex
    shape: Shape | None = same
    hull: Body | None = None


def protect_together(asked: Sequence[StepQuestion], members: Bools) -> list[Protected]:
    """The policy under the constraint, repaired by the same edges for every question of a step.

    A state is exposed when no other member protects it in all answers together: nobody is joined
    to it, and no single member lies within the noise of every question (where outputs follow a
    graph, nobody does without an edge). Exposed states in index order, exposure checked again
    after every edge; each is joined to its partner, or to the nearest member, or to the one of
    least area (ties by error) or of least error, measured on the first question; the last ties by
    index. Xiao & Xiong 2016, Algorithms 1 and 3 (with |Σ det|/2).
    """
    first = asked[0]
    before = [each.policy.hull(members) if each.hull is None else each.hull for each in asked]
    hulls, bodies = list(before), [_shaped(*pair) for pair in zip(asked, before, strict=True)]
    added: list[tuple[int, int]] = []

    def is_exposed(state: int) -> bool:
        if any(each.shape is None for each in asked):
            return all(state not in edge for edge in added)
        near = members.copy()
        for each, body in zip(asked, bodies, strict=True):
            points = each.policy.points
            near[near] = body.contains(points[near] - points[state])
        return int(near.sum()) == 1

    exposed = [state for state in first.policy.alone(members).tolist() if is_exposed(state)]
    for state in exposed if members.sum() > 1 else ():
        if not is_exposed(state):
            continue  # an edge added for another state protects this one too
        other = _partner(
            first.policy.policy, first.policy.points, members, hulls[0], first.shape or same, state
        )
        for place, each in enumerate(asked):
            move = each.policy.points[state] - each.policy.points[other]
            hulls[place] = symmetric_hull(np.vstack([hulls[place].vertices, move]))
            bodies[place] = _shaped(each, hulls[place])
        added.append((min(state, other), max(state, other)))
    edges = np.array(added, dtype=np.int64).reshape(-1, 2)
    left = np.array(exposed, dtype=np.int64)
    return [Protected(edges, *found, left) for found in zip(before, hulls, bodies, strict=True)]


def protect(
    index: PolicyIndex, members: Bools, shape: Shape = same, hull: Body | None = None
) -> Protected:
    """The repair for a single question whose noise has a body."""
    return protect_together([StepQuestion(index, shape, hull)], members)[0]


def join_all(index: PolicyIndex, members: Bools) -> Protected:
    """The repair for a single question whose outputs follow the graph itself.

    Every member that has no edge gets one, whoever lies near: nothing else protects it.
    """
    return protect_together([StepQuestion(index, None)], members)[0]


def _shaped(each: StepQuestion, hull: Body) -> Body:
    return hull if each.shape is None else each.shape(hull)


def _partner(
    policy: PolicyGraph, points: Ints, members: Bools, hull: Body, shape: Shape, state: int
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


# What a policy means for everybody else: non-neighbours, databases, adversaries who know more.


class KnownMore(NamedTuple):
    """What an adversary who believes only C^A possible can tell apart.

    `holds` says whether every state of C^A ∩ C keeps a state of C^A within ε, as Definition 4.4
    asks; `stripped` are those that do not. `factor` times ε bounds the log-ratio between any two
    states of C^A ∩ C; inf when noise on a line tells them apart.
    """

    holds: bool
    stripped: Ints
    factor: float


def constrained_factor(points: Ints, members: Bools, body: Body) -> Fraction | float:
    """max over s, s' ∈ C of |f(s) - f(s')|_K: times ε, the DP of the whole constraint.

    Attained at a vertex of conv{f(s) - f(s')}. inf when K is flat and two answers differ beyond
    its line: noise on parallel lines tells them apart with certainty.
    Xiao & Xiong 2016, Theorems 5.3 (1) and 6.3.
    """
    norms = body.norm(difference_body(points[members]).vertices)
    fractions = [norms.fraction(index) for index in range(len(norms.numerators))]
    if any(norm is None for norm in fractions):
        return math.inf
    return max(norm for norm in fractions if norm is not None)


def database_hull(
    answers: Ints, edges: Sequence[tuple[int, int]], null_edges: Sequence[int] = ()
) -> Body:
    """K of a policy on the records of a database, where "no record" may be a neighbour too.

    `answers[i]` is what record i adds to the query. An edge ij swaps two records (bounded); a
    state in `null_edges` is joined to the null node: its record may be there or not (unbounded).
    Xiao & Xiong 2016, Definition 3.4 and Example 5.3.
    """
    swaps = [answers[i] - answers[j] for i, j in edges]
    moves = swaps + [answers[i] for i in null_edges]
    width = answers.shape[1]
    return symmetric_hull(np.array(moves, dtype=np.int64).reshape(-1, width))


def unbounded_factors(answers: Ints, body: Body) -> tuple[Fraction | float, ...]:
    """|f(s_i)|_K for each record: times ε, how far adding or removing it is hidden.

    At most 1 where the policy protects its presence; inf where it does not at all.
    Xiao & Xiong 2016, Theorem 5.3 (2): {1, 0, 1, 2, 1, 2} in Example 11.1.
    """
    norms = body.norm(answers)
    fractions = (norms.fraction(index) for index in range(len(answers)))
    return tuple(math.inf if norm is None else norm for norm in fractions)


def against(
    policy: PolicyGraph, points: Ints, members: Bools, body: Body, believed: Bools
) -> KnownMore:
    """What the noise of a step, made for C = members, still hides from one who believes C^A.

    With C^A ⊂ C a state can lose its only protector, so the printed claim that nothing changes
    (Case I of Section 11.6) is false: in the running example C^A = {s3, s5} has norm 2. States of
    C^A outside C answer from a surrogate inside C and are not judged here.
    """
    if believed.shape != members.shape:
        raise InputError(f"believed has shape {believed.shape}; give one truth value per state")
    judged = np.flatnonzero(believed & members)
    joined = np.setdiff1d(judged, policy.alone(believed & members))
    stripped = [
        s
        for s in np.setdiff1d(judged, joined).tolist()
        if body.contains(points[judged] - points[s]).sum() == 1
    ]
    factor = constrained_factor(points, believed & members, body) if len(judged) else 0.0
    return KnownMore(not stripped, np.array(stripped, dtype=np.int64), float(factor))
