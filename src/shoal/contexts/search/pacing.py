"""How the work of a search is shared out over the releases of a day.

What a forward pass costs depends on how many secrets limit the slots it crosses, which is known
only during the search. So the passes of all releases still to come are estimated again from time
to time, from what those before them cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shoal.contexts.search.beliefs import Arrays, Origin
from shoal.contexts.search.limits import LONG_DAY, Effort
from shoal.core.codec import Bools, Floats


@dataclass(frozen=True, slots=True)
class PassSettings:
    """Constants that share the forward passes of a search out over the releases of a day.

    Tuned with benchmarks/mask.py on random dense days and with benchmarks/mask_limits.py on days of
    one-minute slots.
    """

    most: int = 800  # for each segment; more gains next to nothing
    most_on_long_days: int = 25  # the rule handed on, and each pace twice
    least: tuple[int, ...] = (9, 3, 1)  # for each segment: the first of these that the work allows
    kept_for_start: int = 25  # everything depends on the start, the last origin
    start_when_late: int = 3  # passes of the start when the time is over
    open_slots: int = 40  # slots after which a past secret limits nothing, in the first estimate
    estimates: int = 24  # times that the passes still to come are estimated
    segment_work: float = 1e5  # multiplications that the rest of the work on a segment stands for
    look_work: int = 5  # multiplications per move and slot to evaluate a segment again
    necessary_share: float = 0.8  # share of the time for what must be done
    smallest_gain: float = 1e-6  # expected releases not worth another slot of search
    # the same on long days: 1e-4 releases the same within .1 % and takes two to six times as long
    smallest_gain_on_long_days: float = 0.1


PASSES = PassSettings()
LOOKS = 2.0  # at each segment of a finished plan: its value twice, and its promise

# ways to spend all at once that keep a share of each bound for later slots, and the slots after
# which half of that is given back: what is found after a long silence lives on it
RESERVES = ((0.1, 30.0), (0.05, 10.0), (0.2, 100.0), (0.3, 10.0))
PACES = 8 + len(RESERVES)  # ways to spend, those of `paces_of`


def look_costs(origins: Iterable[Origin], length: int, size: int) -> Floats:
    """Return roughly how many multiplications the evaluation of each segment takes."""
    slots = np.array([slot for slot, _ in origins], dtype=np.float64)
    return (length - slots) * PASSES.look_work * size**2 + PASSES.segment_work


def likeliest_states(prior: Floats, releasable: Bools, effort: Effort, days: int = 1) -> Bools:
    """Return the mask of the likeliest releasable states: as many as can be evaluated in time.

    Each costs its search and its look, timed together by `gauge`, and the looks at the finished
    plan. A state that is left out is never released, so that nothing follows it.
    """
    indices = np.argwhere(releasable)
    indices = indices[np.argsort(-prior[releasable], kind="stable")]
    origins = [(-1, 0), *((int(t), int(j)) for t, j in indices)]
    costs = days * np.cumsum(look_costs(origins, *releasable.shape))
    kept = int(
        np.searchsorted(
            costs * (1 + LOOKS), PASSES.necessary_share * effort.seconds() * effort.gauge.speed
        )
    )
    few = np.zeros_like(releasable)
    few[tuple(indices[: max(0, kept - 1)].T)] = True
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
        """Estimate what a pass after each origin costs; `shape` is (slots, states side by side)."""
        length, size = shape
        later = length - np.array([slot for slot, _ in origins], dtype=np.float64)
        self.effort = effort
        self.cost = later * (edges * np.minimum(later, PASSES.open_slots) / 2 + 40 * size)
        self.fixed = days * look_costs(origins, length, size // days)
        if effort.clock is not None:
            self.fixed *= 1 + LOOKS  # the looks at the finished plan take their part of the time
        self.weight = np.sqrt(prior)
        self.every = max(1, len(origins) // PASSES.estimates)
        self.passes = np.zeros(len(origins), dtype=np.int64)
        self.counted = self.modelled = 1.0
        self.timed: tuple[float, float] | None = None
        poor = effort.work < float((self.fixed + self.cost).sum())
        self.most = PASSES.most_on_long_days if length > LONG_DAY else PASSES.most
        self.floor = int(poor and effort.clock is None)

    def at(self, index: int) -> int:
        """Return how many passes the origin at `index` gets."""
        last = index == len(self.passes) - 1
        if self.effort.clock is not None and index % self.every == 0:
            self._time(self.effort.clock())
        if index % self.every == 0 or last:
            left = self.effort.left() - float(self.fixed[index:].sum())
            costs = self.cost[index:] * (self.counted / self.modelled)
            kept = 0.0 if last else PASSES.kept_for_start * float(costs[-1])
            given = affordable_passes(costs, self.weight[index:], left - kept, self.most)
            self.passes[index:] = np.maximum(given, self.floor)
            if last:
                least = PASSES.start_when_late if self.effort.late() else PASSES.kept_for_start
                self.passes[index] = max(self.passes[index], least)
        return int(self.passes[index])

    def _time(self, now: float) -> None:
        """Measure the speed of the work since the last call."""
        if self.timed is not None:
            work, moment = self.timed
            self.effort.gauge.note(self.effort.spent - work, now - moment)
        self.timed = (self.effort.spent, now)

    def note(self, index: int, spent: float) -> None:
        """Record what the origin at `index` cost."""
        self.counted += spent
        self.modelled += float(self.passes[index] * self.cost[index])
        looked = LOOKS if self.effort.clock is not None else 0.0
        self.effort.spend(spent + float(self.fixed[index]) / (1 + looked))


def affordable_passes(
    costs: Floats, weights: Floats, work: float, most: int = PASSES.most
) -> Floats:
    """Return the passes of each origin, `most` at most, when one costs `costs` and all `work`."""
    least = next((k for k in PASSES.least if k * costs.sum() <= work), 0)
    if work <= 0:
        return np.zeros(len(costs))

    def passes(rate: float) -> Floats:
        return np.minimum(np.maximum(np.floor(rate * weights), least), most)

    low, high = 1e-3, 1e9
    for _ in range(40):
        rate = np.sqrt(low * high)
        low, high = (rate, high) if passes(rate) @ costs <= work else (low, rate)
    return passes(low)


def paces_of(slots: int) -> Callable[[int], Floats]:
    """Return a function from an origin's slot to the paces (variants, slots) to try after it.

    All at once, half, evenly over what is left, and every other slot; all at once too where a
    reserve is kept (`reserves_of`).
    """
    t = np.arange(slots)
    left = np.maximum(slots - t, 1)

    @lru_cache(maxsize=1)
    def paces(origin: int) -> Floats:
        """Return, for each variant, the share of the room that each slot may spend."""
        table = [
            np.ones(slots),
            np.full(slots, 0.5),
            np.minimum(1.0, 2.0 / left),
            (t - origin) % 2 == 0,
            1.0 / left,
            np.full(slots, 0.2),
            (t - origin) % 2 == 1,
            (t - origin) % 3 == 0,
            *np.ones((len(RESERVES), slots)),
        ]
        return np.array(table, dtype=np.float64)

    return paces


def reserves_of(slots: int) -> Floats:
    """Return, for each pace, the share of a bound that is kept after k = 0, 1, … slots."""
    table = np.zeros((PACES, slots))
    for row, (share, half) in enumerate(RESERVES, PACES - len(RESERVES)):
        table[row] = share * 0.5 ** (np.arange(slots) / half)
    return table


class SegmentSearch:
    """Searches the segments of one day, or of several side by side, in the order of `origins`.

    `prior` (slots, contexts) says how likely each release is; likelier ones get more of `effort`.
    """

    def __init__(
        self, arrays: Arrays, origins: Sequence[Origin], prior: Floats, effort: Effort
    ) -> None:
        """Share `effort` out over the origins and start from the rule that spends all at once."""
        from shoal.contexts.search.segment_kernels import SpendingRule

        slots, size, _ = arrays.moves.shape
        edges = float((arrays.moves > 0).sum()) / slots
        self._arrays = arrays
        self._integer_weights = np.array([prior[o] if o[0] >= 0 else 1.0 for o in origins])
        self._pacing = Pacing(
            origins, self._integer_weights, (slots, size), edges, effort, arrays.copies
        )
        self._result, self._spent = np.ones((slots, size)), np.zeros(1)
        self._paces, self._reserves = paces_of(slots), reserves_of(slots)
        self._wins = np.zeros(PACES)
        first = self._reserves[PACES - len(RESERVES) if slots > LONG_DAY else 0]
        self._habits = [  # to begin with; each state hands its own to the slot before
            SpendingRule(
                np.ones(slots), np.ones((slots, size)), np.zeros((slots, size)), first.copy()
            )
            for _ in range(size // arrays.copies)
        ]
        self._stop = PASSES.smallest_gain_on_long_days if slots > LONG_DAY else PASSES.smallest_gain

    def segment(self, index: int, origin: Origin, value: Floats) -> Floats | None:
        """Return suppression probabilities of the slots after `origin`; None when no work is left.

        `value` (slots, states) is what each later release is worth. Good until the next call.
        """
        from shoal.contexts.search.segment_kernels import find_best_policy

        slot, state = origin
        passes = self._pacing.at(index)
        self._spent[0] = 0.0
        if not passes:
            return None
        stop = self._stop / max(float(self._integer_weights[index]), self._stop)
        paces, rule = (self._paces(slot), self._reserves), self._habits[state]
        kept = (self._wins, self._result, self._spent)
        find_best_policy(self._arrays, origin, value, *paces, passes, stop, index, rule, *kept)
        return self._result[slot + 1 :]

    def note(self, index: int) -> None:
        """Record what the segment cost, its evaluation included."""
        self._pacing.note(index, float(self._spent[0]))
