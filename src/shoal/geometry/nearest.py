"""Who stands in for whom: the nearest member of a changing set of lattice points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shoal.core.value import Ints
from shoal.geometry.integers import POINT_LIMIT, largest


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
