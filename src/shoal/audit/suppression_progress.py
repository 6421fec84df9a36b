"""Who is told how far a long audit is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[int, int], None]  # what is done, and of how much

_watching: ContextVar[Progress | None] = ContextVar("audit progress", default=None)


@contextmanager
def watched(progress: Progress) -> Iterator[None]:
    """Inside, audits of long days say how far they are."""
    token = _watching.set(progress)
    try:
        yield
    finally:
        _watching.reset(token)


@contextmanager
def part(number: int, count: int) -> Iterator[None]:
    """Inside, work is one of `count` equal parts, and `number` of them are done."""
    outer = _watching.get()
    if outer is None:
        yield
        return
    with watched(lambda done, total: outer(number * total + done, count * total)):
        yield


def tell(done: int, total: int) -> None:
    """Tells whoever watches."""
    progress = _watching.get()
    if progress is not None:
        progress(done, total)
