"""One step of a location stream before anything is drawn: all of it public.

A stage is made from the states still possible (or the δ-location set) and nothing else, so it can
be kept and used again whenever the same states are possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.geometry.body import Body
from shoal.mechanisms.location_graph import KeptGraphLaw
from shoal.noise.emission import EmissionLaw, LatticeEmission
from shoal.noise.graph_exponential import graph_exponential
from shoal.noise.knorm import LatticeKNorm
from shoal.noise.staircase import Staircase
from shoal.queries.measurement import Measurement
from shoal.secrets.location import LocationSet
from shoal.secrets.policy import PolicyGraph, Truths
from shoal.secrets.policy_index import PolicyIndex, plain_hull
from shoal.secrets.policy_repair import (
    Protected,
    cross_polytope,
    degree,
    join_all,
    protect,
    same,
)

Places = PolicyGraph | LocationSet
Law = Callable[[PolicyIndex, Truths, Ints, Protected, Fraction], EmissionLaw]
Protect = Callable[[PolicyIndex, Truths, Body | None], Protected]


class Planar(NamedTuple):
    """K-norm noise in the plane as compiled code takes it.

    The members, the answer of each state (of the member that answers for it), the vertices of the
    body, and the rates and axes of the proposal.
    """

    members: Truths
    answers: Ints
    vertices: Ints
    shares: Floats
    outwards: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Who is protected at a step, who answers for whom, and the noise.

    `members` is C, `answering[s]` the member that answers for state s, `law` the emission of every
    state (through the member that answers for it). `spread` = η bounds the log-ratio between any
    two states whatever; inf when noise on a line tells some apart, and then `tells` is True: the
    output itself rules states out. `joined` says whether the policy has an edge left inside C.
    `count` = |C|, `added` are the edges of the repair; `planar` is what compiled code draws from
    when the law adds K-norm noise that fills the plane, else None.
    """

    members: Truths
    answering: Ints
    protected: Protected
    law: EmissionLaw
    spread: float
    joined: bool
    count: int = field(init=False)
    added: list[list[int]] = field(init=False)
    planar: Planar | None = field(init=False)

    def __post_init__(self) -> None:
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

    def degree(self, points: Ints, state: int) -> int:
        """DoP: how many members no output tells from the member `state` by more than ε."""
        if isinstance(self.law, KeptGraphLaw):
            return self.law.near(state, self.members)
        return degree(points, self.members, self.protected.body, state)


@dataclass(frozen=True, slots=True)
class NoiseKind:
    """A kind of noise: how it repairs a policy, and its law among the members that are left.

    `protect(index, members, hull)` begins at `hull` when more than G ∩ C must hold;
    `law(index, members, answering, protected, epsilon)` emits for every state.
    """

    protect: Protect
    law: Law


def knorm_law(
    index: PolicyIndex, members: Truths, answering: Ints, protected: Protected, epsilon: Fraction
) -> EmissionLaw:
    """f(s) plus K-norm noise under the body in force."""
    noise = LatticeKNorm(body=protected.body, epsilon=epsilon)
    return LatticeEmission(points=index.points[answering], noise=noise)


def staircase_law(
    index: PolicyIndex, members: Truths, answering: Ints, protected: Protected, epsilon: Fraction
) -> EmissionLaw:
    """f(s) plus staircase noise under the body in force, of the width of least error."""
    noise = Staircase.best(protected.body, epsilon)
    return LatticeEmission(points=index.points[answering], noise=noise)


def graph_law(
    index: PolicyIndex, members: Truths, answering: Ints, protected: Protected, epsilon: Fraction
) -> EmissionLaw:
    """A member drawn by its distance from s in the repaired graph."""
    edges = np.concatenate([index.policy.edges_among(members), protected.added])
    return KeptGraphLaw(graph_exponential(index.points, members, answering, edges, epsilon))


NOISES: dict[str, NoiseKind] = {
    "k-norm": NoiseKind(lambda i, m, hull: protect(i, m, same, hull), knorm_law),
    "laplace": NoiseKind(lambda i, m, hull: protect(i, m, cross_polytope, hull), knorm_law),
    "staircase": NoiseKind(lambda i, m, hull: protect(i, m, same, hull), staircase_law),
    "graph-exponential": NoiseKind(lambda i, m, hull: join_all(i, m), graph_law),
}


def _planar(members: Truths, law: EmissionLaw) -> Planar | None:
    noise = law.noise if isinstance(law, LatticeEmission) else None
    if not isinstance(noise, LatticeKNorm) or not noise.body.ambient == noise.body.dimension == 2:
        return None
    proposal = noise.proposal
    return Planar(members, law.points, noise.body.flat, proposal.shares, proposal.outwards)


def policy_of(places: Places) -> PolicyGraph:
    """The graph of a policy or of a location set."""
    return places.policy if isinstance(places, LocationSet) else places


def stage_of(
    places: Places, index: PolicyIndex, members: Truths, epsilon: Fraction, noise: str
) -> Stage:
    """The stage of a constraint C = members: hull, repair, noise.

    Xiao & Xiong 2016, Algorithm 2, lines 3 to 5.
    """
    kind = NOISES[noise]
    answering = index.stand_ins(members)
    images = _images(places, index.points[answering])
    protected = kind.protect(index, members, images)
    law = kind.law(index, members, answering, protected, epsilon)
    return Stage(
        members=members,
        answering=answering,
        protected=protected,
        law=law,
        spread=spread_of(law, index, members),
        joined=len(index.alone(members)) < members.sum(),
    )


def spread_of(law: EmissionLaw, index: PolicyIndex, members: Truths) -> float:
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
    inside = np.flatnonzero(members)
    first, second = np.triu_indices(len(inside), 1)
    return float(law.law.log_ratios(np.stack([inside[first], inside[second]], axis=1)).max())


def _images(places: Places, points: Ints) -> Body | None:
    """The hull of the images of all edges under stand-ins, when they must hold as well."""
    if not isinstance(places, LocationSet) or not places.everywhere:
        return None
    return plain_hull(places.policy, points, np.ones(len(points), dtype=np.bool_))


def edge_loss(places: Places, query: Measurement, stage: Stage) -> float:
    """The largest log-ratio over every edge that must hold at a stage, from the policy itself.

    Every edge of G ∩ C and every edge added by the repair; with `everywhere` also the images of
    edges outside. The hull is made anew here and compared with the law as it is.
    """
    if stage.count < 2:
        return 0.0
    policy, law = policy_of(places), stage.law
    if isinstance(law, KeptGraphLaw):
        pairs = np.concatenate([policy.edges_among(stage.members), stage.protected.added])
        return float(law.law.log_ratios(pairs).max(initial=0.0))
    assert isinstance(law, LatticeEmission)
    hulls = [plain_hull(policy, query.points, stage.members).vertices]
    added = stage.protected.added
    hulls.append(query.points[added[:, 0]] - query.points[added[:, 1]])
    images = _images(places, query.points[stage.answering])
    hulls += [] if images is None else [images.vertices]
    return float(law.noise.log_ratios(np.concatenate(hulls)).max())
