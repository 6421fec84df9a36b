"""Loads, and where needed compiles, the loops of suppression before a clock is started."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from shoal.loss.suppression import memoryless_rise, prepare
from shoal.loss.suppression_adaptive import next_releases, occurring, search, segments_rise
from shoal.loss.suppression_effort import Effort
from shoal.loss.suppression_greedy import greedy, prior_order, private
from shoal.loss.suppression_window import windowed


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
