"""Quarters: public zones of about a dozen crossings, drawn where ways out of them merge early.

A fixed grid cuts the world into blocks. The crossings of a block are split into quarters by the map
alone: two crossings are alike when the ways from both to far crossings all round weigh the same, up
to a common factor. A quarter says nothing of who lives in it, because every home of the block gets
its zone from the same partition. It decides how much can be shown, never how much may be told.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.numbers import Number
from shoal.share.green import Green
from shoal.share.place import LEAST_CANDIDATES, PermanentPlace, refuse_small_zone, square_at
from shoal.share.roads import Roads, RoadStates, plane

BLOCK_DEGREES = 0.04  # height of a block: 4.4 km
RINGS_METRES = (3000.0, 6000.0)  # how far from the middle of a block ways are compared
DIRECTIONS = 12  # crossings compared on each ring
NEAR_RING_METRES = 800.0  # a ring's crossing further from its place is left out
LEAST_COMPARED = 6  # crossings all round; fewer say little of where ways merge
DIGITS = 6  # of logarithms: rounding errors of solvers must not move a quarter
MOVED_CUT = 3  # crossings by which a cut may move to where the gap is wider


def quarter_at(
    roads: Roads, latitude: float, longitude: float, *, within: Number | None = None
) -> PermanentPlace:
    """Return the quarter of the crossing nearest to a point, as a hidden place.

    Refuses blocks with fewer than 12 crossings, maps that do not reach 3 km beyond the block, and
    maps on which turns cost something.
    """
    south, west, height, width = square_at(latitude, longitude, BLOCK_DEGREES)
    lat, lon = roads.points.T
    inside = (lat >= south) & (lat < south + height) & (lon >= west) & (lon < west + width)
    block = np.flatnonzero(inside)
    about = f"block {south:.2f}N {west:.3f}E of {height:.2f} by {width:.3f} degrees"
    refuse_small_zone(len(block), about)
    apart = _differences(roads, block, south + height / 2, west + width / 2)
    parts = _split(apart, np.arange(len(block)), len(block) // LEAST_CANDIDATES)
    x, y = plane(np.vstack([roads.points[block], [[latitude, longitude]]]))
    home = int(np.argmin(np.hypot(x[:-1] - x[-1], y[:-1] - y[-1])))
    number, part = next((k, part) for k, part in enumerate(parts) if home in part)
    words = f"quarter {number + 1} of {len(parts)} of {about}"
    return PermanentPlace.of(block[part].tolist(), about=words, within=within)


def _differences(roads: Roads, block: Ints, latitude: float, longitude: float) -> Floats:
    """Return how differently the ways from each two crossings of a block weigh, in logarithms.

    The largest difference between two far crossings of the log-ratio of walks to them.
    """
    states = RoadStates(roads)
    if states.by_road:
        raise InputError("quarters need a map on which turns are free; hide the place's square")
    x, y = plane(np.vstack([roads.points, [[latitude, longitude]]]))
    angles = 2 * math.pi * np.arange(DIRECTIONS) / DIRECTIONS
    compared = set()
    for radius in RINGS_METRES:
        for angle in angles.tolist():
            east, north = x[-1] + radius * math.cos(angle), y[-1] + radius * math.sin(angle)
            far = np.hypot(x[:-1] - east, y[:-1] - north)
            if far.min() <= NEAR_RING_METRES:
                compared.add(int(far.argmin()))
    if len(compared) < LEAST_COMPARED:
        raise InputError(
            f"the map has roads at {len(compared)} of {2 * DIRECTIONS} places around the block; "
            "quarters need a map that reaches 3 km beyond it (or hide the place's square)"
        )
    turned = states.laws[0].matrix.T.tocsr()
    logs = np.empty((len(block), len(compared)))
    for column, crossing in enumerate(sorted(compared)):
        green, begun = Green(turned, np.array([crossing])), np.zeros((1, states.count))
        begun[0, crossing] = 1.0
        row = green.rows(begun).low[0, block]
        if not (row > 0).all():
            raise InputError("a crossing of the block cannot reach all roads; mend the map")
        logs[:, column] = np.log(row) - green.exponents[block] * math.log(2.0)
    logs = np.round(logs, DIGITS)
    return np.array([np.ptp(logs - one, axis=1) for one in logs])


def _split(apart: Floats, members: Ints, parts: int) -> list[Ints]:
    """Split crossings into parts of at least 12, at wide gaps between the two least alike."""
    if parts <= 1:
        return [np.sort(members)]
    own = apart[np.ix_(members, members)]
    first, second = np.unravel_index(int(own.argmax()), own.shape)
    nearer = own[first] - own[second]
    order = np.argsort(nearer, kind="stable")
    gaps = np.diff(nearer[order])
    best, least = (-1.0, 0, 0), max(1, parts // 3)
    for left in range(least, parts - least + 1):
        middle = round(len(members) * left / parts)
        lowest = max(LEAST_CANDIDATES * left, middle - MOVED_CUT)
        highest = min(len(members) - LEAST_CANDIDATES * (parts - left), middle + MOVED_CUT)
        for cut in range(lowest, highest + 1):
            best = max(best, (float(gaps[cut - 1]), left, cut))
    _, left, cut = best
    return [
        *_split(apart, members[order[:cut]], left),
        *_split(apart, members[order[cut:]], parts - left),
    ]
