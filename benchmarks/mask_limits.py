"""Time limits of suppression plans, and days of one-minute slots: seconds, slots shown, memory.

Run: python -m benchmarks.mask_limits [--quick] [--process]. Each line is one call: contexts, slots,
check, limit, seconds by the wall and of the process, slots shown on average and their share, and
the peak memory of the process so far. With --process limits are kept by the clock of the process,
which shows what they do on a machine that does something else too. Minute days are generated: a
routine by the hour, contexts that last. They stand beside the same day looked at every 15 minutes,
by the best of hybrid and adaptive. Measured days are taken from the folder that SHOAL_DATA names,
when there is one.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.mask import dense_chain
from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain, fit_day
from shoal.contexts.search import limits
from shoal.contexts.secrets import SensitiveContexts

CONTEXTS = ("lying_down", "sitting", "standing", "walking", "active")
DELTA = Fraction(1, 10)
POOLED = 15  # minutes
MINUTES = 1440


def minute_day(slots: int = MINUTES, seed: int = 0) -> DayChain:
    """A day of minutes: which context is likely follows the hour; each lasts some minutes."""
    rng = np.random.default_rng(seed)
    minutes = np.array([240.0, 40.0, 6.0, 4.0, 2.0])  # how long a context lasts
    hours = rng.dirichlet([0.6, 2.0, 0.5, 0.4, 0.05], size=25)
    hours[:7] = 0.05 * hours[:7] + 0.95 * np.eye(5)[0]  # at night one lies down
    at = np.arange(slots - 1) / 60.0
    weight = (at % 1.0)[:, None]
    target = (1 - weight) * hours[at.astype(int)] + weight * hours[at.astype(int) + 1]
    stay = (1 - 1 / minutes)[None, :, None]
    moves = stay * np.eye(5) + (1 - stay) * target[:, None, :]
    return DayChain.of(moves, initial=hours[0], states=CONTEXTS, slot_minutes=1)


def every(day: DayChain, step: int) -> DayChain:
    """The same day looked at every `step` slots."""
    kept = range(0, day.slots - step, step)
    moves = [np.linalg.multi_dot(list(day.transition[t : t + step])) for t in kept]
    rows = np.array(moves)
    return DayChain.of(
        rows / rows.sum(axis=2, keepdims=True), initial=day.initial, states=day.states
    )


def measured_days(people: int = 3) -> Iterator[tuple[str, DayChain]]:
    """Days of the people with most minutes, fitted to their main activity minute by minute."""
    folder = os.environ.get("SHOAL_DATA")
    path = Path(folder) / "extrasensory_labels_1min.parquet" if folder else None
    if path is None or not path.exists():
        return
    import polars as pl

    rows = pl.read_parquet(path, columns=["user", "time_utc", "main_activity"]).drop_nulls()
    most = rows.group_by("user").len().sort("len", descending=True)["user"].to_list()
    for number, user in enumerate(most[:people]):
        days: dict[object, list[str | None]] = {}
        own = rows.filter(pl.col("user") == user)
        for moment, name in zip(own["time_utc"], own["main_activity"], strict=True):
            context = name if name in CONTEXTS else "active"
            day = days.setdefault(moment.date(), [None] * MINUTES)
            day[moment.hour * 60 + moment.minute] = context
        traces = list(days.values())
        yield f"person {number}", fit_day(traces, states=CONTEXTS, smoothing=0.1, spread=30)


def planned(name: str, day: DayChain, secret: str, check: str, seconds: float | None) -> float:
    """Print one line about one plan; returns the share of the slots it shows."""
    clock = time.process_time if "--process" in sys.argv else time.monotonic
    wall, own = time.monotonic(), time.process_time()
    plan = mask(
        day, SensitiveContexts.of(secret), delta=DELTA, check=check, seconds=seconds, clock=clock
    )
    wall, own = time.monotonic() - wall, time.process_time() - own
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    limit = "-" if seconds is None else f"{seconds:g}"
    print(
        f"{name:<22} n={day.size:<3} T={day.slots:<5} {check:<14} limit {limit:>4} s   "
        f"{wall:6.1f} s ({own:5.1f})   shows {-plan.cost:7.1f} ({-plan.cost / day.slots:.3f})   "
        f"{peak:5.0f} MB",
        flush=True,
    )
    return -plan.cost / day.slots


def compared(name: str, day: DayChain, secret: str, seconds: float) -> None:
    """A minute day within a limit, beside the same day looked at every 15 minutes."""
    few = every(day, POOLED)
    checks = ("mask-hybrid", "mask-adaptive")
    pooled = max(planned(f"{name}, {POOLED} min", few, secret, check, 20.0) for check in checks)
    share = planned(f"{name}, 1 min", day, secret, "best", seconds)
    print(f"{name:<22} share of 1-minute slots over that of {POOLED}: {share / pooled:.2f}")


def main() -> None:
    quick = "--quick" in sys.argv
    limits.load_compiled()
    for seconds in (1.0, 5.0) if quick else (5.0, 10.0, 15.0, 30.0):
        planned("dense", dense_chain(19, 96), "0", "mask-adaptive", seconds)
    for check in ("mask-adaptive",) if quick else ("mask-adaptive", "mask-optimal", "best"):
        planned("dense", dense_chain(19, 288), "0", check, 5.0 if quick else 30.0)
    for secret in ("walking",) if quick else ("walking", "sitting"):
        day = minute_day(360 if quick else MINUTES)
        compared(f"generated, {secret}", day, secret, 10.0 if quick else 60.0)
    for name, day in () if quick else measured_days():
        for secret in ("walking", "sitting"):
            compared(f"{name}, {secret}", day, secret, 60.0)


if __name__ == "__main__":
    main()
