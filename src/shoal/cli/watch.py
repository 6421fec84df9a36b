"""How long a command may compute: a limit kept by the clock, and Ctrl-C that keeps what is known.

Work is a tree of rows, models and horizons, each of which may be refused with a sentence. When the
time is over the one that is being worked on is refused, and those after it have a short grace each;
what was found before stands. Nothing is stopped while files are written or charges are made: the
clock only runs where a bar says that something is being computed. Compiled loops end first.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

from shoal.core.errors import Refused

GRACE = 1.0  # seconds for each piece of work after the time is over: group noise takes some ms
SMALLEST = 1e-3  # seconds: a timer of 0 would never ring


STOPPED = 130  # the exit code of whatever Ctrl-C ended
CTRL_C = "stopped with Ctrl-C"


class OutOfTime(Refused):
    """A piece of work that was not over in time."""


class Watch:
    """When the time of a command is over, and whether it was cut short."""

    def __init__(self, seconds: float | None, words: str) -> None:
        self.ends = None if seconds is None else time.monotonic() + seconds
        self.words = words
        self.cut = ""  # why the work was cut short; empty when it was not

    def ring(self, signum: int, frame: FrameType | None) -> None:
        """What both signals do: refuse what is being worked on."""
        if signum == signal.SIGINT:
            if self.cut:
                raise KeyboardInterrupt  # twice: it is meant
            signal.setitimer(signal.ITIMER_REAL, GRACE, GRACE)
        self.cut = self.cut or (CTRL_C if signum == signal.SIGINT else self.words)
        raise OutOfTime(f"not over in time ({self.cut}); give it longer with --time-limit")


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def limited(time_limit: str | None) -> Iterator[Watch]:
    """Inside, work under a bar ends with the limit, such as "30s"; Ctrl-C ends it too.

    Without a limit only Ctrl-C does: the first keeps what is known, the second stops.
    """
    from shoal.data.times import parse_duration

    seconds = None
    if time_limit is not None:
        seconds = parse_duration(time_limit, "--time-limit").total_seconds()
    watch = Watch(seconds, f"--time-limit {time_limit}")
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


@contextmanager
def running() -> Iterator[None]:
    """Inside, the clock of `limited` runs, if there is one and this is the main thread."""
    watch = _WATCH.get()
    if watch is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, watch.ring) for number in (signal.SIGALRM, signal.SIGINT)
    }
    if watch.ends is not None:
        left = max(SMALLEST, watch.ends - time.monotonic())
        signal.setitimer(signal.ITIMER_REAL, left, GRACE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
