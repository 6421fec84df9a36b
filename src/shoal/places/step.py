"""One step of a location stream before anything is drawn: all of it public.

A stage is made from the states still possible (or the δ-location set) and nothing else, so it can
be kept and used again whenever the same states are possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.charge import Rng
from shoal.core.codec import Bools, Floats, Ints
from shoal.geometry.body import Body, body_of
from shoal.noise.graph_exponential import GraphExponential, graph_exponential
from shoal.noise.knorm import LatticeKNorm, noise_of
from shoal.noise.primitives import EmissionLaw, LatticeEmission
from shoal.noise.staircase import Staircase
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement
from shoal.places.repair import (
    PolicyIndex,
    Protected,
    Shape,
    StepQuestion,
    cross_polytope,
    plain_hull,
    protect_together,
    same,
)

Places = PolicyGraph | LocationSet
Law = Callable[[PolicyIndex, Bools, Ints, Protected, Fraction], EmissionLaw]


class Planar(NamedTuple):
    """K-norm noise in the plane as compiled code takes it.

    The members, the answer of each state (of the member that answers for it), the vertices of the
    body, and the rates and axes of the proposal.
    """

    members: Bools
    answers: Ints
    vertices: Ints
    shares: Floats
    outwards: Ints


@dataclass(frozen=True, slots=True, eq=False)
class StepNoise:
    """Who is protected at a step, who answers for whom, and the noise.

    `members` is C, `answering[s]` the member that answers for state s, `law` the emission of every
    state (through the member that answers for it). `spread` = η bounds the log-ratio between any
    two states whatever; inf when noise on a line tells some apart, and then `tells` is True: the
    output itself rules states out. `joined` says whether the policy has an edge left inside C.
    `eta` is η as a ledger charges it, None when outputs can tell states apart with certainty.
    `count` = |C|, `added` are the edges of the repair; `planar` is what compiled code draws from
    when the law adds K-norm noise that fills the plane, else None.
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
    planar: Planar | None = field(init=False)

    def __post_init__(self) -> None:
        eta = None if self.tells else Fraction(self.spread)
        object.__setattr__(self, "eta", eta)
        object.__setattr__(self, "count", int(np.count_nonzero(self.members)))
        object.__setattr__(self, "added", self.protected.added.tolist())
        object.__setattr__(self, "planar", _planar(self.members, self.law))

    @property
    def polygon(self) -> Ints | None:
        """The vertices of the body, when noise fills the plane and compiled code knows it."""
        return None if self.planar is None else self.planar.vertices

    @property
    def tells(self) -> bool:
        """Whether outputs can rule states out."""
        return self.spread == np.inf

    def near(self, state: int) -> Bools:
        """Which states are members that no output tells from the member `state` by more than ε."""
        found = self.members.copy()
        if isinstance(self.law, KeptGraphLaw):
            found[found] = self.law.near(state, self.members)
        else:
            points = self.law.points
            found[found] = self.protected.body.contains(points[found] - points[state])
        return found

    def degree(self, state: int) -> int:
        """DoP: how many they are, the state itself included."""
        return int(self.near(state).sum())


@dataclass(frozen=True, slots=True)
class NoiseKind:
    """A kind of noise: the shape of its body, and its law among the members that are left.

    `shape` is None when outputs follow the graph itself;
    `law(index, members, answering, protected, epsilon)` emits for every state.
    """

    shape: Shape | None
    law: Law


class Question(NamedTuple):
    """What is asked at a step: the policy on its answers, ε, and the name of the noise."""

    policy: PolicyIndex
    epsilon: Fraction
    noise: str


def knorm_law(
    index: PolicyIndex, members: Bools, answering: Ints, protected: Protected, epsilon: Fraction
) -> EmissionLaw:
    """f(s) plus K-norm noise under the body in force."""
    noise = LatticeKNorm(body=protected.body, epsilon=epsilon)
    return LatticeEmission(points=index.points[answering], noise=noise)


def staircase_law(
    index: PolicyIndex, members: Bools, answering: Ints, protected: Protected, epsilon: Fraction
) -> EmissionLaw:
    """f(s) plus staircase noise under the body in force, of the width of least error."""
    noise = Staircase.best(protected.body, epsilon)
    return LatticeEmission(points=index.points[answering], noise=noise)


