"""Notice when the wall clock jumps: then nothing is read and no slot is closed.

Slots follow the wall clock. One that is set an hour ahead would close slots that have not begun,
and after its correction every reading would be late. So the wall clock is compared with one that
only runs on. After a jump the service waits until the wall clock is right again, or until an
operator accepts it as it is (`shoal serve accept-clock`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path

from shoal.core.errors import LedgerError
from shoal.gateway.problems import RETRY, Problem
from shoal.gateway.telemetry import log


def steady_seconds() -> float:
    """Return seconds of a clock that cannot be set; the time a machine sleeps is counted where it
    can be.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class JumpWatch:
    """Compares the wall clock with a steady one; `most` is the largest step taken as a correction.

    `accepted` is a file that changes whenever an operator accepts the clock. Workers of a database
    share it.
    """

    def __init__(
        self,
        most: float,
        accepted: Path,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        """Watch the wall clock against a steady one; `most` is the largest change in seconds let
        pass.

        `accepted` is the file in which an operator accepts a jump that was noticed.
        """
        self.wall, self._steady = wall, steady
        self._most, self._file = most, accepted
        self._ahead = wall() - steady()  # what the wall clock should be ahead of the steady one
        self._result: str | None = None  # what the file held when the jump was noticed

    def expect(self, now: float) -> None:
        """Take `now` (UTC seconds) for the time it should be, instead of the wall clock."""
        self._ahead = now - self._steady()

    @property
    def time(self) -> float:
        """UTC seconds as they should be: the last that were believed, and what passed since."""
        return self._steady() + self._ahead

    def jump(self) -> float:
        """Return by how many seconds the wall clock is ahead of what it should be, or 0.0.

        Steps up to `most` are followed. A larger one lasts until the clock is right or accepted.
        """
        off = self.wall() - self.time
        if abs(off) <= self._most:
            if self._result is not None:
                log.warning("the clock is right again")
            self._result = None
            self._ahead += off
            return 0.0
        if self._result is None:
            self._result = self._read()
            log.error("the clock jumped: nothing is read or closed", seconds=round(off))
        elif self._read() != self._result:
            log.warning("the clock was accepted", seconds=round(off))
            self._result = None
            self._ahead += off
            return 0.0
        return off

    def check(self) -> None:
        """Refuse what depends on the time while the clock is not believed."""
        off = self.jump()
        if off:
            raise Problem(503, jump_text(off), headers=RETRY)

    def _read(self) -> str:
        try:
            return self._file.read_text()
        except FileNotFoundError:
            return ""


def jump_text(seconds: float) -> str:
    """Return what a jump means, and how to go on."""
    where = "ahead" if seconds > 0 else "back"
    return (
        f"the server's clock jumped {abs(seconds):,.0f} s {where}, so nothing is read and no slot "
        "is closed until it is right, or until an operator runs `shoal serve accept-clock`"
    )


def accepted_file(head_file: Path) -> Path:
    """Return the file that changes when an operator accepts the clock: beside the head file."""
    return head_file.with_name(head_file.name + ".clock")


def accept_clock(head_file: Path) -> None:
    """Let all workers of a database believe their clocks as they are now, after a jump."""
    if not head_file.exists():
        raise LedgerError(
            f"the head file {head_file} is missing, so no gateway runs with it; name the settings "
            "of the service"
        )
    accepted_file(head_file).write_text(f"{secrets.token_hex(8)}\n")
