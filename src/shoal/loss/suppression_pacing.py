"""How the work of a search is shared out over the releases of a day, as it goes.

What a forward pass costs depends on how many secrets limit the slots it crosses, which is seen only
on the way: the passes of all releases still to come are worked out anew from time to time, from
what those before them cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np

from shoal.core.value import Floats
from shoal.loss.suppression import Truths
from shoal.loss.suppression_effort import Effort

MOST_PASSES = 800  # per segment; more gains next to nothing
LEAST_PASSES = (9, 3, 1)  # each segment has, the first that the work allows
KEPT = 17  # passes kept for the last origin, "start", on which everything depends
AFTER_ALL = 3  # passes of it when the time is over
OPEN = 40  # slots after which a past secret limits nothing any more, to begin with
TIMES = 24  # that the passes still to come are worked out
CALL = 1e5  # multiplications that the rest of the work on a segment stands for
LOOK = 5  # multiplications per move and slot of looking at a segment again
ROOMY = 0.8  # of the time for what must be done
LOOKS = 1.5  # at each segment of a finished plan: its value, and its promise

PACES = 8  # ways to spend, those of `paces_of`
Origin = tuple[int, int]


def look_costs(origins: Iterable[Origin], length: int, size: int) -> Floats:
    """Multiplications, nearly, of looking at the segment after each of `origins`."""
    slots = np.array([slot for slot, _ in origins], dtype=np.float64)
    return (length - slots) * LOOK * size**2 + CALL


def likeliest(prior: Floats, shown: Truths, effort: Effort) -> Truths:
    """The likeliest of the states that may be shown: as many as can be looked at in time.

    Each costs its search, a pass as dear as a look, and the looks at the finished plan. A state
    that is left out is never shown, so that nothing follows it.
    """
    places = np.argwhere(shown)
    places = places[np.argsort(-prior[shown], kind="stable")]
    origins = [(-1, 0), *((int(t), int(j)) for t, j in places)]
    costs = np.cumsum(look_costs(origins, *shown.shape))
    kept = int(np.searchsorted(costs * (2 + LOOKS), ROOMY * effort.seconds() * effort.gauge.speed))
    few = np.zeros_like(shown)
    few[tuple(places[: max(0, kept - 1)].T)] = True
    return few


class Pacing:
    """Forward passes of each origin: λ·√prior, λ such that the work is spent.

    `prior` is that of the origins, in the order in which they are treated; `edges` is the number
    of moves a slot has. At least 9 passes each, or 3, or 1, or none, when the work left does not
    allow more. Where counted work does not even begin to suffice, each origin has one pass all the
    same: only a clock leaves them without. `days` is the number of chains side by side.
    """

    def __init__(
        self,
        origins: Sequence[Origin],
        prior: Floats,
        shape: tuple[int, int],
        edges: float,
        effort: Effort,
        days: int = 1,
    ) -> None:
        length, size = shape
        later = length - np.array([slot for slot, _ in origins], dtype=np.float64)
        self.effort = effort
        self.cost = later * (edges * np.minimum(later, OPEN) / 2 + 40 * size)
        self.fixed = days * look_costs(origins, length, size // days)
        self.weight = np.sqrt(prior)
        self.every = max(1, len(origins) // TIMES)
        self.passes = np.zeros(len(origins), dtype=np.int64)
        self.counted = self.modelled = 1.0
        self.timed: tuple[float, float] | None = None
        poor = effort.work < float((self.fixed + self.cost).sum())
        self.floor = int(poor and effort.clock is None)

    def at(self, place: int) -> int:
        """How many passes the origin at `place` gets."""
        last = place == len(self.passes) - 1
        if self.effort.clock is not None and place % self.every == 0:
            self._time(self.effort.clock())
        if place % self.every == 0 or last:
            left = self.effort.left() - float(self.fixed[place:].sum())
            costs = self.cost[place:] * (self.counted / self.modelled)
            kept = 0.0 if last else KEPT * float(costs[-1])
            given = affordable(costs, self.weight[place:], left - kept)
            self.passes[place:] = np.maximum(given, self.floor)
            if last:
                least = AFTER_ALL if self.effort.late() else KEPT
                self.passes[place] = max(self.passes[place], least)
        return int(self.passes[place])

    def _time(self, now: float) -> None:
        """How fast the last stretch went is how fast the next one is taken to be."""
        if self.timed is not None:
            work, moment = self.timed
            self.effort.gauge.note(self.effort.spent - work, now - moment)
        self.timed = (self.effort.spent, now)

    def note(self, place: int, spent: float) -> None:
        """What the origin at `place` cost."""
        self.counted += spent
        self.modelled += float(self.passes[place] * self.cost[place])
        self.effort.spend(spent + float(self.fixed[place]))


def affordable(costs: Floats, weights: Floats, work: float) -> Floats:
    """The passes of each origin when one costs `costs` and all may cost `work`."""
    least = next((k for k in LEAST_PASSES if k * costs.sum() <= work), 0)
    if work <= 0:
        return np.zeros(len(costs))

    def passes(rate: float) -> Floats:
        return np.clip(np.floor(rate * weights), least, MOST_PASSES)

    low, high = 1e-3, 1e9
    for _ in range(40):
        rate = np.sqrt(low * high)
        low, high = (rate, high) if passes(rate) @ costs <= work else (low, rate)
    return passes(low)


def habit_of(shape: tuple[int, ...]) -> tuple[Floats, Floats, Floats]:
    """Pace, caps and worth of waiting to begin with; each state hands them to the slot before."""
    return np.ones(shape[0]), np.ones(shape), np.zeros(shape)


def paces_of(slots: int) -> Callable[[int], Floats]:
    """How fast to spend after a release at each slot, worked out once a slot.

    All at once, half, evenly over what is left, and every other slot.
    """
    t = np.arange(slots)
    left = np.maximum(slots - t, 1)

    @lru_cache(maxsize=1)
    def paces(origin: int) -> Floats:
        table = [
            np.ones(slots),
            np.full(slots, 0.5),
            np.minimum(1.0, 2.0 / left),
            (t - origin) % 2 == 0,
            1.0 / left,
            np.full(slots, 0.2),
            (t - origin) % 2 == 1,
            (t - origin) % 3 == 0,
        ]
        return np.array(table, dtype=np.float64)

    return paces
