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
from shoal.geometry.body import difference_body
from shoal.noise.emission import EmissionLaw, LatticeEmission
from shoal.noise.knorm import LatticeKNorm
from shoal.queries.measurement import Measurement
from shoal.secrets.location import LocationSet, surrogates
from shoal.secrets.policy import PolicyGraph, Truths
from shoal.secrets.policy_repair import (
    Protected,
    Shape,
    cross_polytope,
    protect,
    same,
    sensitivity_hull,
)

Places = PolicyGraph | LocationSet
Law = Callable[[PolicyGraph, Ints, Truths, Protected, Fraction], EmissionLaw]


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
    policy: PolicyGraph, points: Ints, members: Truths, protected: Protected, epsilon: Fraction
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
    places: Places, query: Measurement, members: Truths, epsilon: Fraction, noise: str
) -> Stage:
    """The stage of a constraint C = members: hull, repair, noise.

    Xiao & Xiong 2016, Algorithm 2, lines 3 to 5.
    """
    policy, kind = policy_of(places), NOISES[noise]
    answering = surrogates(query.points, members)
    points = query.points[answering]
    everybody = np.ones(len(points), dtype=np.bool_)
    images = None
    if isinstance(places, LocationSet) and places.everywhere:
        images = sensitivity_hull(policy, points, everybody)
    protected = protect(policy, query.points, members, kind.shape, images)
    law = kind.law(policy, points, members, protected, epsilon)
    alone = policy.alone(members)
    return Stage(
        members=members,
        answering=answering,
        protected=protected,
        law=law,
        spread=spread_of(law, query.points, members),
        joined=len(alone) < members.sum(),
    )


def spread_of(law: EmissionLaw, points: Ints, members: Truths) -> float:
    """η: the largest log-ratio between any two members, rounded up.

    For noise that is added it grows with the norm of the shift, which is largest at a vertex of
    conv{f(s) - f(s')}; other laws are asked for every pair. Xiao & Xiong 2016, Theorem 6.3.
    """
    if members.sum() < 2:
        return 0.0
    if isinstance(law, LatticeEmission):
        return float(law.noise.log_ratios(difference_body(points[members]).vertices).max())
    inside = np.flatnonzero(members).tolist()
    return max(law.log_ratio(a, b) for k, a in enumerate(inside) for b in inside[k + 1 :])


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
    hulls = [sensitivity_hull(policy, query.points, stage.members).vertices]
    added = stage.protected.added
    hulls.append(query.points[added[:, 0]] - query.points[added[:, 1]])
    if isinstance(places, LocationSet) and places.everywhere:
        everybody = np.ones(len(query.points), dtype=np.bool_)
        hulls.append(sensitivity_hull(policy, query.points[stage.answering], everybody).vertices)
    return float(law.noise.log_ratios(np.concatenate(hulls)).max())
