"""How far long work is: told by whoever works, heard by whoever shows a bar, and by nobody else.

A library cannot know whether anybody watches, and a callback through ten signatures is in
everybody's way; so the listener is a variable of the context, and telling without one is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int, int], None]  # what is done, and how much there is
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def told(done: int, total: int) -> None:
    """Say that `done` of `total` is done."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(done, total)


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Let `listener` hear what is told inside."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
