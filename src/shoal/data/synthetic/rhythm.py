"""What all made-up days share: a clock, seeds, and stays of random length."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import numpy as np

from shoal.core.errors import InputError

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
