"""One step of a location stream before anything is drawn: all of it public.

A stage is made from the states still possible (or the δ-location set) and nothing else, so it can
be kept and used again whenever the same states are possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoal.core.value import Ints
from shoal.geometry.body import Body
from shoal.noise.emission import EmissionLaw, LatticeEmission
from shoal.noise.knorm import LatticeKNorm
from shoal.queries.measurement import Measurement
from shoal.secrets.location import LocationSet
from shoal.secrets.policy import PolicyGraph, Truths
from shoal.secrets.policy_index import PolicyIndex, plain_hull
from shoal.secrets.policy_repair import (
    Protected,
    Shape,
    cross_polytope,
    protect,
    same,
)

Places = PolicyGraph | LocationSet
Law = Callable[[PolicyIndex, Truths, Ints, Protected, Fraction], EmissionLaw]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Who is protected at a step, who answers for whom, and the noise.

    `members` is C, `answering[s]` the member that answers for state s, `law` the emission of every
    state (through the member that answers for it). `spread` = η bounds the log-ratio between any
    two states whatever; inf when noise on a line tells some apart, and then `tells` is True: the
    output itself rules states out. `joined` says whether the policy has an edge left inside C.
    """

    members: Truths
    answering: Ints
    protected: Protected
    law: EmissionLaw
    spread: float
    joined: bool

    @property
    def tells(self) -> bool:
        """Whether outputs can rule states out."""
        return self.spread == np.inf

    @property
    def count(self) -> int:
        """|C|."""
        return int(self.members.sum())


@dataclass(frozen=True, slots=True)
class NoiseKind:
    """A kind of noise: the body that it protects, from the sensitivity hull, and its law."""

    shape: Shape
    law: Law


def knorm_law(
    index: PolicyIndex, members: Truths, points: Ints, protected: Protected, epsilon: Fraction
) -> EmissionLaw:
    """f(s) plus K-norm noise under the body in force."""
    return LatticeEmission(points=points, noise=LatticeKNorm(body=protected.body, epsilon=epsilon))


NOISES: dict[str, NoiseKind] = {
    "k-norm": NoiseKind(same, knorm_law),
    "laplace": NoiseKind(cross_polytope, knorm_law),
}


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
    points = index.points[answering]
    protected = protect(index, members, kind.shape, _images(places, points))
    law = kind.law(index, members, points, protected, epsilon)
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
    inside = np.flatnonzero(members).tolist()
    return max(law.log_ratio(a, b) for k, a in enumerate(inside) for b in inside[k + 1 :])


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
    if not isinstance(law, LatticeEmission):
        pairs = np.concatenate([policy.edges_among(stage.members), stage.protected.added])
        return max((law.log_ratio(int(a), int(b)) for a, b in pairs), default=0.0)
    hulls = [plain_hull(policy, query.points, stage.members).vertices]
    added = stage.protected.added
    hulls.append(query.points[added[:, 0]] - query.points[added[:, 1]])
    images = _images(places, query.points[stage.answering])
    hulls += [] if images is None else [images.vertices]
    return float(law.noise.log_ratios(np.concatenate(hulls)).max())
