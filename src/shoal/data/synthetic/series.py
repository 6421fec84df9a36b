"""Made-up days: what people do, where their phones are, and what houses draw from the grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.data.table import Dataset, from_table

if TYPE_CHECKING:
    import polars as pl

MONDAY = datetime(2024, 3, 4)  # every made-up recording starts here
MINUTES = 1440  # in a day

# state -> (how often it is chosen, how many slots it lasts on average)
Habit = Mapping[str, tuple[float, float]]


def generator(seed: int, stream: int) -> np.random.Generator:
    """Randomness for one person or house: independent of the others, the same at every call."""
    return np.random.default_rng([seed, stream])


def at_least_one(**numbers: int) -> None:
    """Refuse a number of people, days … below 1."""
    for field, number in numbers.items():
        if isinstance(number, bool) or number < 1:
            raise InputError(f"{field} is {number}; it must be a whole number of at least 1")


def stays(habit: Habit, slots: int, before: str, draw: np.random.Generator) -> list[str]:
    """`slots` states: `before` or another to begin with, each kept for a random while.

    The next is chosen by weight among the other states of the habit.

    Stays follow a gamma law of shape 2, so very short ones are rare and the memory is longer than
    one step: real activity is not quite a Markov chain either.
    """
    day: list[str] = []
    current = before
    while len(day) < slots:
        others = [state for state in habit if state != current or not day] or list(habit)
        weights = np.array([habit[state][0] for state in others])
        current = others[int(draw.choice(len(others), p=weights / weights.sum()))]
        mean = habit[current][1]
        day += [current] * max(1, round(draw.gamma(2.0, mean / 2)))
    return day[:slots]


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
    """Return one made-up person's rows: series, time and state of every minute the device is
    worn.
    """
    import polars as pl

    habits = _Habits.sample(draw)
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
    def sample(cls, draw: np.random.Generator) -> Self:
        """Return habits drawn at random; times are minutes of the day, `sporty` is a
        probability.
        """
        return cls(
            wakes=draw.normal(7 * 60, 40),
            sleeps=draw.normal(23 * 60, 40),
            trip=draw.uniform(15, 45),
            sporty=draw.uniform(0.1, 0.5),
        )

    def day(self, weekend: bool, before: str, draw: np.random.Generator) -> list[str]:
        """The activity of each of 1,440 minutes."""
        day: list[str] = []
        for habit, end in self._day_parts(weekend, draw):
            missing = min(int(end), MINUTES) - len(day)
            if missing > 0:
                day += stays(habit, missing, day[-1] if day else before, draw)
        return day

    def _day_parts(self, weekend: bool, draw: np.random.Generator) -> list[tuple[Habit, float]]:
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


CONTEXTS = ("cafe", "commute", "friends", "gym", "home", "hospital", "shop", "work")
FIRST_HOUR = 6  # the phone is off before; every day is one chain from 6:00 to midnight


def phone_contexts(
    days: int = 56, seed: int = 1, *, people: int = 1, slot_minutes: int = 15
) -> Dataset:
    """A context per slot from 6:00 to midnight; each day is a chain of its own."""
    table = phone_table(days, seed, people=people, slot_minutes=slot_minutes)
    found = from_table(
        table, state="state", series="series", time="time", gap=timedelta(hours=FIRST_HOUR) / 2
    )
    return found.on(CONTEXTS)


def phone_table(
    days: int = 56, seed: int = 1, *, people: int = 1, slot_minutes: int = 15
) -> pl.DataFrame:
    """Columns series ("phone-1", …), time (one row a slot, nights missing) and state."""
    import polars as pl

    at_least_one(days=days, people=people)
    if slot_minutes not in (5, 10, 15):
        raise InputError(f"slot_minutes is {slot_minutes}; it must be 5, 10 or 15")
    slots = (24 - FIRST_HOUR) * 60 // slot_minutes
    frames = []
    for person in range(people):
        draw = generator(seed, person)
        states = [
            state
            for day in range(days)
            for state in _contexts_of_day(day, slots, slot_minutes, draw)
        ]
        frames.append(
            pl.DataFrame({"series": [f"phone-{person + 1}"] * len(states), "state": states})
            .with_row_index("slot")
            .with_columns(
                time=pl.lit(MONDAY + timedelta(hours=FIRST_HOUR))
                + pl.duration(
                    days=pl.col("slot") // slots, minutes=pl.col("slot") % slots * slot_minutes
                )
            )
        )
    return pl.concat(frames).select("series", "time", "state")


def _contexts_of_day(
    day: int, slots: int, slot_minutes: int, draw: np.random.Generator
) -> list[str]:
    """The contexts of one day; visits last minutes drawn around their usual length."""
    plan = _workday(draw) if day % 7 < 5 else _weekend(draw)
    contexts: list[str] = []
    for context, minutes in plan:
        length = max(1, round(draw.normal(minutes, minutes / 8) / slot_minutes))
        contexts += [context] * length
    return (contexts + ["home"] * slots)[:slots]


def _workday(draw: np.random.Generator) -> list[tuple[str, float]]:
    """Return a working day as (context, usual minutes) in order."""
    plan: list[tuple[str, float]] = [("home", 100), ("commute", 35)]
    if draw.random() < 0.04:
        plan += [("hospital", 90), ("commute", 20)]
    plan += [("work", 240)]
    if draw.random() < 0.6:
        plan += [("cafe", 30)]
    plan += [("work", 220), ("commute", 35)]
    if draw.random() < 0.25:
        plan += [("shop", 25)]
    if draw.random() < 0.3:
        plan += [("gym", 70), ("commute", 15)]
    elif draw.random() < 0.2:
        plan += [("friends", 130), ("commute", 25)]
    return plan


def _weekend(draw: np.random.Generator) -> list[tuple[str, float]]:
    """Return a day of a weekend as (context, usual minutes) in order."""
    plan: list[tuple[str, float]] = [("home", 240)]
    for place, chance, minutes in (
        ("shop", 0.7, 45),
        ("gym", 0.3, 75),
        ("hospital", 0.05, 60),
        ("cafe", 0.4, 60),
        ("friends", 0.6, 200),
    ):
        if draw.random() < chance:
            plan += [("commute", 20), (place, minutes), ("commute", 20), ("home", 60)]
    return plan


def household_power(days: int = 28, seed: int = 1, *, houses: int = 1, bin_w: int = 200) -> Dataset:
    """The bin of watts in each minute, one chain per house; a state is the lower edge of its bin.

    States are in the order of their watts: "0", "200", "400", …
    """
    table = power_table(days, seed, houses=houses, bin_w=bin_w)
    found = from_table(table, state="state", series="series", time="time")
    return found.on(sorted(found.states, key=int))


def power_table(
    days: int = 28, seed: int = 1, *, houses: int = 1, bin_w: int = 200
) -> pl.DataFrame:
    """Columns series ("house-1", …), time, watts, and state: the lower edge of the bin in watts."""
    import polars as pl

    at_least_one(days=days, houses=houses, bin_w=bin_w)
    frames = []
    for house in range(houses):
        watts = _house(days, generator(seed, house))
        frames.append(
            pl.DataFrame({"series": [f"house-{house + 1}"] * len(watts), "watts": watts})
            .with_row_index("minute")
            .with_columns(
                time=pl.lit(MONDAY) + pl.duration(minutes="minute"),
                state=(pl.col("watts") // bin_w * bin_w).cast(pl.Int64).cast(pl.String),
            )
        )
    return pl.concat(frames).select("series", "time", "watts", "state")


def _house(days: int, draw: np.random.Generator) -> Floats:
    """Return the watts a made-up house draws in every minute, never below 0."""
    minutes = days * MINUTES
    watts = draw.uniform(110, 160) + draw.normal(0, 15, minutes)
    watts += _fridge(minutes, draw)
    for day in range(days):
        _add_day(watts, day * MINUTES, day % 7 >= 5, draw)
    return np.maximum(watts, 0.0).round(1)


def _fridge(minutes: int, draw: np.random.Generator) -> Floats:
    """A compressor that runs a third of the time."""
    on, off = draw.uniform(10, 16), draw.uniform(22, 32)
    lengths = np.maximum(draw.normal([on, off], 2.0, (minutes // 20 + 2, 2)), 1).round()
    levels = np.tile([90.0, 0.0], len(lengths))
    return np.repeat(levels, lengths.astype(np.int64).ravel())[:minutes]


def _add_day(watts: Floats, start: int, weekend: bool, draw: np.random.Generator) -> None:
    """Put a day's appliances on top of the base load."""

    def use(hour: float, spread: float, minutes: float, power: float) -> None:
        begin = start + int(draw.normal(hour, spread) * 60)
        length = max(1, round(draw.normal(minutes, minutes / 6)))
        watts[max(begin, 0) : begin + length] += draw.normal(power, power / 20)

    for hour in (7.2, 10.5, 16.0, 20.5):
        if draw.random() < 0.8:
            use(hour + weekend, 0.5, 3, 2400)  # kettle
    use(7.4 + weekend, 0.3, 8, 1800)  # shower and hair
    use(18.6, 0.5, 12, 2600)  # oven heats
    use(18.9, 0.5, 25, 1100)  # oven keeps
    use(20.3, 0.6, 150, 260)  # lights and television
    if draw.random() < (0.7 if weekend else 0.3):
        use(10.5, 1.5, 16, 2050)  # washing machine heats
        use(10.9, 1.5, 55, 240)  # and turns
    if draw.random() < 0.5:
        use(21.5, 0.5, 35, 1250)  # dishwasher
