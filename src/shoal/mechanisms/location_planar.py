"""Stages of planar K-norm streams through compiled code."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoal.core.value import Ints
from shoal.geometry.body import body_of
from shoal.mechanisms.location_stage import Places, Stage
from shoal.models.filter import Truths
from shoal.noise.emission import LatticeEmission
from shoal.noise.knorm import noise_of
from shoal.secrets.location import LocationSet
from shoal.secrets.policy_index import PolicyIndex
from shoal.secrets.policy_repair import Protected

NO_EDGES = np.empty((0, 2), dtype=np.int64)
NOBODY = np.empty(0, dtype=np.int64)
for _shared in (NO_EDGES, NOBODY):
    _shared.setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class PlanarStages:
    """What `stages_of` makes of a constraint, for one policy, one ε and K-norm noise."""

    graph: Ints
    epsilon: Fraction
    rate: float

    def stage(self, members: Truths) -> Stage | None:
        """The stage of C = members; None when `stages_of` must make it.

        It must when the hull is flat, or when somebody exposed is to be joined by area or error.
        """
        from shoal.loss.location_stage_kernels import stage_parts

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
        return Stage(
            members=members,
            answering=answering,
            protected=protected,
            law=LatticeEmission(points=answers, noise=noise),
            spread=spread,
            joined=joined,
        )


def planar_stages(
    places: Places, index: PolicyIndex, epsilon: Fraction, noise: str
) -> PlanarStages | None:
    """The compiled stages of a machine; None when its stages are not of that kind.

    They are when answers are planar, noise is K-norm, the policy is one clique of all states or
    edges without cliques, and a location set guards its members only.
    """
    edges, order, policy = index.edges, index.order, index.policy
    guards_all = isinstance(places, LocationSet) and places.everywhere
    if edges is None or order is None or noise != "k-norm" or guards_all:
        return None
    complete = len(edges.cliques) == 1 and len(edges.cliques[0]) == len(index.points)
    if (len(edges.cliques) and not complete) or (complete and len(edges.vectors)):
        return None
    if not complete and not len(edges.vectors):
        return None  # a policy without edges joins nobody: all is repair
    from shoal.loss.location_stage_kernels import bound

    graph = bound(
        [
            *(edges.points, order, edges.layers, edges.starts, edges.first, edges.second),
            *(edges.ranks, edges.vectors, edges.pointers, edges.others, edges.group_of),
            np.array([policy.repair == "nearest"]),
            NOBODY if policy.partners is None else policy.partners,
        ]
    )
    return PlanarStages(graph, epsilon, float(epsilon))
