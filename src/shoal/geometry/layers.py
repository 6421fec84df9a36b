"""Sensitivity hulls of one graph under many constraints, each in microseconds.

A stream needs K = conv{±(f(s) - f(s')) : ss' an edge, s and s' still possible} at every step,
while the graph stays. Edges with the same difference are one group; groups are peeled into onion
layers. At a step the layers are scanned from the outside and the scan stops at the first layer of
which every group still has a living edge, because the hull of that layer holds all deeper ones.
Cliques need no edges: K = P - P with P the hull of the clique's living points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Ints
from shoal.geometry.body import Body, body_of, symmetric_hull
from shoal.geometry.span import POINT_LIMIT, check_size, integer_rows, largest

MOST_LAYERS = 64  # deeper groups share the last layer
FEW = 8  # the members' own edges are scanned when they are this many times fewer than all


@dataclass(frozen=True, slots=True, eq=False)
class HullIndex:
    """Answers `body(members)` for a fixed graph on points of the plane.

    Groups of edges are in layer order: group g has edges starts[g]..starts[g+1] of (first,
    second) and the difference vectors[ranks[g]]. The same edges by state are in pointers, others
    and group_of. cliques holds the states of each clique in lexicographic order of their points.
    """

    points: Ints
    layers: Ints
    starts: Ints
    first: Ints
    second: Ints
    ranks: Ints
    vectors: Ints
    pointers: Ints
    others: Ints
    group_of: Ints
    cliques: tuple[Ints, ...]

    def body(self, members: Bools) -> Body:
        """K of the edges among the members; the point {0} when there is none."""
        return body_of(self.vertices(members))

    def vertices(self, members: Bools) -> Ints:
        """The vertices of `body(members)`, in canonical order."""
        from shoal.geometry.kernels import hull_of_members

        parts = [
            np.asarray(hull_of_members(members, c, self.points))
            for c in self.cliques
            if members[c].any()
        ]
        if len(self.vectors):
            parts.append(self._edge_hull(members))
        if len(parts) == 1:
            return parts[0]
        joined = np.concatenate(parts) if parts else np.zeros((0, 2), dtype=np.int64)
        return symmetric_hull(joined).vertices

    def _edge_hull(self, members: Bools) -> Ints:
        from shoal.geometry import kernels

        alive = np.zeros(len(self.vectors), dtype=np.bool_)
        listed = np.flatnonzero(members)
        own = int((self.pointers[listed + 1] - self.pointers[listed]).sum())
        if own * FEW < len(self.others):
            looked = kernels.alive_by_adjacency(
                members, listed, self.pointers, self.others, self.group_of, alive
            )
        else:
            looked = kernels.alive_by_scan(
                members, self.layers, self.starts, self.first, self.second, alive
            )
        return np.asarray(kernels.hull_of_groups(alive, looked, self.ranks, self.vectors))

    def alone(self, members: Bools) -> Ints:
        """The members that no edge or clique joins to another member, in index order."""
        from shoal.geometry.kernels import without_neighbour

        joined = np.zeros(len(self.points), dtype=np.bool_)
        for clique in self.cliques:
            living = clique[members[clique]]
            joined[living] = len(living) > 1
        left = np.flatnonzero(members & ~joined)
        return np.asarray(without_neighbour(members, left, self.pointers, self.others))


def hull_index(points: npt.ArrayLike, edges: npt.ArrayLike, groups: npt.ArrayLike) -> HullIndex:
    """The index of a graph with these edges (m, 2) and a clique for each group number >= 0.

    points (k, 2) are integers of at most 2^28; groups (k,) is -1 for states in no clique.
    """
    rows = check_size(integer_rows(points, "points"), "points", POINT_LIMIT)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    numbers = np.asarray(groups, dtype=np.int64)
    order = np.lexsort((rows[:, 1], rows[:, 0]))
    cliques = tuple(order[numbers[order] == group] for group in np.unique(numbers[numbers >= 0]))
    vectors, group = _differences(rows, pairs)
    layer = _layers(vectors)
    ordered = np.lexsort((np.arange(len(vectors)), layer))  # groups in layer order
    place = np.empty(len(vectors), dtype=np.int64)
    place[ordered] = np.arange(len(vectors))
    pointers, others, group_of = _adjacency(len(rows), pairs, place[group])
    by_group = np.argsort(place[group], kind="stable")
    depth = int(layer.max(initial=-1)) + 1
    return HullIndex(
        points=rows,
        layers=np.searchsorted(layer[ordered], np.arange(depth + 1)),
        starts=np.searchsorted(place[group][by_group], np.arange(len(vectors) + 1)),
        first=pairs[by_group, 0].copy(),
        second=pairs[by_group, 1].copy(),
        ranks=ordered,
        vectors=vectors,
        pointers=pointers,
        others=others,
        group_of=group_of,
        cliques=cliques,
    )


def _differences(points: Ints, edges: Ints) -> tuple[Ints, Ints]:
    """Distinct differences of edges, of ±v the positive one, sorted; and the one of each edge."""
    moves = points[edges[:, 0]] - points[edges[:, 1]]
    negative = (moves[:, 0] < 0) | ((moves[:, 0] == 0) & (moves[:, 1] < 0))
    folded = np.where(negative[:, None], -moves, moves)
    keys, group = np.unique((folded[:, 0] << 31) + folded[:, 1] + 2**30, return_inverse=True)
    return np.stack([keys >> 31, (keys & (2**31 - 1)) - 2**30], axis=1), group.reshape(-1)


def _layers(vectors: Ints) -> Ints:
    """The onion layer of each vector in the cloud of all ±v, 0 the outermost."""
    from shoal.geometry.kernels import symmetric_outline

    layer = np.full(len(vectors), -1, dtype=np.int64)
    keys = (vectors[:, 0] << 31) + vectors[:, 1]
    for depth in range(MOST_LAYERS):
        left = np.flatnonzero(layer < 0)
        if not len(left):
            break
        outline = symmetric_outline(vectors[left])
        outer = np.isin(keys[left], (outline[:, 0] << 31) + outline[:, 1])
        layer[left[outer if depth + 1 < MOST_LAYERS else slice(None)]] = depth
    return layer


def _adjacency(size: int, edges: Ints, group: Ints) -> tuple[Ints, Ints, Ints]:
    """For each state its slice of `others`, the states it is joined to, and each edge's group."""
    ends = np.concatenate([edges[:, 0], edges[:, 1]])
    order = np.argsort(ends, kind="stable")
    pointers = np.searchsorted(ends[order], np.arange(size + 1))
    others = np.concatenate([edges[:, 1], edges[:, 0]])[order]
    return pointers, others, np.concatenate([group, group])[order]


# Who stands in for whom: the nearest member of a changing set of lattice points.


def lexicographic(points: Ints) -> Ints:
    """The order of planar points by first, then second coordinate, then index."""
    return np.lexsort((points[:, 1], points[:, 0]))


def nearest_members(points: Ints, members: npt.NDArray[np.bool_], order: Ints) -> Ints:
    """For each state its nearest member, itself if it is one; ties by index. In the plane.

    `order` is `lexicographic(points)`, made once for all sets; at least one state is a member.
    Coordinates at most 2^28, so squared distances stay below 2^60. About 0.1 µs a state.
    """
    from shoal.geometry.nearest_kernels import stand_ins

    if points.shape[1] != 2 or largest(points) > POINT_LIMIT or not members.any():
        raise ValueError("points must be planar, within 2^28, and have a member")
    return np.asarray(stand_ins(points, order, members))
