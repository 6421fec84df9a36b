"""How much a search may still do: multiplications, counted, and seconds, if there is a clock.

Counted work makes equal calls give equal answers on every machine. A clock, when one is given, ends
a search that the machine is too slow or too busy to finish in time: whoever searches asks `left`
before every unit of work and ends with what was found so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Clock = Callable[[], float]  # seconds since some moment, never going back

SPEED = 1e9  # multiplications a nominal second stands for; a machine of 2024 does somewhat more


class OutOfTime(Exception):
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
        return max(0.0, self.ends - self.kept / self.gauge.speed - self.clock())

    def late(self) -> bool:
        """Whether the clock, and not the count of work, ended it."""
        return self.seconds() <= 0

    def on_time(self) -> None:
        """Raises OutOfTime once the clock has ended it."""
        if self.late():
            raise OutOfTime

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
