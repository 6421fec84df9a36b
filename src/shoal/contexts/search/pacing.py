"""How much a search may still do: multiplications, counted, and seconds, if there is a clock.

Counted work makes equal calls give equal answers on every machine. A clock, when one is given, ends
a search that the machine is too slow or too busy to finish in time: whoever searches asks `left`
before every unit of work and ends with what was found so far.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TypeVar

import numpy as np

from shoal.contexts.search.beliefs import Arrays, Origin
from shoal.core.codec import Bools, Floats
from shoal.core.errors import Refused
from shoal.core.numbers import Number, positive
from shoal.core.progress import time_left

Clock = Callable[[], float]  # seconds since some moment, never going back

SPEED = 1e9  # multiplications a nominal second stands for; a machine of 2024 does somewhat more


class SearchEnded(Exception):
    """A search that the clock ended before there was anything to hand out."""


class Gauge:
    """How many multiplications a second this machine does now, as far as was seen."""

    def __init__(self) -> None:
        self.speed = SPEED
        self.seen = False

    def note(self, work: float, seconds: float) -> None:
        """Work that was timed: the geometric mean of what was known and of this.

        One pause of the machine does not count for too much that way. What is quicker than SPEED
        is left over, not planned with.
        """
        if work <= 0:
            return
        speed = min(SPEED, work / seconds) if seconds > 0 else SPEED
        self.speed = math.sqrt(self.speed * speed) if self.seen else speed
        self.seen = True


class Effort:
    """Work that may be spent, until a moment of `clock` that must not be passed."""

    def __init__(
        self,
        work: float = math.inf,
        *,
        clock: Clock | None = None,
        ends: float = math.inf,
        gauge: Gauge | None = None,
    ) -> None:
        self.work, self.clock, self.ends = work, clock, ends
        self.gauge = Gauge() if gauge is None else gauge
        self.spent = 0.0
        self.kept = 0.0  # work to be done after the search, in the same time
        self.reserved = 0.0  # seconds, as measured, that looking at what was found so far takes

    @classmethod
    def of(cls, given: float | Effort) -> Effort:
        """The effort itself, or one of so many multiplications without a clock."""
        return given if isinstance(given, Effort) else cls(given)

    def spend(self, work: float) -> None:
        """Counts what was done."""
        self.spent += work

    def left(self) -> float:
        """Multiplications that may still be spent, also in the seconds left at this speed."""
        counted = self.work - self.spent
        return counted if self.clock is None else min(counted, self.seconds() * self.gauge.speed)

    def over(self) -> bool:
        """Whether nothing more may be done."""
        return self.left() <= 0

    def seconds(self) -> float:
        """Seconds left; infinite without a clock."""
        if self.clock is None:
            return math.inf
        return max(0.0, self.ends - self.kept / self.gauge.speed - self.reserved - self.clock())

    def late(self) -> bool:
        """Whether the clock, and not the count of work, ended it."""
        return self.seconds() <= 0

    def on_time(self) -> None:
        """Raises SearchEnded once the clock has ended it."""
        if self.late():
            raise SearchEnded

    def part(self, share: float) -> Effort:
        """A share of what is left, work and seconds. What it spends is not counted here."""
        work = max(0.0, self.work - self.spent) * share
        if self.clock is None:
            return Effort(work)
        now = self.clock()
        ends = now + share * max(0.0, self.ends - self.kept / self.gauge.speed - now)
        return Effort(work, clock=self.clock, ends=ends, gauge=self.gauge)

    def without(self, work: float) -> Effort:
        """All that is left, but for the seconds that `work` takes afterwards, at the speed then."""
        rest = Effort(self.work - self.spent, clock=self.clock, ends=self.ends, gauge=self.gauge)
        rest.kept = self.kept + work
        return rest


# How the work of a search is shared out over the releases of a day, as it goes.
#
# What a forward pass costs depends on how many secrets limit the slots it crosses, which is seen
# only on the way: the passes of all releases still to come are worked out anew from time to time,
# from what those before them cost.


MOST_PASSES = 800  # per segment; more gains next to nothing
MOST_PASSES_ON_LONG_DAYS = 25  # its habit and each way to spend twice
LEAST_PASSES = (9, 3, 1)  # each segment has, the first that the work allows
PASSES_KEPT = 25  # passes kept for the last origin, "start", on which everything depends
AFTER_ALL = 3  # passes of it when the time is over
OPEN = 40  # slots after which a past secret limits nothing any more, to begin with
TIMES = 24  # that the passes still to come are worked out
CALL = 1e5  # multiplications that the rest of the work on a segment stands for
LOOK_WORK = 5  # multiplications per move and slot of looking at a segment again
ROOMY = 0.8  # of the time for what must be done
LOOKS = 2.0  # at each segment of a finished plan: its value twice, and its promise

# ways to spend all at once that keep a share of each bound for later slots, and the slots after
# which half of that is given back: what is found after a long silence lives on it
RESERVES = ((0.1, 30.0), (0.05, 10.0), (0.2, 100.0), (0.3, 10.0))
PACES = 8 + len(RESERVES)  # ways to spend, those of `paces_of`


def look_costs(origins: Iterable[Origin], length: int, size: int) -> Floats:
    """Multiplications, nearly, of looking at the segment after each of `origins`."""
    slots = np.array([slot for slot, _ in origins], dtype=np.float64)
    return (length - slots) * LOOK_WORK * size**2 + CALL


def likeliest_states(prior: Floats, releasable: Bools, effort: Effort, days: int = 1) -> Bools:
    """The likeliest of the states that may be shown: as many as can be looked at in time.

    Each costs its search and its look, timed together by `gauge`, and the looks at the finished
    plan. A state that is left out is never shown, so that nothing follows it.
    """
    indices = np.argwhere(releasable)
    indices = indices[np.argsort(-prior[releasable], kind="stable")]
    origins = [(-1, 0), *((int(t), int(j)) for t, j in indices)]
    costs = days * np.cumsum(look_costs(origins, *releasable.shape))
    kept = int(np.searchsorted(costs * (1 + LOOKS), ROOMY * effort.seconds() * effort.gauge.speed))
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
        length, size = shape
        later = length - np.array([slot for slot, _ in origins], dtype=np.float64)
        self.effort = effort
        self.cost = later * (edges * np.minimum(later, OPEN) / 2 + 40 * size)
        self.fixed = days * look_costs(origins, length, size // days)
        if effort.clock is not None:
            self.fixed *= 1 + LOOKS  # the looks at the finished plan take their part of the time
        self.weight = np.sqrt(prior)
        self.every = max(1, len(origins) // TIMES)
        self.passes = np.zeros(len(origins), dtype=np.int64)
        self.counted = self.modelled = 1.0
        self.timed: tuple[float, float] | None = None
        poor = effort.work < float((self.fixed + self.cost).sum())
        self.most = MOST_PASSES_ON_LONG_DAYS if length > LONG_DAY else MOST_PASSES
        self.floor = int(poor and effort.clock is None)

    def at(self, index: int) -> int:
        """How many passes the origin at `place` gets."""
        last = index == len(self.passes) - 1
        if self.effort.clock is not None and index % self.every == 0:
            self._time(self.effort.clock())
        if index % self.every == 0 or last:
            left = self.effort.left() - float(self.fixed[index:].sum())
            costs = self.cost[index:] * (self.counted / self.modelled)
            kept = 0.0 if last else PASSES_KEPT * float(costs[-1])
            given = affordable_passes(costs, self.weight[index:], left - kept, self.most)
            self.passes[index:] = np.maximum(given, self.floor)
            if last:
                least = AFTER_ALL if self.effort.late() else PASSES_KEPT
                self.passes[index] = max(self.passes[index], least)
        return int(self.passes[index])

    def _time(self, now: float) -> None:
        """How fast the last stretch went is how fast the next one is taken to be."""
        if self.timed is not None:
            work, moment = self.timed
            self.effort.gauge.note(self.effort.spent - work, now - moment)
        self.timed = (self.effort.spent, now)

    def note(self, index: int, spent: float) -> None:
        """What the origin at `place` cost."""
        self.counted += spent
        self.modelled += float(self.passes[index] * self.cost[index])
        looked = LOOKS if self.effort.clock is not None else 0.0
        self.effort.spend(spent + float(self.fixed[index]) / (1 + looked))


def affordable_passes(
    costs: Floats, weights: Floats, work: float, most: int = MOST_PASSES
) -> Floats:
    """The passes of each origin, `most` at the most, when one costs `costs` and all `work`."""
    least = next((k for k in LEAST_PASSES if k * costs.sum() <= work), 0)
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
    """How fast to spend after a release at each slot, worked out once a slot.

    All at once, half, evenly over what is left, and every other slot; all at once too where a
    reserve is kept (`reserves_of`).
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


