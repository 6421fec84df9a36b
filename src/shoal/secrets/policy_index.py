"""One policy on one set of answers, asked again and again for what is left of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shoal.core.value import Ints
from shoal.geometry.body import Body, difference_body, symmetric_hull
from shoal.secrets.location import surrogates
from shoal.secrets.policy import PolicyGraph, Truths

if TYPE_CHECKING:
    from shoal.geometry.layers import HullIndex


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
            from shoal.geometry.layers import hull_index
            from shoal.geometry.nearest import lexicographic

            one_group = np.zeros(len(points), dtype=np.int64)
            self.edges = hull_index(points, policy.edges, policy.groups)
            self._pairs = hull_index(points, np.empty((0, 2), np.int64), one_group)
            self.order = lexicographic(points)

    def hull(self, members: Truths) -> Body:
        """K = conv{f(s) - f(s') : ss' an edge of G ∩ C}; the point {0} when there is none.

        Cliques go through the hull of their points. Xiao & Xiong 2016, Definition 5.1.
        """
        if self.edges is not None:
            return self.edges.body(members)
        return plain_hull(self.policy, self.points, members)

    def spread(self, members: Truths) -> Ints:
        """The vertices of conv{f(s) - f(s') : s, s' ∈ C}, joined or not."""
        if self._pairs is not None:
            return self._pairs.vertices(members)
        return difference_body(self.points[members]).vertices

    def alone(self, members: Truths) -> Ints:
        """The members that nothing joins to another member, in index order."""
        if self.edges is not None:
            return self.edges.alone(members)
        return self.policy.alone(members)

    def stand_ins(self, members: Truths) -> Ints:
        """The member that answers for each state: itself or the nearest, ties by index."""
        if members.all():
            return np.arange(len(members))
        if self.order is None or not members.any():
            return surrogates(self.points, members)
        from shoal.geometry.nearest import nearest_members

        return nearest_members(self.points, members, self.order)


def plain_hull(policy: PolicyGraph, points: Ints, members: Truths) -> Body:
    """The hull of G ∩ C straight from the edges, in any dimension."""
    kept = policy.edges[members[policy.edges[:, 0]] & members[policy.edges[:, 1]]]
    groups = np.where(members, policy.groups, -1)
    names = np.unique(groups[groups >= 0])
    if len(names) == 1 and not len(kept):
        return difference_body(points[groups >= 0])
    parts = [points[kept[:, 0]] - points[kept[:, 1]]]
    parts += [difference_body(points[groups == name]).vertices for name in names]
    return symmetric_hull(np.concatenate(parts))
