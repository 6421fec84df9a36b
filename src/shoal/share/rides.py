"""Rides as legs: which parts of a matched ride lead between a hidden place and a declared goal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shoal.share.history import Leg
from shoal.share.place import PermanentPlace


class Piece(NamedTuple):
    """A part of a ride from one index of its path to another, both included.

    `leg` is what must be cut and charged; None where the part leads between two goals and never
    touches a hidden zone, so that it may be shown whole.
    """

    first: int
    last: int
    leg: Leg | None


def pieces_of_ride(
    path: Sequence[int], goals: Sequence[int], places: Sequence[PermanentPlace]
) -> list[Piece]:
    """Return the parts of a ride that may be shown or cut, in order.

    `goals` are crossings that the rider declared for this ride, in the order of the ride. A ride
    that begins or ends at none of them begins or ends at a hidden place: the one whose zone it
    touched last or first, else the first place. What lies between two visits to hidden zones is
    left out. A ride that misses a declared goal has no parts.
    """
    visits, at = [], 0
    for goal in goals:
        later = [k for k in range(at, len(path)) if path[k] == goal]
        if not later:
            return []
        visits.append(later[0])
        at = later[0]
    zones = [
        next((n for n, place in enumerate(places) if crossing in place.hidden), -1)
        for crossing in path
    ]
    found: list[Piece] = []
    for number, stop in enumerate(visits):
        if number == 0 and stop > 0:
            found += _out(path, 0, stop, zones, started=False)
        following = visits[number + 1] if number + 1 < len(visits) else None
        if following is None:
            found += _home(path, stop, len(path) - 1, zones)
        elif any(zone >= 0 for zone in zones[stop : following + 1]):
            touched = [k for k in range(stop, following + 1) if zones[k] >= 0]
            found += _home(path, stop, touched[0], zones)
            found += _out(path, touched[-1], following, zones, started=True)
        elif following > stop:
            found.append(Piece(stop, following, None))
    return found


def _out(
    path: Sequence[int], first: int, stop: int, zones: Sequence[int], *, started: bool
) -> list[Piece]:
    """The leg from a hidden place to the goal at `stop`; it begins at the last touch of a zone."""
    touched = [k for k in range(first, stop) if zones[k] >= 0]
    begin = touched[-1] if touched else first
    place = zones[begin] if touched else 0
    if started and not touched:
        return []
    part = tuple(path[begin : stop + 1])
    return [Piece(begin, stop, Leg(part, path[stop], False, place))]


def _home(path: Sequence[int], stop: int, last: int, zones: Sequence[int]) -> list[Piece]:
    """The leg from the goal at `stop` to a hidden place; it ends at the first touch of a zone.

    It begins at the last visit to the goal before that: circles at the goal are left out.
    """
    touched = [k for k in range(stop + 1, last + 1) if zones[k] >= 0]
    end = touched[0] if touched else last
    place = zones[end] if touched else 0
    begin = max(k for k in range(stop, end + 1) if path[k] == path[stop])
    if begin == end:
        return []
    part = tuple(path[begin : end + 1])
    return [Piece(begin, end, Leg(part, path[stop], True, place))]
