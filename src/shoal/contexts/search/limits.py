"""How long the checks may search, and what the checks of one call share.

Work is counted in multiplications, so that equal calls give equal plans on every machine. A time
limit adds a clock, which ends a search that a slow or busy machine cannot finish in time: a search
asks `left` before every unit of work and ends with the best plan found so far. What it found then
may differ from call to call. Every plan is private, however the search ended.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from shoal.core.errors import Refused
from shoal.core.numbers import Number, positive
from shoal.core.progress import time_left

Clock = Callable[[], float]  # seconds since some moment, never going back


SPEED = 1e9  # multiplications a nominal second stands for; a machine of 2024 does somewhat more


class SearchEnded(Exception):
    """Raised when the clock ends a search that has no plan yet."""


class Gauge:
    """The measured speed of this machine in multiplications a second."""

    def __init__(self) -> None:
        self.speed = SPEED
        self.seen = False

    def note(self, work: float, seconds: float) -> None:
        """Update the speed by timed work: the geometric mean of the old and the new measurement.

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
        """Set the budget; `ends` is a moment of `clock`, and both are unlimited by default."""
        self.work, self.clock, self.ends = work, clock, ends
        self.gauge = Gauge() if gauge is None else gauge
        self.spent = 0.0
        self.kept = 0.0  # work to be done after the search, in the same time
        self.reserved = 0.0  # seconds, as measured, that looking at what was found so far takes

    @classmethod
    def of(cls, given: float | Effort) -> Effort:
        """Return an effort unchanged, and a number as an effort of so many multiplications."""
        return given if isinstance(given, Effort) else cls(given)

    def spend(self, work: float) -> None:
        """Count multiplications that were done."""
        self.spent += work

    def left(self) -> float:
        """Return the multiplications that may still be spent, within the seconds left too."""
        counted = self.work - self.spent
        return counted if self.clock is None else min(counted, self.seconds() * self.gauge.speed)

    def over(self) -> bool:
        """Return whether no work may be done any more."""
        return self.left() <= 0

    def seconds(self) -> float:
        """Return the seconds left; infinite without a clock."""
        if self.clock is None:
            return math.inf
        return max(0.0, self.ends - self.kept / self.gauge.speed - self.reserved - self.clock())

    def late(self) -> bool:
        """Return whether the clock, and not the count of work, ended the search."""
        return self.seconds() <= 0

    def on_time(self) -> None:
        """Raise SearchEnded once the clock has ended the search."""
        if self.late():
            raise SearchEnded

    def part(self, share: float) -> Effort:
        """Return a share of the work and seconds left; what it spends is not counted here."""
        work = max(0.0, self.work - self.spent) * share
        if self.clock is None:
            return Effort(work)
        now = self.clock()
        ends = now + share * max(0.0, self.ends - self.kept / self.gauge.speed - now)
        return Effort(work, clock=self.clock, ends=ends, gauge=self.gauge)

    def without(self, work: float) -> Effort:
        """Return all that is left except the seconds that `work` takes afterwards."""
        rest = Effort(self.work - self.spent, clock=self.clock, ends=self.ends, gauge=self.gauge)
        rest.kept = self.kept + work
        return rest


LONG_DAY = 288  # slots, of five minutes


SECONDS = 20.0  # of search at the nominal speed, unless a time limit is set


# the proved checks "best" tries, quickest first, and the share of a time limit each may take
WORK_SHARES = {
    "mask-simulatable": 0.05,
    "mask-probabilistic": 0.1,
    "mask-hybrid": 0.0,
    "mask-adaptive": 0.5,
    "mask-optimal": 0.35,
}


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Constants of time limits, measured with benchmarks/mask.py --limits."""

    least_seconds: float = 1e-3  # a limit of 0 would be none
    # of its time a check may search; the rest is for the last evaluation of its plan
    search_share: float = 0.9
    warn_above: float = 30.0  # seconds of one search
    typical_speed: float = 5e8  # multiplications a second of one core in the passes of a long day


LIMITS = LimitSettings()


Found = TypeVar("Found")


class SearchBudget:
    """The seconds or work that one call may use, and results that its checks share."""

    def __init__(
        self, seconds: float, check: str, clock: Clock | None, among: Sequence[str] | None = None
    ) -> None:
        """Start the budget now; `among` names the checks that will be tried."""
        self.seconds, self.check, self.clock = seconds, check, clock
        self.among = list(WORK_SHARES if among is None else among)
        self.ends = clock() + seconds if clock is not None else 0.0
        self.found: dict[object, object] = {}
        self.gauge = Gauge()
        self.turns = 0

    def effort(self, check: str) -> Effort:
        """Return what one check may spend: all if it is named, else its share of what is left.

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
        ends = now + LIMITS.search_share * part * max(0.0, self.ends - now)
        return Effort(work, clock=self.clock, ends=ends, gauge=self.gauge)


_limit: ContextVar[SearchBudget] = ContextVar("mask time limit")


class SlowSearch(UserWarning):
    """Warns that a search may take longer than `Limits.warn_above` seconds."""


def warn_if_slow(slots: int, size: int, effort: Effort) -> None:
    """Warn before the search for a long day that may take more than LIMITS.warn_above seconds."""
    if slots <= LONG_DAY:
        return
    seconds = effort.work / LIMITS.typical_speed
    if effort.clock is not None:
        seconds = min(seconds, effort.seconds())
    if seconds > LIMITS.warn_above:
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
    """Share `seconds` among the searches inside the block; a named check gets all of them.

    `among` names the checks that will be tried, all the proved ones unless it is given.
    They begin once the compiled loops are loaded. With `clock=None` they are nominal: work is
    counted and no clock is read, so that equal calls give equal plans and a slow machine takes
    longer.
    """
    left, allowed = time_left(), float(positive(seconds, "time_limit"))
    if left is not None:  # of `shoal.time_limit`, which counts by the clock
        allowed, clock = min(allowed, max(left, LIMITS.least_seconds)), clock or time.monotonic
    if clock is not None:
        load_compiled()  # no part of the limit
    token = _limit.set(SearchBudget(allowed, check, clock, among))
    try:
        yield
    finally:
        _limit.reset(token)


def effort_for(check: str) -> Effort:
    """Return what a check may spend: its part of the limit, or the default of counted work.

    Where only `shoal.time_limit` is set, SECONDS at the most and what is left of it.
    """
    limit, left = _limit.get(None), time_left()
    if limit is not None:
        return limit.effort(check)
    if left is None:
        return Effort(SECONDS * SPEED)
    return Effort(
        SECONDS * SPEED, clock=time.monotonic, ends=time.monotonic() + LIMITS.search_share * left
    )


def by_clock() -> bool:
    """Return whether searches end by a clock, so that plans depend on the load of the machine."""
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
    """Return `effort_for` a check whose turn it is; refuse it when others used up the time.

    The check that is named, and the first that is tried, always has a turn.
    """
    limit = _limit.get(None)
    if limit is not None:
        limit.turns += 1
        if limit.clock is not None and limit.turns > 1 and limit.clock() >= limit.ends:
            raise Refused(f"the time limit of {limit.seconds:g} s was over before its turn")
    return effort_for(check)


def compute_once(key: object, find: Callable[[], Found]) -> Found:
    """Return what `find` computes, once for all checks inside one time limit."""
    limit = _limit.get(None)
    if limit is None:
        return find()
    if key not in limit.found:
        limit.found[key] = find()
    return limit.found[key]  # type: ignore[return-value]


@lru_cache(maxsize=1)
def load_compiled() -> None:
    """Run every search on a day of three slots, once a process, to load compiled code."""
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
