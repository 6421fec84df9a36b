"""The nearest points of interest of a released track: how well they are found, and which it can be.

Xiao 2017, Section 3.5.3: a service is asked for the k nearest points of interest of the position it
is shown; what it misses of those of the true position is the price of privacy. What a stream
released is public, so everything here but the comparison with the true track is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import whole
from shoal.core.stream import Slot
from shoal.places.formats import on_map
from shoal.places.machine import machine_of
from shoal.places.map import EARTH_RADIUS_M
from shoal.places.stream import LocationOutput, LocationStream

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.core.task import Model
    from shoal.places.walk import SparseChain

CONFIDENCE = 0.95
SINGLE = 1e-5  # relative: a belief is stored in single precision
OFF_LATTICE = 0.02  # of a lattice step: stored degrees of an output are rounded to far less
OTHER_ESTIMATE_KM = 0.01  # between a stored estimate and the one that follows from the outputs
AT_ONCE = 2**22  # distances held at once


class PlaneMap(NamedTuple):
    """A plane map in km around a place; both degrees of the middle of the points of interest."""

    latitude: float
    longitude: float

    @classmethod
    def around(cls, degrees: Floats) -> PlaneMap:
        """Return the map around the middle of points, given as rows of latitude and longitude."""
        return cls(*(float(value) for value in (degrees.min(axis=0) + degrees.max(axis=0)) / 2))

    def km(self, degrees: Any) -> Floats:
        """Return points (…, 2) of latitude and longitude as km east and north."""
        moved = (np.asarray(degrees, np.float64) - (self.latitude, self.longitude)) * (
            np.pi / 180 * EARTH_RADIUS_M / 1000
        )
        east = moved[..., 1] * np.cos(np.radians(self.latitude))
        return np.stack([east, moved[..., 0]], axis=-1)


def k_nearest(places: Floats, points: Floats, k: int) -> Ints:
    """Return the k places nearest to each point, ties by index: (n, k) of (n, 2) points."""
    size, found = min(whole(k, "k"), len(places)), []
    for some in np.array_split(points, max(1, len(points) * len(places) // AT_ONCE)):
        squares = ((some[:, None, :] - places[None, :, :]) ** 2).sum(axis=2)
        found.append(np.argsort(squares, axis=1, kind="stable")[:, :size])
    return np.concatenate(found)


def recall(places: Floats, truth: Floats, shown: Floats, k: int) -> float:
    """Return the mean share of the k places nearest to `truth` among the k nearest to `shown`.

    As many are asked for as are wanted, so this is the precision too. Xiao 2017, Section 3.5.3.
    """
    right, found = k_nearest(places, truth, k), k_nearest(places, shown, k)
    same = (right[:, :, None] == found[:, None, :]).any(axis=2)
    return float(same.mean())


@dataclass(frozen=True, slots=True)
class NearestCells:
    """Which points of interest can be the nearest one somewhere in a state of a map.

    A place is left out only if one other place is nearer at every corner of the state. It is then
    nearer in all of it: cells are convex, and the points nearer to one of two places are a
    half-plane.
    """

    chain: SparseChain
    plane: PlaneMap
    places: Floats

    def of_state(self, state: int) -> Bools:
        """Return which places can be the nearest one in a state."""
        corners = self.plane.km(corners_of(self.chain, state))
        away = np.sqrt(((corners[:, None, :] - self.places[None, :, :]) ** 2).sum(axis=2))
        size = np.sqrt(((corners[:, None, :] - corners[None, :, :]) ** 2).sum(axis=2)).max()
        # nowhere in the cell is the nearest place farther than the least of the largest distances
        near = np.flatnonzero(away.min(axis=0) - size <= away.max(axis=0).min())
        beaten = (away[:, near, None] > away[:, None, near]).all(axis=0).any(axis=1)
        found = np.zeros(len(self.places), dtype=np.bool_)
        found[near[~beaten]] = True
        return found


def corners_of(chain: SparseChain, state: int) -> Floats:
    """Return the corners of a state's cell, of a road its ends: rows of latitude and longitude."""
    assert chain.grid is not None
    assert chain.cells is not None
    return chain.grid.corners_of(int(chain.cells[state]))


def beliefs(plan: Plan, outputs: Iterable[Sequence[int] | None]) -> Iterator[tuple[Floats, Any]]:
    """Yield after each output the belief in every state and the release; from outputs alone."""
    stream, motion = LocationStream.begin(plan), machine_of(plan).runtime.motion
    for z in outputs:
        price = stream.price(Slot(read=z is not None))
        if z is not None and price.law.noise is None:
            raise DataError(
                "the release shows a point where this plan shows none; give the spec or plan it "
                "was made with"
            )
        stream = stream.absorb(price, LocationOutput(None if z is None else tuple(z), True))
        belief = np.asarray(stream.state.belief, np.float64)
        yield motion.on_states(stream.state.time - 1, belief), stream.released()


def likely_states(belief: Floats, confidence: float) -> Ints:
    """Return the fewest states that hold this share of a belief, most probable first."""
    order = np.argsort(-belief, kind="stable")
    sums = np.cumsum(belief[order])
    count = int(np.searchsorted(sums, confidence * (1 + SINGLE) * sums[-1])) + 1
    return order[: min(count, int(np.count_nonzero(belief)))]


def nearest_sets(
    model: Model,
    believed: Iterable[Floats],
    places: Floats,
    *,
    confidence: float = CONFIDENCE,
) -> Bools:
    """Return for each step which places (n, 2 degrees) hold the true nearest one, together.

    With probability `confidence` or more under the beliefs of each step, as from `beliefs`, for
    somebody on the map. (steps, n) booleans. The fewest states that hold this share of the belief
    are taken, and every place that can be the nearest one somewhere in their cells.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; it must be between 0 and 1, both excluded")
    chain, plane = on_map(model), PlaneMap.around(places)
    cells, known = NearestCells(chain, plane, plane.km(places)), dict[int, Bools]()
    rows = []
    for belief in believed:
        found = np.zeros(len(places), dtype=np.bool_)
        for state in likely_states(belief, confidence).tolist():
            if state not in known:
                known[state] = cells.of_state(state)
            found |= known[state]
        rows.append(found)
    return np.array(rows)


def lattice_points(plan: Plan, degrees: Floats) -> Ints:
    """Return released points, rows of latitude and longitude, in steps of the plan's lattice.

    Refused when they lie on no point of it: another plan made them.
    """
    grid, query = on_map(plan.task.family[0]).grid, machine_of(plan).query
    assert grid is not None
    if query.unit != "km" or len(query.labels) != 2:
        raise InputError("the plan does not release coordinates of a map; nothing is near to them")
    origin = grid.to_degrees(np.zeros(2))
    matrix = np.stack([grid.to_degrees(unit) - origin for unit in np.eye(2)], axis=1)
    steps = np.linalg.solve(matrix, (degrees - origin).T).T / float(query.step)
    whole_steps = np.rint(steps)
    if (np.abs(steps - whole_steps) > OFF_LATTICE).any():
        raise DataError(
            "the released points are not on the lattice of this plan; give the spec or plan that "
            "the release was made with"
        )
    return np.asarray(whole_steps, np.int64)
