"""What a policy means, straight from the papers' definitions: who is exposed, who protects whom.

For everybody else too: non-neighbours, databases, adversaries who know more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Bools, Ints
from shoal.core.errors import InputError
from shoal.geometry.body import Body, difference_body, symmetric_hull
from shoal.places.policy import PolicyGraph
from shoal.places.step import (
    PolicyIndex,
    Protected,
    Shape,
    StepQuestion,
    protect_together,
    same,
)


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
