"""One step of a location stream before anything is drawn: all of it public.

The policy is cut down to the states still possible (or to the δ-location set), repaired, and noise
is shaped by it. That noise is made from the constraint and nothing else, so it can be kept and used
again whenever the same states are possible. Everything is decided on integers: answers are in
lattice steps, `members` are the states of the constraint C as booleans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.geometry.body import (
    Body,
    HullIndex,
    body_of,
    difference_body,
    difference_vertices,
    hull_index,
    nearest_members,
    symmetric_hull,
)
from shoal.noise.graph_exponential import GraphExponential, graph_exponential
from shoal.noise.knorm import LatticeKNorm, Staircase, noise_of
from shoal.noise.primitives import EmissionLaw, LatticeEmission
from shoal.places.policy import LocationSet, PolicyGraph, surrogates
from shoal.places.queries import Measurement


class PolicyIndex:
    """Hulls, states left alone and stand-ins of a policy under any constraint C = members.

    In the plane answers come from a compiled index in microseconds, in other dimensions from the
    definitions; both are exact. `points` are the answers in lattice steps. `edges` is that index,
    None outside the plane.
    """

    def __init__(self, policy: PolicyGraph, points: Ints) -> None:
        """Keep the policy on these points, (states, labels); the hull's index is built in the plane
        only.
        """
        self.policy = policy
        self.points = points
        self.edges: HullIndex | None = None
        if points.shape[1] == 2:
            nearest = policy.repair == "nearest"
            self.edges = hull_index(
                points, policy.edges, policy.groups, by_nearest=nearest, partners=policy.partners
            )

    def hull(self, members: Bools) -> Body:
        """K = conv{f(s) - f(s') : ss' an edge of G ∩ C}; the point {0} when there is none.

        Cliques go through the hull of their points. Xiao & Xiong 2016, Definition 5.1.
        """
        if self.edges is not None:
            return self.edges.body(members)
        return plain_hull(self.policy, self.points, members)

    def spread(self, members: Bools) -> Ints:
        """The vertices of conv{f(s) - f(s') : s, s' ∈ C}, joined or not."""
        return difference_vertices(self.points[members])

    def alone(self, members: Bools) -> Ints:
        """The members that nothing joins to another member, in index order."""
        return self.policy.alone(members)

    def stand_ins(self, members: Bools) -> Ints:
        """The member that answers for each state: itself or the nearest, ties by index."""
        if members.all():
            return np.arange(len(members))
        if self.edges is None or not members.any():
            return surrogates(self.points, members)
        return nearest_members(self.points, members, self.edges.order)


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


Shape = Callable[[Body], Body]  # from the sensitivity hull to the body of the noise in force


class Protected(NamedTuple):
    """A repaired policy: the edges that were added, and the hulls without and with them.

    `body` is the body of the noise in force, which holds `hull`. `exposed` are the states that had
    no other state within the noise before the repair. With a single state left nothing is added and
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
    hulls, bodies = list(before), [_shape_hull(*pair) for pair in zip(asked, before, strict=True)]
    added: list[tuple[int, int]] = []

    def is_exposed(state: int) -> bool:
        """Return whether no other member protects the state in all answers together."""
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
            bodies[place] = _shape_hull(each, hulls[place])
        added.append((min(state, other), max(state, other)))
    edges = np.array(added, dtype=np.int64).reshape(-1, 2)
    left = np.array(exposed, dtype=np.int64)
    return [Protected(edges, *found, left) for found in zip(before, hulls, bodies, strict=True)]


def _shape_hull(each: StepQuestion, hull: Body) -> Body:
    return hull if each.shape is None else each.shape(hull)


def _partner(
    policy: PolicyGraph, points: Ints, members: Bools, hull: Body, shape: Shape, state: int
) -> int:
    """Whom to join an exposed state to."""
    if policy.partners is not None:
        preferred = int(policy.partners[state])
        if preferred >= 0 and members[preferred]:
            return preferred
    others = np.flatnonzero(members)
    others = others[others != state]
    moves = points[others] - points[state]
    if policy.repair == "nearest":
        return int(others[(moves**2).sum(axis=1).argmin()])  # argmin takes the lowest index
    area_first = policy.repair == "least-area"
    best: dict[tuple[int, ...], tuple[Fraction, Fraction]] = {}

    def cost(move: Ints) -> tuple[Fraction, Fraction]:
        """Return what joining by this move costs: (area or error, error) of the hull with it;
        kept.
        """
        key = max(tuple(move.tolist()), tuple((-move).tolist()))  # v and -v cost the same
        if key not in best:
            grown = shape(symmetric_hull(np.vstack([hull.vertices, move])))
            error = grown.mse(1)
            best[key] = (grown.content if area_first else error, error)
        return best[key]

    costs = [cost(move) for move in moves]
    return int(others[min(range(len(costs)), key=costs.__getitem__)])


# The noise of a constraint.


Places = PolicyGraph | LocationSet


@dataclass(frozen=True, slots=True, eq=False)
class StepNoise:
    """Who is protected at a step, who answers for whom, and the noise.

    `members` is C, `answering[s]` the member that answers for state s, `law` the emission of every
    state (through the member that answers for it). `spread` = η bounds the log-ratio between any
    two states whatever; inf when noise on a line tells some apart, and then `tells` is True: the
    output itself rules states out. `joined` says whether the policy has an edge left inside C.
    `eta` is η as a ledger charges it, None when outputs can tell states apart with certainty.
    `count` = |C|, `added` are the edges of the repair. `planar` is what compiled code draws from
    when the law adds K-norm noise that fills the plane, else None: the members, the answer of each
    state, the vertices of the body, the rates and axes of the proposal.
    """

    members: Bools
    answering: Ints
    protected: Protected
    law: EmissionLaw
    spread: float
    joined: bool
    eta: Fraction | None = field(init=False)
    count: int = field(init=False)
    added: list[list[int]] = field(init=False)
    planar: tuple[Any, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        eta = None if self.tells else Fraction(self.spread)
        object.__setattr__(self, "eta", eta)
        object.__setattr__(self, "count", int(np.count_nonzero(self.members)))
        object.__setattr__(self, "added", self.protected.added.tolist())
        object.__setattr__(self, "planar", _planar(self.members, self.law))

    @property
    def polygon(self) -> Ints | None:
        """The vertices of the body, when noise fills the plane and compiled code knows it."""
        return None if self.planar is None else self.planar[2]

    @property
    def tells(self) -> bool:
        """Whether outputs can rule states out."""
        return self.spread == np.inf

    def near(self, state: int) -> Bools:
        """Which states are members that no output tells from the member `state` by more than ε."""
        found = self.members.copy()
        if isinstance(self.law, GraphExponential):
            found[found] = self.law.near(state, self.members)
        else:
            points = self.law.points
            found[found] = self.protected.body.contains(points[found] - points[state])
        return found

    def degree(self, state: int) -> int:
        """DoP: how many they are, the state itself included."""
        return int(self.near(state).sum())


class Question(NamedTuple):
    """What is asked at a step: the policy on its answers, ε, and the name of the noise."""

    policy: PolicyIndex
    epsilon: Fraction
    noise: str


NOISES: dict[str, Shape | None] = {  # the shape of each kind's body; None: it follows the graph
    "k-norm": same,
    "laplace": cross_polytope,
    "staircase": same,
    "graph-exponential": None,
}


def _law(asked: Question, members: Bools, answering: Ints, protected: Protected) -> EmissionLaw:
    """f(s) plus noise under the body in force, or a member by its distance in the repaired graph.

    Staircase noise is of the width of least error.
    """
    index, epsilon, noise = asked
    if noise == "graph-exponential":
        edges = np.concatenate([index.policy.edges_among(members), protected.added])
        return graph_exponential(index.points, members, answering, edges, epsilon)
    body, points = protected.body, index.points[answering]
    if noise == "staircase":
        return LatticeEmission(points=points, noise=Staircase.best(body, epsilon))
    return LatticeEmission(points=points, noise=LatticeKNorm(body=body, epsilon=epsilon))


def _planar(members: Bools, law: EmissionLaw) -> tuple[Any, ...] | None:
    noise = law.noise if isinstance(law, LatticeEmission) else None
    if not isinstance(noise, LatticeKNorm) or not noise.body.ambient == noise.body.dimension == 2:
        return None
    proposal = noise.proposal
    return members, law.points, noise.body.flat, proposal.shares, proposal.outwards


def noises_of(places: Places, members: Bools, questions: Sequence[Question]) -> list[StepNoise]:
    """The stages of a constraint C = members, one for each question of a step: repair, noise.

    All questions get the same edges added, so that a state that protects another does so in all
    answers, and a state outside C is answered for by one member in all of them (the first
    question's nearest): two would give outputs that no member gives. Xiao & Xiong 2016,
    Algorithm 2, lines 3 to 5, and Theorem 7.1.
    """
    answers = questions[0].policy.stand_ins(members)
    asked = [
        StepQuestion(index, NOISES[noise], _images(places, index.points[answers]))
        for index, _, noise in questions
    ]
    found = []
    parts = zip(questions, protect_together(asked, members), strict=True)
    for question, protected in parts:
        law, index = _law(question, members, answers, protected), question.policy
        found.append(
            StepNoise(
                members=members,
                answering=answers,
                protected=protected,
                law=law,
                spread=spread_of(law, index, members),
                joined=len(index.alone(members)) < members.sum(),
            )
        )
    return found


def spread_of(law: EmissionLaw, index: PolicyIndex, members: Bools) -> float:
    """η: the largest log-ratio between any two members, rounded up.

    For noise that is added it grows with the norm of the shift, which is largest at a vertex of
    conv{f(s) - f(s')}; other laws are asked for every pair. Xiao & Xiong 2016, Theorem 6.3.
    """
    if members.sum() < 2:
        return 0.0
    if isinstance(law, LatticeEmission):
        corners = index.spread(members)
        # rounded up, a bound of 0 would be the smallest float
        return float(law.noise.log_ratios(corners).max()) if corners.any() else 0.0
    assert isinstance(law, GraphExponential)
    return law.spread()


def _images(places: Places, points: Ints) -> Body | None:
    """The hull of the images of all edges under stand-ins, when they must hold as well."""
    if not places.everywhere:
        return None
    return plain_hull(places.policy, points, np.ones(len(points), dtype=np.bool_))


def edge_loss(places: Places, query: Measurement, stage: StepNoise) -> float:
    """The largest log-ratio that must hold at a stage, from the policy itself.

    Over every edge of G ∩ C, every edge added by the repair and, of each member that the policy
    leaves alone, the least over the other members: somebody protects it. With `everywhere` also
    the images of edges outside. The hull is built again here and compared with the law as it is.
    """
    if stage.count < 2:
        return 0.0
    policy, law, added = places.policy, stage.law, stage.protected.added
    inside = np.flatnonzero(stage.members)
    alone = [
        np.stack([np.full(len(inside) - 1, state), inside[inside != state]], axis=1)
        for state in policy.alone(stage.members).tolist()
    ]
    if isinstance(law, GraphExponential):
        between = law.log_ratios
        edges = np.concatenate([policy.edges_among(stage.members), added])
        return max(
            _largest_ratio(between(edges)), *(float(between(pairs).min()) for pairs in alone), 0.0
        )
    assert isinstance(law, LatticeEmission)
    points, log_ratios = query.points, law.noise.log_ratios
    hulls = [plain_hull(policy, points, stage.members).vertices]
    hulls.append(points[added[:, 0]] - points[added[:, 1]])
    images = _images(places, points[stage.answering])
    hulls += [] if images is None else [images.vertices]
    least = [float(log_ratios(points[pairs[:, 0]] - points[pairs[:, 1]]).min()) for pairs in alone]
    return max(_largest_ratio(log_ratios(np.concatenate(hulls))), *least, 0.0)


def _largest_ratio(ratios: Floats) -> float:
    return float(ratios.max(initial=0.0))


# Stages of planar K-norm streams through compiled code.


@dataclass(frozen=True, slots=True, eq=False)
class PlanarNoises:
    """What `noises_of` makes of a constraint, for one policy, one ε and K-norm noise."""

    graph: Ints
    epsilon: Fraction

    def noise(self, members: Bools) -> StepNoise | None:
        """The noise of C = members; None when `noises_of` must make it.

        It must when the hull is flat, or when somebody exposed is to be joined by area or error.
        """
        from shoal.geometry.graph_kernels import stage_parts

        ready, vertices, before, exposed, added, answering, answers, joined, spread = stage_parts(
            self.graph, members, float(self.epsilon)
        )
        if not ready:
            return None
        body = body_of(vertices)
        noise = noise_of(body, self.epsilon)
        bare = body_of(before) if len(exposed) else body
        protected = Protected(added, bare, body, body, exposed)
        return StepNoise(
            members=members,
            answering=answering,
            protected=protected,
            law=LatticeEmission(points=answers, noise=noise),
            spread=spread,
            joined=joined,
        )


def planar_noises(
    places: Places, index: PolicyIndex, epsilon: Fraction, noise: str
) -> PlanarNoises | None:
    """The compiled stages of a machine; None when its stages are not of that kind.

    They are when answers are planar, noise is K-norm, the policy is one clique of all states or
    edges without cliques, and a location set guards its members only.
    """
    edges = index.edges
    if edges is None or noise != "k-norm" or places.everywhere:
        return None
    complete = len(edges.cliques) == 1 and len(edges.cliques[0]) == len(index.points)
    if complete == edges.joins or (edges.cliques and not complete):
        return None  # a policy without edges joins no states: all is repair
    return PlanarNoises(edges.graph, epsilon)