def graph_law(
    index: PolicyIndex, members: Bools, answering: Ints, protected: Protected, epsilon: Fraction
) -> EmissionLaw:
    """A member drawn by its distance from s in the repaired graph."""
    edges = np.concatenate([index.policy.edges_among(members), protected.added])
    return KeptGraphLaw(graph_exponential(index.points, members, answering, edges, epsilon))


NOISES: dict[str, NoiseKind] = {
    "k-norm": NoiseKind(same, knorm_law),
    "laplace": NoiseKind(cross_polytope, knorm_law),
    "staircase": NoiseKind(same, staircase_law),
    "graph-exponential": NoiseKind(None, graph_law),
}


def _planar(members: Bools, law: EmissionLaw) -> Planar | None:
    noise = law.noise if isinstance(law, LatticeEmission) else None
    if not isinstance(noise, LatticeKNorm) or not noise.body.ambient == noise.body.dimension == 2:
        return None
    proposal = noise.proposal
    return Planar(members, law.points, noise.body.flat, proposal.shares, proposal.outwards)


def noises_of(places: Places, members: Bools, questions: Sequence[Question]) -> list[StepNoise]:
    """The stages of a constraint C = members, one for each question of a step: repair, noise.

    All questions get the same edges added, so that whoever protects a state does so in all
    answers, and a state outside C is answered for by one member in all of them (the first
    question's nearest): two would give outputs that no member gives. Xiao & Xiong 2016,
    Algorithm 2, lines 3 to 5, and Theorem 7.1.
    """
    answers = questions[0].policy.stand_ins(members)
    asked = [
        StepQuestion(index, NOISES[noise].shape, _images(places, index.points[answers]))
        for index, _, noise in questions
    ]
    found = []
    parts = zip(questions, protect_together(asked, members), strict=True)
    for (index, epsilon, noise), protected in parts:
        law = NOISES[noise].law(index, members, answers, protected, epsilon)
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
    assert isinstance(law, KeptGraphLaw)
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
    the images of edges outside. The hull is made anew here and compared with the law as it is.
    """
    if stage.count < 2:
        return 0.0
    policy, law, added = places.policy, stage.law, stage.protected.added
    inside = np.flatnonzero(stage.members)
    alone = [
        np.stack([np.full(len(inside) - 1, state), inside[inside != state]], axis=1)
        for state in policy.alone(stage.members).tolist()
    ]
    if isinstance(law, KeptGraphLaw):
        between = law.law.log_ratios
        edges = np.concatenate([policy.edges_among(stage.members), added])
        return max(_largest(between(edges)), *(float(between(pairs).min()) for pairs in alone), 0.0)
    assert isinstance(law, LatticeEmission)
    points, told = query.points, law.noise.log_ratios
    hulls = [plain_hull(policy, points, stage.members).vertices]
    hulls.append(points[added[:, 0]] - points[added[:, 1]])
    images = _images(places, points[stage.answering])
    hulls += [] if images is None else [images.vertices]
    least = [float(told(points[pairs[:, 0]] - points[pairs[:, 1]]).min()) for pairs in alone]
    return max(_largest(told(np.concatenate(hulls))), *least, 0.0)


def _largest(ratios: Floats) -> float:
    return float(ratios.max(initial=0.0))


# Stages of planar K-norm streams through compiled code.


NO_EDGES = np.empty((0, 2), dtype=np.int64)
NOBODY = np.empty(0, dtype=np.int64)
for _shared in (NO_EDGES, NOBODY):
    _shared.setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class PlanarNoises:
    """What `noises_of` makes of a constraint, for one policy, one ε and K-norm noise."""

    graph: Ints
    epsilon: Fraction
    rate: float

    def noise(self, members: Bools) -> StepNoise | None:
        """The noise of C = members; None when `noises_of` must make it.

        It must when the hull is flat, or when somebody exposed is to be joined by area or error.
        """
        from shoal.geometry.graph_kernels import stage_parts

        ready, vertices, before, exposed, added, answering, answers, joined, spread = stage_parts(
            self.graph, members, self.rate
        )
        if not ready:
            return None
        body = body_of(vertices)
        noise = noise_of(body, self.epsilon)
        protected = Protected(NO_EDGES, body, body, body, NOBODY)
        if len(exposed):
            protected = Protected(added, body_of(before), body, body, exposed)
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
    edges, order, policy = index.edges, index.order, index.policy
    if edges is None or order is None or noise != "k-norm" or places.everywhere:
        return None
    complete = len(edges.cliques) == 1 and len(edges.cliques[0]) == len(index.points)
    if (len(edges.cliques) and not complete) or (complete and len(edges.vectors)):
        return None
    if not complete and not len(edges.vectors):
        return None  # a policy without edges joins nobody: all is repair
    from shoal.geometry.graph_kernels import bound

    graph = bound(
        [
            *(edges.points, order, edges.layers, edges.starts, edges.first, edges.second),
            *(edges.ranks, edges.vectors, edges.pointers, edges.others, edges.group_of),
            np.array([policy.repair == "nearest"]),
            NOBODY if policy.partners is None else policy.partners,
        ]
    )
    return PlanarNoises(graph, epsilon, float(epsilon))


# A graph-exponential law made ready for many outputs of one stage.


class KeptGraphLaw:
    """The same law with its normalisers, and who is joined to whom, kept."""

    def __init__(self, law: GraphExponential) -> None:
        self.law = law
        self._logs = law.log_normalisers

    @property
    def points(self) -> Ints:
        """The answer of each state, in lattice units."""
        return self.law.points

    def draw(self, state: int, rng: Rng) -> tuple[int, ...]:
        """One output given the state, with exactly the stated law."""
        return self.law.draw(state, rng)

    def log_likelihood(self, output: Sequence[int]) -> Floats:
        """log q(output | s) of every state; -inf where no path leads to such an output."""
        law = self.law
        here = (law.points[law.nodes] == np.array(output)).all(axis=1) & (law.weights > 0)
        if not here.any():
            return np.full(len(law.place), -np.inf)
        # in logarithms: a state far away must not look impossible because e^-x underflows
        logs = np.log(law.weights[here]) - float(law.rate) * law.distances[:, here]
        return np.asarray((np.logaddexp.reduce(logs, axis=1) - self._logs)[law.place])

    def log_likelihoods(self) -> Floats:
        """log q(z | s), (states, outputs), of every output there is."""
        law = self.law
        drawn = np.flatnonzero(law.weights > 0)
        with np.errstate(divide="ignore"):
            logs = np.log(law.weights[drawn]) - float(law.rate) * law.distances[:, drawn]
        _, same = np.unique(law.points[law.nodes[drawn]], axis=0, return_inverse=True)
        if same.max(initial=-1) + 1 < len(drawn):  # several members answer alike
            groups = [logs[:, same.ravel() == k] for k in range(int(same.max()) + 1)]
            logs = np.stack([np.logaddexp.reduce(group, axis=1) for group in groups], axis=1)
        return np.asarray((logs - self._logs[:, None])[law.place])

    def spread(self) -> float:
        """The largest log-ratio between any two members, as `log_ratios` has it; inf apart."""
        law = self.law
        ratios = float(law.rate) * law.distances * (1 + 2.0**-50)
        ratios += np.abs(self._logs[:, None] - self._logs[None, :])
        np.fill_diagonal(ratios, 0.0)
        return float(ratios.max()) + 2 * law.slack

    def log_ratio(self, first: int, second: int) -> float:
        """An upper bound on sup over outputs of |log q(z|first) - log q(z|second)|."""
        return self.law.log_ratio(first, second)

    def expected_error(self, prior: Floats) -> float:
        """√E|z - f(s)|² of the raw output under the prior, in lattice units."""
        return self.law.expected_error(prior)

    def near(self, state: int, members: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """For each member whether it is the state itself or joined to it: those ε speaks about."""
        law = self.law
        row = law.distances[law.place[state]]
        return np.asarray(row[law.place[np.flatnonzero(members)]] <= 1)
