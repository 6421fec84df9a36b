"""Loads, and where needed compiles, the loops of suppression before a clock is started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TypeVar

import numpy as np

from shoal.contexts.search.adaptive import next_releases, occurring, search, segments_rise
from shoal.contexts.search.beliefs import memoryless_rise, prepare
from shoal.contexts.search.greedy import greedy, prior_order, private
from shoal.contexts.search.pacing import SPEED, Clock, Effort, Gauge
from shoal.contexts.search.window import windowed
from shoal.core.errors import Refused
from shoal.core.numbers import Number, positive


@lru_cache(maxsize=1)
def load() -> None:
    """Runs every search on a day of three slots, once a process."""
    moves = np.full((2, 3, 3), 1 / 3)
    shares = np.zeros((3, 3))
    shares[:, 0] = 1.0
    day = prepare(np.full(3, 1 / 3), moves, shares, 0.3)
    hidden = greedy(day, prior_order(day), np.arange(3) / 2)
    memoryless_rise(day, hidden)
    private(day, hidden)
    next_releases(day)
    found = search(day, 0.3, baseline=hidden, work=Effort(1e6, clock=lambda: 0.0, ends=1.0))
    segments_rise(day, occurring(day, found).hidden)
    windowed(day, 0.3, found, programs=3)


# How long the checks of context streams may search, and what the checks of one call share.
#
# Without a limit work is counted and nothing else, so that equal calls give equal plans on every
# machine. With one, the clock ends what the machine did not manage: the plan is then what was
# found so far, and may differ from call to call. However it ends, a plan is private.


SECONDS = 20.0  # of search at the nominal speed, unless a time limit is set
# the proved checks "best" tries, quickest first, and the share of a time limit each may take
SHARES = {
    "mask-simulatable": 0.05,
    "mask-probabilistic": 0.1,
    "mask-hybrid": 0.0,
    "mask-adaptive": 0.5,
    "mask-optimal": 0.35,
}
READY = 0.9  # of its time a check may use; the rest is for looking at its plan once more

Found = TypeVar("Found")


class SearchBudget:
    """What one call may use: seconds, of the clock too if there is one; and what it found."""

    def __init__(self, seconds: float, check: str, clock: Clock | None) -> None:
        self.seconds, self.check, self.clock = seconds, check, clock
        self.ends = clock() + seconds if clock is not None else 0.0
        self.found: dict[object, object] = {}
        self.gauge = Gauge()
        self.turns = 0

    def effort(self, check: str) -> Effort:
        """What one check may spend: all for the one that is named, else its share of what is left.

        Work is a share of the limit; seconds are a share of those that are left, so that nothing is
        lost when a check needs less than its share.
        """
        share = 1.0 if check == self.check else SHARES.get(check, 0.0)
        work = self.seconds * share * SPEED
        if self.clock is None:
            return Effort(work)
        names = list(SHARES)
        rest = sum(SHARES[name] for name in names[names.index(check) :]) if check in names else 1.0
        now = self.clock()
        part = 1.0 if check == self.check else share / rest
        ends = now + READY * part * max(0.0, self.ends - now)
        return Effort(work, clock=self.clock, ends=ends, gauge=self.gauge)


_limit: ContextVar[SearchBudget] = ContextVar("mask time limit")


@contextmanager
def time_limit(
    seconds: Number, check: str = "best", *, clock: Clock | None = time.monotonic
) -> Iterator[None]:
    """Inside, searches share `seconds`; a single check that is named gets all of them.

    They begin once the compiled loops are loaded. With `clock=None` they are nominal: work is
    counted and no clock is looked at, so that equal calls give equal plans and a slow machine takes
    longer.
    """
    if clock is not None:
        load()  # no part of the limit
    token = _limit.set(SearchBudget(float(positive(seconds, "time_limit")), check, clock))
    try:
        yield
    finally:
        _limit.reset(token)


def effort_for(check: str) -> Effort:
    """What a check may spend: its part of the limit, SECONDS of counted work when there is none."""
    limit = _limit.get(None)
    return Effort(SECONDS * SPEED) if limit is None else limit.effort(check)


def turn_of(check: str) -> Effort:
    """As `effort_for`, for a check whose turn it is; refused when others used up the time.

    The check that is named, and the first that is tried, always has a turn.
    """
    limit = _limit.get(None)
    if limit is None:
        return effort_for(check)
    limit.turns += 1
    if limit.clock is not None and limit.turns > 1 and limit.clock() >= limit.ends:
        raise Refused(f"the time limit of {limit.seconds:g} s was over before its turn")
    return limit.effort(check)


def shared(key: object, find: Callable[[], Found]) -> Found:
    """What `find` returns, found once for all checks inside one time limit."""
    limit = _limit.get(None)
    if limit is None:
        return find()
    if key not in limit.found:
        limit.found[key] = find()
    return limit.found[key]  # type: ignore[return-value]
