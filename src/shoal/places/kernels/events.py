"""Mass carried to the nearest places that have room; importing this imports numba."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True)
def all_carried(mass: Any, room: Any, first: Any, second: Any, growth: Any) -> bool:
    """Whether all mass finds room: carried from first[k] to second[k] it grows by growth[k] ≥ 1.

    Mass stays where it lies as far as there is room, then goes along the pairs in their order,
    which is by growth. Writes to both arrays. Rounding is the caller's: room is given with a
    margin of as many roundings as there are subtractions.
    """
    left = 0
    for place in range(len(mass)):
        kept = min(mass[place], room[place])
        mass[place] -= kept
        room[place] -= kept
        left += mass[place] > 0.0
    for k in range(len(first)):
        if left == 0:
            return True
        source, target = first[k], second[k]
        if mass[source] > 0.0 and room[target] > 0.0:
            needed = mass[source] * growth[k]
            if needed <= room[target]:
                room[target] -= needed
                mass[source] = 0.0
                left -= 1
            else:
                mass[source] -= room[target] / growth[k]
                room[target] = 0.0
                left -= mass[source] <= 0.0
    return left == 0