RELEASES_NOT_WORTH_TIME = 1e-6  # expected releases not worth another slot of search
# the same of long days: 1e-4 shows the same within .1 % and takes two to six times as long
RELEASES_LOST_ON_LONG_DAYS = 0.1
LONG_DAY = 288  # slots, of five minutes


class SegmentSearch:
    """Segments of one day, or of several side by side, in the order of `origins`.

    `prior` (slots, contexts) says how likely each release is; likelier ones get more of `effort`.
    """

    def __init__(
        self, arrays: Arrays, origins: Sequence[Origin], prior: Floats, effort: Effort
    ) -> None:
        from shoal.contexts.search.segment_kernels import SpendingRule

        slots, size, _ = arrays.moves.shape
        edges = float((arrays.moves > 0).sum()) / slots
        self._arrays = arrays
        self._weights = np.array([prior[o] if o[0] >= 0 else 1.0 for o in origins])
        self._pacing = Pacing(origins, self._weights, (slots, size), edges, effort, arrays.copies)
        self._found, self._spent = np.ones((slots, size)), np.zeros(1)
        self._paces, self._reserves = paces_of(slots), reserves_of(slots)
        self._wins = np.zeros(PACES)
        first = self._reserves[PACES - len(RESERVES) if slots > LONG_DAY else 0]
        self._habits = [  # to begin with; each state hands its own to the slot before
            SpendingRule(
                np.ones(slots), np.ones((slots, size)), np.zeros((slots, size)), first.copy()
            )
            for _ in range(size // arrays.copies)
        ]
        self._stop = RELEASES_LOST_ON_LONG_DAYS if slots > LONG_DAY else RELEASES_NOT_WORTH_TIME

    def segment(self, index: int, origin: Origin, value: Floats) -> Floats | None:
        """Probabilities to hide, for the slots after `origin`; None when no work is left for it.

        `value` (slots, states) is what each later release is worth. Good until the next call.
        """
        from shoal.contexts.search.segment_kernels import find_best_policy

        slot, state = origin
        passes = self._pacing.at(index)
        self._spent[0] = 0.0
        if not passes:
            return None
        stop = self._stop / max(float(self._weights[index]), self._stop)
        paces, rule = (self._paces(slot), self._reserves), self._habits[state]
        kept = (self._wins, self._found, self._spent)
        find_best_policy(self._arrays, origin, value, *paces, passes, stop, index, rule, *kept)
        return self._found[slot + 1 :]

    def note(self, index: int) -> None:
        """Tells what the segment cost, looks at it included."""
        self._pacing.note(index, float(self._spent[0]))


# How long the checks of context streams may search, and what the checks of one call share.
#
# Without a limit work is counted and nothing else, so that equal calls give equal plans on every
# machine. With one, the clock ends what the machine did not manage: the plan is then what was
# found so far, and may differ from call to call. However it ends, a plan is private.


SECONDS = 20.0  # of search at the nominal speed, unless a time limit is set
# the proved checks "best" tries, quickest first, and the share of a time limit each may take
WORK_SHARES = {
    "mask-simulatable": 0.05,
    "mask-probabilistic": 0.1,
    "mask-hybrid": 0.0,
    "mask-adaptive": 0.5,
    "mask-optimal": 0.35,
}
LEAST_LEFT = 1e-3  # seconds: a limit of 0 would be none
READY = 0.9  # of its time a check may use; the rest is for looking at its plan once more

Found = TypeVar("Found")


class SearchBudget:
    """What one call may use: seconds, of the clock too if there is one; and what it found."""

    def __init__(
        self, seconds: float, check: str, clock: Clock | None, among: Sequence[str] | None = None
    ) -> None:
        self.seconds, self.check, self.clock = seconds, check, clock
        self.among = list(WORK_SHARES if among is None else among)
        self.ends = clock() + seconds if clock is not None else 0.0
        self.found: dict[object, object] = {}
        self.gauge = Gauge()
        self.turns = 0

    def effort(self, check: str) -> Effort:
        """What one check may spend: all for the one that is named, else its share of what is left.

        Work is a share of the limit; seconds are a share of those that are left, so that nothing is
        lost when a check needs less than its share.
        """
        names = [name for name in self.among if name in WORK_SHARES]
        whole = sum(WORK_SHARES[name] for name in names) or 1.0
        share = 1.0 if check == self.check else WORK_SHARES.get(check, 0.0) / whole
        work = self.seconds * share * SPEED
        if self.clock is None:
            return Effort(work)
        later = names[names.index(check) :] if check in names else []
        rest = sum(WORK_SHARES[name] for name in later) / whole or 1.0
        now = self.clock()
        part = 1.0 if check == self.check else share / rest
        ends = now + READY * part * max(0.0, self.ends - now)
        return Effort(work, clock=self.clock, ends=ends, gauge=self.gauge)


_limit: ContextVar[SearchBudget] = ContextVar("mask time limit")


class SlowSearch(UserWarning):
    """A search that is about to take longer than WORTH_A_WARNING seconds."""


WORTH_A_WARNING = 30.0  # seconds
TYPICAL_SPEED = 5e8  # multiplications a second of one core in the passes of a long day


def warn_if_slow(slots: int, size: int, effort: Effort) -> None:
    """Warn before the search for a long day that may take more than WORTH_A_WARNING seconds."""
    if slots <= LONG_DAY:
        return
    seconds = effort.work / TYPICAL_SPEED
    if effort.clock is not None:
        seconds = min(seconds, effort.seconds())
    if seconds > WORTH_A_WARNING:
        warnings.warn(
            f"the search for a plan of {slots:,} slots of {size} contexts may take {seconds:.0f} s "
            "of a processor; give a shorter time limit (seconds=, or time_limit in a spec) to see "
            "a plan sooner, which shows less and is as private",
            SlowSearch,
            stacklevel=2,
        )


@contextmanager
def time_limit(
    seconds: Number,
    check: str = "best",
    *,
    clock: Clock | None = time.monotonic,
    among: Sequence[str] | None = None,
) -> Iterator[None]:
    """Inside, searches share `seconds`; a single check that is named gets all of them.

    `among` names the checks that will be tried, all the proved ones unless it is given.
    They begin once the compiled loops are loaded. With `clock=None` they are nominal: work is
    counted and no clock is looked at, so that equal calls give equal plans and a slow machine takes
    longer.
    """
    left, allowed = time_left(), float(positive(seconds, "time_limit"))
    if left is not None:  # of `shoal.time_limit`, which counts by the clock
        allowed, clock = min(allowed, max(left, LEAST_LEFT)), clock or time.monotonic
    if clock is not None:
        load_compiled()  # no part of the limit
    token = _limit.set(SearchBudget(allowed, check, clock, among))
    try:
        yield
    finally:
        _limit.reset(token)


def effort_for(check: str) -> Effort:
    """What a check may spend: its part of the limit, SECONDS of counted work when there is none.

    Where only `shoal.time_limit` is set, SECONDS at the most and what is left of it.
    """
    limit, left = _limit.get(None), time_left()
    if limit is not None:
        return limit.effort(check)
    if left is None:
        return Effort(SECONDS * SPEED)
    return Effort(SECONDS * SPEED, clock=time.monotonic, ends=time.monotonic() + READY * left)


def by_clock() -> bool:
    """Whether searches end by a clock, so that what they find depends on the machine's load."""
    limit = _limit.get(None)
    return time_left() is not None if limit is None else limit.clock is not None


def refuse_long_days(check: str, slots: int) -> None:
    """Refuse a check whose search does not scale to a long day, where "best" tries several."""
    limit = _limit.get(None)
    if limit is not None and limit.check == "best" and slots > LONG_DAY:
        raise Refused(
            f"{check} is not tried for days of more than {LONG_DAY} slots unless it is named: "
            "mask-adaptive finds more in the same time"
        )


def start_turn(check: str) -> Effort:
    """As `effort_for`, for a check whose turn it is; refused when others used up the time.

    The check that is named, and the first that is tried, always has a turn.
    """
    limit = _limit.get(None)
    if limit is not None:
        limit.turns += 1
        if limit.clock is not None and limit.turns > 1 and limit.clock() >= limit.ends:
            raise Refused(f"the time limit of {limit.seconds:g} s was over before its turn")
    return effort_for(check)


def compute_once(key: object, find: Callable[[], Found]) -> Found:
    """What `find` returns, found once for all checks inside one time limit."""
    limit = _limit.get(None)
    if limit is None:
        return find()
    if key not in limit.found:
        limit.found[key] = find()
    return limit.found[key]  # type: ignore[return-value]


@lru_cache(maxsize=1)
def load_compiled() -> None:
    """Runs every search on a day of three slots, once a process: loads what is compiled."""
    from shoal.contexts.search.adaptive import (
        next_releases,
        occurring_segments,
        search_segments,
        segments_rise,
    )
    from shoal.contexts.search.beliefs import memoryless_rise, prepare
    from shoal.contexts.search.greedy import keeps_every_bound, prior_order, search_vector
    from shoal.contexts.search.window import search_windows

    shares = np.repeat([[1.0, 0.0, 0.0]], 3, axis=0)
    day = prepare(np.full(3, 1 / 3), np.full((2, 3, 3), 1 / 3), shares, 0.3)
    suppression = search_vector(day, prior_order(day), np.arange(3) / 2)
    memoryless_rise(day, suppression)
    keeps_every_bound(day, suppression)
    next_releases(day)
    found = search_segments(
        day, 0.3, baseline=suppression, work=Effort(1e6, clock=lambda: 0.0, ends=1.0)
    )
    segments_rise(day, occurring_segments(day, found).hidden)
    search_windows(day, 0.3, found, programs=3)
