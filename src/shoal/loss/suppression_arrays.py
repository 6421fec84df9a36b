"""A day as the compiled searches for segments take it: its arrays side by side, under names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import Day, Truths, future_beliefs


class Arrays(NamedTuple):
    """One day, or several without moves between them.

    `initial`, `moves`, `when`, `who` and `bound` are those of `Day`; `future` are its
    `future_beliefs`, and `shown` says which states may be shown. `copies` is 1, or the number of
    days side by side: states j, j + n, … are then one context. `ahead` is what `limiting` finds.
    """

    initial: Floats
    moves: Floats
    when: Ints
    who: Ints
    bound: Floats
    future: Floats
    shown: Truths
    copies: int
    ahead: Ints


def arrays_of(day: Day, shown: Truths) -> Arrays:
    """One day with nothing `ahead`, for whoever looks at past secrets only."""
    future, nothing = future_beliefs(day), np.zeros((0, 1), dtype=np.int64)
    return Arrays(day.initial, day.moves, day.when, day.who, day.bound, future, shown, 1, nothing)


def limiting(possible: Truths, when: Ints, bound: Floats, beliefs: Floats) -> Ints:
    """For each slot how many later secrets limit what it may show, and then which.

    Those that some possible state makes likelier than their bound. Whatever is shown, no rest of
    the others can exceed theirs.
    """
    slots, count = len(possible), len(when)
    table = np.zeros((slots, count + 1), dtype=np.int64)
    for t in range(slots):
        first = int(np.searchsorted(when, t, side="right"))
        over = beliefs[t][possible[t], first:] > bound[first:] * (1 - 1e-12)
        listed = first + np.flatnonzero(over.any(axis=0))
        table[t, 0], table[t, 1 : 1 + len(listed)] = len(listed), listed
    return table
