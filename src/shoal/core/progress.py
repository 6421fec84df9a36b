"""Progress callbacks and deadlines, held in context variables.

A callback or a deadline would otherwise be a parameter of every function on the way. Checking for
one that is not set costs almost no time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from shoal.core.errors import Refused
from shoal.core.numbers import Number, positive

Listener = Callable[[int, int], None]  # what is done, and how much there is
Reader = Callable[[str], None]  # what is being done, in words
Result = TypeVar("Result")
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)
_READER: ContextVar[Reader | None] = ContextVar("reader", default=None)


class OutOfTime(Refused):
    """Work that reached its deadline without a certified result."""


def unless_refused(work: Callable[[], Result], otherwise: Result) -> Result:
    """Return `work()`, or `otherwise` if it raises Refused for another reason than its deadline."""
    try:
        return work()
    except OutOfTime:
        raise
    except Refused:
        return otherwise


LAST_EVALUATION = 0.5  # seconds past a limit that an evaluation begun before it may go on


class Deadline:
    """When the time is over, and whether some search ended because of it.

    Searches end at `ends`. The one evaluation that a search needs to have anything to show may go
    on until `last`, which is the same for all limits inside each other.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.ends = seconds, time.monotonic() + seconds
        self.last = self.ends + LAST_EVALUATION
        self.cut = False

    def within(self, outer: Deadline | None) -> None:
        """End no later than a limit outside this one."""
        if outer is not None:
            self.ends, self.last = min(self.ends, outer.ends), min(self.last, outer.last)


_DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def time_limit(seconds: Number) -> Iterator[Deadline]:
    """Inside, calibrations, audits and attacks end after about so many seconds by the clock.

    A search that has a certified bound by then answers with the best one so far, and its
    certificate says so; other work is refused with a sentence. The nearest of several limits
    holds. A plan that was cut short is as private as any other: it has more noise than it might.
    """
    before, own = _DEADLINE.get(), Deadline(float(positive(seconds, "time_limit")))
    own.within(before)
    token = _DEADLINE.set(own)
    try:
        yield own
    finally:
        _DEADLINE.reset(token)
        if before is not None:
            before.cut = before.cut or own.cut


@contextmanager
def no_time_limit() -> Iterator[None]:
    """Suspend the deadline inside, for checks that decide whether a promise is kept."""
    token = _DEADLINE.set(None)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


@contextmanager
def last_evaluation() -> Iterator[None]:
    """Inside, work that asks `in_time` may go on for `LAST_EVALUATION` past the limit."""
    outer = _DEADLINE.get()
    if outer is None:
        yield
        return
    own = Deadline(outer.seconds)
    own.ends = own.last = outer.last
    token = _DEADLINE.set(own)
    try:
        yield
    finally:
        _DEADLINE.reset(token)
        outer.cut = outer.cut or own.cut


def time_left() -> float | None:
    """Seconds until the time is over, 0 once it is; None without a limit."""
    deadline = _DEADLINE.get()
    return None if deadline is None else max(0.0, deadline.ends - time.monotonic())


def time_over() -> bool:
    """Return whether the deadline has passed; True also marks the result as truncated."""
    deadline = _DEADLINE.get()
    if deadline is None or time.monotonic() < deadline.ends:
        return False
    deadline.cut = True
    return True


def cut_short() -> bool:
    """Whether a search under this limit was ended by it."""
    deadline = _DEADLINE.get()
    return deadline is not None and deadline.cut


def in_time(what: str) -> None:
    """Raise OutOfTime if the deadline has passed, for work without partial results."""
    deadline = _DEADLINE.get()
    if deadline is not None and time_over():
        raise OutOfTime(f"{what} was not over within {deadline.seconds:.3g} s; allow more time")


def evaluation_in_time(what: str) -> None:
    """Refuse to go on with an evaluation that is not over `LAST_EVALUATION` past the limit."""
    deadline = _DEADLINE.get()
    if deadline is not None and time.monotonic() >= deadline.last:
        in_time(what)


def report_progress(done: int, total: int) -> None:
    """Say that `done` of `total` is done."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(done, total)


def doing(what: str, done: int, total: int, *, bounded: bool = False) -> None:
    """Say in words what is being done, and how far it is; refuse to go on when the time is over.

    Work that is `bounded` has something certified to show by then, and looks at the time itself.
    """
    if not bounded:
        in_time(what)
    reader = _READER.get()
    if reader is not None:
        reader(f"{what}: {done} of {total} done")


@contextmanager
def heard(listener: Listener, reader: Reader | None = None) -> Iterator[None]:
    """Send progress reported inside to `listener`, and the current activity to `reader`."""
    tokens = _LISTENER.set(listener), _READER.set(reader)
    try:
        yield
    finally:
        _LISTENER.reset(tokens[0])
        _READER.reset(tokens[1])


@contextmanager
def part(number: int, count: int) -> Iterator[None]:
    """Inside, work is one of `count` equal parts, and `number` of them are done."""
    outer = _LISTENER.get()
    if outer is None:
        yield
        return
    with heard(
        lambda done, total: outer(number * total + done, count * total), reader=_READER.get()
    ):
        yield
