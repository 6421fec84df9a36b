"""Days of several people as a wearable would log them: lying, sitting, standing, walking, …"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from shoal.data.dataset import Dataset
from shoal.data.synthetic.rhythm import MINUTES, MONDAY, Habit, at_least_one, generator, stays
from shoal.data.table import from_table

if TYPE_CHECKING:
    import polars as pl

ACTIVITIES = ("lie", "ride", "run", "sit", "stand", "walk")
GAP = timedelta(minutes=10)

_NIGHT: Habit = {"lie": (1.0, 140), "walk": (0.2, 3), "stand": (0.1, 3), "sit": (0.1, 6)}
_HOME: Habit = {"sit": (1.0, 24), "stand": (0.8, 8), "walk": (0.7, 4), "lie": (0.2, 30)}
_WORK: Habit = {"sit": (1.0, 32), "stand": (0.5, 7), "walk": (0.6, 4)}
_TRIP: Habit = {"ride": (1.0, 18), "walk": (0.7, 6), "stand": (0.3, 3), "sit": (0.1, 3)}
_SPORT: Habit = {"run": (1.0, 14), "walk": (0.5, 4), "stand": (0.3, 2)}


def activity_days(people: int = 8, days: int = 7, seed: int = 1) -> Dataset:
    """An activity a minute for each person, cut at pauses over 10 minutes; six states.

    The same as reading `activity_table` with that gap.
    """
    table = activity_table(people, days, seed)
    found = from_table(table, state="state", series="series", time="time", gap=GAP)
    return found.on(ACTIVITIES)


def activity_table(people: int = 8, days: int = 7, seed: int = 1) -> pl.DataFrame:
    """Columns series ("person-1", …), time (one row a minute) and state; stretches are missing."""
    import polars as pl

    at_least_one(people=people, days=days)
    return pl.concat([_person(f"person-{i + 1}", days, generator(seed, i)) for i in range(people)])


def _person(name: str, days: int, draw: np.random.Generator) -> pl.DataFrame:
    import polars as pl

    habits = _Habits.drawn(draw)
    states: list[str] = []
    for day in range(days):
        states += habits.day(day % 7 >= 5, states[-1] if states else "lie", draw)
    worn = np.flatnonzero(_worn(len(states), draw))
    return pl.DataFrame({"minute": worn, "state": pl.Series(states).gather(worn)}).select(
        series=pl.lit(name),
        time=pl.lit(MONDAY) + pl.duration(minutes="minute"),
        state="state",
    )


@dataclass(frozen=True, slots=True)
class _Habits:
    """One person's hours: minutes of the day, minutes of a trip, and chance of sport."""

    wakes: float
    sleeps: float
    trip: float
    sporty: float

    @classmethod
    def drawn(cls, draw: np.random.Generator) -> Self:
        return cls(
            wakes=draw.normal(7 * 60, 40),
            sleeps=draw.normal(23 * 60, 40),
            trip=draw.uniform(15, 45),
            sporty=draw.uniform(0.1, 0.5),
        )

    def day(self, weekend: bool, before: str, draw: np.random.Generator) -> list[str]:
        """The activity of each of 1,440 minutes."""
        day: list[str] = []
        for habit, end in self._parts(weekend, draw):
            missing = min(int(end), MINUTES) - len(day)
            if missing > 0:
                day += stays(habit, missing, day[-1] if day else before, draw)
        return day

    def _parts(self, weekend: bool, draw: np.random.Generator) -> list[tuple[Habit, float]]:
        """What the day is made of, each part with the minute at which it ends."""
        wakes = self.wakes + draw.normal(75 if weekend else 0, 15)
        sleeps = max(self.sleeps + draw.normal(30 if weekend else 0, 20), wakes + 600)
        sport = sleeps - draw.uniform(150, 270)
        moves = [(_SPORT, sport + 45)] if draw.random() < self.sporty else []
        evening = [(_HOME, sport), *moves, (_HOME, sleeps), (_NIGHT, MINUTES)]
        if weekend:
            return [(_NIGHT, wakes), *evening]
        leaves = wakes + draw.uniform(40, 80)
        returns = leaves + self.trip + draw.normal(8 * 60, 30)
        return [
            (_NIGHT, wakes),
            (_HOME, leaves),
            (_TRIP, leaves + self.trip),
            (_WORK, returns),
            (_TRIP, returns + self.trip),
            *evening,
        ]


def _worn(minutes: int, draw: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Which minutes were recorded: about one long pause and a few lost minutes a day."""
    worn = draw.random(minutes) > 0.002
    for _ in range(draw.poisson(1.2 * minutes / MINUTES)):
        start = int(draw.integers(minutes))
        worn[start : start + int(draw.uniform(15, 150))] = False
    worn[0] = worn[-1] = True
    return worn
